"""Which records of the store may be learnt from, and what each of them says.

A record counts when nobody has replaced it by a newer one, when it and the person it is about allow training, when it does not
wait in quarantine and was not refused there, and when the scrubber vouches for its text. Everything else is counted by reason.
Text that the scrubber does not vouch for goes into quarantine, so that a person decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from medloop.contracts import Contract, Correction, Feedback, Message, Preference, Trace
from medloop.privacy.consent import Register
from medloop.privacy.scrub import Assessment, Scrubber
from medloop.store import lineage, quarantine, records
from medloop.store.db import Store
from medloop.store.reads import read_audited, read_some

KINDS: tuple[type[Feedback] | type[Preference] | type[Correction], ...] = (Feedback, Preference, Correction)
Said = Feedback | Preference | Correction
PURPOSE = "data build"
Fate = Literal["used", "superseded", "no_consent", "quarantined", "refused", "erased", "phi", "empty"]


@dataclass(frozen=True)
class Question:
    """What was asked: the whole conversation up to the answer. `key` is the same for the same words."""

    messages: tuple[Message, ...]

    @property
    def key(self) -> str:
        """Case, white space and the system message do not make another question."""
        turns = (
            f"{message.role}:{' '.join(message.content.casefold().split())}"
            for message in self.messages
            if message.role != "system"
        )
        return "\n".join(turns)


@dataclass(frozen=True)
class Vote:
    """One person's choice between two answers."""

    question: Question
    answers: tuple[str, str]
    chosen: int
    rater: str | None
    record_id: str
    when: datetime


@dataclass(frozen=True)
class Mark:
    """One person's rating of an answer; `liked` is None where it says neither."""

    question: Question
    answer: str
    liked: bool | None
    critical: bool
    rater: str | None
    record_id: str
    when: datetime


@dataclass(frozen=True)
class Fix:
    """The answer an expert would have given."""

    question: Question
    original: str
    golden: str
    reason: str | None
    record_id: str
    when: datetime


@dataclass(frozen=True)
class Material:
    """All that may be learnt from, in the order it came, and what became of every record."""

    votes: list[Vote] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    fates: dict[str, Counter[str]] = field(default_factory=dict)
    used: dict[type[Contract], list[str]] = field(default_factory=dict)
    settled: dict[type[Contract], list[str]] = field(default_factory=dict)


def gather(store: Store, *, actor: str, strict: bool = False, hold: bool = True) -> Material:
    """Read every record, leave an audit line for it, and sort them out. `hold` puts doubtful ones into quarantine."""
    register, held, gone = Register.of(store, strict=strict), _held(store), lineage.erased(store)
    found = Material()
    kept: list[Said] = []
    doubtful: list[tuple[Said, Assessment]] = []
    for kind in KINDS:
        table = records.TABLES[kind].name
        given: list[Said] = list(read_audited(store, kind, actor=actor, purpose=PURPOSE))
        replaced = {one.supersedes for one in given if one.supersedes}
        fates = found.fates[table] = Counter()
        for one in given:
            name = _id(one)
            fate = _fate(one, name, replaced, register, held, gone)
            if fate == "used" and (problem := _doubt(one, looked_at=name in held)):
                doubtful.append((one, problem))
                fate = "phi"
            fates[fate] += 1
            if fate == "used":
                kept.append(one)
                found.used.setdefault(kind, []).append(name)
            if fate in ("used", "superseded", "empty"):
                found.settled.setdefault(kind, []).append(name)
    if hold and doubtful:
        _hold(store, doubtful, actor)
    _sort(found, kept, _traces(store, kept, actor))
    return found


def _fate(
    one: Said, name: str, replaced: set[str], register: Register, held: Mapping[str, str], gone: set[str]
) -> Fate:  # fmt: skip
    if name in gone:
        return "erased"
    if name in replaced:
        return "superseded"
    if not register.covers(one, "training"):
        return "no_consent"
    state = held.get(name, "released")
    if state != "released":
        return "refused" if state == "refused" else "quarantined"
    return "used" if all(text.strip() for text in _texts(one)) else "empty"


def _doubt(one: Said, *, looked_at: bool) -> Assessment | None:
    """Why the scrubber does not vouch for a text, or None. One scrubber a record: same person, same placeholder.

    Of a record that a person looked at and released, only text that cannot be scrubbed at all is still doubted.
    """
    scrubber = Scrubber()
    for text in (*_texts(one), _remark(one) or ""):
        found = scrubber.assess(text)
        if found.quarantined and not (looked_at and found.cleaned):
            return found
    return None


def _texts(one: Said) -> tuple[str, ...]:
    """What a row may be made of; comments stay out of every dataset."""
    if isinstance(one, Feedback):
        return one.user_query, one.agent_response
    if isinstance(one, Preference):
        return one.prompt, one.response_a, one.response_b
    return one.prompt, one.original, one.golden


def _remark(one: Said) -> str | None:
    """Free text beside the answer; of these only an expert's reason is used, as a rule's wording."""
    return one.reason if isinstance(one, Correction) else None


def _hold(store: Store, doubtful: Sequence[tuple[Said, Assessment]], actor: str) -> None:
    with store.write() as conn:
        for one, found in doubtful:
            table = records.TABLES[type(one)].name
            quarantine.hold(conn, _id(one), table, doubt=found.doubt, reasons=found.reasons, actor=actor)


def _held(store: Store) -> dict[str, str]:
    return {one.record_id: one.state for one in quarantine.listed(store, None)}


def _id(one: Said) -> str:
    if isinstance(one, Feedback):
        return one.feedback_id
    return one.preference_id if isinstance(one, Preference) else one.correction_id


def _traces(store: Store, kept: Sequence[Said], actor: str) -> dict[str, Trace]:
    wanted = {one.trace_id for one in kept if one.trace_id}
    return {trace.trace_id: trace for trace in read_some(store, Trace, wanted, actor=actor, purpose=PURPOSE)}


def _sort(found: Material, kept: Sequence[Said], traces: Mapping[str, Trace]) -> None:
    for one in kept:
        trace = traces.get(one.trace_id or "")
        if isinstance(one, Feedback):
            asked = _question(one.user_query, trace)
            found.marks.append(
                Mark(asked, one.agent_response, liked(one), one.critical, one.clinician_id, one.feedback_id, one.timestamp)
            )
        elif isinstance(one, Preference):
            answers = (one.response_a, one.response_b)
            chosen = 0 if one.preferred == "a" else 1
            asked = _question(one.prompt, trace)
            found.votes.append(Vote(asked, answers, chosen, one.clinician_id, one.preference_id, one.timestamp))
        else:
            asked = _question(one.prompt, trace)
            found.fixes.append(Fix(asked, one.original, one.golden, one.reason, one.correction_id, one.timestamp))


def _question(text: str, trace: Trace | None) -> Question:
    """The turns before the answer, where the trace has them and asks the same; else the question alone."""
    if trace is not None and trace.conversation.question.split() == text.split():
        prompt = trace.conversation.prompt
        if prompt[-1].role == "user":
            return Question(prompt)
    return Question((Message(role="user", content=text),))


def liked(one: Feedback) -> bool | None:
    """The verdict of all that a record says: critical is not liked whatever else it says; None where nothing is clear."""
    if one.critical:
        return False
    words = set(_words(one))
    return words.pop() if len(words) == 1 else None


def _words(one: Feedback) -> Iterator[bool]:
    if one.thumb is not None:
        yield one.thumb == "up"
    if one.feedback_type in ("positive", "negative"):
        yield one.feedback_type == "positive"
    if one.rating is not None and one.rating != 3:
        yield one.rating > 3
