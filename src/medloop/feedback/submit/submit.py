"""From what somebody sent to the rows that keep it: checked against the store, looked over for identifiers, ready for the writer.

    submission = hand_in(store, body, Sender("usr_1"), key="4f2c…")      # body: one of bodies.py
    stored = await writer.submit(submission)                            # stored.answer: {"feedback_id": …, "timestamp": …}

Unknown trace ids are refused. Nothing is refused for what it says: a text that may name somebody is stored (sealed, as all are)
with a row in `quarantine`, and no dataset takes it before a person has looked. A critical flag opens an incident and adds a
red-team case in the same transaction. A record is never changed: `supersedes` names an earlier one of the same sender.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
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
    RedTeamCase,
    Trace,
    utc_now,
)
from medloop.contracts.base import iso_utc
from medloop.contracts.feedback import FeedbackType, Incident
from medloop.contracts.polarity import polarity, stored_type
from medloop.errors import InputError
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, Sent, TraceBody
from medloop.privacy.consent import subject_of
from medloop.privacy.phi.scrub import Scrubber
from medloop.store.db import Store
from medloop.store.records import crud as records
from medloop.store.records import review_queue
from medloop.store.records.write_request import Json, Lookup, LookupResults, NewRows, WriteRequest
from medloop.store.tables import natural_id, quarantine

LONG = 2000  # characters, from which a record is looked over before the writer has it
AHEAD = 1000  # such findings that wait for the writer, at most
_LOOKED: dict[bytes, Doubt | None] = {}

CONTRACTS: dict[type[Sent], type[Contract]] = {
    FeedbackBody: Feedback,
    PreferenceBody: Preference,
    CorrectionBody: Correction,
    TraceBody: Trace,
}


@dataclass(frozen=True)
class Sender:
    """Who hands in. Programs pass on what clinicians say and may name them; a person speaks for nobody else."""

    user_id: str
    speaks_for_others: bool = False
    by_queue: bool = False  # may speak only of traces that the queue has shown; else an id would open any trace's text


def hand_in(store: Store, body: Sent, sender: Sender, *, key: str | None = None) -> WriteRequest:
    """The submission of one body. What only the store can tell (does the trace exist?) is found out when it is built."""
    _check_person(body, sender)
    if _by_session(body) and not sender.speaks_for_others:  # session ids can be guessed; a trace's text is not for everybody
        raise InputError("Name the trace_id, or send user_query and agent_response", "A session_id alone is for programs")
    named = getattr(body, "trace_id", None)
    if sender.by_queue and named is not None and not review_queue.was_shown(store, named, sender.user_id):
        raise InputError("There is no trace with this trace_id", "Take what is to be rated from the queue")

    def build(known: LookupResults) -> NewRows:
        return _rows(_Draft(store, sender, known), body)

    long = [texts for texts in _said(body) if sum(map(len, texts)) > LONG]
    ahead = partial(_look_ahead, long) if long else None
    return WriteRequest(sender.user_id, build, key, fingerprint(body), _lookups(body), ahead)


def fingerprint(body: Sent) -> str:
    """The same for the same words, however the JSON was spaced; unchanged by optional fields that later versions add."""
    said = f"{type(body).__name__} {body.model_dump_json(exclude_none=True)}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Doubt:
    """How likely a text still names somebody after scrubbing, and why; never with a word of it."""

    value: float
    reasons: tuple[str, ...]


def doubt_about(texts: Sequence[str]) -> Doubt | None:
    """The strongest doubt about these texts of one record; None when there is none worth a person's time."""
    name = _name(texts) if sum(map(len, texts)) > LONG else b""
    return _LOOKED.pop(name) if name in _LOOKED else _doubt(texts)


def _look_ahead(records: Sequence[Sequence[str]]) -> None:
    """Long texts take seconds, which the one writer cannot spare; what is found waits for it under the hash of the texts."""
    for texts in records:
        while len(_LOOKED) >= AHEAD:  # of requests that went away
            _LOOKED.pop(next(iter(_LOOKED)), None)
        _LOOKED[_name(texts)] = _doubt(texts)


