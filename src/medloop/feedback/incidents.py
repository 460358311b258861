"""Incidents: answers that somebody flagged as a critical failure.

    blocking_incidents(store, "clinic-7b@4")     # what to close before promotion; those of this version first
    writer.submit_and_wait(step_request(store, "inc_…", "proposed", by="usr_1", note="Rule 12 added; the case passes"))
    writer.submit_and_wait(step_request(store, "inc_…", "closed", by="usr_2", note="I read it again and agree"))

The critical flag opens one (submit/submit.py) and adds the exchange as a red-team case. Closing takes two people (the rule is in
store/records/incident_rows.py). Nothing is removed: closed incidents stay readable with their notes, and the case stays too.
"""

from dataclasses import dataclass
from functools import partial

from medloop.contracts import AuditEvent, Feedback, Incident, Message, Trace, utc_now
from medloop.contracts.base import iso_utc
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.audited_read import get_audited
from medloop.store.records.incident_rows import NoSuchIncidentError, Step, open_incidents, take_step
from medloop.store.records.write_request import NewRows, WriteRequest

MAX_NOTE = 4000  # characters
ACTIONS: dict[Step, str] = {"proposed": "incidents.propose", "declined": "incidents.decline", "closed": "incidents.close"}


@dataclass(frozen=True)
class IncidentTexts:
    """What an incident is about: the flagged record and the whole conversation; None and nothing after an erasure."""

    feedback: Feedback | None
    messages: tuple[Message, ...]


def blocking_incidents(store: Store, model_version: str) -> list[Incident]:
    """Open incidents for a release process to check, those of `model_version` first. Nothing in medloop promotes models yet.

    A new version has no incidents yet, but it comes from the data and the model of one that has. So incidents of other versions
    count too, until two people have reviewed and closed them.
    """
    return sorted(open_incidents(store), key=lambda incident: incident.model_version != model_version)


def get_incident(store: Store, incident_id: str) -> Incident:
    incident = crud.get(store, Incident, incident_id)
    if incident is None:
        raise NoSuchIncidentError("There is no such incident", "'medloop incidents list' shows all")
    return incident


def read_texts(store: Store, incident: Incident, *, actor: str) -> IncidentTexts:
    """The conversation, for those who may read it. Each read is in the audit log before the text is handed out."""
    purpose = "incident review"
    feedback = get_audited(store, Feedback, incident.record_id, actor=actor, purpose=purpose)
    if feedback is None:
        return IncidentTexts(None, ())
    trace = get_audited(store, Trace, feedback.trace_id, actor=actor, purpose=purpose) if feedback.trace_id else None
    if trace is not None:
        return IncidentTexts(feedback, trace.conversation.messages)
    question, answer = feedback.user_query, feedback.agent_response
    return IncidentTexts(feedback, (Message(role="user", content=question), Message(role="assistant", content=answer)))


def step_request(store: Store, incident_id: str, step: Step, *, by: str, note: str = "") -> WriteRequest:
    """The write request of one step; its errors come out of `GroupCommitWriter.submit`. Only confirming needs no note."""
    note = note.strip()
    if len(note) > MAX_NOTE or (not note and step != "closed"):
        to_do = "Say what is still missing" if step == "declined" else "Say what was done about it"
        raise InputError(f"The note has to be 1 to {MAX_NOTE} characters long", to_do)
    now = utc_now()
    event = AuditEvent(actor=by, action=ACTIONS[step], subject=incident_id)
    answer: dict[str, str] = {"incident_id": incident_id, "state": "closed" if step == "closed" else "open", step: iso_utc(now)}
    update = partial(take_step, store=store, incident_id=incident_id, step=step, by=by, note=note, when=now)
    return WriteRequest(by, lambda known: NewRows(answer, events=(event,), update=update))
