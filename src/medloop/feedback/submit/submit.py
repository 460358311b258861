"""From a request body to the rows that the writer stores.

    submission = prepare_submission(store, body, Sender("usr_1"), key="4f2c…")    # body: one of bodies.py
    stored = await writer.submit(submission)                                     # stored.answer: {"feedback_id": …, …}

Unknown trace ids and users are refused. Nothing is refused for its text: one that may name somebody is stored (encrypted, as all
are) with a row in `quarantine`, and no dataset uses it before a person has reviewed it. A critical flag opens an incident and
adds a red-team case in the same transaction. A record is never changed: `supersedes` names an earlier one of the sender. An id
that the sender gives (site_ids.py) is stored once: the same again gets its answer again, another one under that id is refused.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from medloop.contracts import (
    AuditEvent,
    Contract,
    Conversation,
    Correction,
    Feedback,
    Message,
    Preference,
    Trace,
    utc_now,
)
from medloop.contracts.base import iso_utc
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.feedback import FAULT_AXES, FeedbackType
from medloop.contracts.polarity import polarity, stored_type
from medloop.errors import InputError
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, SubmissionBody, TraceBody
from medloop.feedback.submit.doubt import Doubt
from medloop.feedback.submit.flags import FlaggedAnswer, critical_flags, flagged_answers
from medloop.feedback.submit.notes import note_about
from medloop.feedback.submit.phi_scan import PhiScan
from medloop.feedback.submit.sender import (
    FROM_QUEUE,
    LOG_IT,
    NO_TRACE,
    OWN_SITE,
    RatingBody,
    Sender,
    brings_texts,
    check_exchange,
    check_sender,
    hash_of_request,
    site_of_sender,
)
from medloop.feedback.submit.site_ids import with_site_ids
from medloop.privacy.consent import subject_of
from medloop.store.db import Store
from medloop.store.records import crud, shown_items, sites, workspace_settings
from medloop.store.records.site_lookups import seen_from
from medloop.store.records.write_request import Json, Lookup, LookupResults, NewRows, WriteRequest
from medloop.store.tables import natural_id, quarantine

CONTRACTS: dict[type[SubmissionBody], type[Contract]] = {
    FeedbackBody: Feedback,
    PreferenceBody: Preference,
    CorrectionBody: Correction,
    TraceBody: Trace,
}
RESERVED = ("cor_", "inc_", "case_", "qi_", "sub_")  # ids of other things
OTHER_SUBJECT = "The exchange that this is about does not belong to this subject"
LEAVE_SUBJECT_OUT = "Leave 'subject' out: the record gets the subject of its trace"
SUBJECT_FIRST = "Leave 'subject' out, or log the trace with its subject first: POST /api/v1/traces"
OWN_ID = "Send the id that you received for it"


def prepare_submission(store: Store, body: SubmissionBody, sender: Sender, *, key: str | None = None) -> WriteRequest:
    """The submission of one body. What only the store knows (does the trace exist?) is checked when the rows are built."""
    clinician, sent, body = check_sender(store, body, sender), body, with_site_ids(store, body, sender)
    _check_axes(store, body)
    _check_given_id(store, body)
    scan, lookups = PhiScan(sender.user_id, list(_sent_texts(body))), _lookups(body, sender)

    def build(known: LookupResults) -> NewRows:
        return _RecordBuilder(store, sender, clinician, seen_from(known, sender.site, lookups), scan).rows(body)

    key = None if key is None else hash_of_request(store, sender.user_id, key)
    return WriteRequest(sender.user_id, build, key, fingerprint(sent), lookups, scan.prepare, scan.begin)


def fingerprint(body: SubmissionBody) -> str:
    """The same for the same words, however the JSON was spaced; unchanged by optional fields that later versions add."""
    text = f"{type(body).__name__} {body.model_dump_json(exclude_none=True)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def feedback_type_of(body: FeedbackBody) -> FeedbackType | None:
    """As sent, else what the other signals amount to; None for a bare comment."""
    return body.feedback_type or stored_type(polarity(thumb=body.thumb, stars=body.rating, critical=body.critical))


def _check_given_id(store: Store, body: SubmissionBody) -> None:
    """One id is one record: not that of another kind, and not one that was erased."""
    given = _given_id(body)
    if given is not None and (given.startswith(RESERVED) or crud.is_taken(store, given, but=CONTRACTS[type(body)])):
        raise InputError(f"This {_id_name(body)} belongs to another record, or to one that was erased", "Send another id")


def _check_axes(store: Store, body: SubmissionBody) -> None:
    """Each workspace has its axes: with names of everybody's own no two ratings could be compared."""
    if isinstance(body, FeedbackBody | PreferenceBody) and body.axes:
        known = (*workspace_settings.axes(store), *FAULT_AXES)
        if not set(body.axes) <= set(known):
            raise InputError("This workspace does not use one of these axes", f"Use {', '.join(known)}; an admin may add others")


