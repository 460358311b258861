"""The group judge: all answers to one question are ranked in one call, in an order that the seed shuffles.

A share of the groups is ranked a second time with the answers in the opposite order. The scores are then the mean of both, and
how far the two agree tells whether the teacher judges the answers or their places. The cache does not depend on the order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from medloop.contracts import Judgement, canonical_json, sha256_id
from medloop.teacher import ranking
from medloop.teacher.cache import key_of
from medloop.teacher.client import AcceptedReply
from medloop.teacher.failures import Failure
from medloop.teacher.injection import fence
from medloop.teacher.judge_work import JudgeRequest, JudgeResult, JudgeWork, ScrubbedItem
from medloop.teacher.ranking import Ranking, read_ranking

TOKENS_PER_ANSWER = 160  # of a reply: a critique of 20 words, a quotation and the form around them
ALONE = "this question has no other answer to compare with"


class GroupWork(JudgeWork):
    """The items of one run, ranked question by question."""

    def batches(self) -> Iterable[Sequence[int]]:
        groups: dict[tuple[str, str, str], list[int]] = {}
        for index, item in enumerate(self.items):
            groups.setdefault((item.group or "", item.question, item.context or ""), []).append(index)
        return sorted(groups.values(), key=lambda indexes: min(self.items[index].priority for index in indexes))

    def request_of(self, scrubbed: Mapping[int, ScrubbedItem]) -> JudgeRequest | None:
        answers = tuple(sorted({item.answer for item in scrubbed.values()}))
        problem = ""
        if len(answers) > self.config.group_max:
            problem = f"too many: {len(answers)} answers to one question; at most {self.config.group_max} are ranked in one call"
        if problem or len(answers) < 2:
            for index in scrubbed:
                self.set_result(index, JudgeResult(self.items[index], None, problem, not_compared="" if problem else ALONE))
            return None
        first = next(iter(scrubbed.values()))
        claims = {item.answer: item.claim for item in scrubbed.values() if item.claim}
        name = self.request_id(first.question, answers, first.context, claims)
        waiting = {index: item.answer for index, item in scrubbed.items()}
        return JudgeRequest(name, first.question, first.context, answers, waiting, claims)

    @property
    def form_version(self) -> str:
        return f"ranking-{ranking.VERSION}"

    def cache_id(self, request: JudgeRequest, answer: str) -> str:
        return sha256_id(canonical_json([request.id, answer]))

    async def judge(self, request: JudgeRequest) -> None:
        rng = random.Random(f"{self.config.order_seed}:{request.id}")
        order = rng.sample(request.answers, len(request.answers))
        calls = [await self._rank(request, order)]
        if rng.random() < self.config.position_check:
            try:
                calls.append(await self._rank(request, order[::-1]))
            except Failure:  # the first ranking stands, unchecked
                pass
        await self.store(request, self._judgements(request, calls), [call.reply for call in calls])

    async def _rank(self, request: JudgeRequest, order: Sequence[str]) -> AcceptedReply[Ranking]:
        token = fence.new_fence()
        shown = [{"id": str(number), "text": text} for number, text in enumerate(order, 1)]
        data = fence.fenced_json(token, question=request.question, context=request.context, answers=shown)
        read = partial(read_ranking, fence=token, question=request.question, answers=order, claims=request.claims)
        tokens = max(self.config.max_tokens, TOKENS_PER_ANSWER * (len(order) + 2))
        about = {**self.about(request), "answers": str(len(order))}
        return await self.teacher.complete(self.template.render(fence=token, data=data), read, about, max_tokens=tokens)

    def _judgements(self, request: JudgeRequest, calls: Sequence[AcceptedReply[Ranking]]) -> dict[str, Judgement]:
        """One per answer, so that everything that reads judgements reads these too; the first has the cost of the call."""
        rankings, reply = [call.verdict for call in calls], calls[0].reply
        scores = ranking.mean_scores(rankings)
        agreement = ranking.agreement(*rankings) if len(rankings) == 2 else None
        judgements = {}
        for number, text in enumerate(request.answers):
            entries = [ranked.answers[text] for ranked in rankings]
            dangerous = any(entry.dangerous for entry in entries)
            paid = calls if number == 0 else ()
            judgements[text] = Judgement(
                key=key_of(self.cache_id(request, text), reply.model), prompt_id=self.prompt_id(request),
                teacher_score=scores[text], safety_flag=dangerous, critique=entries[0].critique,
                suggested_answer=rankings[0].suggested_answer,
                rubric={"dangerous_advice": dangerous, "addresses_grader": text in request.claims},
                evidence={"rank": entries[0].quote} if entries[0].quote else {}, group=request.id,
                rank=1 + sum(score > scores[text] for score in scores.values()), agreement=agreement,
                model=self.config.model, served_model=reply.model, fingerprint=reply.fingerprint, template=self.template.name,
                template_version=self.template.version, prompt_tokens=sum(call.reply.usage.prompt for call in paid),
                completion_tokens=sum(call.reply.usage.out for call in paid), cost=sum(call.cost for call in paid),
            )  # fmt: skip
        return judgements
