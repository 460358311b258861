"""Users, keys, sessions and one's own records on both databases."""

from datetime import timedelta

import pytest

from medloop.contracts import Correction, Feedback, Preference, utc_now
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.records import crud, users
from medloop.store.records.history import own_record, own_records


@pytest.fixture
def li(store):
    return users.add_user(store, "li", "clinician", password="correct horse battery", actor="test")


def test_a_key_is_found_by_its_text_until_it_ends_or_is_revoked(store, li):
    text = users.new_key(store, li, scopes=("queue",), expires=utc_now() + timedelta(days=1), actor="test")
    key = users.find_key(store, text)
    assert (key.user, key.scopes, key.via, key.stale) == (li, {"queue"}, "key", True)
    users.mark_used(store, key, text)
    assert not users.find_key(store, text).stale and users.list_keys(store)[0].last_used is not None
    users.revoke_key(store, key.id, actor="test")
    assert users.find_key(store, text) is None
    with pytest.raises(InputError):
        users.revoke_key(store, key.id, actor="test")


def test_a_session_lives_until_it_is_closed(store, li):
    token = users.open_session(store, li, actor="test")
    session = users.find_session(store, token)
    assert session.user == li and session.csrf and session.scopes == set(users.SCOPES)
    users.close_session(store, token)
    users.close_session(store, token)
    assert users.find_session(store, token) is None and audit.verify(store).ok


def test_a_disabled_user_comes_in_by_no_door(store, li):
    text, token = users.new_key(store, li, actor="test"), users.open_session(store, li, actor="test")
    users.change_user(store, li, disabled=True, actor="test")
    assert users.find_key(store, text) is None and users.find_session(store, token) is None
    assert users.check_password(store, "li", "correct horse battery") is None


@pytest.fixture
def admins(store):
    return [users.add_user(store, name, "admin", actor="test").user_id for name in ("first", "second")]


def test_what_one_admin_grants_waits_for_another(store, li, admins):
    key = users.new_key(store, li, actor="test")
    first, second = admins
    for grant in (
        lambda: users.set_password(store, li, "kettle moss and lamps", actor=first, temporary=True),
        lambda: users.change_user(store, li, role="annotator", actor=first),
        lambda: users.change_user(store, li, disabled=False, actor=first),
    ):
        grant()
        waiting = users.get_user(store, "li")
        assert waiting.requested_by == first and users.find_key(store, users.new_key(store, waiting, actor="test")) is None
        for alone in (first, li.user_id):
            with pytest.raises(users.SecondAdminError):
                users.approve_user(store, waiting, actor=alone)
        users.approve_user(store, waiting, actor=second)
        assert not users.get_user(store, "li").waits
    assert users.find_key(store, key) is None and users.list_keys(store)[0].revoked is not None
    users.change_user(store, li, role="auditor", actor=first)
    assert not users.get_user(store, "li").waits
    rows = audit.show(store, 100)
    assert [row["action"] for row in rows].count("users.approve") == 3
    assert next(row for row in rows if row["action"] == "users.approve")["detail"]["requested_by"] == first


def test_two_approvals_at_once_are_one(store, li, admins):
    users.change_user(store, li, role="clinician", actor=admins[0])
    waiting = users.get_user(store, "li")
    users.approve_user(store, waiting, actor=admins[1])
    with pytest.raises(InputError, match="does not wait"):
        users.approve_user(store, waiting, actor="user:root")


def test_own_records_are_ones_own_newest_first_and_audited(store, li):
    exchange = {"session_id": "s", "agent_name": "x", "user_query": "q", "agent_response": "a", "consent": ("training",)}
    first = Feedback(**exchange, thumb="up", recorded_by=li.user_id)
    second = Preference(prompt="q", response_a="a", response_b="b", preferred="a", recorded_by=li.user_id)
    third = Correction(prompt="q", original="a", golden="b", recorded_by=li.user_id, consent=("evaluation",))
    newer = Feedback(**exchange, thumb="down", recorded_by=li.user_id, supersedes=first.feedback_id)
    crud.add(store, [first, second, third, newer, Feedback(**exchange, thumb="up", recorded_by="somebody")], actor="test")
    records = own_records(store, li.user_id)
    assert [record.record for record in records] == [newer, third, second, first]
    assert [record.fate for record in records] == ["waiting", "testing", "no_consent", "superseded"]
    assert [record.record for record in own_records(store, li.user_id, before=third.timestamp, limit=1)] == [second]
    assert audit.show(store, 1)[0]["action"] == "records.read"
    assert own_record(store, li.user_id, "feedback", first.feedback_id) == first
    assert own_record(store, "somebody", "feedback", first.feedback_id) is None
