"""Which records of the store may be learnt from, and what each of them says.

A record counts when nobody has replaced it by a newer one, when it and the person it is about allow training, when it does not
wait in quarantine and was not refused there, and when the scrubber vouches for its text. Everything else is counted by reason.
Text that the scrubber does not vouch for goes into quarantine, so that a person decides.

    found = survey(store, cleaner, actor="user:li")      # reads everything once; keeps numbers and ids, no text
    for material in by_question(store, found): ...       # reads again what counts, one question after the other
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Literal

import numpy as np

from medloop.contracts import Contract, Correction, Feedback, Message, Preference, Trace
from medloop.contracts.polarity import label, polarity
from medloop.data.feedback.scrub_rows import Cleaner
from medloop.data.progress import Progress, silent
from medloop.errors import BusyError
from medloop.privacy.consent import Register
from medloop.privacy.phi.scrub import Assessment
from medloop.store.db import Store
from medloop.store.records import crud, lineage, quarantine
from medloop.store.records.audited_read import CitedTraces, read_pages, reread

KINDS: tuple[type[Feedback] | type[Preference] | type[Correction], ...] = (Feedback, Preference, Correction)
Said = Feedback | Preference | Correction
PURPOSE = "data build"
Fate = Literal["used", "superseded", "no_consent", "quarantined", "refused", "erased", "phi", "empty"]
BATCH = 500  # records in memory at once, but for a question that has more
Place = tuple[bytes, int, int]  # hash of the question, place in KINDS, row number


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

    @property
    def asked(self) -> str:
        """Everything the user said."""
        return "\n".join(message.content for message in self.messages if message.role == "user")


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
    """All that may be learnt from about some question, in the order it came."""

    votes: list[Vote] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)


class Index:
    """Where the records of each question are: 29 bytes a record."""

    def __init__(self) -> None:
        self._keys, self._kinds, self._rows = bytearray(), array("B"), array("q")

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, question: Question, kind: int, row: int) -> None:
        said = question.key.encode("utf-8", errors="surrogatepass")
        self._keys += hashlib.blake2b(said, digest_size=16).digest()
        self._kinds.append(kind)
        self._rows.append(row)

    def groups(self) -> Iterator[list[Place]]:
        """The places of one question after the other; within a question in the order they came."""
        high, low = np.frombuffer(bytes(self._keys), dtype=">u8").reshape(-1, 2).T
        order = np.lexsort((np.arange(len(self)), low, high))
        places = ((bytes(self._keys[16 * at : 16 * at + 16]), self._kinds[at], self._rows[at]) for at in order.tolist())
        for _, group in groupby(places, key=lambda place: place[0]):
            yield list(group)


@dataclass(frozen=True)
class Survey:
    """What became of every record, and where those are that count. `settled` records need not be looked at by a later build."""

    cited: CitedTraces
    index: Index = field(default_factory=Index)
    fates: dict[str, Counter[str]] = field(default_factory=dict)
    settled: dict[type[Contract], list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rules:
    """What decides the fate of a record, besides itself."""

    register: Register
    held: Mapping[str, str]
    erased: set[str]
    superseded: set[str]
    cleaner: Cleaner


def survey(
    store: Store, cleaner: Cleaner, *, actor: str, strict: bool = False, progress: Progress = silent
) -> Survey:  # fmt: skip
    """Read every record, leave an audit line for it, and sort them out; doubtful ones go into quarantine."""
    register, held, gone = Register.of(store, strict=strict), _held(store), lineage.erased_ids(store)
    found = Survey(CitedTraces(store, KINDS, actor=actor, purpose=PURPOSE))
    with progress("Reading what people said", sum(crud.count(store, kind) for kind in KINDS)) as step:
        for number, kind in enumerate(KINDS):
            rules = _Rules(register, held, gone, lineage.superseded(store, crud.TABLES[kind]), cleaner)
            found.fates[crud.TABLES[kind].name] = Counter()
            for some in read_pages(store, kind, actor=actor, purpose=PURPOSE):
                _sort_out(store, found, number, some, rules, actor)
                step(len(some))
    return found


def _sort_out(
    store: Store, found: Survey, number: int, some: Sequence[tuple[int, Said]], rules: _Rules, actor: str
) -> None:  # fmt: skip
    kind, kept, doubtful = KINDS[number], [], dict[str, tuple[Said | Trace, Assessment]]()
    traces = found.cited.get(one.trace_id for _, one in some)
    for row, one in some:
        name = _id(one)
        fate = _fate(one, name, rules)
        if fate == "used" and (problem := _doubt(one, name, traces.get(one.trace_id or ""), rules)):
            doubtful.setdefault(crud.id_of(problem[0]), problem)
            fate = "phi"
        found.fates[crud.TABLES[kind].name][fate] += 1
        if fate == "used":
            kept.append((row, one))
        if fate in ("used", "superseded", "empty"):
            found.settled.setdefault(kind, []).append(name)
    if doubtful:
        _hold(store, doubtful.values(), actor)
    for row, one in kept:
        found.index.add(_question(_texts(one)[0], traces.get(one.trace_id or "")), number, row)


def by_question(store: Store, found: Survey) -> Iterator[Material]:
    """What was said about each question, one after the other, in an order that only the questions decide."""
    waiting: list[list[Place]] = []
    for group in found.index.groups():
        waiting.append(group)
        if sum(map(len, waiting)) >= BATCH:
            yield from _read(store, found.cited, waiting)
            waiting = []
    yield from _read(store, found.cited, waiting)


def _read(store: Store, cited: CitedTraces, groups: Sequence[Sequence[Place]]) -> Iterator[Material]:
    said: dict[tuple[int, int], Said] = {}
    for number, kind in enumerate(KINDS):
        wanted = [row for group in groups for _, of, row in group if of == number]
        said |= {(number, row): one for row, one in reread(store, kind, wanted).items()}
    if any((of, row) not in said for group in groups for _, of, row in group):
        raise BusyError("Records were erased while the dataset was being made", "Build it again; nothing was changed")
    traces = cited.get(one.trace_id for one in said.values())
    for group in groups:
        material = Material()
        for _, of, row in group:
            one = said[of, row]
            _say(material, one, traces.get(one.trace_id or ""))
        yield material


def _fate(one: Said, name: str, rules: _Rules) -> Fate:
    if name in rules.erased:
        return "erased"
    if name in rules.superseded:
        return "superseded"
    if not rules.register.covers(one, "training"):
        return "no_consent"
    # What is said about an exchange repeats it, so it waits with it.
    states = {rules.held.get(one_of, "released") for one_of in (name, one.trace_id or name)}
    if states != {"released"}:
        return "refused" if "refused" in states else "quarantined"
    return "used" if all(text.strip() for text in _texts(one)) else "empty"


def _doubt(one: Said, name: str, trace: Trace | None, rules: _Rules) -> tuple[Said | Trace, Assessment] | None:
    """The record whose text is doubted, and why; the earlier turns of a question are its trace's."""
    if problem := rules.cleaner.doubt(_spoken(one), looked_at=name in rules.held):
        return one, problem
    if trace is None:
        return None
    turns = [message.content for message in _question(_texts(one)[0], trace).messages[:-1]]
    problem = rules.cleaner.doubt(turns, looked_at=trace.trace_id in rules.held)
    return (trace, problem) if problem else None