def _given_id(body: SubmissionBody) -> str | None:
    if isinstance(body, FeedbackBody):
        return body.feedback_id
    if isinstance(body, CorrectionBody):
        return body.correction_id
    return body.preference_id if isinstance(body, PreferenceBody) else None


def _id_name(body: SubmissionBody) -> str:
    return natural_id(crud.TABLES[CONTRACTS[type(body)]])


def _lookups(body: SubmissionBody, sender: Sender) -> tuple[Lookup, ...]:
    """The records that a body names, and the one that has its id already."""
    if isinstance(body, TraceBody):
        return ()
    given = _given_id(body)
    same = Lookup(CONTRACTS[type(body)], given) if given is not None else None
    rated = Lookup(Feedback, body.feedback_id) if isinstance(body, CorrectionBody) and body.feedback_id is not None else None
    replaced = Lookup(CONTRACTS[type(body)], body.supersedes) if body.supersedes is not None else None
    return tuple(lookup for lookup in (_trace_lookup(body, sender), rated, replaced, same) if lookup is not None)


def _trace_lookup(body: RatingBody, sender: Sender) -> Lookup | None:
    """The trace that fills what a body leaves out: the one it names, or for a program the newest of its session.

    Session ids can be guessed, and a trace's text is not for everybody: for a person the session alone opens nothing.
    """
    if body.trace_id is not None:
        return Lookup(Trace, body.trace_id)
    if isinstance(body, FeedbackBody) and body.user_query is None and body.session_id is not None and sender.is_program:
        return Lookup(Trace, body.session_id, "session_id")
    return None


def _sent_texts(body: SubmissionBody) -> Iterable[tuple[str, ...]]:
    """The texts that a body brings along, for each record that it becomes.

    Texts that a trace fills in were scanned when it was logged, and are not scanned again.
    """
    if isinstance(body, TraceBody):
        yield (*(message.content for message in body.messages), *body.contexts)
    elif isinstance(body, PreferenceBody):
        yield _given(body.prompt, body.response_a, body.response_b, body.comments)
    elif isinstance(body, CorrectionBody):
        yield _given(body.prompt, body.original, body.golden, body.reason)
    else:
        yield _given(body.user_query, body.agent_response, body.comments)
        if body.golden is not None:
            yield _given(body.user_query, body.agent_response, body.golden, body.comments)


def _given(*texts: str | None) -> tuple[str, ...]:
    return tuple(text for text in texts if text)


