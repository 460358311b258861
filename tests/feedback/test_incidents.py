"""Incidents: open ones block promotion, closing needs a note, the red-team case stays."""

from __future__ import annotations

import pytest

from medloop.contracts import Incident, RedTeamCase
from medloop.errors import InputError
from medloop.feedback import incidents
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud, incident_rows
from medloop.store.records.group_commit import GroupCommitWriter


@pytest.fixture
def opened(store: Store) -> list[Incident]:
    new = [Incident(record_id=f"fb_{n}", model_version=version) for n, version in enumerate(("m@1", "m@2", None))]
    case = RedTeamCase(record_id="fb_0", incident_id=new[0].incident_id, prompt="p", answer="a")
    crud.add(store, [*new, case], actor="test")
    return new


def close(store: Store, incident: Incident, note: str) -> None:
    with GroupCommitWriter(store).running() as writer:
        writer.submit_and_wait(incidents.close_request(store, incident.incident_id, by="usr_1", note=note))


def note_of(store: Store, incident: Incident) -> str | None:
    stored = crud.get(store, Incident, incident.incident_id)
    assert stored is not None
    return stored.note


def test_every_open_incident_blocks_its_own_version_first(store: Store, opened: list[Incident]) -> None:
    assert incidents.blocking_incidents(store, "m@2") == [opened[1], opened[0], opened[2]]
    assert len(incidents.blocking_incidents(store, "m@9")) == 3


def test_closed_ones_block_no_more_and_the_case_stays(store: Store, opened: list[Incident]) -> None:
    for incident in opened:
        close(store, incident, note="looked at 胸痛")
    assert incidents.blocking_incidents(store, "m@1") == [] and incident_rows.count_incidents(store).open == 0
    assert crud.count(store, RedTeamCase) == 1 and note_of(store, opened[0]) == "looked at 胸痛"
    assert [line["action"] for line in audit.show(store, 3)] == ["incidents.close"] * 3


def test_the_note_is_sealed(sqlite_settings) -> None:
    from medloop.store.db import open_store

    with open_store(sqlite_settings) as store:
        incident = Incident(record_id="fb_1")
        crud.add(store, [incident], actor="test")
        close(store, incident, note="canary-note")
        store.checkpoint()
        assert b"canary-note" not in sqlite_settings.workspace.database.read_bytes()
        assert note_of(store, incident) == "canary-note"


def test_closing_twice_or_nothing_or_without_a_note_is_refused(store: Store, opened: list[Incident]) -> None:
    with GroupCommitWriter(store).running() as writer:
        writer.submit_and_wait(incidents.close_request(store, opened[0].incident_id, by="usr_1", note="done"))
        with pytest.raises(incident_rows.AlreadyClosedError):
            writer.submit_and_wait(incidents.close_request(store, opened[0].incident_id, by="usr_1", note="again"))
        with pytest.raises(incident_rows.NoSuchIncidentError):
            writer.submit_and_wait(incidents.close_request(store, "inc_9", by="usr_1", note="done"))
    with pytest.raises(InputError, match="note"):
        incidents.close_request(store, opened[1].incident_id, by="usr_1", note="  ")
    assert note_of(store, opened[0]) == "done"


def test_lists_are_paged_and_filtered(store: Store, opened: list[Incident]) -> None:
    close(store, opened[1], note="done")
    assert [incident.incident_id for incident in incident_rows.list_incidents(store, state="closed")] == [opened[1].incident_id]
    first = incident_rows.list_incidents(store, limit=2)
    rest = incident_rows.list_incidents(store, after=first[-1].incident_id)
    assert [incident.incident_id for incident in (*first, *rest)] == [incident.incident_id for incident in opened]
    assert first[0].red_team_case is not None and first[1].closed_by == "usr_1"
    with pytest.raises(InputError):
        incident_rows.list_incidents(store, after="inc_9")
