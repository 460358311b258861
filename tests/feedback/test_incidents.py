"""Incidents: open ones block promotion, two people close one, notes are sealed and stay, the red-team case stays."""

from __future__ import annotations

import pytest

from medloop.contracts import Incident, RedTeamCase, utc_now
from medloop.errors import InputError
from medloop.feedback import incidents
from medloop.feedback.submit.bodies import FeedbackBody
from medloop.feedback.submit.submit import Sender, prepare_submission
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.records import crud, incident_rows, users
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.incident_rows import IncidentFilter, Step
from medloop.store.records.withdrawals import withdraw
from medloop.store.records.write_request import WriteResult
from medloop.store.tables import rlhf_feedback


@pytest.fixture
def opened(store: Store) -> list[Incident]:
    new = [Incident(record_id=f"fb_{n}", model_version=version) for n, version in enumerate(("m@1", "m@2", None))]
    case = RedTeamCase(record_id="fb_0", incident_id=new[0].incident_id, prompt="p", answer="a")
    crud.add(store, [*new, case], actor="test")
    return new


class People:
    """Users by name, and the steps they take."""

    def __init__(self, store: Store) -> None:
        self.store = store
        roles = {"li": "clinician", "wang": "clinician", "sam": "engineer", "kim": "admin", "ada": "auditor", "ann": "annotator"}
        self.ids = {name: users.add_user(store, name, role, actor="test").user_id for name, role in roles.items()}

    def take(self, incident: Incident, step: Step, who: str, note: str = "") -> Incident:
        with GroupCommitWriter(self.store).running() as writer:
            request = incidents.step_request(self.store, incident.incident_id, step, by=self.ids.get(who, who), note=note)
            writer.submit_and_wait(request)
        return incidents.get_incident(self.store, incident.incident_id)

    def close(self, incident: Incident, note: str = "done") -> Incident:
        self.take(incident, "proposed", "sam", note)
        return self.take(incident, "closed", "li")


@pytest.fixture
def people(store: Store) -> People:
    return People(store)


def test_every_open_incident_blocks_its_own_version_first(store: Store, opened: list[Incident], people: People) -> None:
    people.take(opened[0], "proposed", "li", "done")  # a proposal alone changes nothing
    assert [incident.incident_id for incident in incidents.blocking_incidents(store, "m@2")] == [
        opened[n].incident_id for n in (1, 0, 2)
    ]  # fmt: skip
    assert len(incidents.blocking_incidents(store, "m@9")) == 3


def test_two_people_close_one_and_both_are_audited(store: Store, opened: list[Incident], people: People) -> None:
    proposed = people.take(opened[0], "proposed", "li", "looked at 胸痛")
    assert (proposed.state, proposed.proposed_by) == ("open", people.ids["li"])
    assert incident_rows.count_incidents(store).proposed == 1 and incident_rows.may_confirm(store, proposed) == ["wang"]
    closed = people.take(opened[0], "closed", "wang", "agreed")
    assert (closed.state, closed.proposed_by, closed.closed_by) == ("closed", people.ids["li"], people.ids["wang"])
    assert closed.notes == ("looked at 胸痛", "agreed") and [step.step for step in closed.steps] == ["proposed", "closed"]
    lines = [(line["action"], line["actor"], line["subject"]) for line in audit.show(store, 2)]
    assert lines == [
        ("incidents.propose", people.ids["li"], closed.incident_id), ("incidents.close", people.ids["wang"], closed.incident_id)
    ]  # fmt: skip
    assert len(incidents.blocking_incidents(store, "m@1")) == 2 and crud.count(store, RedTeamCase) == 1


@pytest.mark.parametrize("who", ["li", "sam", "kim", "ada", "ann", "user:root"])
def test_nobody_but_another_clinician_confirms(opened: list[Incident], people: People, who: str) -> None:
    people.take(opened[0], "proposed", "li", "done")
    with pytest.raises(incident_rows.SecondPersonError) as refused:
        people.take(opened[0], "closed", who)
    assert ("medloop users add" in refused.value.to_do) is (who == "li")
    assert incidents.get_incident(people.store, opened[0].incident_id).state == "open"


def test_a_disabled_clinician_does_not_confirm_nor_an_auditor_propose(opened: list[Incident], people: People) -> None:
    people.take(opened[0], "proposed", "li", "done")
    users.change_user(people.store, users.get_user(people.store, "wang"), disabled=True, actor="test")
    for step, who in (("closed", "wang"), ("declined", "sam")):
        with pytest.raises(incident_rows.SecondPersonError):
            people.take(opened[0], step, who, "x")
    with pytest.raises(incident_rows.SecondPersonError, match="auditor"):
        people.take(opened[1], "proposed", "ada", "done")


