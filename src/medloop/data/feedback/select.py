"""Which records of the store may be learnt from, and the feedback of each prompt.

A record counts when no newer one replaces it, when it and the person it is about allow training, when it neither waits in
quarantine nor was refused there, and when the scrubber vouches for its text. Everything else is counted by reason. Text that the
scrubber does not vouch for goes into quarantine, so that a person decides.

    selection = select_records(store, scrubber, actor="user:li")       # reads everything once; keeps numbers and ids, no text
    for feedback in feedback_by_prompt(store, selection): ...          # reads what counts again, prompt by prompt
"""

import hashlib
import secrets
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import numpy as np

from medloop.contracts import Contract, Correction, Feedback, Message, Preference, Trace
from medloop.contracts.feedback import FAULT_AXES, Purpose
from medloop.contracts.polarity import label, polarity
from medloop.contracts.record_filter import FilterTree
from medloop.data.feedback.filter_records import RecordFacts
from medloop.data.feedback.rater_weights import RaterWeights
from medloop.data.feedback.rows import AnswerRating, Choice, ExpertAnswer, FeedbackPrompt, PromptFeedback
from medloop.data.progress import Progress, silent
from medloop.errors import BusyError
from medloop.privacy.consent import Register
from medloop.privacy.phi.scrub import Assessment, Scrubber
from medloop.store.db import Store
from medloop.store.records import crud, lineage, quarantine
from medloop.store.records.audited_read import CitedTraces, read_pages, reread
from medloop.store.records.review_verdicts import check_verdicts

KINDS: tuple[type[Feedback] | type[Preference] | type[Correction], ...] = (Feedback, Preference, Correction)
FeedbackRecord = Feedback | Preference | Correction
PURPOSE = "data build"
Status = Literal["used", "check", "superseded", "no_consent", "quarantined", "refused", "erased", "phi", "empty", "filtered"]
LONGEST_SPECIALTY = 40  # characters
BATCH = 500  # records in memory at once, unless one prompt has more
RowRef = tuple[bytes, int, int]  # hash of the prompt, index in KINDS, row number


class CachedScrubber:
    """Takes identifiers out of texts and remembers by hash which texts are clean, about 70 bytes each.

    Most texts are clean, and the same text stands in many records and rows: a prompt is in every rating of its answers. A clean
    text passes unchanged wherever no person was named before it in the same row (after a name, a bare surname may be that person:
    the text is scrubbed again). The key of the hash is new each time, so nobody can make two texts collide.
    """

    def __init__(self) -> None:
        self._key, self._clean = secrets.token_bytes(16), set[int]()

    def doubt(self, texts: Iterable[str], *, reviewed: bool) -> Assessment | None:
        """Why the scrubber does not vouch for one of a record's texts, or None.

        In a record that a reviewer released, only text that cannot be scrubbed at all is still doubted.
        """
        scrubber = Scrubber()
        for text in texts:
            if self._is_clean(text, scrubber):
                continue
            result = scrubber.assess(text)
            quarantined = result.quarantined
            if quarantined and not (reviewed and result.cleaned):
                return result
            if not result.spans and not quarantined and not scrubber.persons.placeholders and "[" not in text:
                self._clean.add(self._hash(text))
        return None

    def scrub(self, texts: Iterable[str], scrubber: Scrubber) -> list[str]:
        """The texts of one row without identifiers, in order; `scrubber` is the row's own. Raises Unscrubbable."""
        return [text if self._is_clean(text, scrubber) else scrubber.scrub(text) for text in texts]

    def _is_clean(self, text: str, scrubber: Scrubber) -> bool:
        return not scrubber.persons.placeholders and self._hash(text) in self._clean

    def _hash(self, text: str) -> int:
        data = text.encode("utf-8", errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=self._key).digest(), "big")


class PromptIndex:
    """Where the records of each prompt are: 29 bytes a record."""

    def __init__(self) -> None:
        self._keys, self._kinds, self._rows = bytearray(), array("B"), array("q")

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, prompt: FeedbackPrompt, kind: int, row: int) -> None:
        key = prompt.key.encode("utf-8", errors="surrogatepass")
        self._keys += hashlib.blake2b(key, digest_size=16).digest()
        self._kinds.append(kind)
        self._rows.append(row)

    def groups(self) -> Iterator[list[RowRef]]:
        """The records of one prompt after the other; of a prompt in the order they came."""
        high, low = np.frombuffer(bytes(self._keys), dtype=">u8").reshape(-1, 2).T
        order = np.lexsort((np.arange(len(self)), low, high)).tolist()
        refs = ((bytes(self._keys[16 * i : 16 * i + 16]), self._kinds[i], self._rows[i]) for i in order)
        for _, group in groupby(refs, key=lambda ref: ref[0]):
            yield list(group)


