"""Consent by subject: hashed names, the newest word, and the door to it."""

from __future__ import annotations

import os
import pty
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Consent, Feedback
from medloop.errors import InputError
from medloop.privacy.consent import Register, record, standing, subject_of
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.records import consents, crud, quarantine
from medloop.store.records.audited_read import get_audited, read_audited
from medloop.store.rotate import rotate

NAME = "patient 4711, Ann Example"


def feedback(**more: object) -> Feedback:
    fields = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "thumb": "up", **more}
    return Feedback.model_validate(fields)


def test_a_subject_is_a_keyed_hash_and_its_name_is_nowhere(store: Store) -> None:
    consent = record(store, NAME, ("training",), text_version="1", actor="test")
    assert consent.subject == subject_of(store, f" {NAME} ") == subject_of(store, consent.subject)
    assert consent.subject != subject_of(store, "patient 4712")
    files = [path for path in store.settings.home.rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"Ann Example" in path.read_bytes()]


def test_a_subject_keeps_its_hash_when_the_keys_change(store: Store) -> None:
    before = subject_of(store, NAME)
    rotate(store, data=True, master=True, actor="test")
    with open_store(store.settings) as again:
        assert subject_of(again, NAME) == before


def test_two_workspaces_hash_the_same_name_differently(sqlite_settings, postgres_settings) -> None:
    with open_store(sqlite_settings) as first, open_store(postgres_settings) as second:
        assert subject_of(first, NAME) != subject_of(second, NAME)


def test_the_newest_word_counts_and_a_withdrawal_wins_a_tie() -> None:
    noon = datetime(2026, 2, 3, 12, tzinfo=UTC)

    def consent_at(minutes: int, granted: bool, *purposes: str) -> Consent:
        when = noon + timedelta(minutes=minutes)
        return Consent(subject="sub_1", purposes=purposes, granted=granted, text_version="1", timestamp=when)

    words = standing(
        [consent_at(2, True, "training"), consent_at(1, False, "training", "teacher"), consent_at(2, False, "training")]
    )
    assert {name: consent.granted for name, consent in words.items()} == {"training": False, "teacher": False}
    again = standing([consent_at(1, False, "training"), consent_at(2, True, "training")])
    assert again["training"].granted


def test_a_record_needs_its_own_consent_and_its_subjects(store: Store) -> None:
    who, other = subject_of(store, NAME), subject_of(store, "other")
    record(store, NAME, ("training",), text_version="1", actor="test")
    record(store, NAME, ("training",), text_version="1", granted=False, actor="test")
    known, strict = Register.of(store), Register.of(store, strict=True)
    yes = ("training",)
    assert not known.covers(feedback(consent=yes, subject=who), "training")
    assert known.covers(feedback(consent=yes), "training") and not known.covers(feedback(consent=()), "training")
    assert known.covers(feedback(consent=yes, subject=other), "training")
    assert not strict.covers(feedback(consent=yes, subject=other), "training")
    record(store, NAME, ("training",), text_version="2", actor="test")
    assert Register.of(store, strict=True).covers(feedback(consent=yes, subject=who), "training")


@pytest.mark.parametrize(
    ("name", "purposes", "text"),
    [("", ("training",), "1"), ("a\nb", ("training",), "1"), ("a", (), "1"), ("a", ("training",), " ")],
)
def test_what_is_not_a_consent_is_refused_and_nothing_is_written(sqlite_settings, name, purposes, text) -> None:
    with open_store(sqlite_settings) as store:
        with pytest.raises(InputError):
            record(store, name, purposes, text_version=text, actor="test")
        assert consents.all_consents(store) == []


