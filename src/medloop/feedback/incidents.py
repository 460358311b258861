"""Incidents: answers that somebody flagged as a critical failure.

    blocking_incidents(store, "clinic-7b@4")     # what to close before promotion; those of this version first
    writer.submit_and_wait(close_request(store, "inc_…", by="usr_1", note="Rule 12 added; the case passes since clinic-7b@5"))

The critical flag opens one (submit/submit.py) and adds the exchange as a red-team case. Closing needs a note, which is stored
encrypted; nothing is removed, and the case stays for all later models.
"""

from functools import partial

from medloop.contracts import AuditEvent, Incident, utc_now
from medloop.contracts.base import iso_utc
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records.incident_rows import close_incident, open_incidents
from medloop.store.records.write_request import NewRows, WriteRequest

MAX_NOTE = 4000  # characters


def blocking_incidents(store: Store, model_version: str) -> list[Incident]:
    """Open incidents for a release process to check, those of `model_version` first. Nothing in medloop promotes models yet.

    A new version has no incidents yet, but it comes from the data and the model of one that has. So incidents of other versions
    count too, until somebody has reviewed and closed them.
    """
    return sorted(open_incidents(store), key=lambda incident: incident.model_version != model_version)


def close_request(store: Store, incident_id: str, *, by: str, note: str) -> WriteRequest:
    """The write request that closes an incident; its errors come out of `GroupCommitWriter.submit`."""
    if not note.strip() or len(note) > MAX_NOTE:
        raise InputError(f"Closing an incident needs a note of 1 to {MAX_NOTE} characters", "Say what was done about it")
    now = utc_now()
    event = AuditEvent(actor=by, action="incidents.close", subject=incident_id)
    answer = {"incident_id": incident_id, "state": "closed", "closed": iso_utc(now)}
    update = partial(close_incident, store=store, incident_id=incident_id, by=by, note=note.strip(), when=now)
    return WriteRequest(by, lambda known: NewRows(answer, events=(event,), update=update))