def _name(texts: Sequence[str]) -> bytes:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()


def _doubt(texts: Sequence[str]) -> Doubt | None:
    scrubber = Scrubber()
    found = [scrubber.assess(text) for text in texts]
    held = [one for one in found if one.quarantined]
    return Doubt(max(one.doubt for one in held), tuple(dict.fromkeys(r for one in held for r in one.reasons))) if held else None


def feedback_type_of(body: FeedbackBody) -> FeedbackType | None:
    """As said, else what the other signals amount to; None for a bare comment."""
    return body.feedback_type or stored_type(polarity(thumb=body.thumb, stars=body.rating, critical=body.critical))


@dataclass(frozen=True)
class _Draft:
    """What a body becomes a record with."""

    store: Store
    sender: Sender
    known: LookupResults

    def trace(self, body: FeedbackBody | PreferenceBody | CorrectionBody) -> Trace | None:
        """The trace that fills what the body leaves out."""
        if body.trace_id is not None:
            return self.known.record(Trace, Lookup(Trace, body.trace_id))
        if isinstance(body, FeedbackBody) and body.session_id is not None and _by_session(body):
            return self.known.record(Trace, Lookup(Trace, body.session_id, "session_id"))
        return None

    def taken(self, body: Sent, record: Contract) -> frozenset[str]:
        """The texts of a record that a trace filled in."""
        by_trace = isinstance(body, FeedbackBody) and body.user_query is None
        if by_trace and isinstance(record, Feedback):
            return frozenset((record.user_query, record.agent_response))
        if isinstance(record, Correction) and (by_trace or (isinstance(body, CorrectionBody) and body.prompt is None)):
            return frozenset((record.prompt, record.original)) if record.trace_id is not None else frozenset()
        return frozenset()

    def doubt_about_trace(self, record: Contract) -> Doubt | None:
        """What is said about an exchange that is held waits with it: it repeats it, or is read together with it."""
        held = None if isinstance(record, Trace) else self.known.quarantined(getattr(record, "trace_id", None) or "")
        return None if held is None else Doubt(held.doubt, tuple(held.reasons))

    def shared(self, body: FeedbackBody | PreferenceBody | CorrectionBody) -> Json:
        """The fields that all three records have."""
        return {
            "clinician_id": body.clinician_id or (None if self.sender.speaks_for_others else self.sender.user_id),
            "consent": body.consent,
            "trace_id": body.trace_id,
            "supersedes": body.supersedes,
            "subject": self.subject(body.subject),
            "recorded_by": self.sender.user_id,
        }

    def subject(self, given: str | None) -> str | None:
        return None if given is None else subject_of(self.store, given)

    def check(self, body: Sent) -> None:
        """The records that a body names are there, and what it supersedes is the sender's own."""
        if isinstance(body, TraceBody):
            return
        if body.trace_id is not None and self.known.row(Lookup(Trace, body.trace_id)) is None:
            raise InputError("There is no trace with this trace_id", "Log it first with POST /api/v1/traces")
        if isinstance(body, CorrectionBody) and body.feedback_id is not None:
            if self.known.row(Lookup(Feedback, body.feedback_id)) is None:
                raise InputError("There is no feedback with this feedback_id", "Send the id that came back for it")
        if body.supersedes is not None:
            before = self.known.row(Lookup(CONTRACTS[type(body)], body.supersedes))
            if before is None or before.recorded_by != self.sender.user_id:
                raise InputError(
                    "'supersedes' names no earlier record of yours of this kind", "Send the id that came back for it"
                )


def _rows(draft: _Draft, body: Sent) -> NewRows:
    draft.check(body)
    made = _MAKERS[type(body)](draft, body)
    first = made[0]
    held = [row for record in made if (row := _held(draft, body, record)) is not None]
    names = {natural_id(records.TABLES[type(record)]): records.id_of(record) for record in made}
    when = iso_utc(first.timestamp)  # type: ignore[attr-defined]
    answer = {**names, "timestamp": when, "quarantined": bool(held)}
    return NewRows(
        answer, tuple(made), tuple((quarantine, row) for row in held), tuple(_noted(row, draft.sender) for row in held)
    )


