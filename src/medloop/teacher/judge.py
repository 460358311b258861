"""Judge many answers: scrub, ask what is not known yet, keep each verdict at once. What cannot be had is `Missing`.

    run = judge_all(items, config, key=key, files=Files.of(settings.workspace))
    for outcome in run.outcomes: outcome.score()          # Score or Missing, in the order of the items

Degraded mode is declared, never hidden: without a key, with the budget used up or the service down, answers from the
cache are still returned and everything else is `Missing` with the reason.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medloop.contracts import Judgement, Missing, Score, canonical_json, sha256_id
from medloop.errors import BusyError, speaking_of
from medloop.privacy import scrub
from medloop.privacy.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.files import make_folder
from medloop.teacher import fence, prompts, usage, verdict
from medloop.teacher.cache import JUDGEMENTS, Appender, Cache, key_of
from medloop.teacher.config import TeacherConfig
from medloop.teacher.failures import Failure

if TYPE_CHECKING:
    from medloop.teacher.client import Teacher

NULL_ANSWERS = ("", ":", "Thought process:", "The answer meets all criteria.", "Let's solve this problem step by step.", "解：")
NULL_CEILING = 0.1
Progress = Callable[[int, int], None]  # done, wanted


@dataclass(frozen=True)
class Item:
    """One answer to be judged; a lower `priority` is asked first, which matters when money runs out."""

    prompt_id: str
    question: str
    answer: str
    context: str | None = None
    priority: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of one item: a judgement, or why there is none."""

    item: Item
    judgement: Judgement | None
    missing: str = ""
    cached: bool = False

    def score(self) -> Score | Missing:
        author = f"teacher:{self.judgement.served_model}" if self.judgement else "teacher"
        version = f"{self.judgement.template}-{self.judgement.template_version}" if self.judgement else verdict.VERSION
        if self.judgement is None:
            return Missing(name="teacher", reason=self.missing, author=author, version=version)
        reason = self.judgement.critique or "no critique"
        return Score(name="teacher", value=self.judgement.teacher_score, reason=reason, author=author, version=version)


@dataclass(frozen=True)
class Run:
    outcomes: tuple[Outcome, ...]
    calls: int = 0
    cost: float = 0.0
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
class Files:
    """Where the teacher's files lie."""

    judgements: Path
    logs: Path

    @classmethod
    def of(cls, workspace: Workspace) -> Files:
        return cls(workspace.rl / JUDGEMENTS, workspace.logs / "deepseek_teacher")


@dataclass
class _Request:
    """One distinct question to the service, and the items that wait for it."""

    id: str
    question: str
    answer: str
    context: str | None
    priority: int
    waiting: list[int] = field(default_factory=list)


