"""Incidents: answers that somebody flagged as a critical failure.

    blocking_incidents(store, "clinic-7b@4")     # what to close before promotion; those of this version first
    writer.submit_and_wait(step_request(store, "inc_…", "proposed", by="usr_1", note="Rule 12 added; the case passes"))
    writer.submit_and_wait(step_request(store, "inc_…", "closed", by="usr_2", note="I read it again and agree"))

The critical flag opens one (submit/submit.py) and adds the exchange as a red-team case. Closing takes two people (the rule is in
store/records/incident_rows.py). Nothing is removed: closed incidents stay readable with their notes, and the case stays too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from medloop.contracts import AuditEvent, Feedback, Incident, Message, RedTeamCase, Trace, utc_now
from medloop.contracts.base import iso_utc
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.audited_read import get_audited, read_by_ids
from medloop.store.records.incident_rows import (
    IncidentFilter,
    IncidentSummary,
    NoSuchIncidentError,
    Step,
    case_of,
    list_incidents,
    open_incidents,
    take_step,
)
from medloop.store.records.write_request import NewRows, WriteRequest

MAX_NOTE = 4000  # characters
SEARCHED = 500  # incidents that a search for words reads, the newest
ACTIONS: dict[Step, str] = {"proposed": "incidents.propose", "declined": "incidents.decline", "closed": "incidents.close"}


@dataclass(frozen=True)
class IncidentTexts:
    """What an incident is about: the flagged rating (None for a comparison) and the conversation; nothing after erasure."""

    feedback: Feedback | None
    messages: tuple[Message, ...]
    comments: str | None = None


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
        return _texts_of_case(store, incident, actor)
    trace = get_audited(store, Trace, feedback.trace_id, actor=actor, purpose=purpose) if feedback.trace_id else None
    if trace is not None:
        return IncidentTexts(feedback, trace.conversation.messages, feedback.comments)
    return IncidentTexts(feedback, _exchange(feedback.user_query, feedback.agent_response), feedback.comments)


def _texts_of_case(store: Store, incident: Incident, actor: str) -> IncidentTexts:
    """Of a comparison, the answer that this incident is about: its red-team case has it."""
    case_id = case_of(store, incident.incident_id)
    case = get_audited(store, RedTeamCase, case_id, actor=actor, purpose="incident review") if case_id else None
    return IncidentTexts(None, ()) if case is None else IncidentTexts(None, _exchange(case.prompt, case.answer), case.reason)


def _exchange(question: str, answer: str) -> tuple[Message, ...]:
    return Message(role="user", content=question), Message(role="assistant", content=answer)


def search_incidents(
    store: Store, which: IncidentFilter, words: Sequence[str], people: Mapping[str, str], *, actor: str | None
) -> list[str]:
    """The incidents with all of these words: in the model, in the name of who reported it and, for an `actor` who may read texts,
    in question, answer and reason. Texts are encrypted, so the newest are read; the audit log says how many, never the words."""
    rows = list_incidents(store, which, limit=SEARCHED, newest=True)
    cases = [row.red_team_case for row in rows if row.red_team_case]
    texts: dict[str, str] = {}
    if actor is not None and cases:
        for case in read_by_ids(store, RedTeamCase, cases, actor=actor, purpose="incident search"):
            texts[case.case_id] = " ".join((case.prompt, case.answer, case.reason or ""))

    def has_words(row: IncidentSummary) -> bool:
        place = " ".join(
            (
                row.incident_id,
                row.model_version or "",
                people.get(row.opened_by or "", ""),
                texts.get(row.red_team_case or "", ""),
            )
        )
        return all(word.casefold() in place.casefold() for word in words)

    return [row.incident_id for row in rows if has_words(row)]


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
