"""Border 9: what somebody with rights in the database, but without the master key, changes past medloop is found and named by id."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text

from medloop.cli import main
from medloop.contracts import AuditEvent, Consent, Conversation, Feedback, Incident, Message, Trace, utc_now
from medloop.settings import Settings, Workspace
from medloop.store import audit, row_watch
from medloop.store.db import Store, ensure_master_key, open_store, upgrade
from medloop.store.integrity import verify_store
from medloop.store.records import consents, crud, guidelines, lineage, quarantine, users, withdrawals, workspace_settings
from medloop.store.rotate import reencrypt, rotate
from medloop.store.tables import metadata, rlhf_feedback
from medloop.web.app import create_app

Edit = Callable[..., None]


def fill(settings: Settings) -> Settings:
    """A clinic with two users and a key, a critical rating, its incident, a withdrawn consent, a held record and one taken back."""
    with open_store(settings) as store:
        users.add_user(store, "dr.li", "clinician", password="three random words here", actor="test")
        users.add_user(store, "dr.wu", "annotator", actor="test")
        conversation = Conversation(messages=[Message(role="user", content="canary question")])
        given = {"session_id": "s", "agent_name": "a", "user_query": "canary question", "agent_response": "r"}
        crud.add(
            store,
            [
                Feedback(feedback_id="fb_1", rating=1, critical=True, comments="canary", **given),
                Feedback(feedback_id="fb_2", rating=5, **given),
                Incident(incident_id="in_1", record_id="fb_1", state="open"),
                Trace(trace_id="tr_1", session_id="s", agent_name="a", conversation=conversation, model_version="m1"),
            ],
            actor="test",
        )  # fmt: skip
        consent = Consent(subject="h", purposes=("training",), granted=True, text_version="1")
        consents.add_consent(store, consent, actor="test")
        consents.add_consent(store, consent.model_copy(update={"granted": False, "consent_id": "co_no"}), actor="test")
        own = Feedback(feedback_id="fb_3", rating=2, recorded_by="u", received=utc_now(), **given)
        crud.add(store, [own], actor="test")
        withdrawals.withdraw(store, rlhf_feedback, "fb_3", "u", now=utc_now())
        users.new_key(store, users.get_user(store, "dr.wu"), actor="test")
        with store.write() as conn:
            quarantine.hold(conn, "fb_2", "rlhf_feedback", doubt=1.0, reasons=["a name"], actor="test")
            lineage.flag_artifact(conn, "sha256:1", "tainted", "trained on erased data", actor="test")
        guidelines.save(store, "en", "Read twice.", was=0, actor="test")
        workspace_settings.set_axes(store, ["helpful", "harmless"], actor="test")
    return settings


@pytest.fixture
def filled(settings: Settings) -> Settings:
    return fill(settings)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One such clinic for all edits; each of them is undone."""
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()
    home = tmp_path_factory.mktemp("edited") / "clinic"
    for folder in Workspace(home).folders():
        folder.mkdir(parents=True)
    Workspace(home).config.touch()
    settings = Settings(home=home, database={"url": url})
    ensure_master_key(settings)
    upgrade(settings)
    return fill(settings)


def send(settings: Settings, *statements: str) -> None:
    """Statements sent to the database past medloop."""
    engine = create_engine(settings.store_url)
    with engine.begin() as conn:
        for statement in statements:
            conn.execute(text(statement))
    engine.dispose()


@contextmanager
def edited(settings: Settings, statement: str) -> Iterator[None]:
    """A statement, undone afterwards from a copy of its table: rows that were changed and rows that are gone."""
    table = metadata.tables[statement.split()[2 if statement.startswith("DELETE") else 1]]
    columns = ", ".join(f'"{column.name}" = before."{column.name}"' for column in table.columns if column.name != "id")
    send(settings, f"CREATE TABLE before AS SELECT * FROM {table}", statement)
    try:
        yield
    finally:
        put_back = f"UPDATE {table} SET {columns} FROM before WHERE {table}.id = before.id"
        insert = f"INSERT INTO {table} SELECT * FROM before WHERE id NOT IN (SELECT id FROM {table})"
        send(settings, put_back, insert, "DROP TABLE before")


@pytest.fixture
def edit(filled: Settings) -> Edit:
    return partial(send, filled)


