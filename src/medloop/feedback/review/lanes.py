"""The choice of a batch for the queue, in three lanes that each have a share of it.

    choose_batch(candidates, signals, places={"emergency": 50, ...}, config=config, seen=SeenQuestions())

*Safety* shows early what may do harm. Each reason is a number from 0 to 1, or missing: how far teacher and rules are apart
(`disagreement`), whether a user complained (`thumbs_down`), what is at stake (`risk`), how much of the question nobody rated
yet (`novelty`). The priority is 1 - Π(1 - weight·reason): one strong reason is enough, a missing one takes nothing away. Risk
strata have shares of this lane; what a stratum cannot fill goes to the best of the rest. A pair of answers enters this lane
only if there is evidence against one of them: comparing teaches, it does not find harm.

*Learning* (`learn`, and what safety cannot fill) takes what teaches the reward model most, see active_learning.py. Without a
reward model nobody knows what that is: then comparisons are drawn at random, to train a first one, and without any to compare
safety gets the places. *Chance* (`explore`) is always drawn at random: only such a sample says how good the answers are on the
whole, and it includes what no reason points at.

A near-duplicate of something chosen waits until nothing else is left. The lanes are merged by rank, so whoever works down the
queue meets them in their shares. The same input gives the same batch.
"""

import hashlib
import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from medloop.contracts import Message, Reward, Sample
from medloop.contracts.dataset import Stratum
from medloop.contracts.queue import QueueContent, QueueItem, QueueKind
from medloop.feedback.review.active_learning import directions, select_labels
from medloop.feedback.review.novelty import NearDuplicates, SeenQuestions, Shingles, shingles
from medloop.feedback.review.queue import QueueConfig

RISK = {"emergency": 1.0, "medication": 0.7, "pregnancy": 0.7, "child": 0.6, "elderly": 0.5, "routine": 0.0}
EVIDENCE = ("disagreement", "thumbs_down")  # against an answer

StrataOf = Callable[[str], Sequence[Stratum]]
Values = Callable[[Sequence[Sample]], Sequence[float | None]]


@dataclass(frozen=True)
class QueueCandidate:
    """Something that could be queued; `reasons` are those known already."""

    prompt: tuple[Message, ...]
    answers: tuple[str, ...]
    kind: QueueKind = "rate"
    models: tuple[str | None, ...] = ()
    traces: tuple[str | None, ...] = ()
    contexts: tuple[str, ...] = ()
    reasons: Mapping[str, float] = field(default_factory=dict)
    records: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        return "\n".join(message.content for message in self.prompt if message.role == "user")

    def samples(self) -> list[Sample]:
        return [Sample(id=str(number), question=self.question, answer=answer) for number, answer in enumerate(self.answers)]


@dataclass(frozen=True)
class Signals:
    """Where the reasons come from. What is not given is missing, never 0."""

    strata_of: StrataOf
    values: Values | None = None  # of a reward model, 0-1 per answer
    gaps: Mapping[str, float] = field(default_factory=dict)  # teacher against rules, by answer_key
    rewards: Mapping[str, Reward] = field(default_factory=dict)  # stored rewards, by trace id


def choose_batch(
    candidates: Sequence[QueueCandidate], signals: Signals, places: Mapping[str, int], config: QueueConfig, seen: SeenQuestions,
    labelled: Sequence[Sequence[str]] = (),
) -> list[QueueItem]:  # fmt: skip
    """The batch; `places` are by stratum, `labelled` are answers (or pairs) with a label, `seen` learns the chosen questions."""
    batch, entries = _Batch(seen), _entries(candidates, signals, config, seen)
    size = min(sum(places.values()), len(entries))
    random_size = round(config.explore * size) if len(entries) > size else 0  # otherwise all of them go in
    able = [entry for entry in entries if entry.candidate.kind == "compare" or "uncertainty" in entry.reasons]
    learning_size = min(round(config.learn * size), len(able))
    _fill_random(batch, entries, random_size, config)
    _fill_safety(batch, entries, _scaled(places, size - len(batch.random) - learning_size), config)
    _fill_learning(batch, able, size - len(batch.random) - len(batch.safety), config, labelled)
    rest = [entry for entry in entries if entry.index not in batch.chosen]
    batch.rest = _best(batch, rest, size - len(batch.chosen), config)
    batch.rest += _best(batch, rest, size - len(batch.chosen), config, duplicates=True)
    return [make_item(entry.candidate, config, entry.stratum, priority, entry.reasons) for entry, priority in batch.merged()]


