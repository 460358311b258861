"""Keys and users in the store: shown once, kept as hashes, gone when they are withdrawn."""

import hashlib
import time
from datetime import timedelta

import pytest

from medloop.contracts import utc_now
from medloop.errors import InputError
from medloop.store import audit, passwords
from medloop.store.db import open_store
from medloop.store.records import users


@pytest.fixture
def store(settings, key):
    with open_store(settings) as opened:
        yield opened


def key_id(text: str) -> str:
    return text.split("_")[1]


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer x", "Basic {key}", "{key}", "Bearer {key}x", "Bearer {short}", "Bearer ключ"]
)
def test_only_the_whole_key_opens(stranger, key, header):
    value = header.format(key=key, short=key[:-1]).encode()
    answered = stranger.get("/api/train", headers=[(b"authorization", value)])
    assert answered.status_code == 401 and answered.headers["www-authenticate"] == "Bearer"
    assert key not in answered.text


def test_a_key_is_kept_only_as_its_hash(settings, store, key):
    with store.write():
        pass
    store.checkpoint()
    raw = b"".join(path.read_bytes() for path in settings.home.rglob("*") if path.is_file())
    assert key.encode() not in raw and hashlib.sha256(key.encode()).hexdigest().encode() in raw


def test_a_key_withdrawn_by_another_process_ends_within_a_second(client, store, key):
    assert client.get("/api/train").status_code == 200
    users.revoke_key(store, key_id(key), actor="test")
    time.sleep(1.05)
    assert client.get("/api/train").status_code == 401


def test_what_this_process_changes_counts_from_the_next_request(client, store, key):
    assert client.get("/api/train").status_code == 200
    users.change_user(store, users.get_user(store, "tester"), role="clinician", actor="test")
    client.app.state.authenticator.forget()
    assert client.get("/api/train").status_code == 401  # the key has ended with the role
    client.headers["Authorization"] = f"Bearer {users.new_key(store, users.get_user(store, 'tester'), actor='test')}"
    assert client.get("/api/train").status_code == 403
    users.change_user(store, users.get_user(store, "tester"), disabled=True, actor="test")
    client.app.state.authenticator.forget()
    assert client.get("/api/train").status_code == 401


def test_a_key_can_do_no_more_than_its_scopes(stranger, store):
    user = users.add_user(store, "agent", "engineer", actor="test")
    text = users.new_key(store, user, scopes=("feedback:write",), actor="test")
    answered = stranger.get("/api/train", headers={"Authorization": f"Bearer {text}"})
    assert answered.status_code == 403 and "jobs" in answered.json()["error"]
    assert stranger.get("/api/openapi.json", headers={"Authorization": f"Bearer {text}"}).status_code == 200


def test_an_expired_key_is_no_key(stranger, store):
    user = users.get_user(store, "tester")
    text = users.new_key(store, user, expires=utc_now() - timedelta(seconds=1), actor="test")
    assert stranger.get("/api/train", headers={"Authorization": f"Bearer {text}"}).status_code == 401


def test_the_last_use_is_written_once_not_with_every_request(client, store, key):
    for _ in range(3):
        assert client.get("/api/train").status_code == 200
    (first,) = users.list_keys(store)
    client.app.state.authenticator.forget()
    assert client.get("/api/train").status_code == 200
    assert first.last_used is not None and users.list_keys(store)[0].last_used == first.last_used


def test_every_change_is_audited_and_no_secret_with_it(store, key):
    user = users.add_user(store, "li", "clinician", password="correct horse battery", actor="test")
    users.set_password(store, user, "another good password", actor="test")
    users.change_user(store, user, disabled=True, actor="test")
    users.revoke_key(store, key_id(key), actor="test")
    rows = audit.show(store, 5)
    assert [r["action"] for r in rows][1:] == ["users.add", "users.password", "users.change", "api_keys.revoke"]
    assert "horse" not in str(rows) and key not in str(rows)


@pytest.mark.parametrize(
    ("name", "role"), [("", "admin"), ("a b", "admin"), ("x" * 65, "admin"), ("../x", "admin"), ("li", "root")]
)
def test_bad_names_and_roles_are_refused(store, name, role):
    with pytest.raises(InputError):
        users.add_user(store, name, role, actor="test")


def test_a_name_is_given_once(store):
    with pytest.raises(InputError, match="already"):
        users.add_user(store, "tester", "clinician", actor="test")


@pytest.mark.parametrize("password", ["", "short", "x" * 257])
def test_a_password_is_long_enough(store, password):
    with pytest.raises(InputError):
        users.add_user(store, "li", "clinician", password=password, actor="test")


def test_a_password_opens_for_its_active_user_alone(store):
    user = users.add_user(store, "li", "clinician", password="correct horse battery", actor="test")
    assert users.check_password(store, "li", "correct horse battery") == user
    assert users.check_password(store, "li", "correct horse batterY") is None
    assert users.check_password(store, "tester", "") is None and users.check_password(store, "nobody", "x") is None
    users.change_user(store, user, disabled=True, actor="test")
    assert users.check_password(store, "li", "correct horse battery") is None


def test_two_hashes_of_one_password_differ():
    first, second = passwords.hash_password("correct horse battery"), passwords.hash_password("correct horse battery")
    assert (
        first != second
        and passwords.verify_password("correct horse battery", first)
        and passwords.verify_password("correct horse battery", second)
    )
