"""`medloop db`, `medloop keys`, `medloop audit`, as a person runs them."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store.check import check
from medloop.store.db import open_store
from medloop.store.records import crud


@pytest.fixture
def run(settings: Settings, command_line, monkeypatch):
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", settings.store_url)
    return partial(command_line, "--home", settings.home)


def fill(settings: Settings, rows: int = 3) -> None:
    given = {"session_id": "s", "agent_name": "a", "user_query": "canary", "agent_response": "r", "rating": 3}
    with open_store(settings) as store:
        crud.add(store, [Feedback(feedback_id=f"fb_{n}", **given) for n in range(rows)], actor="dr [red]who\x1b")


def test_upgrade_says_what_it_did(run, settings: Settings) -> None:
    assert "up to date" in run("db", "upgrade").out
    with open_store(settings) as store, store.write() as conn:
        from medloop.store.tables import metadata

        metadata.drop_all(conn)
        conn.execute(text("DROP TABLE alembic_version"))
    assert "now has schema 0001 (new)" in run("db", "upgrade").out


def test_check_counts_rows_and_finds_damage(run, settings: Settings) -> None:
    fill(settings)
    good = run("db", "check")
    assert good.code == 0 and "No damage found" in good.out and "rlhf_feedback" in good.out
    with open_store(settings) as store, store.write() as conn:
        conn.execute(text("UPDATE rlhf_feedback SET agent_response = user_query WHERE feedback_id = 'fb_1'"))
    bad = run("db", "check")
    assert bad.code == 6 and "agent_response of fb_1 was changed" in bad.out
    assert "canary" not in bad.out + bad.err


def test_check_asks_sqlite_about_its_file(sqlite_settings: Settings) -> None:
    fill(sqlite_settings)
    raw = sqlite3.connect(sqlite_settings.workspace.database)
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("UPDATE rlhf_feedback SET rating = 9 WHERE feedback_id = 'fb_1'")
    raw.commit()
    raw.close()
    with open_store(sqlite_settings) as store:
        assert check(store).problems == ("CHECK constraint failed in rlhf_feedback",)


def test_keys_show_names_ids_and_counts_but_no_key(run, settings: Settings) -> None:
    fill(settings)
    shown = run("keys", "show").out
    secret = settings.master_key_file.read_text().strip()
    assert "Master key" in shown and "dk_" in shown and secret not in shown and base64.b64decode(secret).hex() not in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("dk_")]
    assert line.split()[-2:] == ["3", "yes"]


def test_keys_rotate_with_reencryption(run, settings: Settings) -> None:
    fill(settings)
    done = run("keys", "rotate", "--reencrypt")
    assert done.code == 0 and "3 rows re-encrypted" in done.out
    assert "0 rows re-encrypted" in run("keys", "rotate", "--resume").out
    assert run("db", "check").code == run("audit", "verify").code == 0


def test_keys_rotate_to_a_key_of_the_user(run, settings: Settings, monkeypatch) -> None:
    fill(settings)
    key = base64.b64encode(os.urandom(32)).decode()
    assert "the variable NEW_KEY is not set" in run("keys", "rotate", "--new-key-env", "NEW_KEY").err
    monkeypatch.setenv("NEW_KEY", key)
    done = run("keys", "rotate", "--what", "master", "--new-key-env", "NEW_KEY")
    assert (
        done.code == 0 and "Now set MEDLOOP_DATABASE__ENCRYPTION_KEY to the value of NEW_KEY" in done.out and key not in done.out
    )
    assert run("db", "check").code == 7
    monkeypatch.setenv("MEDLOOP_DATABASE__ENCRYPTION_KEY", key)
    assert run("db", "check").code == 0
    assert "cannot change for you" in run("keys", "rotate").err


def test_audit_verify_fails_on_damage_and_names_the_row(run, settings: Settings) -> None:
    fill(settings)
    good = run("audit", "verify")
    assert good.code == 0 and "intact: 3 rows" in good.out
    with open_store(settings) as store, store.write() as conn:
        conn.execute(text("UPDATE audit_log SET actor = 'me' WHERE seq = 2"))
    bad = run("audit", "verify")
    assert bad.code == 6 and "row 2 was changed" in bad.err and "Traceback" not in bad.err
    assert run("audit", "verify", "--new-head").code == 6  # a broken chain is not accepted


def test_audit_verify_new_head_accepts_a_cut_on_purpose(run, settings: Settings) -> None:
    fill(settings)
    with open_store(settings) as store, store.write() as conn:
        conn.execute(text("DELETE FROM audit_log WHERE seq = 3"))
    assert "rows 3 to 3 were cut off" in run("audit", "verify").err
    assert run("audit", "verify", "--new-head").code == 0
    assert run("audit", "verify").code == 0


def test_audit_show_prints_the_newest_and_disarms_control_characters(run, settings: Settings) -> None:
    fill(settings)
    shown = run("audit", "show", "--last", "2").out
    assert "fb_2" in shown and "fb_0" not in shown
    assert "dr [red]who□" in shown and "\x1b" not in shown
    rows = [json.loads(line) for line in run("audit", "show", "--json").out.splitlines()]
    assert [row["subject"] for row in rows] == ["fb_0", "fb_1", "fb_2"]


def test_lost_key_is_one_sentence_and_exit_code_7(run, settings: Settings) -> None:
    fill(settings)
    settings.master_key_file.unlink()
    for command in (("db", "check"), ("db", "upgrade"), ("keys", "rotate"), ("audit", "verify")):
        lost = run(*command)
        assert (lost.code, lost.err.count("\n")) == (7, 1) and "backup" in lost.err
    assert not settings.master_key_file.exists()


def test_help_of_the_store_commands_needs_no_heavy_import(tmp_path: Path) -> None:
    code = "import sys; sys.argv=['medloop','keys','rotate','--help']\nfrom medloop.cli import main\n"
    code += "heavy = {'torch', 'transformers', 'datasets', 'pyarrow', 'fastapi', 'numpy'}\n"
    code += "try: main()\nexcept SystemExit: print(sorted(heavy & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip().endswith("[]") and "Example:  medloop keys rotate --reencrypt" in shown
