"""Keys: fail closed, never leak, never get lost in a rotation."""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import select, update

from medloop.contracts import Feedback
from medloop.errors import ConfigError, IntegrityError, KeyUnavailableError
from medloop.settings import Settings
from medloop.store import audit, rotate
from medloop.store.crypto import MasterKey, create_key_file, decode_key, load_master_key, next_key_file
from medloop.store.db import Store, ensure_master_key, open_store, upgrade
from medloop.store.records import crud
from medloop.store.tables import data_keys, rlhf_feedback


def feedback(n: int) -> Feedback:
    comments = "fine" if n % 2 else None
    given = {
        "feedback_id": f"fb_{n}",
        "session_id": "s",
        "agent_name": "a",
        "user_query": f"q{n}",
        "agent_response": "r",
        "rating": 3,
    }
    return Feedback(**given, comments=comments, timestamp="2026-01-02T03:04:05.678901Z")


def fill(settings: Settings, *numbers: int) -> None:
    with open_store(settings) as store:
        crud.add(store, [feedback(n) for n in numbers], actor="test")


def stored(settings: Settings) -> list[Feedback]:
    with open_store(settings) as store:
        return list(crud.iterate(store, Feedback))


def key_ids(store: Store) -> list[str]:
    with store.read() as conn:
        return list(conn.execute(select(rlhf_feedback.c.key_id).order_by(rlhf_feedback.c.id)).scalars())


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_key_file_open_to_others_is_refused_with_the_command_to_run(sqlite_settings: Settings, mode: int) -> None:
    sqlite_settings.master_key_file.chmod(mode)
    with pytest.raises(KeyUnavailableError, match=rf"mode {mode:04o}.*chmod 600 .*master\.key"):
        fill(sqlite_settings, 1)
    assert stored(sqlite_settings) == []


@pytest.mark.parametrize(
    "text", ["", "too short", base64.b64encode(b"x" * 31).decode(), base64.b64encode(b"x" * 33).decode(), "é" * 44]
)
def test_text_that_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(KeyUnavailableError, match="openssl rand -base64 32") as caught:
        decode_key(text, "MEDLOOP_DATABASE__ENCRYPTION_KEY")
    assert not text or text not in str(caught.value)


def test_missing_key_stops_reading_and_writing(settings: Settings) -> None:
    fill(settings, 1)
    settings.master_key_file.rename(settings.home / "elsewhere")
    with pytest.raises(KeyUnavailableError, match="does not exist"):
        stored(settings)
    with pytest.raises(KeyUnavailableError):
        fill(settings, 2)
    (settings.home / "elsewhere").rename(settings.master_key_file)
    assert stored(settings) == [feedback(1)]


def test_wrong_key_stops_reading_and_writing_and_changes_nothing(settings: Settings) -> None:
    fill(settings, 1)
    other_key = settings.database.model_copy(update={"encryption_key": SecretStr(new_key())})
    wrong = settings.model_copy(update={"database": other_key})
    with pytest.raises(
        KeyUnavailableError,
        match=r"from environment MEDLOOP_DATABASE__ENCRYPTION_KEY has id .* but the store is encrypted with",
    ):
        stored(wrong)
    with pytest.raises(KeyUnavailableError):
        fill(wrong, 2)
    assert stored(settings) == [feedback(1)]


def test_store_that_is_open_goes_on_when_the_key_file_vanishes(settings: Settings) -> None:
    with open_store(settings) as store:
        crud.add(store, [feedback(1)], actor="test")
        settings.master_key_file.unlink()
        crud.add(store, [feedback(2)], actor="test")
        assert list(crud.iterate(store, Feedback)) == [feedback(1), feedback(2)]


def test_key_from_the_environment_needs_no_file(workspace: Path) -> None:
    settings = Settings(home=workspace, database={"encryption_key": new_key()})
    ensure_master_key(settings)
    upgrade(settings)
    fill(settings, 1)
    assert stored(settings) == [feedback(1)] and not settings.master_key_file.exists()


def test_changed_data_key_is_found(settings: Settings) -> None:
    fill(settings, 1)
    with open_store(settings) as store, store.write() as conn:
        row = conn.execute(select(data_keys).where(data_keys.c.purpose == "data")).one()
        conn.execute(
            update(data_keys).where(data_keys.c.id == row.id).values(wrapped=row.wrapped[:-1] + bytes([row.wrapped[-1] ^ 1]))
        )
    with pytest.raises(IntegrityError, match=f"Data key {row.key_id} was changed"):
        stored(settings)


def test_keys_do_not_show_in_their_names() -> None:
    master = MasterKey(b"k" * 32, "file x")
    assert "kkk" not in repr(master) and base64.b64encode(master.raw).decode()[:8] not in repr(master)
    assert master.id != MasterKey(b"j" * 32, "file x").id


