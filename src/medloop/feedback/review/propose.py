"""What to ask people next: answers worth a look, out of traces and files, ranked by why they are.

    propose(store, Signals(strata_of=strata_of), actor="user:li")          # from the newest traces
    propose(store, signals, extra=candidates, actor=...)                   # and from answers that came by other ways

This collects the candidates and what was judged before; lanes.py chooses among them. What quarantine holds back is no candidate,
and the texts of the others are scrubbed: who rates is to see no patient's name. Doubtful texts that nobody released are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from medloop.contracts import Message, Reward, Score, Trace, canonical_json, sha256_id
from medloop.contracts.queue import QueueItem
from medloop.feedback.review.lanes import QueueCandidate, choose, item_id
from medloop.feedback.review.lanes import Signals as Signals
from medloop.feedback.review.novelty import Seen
from medloop.feedback.review.queue import DEFAULT, QueueConfig, scrubbed
from medloop.store.db import Store
from medloop.store.records import marks, quarantine
from medloop.store.records import review_queue as rows
from medloop.store.records.audited_read import read_by_ids

LATEST = 5000  # traces rated last and items asked last: novelty, and what a label would teach, are measured against them
CHUNK = 200
PURPOSE = "filling the review queue"


@dataclass(frozen=True)
class Proposed:
    considered: int
    added: int
    by_stratum: dict[str, int]
    by_lane: dict[str, int]  # safety, learning, chance
    by_reason: dict[str, float]  # mean among the added


def propose(
    store: Store, signals: Signals, *, extra: Iterable[QueueCandidate] = (), config: QueueConfig = DEFAULT, actor: str = "medloop"
) -> Proposed:
    """Top the queue up; returns what was looked at and what went in."""
    room = _room(store, config)
    if not sum(room.values()):
        return Proposed(0, 0, {}, {}, {})
    candidates = [*_scrubbed(store, [*from_traces(store, signals, config, actor=actor), *extra])]
    judged = list(_judged(store, actor))
    asked = [content.answers for content in rows.recent_contents(store, LATEST, actor=actor, purpose=PURPOSE)]
    seen = Seen(question for question, _ in judged)
    taught = [*((answer,) for _, answer in judged), *asked]
    chosen = choose(_not_known(store, candidates), signals, room, config, seen, taught)
    added = rows.add_items(store, chosen, actor=actor)
    return _summary(len(candidates), added, chosen)


def _summary(considered: int, added: int, chosen: Sequence[QueueItem]) -> Proposed:
    reasons: dict[str, list[float]] = {}
    for item in chosen:
        for name, value in item.reasons.items():
            reasons.setdefault(name, []).append(value)
    strata = Counter(item.stratum for item in chosen)
    lanes = Counter(lane_of(item) for item in chosen)
    return Proposed(
        considered=considered, added=added, by_stratum={str(name): n for name, n in sorted(strata.items())},
        by_lane=dict(sorted(lanes.items())),
        by_reason={name: sum(values) / len(values) for name, values in sorted(reasons.items())},
    )  # fmt: skip


def lane_of(item: QueueItem) -> str:
    return "chance" if "explore" in item.reasons else "learning" if "teaches" in item.reasons else "safety"


def _room(store: Store, config: QueueConfig) -> dict[str, int]:
    """How many items each stratum may still get: its share of the wanted size, less what is open."""
    there = rows.stats(store).open_by_stratum
    total = sum(config.quotas.values()) or 1.0
    left = max(0, config.size - sum(there.values()))
    wanted = {str(name): math.ceil(config.size * share / total) for name, share in config.quotas.items()}
    return _less(wanted, there, left)  # rounding, or a queue that is full of something else


def from_traces(store: Store, signals: Signals, config: QueueConfig, *, actor: str) -> list[QueueCandidate]:
    """The newest answers, and pairs of different answers to the same question. A complaint asks for a correction."""
    names = marks.newest_traces(store, config.pool)
    heard = marks.feedback_on_traces(store, names)
    found: list[QueueCandidate] = []
    by_question: dict[str, list[Trace]] = {}
    for at in range(0, len(names), CHUNK):
        for trace in read_by_ids(store, Trace, names[at : at + CHUNK], actor=actor, purpose=PURPOSE):
            answer = trace.conversation.answer
            if answer is None or not answer.strip():
                continue
            said = heard.get(trace.trace_id, marks.NO_FEEDBACK)
            if not said.corrected and (said.complaint or said.raters < config.raters):
                found.append(_from_trace(trace, answer, said.complaint, signals))
            question = canonical_json([message.model_dump() for message in trace.conversation.prompt])
            by_question.setdefault(question, []).append(trace)
    for some in by_question.values():
        found += _pairs(some)
    return found


def _scrubbed(store: Store, candidates: Sequence[QueueCandidate]) -> Iterator[QueueCandidate]:
    named = {name for one in candidates for name in one.traces if name is not None}
    released = quarantine.released_ids(store, sorted(named))
    for one in candidates:
        clean = scrubbed(one.prompt, one.answers)
        if clean is None or (clean.doubted and not (one.traces and released.issuperset(one.traces))):
            continue
        if len(set(clean.answers)) == len(clean.answers):  # two that differ by a name alone leave nothing to compare
            yield replace(one, prompt=clean.prompt, answers=clean.answers)


def _from_trace(trace: Trace, answer: str, complaint: float | None, signals: Signals) -> QueueCandidate:
    reasons = {} if complaint is None else {"thumbs_down": complaint}
    gap = signals.gaps.get(answer_key(trace.conversation.user_text, answer))
    if gap is None and trace.trace_id in signals.rewards:
        gap = spread(signals.rewards[trace.trace_id])
    if gap is not None:
        reasons["disagreement"] = gap
    return QueueCandidate(
        prompt=trace.conversation.prompt, answers=(answer,), kind="correct" if complaint else "rate",
        models=(trace.model_version,), traces=(trace.trace_id,), reasons=reasons,
    )  # fmt: skip


def _pairs(traces: Sequence[Trace]) -> list[QueueCandidate]:
    """Neighbours among the different answers to one question."""
    different = list({trace.conversation.answer: trace for trace in traces}.values())
    return [
        QueueCandidate(
            prompt=one.conversation.prompt,
            answers=(one.conversation.answer or "", two.conversation.answer or ""),
            kind="compare",
            models=(one.model_version, two.model_version),
            traces=(one.trace_id, two.trace_id),
        )
        for one, two in pairwise(different)
    ]


def from_samples(given: Iterable[tuple[str, str, str | None, float | None]], *, pairs: bool) -> list[QueueCandidate]:
    """Answers from files, as (question, answer, group, gap); with `pairs` neighbours of one group are compared too."""
    found: list[QueueCandidate] = []
    groups: dict[str, list[QueueCandidate]] = {}
    for question, answer, group, gap in given:
        reasons = {} if gap is None else {"disagreement": gap}
        one = QueueCandidate(prompt=(Message(role="user", content=question),), answers=(answer,), reasons=reasons)
        found.append(one)
        groups.setdefault(canonical_json([group, question]), []).append(one)
    for some in groups.values() if pairs else ():
        for one, two in pairwise({one.answers: one for one in some}.values()):
            found.append(QueueCandidate(prompt=one.prompt, answers=(*one.answers, *two.answers), kind="compare"))
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


def _not_known(store: Store, candidates: Sequence[QueueCandidate]) -> list[QueueCandidate]:
    """Without what was asked before, done or not."""
    named = {item_id(one): one for one in candidates}
    known = rows.known_items(store, list(named))
    return [one for name, one in named.items() if name not in known]


def _judged(store: Store, actor: str) -> Iterable[tuple[str, str]]:
    """Question and answer of what was rated last."""
    names = marks.rated_traces(store, LATEST)
    for at in range(0, len(names), CHUNK):
        for trace in read_by_ids(store, Trace, names[at : at + CHUNK], actor=actor, purpose=PURPOSE):
            yield trace.conversation.user_text, trace.conversation.answer or ""


def _less(room: Mapping[str, int], taken: Mapping[str, int], most: int) -> dict[str, int]:
    """What is left of each stratum's share, together no more than `most`."""
    left = {name: max(0, n - taken.get(name, 0)) for name, n in room.items()}
    while sum(left.values()) > most:
        left[max(left, key=lambda name: (left[name], name))] -= 1
    return left
