"""From a request body to the rows that the writer stores.

    submission = prepare_submission(store, body, Sender("usr_1"), key="4f2c…")    # body: one of bodies.py
    stored = await writer.submit(submission)                                     # stored.answer: {"feedback_id": …, …}

Unknown trace ids are refused. Nothing is refused for its text: one that may name somebody is stored (encrypted, as all are)
with a row in `quarantine`, and no dataset uses it before a person has reviewed it. A critical flag opens an incident and adds
a red-team case in the same transaction. A record is never changed: `supersedes` names an earlier one of the same sender.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from medloop.contracts import (
    AuditEvent,
    Contract,
    Conversation,
    Correction,
    Feedback,
    Message,
    Preference,
    RedTeamCase,
    Trace,
    utc_now,
)
from medloop.contracts.base import iso_utc
from medloop.contracts.feedback import FeedbackType, Incident
from medloop.contracts.polarity import polarity, stored_type
from medloop.errors import InputError
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, SubmissionBody, TraceBody
from medloop.feedback.submit.phi_scan import Doubt, PhiScan
from medloop.lexicon.language import detect_language
from medloop.privacy.consent import subject_of
from medloop.store.db import Store
from medloop.store.records import crud, review_queue
from medloop.store.records.write_request import Json, Lookup, LookupResults, NewRows, WriteRequest
from medloop.store.tables import quarantine

CONTRACTS: dict[type[SubmissionBody], type[Contract]] = {
    FeedbackBody: Feedback,
    PreferenceBody: Preference,
    CorrectionBody: Correction,
    TraceBody: Trace,
}
RatingBody = FeedbackBody | PreferenceBody | CorrectionBody
NO_TRACE = "There is no trace with this trace_id"
FROM_QUEUE = "Rate only what the queue shows you"
OWN_ID = "Send the id that you received for it"


@dataclass(frozen=True)
class Sender:
    """Who sends. Programs pass on what clinicians say and may name them; a person speaks only for themselves."""

    user_id: str
    speaks_for_others: bool = False
    by_queue: bool = False  # may speak only of traces that the queue has shown; else an id would open any trace's text


def prepare_submission(store: Store, body: SubmissionBody, sender: Sender, *, key: str | None = None) -> WriteRequest:
    """The submission of one body. What only the store knows (does the trace exist?) is checked when the rows are built."""
    _check_sender(store, body, sender)
    scan = PhiScan(list(_sent_texts(body)))

    def build(known: LookupResults) -> NewRows:
        return _RecordBuilder(store, sender, known, scan).rows(body)

    return WriteRequest(sender.user_id, build, key, fingerprint(body), _lookups(body), scan.prepare)


def fingerprint(body: SubmissionBody) -> str:
    """The same for the same words, however the JSON was spaced; unchanged by optional fields that later versions add."""
    text = f"{type(body).__name__} {body.model_dump_json(exclude_none=True)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def feedback_type_of(body: FeedbackBody) -> FeedbackType | None:
    """As sent, else what the other signals amount to; None for a bare comment."""
    return body.feedback_type or stored_type(polarity(thumb=body.thumb, stars=body.rating, critical=body.critical))


def _check_sender(store: Store, body: SubmissionBody, sender: Sender) -> None:
    if isinstance(body, TraceBody):
        return
    if body.clinician_id not in (None, sender.user_id) and not sender.speaks_for_others:
        raise InputError("clinician_id names somebody else", "Leave it out: you are stored as the author of what you send")
    if _by_session(body) and not sender.speaks_for_others:  # session ids can be guessed; a trace's text is not for everybody
        raise InputError("Name the trace_id, or send user_query and agent_response", "Only programs may send a session_id alone")
    if sender.by_queue and body.trace_id is not None and not review_queue.was_shown(store, body.trace_id, sender.user_id):
        raise InputError(NO_TRACE, FROM_QUEUE)


def _by_session(body: RatingBody) -> bool:
    return isinstance(body, FeedbackBody) and body.trace_id is None and body.user_query is None


def _lookups(body: SubmissionBody) -> tuple[Lookup, ...]:
    """The records that a body names."""
    if isinstance(body, TraceBody):
        return ()
    rated = Lookup(Feedback, body.feedback_id) if isinstance(body, CorrectionBody) and body.feedback_id is not None else None
    replaced = Lookup(CONTRACTS[type(body)], body.supersedes) if body.supersedes is not None else None
    return tuple(lookup for lookup in (_trace_lookup(body), rated, replaced) if lookup is not None)


def _trace_lookup(body: RatingBody) -> Lookup | None:
    """The trace that fills what a body leaves out: the one it names, or the newest of its session."""
    if body.trace_id is not None:
        return Lookup(Trace, body.trace_id)
    if isinstance(body, FeedbackBody) and body.session_id is not None and _by_session(body):
        return Lookup(Trace, body.session_id, "session_id")
    return None


def _sent_texts(body: SubmissionBody) -> Iterable[tuple[str, ...]]:
    """The texts that a body brings along, for each record that it becomes.

    Texts that a trace fills in were scanned when it was logged, and are not scanned again.
    """
    if isinstance(body, TraceBody):
        yield (*(turn.content for turn in body.messages), *body.contexts)
    elif isinstance(body, PreferenceBody):
        yield _given(body.prompt, body.response_a, body.response_b, body.comments)
    elif isinstance(body, CorrectionBody):
        yield _given(body.prompt, body.original, body.golden, body.reason)
    else:
        yield _given(body.user_query, body.agent_response, body.comments)
        if body.golden is not None:
            yield _given(body.user_query, body.agent_response, body.golden, body.comments)


def flagged_answers(record: Feedback | Preference) -> list[tuple[str, str, str | None]]:
    """Question, answer and model of each answer that somebody says could harm a patient."""
    if isinstance(record, Feedback):
        return [(record.user_query, record.agent_response, record.model_version)] if record.critical else []
    answers = {"a": (record.response_a, record.model_a), "b": (record.response_b, record.model_b)}
    return [(record.prompt, *answers[side]) for side in sorted(record.critical)]


def _given(*texts: str | None) -> tuple[str, ...]:
    return tuple(text for text in texts if text)


@dataclass(frozen=True)
class _RecordBuilder:
    """Makes the rows of one body, with the records it names at hand."""

    store: Store
    sender: Sender
    known: LookupResults
    scan: PhiScan

    def rows(self, body: SubmissionBody) -> NewRows:
        self.check_references(body)
        built = self.records(body)
        scanned = zip(built, self.scan.doubts(self.texts(body)), strict=False)  # incidents and red-team cases only repeat texts
        held = [row for record, doubt in scanned if (row := self.quarantine_row(record, doubt)) is not None]
        ids = crud.ids_by_name(built)  # of two incidents the first is named; both are in the list of incidents
        timestamp = iso_utc(built[0].timestamp)  # type: ignore[attr-defined]
        events = tuple(
            AuditEvent(
                actor=self.sender.user_id, action="quarantine.hold", subject=row["record_id"], detail={"kind": row["kind"]}
            )
            for row in held
        )
        answer = {**ids, "timestamp": timestamp, "quarantined": bool(held)}
        return NewRows(answer, tuple(built), tuple((quarantine, row) for row in held), events)

    def check_references(self, body: SubmissionBody) -> None:
        """The records that a body names exist, and what it supersedes is the sender's own."""
        if isinstance(body, TraceBody):
            return
        if body.trace_id is not None and self.known.rows.get(Lookup(Trace, body.trace_id)) is None:
            raise InputError(NO_TRACE, "Log it first with POST /api/v1/traces")
        if isinstance(body, CorrectionBody) and body.feedback_id is not None:
            if self.known.rows.get(Lookup(Feedback, body.feedback_id)) is None:
                raise InputError("There is no feedback with this feedback_id", OWN_ID)
        if body.supersedes is not None:
            before = self.known.rows.get(Lookup(CONTRACTS[type(body)], body.supersedes))
            if before is None or before.recorded_by != self.sender.user_id:
                raise InputError("'supersedes' does not name an earlier record of yours of this kind", OWN_ID)

    def records(self, body: SubmissionBody) -> list[Contract]:
        """The record of the body first, then its correction, then what a critical flag adds."""
        if isinstance(body, TraceBody):
            return [self.trace(body)]
        if isinstance(body, PreferenceBody):
            own = {"prompt", "response_a", "response_b", "preferred", "critical", "shown_first", "comments", "axes"}
            values = body.model_dump(include=own | {"session_id", "model_a", "model_b"})
            preference = Preference.model_validate(self.shared_values(body) | values)
            return [preference, *self.incidents(preference)]
        if isinstance(body, CorrectionBody):
            texts = self.corrected_exchange(body) | {"golden": body.golden, "reason": body.reason}
            return [Correction.model_validate(self.shared_values(body) | texts | {"feedback_id": body.feedback_id})]
        feedback = self.feedback(body)
        return [feedback, *self.golden_correction(body, feedback), *self.incidents(feedback)]

    def trace(self, body: TraceBody) -> Trace:
        conversation = Conversation(messages=tuple(Message(role=turn.role, content=turn.content) for turn in body.messages))
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
        elif body.user_query is None:
            raise InputError(
                "This session has no trace", "Log it with POST /api/v1/traces, or send user_query and agent_response"
            )
        own = ("session_id", "agent_name", "model_version", "user_query", "agent_response")
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

    def incidents(self, record: Feedback | Preference) -> list[Contract]:
        """An incident and a red-team case for each answer that was flagged."""
        opened: list[Contract] = []
        for question, answer, model in flagged_answers(record):
            incident = Incident(
                record_id=crud.id_of(record), model_version=model, opened_by=self.sender.user_id,
                language=detect_language(question),
            )  # fmt: skip
            case = RedTeamCase(
                record_id=crud.id_of(record), incident_id=incident.incident_id, prompt=question, answer=answer,
                reason=record.comments,
            )  # fmt: skip
            opened += [incident, case]
        return opened

    def corrected_exchange(self, body: CorrectionBody) -> Json:
        """The exchange that is corrected: as sent, else from the trace, else from the sender's own rating."""
        if body.prompt is not None:
            return {"prompt": body.prompt, "original": body.original}
        trace = self.named_trace(body)
        if trace is not None:
            question, answer = self.exchange(trace)
            return {"prompt": question, "original": answer}
        rated = self.rated(body)
        if (
            rated.recorded_by != self.sender.user_id
        ):  # else a correction would copy somebody else's text into the sender's records
            raise InputError("This feedback is not yours", "Send prompt and original, or the trace_id")
        return {"prompt": rated.user_query, "original": rated.agent_response}

    def rated(self, body: CorrectionBody) -> Feedback:
        assert body.feedback_id is not None
        feedback = self.known.record(Feedback, Lookup(Feedback, body.feedback_id))
        assert feedback is not None
        return feedback

    def named_trace(self, body: RatingBody) -> Trace | None:
        lookup = _trace_lookup(body)
        return None if lookup is None else self.known.record(Trace, lookup)

    def exchange(self, trace: Trace) -> tuple[str, str]:
        """Question and answer of a trace; for who rates from the queue no more of it than the queue has shown them."""
        conversation = trace.conversation
        if self.sender.by_queue:
            shown = review_queue.content_shown_to(self.store, trace.trace_id, self.sender.user_id)
            if shown is None:
                raise InputError(NO_TRACE, FROM_QUEUE)
            conversation = Conversation(messages=(*shown.prompt, Message(role="assistant", content=shown.answers[0])))
        if conversation.answer is None:
            raise InputError("This trace has no answer yet", "Send the texts themselves, or log the trace with the answer")
        return conversation.question, conversation.answer

    def shared_values(self, body: RatingBody) -> Json:
        """The fields that ratings, choices and corrections have in common."""
        return {
            "clinician_id": body.clinician_id or (None if self.sender.speaks_for_others else self.sender.user_id),
            "consent": body.consent, "trace_id": body.trace_id, "supersedes": body.supersedes,
            "subject": self.subject_hash(body.subject), "recorded_by": self.sender.user_id,
        }  # fmt: skip

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