def test_processes_that_make_the_key_at_once_end_with_the_same(tmp_path: Path) -> None:
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(create_key_file(tmp_path / "keys/master.key").id)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(keys) == 8 and len(set(keys)) == 1
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["master.key"]
    assert stat.S_IMODE((tmp_path / "keys/master.key").stat().st_mode) == 0o600


def test_new_data_key_serves_new_rows_and_old_rows_stay_readable(settings: Settings) -> None:
    fill(settings, 1)
    with open_store(settings) as running:
        crud.add(running, [feedback(2)], actor="test")
        with open_store(settings) as store:
            done = rotate.rotate(store, data=True, master=True, actor="test")
        crud.add(running, [feedback(3)], actor="test")  # a process that was there before takes the new key too
        ids = key_ids(running)
        assert ids[0] == ids[1] != ids[2] == done.data_key
    assert stored(settings) == [feedback(1), feedback(2), feedback(3)]


def test_new_master_key_leaves_rows_as_they_are_and_makes_the_old_key_useless(settings: Settings) -> None:
    fill(settings, 1)
    old = settings.master_key_file.read_bytes()
    with open_store(settings) as store:
        before = key_ids(store)
        done = rotate.rotate(store, data=False, master=True, actor="test")
        assert key_ids(store) == before
    assert load_master_key(settings).id == done.master_id and not next_key_file(settings).exists()
    fill(settings, 2)
    assert stored(settings) == [feedback(1), feedback(2)]
    with open_store(settings) as store:
        assert audit.verify(store).ok
    settings.master_key_file.write_bytes(old)
    with pytest.raises(KeyUnavailableError):
        stored(settings)


@pytest.mark.parametrize("dies_in", ["_rewrap", "_put_in_place"])
def test_master_rotation_killed_at_any_point_leaves_a_key_that_fits(settings: Settings, monkeypatch, dies_in: str) -> None:
    """Before the database took the new key, and after it but before the key file was replaced."""
    fill(settings, 1)
    with open_store(settings) as store:
        rotate.rotate(store, data=True, master=False, actor="test")  # more than one data key to wrap
    with monkeypatch.context() as patch, open_store(settings) as store:
        patch.setattr(rotate, dies_in, lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rotate.rotate(store, data=True, master=True, actor="test")
    assert stored(settings) == [feedback(1)]
    fill(settings, 2)
    for _ in range(2):
        with open_store(settings) as store:
            done = rotate.rotate(store, data=True, master=True, actor="test")
        assert load_master_key(settings).id == done.master_id
        assert stored(settings) == [feedback(1), feedback(2)]


def test_reencryption_moves_all_rows_and_destroys_the_old_key(settings: Settings) -> None:
    fill(settings, *range(25))
    with open_store(settings) as store:
        done = rotate.rotate(store, data=True, master=False, actor="test")
        assert rotate.rows_to_reencrypt(store) == 25
        seen: list[int] = []
        assert rotate.reencrypt(store, actor="test", batch=10, progress=seen.append) == 25
        assert seen == [10, 10, 5] and set(key_ids(store)) == {done.data_key}
        _, keys = rotate.list_keys(store)
        assert [(key.key_id, key.rows, key.in_use) for key in keys if key.purpose == "data"] == [(done.data_key, 25, True)]
    assert stored(settings) == [feedback(n) for n in range(25)]


def test_stopped_reencryption_goes_on_where_it_was(settings: Settings) -> None:
    fill(settings, *range(25))
    with open_store(settings) as store:
        done = rotate.rotate(store, data=True, master=True, actor="test")
        with pytest.raises(ZeroDivisionError):
            rotate.reencrypt(store, actor="test", batch=10, progress=lambda rows: 1 // 0)
        assert key_ids(store).count(done.data_key) == 10
    assert stored(settings) == [feedback(n) for n in range(25)]
    with open_store(settings) as store:
        assert rotate.reencrypt(store, actor="test", batch=10) == 15
    assert stored(settings) == [feedback(n) for n in range(25)]


def test_master_key_from_the_environment_is_only_replaced_by_one_the_user_gives(workspace: Path) -> None:
    settings = Settings(home=workspace, database={"encryption_key": new_key()})
    upgrade(settings)
    fill(settings, 1)
    text = new_key()
    with open_store(settings) as store:
        with pytest.raises(ConfigError, match=r"medloop cannot change for you.*--new-key-env"):
            rotate.rotate(store, data=False, master=True, actor="test")
        rotate.rotate(store, data=True, master=True, new_master=MasterKey(decode_key(text, "NEW"), "NEW"), actor="test")
        rotate.reencrypt(store, actor="test")
    with pytest.raises(KeyUnavailableError):
        stored(settings)
    assert stored(Settings(home=workspace, database={"encryption_key": text})) == [feedback(1)]
    assert not any(settings.workspace.keys.glob("master*"))