@dataclass(order=True)
class _Entry:
    """A candidate in a heap: the highest priority first, the earlier one of two equals."""

    cost: float  # minus the priority
    index: int
    candidate: QueueCandidate = field(compare=False)
    stratum: Stratum = field(compare=False)
    reasons: dict[str, float] = field(compare=False)
    question: Shingles = field(compare=False)
    text: Shingles = field(compare=False)  # question and answers

    @property
    def for_safety(self) -> bool:
        return self.candidate.kind != "compare" or any(self.reasons.get(name, 0) > 0 for name in EVIDENCE)


class _Batch:
    """What was chosen so far, by lane, and what would be a near-duplicate of it."""

    def __init__(self, seen: SeenQuestions) -> None:
        self.seen = seen
        self.chosen: set[int] = set()
        self.safety: list[_Entry] = []
        self.learning: list[_Entry] = []
        self.random: list[_Entry] = []
        self.rest: list[_Entry] = []
        self._near: dict[str, NearDuplicates] = {}

    def add(self, entry: _Entry, *, duplicates: bool = False) -> bool:
        """Whether the entry goes in; not if it is a near-duplicate of one of its kind that did."""
        near = self._near.setdefault(entry.candidate.kind, NearDuplicates())
        if entry.index in self.chosen or (not duplicates and near.has(entry.text)):
            return False
        near.add(entry.text)
        self.chosen.add(entry.index)
        self.seen.add_shingles(entry.question)
        return True

    def merged(self) -> list[tuple[_Entry, float]]:
        """Each entry with its priority, in the order of the queue: the n-th share of each lane stands with that of the others."""
        self.safety.sort()
        ranked = [
            ((rank + 0.5) / len(lane), entry)
            for lane in (self.safety, self.learning, self.random)
            for rank, entry in enumerate(lane)
        ]  # fmt: skip
        ranked.sort(key=lambda pair: pair[0])
        merged = list[tuple[_Entry, float]]()
        for depth, entry in ranked:
            beside = self.safety[int(depth * len(self.safety))] if self.safety else None
            merged.append((entry, -beside.cost if beside else 1 - depth / 2))
        return merged + [(entry, -entry.cost) for entry in self.rest]


def _entries(
    candidates: Sequence[QueueCandidate], signals: Signals, config: QueueConfig, seen: SeenQuestions
) -> list[_Entry]:  # fmt: skip
    entries = []
    for index, (candidate, unsure) in enumerate(zip(candidates, _uncertainties(candidates, signals.values), strict=True)):
        stratum = signals.strata_of(candidate.question)[0]
        reasons = {**candidate.reasons, "risk": RISK[stratum]}
        if unsure is not None:
            reasons["uncertainty"] = unsure
        question = shingles(candidate.question)
        reasons["novelty"] = seen.novelty_of(question)
        text = shingles("\n".join((candidate.question, *candidate.answers)))
        entries.append(_Entry(-priority(reasons, config.weights), index, candidate, stratum, reasons, question, text))
    return entries


def _fill_random(batch: _Batch, entries: Sequence[_Entry], count: int, config: QueueConfig) -> None:
    for entry in _random_order(entries, config) if count else ():
        if len(batch.random) < count and batch.add(entry):
            entry.reasons["explore"] = 1.0
            batch.random.append(entry)


def _random_order(entries: Sequence[_Entry], config: QueueConfig) -> list[_Entry]:
    """In the order of their ids, which are hashes."""
    by_id = {make_item(entry.candidate, config, entry.stratum, 0.0, {}).item_id: entry for entry in entries}
    return [by_id[name] for name in sorted(by_id)]


def _fill_safety(batch: _Batch, entries: Sequence[_Entry], places: Mapping[str, int], config: QueueConfig) -> None:
    """Each stratum's best, then the best of all in what is left of the lane."""
    able = [entry for entry in entries if entry.for_safety and entry.index not in batch.chosen]
    for stratum in sorted(places):
        batch.safety += _best(batch, [entry for entry in able if entry.stratum == stratum], places[stratum], config)
    batch.safety += _best(batch, able, sum(places.values()) - len(batch.safety), config)


def _fill_learning(
    batch: _Batch, entries: Sequence[_Entry], count: int, config: QueueConfig, labelled: Sequence[Sequence[str]]
) -> None:
    left = [entry for entry in entries if entry.index not in batch.chosen]
    if count <= 0 or not left:
        return
    for entry, gain in _by_gain(batch, left, count, config, labelled):
        if batch.add(entry):
            entry.reasons["teaches"] = gain
            batch.learning.append(entry)
        if len(batch.learning) == count:
            return