def test_grant_withdraw_and_show_on_the_command_line(sqlite_settings) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["--home", str(sqlite_settings.home), "consent", *words])
        assert done.exit_code == 0, done.output
        return done.output

    run("grant", NAME, "--text", "2026-01", "--purpose", "training", "--purpose", "teacher")
    run("withdraw", NAME, "--purpose", "teacher")
    shown = run("show", NAME)
    assert "2 on file" in shown and "Now: training: yes, teacher: no" in shown and "Ann" not in shown
    run("withdraw", NAME)
    assert "training: no, evaluation: no, teacher: no, publication: no" in run("show", NAME)
    with open_store(sqlite_settings) as store:
        assert [row["action"] for row in audit.show(store, 9)].count("consents.withdraw") == 2


def test_every_read_of_text_leaves_a_line_with_purpose_and_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = crud.page
    monkeypatch.setattr(crud, "page", lambda *given, **more: real(*given, **more, limit=2))
    crud.add(store, [feedback(feedback_id=f"fb_{n}") for n in range(3)], actor="test")
    reading = read_audited(store, Feedback, actor="user:li", purpose="data build")
    next(reading)
    line = audit.show(store, 1)[0]
    assert (line["action"], line["detail"]) == ("rlhf_feedback.read", {"purpose": "data build", "rows": 3})
    crud.add(store, [feedback(feedback_id="fb_late")], actor="test")
    assert len(list(reading)) == 2  # what came after the line is not handed out
    assert get_audited(store, Feedback, "fb_1", actor="user:li", purpose="review") is not None
    assert audit.show(store, 1)[0]["subject"] == "fb_1"
    rows = audit.verify(store).rows
    assert get_audited(store, Feedback, "fb_none", actor="user:li", purpose="review") is None
    assert audit.verify(store).rows == rows


def held(store: Store, name: str = "fb_1") -> None:
    crud.add(store, [feedback(feedback_id=name, comments="call 1380013")], actor="test")
    with store.write() as conn:
        assert quarantine.hold(conn, name, "rlhf_feedback", doubt=1.0, reasons=["a number"], actor="test")


def test_quarantine_is_decided_by_a_person_and_may_be_turned_round(store: Store) -> None:
    held(store)
    assert quarantine.decide(store, "fb_1", "released", actor="user:li").state == "released"
    with store.write() as conn:
        assert not quarantine.hold(conn, "fb_1", "rlhf_feedback", doubt=1.0, reasons=[], actor="test")
    assert (
        quarantine.list_held(store) == [] and quarantine.decide(store, "fb_1", "refused", actor="user:wu").decided_by == "user:wu"
    )
    with pytest.raises(InputError, match="fb_2 is not in quarantine"):
        quarantine.decide(store, "fb_2", "released", actor="user:li")


def test_held_text_is_shown_to_a_terminal_only_and_after_its_audit_line(sqlite_settings) -> None:
    with open_store(sqlite_settings) as store:
        held(store)
    home = str(sqlite_settings.home)
    piped = CliRunner().invoke(app, ["--home", home, "quarantine", "show", "fb_1"])
    assert piped.exit_code != 0 and "1380013" not in piped.output
    assert "fb_1  rlhf_feedback  waiting" in CliRunner().invoke(app, ["--home", home, "quarantine", "list"]).output
    shown = in_terminal(["--home", home, "quarantine", "show", "fb_1"])
    assert "1380013" in shown
    with open_store(sqlite_settings) as store:
        reads = [row for row in audit.show(store, 20) if row["action"] == "rlhf_feedback.read"]
        assert len(reads) == 1 and reads[0]["detail"]["purpose"] == "quarantine review"
    assert "refused by" in CliRunner().invoke(app, ["--home", home, "quarantine", "refuse", "fb_1"]).output


def in_terminal(words: list[str]) -> str:
    """What a command prints to a terminal."""
    import subprocess
    import sys

    main, side = pty.openpty()
    try:
        subprocess.run([sys.executable, "-m", "medloop", *words], stdout=side, stderr=side, check=True, cwd=Path.cwd())
        return os.read(main, 65536).decode()
    finally:
        os.close(main)
        os.close(side)
