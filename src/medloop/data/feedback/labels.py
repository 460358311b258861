"""Feedback as labels of what a judge says: for free, from use.

    labels = labels_from_use(store, actor="user:li")         # labels.cases: what `medloop reward validate` measures with

    votes, corrections, ratings     two answers of which one is better, as `data build` makes its pairs (rows.py)
    critical flag, safety 1 or 2    an answer that could harm a patient
    safety 4 or 5                   an answer that could not
    risk, emergency, … 1 or 2       an answer with the fault that this part of the reward looks for; 4 or 5: without it

A record counts when it and the person it is about allow evaluation (and the teacher, if one is asked), when nobody erased or
replaced it, and when it neither waits in quarantine nor was refused there. Texts are scrubbed as for training; nothing is stored.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from medloop.contracts.base import canonical_json, sha256_id
from medloop.contracts.feedback import FAULT_AXES, Purpose
from medloop.contracts.validity import LabelledCase
from medloop.data.feedback.rater_weights import EQUAL, RaterWeights
from medloop.data.feedback.rows import (
    AnswerRating,
    FeedbackPrompt,
    PromptFeedback,
    draft_rows,
    latest_per_rater,
    plain,
)
from medloop.data.feedback.select import CachedScrubber, feedback_by_prompt, select_records
from medloop.data.progress import Progress, silent
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store.db import Store

PURPOSE = "reward validate"
MAX_PAIRS = 8  # of one question: one that everybody asks must not decide the card
SOURCES = {"votes": "use: votes", "correction": "use: corrections", "ratings": "use: ratings"}
FLAGS, FAULTS, SAFETY = "use: critical flags", "use: named faults", "use: safety stars"
UNSAFE, SAFE = 2, 4  # stars


@dataclass
class UseLabels:
    """The labelled cases; `left_out` counts records and labels that could not be used, by reason (contracts/validity.py)."""

    cases: list[LabelledCase] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def labels_from_use(
    store: Store, *, actor: str, uses: tuple[Purpose, ...] = ("evaluation",), weights: RaterWeights = EQUAL,
    progress: Progress = silent,
) -> UseLabels:  # fmt: skip
    """Every label that people gave while they used the assistant, in an order that only the texts decide."""
    scrubber, labels = CachedScrubber(), UseLabels()
    selection = select_records(store, scrubber, actor=actor, uses=uses, purpose=PURPOSE, progress=progress)
    for counts in selection.statuses.values():
        labels.left_out.update({_reason(name, uses): count for name, count in counts.items() if name != "used"})
    for feedback in feedback_by_prompt(store, selection, weights) if len(selection.index) else ():
        for draft in (*_pairs(feedback, labels), *_answers(feedback.ratings, labels)):
            if case := _scrubbed(draft, scrubber):
                labels.cases.append(case)
            else:
                labels.left_out["unscrubbable"] += 1
    return labels


def _reason(status: str, uses: tuple[Purpose, ...]) -> str:
    return "no_teacher_consent" if status == "no_consent" and "teacher" in uses else status


@dataclass(frozen=True)
class _Draft:
    """A case before scrubbing; `texts` are (chosen, rejected) or (answer,)."""

    prompt: FeedbackPrompt
    texts: tuple[str, ...]
    source: str
    harm: bool | None = None
    faults: dict[str, bool] = field(default_factory=dict)


def _pairs(feedback: PromptFeedback, labels: UseLabels) -> Iterator[_Draft]:
    drafts = draft_rows(feedback, max_pairs=MAX_PAIRS, liked_answers=False)
    for row in drafts.rows:
        if row.kind == "pairs":
            yield _Draft(row.prompt, row.texts, SOURCES[row.metadata["from"]])
    for kind, reason, _ in drafts.dropped:
        if kind == "pairs":
            labels.left_out[reason] += 1


def _answers(ratings: Sequence[AnswerRating], labels: UseLabels) -> Iterator[_Draft]:
    """The labels of each rated answer: a critical flag outweighs all stars for safety, as in contracts/polarity.py."""
    groups: dict[tuple[str, str], list[AnswerRating]] = {}
    for rating in ratings:
        groups.setdefault((rating.prompt.key, plain(rating.answer)), []).append(rating)
    for group in groups.values():
        latest = [rating for rating in latest_per_rater(group) if rating.critical or rating.weight > 0]
        is_flagged = any(rating.critical for rating in latest)
        stars = [rating.safety for rating in latest if rating.safety is not None]
        harm = True if is_flagged else _agreed(stars, "safety_unclear", labels)
        given = {axis: [rating.faults[axis] for rating in latest if axis in rating.faults] for axis in FAULT_AXES}
        faults = {axis: label for axis, of in given.items() if (label := _agreed(of, "faults_unclear", labels)) is not None}
        if is_flagged and not any(faults.values()):
            labels.left_out["no_fault_named"] += 1
        if harm is not None or faults:
            source = FLAGS if is_flagged else FAULTS if faults else SAFETY
            yield _Draft(group[0].prompt, (group[0].answer,), source, harm, faults)


def _agreed(stars: Sequence[int], unclear: str, labels: UseLabels) -> bool | None:
    """True for a bad answer, False for a good one; None, counted, where raters disagree or stay in the middle."""
    if not stars:
        return None
    if max(stars) <= UNSAFE or min(stars) >= SAFE:
        return max(stars) <= UNSAFE
    labels.left_out[unclear] += 1
    return None


def _scrubbed(draft: _Draft, cached: CachedScrubber) -> LabelledCase | None:
    """One scrubber a case, so that a person has the same placeholder in the question and in the answers."""
    messages = [message.content for message in draft.prompt.messages if message.role == "user"]
    try:
        texts = cached.scrub((*messages, *draft.texts), Scrubber())
    except Unscrubbable:
        return None
    question, answers = "\n".join(texts[: len(messages)]), texts[len(messages) :]
    if not question.strip() or not all(answer.strip() for answer in answers):
        return None
    name = sha256_id(canonical_json([question, *answers]))[7:31]
    shared: dict[str, Any] = {
        "id": f"use/{name}",
        "question": question,
        "source": draft.source,
        "specialty": draft.prompt.specialty,
    }
    if len(answers) == 1:
        return LabelledCase(**shared, answer=answers[0], harm=draft.harm, faults=draft.faults)
    return LabelledCase(**shared, chosen=answers[0], rejected=answers[1])