def _texts(one: Said) -> tuple[str, ...]:
    """What a row may be made of; comments stay out of every dataset."""
    if isinstance(one, Feedback):
        return one.user_query, one.agent_response
    if isinstance(one, Preference):
        return one.prompt, one.response_a, one.response_b
    return one.prompt, one.original, one.golden


def _spoken(one: Said) -> tuple[str, ...]:
    """With free text beside the answer; of that only an expert's reason is used, as a rule's wording."""
    return (*_texts(one), (one.reason or "") if isinstance(one, Correction) else "")


def _hold(store: Store, doubtful: Iterable[tuple[Said | Trace, Assessment]], actor: str) -> None:
    with store.write() as conn:
        for one, found in doubtful:
            table = crud.TABLES[type(one)].name
            quarantine.hold(conn, crud.id_of(one), table, doubt=found.doubt, reasons=found.reasons, actor=actor)


def _held(store: Store) -> dict[str, str]:
    return {one.record_id: one.state for one in quarantine.listed(store, None)}


def _id(one: Said) -> str:
    if isinstance(one, Feedback):
        return one.feedback_id
    return one.preference_id if isinstance(one, Preference) else one.correction_id


def _say(material: Material, one: Said, trace: Trace | None) -> None:
    question = _question(_texts(one)[0], trace)
    if isinstance(one, Feedback):
        material.marks.append(
            Mark(question, one.agent_response, _liked(one), one.critical, one.clinician_id, one.feedback_id, one.timestamp)
        )
    elif isinstance(one, Preference):
        answers, chosen = (one.response_a, one.response_b), 0 if one.preferred == "a" else 1
        material.votes.append(Vote(question, answers, chosen, one.clinician_id, one.preference_id, one.timestamp))
    else:
        material.fixes.append(Fix(question, one.original, one.golden, one.reason, one.correction_id, one.timestamp))


def _question(text: str, trace: Trace | None) -> Question:
    """The turns before the answer, where the trace has them and asks the same; else the question alone."""
    if trace is not None and trace.conversation.question.split() == text.split():
        prompt = trace.conversation.prompt
        if prompt[-1].role == "user":
            return Question(prompt)
    return Question((Message(role="user", content=text),))


def _liked(one: Feedback) -> bool | None:
    return label(polarity(thumb=one.thumb, stars=one.rating, feedback_type=one.feedback_type, critical=one.critical))