def test_a_proposal_is_declined_or_taken_back_and_made_again(opened: list[Incident], people: People) -> None:
    people.take(opened[0], "proposed", "sam", "first try")
    assert people.take(opened[0], "declined", "li", "not enough").proposed_by is None
    people.take(opened[0], "proposed", "sam", "second try")
    people.take(opened[0], "declined", "sam", "a mistake")
    people.take(opened[0], "proposed", "sam", "third try")
    closed = people.take(opened[0], "closed", "li")
    assert closed.notes == ("first try", "not enough", "second try", "a mistake", "third try", "")


def test_the_notes_are_sealed(sqlite_settings) -> None:
    with open_store(sqlite_settings) as store:
        incident, people = Incident(record_id="fb_1"), People(store)
        crud.add(store, [incident], actor="test")
        closed = people.close(incident, "canary-note")
        store.checkpoint()
        assert b"canary-note" not in sqlite_settings.workspace.database.read_bytes() and closed.notes == ("canary-note", "")


def test_steps_out_of_order_or_without_a_note_are_refused(opened: list[Incident], people: People) -> None:
    refusals = (
        ("closed", "li", "x", incident_rows.NotProposedError), ("declined", "li", "x", incident_rows.NotProposedError),
        ("proposed", "li", "  ", InputError), ("proposed", "li", "x" * 4001, InputError),
    )  # fmt: skip
    for step, who, note, error in refusals:
        with pytest.raises(error):
            people.take(opened[0], step, who, note)
    people.take(opened[0], "proposed", "li", "done")
    with pytest.raises(incident_rows.AlreadyProposedError):
        people.take(opened[0], "proposed", "wang", "done")
    people.take(opened[0], "closed", "wang")
    with pytest.raises(incident_rows.AlreadyClosedError):
        people.take(opened[0], "proposed", "wang", "again")
    with pytest.raises(incident_rows.NoSuchIncidentError):
        people.take(Incident(record_id="fb_9"), "proposed", "li", "done")


def test_lists_are_paged_and_filtered(store: Store, opened: list[Incident], people: People) -> None:
    people.close(opened[1])
    people.take(opened[2], "proposed", "sam", "done")

    def ids(**which) -> list[str]:
        return [incident.incident_id for incident in incident_rows.list_incidents(store, IncidentFilter(**which))]

    expected = {"closed": [1], "proposed": [2], "open": [0, 2]}
    assert {state: ids(state=state) for state in expected} == {
        state: [opened[n].incident_id for n in numbers] for state, numbers in expected.items()
    }
    first = incident_rows.list_incidents(store, limit=2)
    rest = incident_rows.list_incidents(store, after=first[-1].incident_id)
    assert [incident.incident_id for incident in (*first, *rest)] == [incident.incident_id for incident in opened]
    assert incident_rows.list_incidents(store, newest=True)[0].incident_id == opened[2].incident_id
    assert first[0].red_team_case is not None and first[1].closed_by == people.ids["li"]
    assert ids(until=opened[0].timestamp) == [] and len(ids(since=opened[0].timestamp)) == 3 and ids(language="zh") == []
    with pytest.raises(InputError):
        incident_rows.list_incidents(store, after="inc_9")


def test_a_flag_sent_again_after_an_undo_goes_on_with_its_incident_until_that_is_closed(store: Store, people: People) -> None:
    """On both databases, over the request that every door sends."""
    li = Sender(people.ids["li"])

    def flag(sender: Sender = li, answer: str = "Wait.") -> WriteResult:
        body = FeedbackBody(
            session_id="s", agent_name="a", user_query="Chest pain?", agent_response=answer, model_version="m@1", critical=True
        )
        with GroupCommitWriter(store).running() as writer:
            return writer.submit_and_wait(prepare_submission(store, body, sender))

    first = flag()
    withdraw(store, rlhf_feedback, first.answer["feedback_id"], li.user_id, now=utc_now())
    again = flag()
    assert again.answer["incident_ids"] == first.answer["incident_ids"] == [again.answer["incident_id"]]
    (incident,) = incidents.blocking_incidents(store, "m@1")
    assert incident.record_id == again.answer["feedback_id"] and crud.count(store, RedTeamCase) == 1
    for other in (flag(Sender(people.ids["wang"])), flag(answer="Take two aspirin and sleep.")):
        assert other.answer["incident_id"] != incident.incident_id  # another rater, another answer
    withdraw(store, rlhf_feedback, again.answer["feedback_id"], li.user_id, now=utc_now())
    people.take(incident, "proposed", "sam", "done")
    people.take(incident, "closed", "wang")
    assert flag().answer["incident_id"] != incident.incident_id  # a closed one stays closed