@dataclass(frozen=True)
class _RecordBuilder:
    """Makes the rows of one body, with the records it names at hand."""

    store: Store
    sender: Sender
    clinician: str | None  # who judged, as a user's id
    known: LookupResults
    scan: PhiScan

    def rows(self, body: SubmissionBody) -> NewRows:
        self.check_references(body)
        built = self.records(body)
        if not isinstance(body, TraceBody):
            trace = self.named_trace(body) if body.trace_id is not None and brings_texts(body) else None
            check_exchange(self.store, self.sender, built[0], trace, partial(self.own_exchanges, body))
        if (repeated := self.repeated(body, built[0])) is not None:
            return repeated
        flags = critical_flags(self.store, built[0], self.sender.user_id, self.reported(built[0]))
        built += flags.opened
        scanned = zip(built, self.scan.doubts(self.texts(body)), strict=False)  # incidents and red-team cases only repeat texts
        held = [row for record, doubt in scanned if (row := self.quarantine_row(record, doubt)) is not None]
        ids: Json = dict(crud.ids_by_name(built))
        if flags.incident_ids:
            ids |= {"incident_id": flags.incident_ids[0], "incident_ids": flags.incident_ids}  # a comparison may open two
        timestamp = iso_utc(built[0].timestamp)  # type: ignore[attr-defined]
        events = tuple(
            AuditEvent(
                actor=self.sender.user_id, action="quarantine.hold", subject=row["record_id"], detail={"kind": row["kind"]}
            )
            for row in held
        )
        answer = {**ids, "timestamp": timestamp, "quarantined": bool(held), **note_about(built, self.sender)}
        judged = [crud.id_of(record) for record in built if type(record) in CONTRACTS.values() and not isinstance(record, Trace)]
        sent_from = site_of_sender(self.store, self.sender, self.clinician)
        site_rows, site_events = sites.site_rows(judged, sent_from, self.sender.user_id)
        plain_rows = (*((quarantine, row) for row in held), *site_rows)
        return NewRows(answer, tuple(built), plain_rows, (*events, *site_events, *flags.events), update=flags.update)

    def reported(self, record: Contract) -> list[FlaggedAnswer]:
        """The answers that the record before it has flagged; they have their incidents."""
        supersedes = getattr(record, "supersedes", None)
        before = self.known.record(type(record), Lookup(type(record), supersedes)) if supersedes else None
        return [] if before is None else flagged_answers(before)

    def repeated(self, body: SubmissionBody, record: Contract) -> NewRows | None:
        """The answer for a record that is stored already under the id that its sender gave it; None if it is new."""
        given = _given_id(body)
        stored = None if given is None else self.known.record(type(record), Lookup(type(record), given))
        if stored is None:
            return None
        not_sent = {"received"} if isinstance(body, RatingBody) and body.timestamp is not None else {"received", "timestamp"}
        if stored.model_dump(exclude=not_sent) != record.model_dump(exclude=not_sent):
            raise InputError(
                f"This {_id_name(body)} is taken by a record with other content",
                "Records are never changed: send a new id, and name the old one in 'supersedes' if it is yours",
            )
        timestamp = iso_utc(stored.timestamp)  # type: ignore[attr-defined]
        held = crud.id_of(stored) in self.known.quarantined
        answer = {
            _id_name(body): crud.id_of(stored),
            "timestamp": timestamp,
            "quarantined": held,
            **note_about([stored], self.sender),
        }
        return NewRows(answer, known=True)

    def check_references(self, body: SubmissionBody) -> None:
        """The records that a body names exist (at the sender's site), and what it supersedes is the sender's own."""
        if isinstance(body, TraceBody):
            return
        if body.trace_id is not None and self.known.rows.get(Lookup(Trace, body.trace_id)) is None:
            raise InputError(NO_TRACE, LOG_IT if self.sender.site == DEFAULT_SITE else OWN_SITE)
        if isinstance(body, CorrectionBody) and body.feedback_id is not None:
            rated = self.known.rows.get(Lookup(Feedback, body.feedback_id))
            if rated is None:
                raise InputError("There is no feedback with this feedback_id", OWN_ID)
        if body.supersedes is not None:
            before = self.known.rows.get(Lookup(CONTRACTS[type(body)], body.supersedes))
            if before is None or before.recorded_by != self.sender.user_id:
                raise InputError("'supersedes' does not name an earlier record of yours of this kind", OWN_ID)

    def own_exchanges(self, body: RatingBody) -> list[tuple[str, ...]]:
        """What the sender's own records are about that the body names: the one it replaces, and the rating it corrects."""
        lookups = [Lookup(CONTRACTS[type(body)], body.supersedes)] if body.supersedes is not None else []
        if isinstance(body, CorrectionBody) and body.feedback_id is not None:
            lookups.append(Lookup(Feedback, body.feedback_id))
        records: list[Any] = [self.known.record(lookup.kind, lookup) for lookup in lookups]
        return [record.exchange for record in records if record is not None and record.recorded_by == self.sender.user_id]

    def records(self, body: SubmissionBody) -> list[Contract]:
        """The record of the body first, then its correction."""
        if isinstance(body, TraceBody):
            return [self.trace(body)]
        if isinstance(body, PreferenceBody):
            own = {"prompt", "response_a", "response_b", "preferred", "critical", "shown_first", "comments", "axes"}
            values = body.model_dump(include=own | {"preference_id", "session_id", "model_a", "model_b"}, exclude_none=True)
            preference = Preference.model_validate(self.shared_values(body) | values)
            return [preference]
        if isinstance(body, CorrectionBody):
            texts = self.corrected_exchange(body) | {"golden": body.golden, "reason": body.reason}
            own_id = {"correction_id": body.correction_id} if body.correction_id is not None else {}
            return [Correction.model_validate(self.shared_values(body) | texts | own_id | {"feedback_id": body.feedback_id})]
        feedback = self.feedback(body)
        return [feedback, *self.golden_correction(body, feedback)]

    def trace(self, body: TraceBody) -> Trace:
        messages = tuple(Message(role=message.role, content=message.content) for message in body.messages)
        conversation = Conversation(messages=messages)
        own = {"session_id", "agent_name", "model_version", "contexts", "snapshot", "sampling_share", "meta"}
        subject = {"user_hash": self.subject_hash(body.subject)}
        return Trace.model_validate({**body.model_dump(include=own), **subject, "conversation": conversation})

    def feedback(self, body: FeedbackBody) -> Feedback:
        values: Json = {}
        trace = self.named_trace(body)
        if trace is not None:
            values = {"session_id": trace.session_id, "agent_name": trace.agent_name, "model_version": trace.model_version}
            if body.user_query is None:
                question, answer = self.exchange(trace)
                values |= {"user_query": question, "agent_response": answer, "trace_id": trace.trace_id}
        elif body.agent_name is None:
            raise InputError("This session has no trace", "Send agent_name too, or log the exchange with POST /api/v1/traces")
        elif body.golden is not None and body.user_query is None:
            raise InputError("A golden answer needs its question", "Name the trace_id, or send user_query and agent_response")
        own = ("feedback_id", "session_id", "agent_name", "model_version", "user_query", "agent_response")
        values |= {name: value for name in own if (value := getattr(body, name)) is not None}
        values |= {name: getattr(body, name) for name in ("rating", "thumb", "axes", "critical", "comments")}
        kind = feedback_type_of(body) or ("negative" if body.golden is not None else None)
        return Feedback.model_validate(self.shared_values(body) | values | {"feedback_type": kind})

    def golden_correction(self, body: FeedbackBody, feedback: Feedback) -> list[Contract]:
        if body.golden is None:
            return []
        texts = {
            "prompt": feedback.user_query,
            "original": feedback.agent_response,
            "golden": body.golden,
            "reason": body.comments,
        }
        links = {"reason": body.comments, "supersedes": None, "trace_id": feedback.trace_id, "feedback_id": feedback.feedback_id}
        return [Correction.model_validate(self.shared_values(body) | texts | links)]

    def corrected_exchange(self, body: CorrectionBody) -> Json:
        """The exchange that is corrected: as sent, else from the trace, else from the sender's own rating."""
        if body.prompt is not None:
            return {"prompt": body.prompt, "original": body.original}
        trace = self.named_trace(body)
        if trace is not None:
            question, answer = self.exchange(trace)
            return {"prompt": question, "original": answer}
        rated = self.rated(body)
        # Else a correction would copy somebody else's text into the sender's records.
        if rated.recorded_by != self.sender.user_id:
            raise InputError("This feedback is not yours", "Send prompt and original, or the trace_id")
        if not rated.user_query:
            raise InputError("Your rating has no question and answer to correct", "Send prompt and original, or the trace_id")
        return {"prompt": rated.user_query, "original": rated.agent_response}

    def rated(self, body: CorrectionBody) -> Feedback:
        assert body.feedback_id is not None
        feedback = self.known.record(Feedback, Lookup(Feedback, body.feedback_id))
        assert feedback is not None
        return feedback

    def named_trace(self, body: RatingBody) -> Trace | None:
        lookup = _trace_lookup(body, self.sender)
        return None if lookup is None else self.known.record(Trace, lookup)

    def exchange(self, trace: Trace) -> tuple[str, str]:
        """Question and answer of a trace. For a person they are as the review queue showed them, so that identifiers which the
        queue removed do not come back in the record; programs, and clinicians who opened the trace itself, get its own text."""
        conversation = trace.conversation
        shown = None
        if not self.sender.is_program:
            shown = shown_items.trace_shown_to(self.store, trace.trace_id, self.sender.user_id)
        if shown is not None:
            conversation = shown
        elif self.sender.by_queue:
            raise InputError(NO_TRACE, FROM_QUEUE)
        if conversation.answer is None:
            raise InputError("This trace has no answer yet", "Send the texts themselves, or log the trace with the answer")
        return conversation.question, conversation.answer

    def shared_values(self, body: RatingBody) -> Json:
        """The fields that ratings, choices and corrections have in common."""
        now = utc_now()
        return {
            "clinician_id": self.clinician, "timestamp": body.timestamp or now, "received": now, "consent": body.consent,
            "trace_id": body.trace_id, "supersedes": body.supersedes, "subject": self.subject(body),
            "recorded_by": self.sender.user_id,
        }  # fmt: skip

    def subject(self, body: RatingBody) -> str | None:
        """The person a record is about: that of its trace, or of the rating it corrects.

        A body may repeat it, but not name somebody else: to erase that person would remove what others said about the trace.
        """
        given, trace = self.subject_hash(body.subject), _trace_lookup(body, self.sender)
        about = self.known.rows.get(trace) if trace is not None else None
        if about is not None:
            subject: str | None = about.user_hash
        elif isinstance(body, CorrectionBody) and body.feedback_id is not None:
            subject = self.known.rows[Lookup(Feedback, body.feedback_id)].subject
        else:
            return given
        if given not in (None, subject):
            raise InputError(OTHER_SUBJECT, LEAVE_SUBJECT_OUT if subject else SUBJECT_FIRST)
        return subject

    def subject_hash(self, subject: str | None) -> str | None:
        return None if subject is None else subject_of(self.store, subject)

    def texts(self, body: SubmissionBody) -> list[tuple[str, ...]]:
        """What is scanned of each record; also the exchange of a rating that a correction repeats without a trace."""
        texts = list(_sent_texts(body))
        if isinstance(body, CorrectionBody) and body.prompt is None and body.trace_id is None:
            rated = self.rated(body)
            texts = [(*_given(rated.user_query, rated.agent_response), *texts[0])]
        return texts

    def quarantine_row(self, record: Contract, doubt: Doubt | None) -> Json | None:
        """The row that holds a record back. Feedback about an exchange in quarantine waits with it, because it repeats it."""
        if doubt is None:
            held = None if isinstance(record, Trace) else self.known.quarantined.get(getattr(record, "trace_id", None) or "")
            if held is None:
                return None
            doubt = Doubt(held.doubt, tuple(held.reasons))
        kind = crud.TABLES[type(record)].name
        row = {"record_id": crud.id_of(record), "kind": kind, "doubt": doubt.value, "reasons": list(doubt.reasons)}
        return {**row, "state": "waiting", "timestamp": utc_now()}