def _feedback(draft: _Draft, body: FeedbackBody) -> list[Contract]:
    trace = draft.trace(body)
    said: Json = {"session_id": body.session_id, "agent_name": body.agent_name, "model_version": body.model_version}
    said |= {"user_query": body.user_query, "agent_response": body.agent_response}
    if trace is not None:
        given: Json = {"session_id": trace.session_id, "agent_name": trace.agent_name, "model_version": trace.model_version}
        if body.user_query is None:
            given |= _exchange(draft, trace, "user_query", "agent_response") | {"trace_id": trace.trace_id}
        said = given | {name: value for name, value in said.items() if value is not None}
    elif body.user_query is None:
        raise InputError("This session has no trace", "Log it with POST /api/v1/traces, or send user_query and agent_response")
    judged = {"rating": body.rating, "thumb": body.thumb, "axes": body.axes, "critical": body.critical, "comments": body.comments}
    kind = feedback_type_of(body) or ("negative" if body.golden is not None else None)
    record = Feedback.model_validate(draft.shared(body) | said | judged | {"feedback_type": kind})
    return [record, *_golden(draft, body, record), *_incident(draft, record)]


def _golden(draft: _Draft, body: FeedbackBody, record: Feedback) -> list[Contract]:
    if body.golden is None:
        return []
    texts = {"prompt": record.user_query, "original": record.agent_response, "golden": body.golden, "reason": body.comments}
    shared = draft.shared(body) | {"supersedes": None, "trace_id": record.trace_id}
    return [Correction.model_validate({**shared, **texts, "feedback_id": record.feedback_id})]


def _incident(draft: _Draft, record: Feedback) -> list[Contract]:
    if not record.critical:
        return []
    said = {"record_id": record.feedback_id, "model_version": record.model_version, "opened_by": draft.sender.user_id}
    incident = Incident.model_validate(said)
    texts = {"prompt": record.user_query, "answer": record.agent_response, "reason": record.comments}
    case = RedTeamCase.model_validate({"record_id": record.feedback_id, "incident_id": incident.incident_id, **texts})
    return [incident, case]


def _preference(draft: _Draft, body: PreferenceBody) -> list[Contract]:
    own = body.model_dump(include={"prompt", "response_a", "response_b", "preferred", "shown_first", "comments", "axes"})
    models = {"session_id": body.session_id, "model_a": body.model_a, "model_b": body.model_b}
    return [Preference.model_validate(draft.shared(body) | own | models)]


def _correction(draft: _Draft, body: CorrectionBody) -> list[Contract]:
    texts: Json = {"prompt": body.prompt, "original": body.original}
    trace = draft.trace(body)
    if body.prompt is None and trace is not None:
        texts = _exchange(draft, trace, "prompt", "original")
    elif body.prompt is None:
        assert body.feedback_id is not None
        rated = draft.known.record(Feedback, Lookup(Feedback, body.feedback_id))
        assert rated is not None
        if rated.recorded_by != draft.sender.user_id:  # else a correction would carry somebody else's text into one's own records
            raise InputError("This feedback is not yours", "Send prompt and original, or the trace_id")
        texts = {"prompt": rated.user_query, "original": rated.agent_response}
    said = {"golden": body.golden, "reason": body.reason, "feedback_id": body.feedback_id}
    return [Correction.model_validate(draft.shared(body) | texts | said)]


def _trace(draft: _Draft, body: TraceBody) -> list[Contract]:
    talk = Conversation(messages=tuple(Message(role=turn.role, content=turn.content) for turn in body.messages))
    said = body.model_dump(
        include={"session_id", "agent_name", "model_version", "contexts", "snapshot", "sampling_share", "meta"}
    )
    return [Trace.model_validate({**said, "conversation": talk, "user_hash": draft.subject(body.subject)})]


_MAKERS: dict[type[Sent], Callable[[_Draft, Any], list[Contract]]] = {
    FeedbackBody: _feedback,
    PreferenceBody: _preference,
    CorrectionBody: _correction,
    TraceBody: _trace,
}


