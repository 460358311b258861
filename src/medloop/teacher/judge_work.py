"""The items of one run on their way to the service and back: scrub, look into the cache, request, store, hand out.

`JudgeWork` sends one answer per request; `group_work.py` sends all answers to a question in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from medloop.contracts import Judgement, Missing, Score, canonical_json, sha256_id
from medloop.lexicon.findings import named_findings
from medloop.privacy.phi import scrub
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.teacher import extraction, prompt_templates, ranking, verdict
from medloop.teacher.cache import JudgementCache, key_of
from medloop.teacher.client import AcceptedReply, Teacher, parameters
from medloop.teacher.config import EXTRACT_TEMPLATE, GRADE_TEMPLATE, GROUP_TEMPLATE, HARM_TEMPLATE, TeacherConfig
from medloop.teacher.extraction import DANGER, Extraction, HarmForm, about_patient, read_extraction
from medloop.teacher.failures import Failure
from medloop.teacher.injection import fence
from medloop.teacher.injection.fence import FencedValue
from medloop.teacher.judge_items import JudgeItem
from medloop.teacher.verdict import TeacherVerdict, read_form
from medloop.teacher.wire import Reply

V = TypeVar("V")
Progress = Callable[[int, int], None]  # done, total
HARM_TOKENS = 128  # of the reply about one statement
EXTRACTION_FORM_TOKENS = 512  # of the reply of a first pass, besides the quotations


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
    extracted = f"/extraction-{extraction.VERSION}" if template == GRADE_TEMPLATE else ""
    return f"{template}-{template_version}/fence-{fence.VERSION}/{form}{extracted}"


def template_of(config: TeacherConfig) -> prompt_templates.PromptTemplate:
    """The template of the last request; its version names those of the requests before it too."""
    *before, last = (prompt_templates.load(name) for name in config.templates)
    return replace(last, version="+".join((last.version, *(template.version for template in before))))


@dataclass(frozen=True)
class ScrubbedItem:
    """An item as it is sent; `claim` is what the answer said about its own grading, which is not sent.

    `question_cut`: a part of the question or of its context is not sent either.
    """

    question: str
    answer: str
    context: str | None
    claim: str = ""
    question_cut: bool = False


@dataclass
class JudgeRequest:
    """One distinct request to the service, the items that wait for it, and its result."""

    id: str
    question: str
    context: str | None
    answers: tuple[str, ...]
    waiting: dict[int, str] = field(default_factory=dict)  # item -> its answer as it is sent
    claims: Mapping[str, str] = field(default_factory=dict)  # by answer, what was cut out of it
    judgements: Mapping[str, Judgement] = field(default_factory=dict)  # by answer
    missing: str = ""
    question_cut: bool = False


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
        claims = {item.answer: item.claim} if item.claim else {}
        name = self.request_id(item.question, item.answer, item.context, claims, item.question_cut)
        return JudgeRequest(
            name, item.question, item.context, (item.answer,), {index: item.answer}, claims, question_cut=item.question_cut
        )

    def request_id(
        self, question: str, answers: str | Sequence[str], context: str | None, claims: Mapping[str, str], cut: bool = False
    ) -> str:
        versions = [scoring_version(self.template.name, self.template.version), scrub.VERSION, self.form_version]
        texts = [question, answers, context, dict(claims), cut]
        return sha256_id(canonical_json([parameters(self.config), self.config.max_tokens, versions, texts]))

    @property
    def form_version(self) -> str:
        return verdict.VERSION

    def cache_id(self, request: JudgeRequest, answer: str) -> str:
        return request.id

    async def judge(self, request: JudgeRequest) -> None:
        """Fill in the judgements of a request; Failure where there are none."""
        [answer] = request.answers
        given, calls = await (self._in_passes if self.template.name == GRADE_TEMPLATE else self._in_one_pass)(request, answer)
        if claim := request.claims.get(answer):
            given = given.lowered(claim)
        if request.question_cut:
            given = replace(given, critique=f"{given.critique} {verdict.QUESTION_CUT}")
        reply = calls[-1].reply
        judgement = Judgement(
            key=key_of(request.id, reply.model), prompt_id=self.prompt_id(request), teacher_score=given.score,
            safety_flag=given.safety_flag, critique=given.critique, suggested_answer=given.suggested_answer, rubric=given.rubric,
            evidence=given.evidence, proposals=given.proposals or None, model=self.config.model, served_model=reply.model,
            fingerprint=reply.fingerprint, template=self.template.name, template_version=self.template.version,
            prompt_tokens=sum(call.reply.usage.prompt for call in calls),
            completion_tokens=sum(call.reply.usage.out for call in calls), cost=sum(call.cost for call in calls),
        )  # fmt: skip
        await self.store(request, {answer: judgement}, [call.reply for call in calls])

    async def _in_one_pass(self, request: JudgeRequest, answer: str) -> tuple[TeacherVerdict, list[AcceptedReply[Any]]]:
        shown = {"question": request.question, "context": request.context, "answer": answer}
        call = await self._grade(request, shown, request.question, answer)
        return call.verdict, [call]

    async def _in_passes(self, request: JudgeRequest, answer: str) -> tuple[TeacherVerdict, list[AcceptedReply[Any]]]:
        """First what the answer says, then the grade of that alone. Every call is booked."""
        question = about_patient(request.question) or request.question
        read = partial(read_extraction, question=question, answer=answer)
        shown: dict[str, FencedValue] = {"question": request.question, "context": request.context, "text": answer}
        tokens = max(self.config.max_tokens, len(answer.encode()) // 2 + EXTRACTION_FORM_TOKENS)
        first = await self.ask(request, EXTRACT_TEMPLATE, shown, read, tokens, faults=_list(verdict.FAULTS))
        told, calls = first.verdict, [first]
        if not told.statements:
            return told.empty_verdict(), calls
        if self.config.passes == 3:
            told = await self._check_one_by_one(request, told, question, calls)
        statements = [{"id": str(number), "quote": quote} for number, quote in enumerate(told.statements, 1)]
        shown = {"question": question, "context": about_patient(request.context or "") or None, "statements": statements}
        graded = await self._grade(request, shown, question, "\n".join(told.statements))
        return told.added_to(graded.verdict), [*calls, graded]

    async def _check_one_by_one(
        self, request: JudgeRequest, told: Extraction, question: str, calls: list[AcceptedReply[Any]]
    ) -> Extraction:
        """Each statement alone, so that an injected one can speak only for itself. Ends with the first that is harmful.

        It is checked with the question, and again with names of what the question mentions: an injection in the question cannot
        reach that check, because the names are from our own lists.
        """
        tokens = HARM_TOKENS if self.config.thinking is False else self.config.max_tokens
        findings = named_findings(f"{request.question}\n{request.context or ''}")
        patients: tuple[dict[str, FencedValue], ...] = ({"question": question}, {"findings": findings})
        for statement in () if DANGER in told.faults else told.chunks():
            for patient in patients:
                shown = {**patient, "statement": statement}
                calls.append(await self.ask(request, HARM_TEMPLATE, shown, partial(read_form, kind=HarmForm), tokens))
                if calls[-1].verdict.harmful:
                    return told.with_harm(statement)
        return told

    async def ask(
        self,
        request: JudgeRequest,
        template: str,
        shown: Mapping[str, FencedValue],
        read: Callable[..., V],
        tokens: int,
        **values: str,
    ) -> AcceptedReply[V]:
        """A request with one of the other templates; `read` gets the reply and the check word."""
        token, other = fence.new_fence(), prompt_templates.load(template)
        messages = other.render(fence=token, data=fence.fenced_json(token, **shown), **values)
        about = {**self.about(request), "template": other.name, "template_version": other.version}
        return await self.teacher.complete(messages, partial(read, fence=token), about, max_tokens=tokens)

    async def _grade(
        self, request: JudgeRequest, shown: Mapping[str, FencedValue], question: str, answer: str
    ) -> AcceptedReply[TeacherVerdict]:
        token = fence.new_fence()
        data = fence.fenced_json(token, **shown)
        messages = self.template.render(fence=token, data=data, criteria=_list(verdict.CRITERIA), faults=_list(verdict.FAULTS))
        read = partial(verdict.read_verdict, fence=token, question=question, answer=answer)
        return await self.teacher.complete(messages, read, self.about(request))

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
            scrubbed = {index: item for index in indexes if (item := self.scrubbed(index)) is not None}
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

    def scrubbed(self, index: int) -> ScrubbedItem | None:
        """The item as it may leave; None, with a reason, where an identifier is left or the scrubber doubts its own work."""
        item = self.items[index]
        if item.answer is None:
            self.set_result(index, JudgeResult(item, None, "the model gave no answer"))
            return None
        scrubber = Scrubber()
        try:
            asked = fence.inspect(item.question, by_patient=True)
            background = None if item.context is None else fence.inspect(item.context)
            question = _outgoing(scrubber, asked.text)
            # What was injected into the question must not excuse the answer, not even what may be innocent there.
            fenced = fence.inspect(item.answer, like=fence.sanitize(item.question))
            answer = _outgoing(scrubber, fenced.text)
            context = None if background is None else _outgoing(scrubber, background.text)
            cut = asked.cut or (background is not None and background.cut)
            return ScrubbedItem(question, answer, context, _shown_claim(scrubber, fenced.claims), cut)
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


def _outgoing(scrubber: Scrubber, fenced: str) -> str:
    """The text as it may leave; Unscrubbable where a person should see it first. It went through the fence: digits are plain."""
    result = scrubber.assess(fenced)
    if result.quarantined:
        raise Unscrubbable("; ".join(result.reasons) or "an identifier may be left")
    return result.cleaned


def _shown_claim(scrubber: Scrubber, claims: Sequence[str]) -> str:
    """The first claim, short and without identifiers, for the people who read the judgement."""
    if not claims:
        return ""
    result = scrubber.assess(" ".join(claims[0].split())[:200])
    return "text that cannot be shown" if result.quarantined else result.cleaned


def _list(entries: dict[str, tuple[float, str]]) -> str:
    return "\n".join(f"- {name}: {description}" for name, (_, description) in entries.items())
