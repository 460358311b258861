"""Judge many answers: scrub, ask what is not known yet, keep each verdict at once. What cannot be had is `Missing`.

    run = judge_all(items, config, key=key, files=Files.of(settings.workspace))
    for outcome in run.outcomes: outcome.score()          # Score or Missing, in the order of the items

Degraded mode is declared, never hidden: without a key, with the budget used up or the service down, answers from the
cache are still returned and everything else is `Missing` with the reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from medloop.contracts import Judgement, Missing, Score, canonical_json, sha256_id
from medloop.errors import ConfigError, explain_os_errors
from medloop.privacy.phi import scrub
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
from medloop.teacher import prompt_templates, usage, verdict
from medloop.teacher.cache import JUDGEMENTS, Appender, Cache, key_of
from medloop.teacher.client import Teacher, parameters
from medloop.teacher.config import TeacherConfig
from medloop.teacher.failures import Failure
from medloop.teacher.injection import fence
from medloop.teacher.judge_items import JudgeItem

NULL_ANSWERS = ("", ":", "Thought process:", "The answer meets all criteria.", "Let's solve this problem step by step.", "解：")
NULL_CEILING = 0.1
Progress = Callable[[int, int], None]  # done, wanted


@dataclass(frozen=True)
class JudgeResult:
    """What became of one item: a judgement, or why there is none."""

    item: JudgeItem
    judgement: Judgement | None
    missing: str = ""
    cached: bool = False

    def score(self) -> Score | Missing:
        author = f"teacher:{self.judgement.served_model}" if self.judgement else "teacher"
        said = self.judgement
        version = scoring_version(said.template, said.template_version) if said else verdict.VERSION
        if self.judgement is None:
            return Missing(name="teacher", reason=self.missing, author=author, version=version)
        reason = self.judgement.critique or "no critique"
        return Score(name="teacher", value=self.judgement.teacher_score, reason=reason, author=author, version=version)


def scoring_version(template: str, template_version: str) -> str:
    """All of ours that decides about a number: the prompt, what the fence takes out, how a verdict becomes a score."""
    return f"{template}-{template_version}/fence-{fence.VERSION}/verdict-{verdict.VERSION}"


@dataclass(frozen=True)
class JudgeRun:
    outcomes: tuple[JudgeResult, ...]
    calls: int = 0
    cost: float = 0.0
    tokens: int = 0
    degraded: str = ""
    changes: tuple[str, ...] = ()
    null_mean: float | None = None

    @property
    def judgements(self) -> list[Judgement]:
        return [o.judgement for o in self.outcomes if o.judgement is not None]

    @property
    def missing(self) -> Counter[str]:
        return Counter(o.missing for o in self.outcomes if o.judgement is None)

    @property
    def missing_share(self) -> float:
        return self.missing.total() / len(self.outcomes) if self.outcomes else 0.0


@dataclass(frozen=True)
class TeacherFiles:
    """Where the teacher's files lie."""

    judgements: Path
    logs: Path

    @classmethod
    def of(cls, workspace: Workspace) -> TeacherFiles:
        return cls(workspace.rl / JUDGEMENTS, workspace.logs / "deepseek_teacher")


@dataclass
class _Request:
    """One distinct question to the service, the items that wait for it, and what came of it."""

    id: str
    question: str
    answer: str
    context: str | None
    waiting: list[int] = field(default_factory=list)
    judgement: Judgement | None = None
    missing: str = ""


def judge_all(
    items: Sequence[JudgeItem],
    config: TeacherConfig,
    *,
    key: str,
    files: TeacherFiles,
    progress: Progress | None = None,
    fresh: bool = False,
) -> JudgeRun:
    """Judge all items; `fresh` asks again what is in the cache (the drift probe does)."""
    with _alone(files.judgements):
        return asyncio.run(_judge(items, config, key, files, progress or _silent, fresh))


def require_key(run: JudgeRun, config: TeacherConfig, key: str) -> None:
    """For commands, before they write: without a key, and with nothing in the cache, there is nothing to report."""
    if config.needs_key and not key and not run.judgements:
        raise ConfigError("No teacher key", "Set DEEPSEEK_API_KEY, then run again. Nothing was written")