def _by_gain(
    batch: _Batch, left: Sequence[_Entry], count: int, config: QueueConfig, labelled: Sequence[Sequence[str]]
) -> Iterator[tuple[_Entry, float]]:
    """Candidates with their gain, best first. What the other lanes chose will be labelled too, so it counts as labelled."""
    unsure = [entry.reasons.get("uncertainty") for entry in left]
    if all(value is None for value in unsure):
        yield from ((entry, 1.0) for entry in _random_order(left, config))
        return
    known = [*labelled, *(entry.candidate.answers for entry in (*batch.random, *batch.safety))]
    vectors = directions([*(entry.candidate.answers for entry in left), *known])
    own, others = vectors[: len(left)], vectors[len(left) :]
    for index, gain in select_labels(own, unsure, labelled=others, count=count, uncertain_share=config.doubtful):
        yield left[index], gain


def _best(
    batch: _Batch, entries: Sequence[_Entry], count: int, config: QueueConfig, *, duplicates: bool = False
) -> list[_Entry]:  # fmt: skip
    """The best, one by one. Novelty only ever falls, so an entry whose renewed priority still leads is the best there is."""
    heap, best = [entry for entry in entries if entry.index not in batch.chosen], list[_Entry]()
    heapq.heapify(heap)
    while heap and len(best) < count:
        entry = heapq.heappop(heap)
        entry.reasons["novelty"] = batch.seen.novelty_of(entry.question)
        entry.cost = -priority(entry.reasons, config.weights)
        if heap and entry.cost > heap[0].cost:
            heapq.heappush(heap, entry)
        elif batch.add(entry, duplicates=duplicates):
            best.append(entry)
    return best


def _scaled(places: Mapping[str, int], total: int) -> dict[str, int]:
    """The same shares of fewer places: the largest remainders are rounded up."""
    before = sum(places.values()) or 1
    exact = {name: n * max(0, total) / before for name, n in places.items()}
    scaled = {name: int(share) for name, share in exact.items()}
    missing = max(0, total) - sum(scaled.values())
    for name in sorted(exact, key=lambda name: (scaled[name] - exact[name], name))[:missing]:
        scaled[name] += 1
    return scaled


def make_item(
    candidate: QueueCandidate, config: QueueConfig, stratum: Stratum, priority: float, reasons: Mapping[str, float]
) -> QueueItem:
    content = QueueContent(
        prompt=candidate.prompt, answers=candidate.answers, models=candidate.models, traces=candidate.traces,
        contexts=candidate.contexts, records=candidate.records,
    )  # fmt: skip
    return QueueItem(
        kind=candidate.kind, content=content, priority=round(priority, 6),
        reasons={name: round(value, 3) for name, value in sorted(reasons.items()) if value > 0}, stratum=stratum,
        raters=1 if candidate.kind == "correct" else config.raters, trace_id=_trace_of(candidate),
    )  # fmt: skip


def _trace_of(candidate: QueueCandidate) -> str | None:
    """The trace that the item names. Of two it is either one, as a hash decides: in a check item only one of the answers has a
    trace, on either side, and nothing may tell check items from others."""
    named = [name for name in candidate.traces if name is not None]
    if len(named) < 2:
        return named[0] if named else None
    return named[hashlib.sha256("\0".join(candidate.answers).encode("utf-8", "surrogatepass")).digest()[0] % 2]


def item_id(candidate: QueueCandidate) -> str:
    """The id that the candidate would have in the queue."""
    content = QueueContent(prompt=candidate.prompt, answers=candidate.answers)
    return QueueItem(kind=candidate.kind, content=content, priority=0.0).item_id


def priority(reasons: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """1 - Π(1 - weight·reason), between 0 and 1."""
    return 1 - math.prod(1 - min(1.0, max(0.0, weights.get(name, 0.0) * value)) for name, value in reasons.items())


def _uncertainties(candidates: Sequence[QueueCandidate], values: Values | None) -> list[float | None]:
    """How unsure the reward model is: of a pair which answer it prefers, of one answer whether it is good."""
    if values is None:
        return [None] * len(candidates)
    flat = iter(values([sample for candidate in candidates for sample in candidate.samples()]))
    return [uncertainty([next(flat) for _ in candidate.answers]) for candidate in candidates]


def uncertainty(values: Sequence[float | None]) -> float | None:
    """1 - |2p - 1|: 1 where the model could as well toss a coin. For a pair p is its chance of the first, by the log odds."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if len(known) == 1:
        return 1 - abs(2 * known[0] - 1)
    first, second = (math.log(v / (1 - v)) for v in (min(max(value, 1e-6), 1 - 1e-6) for value in known))
    return 1 - abs(math.tanh((first - second) / 2))
