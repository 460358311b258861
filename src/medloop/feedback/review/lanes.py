"""The choice of a batch for the queue, in three lanes that each have a share of it.

    choose(candidates, signals, room={"emergency": 50, ...}, config=config, seen=Seen())

*Safety* shows early what may do harm. Each reason is a number from 0 to 1, or missing: how far teacher and rules are apart
(`disagreement`), whether a user complained (`thumbs_down`), what is at stake (`risk`), how much of the question nobody rated yet
(`novelty`). The priority is 1 - Π(1 - weight·reason): any one strong reason is enough, a missing one takes nothing away. Risk
strata have shares of this lane; what a stratum cannot fill goes to the best of the rest. A pair of answers is asked here only if
something speaks against one of them: comparing teaches, it does not find harm.

*Learning* (`learn`, and what safety cannot fill) takes what teaches the reward model most, see teach.py. Without a reward model
nobody knows what that is: then comparisons are drawn by lot, for a first one to be trained on, and without any to compare safety
has the places. *Chance* (`explore`) is drawn by lot always: only such a sample says how good the answers are on the whole, and it
meets what no reason points at.

A near copy of something chosen waits until nothing else is left. The lanes are merged by rank, so whoever works down the queue
meets them in their shares. The same input gives the same batch.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from medloop.contracts import Message, Reward, Sample
from medloop.contracts.dataset import Stratum
from medloop.contracts.queue import QueueContent, QueueItem, QueueKind
from medloop.feedback.review.active_learning import directions, lessons
from medloop.feedback.review.novelty import Near, Runs, Seen, runs
from medloop.feedback.review.queue import QueueConfig

RISK = {"emergency": 1.0, "medication": 0.7, "pregnancy": 0.7, "child": 0.6, "elderly": 0.5, "routine": 0.0}
EVIDENCE = ("disagreement", "thumbs_down")  # what speaks against an answer

Values = Callable[[Sequence[Sample]], Sequence[float | None]]


@dataclass(frozen=True)
class QueueCandidate:
    """Something that could be asked; `reasons` are those known already."""

    prompt: tuple[Message, ...]
    answers: tuple[str, ...]
    kind: QueueKind = "rate"
    models: tuple[str | None, ...] = ()
    traces: tuple[str | None, ...] = ()
    reasons: Mapping[str, float] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        return "\n".join(message.content for message in self.prompt if message.role == "user")

    def samples(self) -> list[Sample]:
        return [Sample(id=str(at), question=self.asked, answer=answer) for at, answer in enumerate(self.answers)]


@dataclass(frozen=True)
class Signals:
    """Where the reasons come from. What is not given is missing, never 0."""

    strata_of: Callable[[str], Sequence[Stratum]]
    values: Values | None = None  # of a reward model, 0-1 per answer
    gaps: Mapping[str, float] = field(default_factory=dict)  # teacher against rules, by answer_key
    rewards: Mapping[str, Reward] = field(default_factory=dict)  # kept scores, by trace id


def choose(
    candidates: Sequence[QueueCandidate], signals: Signals, room: Mapping[str, int], config: QueueConfig, seen: Seen,
    taught: Sequence[Sequence[str]] = (),
) -> list[QueueItem]:  # fmt: skip
    """The batch; `room` is places by stratum, `taught` the answers (or pairs) that were labelled, `seen` learns the questions."""
    batch, entries = _Batch(seen), _entries(candidates, signals, config, seen)
    places = min(sum(room.values()), len(entries))
    by_lot = round(config.explore * places) if len(entries) > places else 0  # else all of them go in
    able = [entry for entry in entries if entry.candidate.kind == "compare" or "uncertainty" in entry.reasons]
    to_learn = min(round(config.learn * places), len(able))
    _draw(batch, entries, by_lot, config)
    _guard(batch, entries, _shrunk(room, places - len(batch.lot) - to_learn), config)
    _learn(batch, able, places - len(batch.lot) - len(batch.safety), config, taught)
    rest = [entry for entry in entries if entry.at not in batch.gone]
    batch.rest = _take(batch, rest, places - len(batch.gone), config)
    batch.rest += _take(batch, rest, places - len(batch.gone), config, copies=True)
    return [_item(entry.candidate, config, entry.stratum, urgency, entry.reasons) for entry, urgency in batch.merged()]


@dataclass(order=True)
class _Entry:
    """A candidate in a heap, highest priority first, the earlier one of two equals."""

    urgency: float
    at: int
    candidate: QueueCandidate = field(compare=False)
    stratum: Stratum = field(compare=False)
    reasons: dict[str, float] = field(compare=False)
    asked: Runs = field(compare=False)  # of the question
    whole: Runs = field(compare=False)  # of question and answers

    @property
    def guards(self) -> bool:
        return self.candidate.kind != "compare" or any(self.reasons.get(name, 0) > 0 for name in EVIDENCE)


class _Batch:
    """What was chosen so far, by lane, and what would be a near copy of it."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.gone: set[int] = set()
        self.safety: list[_Entry] = []
        self.learning: list[_Entry] = []
        self.lot: list[_Entry] = []
        self.rest: list[_Entry] = []
        self._near: dict[str, Near] = {}

    def takes(self, entry: _Entry, *, copies: bool = False) -> bool:
        """Whether the entry goes in; it does not if it is nearly the same as one of its kind that did."""
        near = self._near.setdefault(entry.candidate.kind, Near())
        if entry.at in self.gone or (not copies and near.has(entry.whole)):
            return False
        near.add(entry.whole)
        self.gone.add(entry.at)
        self.seen.add_runs(entry.asked)
        return True

    def merged(self) -> list[tuple[_Entry, float]]:
        """Each entry with its priority, in the order of the queue: the n-th share of each lane stands with that of the others."""
        self.safety.sort()
        ranked = [
            ((rank + 0.5) / len(lane), entry)
            for lane in (self.safety, self.learning, self.lot)
            for rank, entry in enumerate(lane)
        ]  # fmt: skip
        ranked.sort(key=lambda one: one[0])
        found = list[tuple[_Entry, float]]()
        for depth, entry in ranked:
            beside = self.safety[int(depth * len(self.safety))] if self.safety else None
            found.append((entry, -beside.urgency if beside else 1 - depth / 2))
        return found + [(entry, -entry.urgency) for entry in self.rest]