def _silent(done: int, wanted: int) -> None:
    pass


@contextmanager
def _alone(judgements: Path) -> Iterator[None]:
    """Two runs at once would pay twice for the same answers."""
    lock = judgements.with_suffix(".lock")
    with explain_os_errors(lock, writing=True):
        make_folder(lock.parent)
    with locked_file(lock, wait_s=0, what="The teacher of this workspace", mode=0o666):
        yield


async def _judge(
    items: Sequence[JudgeItem], config: TeacherConfig, key: str, files: TeacherFiles, progress: Progress, fresh: bool
) -> JudgeRun:

    template, cache = prompt_templates.load(config.template), Cache(files.judgements)
    log = Appender(usage.log_path(files.logs))
    usual = cache.usual_fingerprint(config.model, template.version)
    teacher = Teacher(config, key, log=log.put, spent_today=usage.spent_today(files.logs), fingerprint=usual)
    if config.needs_key and not key:
        teacher.over = Failure("no_key", "set DEEPSEEK_API_KEY or MEDLOOP_TEACHER__KEY")
    work = _Work([*items, *_null_items(len(items), config)], cache, template, config, teacher, progress, fresh)
    try:
        async with teacher:
            await work.run()
    finally:  # also after Ctrl-C: what is finished is kept
        await cache.flush()
        await log.flush()
    if teacher.calls:
        usage.write_table(files.logs)
    done = work.outcomes()
    degraded = f"{teacher.over.kind}: {teacher.over.detail}" if teacher.over and any(o.judgement is None for o in done) else ""
    null_scores = [o.judgement.teacher_score for o in done[len(items) :] if o.judgement]
    mean = sum(null_scores) / len(null_scores) if null_scores else None
    spent = teacher.budget
    return JudgeRun(
        tuple(done[: len(items)]), teacher.calls, spent.spent_usd, spent.spent_tokens, degraded, tuple(teacher.changes), mean
    )