@pytest.fixture
def verify_at(capsys, monkeypatch) -> Callable[..., tuple[int, str]]:
    """`medloop audit verify` in a workspace: its exit code and output."""

    def call(settings: Settings) -> tuple[int, str]:
        monkeypatch.setenv("MEDLOOP_DATABASE__URL", settings.store_url)
        monkeypatch.setattr(sys, "argv", ["medloop", "--home", str(settings.home), "audit", "verify"])
        try:
            main()
        except SystemExit as end:
            out, err = capsys.readouterr()
            return int(end.code or 0), out + err
        return 0, "".join(capsys.readouterr())

    return call


@pytest.fixture
def verify(filled: Settings, verify_at: Callable[..., tuple[int, str]]) -> Callable[[], tuple[int, str]]:
    return partial(verify_at, filled)


def test_untouched_rows_fit(verify) -> None:
    code, output = verify()
    assert code == 0 and "The audit log is intact" in output and "consents and others): 15." in output


@pytest.mark.parametrize("head", ["gone", "from the first day"])
def test_a_log_that_was_emptied_is_an_alarm_and_stays_one(filled: Settings, edit: Edit, verify, head: str) -> None:
    edit("DELETE FROM audit_log")
    path = audit.head_file(filled)
    path.unlink()
    if head != "gone":
        with open_store(filled) as store, store.read() as conn:
            key = store.keys.auditing(conn).raw
        path.write_text(audit._sign(key, audit._place_of(filled.home), 0, audit.GENESIS).render())
    code, output = verify()
    assert code == 6 and "the log is empty, but the store holds data" in output
    with open_store(filled) as store, store.write() as conn:  # ordinary work does not hide it
        audit.append(conn, AuditEvent(actor="test", action="later", subject="x"))
    assert verify()[0] == 6


EDITS = {
    "UPDATE users SET role = 'admin' WHERE name = 'dr.wu'": "users",
    "UPDATE users SET disabled = NOT disabled WHERE name = 'dr.wu'": "users",
    "UPDATE users SET password = NULL WHERE name = 'dr.li'": "users",
    "UPDATE rlhf_feedback SET rating = 5 WHERE feedback_id = 'fb_1'": "rlhf_feedback fb_1",
    "UPDATE rlhf_feedback SET critical = NOT critical WHERE feedback_id = 'fb_1'": "rlhf_feedback fb_1",
    "UPDATE rlhf_feedback SET comments = NULL WHERE feedback_id = 'fb_1'": "rlhf_feedback fb_1",
    "UPDATE rlhf_feedback SET mac = NULL WHERE feedback_id = 'fb_1'": "rlhf_feedback fb_1",
    "UPDATE incidents SET state = 'closed', closed_by = 'x'": "incidents in_1",
    "UPDATE traces SET model_version = 'm2'": "traces tr_1",
    "UPDATE consents SET granted = NOT granted WHERE consent_id = 'co_no'": "consents co_no was changed",
    "UPDATE quarantine SET state = 'released'": "quarantine fb_2 was changed",
    "UPDATE withdrawals SET withdrawn_by = 'x'": "withdrawals fb_3 was changed",
    "UPDATE api_keys SET scopes = '[]'": "api_keys",
    "DELETE FROM rlhf_feedback WHERE feedback_id = 'fb_1'": "rlhf_feedback fb_1 is missing",
    "DELETE FROM incidents": "incidents in_1 is missing",
    "DELETE FROM quarantine": "quarantine fb_2 is missing",
    "DELETE FROM consents WHERE consent_id = 'co_no'": "consents co_no is missing",
    "DELETE FROM withdrawals": "withdrawals fb_3 is missing",
    "DELETE FROM api_keys": "api_keys",
    "DELETE FROM artifact_flags": "artifact_flags flag_",
    "UPDATE artifact_flags SET flag = 'exported'": "artifact_flags flag_",
    "DELETE FROM guidelines": "guidelines en-1 is missing",
    "UPDATE guidelines SET text = 'Be quick.'": "guidelines en-1 was changed",
    "DELETE FROM workspace_settings": "workspace_settings feedback.axes is missing",
}


@pytest.mark.parametrize("statement", EDITS)
def test_an_edit_past_medloop_is_named_by_id_and_never_by_text(shared: Settings, verify_at, statement: str) -> None:
    with edited(shared, statement):
        code, output = verify_at(shared)
    assert code == 6 and EDITS[statement] in output and "1 row(s) do not fit" in output
    assert "canary" not in output and "dr.wu" not in output


def test_rows_that_were_put_back_fit_again(shared: Settings, verify_at) -> None:
    for statement in ("UPDATE consents SET granted = NOT granted", "DELETE FROM incidents"):
        with edited(shared, statement):
            assert verify_at(shared)[0] == 6
    assert verify_at(shared)[0] == 0


