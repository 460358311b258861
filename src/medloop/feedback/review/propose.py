"""Fills the review queue: collects answers from traces and files, and chooses those most worth a person's time.

    propose(store, Signals(strata_of=strata_of), actor="user:li")          # from the newest traces
    propose(store, signals, extra=candidates, actor=...)                   # and from answers of other origin

This collects the candidates and what was rated before; lanes.py chooses among them. What quarantine holds back is not a
candidate, and the other texts are scrubbed: raters must not see a patient's name. Doubtful texts that nobody released are left
out.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from medloop.contracts import Message, Reward, Score, Trace, canonical_json, sha256_id
from medloop.contracts.queue import QueueItem
from medloop.feedback.review.lanes import QueueCandidate, choose_batch, item_id
from medloop.feedback.review.lanes import Signals as Signals
from medloop.feedback.review.novelty import SeenQuestions
from medloop.feedback.review.queue import DEFAULT, QueueConfig, scrub_content
from medloop.store.db import Store
from medloop.store.records import marks, quarantine, review_queue
from medloop.store.records.audited_read import read_by_ids

RECENT = 5000  # traces rated last and items queued last: novelty and the gain of a label are measured against them
CHUNK = 200
PURPOSE = "filling the review queue"


@dataclass(frozen=True)
class QueueFill:
    """What a fill considered and added."""

    considered: int
    added: int
    by_stratum: dict[str, int]
    by_lane: dict[str, int]  # safety, learning, chance
    by_reason: dict[str, float]  # mean among the added
    checks: int = 0  # check items beside them


def propose(
    store: Store, signals: Signals, *, extra: Iterable[QueueCandidate] = (), complaints: Sequence[QueueItem] = (),
    config: QueueConfig = DEFAULT, actor: str = "medloop",
) -> QueueFill:  # fmt: skip
    """Top the queue up; returns how many candidates there were and what went in, `complaints` queued just before included."""
    places = _free_places(store, config)
    if not sum(places.values()):
        return summary(len(complaints), len(complaints), complaints)
    candidates = [*scrubbed(store, [*candidates_from_traces(store, signals, config, actor=actor), *extra])]
    rated = list(_recently_rated(store, actor))
    queued = [content.answers for content in review_queue.recent_contents(store, RECENT, actor=actor, purpose=PURPOSE)]
    seen = SeenQuestions(question for question, _ in rated)
    labelled = [*((answer,) for _, answer in rated), *queued]
    chosen = choose_batch(_not_queued_before(store, candidates), signals, places, config, seen, labelled)
    added = review_queue.add_items(store, chosen, actor=actor)
    return summary(len(candidates) + len(complaints), added + len(complaints), [*complaints, *chosen])


def summary(considered: int, added: int, chosen: Sequence[QueueItem]) -> QueueFill:
    """A fill in numbers."""
    reasons: dict[str, list[float]] = {}
    for item in chosen:
        for name, value in item.reasons.items():
            reasons.setdefault(name, []).append(value)
    strata = Counter(item.stratum for item in chosen)
    lanes = Counter(lane_of(item) for item in chosen)
    return QueueFill(
        considered=considered, added=added, by_stratum={str(name): n for name, n in sorted(strata.items())},
        by_lane=dict(sorted(lanes.items())),
        by_reason={name: sum(values) / len(values) for name, values in sorted(reasons.items())},
    )  # fmt: skip


def lane_of(item: QueueItem) -> str:
    return "chance" if "explore" in item.reasons else "learning" if "teaches" in item.reasons else "safety"


def _free_places(store: Store, config: QueueConfig) -> dict[str, int]:
    """How many items each stratum may still get: its share of the configured size, less what is open."""
    open_items = review_queue.stats(store).open_by_stratum
    total = sum(config.quotas.values()) or 1.0
    quotas = {str(name): math.ceil(config.size * share / total) for name, share in config.quotas.items()}
    free = {name: max(0, quota - open_items.get(name, 0)) for name, quota in quotas.items()}
    most = max(0, config.size - sum(open_items.values()))  # less than the sum: rounding, or a queue full of something else
    while sum(free.values()) > most:
        free[max(free, key=lambda name: (free[name], name))] -= 1
    return free


def candidates_from_traces(store: Store, signals: Signals, config: QueueConfig, *, actor: str) -> list[QueueCandidate]:
    """The newest answers, and pairs of different answers to the same question. After a complaint a correction is wanted."""
    trace_ids = marks.newest_traces(store, config.pool)
    feedback = marks.feedback_on_traces(store, trace_ids)
    candidates: list[QueueCandidate] = []
    by_prompt: dict[str, list[Trace]] = {}
    for trace in _read_traces(store, trace_ids, actor):
        answer = trace.conversation.answer
        if answer is None or not answer.strip():
            continue
        own = feedback.get(trace.trace_id, marks.NO_FEEDBACK)
        if not own.corrected and (own.complaint or own.raters < config.raters):
            candidates.append(_from_trace(trace, answer, own.complaint, signals))
        prompt = canonical_json([message.model_dump() for message in trace.conversation.prompt])
        by_prompt.setdefault(prompt, []).append(trace)
    for traces in by_prompt.values():
        candidates += _pairs(traces)
    return candidates


def _read_traces(store: Store, trace_ids: Sequence[str], actor: str) -> Iterator[Trace]:
    for start in range(0, len(trace_ids), CHUNK):
        yield from read_by_ids(store, Trace, trace_ids[start : start + CHUNK], actor=actor, purpose=PURPOSE)


def scrubbed(store: Store, candidates: Sequence[QueueCandidate]) -> Iterator[QueueCandidate]:
    """The candidates without identifiers; doubtful ones only where a person has released what they came from."""
    ids = {name for candidate in candidates for name in (*candidate.traces, *candidate.records) if name is not None}
    released = quarantine.released_ids(store, sorted(ids))
    for candidate in candidates:
        clean = scrub_content(candidate.prompt, candidate.answers, candidate.contexts)
        origins = candidate.traces or candidate.records
        if clean is None or (clean.doubted and not (origins and released.issuperset(origins))):
            continue
        if len(set(clean.answers)) == len(clean.answers):  # two that differ by a name alone leave nothing to compare
            yield replace(candidate, prompt=clean.prompt, answers=clean.answers, contexts=clean.contexts)


def _from_trace(trace: Trace, answer: str, complaint: float | None, signals: Signals) -> QueueCandidate:
    reasons = {} if complaint is None else {"thumbs_down": complaint}
    gap = signals.gaps.get(answer_key(trace.conversation.user_text, answer))
    if gap is None and trace.trace_id in signals.rewards:
        gap = disagreement(signals.rewards[trace.trace_id])
    if gap is not None:
        reasons["disagreement"] = gap
    return QueueCandidate(
        prompt=trace.conversation.prompt, answers=(answer,), kind="correct" if complaint else "rate",
        models=(trace.model_version,), traces=(trace.trace_id,), contexts=trace.contexts, reasons=reasons,
    )  # fmt: skip


def _pairs(traces: Sequence[Trace]) -> list[QueueCandidate]:
    """Neighbours among the different answers to one question."""
    different = {trace.conversation.answer: trace for trace in traces}
    return [
        QueueCandidate(
            prompt=first.conversation.prompt,
            answers=(first.conversation.answer or "", second.conversation.answer or ""),
            kind="compare",
            models=(first.model_version, second.model_version),
            traces=(first.trace_id, second.trace_id),
            contexts=first.contexts if first.contexts == second.contexts else (),
        )
        for first, second in pairwise(different.values())
    ]


def candidates_from_samples(samples: Iterable[tuple[str, str, str | None, float | None]], *, pairs: bool) -> list[QueueCandidate]:
    """Answers from files, as (question, answer, group, gap); with `pairs` neighbours of one group are compared too."""
    candidates: list[QueueCandidate] = []
    groups: dict[str, list[QueueCandidate]] = {}
    for question, answer, group, gap in samples:
        reasons = {} if gap is None else {"disagreement": gap}
        candidate = QueueCandidate(prompt=(Message(role="user", content=question),), answers=(answer,), reasons=reasons)
        candidates.append(candidate)
        groups.setdefault(canonical_json([group, question]), []).append(candidate)
    for members in groups.values() if pairs else ():
        for first, second in pairwise({member.answers: member for member in members}.values()):
            candidates.append(QueueCandidate(prompt=first.prompt, answers=(*first.answers, *second.answers), kind="compare"))
    return candidates


def answer_key(question: str, answer: str) -> str:
    """Joins a conflict on file with the same answer elsewhere."""
    return sha256_id(canonical_json([question, answer]))


def disagreement(reward: Reward) -> float | None:
    """How far the parts of a reward are apart: the teacher from the rest where it judged, else the parts from one another."""
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


def _not_queued_before(store: Store, candidates: Sequence[QueueCandidate]) -> list[QueueCandidate]:
    """Finished items count as well: nobody is asked the same again."""
    by_id = {item_id(candidate): candidate for candidate in candidates}
    known = review_queue.known_items(store, list(by_id))
    return [candidate for name, candidate in by_id.items() if name not in known]


def _recently_rated(store: Store, actor: str) -> Iterator[tuple[str, str]]:
    """Question and answer of the traces rated last."""
    for trace in _read_traces(store, marks.rated_traces(store, RECENT), actor):
        yield trace.conversation.user_text, trace.conversation.answer or ""