def _null_items(count: int, config: TeacherConfig) -> list[JudgeItem]:
    """Empty answers mixed into the traffic: a judge that praises them has been fooled or has broken."""
    wanted = min(count // config.null_probes, len(NULL_ANSWERS)) if config.null_probes else 0
    return [
        JudgeItem(f"null-probe-{n}", "What should I do about my chest pain?", NULL_ANSWERS[n], priority=9) for n in range(wanted)
    ]


@dataclass
class _Work:
    """The items of one run: prepared in the order of their priority while the workers already ask."""

    items: Sequence[JudgeItem]
    cache: Cache
    template: prompt_templates.Template
    config: TeacherConfig
    teacher: Teacher
    progress: Progress
    fresh: bool
    found: dict[int, JudgeResult] = field(default_factory=dict)
    requests: dict[str, _Request] = field(default_factory=dict)

    def outcomes(self) -> list[JudgeResult]:
        return [self.found[number] for number in range(len(self.items))]

    async def run(self) -> None:
        queue: asyncio.Queue[_Request | None] = asyncio.Queue()
        workers = min(self.config.in_flight, len(self.items))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed(queue, workers))
                for _ in range(workers):
                    group.create_task(self._worker(queue))
        except BaseExceptionGroup as several:  # a full disk stops all workers at once; one sentence is enough
            raise several.exceptions[0] from None

    async def _feed(self, queue: asyncio.Queue[_Request | None], workers: int) -> None:
        """Scrub each item; equal ones become one request, known ones none. What cannot be scrubbed is not sent."""
        for number in sorted(range(len(self.items)), key=lambda n: self.items[n].priority):
            item = self.items[number]
            if item.answer is None:
                self._set(number, JudgeResult(item, None, "the model gave no answer"))
                continue
            try:
                request = self._request(item, item.answer)
            except Unscrubbable as problem:
                self._set(number, JudgeResult(item, None, f"not sent: {problem.kind}"))
                continue
            known = self.requests.setdefault(request.id, request)
            known.waiting.append(number)
            if known.judgement is not None or known.missing:
                self._tell(known)
            elif known is request and not self._remembered(known):
                queue.put_nowait(known)
            await asyncio.sleep(0)  # the workers' turn
        for _ in range(workers):
            queue.put_nowait(None)

    def _request(self, item: JudgeItem, answer: str) -> _Request:
        scrubber = Scrubber()
        question = fence.neutral(scrubber.scrub(item.question))
        answer = fence.neutral(scrubber.scrub(answer), like=item.question)
        context = None if item.context is None else fence.neutral(scrubber.scrub(item.context))
        versions = [self.template.name, self.template.version, fence.VERSION, scrub.VERSION, verdict.VERSION]
        asked = [parameters(self.config), self.config.max_tokens, versions, question, answer, context]
        return _Request(sha256_id(canonical_json(asked)), question, answer, context)

    def _remembered(self, request: _Request) -> bool:
        """Fill in what the cache knows, of the accepted versions of the teacher only."""
        accepted = frozenset(self.teacher.accepted if self.config.stop_on_change else ())
        known = None if self.fresh else self.cache.find(request.id, self.config.accepted_models, accepted)
        if known is None:
            return False
        request.judgement = known
        self._tell(request, cached=True)
        return True

    async def _worker(self, queue: asyncio.Queue[_Request | None]) -> None:
        while (request := await queue.get()) is not None:
            await self._one(request)
            self._tell(request)

    async def _one(self, request: _Request) -> None:
        word = fence.new_fence()
        data = fence.as_data(word, question=request.question, context=request.context, answer=request.answer)
        messages = self.template.render(fence=word, data=data, criteria=_list(verdict.CRITERIA), faults=_list(verdict.FAULTS))
        about = {"judgement": request.id, "template": self.template.name, "template_version": self.template.version}
        read = partial(verdict.read_verdict, fence=word, question=request.question, answer=request.answer)
        try:
            answer = await self.teacher.ask(messages, read, about)
        except Failure as failure:
            request.missing = f"{failure.kind}: {failure.detail}"
            return
        reply, found = answer.reply, answer.verdict
        judgement = Judgement(
            key=key_of(request.id, reply.model), prompt_id=self.items[request.waiting[0]].prompt_id, teacher_score=found.score,
            safety_flag=found.safety_flag, critique=found.critique, suggested_answer=found.suggested_answer, rubric=found.rubric,
            evidence=found.evidence, proposals=found.proposals or None, model=self.config.model, served_model=reply.model,
            fingerprint=reply.fingerprint, template=self.template.name, template_version=self.template.version,
            prompt_tokens=reply.usage.prompt, completion_tokens=reply.usage.out, cost=answer.cost,
        )  # fmt: skip
        await self.cache.keep(judgement)
        if self.config.stop_on_change and reply.fingerprint in self.teacher.changes:
            request.missing = f"changed: the service changed its version to {reply.fingerprint}"
        else:
            request.judgement = judgement

    def _tell(self, request: _Request, cached: bool = False) -> None:
        """Everybody who waits for this request learns what came of it."""
        for number in request.waiting:
            item = self.items[number]
            mine = request.judgement and request.judgement.model_copy(update={"prompt_id": item.prompt_id})
            self._set(number, JudgeResult(item, mine, request.missing, cached))
        request.waiting.clear()

    def _set(self, number: int, outcome: JudgeResult) -> None:
        self.found[number] = outcome
        self.progress(len(self.found), len(self.items))


def _list(entries: dict[str, tuple[float, str]]) -> str:
    return "\n".join(f"- {name}: {words}" for name, (_, words) in entries.items())


def rows(run: JudgeRun) -> list[dict[str, Any]]:
    """One line per item for a file: the score or the reason it is missing, and the verdict's parts."""
    found = []
    for outcome in run.outcomes:
        score = outcome.score()
        row: dict[str, Any] = {"prompt_id": outcome.item.prompt_id, "cached": outcome.cached}
        row["score" if isinstance(score, Score) else "missing"] = score.model_dump(mode="json")
        if outcome.judgement is not None:
            row["judgement"] = outcome.judgement.model_dump(mode="json", exclude_none=True)
        found.append(row)
    return found