def _entries(candidates: Sequence[QueueCandidate], signals: Signals, config: QueueConfig, seen: Seen) -> list[_Entry]:
    doubts, found = _doubts(candidates, signals.values), []
    for at, (one, unsure) in enumerate(zip(candidates, doubts, strict=True)):
        stratum = signals.strata_of(one.asked)[0]
        reasons = {**one.reasons, "risk": RISK[stratum]}
        if unsure is not None:
            reasons["uncertainty"] = unsure
        asked = runs(one.asked)
        reasons["novelty"] = seen.novelty_of(asked)
        whole = runs("\n".join((one.asked, *one.answers)))
        found.append(_Entry(-priority(reasons, config.weights), at, one, stratum, reasons, asked, whole))
    return found


def _draw(batch: _Batch, entries: Sequence[_Entry], most: int, config: QueueConfig) -> None:
    for entry in _lottery(entries, config) if most else ():
        if len(batch.lot) < most and batch.takes(entry):
            entry.reasons["explore"] = 1.0
            batch.lot.append(entry)


def _lottery(entries: Sequence[_Entry], config: QueueConfig) -> list[_Entry]:
    """In the order of their ids, which are hashes."""
    named = {_item(entry.candidate, config, entry.stratum, 0.0, {}).item_id: entry for entry in entries}
    return [named[name] for name in sorted(named)]


def _guard(batch: _Batch, entries: Sequence[_Entry], room: Mapping[str, int], config: QueueConfig) -> None:
    """The safety lane: each stratum's best, then the best of all in what is left of the lane."""
    able = [entry for entry in entries if entry.guards and entry.at not in batch.gone]
    for name in sorted(room):
        batch.safety += _take(batch, [entry for entry in able if entry.stratum == name], room[name], config)
    batch.safety += _take(batch, able, sum(room.values()) - len(batch.safety), config)