REPAIRS = {"UPDATE traces SET model_version = 'm2'": "UPDATE traces SET model_version = 'm1'"}


@pytest.mark.parametrize("statement", ["UPDATE traces SET model_version = 'm2'", "DELETE FROM quarantine"])
def test_a_server_that_runs_raises_the_same_alarm_by_itself(
    filled: Settings, edit: Edit, statement: str, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(row_watch, "EVERY_S", 0.01)
    monkeypatch.setattr(row_watch, "ROWS", 1)
    with open_store(filled) as store:
        admin = users.add_user(store, "ann", "auditor", actor="test")
        key = users.new_key(store, admin, actor="test")
    edit(statement)
    with TestClient(create_app(filled), base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {key}"}) as client:
        deadline = time.monotonic() + 60
        while "1 row(s) do not fit" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.02)
        alarm = next(record.getMessage() for record in caplog.records if "do not fit" in record.getMessage())
        assert EDITS[statement] in alarm and "canary" not in alarm
        time.sleep(0.2)  # further rounds find the same
        store = client.app.state.store  # type: ignore[attr-defined]
        assert store.row_alarm == 1
        assert "Rows of the database that were changed without medloop: 1" in client.get("/web/").text
        for _ in range(50):
            if statement in REPAIRS:
                edit(REPAIRS[statement])
            if not store.row_alarm:
                break
            time.sleep(0.1)
        assert (store.row_alarm == 0) == (statement in REPAIRS), "a row that was repaired ends the alarm"
    with open_store(filled) as store:
        lines = audit.page(store, audit.AuditFilter(action="audit.alarm"))
    assert [line["detail"]["rows"] for line in lines] == [1] and EDITS[statement] in lines[0]["detail"]["first"]


def test_a_copied_mac_and_a_planted_row_are_found(edit: Edit, verify) -> None:
    edit("UPDATE rlhf_feedback SET mac = (SELECT mac FROM rlhf_feedback WHERE feedback_id = 'fb_2') WHERE feedback_id = 'fb_1'")
    assert "rlhf_feedback fb_1 was changed" in verify()[1]
    edit("UPDATE rlhf_feedback SET feedback_id = 'fb_9' WHERE feedback_id = 'fb_2'")
    output = verify()[1]
    assert "fb_9 was changed" in output and "fb_2 is missing" in output and "fb_9 is not in the audit log" in output


def test_ordinary_work_signs_its_own_changes_and_never_launders_an_edit(filled: Settings, edit: Edit, verify) -> None:
    with open_store(filled) as store:
        user = users.get_user(store, "dr.wu")
        users.change_user(store, user, role="engineer", actor="test")
        assert verify()[0] == 0
        edit("UPDATE users SET role = 'admin' WHERE name = 'dr.wu'")
        users.set_password(store, user, "four other random words", actor="test")
    assert f"users {user.user_id} was changed" in verify()[1]


def test_new_keys_leave_the_rows_as_they_are(filled: Settings, store: Store, verify) -> None:
    rotate(store, data=True, master=True, actor="test")
    reencrypt(store, actor="test")
    crud.mark_processed(store, Feedback, ["fb_1"], actor="test")
    assert verify()[0] == 0
    with open_store(filled) as again:
        assert verify_store(again).ok


def test_a_copy_made_while_somebody_wrote_says_that_it_is_a_copy(sqlite_settings: Settings, tmp_path: Path) -> None:
    import shutil
    import sqlite3

    home = sqlite_settings.home
    with open_store(sqlite_settings) as store:
        for n in range(3):
            with store.write() as conn:
                audit.append(conn, AuditEvent(actor="test", action="work", subject=str(n)))
            if n == 1:  # `cp` reads the database first and the head last
                store.checkpoint()
                shutil.copytree(home, tmp_path / "copy", ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    shutil.copy(home / "logs/audit.head", tmp_path / "copy/logs/audit.head")
    with open_store(Settings(home=tmp_path / "copy")) as store:
        report = audit.verify(store)
    assert report.kind == "copied" and "is a copy of a workspace" in str(report.problem)
    with closing(sqlite3.connect(home / "medloop.db")) as raw, raw:
        raw.execute("DELETE FROM audit_log WHERE seq = 3")
    with open_store(sqlite_settings) as store:
        assert audit.verify(store).kind == "cut_off"  # in its own folder the same is an alarm