def judge_all(
    items: Sequence[Item],
    config: TeacherConfig,
    *,
    key: str,
    files: Files,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Run:
    """Judge all items; `fresh` asks again what is in the cache (the drift probe does)."""
    with _alone(files.judgements):
        return asyncio.run(_judge(items, config, key, files, progress or _silent, fresh))


def _silent(done: int, wanted: int) -> None:
    pass


@contextmanager
def _alone(judgements: Path) -> Iterator[None]:
    """Two runs at once would pay twice for the same answers."""
    lock = judgements.with_suffix(".lock")
    with speaking_of(lock):
        make_folder(lock.parent)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError("Another teacher run is at work in this workspace", "Wait until it has finished") from None
        yield
    finally:
        os.close(fd)


async def _judge(items: Sequence[Item], config: TeacherConfig, key: str, files: Files, progress: Progress, fresh: bool) -> Run:
    from medloop.teacher.client import Teacher

    template, cache = prompts.load(config.template), Cache(files.judgements)
    log = Appender(usage.log_path(files.logs))
    nulls = _null_items(len(items), config)
    outcomes: list[Outcome | None] = [None] * (len(items) + len(nulls))
    requests = _plan([*items, *nulls], config, template, outcomes)
    usual = cache.usual_fingerprint(config.model, template.version)
    named = set(config.fingerprints) or ({usual} if usual else set())
    accepted = frozenset(named) if config.stop_on_change else frozenset()
    open_requests = requests if fresh else _from_cache(requests, [*items, *nulls], cache, config, accepted, outcomes)
    work = _Work([*items, *nulls], outcomes, cache, template, config, progress)
    no_key = config.needs_key and not key
    if no_key:
        work.give_up(open_requests, "no key: set DEEPSEEK_API_KEY or MEDLOOP_TEACHER_KEY")
        open_requests = []
    spent = usage.spent_today(files.logs) if open_requests else 0.0
    async with Teacher(config, key, log=log.put, spent_today=spent, fingerprint=usual) as teacher:
        await work.run(teacher, open_requests)
    await cache.flush()
    await log.flush()
    if teacher.calls:
        usage.write_table(files.logs)
    done = [o for o in outcomes if o is not None]
    assert len(done) == len(outcomes), "every item has an outcome"
    degraded = "no key" if no_key and requests else (teacher.over.detail if teacher.over else "")
    null_scores = [o.judgement.teacher_score for o in done[len(items) :] if o.judgement]
    mean = sum(null_scores) / len(null_scores) if null_scores else None
    return Run(tuple(done[: len(items)]), teacher.calls, teacher.budget.spent_usd, degraded, tuple(teacher.changes), mean)


def _null_items(count: int, config: TeacherConfig) -> list[Item]:
    """Empty answers mixed into the traffic: a judge that praises them has been fooled or has broken."""
    wanted = min(count // config.null_probes, len(NULL_ANSWERS)) if config.null_probes else 0
    return [Item(f"null-probe-{n}", "What should I do about my chest pain?", NULL_ANSWERS[n], priority=9) for n in range(wanted)]


def _plan(
    items: Sequence[Item], config: TeacherConfig, template: prompts.Template, outcomes: list[Outcome | None]
) -> list[_Request]:
    """Scrub every item; equal ones become one request. What cannot be scrubbed is not sent."""
    from medloop.teacher.client import parameters

    base = {**parameters(config), "max_tokens": config.max_tokens, "template": template.name, "version": template.version,
            "fence": fence.VERSION, "scrub": scrub.VERSION, "rubric": verdict.VERSION}  # fmt: skip
    requests: dict[str, _Request] = {}
    for number, item in enumerate(items):
        try:
            scrubber = Scrubber()
            question, answer = fence.neutral(scrubber.scrub(item.question)), fence.neutral(scrubber.scrub(item.answer))
            context = None if item.context is None else fence.neutral(scrubber.scrub(item.context))
        except Unscrubbable as problem:
            outcomes[number] = Outcome(item, None, f"not sent: {problem.kind}")
            continue
        name = sha256_id(canonical_json({**base, "question": question, "answer": answer, "context": context or ""}))
        request = requests.setdefault(name, _Request(name, question, answer, context, item.priority))
        request.priority = min(request.priority, item.priority)
        request.waiting.append(number)
    return list(requests.values())


def _from_cache(
    requests: list[_Request],
    items: Sequence[Item],
    cache: Cache,
    config: TeacherConfig,
    accepted: frozenset[str],
    outcomes: list[Outcome | None],
) -> list[_Request]:
    """Fill in what is known; returns what is still open."""
    still_open = []
    for request in requests:
        known = cache.find(request.id, config.accepted_models, accepted)
        if known is None:
            still_open.append(request)
            continue
        for number in request.waiting:
            outcomes[number] = Outcome(items[number], _for_item(known, items[number]), cached=True)
    return still_open


def _for_item(judgement: Judgement, item: Item) -> Judgement:
    return judgement.model_copy(update={"prompt_id": item.prompt_id})


@dataclass
class _Work:
    """The requests of one run, taken by priority by as many workers as may be in flight."""

    items: Sequence[Item]
    outcomes: list[Outcome | None]
    cache: Cache
    template: prompts.Template
    config: TeacherConfig
    progress: Progress
    done: int = 0
    wanted: int = 0

    async def run(self, teacher: Teacher, requests: Sequence[_Request]) -> None:
        queue: asyncio.PriorityQueue[tuple[int, int, _Request]] = asyncio.PriorityQueue()
        for order, request in enumerate(requests):
            queue.put_nowait((request.priority, order, request))
        self.wanted = self.done + len(requests)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.config.in_flight, len(requests))):
                    group.create_task(self._worker(teacher, queue))
        except BaseExceptionGroup as several:  # a full disk stops all workers at once; one sentence is enough
            raise several.exceptions[0] from None

    async def _worker(self, teacher: Teacher, queue: asyncio.PriorityQueue[tuple[int, int, _Request]]) -> None:
        with suppress(asyncio.QueueEmpty):
            while True:
                await self._one(teacher, queue.get_nowait()[2])

    async def _one(self, teacher: Teacher, request: _Request) -> None:
        word = fence.new_fence()
        data = fence.as_data(word, question=request.question, context=request.context, answer=request.answer)
        messages = self.template.render(fence=word, data=data, criteria=_list(verdict.CRITERIA), faults=_list(verdict.FAULTS))
        about = {"judgement": request.id, "template": self.template.name, "template_version": self.template.version}
        try:
            answer = await teacher.ask(messages, partial(verdict.read_verdict, fence=word, answer=request.answer), about)
        except Failure as failure:
            self.give_up([request], f"{failure.kind}: {failure.detail}")
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
        if self.config.stop_on_change and reply.fingerprint in teacher.changes:
            self.give_up([request], f"changed: the service changed its version to {reply.fingerprint}")
            return
        self._set(request, [Outcome(self.items[n], _for_item(judgement, self.items[n])) for n in request.waiting])

    def give_up(self, requests: Sequence[_Request], reason: str) -> None:
        for request in requests:
            self._set(request, [Outcome(self.items[n], None, reason) for n in request.waiting])

    def _set(self, request: _Request, outcomes: Iterable[Outcome]) -> None:
        for number, outcome in zip(request.waiting, outcomes, strict=True):
            self.outcomes[number] = outcome
        self.done += 1
        self.progress(self.done, self.wanted)


def _list(entries: dict[str, tuple[float, str]]) -> str:
    return "\n".join(f"- {name}: {words}" for name, (_, words) in entries.items())


def rows(run: Run) -> list[dict[str, Any]]:
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