def _learn(batch: _Batch, entries: Sequence[_Entry], most: int, config: QueueConfig, taught: Sequence[Sequence[str]]) -> None:
    left = [entry for entry in entries if entry.at not in batch.gone]
    if most <= 0 or not left:
        return
    for entry, worth in _lessons(batch, left, most, config, taught):
        if batch.takes(entry):
            entry.reasons["teaches"] = worth
            batch.learning.append(entry)
        if len(batch.learning) == most:
            return


def _lessons(
    batch: _Batch, left: Sequence[_Entry], most: int, config: QueueConfig, taught: Sequence[Sequence[str]]
) -> Iterator[tuple[_Entry, float]]:
    """Candidates with their worth, best first. What the other lanes chose will be labelled too, so it counts as taught."""
    doubts = [entry.reasons.get("uncertainty") for entry in left]
    if all(value is None for value in doubts):
        yield from ((entry, 1.0) for entry in _lottery(left, config))
        return
    before = [*taught, *(entry.candidate.answers for entry in (*batch.lot, *batch.safety))]
    ways = directions([*(entry.candidate.answers for entry in left), *before])
    for at, worth in lessons(ways[: len(left)], doubts, taught=ways[len(left) :], most=most, doubtful=config.doubtful):
        yield left[at], worth


def _take(
    batch: _Batch, entries: Sequence[_Entry], most: int, config: QueueConfig, *, copies: bool = False
) -> list[_Entry]:  # fmt: skip
    """The best by turns. Novelty only ever falls, so an entry whose renewed priority still leads is the best there is."""
    heap, taken = [entry for entry in entries if entry.at not in batch.gone], list[_Entry]()
    heapq.heapify(heap)
    while heap and len(taken) < most:
        entry = heapq.heappop(heap)
        entry.reasons["novelty"] = batch.seen.novelty_of(entry.asked)
        entry.urgency = -priority(entry.reasons, config.weights)
        if heap and entry.urgency > heap[0].urgency:
            heapq.heappush(heap, entry)
        elif batch.takes(entry, copies=copies):
            taken.append(entry)
    return taken


def _shrunk(room: Mapping[str, int], most: int) -> dict[str, int]:
    """The same shares of fewer places: the largest remainders are rounded up."""
    total = sum(room.values()) or 1
    exact = {name: n * max(0, most) / total for name, n in room.items()}
    found = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: (found[name] - exact[name], name))[: max(0, most) - sum(found.values())]:
        found[name] += 1
    return found


def _item(one: QueueCandidate, config: QueueConfig, stratum: Stratum, urgency: float, reasons: Mapping[str, float]) -> QueueItem:
    content = QueueContent(prompt=one.prompt, answers=one.answers, models=one.models, traces=one.traces)
    said = {name: round(value, 3) for name, value in sorted(reasons.items()) if value > 0}
    trace = one.traces[0] if one.traces else None
    raters = 1 if one.kind == "correct" else config.raters
    return QueueItem(
        kind=one.kind, content=content, priority=round(urgency, 6), reasons=said, stratum=stratum, raters=raters, trace_id=trace
    )


def item_id(one: QueueCandidate) -> str:
    """What the candidate would be called in the queue."""
    return QueueItem(kind=one.kind, content=QueueContent(prompt=one.prompt, answers=one.answers), priority=0.0).item_id


def priority(reasons: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """1 - Π(1 - weight·reason), between 0 and 1."""
    return 1 - math.prod(1 - min(1.0, max(0.0, weights.get(name, 0.0) * value)) for name, value in reasons.items())


def _doubts(candidates: Sequence[QueueCandidate], values: Values | None) -> list[float | None]:
    """How unsure the reward model is: of a pair which answer it prefers, of one answer whether it is good."""
    if values is None:
        return [None] * len(candidates)
    flat = iter(values([sample for one in candidates for sample in one.samples()]))
    return [doubt([next(flat) for _ in one.answers]) for one in candidates]


def doubt(values: Sequence[float | None]) -> float | None:
    """1 - |2p - 1|: 1 where the model could as well toss a coin. For a pair p is its chance of the first, by the log odds."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if len(known) == 1:
        return 1 - abs(2 * known[0] - 1)
    first, second = (math.log(v / (1 - v)) for v in (min(max(value, 1e-6), 1 - 1e-6) for value in known))
    return 1 - abs(math.tanh((first - second) / 2))
