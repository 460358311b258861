"""Incidents: open ones block promotion, closing needs a note, the red-team case stays."""

from __future__ import annotations

import pytest

from medloop.contracts import Incident, RedTeamCase
from medloop.errors import InputError
from medloop.feedback import incidents
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.group_commit import GroupCommitWriter


@pytest.fixture
def opened(store: Store) -> list[Incident]:
    found = [Incident(record_id=f"fb_{n}", model_version=version) for n, version in enumerate(("m@1", "m@2", None))]
    case = RedTeamCase(record_id="fb_0", incident_id=found[0].incident_id, prompt="p", answer="a")
    crud.add(store, [*found, case], actor="test")
    return found


def test_every_open_incident_blocks_its_own_version_first(store: Store, opened: list[Incident]) -> None:
    assert incidents.blocks_promotion(store, "m@2") == [opened[1], opened[0], opened[2]]
    assert len(incidents.blocks_promotion(store, "m@9")) == 3


def test_closed_ones_block_no_more_and_the_case_stays(store: Store, opened: list[Incident]) -> None:
    for one in opened:
        incidents.close(store, one.incident_id, by="usr_1", note="looked at 胸痛")
    assert incidents.blocks_promotion(store, "m@1") == [] and incidents.count_open(store) == 0
    assert crud.count(store, RedTeamCase) == 1 and incidents.note_of(store, opened[0].incident_id) == "looked at 胸痛"
    assert [line["action"] for line in audit.show(store, 3)] == ["incidents.close"] * 3


def test_the_note_is_sealed(sqlite_settings) -> None:
    from medloop.store.db import open_store

    with open_store(sqlite_settings) as store:
        one = Incident(record_id="fb_1")
        crud.add(store, [one], actor="test")
        incidents.close(store, one.incident_id, by="usr_1", note="canary-note")
        store.checkpoint()
        assert b"canary-note" not in sqlite_settings.workspace.database.read_bytes()
        assert incidents.note_of(store, one.incident_id) == "canary-note"


def test_closing_twice_or_nothing_or_without_a_note_is_refused(store: Store, opened: list[Incident]) -> None:
    with GroupCommitWriter(store).running() as writer:
        writer.submit_and_wait(incidents.closing(store, opened[0].incident_id, by="usr_1", note="done"))
        with pytest.raises(incidents.AlreadyClosedError):
            writer.submit_and_wait(incidents.closing(store, opened[0].incident_id, by="usr_1", note="again"))
        with pytest.raises(incidents.NoSuchIncidentError):
            writer.submit_and_wait(incidents.closing(store, "inc_9", by="usr_1", note="done"))
    with pytest.raises(InputError, match="note"):
        incidents.closing(store, opened[1].incident_id, by="usr_1", note="  ")
    assert incidents.note_of(store, opened[0].incident_id) == "done"


def test_lists_are_paged_and_filtered(store: Store, opened: list[Incident]) -> None:
    incidents.close(store, opened[1].incident_id, by="usr_1", note="done")
    assert [one.incident_id for one in incidents.listed(store, state="closed")] == [opened[1].incident_id]
    first = incidents.listed(store, limit=2)
    rest = incidents.listed(store, after=first[-1].incident_id)
    assert [one.incident_id for one in (*first, *rest)] == [one.incident_id for one in opened]
    assert first[0].red_team_case is not None and first[1].closed_by == "usr_1"
    with pytest.raises(InputError):
        incidents.listed(store, after="inc_9")
