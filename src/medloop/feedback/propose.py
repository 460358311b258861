"""What to ask people next: answers worth a look, ranked by why they are, with room for every risk stratum.

    propose(store, Signals(strata_of=strata_of), actor="user:li")          # from the newest traces
    propose(store, signals, extra=candidates, actor=...)                   # and from answers that came by other ways

Each reason is a number from 0 to 1, or missing: how unsure the reward model is (`uncertainty`), how far teacher and rules are
apart (`disagreement`), how much of the question nobody rated yet (`novelty`), what is at stake (`risk`), whether a user
complained (`thumbs_down`). The priority is 1 - Π(1 - weight·reason): any one strong reason is enough, a missing one takes
nothing away.

A share of the items (`explore`) is drawn at random: a model's doubt is worth little while it knows little, and only a random
sample says how good the answers are on the whole. The rest is chosen greedily, because novelty falls with every chosen item: of
ten rephrasings of one question the first is new, the others are not. The best of each stratum go in until its share of the queue
is full; what a stratum cannot fill goes to the best of the rest.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Message, Reward, Sample, Score, Trace, canonical_json, sha256_id
from medloop.contracts.dataset import Stratum
from medloop.contracts.queue import QueueContent, QueueItem, QueueKind
from medloop.feedback.novelty import Seen, runs
from medloop.feedback.queue import DEFAULT, QueueConfig
from medloop.store import marks
from medloop.store import queue as rows
from medloop.store.db import Store
from medloop.store.reads import read_some

RISK = {"emergency": 1.0, "medication": 0.7, "pregnancy": 0.7, "child": 0.6, "elderly": 0.5, "routine": 0.0}
RATED = 5000  # traces rated last, against which novelty is measured
CHUNK = 200
PURPOSE = "filling the review queue"

Values = Callable[[Sequence[Sample]], Sequence[float | None]]


@dataclass(frozen=True)
class Candidate:
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


@dataclass(frozen=True)
class Proposed:
    considered: int
    added: int
    by_stratum: dict[str, int]
    by_reason: dict[str, float]  # mean among the added


def propose(
    store: Store, signals: Signals, *, extra: Iterable[Candidate] = (), config: QueueConfig = DEFAULT, actor: str = "medloop"
) -> Proposed:
    """Top the queue up; returns what was looked at and what went in."""
    room = _room(store, config)
    if not sum(room.values()):
        return Proposed(0, 0, {}, {})
    candidates = [*from_traces(store, signals, config, actor=actor), *extra]
    fresh = _not_known(store, candidates, config)
    seen = Seen(_rated_questions(store, actor))
    chosen = choose(fresh, signals, room, config, seen)
    added = rows.add_items(store, chosen, actor=actor)
    reasons: dict[str, list[float]] = {}
    for item in chosen:
        for name, value in item.reasons.items():
            reasons.setdefault(name, []).append(value)
    strata = Counter(item.stratum for item in chosen)
    return Proposed(
        considered=len(candidates), added=added, by_stratum={str(name): n for name, n in sorted(strata.items())},
        by_reason={name: sum(values) / len(values) for name, values in sorted(reasons.items())},
    )  # fmt: skip


def _room(store: Store, config: QueueConfig) -> dict[str, int]:
    """How many items each stratum may still get: its share of the wanted size, less what is open."""
    there = rows.stats(store).open_by_stratum
    total = sum(config.quotas.values()) or 1.0
    left = max(0, config.size - sum(there.values()))
    wanted = {str(name): math.ceil(config.size * share / total) for name, share in config.quotas.items()}
    return _less(wanted, there, left)  # rounding, or a queue that is full of something else


def from_traces(store: Store, signals: Signals, config: QueueConfig, *, actor: str) -> list[Candidate]:
    """The newest answers, and pairs of different answers to the same question. A complaint asks for a correction."""
    names = marks.newest_traces(store, config.pool)
    heard = marks.heard(store, names)
    found: list[Candidate] = []
    by_question: dict[str, list[Trace]] = {}
    for at in range(0, len(names), CHUNK):
        for trace in read_some(store, Trace, names[at : at + CHUNK], actor=actor, purpose=PURPOSE):
            answer = trace.conversation.answer
            if answer is None or not answer.strip():
                continue
            said = heard.get(trace.trace_id, marks.SILENCE)
            if not said.corrected and (said.complaint or said.raters < config.raters):
                found.append(_from_trace(trace, answer, said.complaint, signals))
            question = canonical_json([message.model_dump() for message in trace.conversation.prompt])
            by_question.setdefault(question, []).append(trace)
    for some in by_question.values():
        found += _pairs(some)
    return found


def _from_trace(trace: Trace, answer: str, complaint: float | None, signals: Signals) -> Candidate:
    reasons = {} if complaint is None else {"thumbs_down": complaint}
    gap = signals.gaps.get(answer_key(trace.conversation.asked, answer))
    if gap is None and trace.trace_id in signals.rewards:
        gap = spread(signals.rewards[trace.trace_id])
    if gap is not None:
        reasons["disagreement"] = gap
    return Candidate(
        prompt=trace.conversation.prompt, answers=(answer,), kind="correct" if complaint else "rate",
        models=(trace.model_version,), traces=(trace.trace_id,), reasons=reasons,
    )  # fmt: skip


def _pairs(traces: Sequence[Trace]) -> list[Candidate]:
    """Neighbours among the different answers to one question."""
    different = list({trace.conversation.answer: trace for trace in traces}.values())
    return [
        Candidate(
            prompt=one.conversation.prompt,
            answers=(one.conversation.answer or "", two.conversation.answer or ""),
            kind="compare",
            models=(one.model_version, two.model_version),
            traces=(one.trace_id, two.trace_id),
        )
        for one, two in pairwise(different)
    ]


def from_samples(given: Iterable[tuple[str, str, str | None, float | None]], *, pairs: bool) -> list[Candidate]:
    """Answers from files, as (question, answer, group, gap); with `pairs` neighbours of one group are compared too."""
    found: list[Candidate] = []
    groups: dict[str, list[Candidate]] = {}
    for question, answer, group, gap in given:
        reasons = {} if gap is None else {"disagreement": gap}
        one = Candidate(prompt=(Message(role="user", content=question),), answers=(answer,), reasons=reasons)
        found.append(one)
        groups.setdefault(canonical_json([group, question]), []).append(one)
    for some in groups.values() if pairs else ():
        for one, two in pairwise({one.answers: one for one in some}.values()):
            found.append(Candidate(prompt=one.prompt, answers=(*one.answers, *two.answers), kind="compare"))
    return found


def answer_key(question: str, answer: str) -> str:
    """What joins a conflict on file with the same answer elsewhere."""
    return sha256_id(canonical_json([question, answer]))


def spread(reward: Reward) -> float | None:
    """How far the parts of a reward are apart: the teacher against the rest where it spoke, else the parts among themselves."""
    good = {
        part.name: part.value if reward.weights.get(part.name, 1.0) >= 0 else 1 - part.value
        for part in reward.parts
        if isinstance(part, Score) and part.applies
    }
    teacher = good.pop("teacher", None)
    if not good or (teacher is None and len(good) < 2):
        return None
    rest = list(good.values())
    mean = sum(rest) / len(rest)
    if teacher is not None:
        return abs(teacher - mean)
    return min(1.0, 2 * math.sqrt(sum((value - mean) ** 2 for value in rest) / len(rest)))


def _not_known(store: Store, candidates: Sequence[Candidate], config: QueueConfig) -> list[Candidate]:
    """Without what was asked before, done or not."""
    named = {_item(one, config, "routine", 0.0, {}).item_id: one for one in candidates}
    known = rows.known_items(store, list(named))
    return [one for name, one in named.items() if name not in known]


def _rated_questions(store: Store, actor: str) -> Iterable[str]:
    names = marks.rated_traces(store, RATED)
    for at in range(0, len(names), CHUNK):
        for trace in read_some(store, Trace, names[at : at + CHUNK], actor=actor, purpose=PURPOSE):
            yield trace.conversation.asked


def choose(
    candidates: Sequence[Candidate], signals: Signals, room: Mapping[str, int], config: QueueConfig, seen: Seen
) -> list[QueueItem]:
    """The greedy choice; `seen` learns every chosen question."""
    if not candidates:
        return []
    entries = _entries(candidates, signals, config, seen)
    chosen = _explore(entries, room, seen, config)
    left = sum(room.values()) - len(chosen)
    lacking = _less(room, Counter(str(item.stratum) for item in chosen), left)
    heaps: dict[str, list[_Entry]] = {}
    for entry in entries:
        heaps.setdefault(entry.stratum, []).append(entry)
    for heap in heaps.values():
        heapq.heapify(heap)
    chosen += [item for name in sorted(heaps) for item in _take(heaps[name], lacking.get(name, 0), seen, config)]
    left = sum(room.values()) - len(chosen)
    rest = [entry for heap in heaps.values() for entry in heap]
    heapq.heapify(rest)
    return chosen + _take(rest, left, seen, config)


@dataclass(order=True)
class _Entry:
    """A candidate in a heap, highest priority first, the earlier one of two equals."""

    urgency: float
    at: int
    candidate: Candidate = field(compare=False)
    stratum: Stratum = field(compare=False)
    reasons: dict[str, float] = field(compare=False)
    features: NDArray[np.uint32] = field(compare=False)


def _entries(candidates: Sequence[Candidate], signals: Signals, config: QueueConfig, seen: Seen) -> list[_Entry]:
    doubts, found = _doubts(candidates, signals.values), []
    for at, (one, unsure) in enumerate(zip(candidates, doubts, strict=True)):
        stratum = signals.strata_of(one.asked)[0]
        reasons = {**one.reasons, "risk": RISK[stratum]}
        if unsure is not None:
            reasons["uncertainty"] = unsure
        features = runs(one.asked)
        reasons["novelty"] = seen.novelty_of(features)
        found.append(_Entry(-priority(reasons, config.weights), at, one, stratum, reasons, features))
    return found


def _explore(entries: list[_Entry], room: Mapping[str, int], seen: Seen, config: QueueConfig) -> list[QueueItem]:
    """A share of the room for items drawn evenly from all, taken out of `entries`. Ids are hashes: their order is a lottery."""
    places = sum(room.values())
    wanted = round(config.explore * places) if len(entries) > places else 0  # else all of them go in
    named = {_item(entry.candidate, config, entry.stratum, 0.0, {}).item_id: entry for entry in entries} if wanted else {}
    drawn = sorted(named)[:wanted]
    taken = []
    for name in drawn:
        entry = named[name]
        seen.add_runs(entry.features)
        # Anywhere in the upper half: neither always before what is urgent nor never reached.
        urgency = 0.5 + int(name[-8:], 16) / 2**33
        taken.append(_item(entry.candidate, config, entry.stratum, urgency, {**entry.reasons, "explore": 1.0}))
    gone = {named[name].at for name in drawn}
    entries[:] = [entry for entry in entries if entry.at not in gone]
    return taken


def _less(room: Mapping[str, int], taken: Mapping[str, int], most: int) -> dict[str, int]:
    """What is left of each stratum's share, together no more than `most`."""
    left = {name: max(0, n - taken.get(name, 0)) for name, n in room.items()}
    while sum(left.values()) > most:
        left[max(left, key=lambda name: (left[name], name))] -= 1
    return left


