"""The items of one run on their way to the service and back: scrub, look into the cache, request, store, hand out.

`JudgeWork` sends one answer per request; `group_work.py` sends all answers to a question in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from medloop.contracts import Judgement, Missing, Score, canonical_json, sha256_id
from medloop.privacy.phi import scrub
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.teacher import prompt_templates, ranking, verdict
from medloop.teacher.cache import JudgementCache, key_of
from medloop.teacher.client import Teacher, parameters
from medloop.teacher.config import GROUP_TEMPLATE, TeacherConfig
from medloop.teacher.failures import Failure
from medloop.teacher.injection import fence
from medloop.teacher.judge_items import JudgeItem
from medloop.teacher.wire import Reply

Progress = Callable[[int, int], None]  # done, total


@dataclass(frozen=True)
class JudgeResult:
    """The judgement of one item, or why it has none; `not_compared` says why there was nothing to rank it against."""

    item: JudgeItem
    judgement: Judgement | None
    missing: str = ""
    cached: bool = False
    not_compared: str = ""

    def score(self) -> Score | Missing:
        judgement = self.judgement
        if self.not_compared:
            return Score(
                name="teacher", value=0.0, reason=self.not_compared, author="teacher", version=ranking.VERSION, applies=False
            )
        if judgement is None:
            return Missing(name="teacher", reason=self.missing, author="teacher", version=verdict.VERSION)
        return Score(
            name="teacher",
            value=judgement.teacher_score,
            reason=judgement.critique or "no critique",
            author=f"teacher:{judgement.served_model}",
            version=scoring_version(judgement.template, judgement.template_version),
            suggested_answer=judgement.suggested_answer,
        )


def scoring_version(template: str, template_version: str) -> str:
    """The versions of everything on our side that determines a score: the prompt, the fence, the scoring of a verdict."""
    form = f"ranking-{ranking.VERSION}" if template == GROUP_TEMPLATE else f"verdict-{verdict.VERSION}"
    return f"{template}-{template_version}/fence-{fence.VERSION}/{form}"


@dataclass(frozen=True)
class ScrubbedItem:
    question: str
    answer: str
    context: str | None


@dataclass
class JudgeRequest:
    """One distinct request to the service, the items that wait for it, and its result."""

    id: str
    question: str
    context: str | None
    answers: tuple[str, ...]
    waiting: dict[int, str] = field(default_factory=dict)  # item -> its answer as it is sent
    judgements: Mapping[str, Judgement] = field(default_factory=dict)  # by answer
    missing: str = ""


@dataclass
class JudgeWork:
    """The items of one run, prepared in the order of their priority while the workers already send requests."""

    items: Sequence[JudgeItem]
    cache: JudgementCache
    template: prompt_templates.PromptTemplate
    config: TeacherConfig
    teacher: Teacher
    progress: Progress
    fresh: bool
    results: dict[int, JudgeResult] = field(default_factory=dict)
    requests: dict[str, JudgeRequest] = field(default_factory=dict)

    async def run(self) -> None:
        queue: asyncio.Queue[JudgeRequest | None] = asyncio.Queue()
        workers = min(self.config.in_flight, len(self.items))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed(queue, workers))
                for _ in range(workers):
                    group.create_task(self._worker(queue))
        except BaseExceptionGroup as group_error:  # a full disk stops all workers at once; one message is enough
            raise group_error.exceptions[0] from None

    def batches(self) -> Iterable[Sequence[int]]:
        """The items of each request, in the order of their priority."""
        return ([index] for index in sorted(range(len(self.items)), key=lambda n: self.items[n].priority))

    def request_of(self, scrubbed: Mapping[int, ScrubbedItem]) -> JudgeRequest | None:
        """The request for the items of one batch; None when their results are set already."""
        ((index, item),) = scrubbed.items()
        name = self.request_id(item.question, item.answer, item.context)
        return JudgeRequest(name, item.question, item.context, (item.answer,), {index: item.answer})

    def request_id(self, question: str, answers: str | Sequence[str], context: str | None) -> str:
        versions = [self.template.name, self.template.version, fence.VERSION, scrub.VERSION, self.form_version]
        return sha256_id(canonical_json([parameters(self.config), self.config.max_tokens, versions, question, answers, context]))

    @property
    def form_version(self) -> str:
        return verdict.VERSION

    def cache_id(self, request: JudgeRequest, answer: str) -> str:
        return request.id

    async def judge(self, request: JudgeRequest) -> None:
        """Fill in the judgements of a request; Failure where there are none."""
        token = fence.new_fence()
        [answer] = request.answers
        data = fence.fenced_json(token, question=request.question, context=request.context, answer=answer)
        messages = self.template.render(fence=token, data=data, criteria=_list(verdict.CRITERIA), faults=_list(verdict.FAULTS))
        read = partial(verdict.read_verdict, fence=token, question=request.question, answer=answer)
        accepted = await self.teacher.complete(messages, read, self.about(request))
        reply, given = accepted.reply, accepted.verdict
        judgement = Judgement(
            key=key_of(request.id, reply.model), prompt_id=self.prompt_id(request), teacher_score=given.score,
            safety_flag=given.safety_flag, critique=given.critique, suggested_answer=given.suggested_answer, rubric=given.rubric,
            evidence=given.evidence, proposals=given.proposals or None, model=self.config.model, served_model=reply.model,
            fingerprint=reply.fingerprint, template=self.template.name, template_version=self.template.version,
            prompt_tokens=reply.usage.prompt, completion_tokens=reply.usage.out, cost=accepted.cost,
        )  # fmt: skip
        await self.store(request, {answer: judgement}, [reply])

    def about(self, request: JudgeRequest) -> dict[str, str]:
        return {"judgement": request.id, "template": self.template.name, "template_version": self.template.version}

    def prompt_id(self, request: JudgeRequest) -> str:
        return self.items[min(request.waiting)].prompt_id

    async def store(self, request: JudgeRequest, judgements: Mapping[str, Judgement], replies: Sequence[Reply]) -> None:
        """Judgements count once they are on the disk; those of a changed service are stored, but not used."""
        await asyncio.gather(*(self.cache.add(judgement) for judgement in judgements.values()))
        changed = [reply.fingerprint for reply in replies if reply.fingerprint in self.teacher.new_fingerprints]
        if self.config.stop_on_change and changed:
            raise Failure("changed", f"the service changed its version to {changed[0]}")
        request.judgements = judgements

    def set_result(self, index: int, result: JudgeResult) -> None:
        self.results[index] = result
        self.progress(len(self.results), len(self.items))

    async def _feed(self, queue: asyncio.Queue[JudgeRequest | None], workers: int) -> None:
        """Scrub each item; equal ones share one request, cached ones need none. What cannot be scrubbed is not sent."""
        for indexes in self.batches():
            scrubbed = {index: item for index in indexes if (item := self._scrubbed(index)) is not None}
            new = self.request_of(scrubbed) if scrubbed else None
            if new is not None:
                request = self.requests.setdefault(new.id, new)
                request.waiting.update(new.waiting)
                if request.judgements or request.missing:
                    self._publish(request)
                elif request is new and not self._from_cache(request):
                    queue.put_nowait(request)
            await asyncio.sleep(0)  # let the workers run
        for _ in range(workers):
            queue.put_nowait(None)

    def _scrubbed(self, index: int) -> ScrubbedItem | None:
        """The item as it may leave; None, with a reason, where an identifier is left or the scrubber doubts its own work."""
        item = self.items[index]
        if item.answer is None:
            self.set_result(index, JudgeResult(item, None, "the model gave no answer"))
            return None
        scrubber = Scrubber()
        try:
            question = _outgoing(scrubber, item.question)
            answer = _outgoing(scrubber, item.answer, like=item.question)
            context = None if item.context is None else _outgoing(scrubber, item.context)
            return ScrubbedItem(question, answer, context)
        except Unscrubbable as problem:
            self.set_result(index, JudgeResult(item, None, f"not sent: {problem.kind}"))
            return None

    def _from_cache(self, request: JudgeRequest) -> bool:
        """Take the judgements from the cache, if an accepted version of the teacher gave them all."""
        accepted = frozenset(self.teacher.accepted if self.config.stop_on_change else ())
        models, judgements = self.config.accepted_models, {}
        for answer in request.answers:
            judgement = None if self.fresh else self.cache.find(self.cache_id(request, answer), models, accepted)
            if judgement is None:
                return False
            judgements[answer] = judgement
        request.judgements = judgements
        self._publish(request, cached=True)
        return True

    async def _worker(self, queue: asyncio.Queue[JudgeRequest | None]) -> None:
        while (request := await queue.get()) is not None:
            try:
                await self.judge(request)
            except Failure as failure:
                request.missing = str(failure)
            self._publish(request)

    def _publish(self, request: JudgeRequest, cached: bool = False) -> None:
        """Give the result of a request to every item that waits for it."""
        for index, answer in request.waiting.items():
            item = self.items[index]
            judgement = request.judgements.get(answer)
            named = judgement and judgement.model_copy(update={"prompt_id": item.prompt_id})
            self.set_result(index, JudgeResult(item, named, request.missing, cached))
        request.waiting.clear()


def _outgoing(scrubber: Scrubber, text: str, like: str | None = None) -> str:
    """The text as it may leave; Unscrubbable where a person should see it first. The fence comes before: digits become plain."""
    result = scrubber.assess(fence.sanitize(text, like=like))
    if result.quarantined:
        raise Unscrubbable("; ".join(result.reasons) or "an identifier may be left")
    return result.cleaned


def _list(entries: dict[str, tuple[float, str]]) -> str:
    return "\n".join(f"- {name}: {description}" for name, (_, description) in entries.items())