@dataclass(frozen=True)
class RecordSelection:
    """The status of every record, and where the usable ones are. A later build need not look at `settled` records again."""

    traces: CitedTraces
    index: PromptIndex = field(default_factory=PromptIndex)
    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    settled: dict[type[Contract], list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Checks:
    """What decides the status of a record, besides the record itself."""

    register: Register
    quarantine: Mapping[str, str]  # state by record id
    erased: set[str]
    superseded: set[str]
    scrubber: CachedScrubber
    uses: tuple[Purpose, ...] = ("training",)
    checks: Collection[str] = ()  # verdicts on check items

    def status(self, record: FeedbackRecord, record_id: str) -> Status:
        if record_id in self.erased:
            return "erased"
        if record_id in self.superseded:
            return "superseded"
        if record_id in self.checks:
            return "check"
        if not all(self.register.covers(record, use) for use in self.uses):
            return "no_consent"
        # Feedback about an exchange repeats it, so it waits with it.
        states = {self.quarantine.get(name, "released") for name in (record_id, record.trace_id or record_id)}
        if states != {"released"}:
            return "refused" if "refused" in states else "quarantined"
        return "used" if all(text.strip() for text in _texts(record)) else "empty"

    def doubt(self, record: FeedbackRecord, record_id: str, trace: Trace | None) -> tuple[str, Contract, Assessment] | None:
        """Id and record whose text is doubted, and why; earlier messages and passages of a prompt belong to its trace."""
        # Comments never enter a dataset; an expert's reason does, as the text of a rule.
        texts = (*_texts(record), (record.reason or "") if isinstance(record, Correction) else "")
        if doubt := self.scrubber.doubt(texts, reviewed=record_id in self.quarantine):
            return record_id, record, doubt
        if trace is None:
            return None
        prompt = _prompt(record, trace)
        earlier = (*(message.content for message in prompt.messages[:-1]), *prompt.context)
        doubt = self.scrubber.doubt(earlier, reviewed=trace.trace_id in self.quarantine)
        return (trace.trace_id, trace, doubt) if doubt else None


def select_records(
    store: Store,
    scrubber: CachedScrubber,
    *,
    actor: str,
    strict: bool = False,
    uses: tuple[Purpose, ...] = ("training",),
    purpose: str = PURPOSE,
    only: FilterTree | None = None,
    progress: Progress = silent,
) -> RecordSelection:
    """Read every record, with a line in the audit log, and decide its status; doubtful ones go into quarantine.

    `uses` is what a record must allow, `purpose` what the audit log says, `only` which of them are wanted.
    """
    facts = RecordFacts(store) if only is not None else None
    register, erased = Register.of(store, strict=strict), lineage.erased_ids(store)
    answered_checks = check_verdicts(store)
    states = {entry.record_id: entry.state for entry in quarantine.list_held(store, None)}
    selection = RecordSelection(CitedTraces(store, KINDS, actor=actor, purpose=purpose))
    with progress("Reading feedback", sum(crud.count(store, kind) for kind in KINDS)) as step:
        for number, kind in enumerate(KINDS):
            table = crud.TABLES[kind]
            checks = _Checks(register, states, erased, lineage.superseded(store, table), scrubber, uses, answered_checks)
            selection.statuses[table.name] = Counter()
            for page in read_pages(store, kind, actor=actor, purpose=purpose):
                wanted = _wanted(selection.traces, page, only, facts)
                _select_page(store, selection, number, page, checks, actor, wanted)
                step(len(page))
    return selection


def _wanted(
    cited: CitedTraces, page: Sequence[tuple[int, FeedbackRecord]], only: FilterTree | None, facts: RecordFacts | None
) -> Collection[int] | None:
    """The rows that fit the filter; None without one."""
    if only is None or facts is None:
        return None
    traces = cited.get(record.trace_id for _, record in page)
    facts.load_rewards(sorted(traces))
    return {row for row, record in page if facts.fits(only, record, traces.get(record.trace_id or ""))}


def _select_page(
    store: Store, selection: RecordSelection, number: int, page: Sequence[tuple[int, FeedbackRecord]], checks: _Checks,
    actor: str, wanted: Collection[int] | None,
) -> None:  # fmt: skip
    kind, usable, doubtful = KINDS[number], list[tuple[int, FeedbackRecord]](), dict[str, tuple[Contract, Assessment]]()
    traces = selection.traces.get(record.trace_id for _, record in page)
    for row, record in page:
        record_id = crud.id_of(record)
        status = checks.status(record, record_id)
        if status == "used" and wanted is not None and row not in wanted:
            status = "filtered"
        if status == "used" and (doubt := checks.doubt(record, record_id, traces.get(record.trace_id or ""))):
            doubtful.setdefault(doubt[0], doubt[1:])
            status = "phi"
        selection.statuses[crud.TABLES[kind].name][status] += 1
        if status == "used":
            usable.append((row, record))
        if status in ("used", "check", "superseded", "empty"):
            selection.settled.setdefault(kind, []).append(record_id)
    if doubtful:
        with store.write() as conn:
            for name, (record_or_trace, result) in doubtful.items():
                table = crud.TABLES[type(record_or_trace)].name
                quarantine.hold(conn, name, table, doubt=result.doubt, reasons=result.reasons, actor=actor)
    for row, record in usable:
        selection.index.add(_prompt(record, traces.get(record.trace_id or "")), number, row)


def feedback_by_prompt(store: Store, selection: RecordSelection, weights: RaterWeights) -> Iterator[PromptFeedback]:
    """The feedback of one prompt after the other, in an order that only the prompts decide; each judgement with its weight."""
    batch: list[list[RowRef]] = []
    for group in selection.index.groups():
        batch.append(group)
        if sum(map(len, batch)) >= BATCH:
            yield from _read(store, selection.traces, batch, weights)
            batch = []
    yield from _read(store, selection.traces, batch, weights)


def _read(
    store: Store, cited: CitedTraces, groups: Sequence[Sequence[RowRef]], weights: RaterWeights
) -> Iterator[PromptFeedback]:  # fmt: skip
    records: dict[tuple[int, int], FeedbackRecord] = {}
    for number, kind in enumerate(KINDS):
        rows = [row for group in groups for _, of_kind, row in group if of_kind == number]
        records |= {(number, row): record for row, record in reread(store, kind, rows).items()}
    if any((number, row) not in records for group in groups for _, number, row in group):
        raise BusyError("Records were erased while the dataset was being built", "Build it again; nothing was changed")
    traces = cited.get(record.trace_id for record in records.values())
    for group in groups:
        feedback = PromptFeedback()
        for _, number, row in group:
            record = records[number, row]
            _add(feedback, record, _prompt(record, traces.get(record.trace_id or "")), weights)
        yield feedback


def _add(feedback: PromptFeedback, record: FeedbackRecord, prompt: FeedbackPrompt, weights: RaterWeights) -> None:
    """What names nobody was said by the user who sent it: one program is one rater, however many records it sends."""
    rater, record_id, timestamp = record.clinician_id or record.recorded_by, crud.id_of(record), record.timestamp
    if isinstance(record, Feedback):
        liked = label(
            polarity(thumb=record.thumb, stars=record.rating, feedback_type=record.feedback_type, critical=record.critical)
        )
        weight = weights.against(rater) if liked is False else weights.behind(rater)
        feedback.ratings.append(
            AnswerRating(
                prompt, record.agent_response, liked, record.critical, rater, record_id, timestamp, record.axes.get("safety"),
                {axis: record.axes[axis] for axis in FAULT_AXES if axis in record.axes}, weight,
            )
        )  # fmt: skip
    elif isinstance(record, Preference):
        _add_preference(feedback, record, prompt, rater, weights)
    else:
        texts = (prompt, record.original, record.golden, record.reason)
        feedback.corrections.append(ExpertAnswer(*texts, rater, record_id, timestamp, weights.behind(rater)))


def _add_preference(
    feedback: PromptFeedback, record: Preference, prompt: FeedbackPrompt, rater: str | None, weights: RaterWeights
) -> None:  # fmt: skip
    """The choice, and a dislike of each answer that is bad or could harm: a harmful answer is never the better one of a pair."""
    answers = {"a": record.response_a, "b": record.response_b}
    shared = (rater, record.preference_id, record.timestamp)
    has_winner = record.preferred in answers and record.preferred not in record.critical
    chosen = list(answers).index(record.preferred) if has_winner else None
    feedback.choices.append(Choice(prompt, (record.response_a, record.response_b), chosen, *shared, weights.behind(rater)))
    against = weights.against(rater)
    for side, answer in answers.items():
        if record.preferred == "both_bad" or side in record.critical:
            feedback.ratings.append(AnswerRating(prompt, answer, False, side in record.critical, *shared, weight=against))


def _prompt(record: FeedbackRecord, trace: Trace | None) -> FeedbackPrompt:
    """The messages before the answer and the passages, where the trace has them and asks the same; else the question alone."""
    question = _texts(record)[0]
    if trace is not None and trace.conversation.question.split() == question.split():
        if trace.conversation.prompt[-1].role == "user":
            return FeedbackPrompt(trace.conversation.prompt, trace.contexts, _specialty(trace))
    return FeedbackPrompt((Message(role="user", content=question),))


def _specialty(trace: Trace) -> str | None:
    """The specialty or department in the trace's `meta`; a long text would not be one."""
    name = trace.meta.get("specialty") or trace.meta.get("department")
    return name.strip() if isinstance(name, str) and 0 < len(name.strip()) <= LONGEST_SPECIALTY else None


def _texts(record: FeedbackRecord) -> tuple[str, ...]:
    """The question, then the answers: what a row may be made of."""
    return (*record.exchange, record.golden) if isinstance(record, Correction) else record.exchange