def _exchange(draft: _Draft, trace: Trace, question: str, answer: str) -> Json:
    talk = trace.conversation
    if draft.sender.by_queue:  # what is stored is theirs to read: no more than the queue has shown them
        shown = review_queue.as_shown(draft.store, trace.trace_id, draft.sender.user_id)
        if shown is None:
            raise InputError("There is no trace with this trace_id", "Take what is to be rated from the queue")
        talk = Conversation(messages=(*shown.prompt, Message(role="assistant", content=shown.answers[0])))
    said = talk.answer
    if said is None:
        raise InputError("This trace has no answer yet", "Send the texts themselves, or log the trace with the answer")
    return {question: talk.question, answer: said}


def _lookups(body: Sent) -> tuple[Lookup, ...]:
    lookups: list[Lookup] = []
    if isinstance(body, TraceBody):
        return ()
    if body.trace_id is not None:
        lookups.append(Lookup(Trace, body.trace_id))
    elif isinstance(body, FeedbackBody) and body.session_id is not None and _by_session(body):
        lookups.append(Lookup(Trace, body.session_id, "session_id"))
    if isinstance(body, CorrectionBody) and body.feedback_id is not None:
        lookups.append(Lookup(Feedback, body.feedback_id))
    if body.supersedes is not None:
        lookups.append(Lookup(CONTRACTS[type(body)], body.supersedes))
    return tuple(lookups)


def _by_session(body: Sent) -> bool:
    return isinstance(body, FeedbackBody) and body.trace_id is None and body.user_query is None


def _check_person(body: Sent, sender: Sender) -> None:
    named = None if isinstance(body, TraceBody) else body.clinician_id
    if named is not None and named != sender.user_id and not sender.speaks_for_others:
        raise InputError("clinician_id names somebody else", "Leave it out: what you send is yours")


def _held(draft: _Draft, body: Sent, record: Contract) -> Json | None:
    """The quarantine row of a record whose text leaves a doubt.

    Texts that came from a trace were looked over when it was logged: if it is held, so is what repeats it, and they are not
    looked over again.
    """
    taken = draft.taken(body, record)
    given = [text for text in _texts(record) if text not in taken]
    doubt = doubt_about(given) or draft.doubt_about_trace(record)
    if doubt is None:
        return None
    kind = records.TABLES[type(record)].name
    row = {"record_id": records.id_of(record), "kind": kind, "doubt": doubt.value, "reasons": list(doubt.reasons)}
    return {**row, "state": "waiting", "timestamp": utc_now()}


def _noted(row: Json, sender: Sender) -> AuditEvent:
    return AuditEvent(actor=sender.user_id, action="quarantine.hold", subject=row["record_id"], detail={"kind": row["kind"]})


def _said(body: Sent) -> list[list[str]]:
    """The texts that a body brings along, by the record they will be in; in the order of `_texts`."""
    if isinstance(body, TraceBody):
        given: list[list[str | None]] = [[*(message.content for message in body.messages), *body.contexts]]
    elif isinstance(body, PreferenceBody):
        given = [[body.prompt, body.response_a, body.response_b, body.comments]]
    elif isinstance(body, CorrectionBody):
        given = [[body.prompt, body.original, body.golden, body.reason]]
    else:
        given = [[body.user_query, body.agent_response, body.comments]]
        if body.golden is not None:
            given.append([body.user_query, body.agent_response, body.golden, body.comments])
    return [[text for text in texts if text] for texts in given]


def _texts(record: Contract) -> list[str]:
    """Incidents and red-team cases repeat their feedback, which is looked at itself."""
    if isinstance(record, Feedback):
        given = [record.user_query, record.agent_response, record.comments]
    elif isinstance(record, Preference):
        given = [record.prompt, record.response_a, record.response_b, record.comments]
    elif isinstance(record, Correction):
        given = [record.prompt, record.original, record.golden, record.reason]
    elif isinstance(record, Trace):
        given = [*(message.content for message in record.conversation.messages), *record.contexts]
    else:
        given = []
    return [text for text in given if text]