def _take(heap: list[_Entry], most: int, seen: Seen, config: QueueConfig) -> list[QueueItem]:
    """The best by turns. Novelty only ever falls, so an entry whose renewed priority still leads is the best there is."""
    taken: list[QueueItem] = []
    while heap and len(taken) < most:
        entry = heapq.heappop(heap)
        entry.reasons["novelty"] = seen.novelty_of(entry.features)
        entry.urgency = -priority(entry.reasons, config.weights)
        if heap and entry.urgency > heap[0].urgency:
            heapq.heappush(heap, entry)
            continue
        seen.add_runs(entry.features)
        taken.append(_item(entry.candidate, config, entry.stratum, -entry.urgency, entry.reasons))
    return taken


def _item(one: Candidate, config: QueueConfig, stratum: Stratum, urgency: float, reasons: Mapping[str, float]) -> QueueItem:
    content = QueueContent(prompt=one.prompt, answers=one.answers, models=one.models, traces=one.traces)
    said = {name: round(value, 3) for name, value in sorted(reasons.items()) if value > 0}
    trace = one.traces[0] if one.traces else None
    raters = 1 if one.kind == "correct" else config.raters
    return QueueItem(
        kind=one.kind, content=content, priority=round(urgency, 6), reasons=said, stratum=stratum, raters=raters, trace_id=trace
    )


def priority(reasons: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """1 - Π(1 - weight·reason), between 0 and 1."""
    return 1 - math.prod(1 - min(1.0, max(0.0, weights.get(name, 0.0) * value)) for name, value in reasons.items())


def _doubts(candidates: Sequence[Candidate], values: Values | None) -> list[float | None]:
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
