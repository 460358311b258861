"""Erasure at its borders: keys that are gone, subjects that are not one's own, names in clear, backups that come back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi.testclient import TestClient
from sqlalchemy import delete, insert, select
from typer.testing import CliRunner

from medloop.cli import app
from medloop.cli import erase as cli_erase
from medloop.contracts import Incident, Trace
from medloop.errors import InputError, IntegrityError, KeyUnavailableError
from medloop.jobs.worker import work
from medloop.privacy.erasure import erase
from medloop.settings import Settings
from medloop.store import audit, tables
from medloop.store.crypto import ErasedKeyError
from medloop.store.db import Store, open_store
from medloop.store.records import crud, erasure_requests, users
from medloop.store.records.erasing import TABLES
from medloop.testing.canary import told
from medloop.web.app import create_app

PASSWORD = "ottercello violetmarsh 92kT"
OTHER = "The other person has a headache since Monday and would like to know why."


def trace_body(text: str, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": "Rest a while."}]
    return {"session_id": "s-1", "agent_name": "triage", "model_version": "clinic-7b@3", "messages": turns, **more}


class World:
    """The API of a workspace, and people who use it."""

    def __init__(self, settings: Settings, password: str | None = None) -> None:
        self.settings = settings
        with open_store(settings) as store:
            self.keys = {
                name: users.new_key(store, users.add_user(store, name, role, password=password, actor="test"), actor="test")
                for name, role in (("program", "engineer"), ("ann", "admin"), ("ben", "admin"), ("dr.li", "clinician"))
            }
        self.client = TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1")

    def post(self, who: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        headers["Authorization"] = f"Bearer {self.keys[who]}"
        return self.client.post(f"/api/v1/{path}", json=body, headers=headers)

    def send(self, path: str, body: dict[str, Any], who: str = "program", **headers: str) -> dict[str, Any]:
        done = self.post(who, path, body, **headers)
        assert done.status_code == 201, done.text
        return dict(done.json())

    def erased(self, who: str, body: dict[str, Any], path: str = "erasure") -> dict[str, Any]:
        filed = self.post(who, path, body)
        assert filed.status_code == 202, filed.text
        work(filed.json()["job_id"], self.settings)
        seen = self.client.get(filed.json()["address"], headers={"Authorization": f"Bearer {self.keys['ann']}"}).json()
        assert seen["state"] == "succeeded", seen
        return dict(seen["result"])


@pytest.fixture
def world(settings: Settings) -> Iterator[World]:
    world = World(settings)
    with world.client:
        yield world


def cli(settings: Settings, *words: str, text: str = "") -> Any:
    url = settings.database.url.get_secret_value()
    return CliRunner().invoke(
        app, ["--home", str(settings.home), *words], input=text, env={"MEDLOOP_DATABASE__URL": url} if url else {}
    )


def row_of(store: Store, trace_id: str) -> Any:
    with store.read() as conn:
        return conn.execute(select(tables.traces).where(tables.traces.c.trace_id == trace_id)).one()


def opens(store: Store, row: Any) -> bool:
    """Whether somebody with all of today's keys can open an old copy of a row."""
    try:
        with store.read() as conn:
            return bool(crud.decrypt_row(tables.traces, row, store.keys.reading(conn, row))["conversation"])
    except ErasedKeyError:
        return False


def test_b8_what_is_left_in_postgresqls_log_does_not_open_with_the_live_keys(postgres_settings: Settings, postgres: Any) -> None:
    world = World(postgres_settings)
    with world.client:
        mine = world.send("traces", trace_body(told("back"), subject="4711"))["trace_id"]
        nobodys = world.send("traces", trace_body(told("knee")))["trace_id"]
        hers = world.send("traces", trace_body(OTHER, subject="4712"))["trace_id"]
    with open_store(postgres_settings) as store:
        rows = {trace_id: row_of(store, trace_id) for trace_id in (mine, nobodys, hers)}
        assert all(opens(store, row) for row in rows.values())
    for request in (("--subject", "4711"), ("--record", nobodys)):
        done = cli(postgres_settings, "erase", *request, "--reason", "asked")
        assert done.exit_code == 0 and "keys destroyed" in done.output, done.output
    log = b"".join(path.read_bytes() for path in sorted((postgres.folder / "data/pg_wal").glob("0*")))
    assert rows[mine].conversation[-48:] in log, "the encrypted text is still in the log"
    with open_store(postgres_settings) as store:
        assert {trace_id: opens(store, row) for trace_id, row in rows.items()} == {mine: False, nobodys: False, hers: True}
        assert crud.get(store, Trace, hers) is not None


def test_b8_a_server_that_kept_running_writes_nothing_under_a_destroyed_key(world: World) -> None:
    world.send("traces", trace_body(told("back"), subject="4711"))
    cli(world.settings, "erase", "--subject", "4711", "--reason", "asked")
    again = world.send("traces", trace_body(told("knee"), subject="4711"))["trace_id"]
    with open_store(world.settings) as store:
        assert crud.get(store, Trace, again) is not None, "the person came back and has a new key"


def test_b8_without_the_key_tree_nothing_is_read_or_written_and_an_old_copy_of_it_is_enough(world: World) -> None:
    first = world.send("traces", trace_body(OTHER))["trace_id"]
    (tree,) = world.settings.workspace.keys.glob("*.tree")
    copy = Path(shutil.copy(tree, tree.with_suffix(".copy")))
    second = world.send("traces", trace_body(told("back"), subject="4711"))["trace_id"]
    tree.unlink()
    with open_store(world.settings) as store:
        with pytest.raises(KeyUnavailableError, match="tree is missing"):
            crud.get(store, Trace, first)
        copy.rename(tree)
        assert crud.get(store, Trace, first) is not None and crud.get(store, Trace, second) is not None


def test_b7_a_subject_that_is_not_the_traces_is_refused(world: World) -> None:
    nobodys = world.send("traces", trace_body(OTHER))["trace_id"]
    hers = world.send("traces", trace_body(OTHER, subject="4712"))["trace_id"]
    for trace_id in (nobodys, hers):
        body = {"trace_id": trace_id, "thumb": "up", "subject": "decoy"}
        refused = world.post("program", "rlhf/feedback", body)
        assert refused.status_code == 422 and "does not belong to this subject" in refused.json()["error"], refused.text
    rated = world.send("rlhf/feedback", {"trace_id": hers, "thumb": "up", "subject": "4712"})["feedback_id"]
    corrected = world.post("program", "rlhf/correction", {"feedback_id": rated, "golden": "See a doctor.", "subject": "decoy"})
    assert corrected.status_code == 422, corrected.text
    left_out = world.send("rlhf/feedback", {"trace_id": hers, "thumb": "down"})["feedback_id"]
    with open_store(world.settings) as store:
        assert row_of(store, hers).user_hash == crud.get(store, crud.Feedback, left_out).subject  # type: ignore[union-attr]


def flagged(world: World) -> tuple[str, str]:
    """A critical flag of one clinician on an exchange whose text somebody else has sent under a decoy's name."""
    trace = world.send("traces", trace_body(told("chest")))["trace_id"]
    flag = world.send("rlhf/feedback", {"trace_id": trace, "critical": True, "comments": "Dangerous."}, who="dr.li")
    exchange = {"session_id": "s-2", "agent_name": "triage", "user_query": told("chest"), "agent_response": "Rest a while."}
    world.send("rlhf/feedback", {**exchange, "thumb": "up", "subject": "decoy"})
    return flag["feedback_id"], flag["incident_id"]


def test_b7_a_dry_run_shows_the_records_of_others_and_their_flags(world: World) -> None:
    flag, _ = flagged(world)
    seen = world.erased("ann", {"subject": "decoy", "reason": "asked", "dry_run": True})
    assert {record["record_id"]: (record["critical"], record["why"]) for record in seen["foreign"]}[flag] == (True, "same text")
    assert seen["evidence"] == {"critical flags": 1, "incidents": 1}
    printed = cli(world.settings, "erase", "--subject", "decoy", "--reason", "asked", "--dry-run").output
    assert (
        f"{flag}: a code that the person's text has" in printed
        and "CRITICAL FLAG" in printed
        and "second person must approve" in printed
    )


def test_b7_safety_evidence_goes_only_if_two_people_agree_and_stays_without_text(world: World) -> None:
    flag, incident_id = flagged(world)
    alone = cli(world.settings, "erase", "--subject", "decoy", "--reason", "asked")
    assert isinstance(alone.exception, InputError) and "two people must agree" in str(alone.exception)
    waiting = world.erased("ann", {"subject": "decoy", "reason": "asked"})
    assert waiting["state"] == "waiting" and waiting["rows"] == {}
    approve = f"erasure/requests/{waiting['request_id']}/approve"
    assert world.post("ann", approve).status_code == 403 and world.post("program", approve).status_code == 403
    with open_store(world.settings) as store:
        assert crud.get(store, crud.Feedback, flag) is not None
    listed = world.client.get("/api/v1/erasure/requests", headers={"Authorization": f"Bearer {world.keys['dr.li']}"}).json()
    assert [request["request_id"] for request in listed] == [waiting["request_id"]]
    done = world.erased("dr.li", {}, approve)
    assert done["state"] == "complete" and done["proof"]["approved_by"] != done["proof"]["actor"]
    with open_store(world.settings) as store:
        incident = crud.get(store, Incident, incident_id)
        assert incident is not None and (incident.state, incident.model_version) == ("open", "clinic-7b@3")
        assert crud.get(store, crud.Feedback, flag) is None and crud.count(store, crud.RedTeamCase) == 0


def test_b7_an_approval_is_for_the_records_of_the_dry_run_and_no_others(world: World) -> None:
    """Seen: a second flag that came after the request was erased by an approval of one flag."""
    flag, _ = flagged(world)
    shown = world.erased("ann", {"subject": "decoy", "reason": "asked", "dry_run": True})["ids_sha256"]
    waiting = world.erased("ann", {"subject": "decoy", "reason": "asked"})
    requests = world.client.get("/api/v1/erasure/requests", headers={"Authorization": f"Bearer {world.keys['dr.li']}"}).json()
    assert [request["ids_sha256"] for request in requests] == [shown] == [waiting["ids_sha256"]]
    trace = world.send("traces", trace_body(told("chest"), subject="decoy"))["trace_id"]
    later = world.send("rlhf/feedback", {"trace_id": trace, "critical": True, "comments": "Again."}, who="dr.li")["feedback_id"]
    refused = world.post("dr.li", f"erasure/requests/{waiting['request_id']}/approve")
    assert refused.status_code == 409 and "have changed since it was requested" in refused.json()["error"], refused.text
    assert "Nothing was removed" in refused.json()["error"]
    (listed,) = world.client.get("/api/v1/erasure/requests", headers={"Authorization": f"Bearer {world.keys['dr.li']}"}).json()
    assert (listed["state"], listed["approved_by"], listed["job_id"]) == ("waiting", None, None)
    with open_store(world.settings) as store:
        assert all(crud.get(store, crud.Feedback, name) is not None for name in (flag, later))
    anew = world.erased("ann", {"subject": "decoy", "reason": "asked"})
    assert anew["request_id"] != waiting["request_id"] and anew["ids_sha256"] != shown
    assert world.erased("dr.li", {}, f"erasure/requests/{anew['request_id']}/approve")["state"] == "complete"


def test_b7_an_approval_is_over_after_a_day(sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(sqlite_settings) as store:
        ann, li = (users.add_user(store, name, "clinician", actor="test", password=PASSWORD).user_id for name in ("ann", "dr.li"))
        request = erasure_requests.add_request(
            store, subject="sub_1", records=(), reason="asked", keep_jobs=False, by=ann, evidence={}, ids={}, ids_sha256="0"
        )
        erasure_requests.approve(store, request, by=li)
        assert erasure_requests.approve(store, request, by=li).approved_by == li, "an interrupted erasure can go on"
        monkeypatch.setattr(erasure_requests, "VALID", timedelta(0))
        with pytest.raises(erasure_requests.ApprovalOverError, match="more than a day ago"):
            erasure_requests.approve(store, request, by=li)


def test_b7_two_people_agree_at_the_keyboard(sqlite_settings: Settings) -> None:
    world = World(sqlite_settings, PASSWORD)
    with world.client:
        flagged(world)
    asked = cli(world.settings, "erase", "--subject", "decoy", "--reason", "asked", "--user", "ann", text=PASSWORD + "\n")
    assert asked.exit_code == 0 and "Nothing was removed" in asked.output, asked.output
    dry = cli(world.settings, "erase", "--subject", "decoy", "--reason", "asked", "--dry-run").output
    ids = dry.split("Set of records: ")[1][:12]
    assert f"the set of records {ids}" in asked.output
    request = next(word for word in asked.output.split() if word.startswith("ereq_"))
    dry = cli(world.settings, "erase", "--approve", request, "--user", "dr.li", "--dry-run", text=PASSWORD + "\n")
    assert isinstance(dry.exception, InputError) and "--dry-run" in str(dry.exception)
    same = cli(world.settings, "erase", "--approve", request, "--user", "ann", text=PASSWORD + "\n")
    assert isinstance(same.exception, InputError) and "somebody else has to approve it" in str(same.exception)
    done = cli(world.settings, "erase", "--approve", request, "--user", "dr.li", text=PASSWORD + "\n")
    assert done.exit_code == 0 and ": complete" in done.output and "kept without text" in done.output, done.output


NAMES = {"session_id": "zhang-wei-1980-visit", "agent_name": "agent-of-zhang-wei-1980", "model_version": "Mr.John.Carter"}


def test_b6_names_in_clear_and_idempotency_rows_do_not_survive(world: World) -> None:
    body = trace_body(told("back"), subject="4711") | NAMES
    trace = world.send("traces", body, **{"Idempotency-Key": "key-of-zhang-wei-1980"})["trace_id"]
    rating = {"trace_id": trace, "critical": True, "rating": 1}
    world.send("rlhf/feedback", rating, **{"Idempotency-Key": "second-key-of-zhang-wei-1980"})
    note = world.settings.workspace.reports / "sessions.jsonl"
    note.write_text(json.dumps({"session": NAMES["session_id"]}) + '\n{"session": "other"}\n')
    waiting = world.erased("ann", {"subject": "4711", "reason": "asked"})
    assert world.erased("ben", {}, f"erasure/requests/{waiting['request_id']}/approve")["state"] == "complete"
    with open_store(world.settings) as store, store.read() as conn:
        dumped = {name: str(conn.execute(select(table)).all()) for name, table in tables.metadata.tables.items()}
    for word in (*NAMES.values(), "zhang-wei"):
        assert [name for name, text in dumped.items() if word in text] == [], word
    assert note.read_text() == '{"session": "other"}\n'


def snapshot(store: Store) -> dict[str, list[dict[str, Any]]]:
    with store.read() as conn:
        return {name: [dict(row._mapping) for row in conn.execute(select(table))] for name, table in TABLES.items()}


def restore(store: Store, rows: dict[str, list[dict[str, Any]]]) -> None:
    """What a restored backup does to the tables of records."""
    with store.write() as conn:
        conn.execute(delete(tables.tombstones))
        for name, values in rows.items():
            conn.execute(delete(TABLES[name]))
            if values:
                conn.execute(insert(TABLES[name]), values)


@pytest.mark.parametrize("old_tree", [False, True])
def test_b10_after_a_restore_erased_people_stay_erased(world: World, old_tree: bool) -> None:
    mine = world.send("traces", trace_body(told("back"), subject="4711"))["trace_id"]
    hers = world.send("traces", trace_body(OTHER, subject="4712"))["trace_id"]
    report = world.settings.workspace.reports / "quoted.md"
    report.write_text(f"# Week\n\n> {told('back')}\n")
    with open_store(world.settings) as store:
        backup = snapshot(store)
    (tree,) = world.settings.workspace.keys.glob("*.tree")
    copy, quoted = tree.read_bytes(), report.read_text()
    assert cli(world.settings, "erase", "--subject", "4711", "--reason", "asked").exit_code == 0
    with open_store(world.settings) as store:
        restore(store, backup)
    report.write_text(quoted)
    if old_tree:
        tree.write_bytes(copy)
    done = cli(world.settings, "erase", "--replay")
    assert done.exit_code == 0 and "Erasures that were repeated: 1." in done.output, done.output
    with open_store(world.settings) as store:
        assert crud.get(store, Trace, mine) is None and crud.get(store, Trace, hers) is not None
        assert not opens(store, next(Row(row) for row in backup["traces"] if row["trace_id"] == mine))
    assert not report.exists() or told("back") not in report.read_text()
    assert "Nothing that was erased has come back" in cli(world.settings, "erase", "--replay").output


class Row:
    """A row of a backup."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._mapping, self.key_id, self.text_key = values, values["key_id"], values["text_key"]


def test_b10_a_forged_register_line_erases_nobody(world: World) -> None:
    world.send("traces", trace_body(told("back"), subject="4711"))
    hers = world.send("traces", trace_body(OTHER))["trace_id"]
    cli(world.settings, "erase", "--subject", "4711", "--reason", "asked")
    register = world.settings.workspace.keys / "erased.jsonl"
    line = json.loads(register.read_text().splitlines()[-1])
    line["erasure"] |= {"erasure_id": "er_forged", "ids": {"traces": [hers]}}
    register.write_text(register.read_text() + json.dumps(line) + "\n")
    done = cli(world.settings, "erase", "--replay")
    assert isinstance(done.exception, IntegrityError) and "was changed or belongs to another store" in str(done.exception)
    with open_store(world.settings) as store:
        assert crud.get(store, Trace, hers) is not None


def test_b7_a_refusal_over_http_ends_the_request_and_is_in_the_log(world: World) -> None:
    flag, _ = flagged(world)
    waiting = world.erased("ann", {"subject": "decoy", "reason": "asked"})
    path = f"erasure/requests/{waiting['request_id']}"
    (request,) = world.client.get("/api/v1/erasure/requests", headers={"Authorization": f"Bearer {world.keys['dr.li']}"}).json()
    assert flag in request["ids"]["rlhf_feedback"] and request["evidence"]["critical flags"] == 1 and request["expires"]
    assert world.post("dr.li", f"{path}/refuse", {"note": "Call 13800138000."}).status_code == 422
    assert world.post("dr.li", f"{path}/refuse", {"note": "It is about another person."}).status_code == 204
    for step, body in (("approve", {}), ("refuse", {"note": "Again."})):
        assert world.post("dr.li", f"{path}/{step}", body).status_code == 409
    with open_store(world.settings) as store:
        assert crud.get(store, crud.Feedback, flag) is not None and erasure_requests.waiting(store) == []


def listed(world: World, who: str = "dr.li") -> list[dict[str, Any]]:
    return list(world.client.get("/api/v1/erasure/requests", headers={"Authorization": f"Bearer {world.keys[who]}"}).json())


def killed(settings: Settings, monkeypatch: pytest.MonkeyPatch, job_id: str) -> None:
    """The worker of an erasure dies after the rows are gone."""
    with monkeypatch.context() as patch:
        first, *_ = erase.STEPS
        patch.setattr(erase, "STEPS", (first, lambda _: 1 / 0))
        work(job_id, settings)


def test_b7_an_approved_erasure_stays_listed_until_it_is_finished_and_is_approved_once(world: World, monkeypatch) -> None:
    flag, _ = flagged(world)
    waiting = world.erased("ann", {"subject": "decoy", "reason": "asked"})
    path = f"erasure/requests/{waiting['request_id']}/approve"
    job = world.post("dr.li", path).json()["job_id"]
    assert [(row["state"], row["job_id"]) for row in listed(world)] == [("queued", job)]
    again = world.post("ben", path)
    assert again.status_code == 409 and job in again.json()["error"]
    killed(world.settings, monkeypatch, job)
    assert [(row["state"], row["job_id"]) for row in listed(world)] == [("unfinished", job)] and listed(world)[0]["message"]
    # What comes meanwhile was no part of the agreement: it neither stops the erasure nor goes with it.
    trace = world.send("traces", trace_body(told("knee"), subject="decoy"))["trace_id"]
    done = world.erased("ben", {}, path)
    assert done["state"] == "complete" and done["proof"]["request_id"] == waiting["request_id"] and listed(world) == []
    with open_store(world.settings) as store:
        assert crud.get(store, crud.Feedback, flag) is None and crud.get(store, Trace, trace) is not None
    assert world.post("ben", path).status_code == 409


def test_b7_an_error_says_what_was_removed_before_it(world: World, monkeypatch) -> None:
    """Seen: "nothing was removed", after the erasure that a kill had interrupted was finished."""
    flagged(world)
    world.send("traces", trace_body(OTHER, subject="4712"))
    killed(world.settings, monkeypatch, world.post("ann", "erasure", {"subject": "4712", "reason": "asked"}).json()["job_id"])
    (journal,) = (world.settings.workspace.reports / "erasure").glob("*.pending")
    filed = world.post("ann", "erasure", {"subject": "decoy", "reason": "asked"}).json()
    work(filed["job_id"], world.settings)
    seen = world.client.get(filed["address"], headers={"Authorization": f"Bearer {world.keys['ann']}"}).json()
    assert f"earlier erasures that had been interrupted were finished: {journal.stem}" in seen["message"], seen
    assert "Nothing was removed for it" in seen["message"] and seen["result"]["state"] == "waiting"


def test_b7_at_the_keyboard_jobs_are_asked_about_first_and_the_request_decides(
    sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, questions = World(sqlite_settings, PASSWORD), list[str]()
    with world.client:
        flagged(world)

    def ask(jobs: list[str]) -> None:
        questions.append("asked")
        raise typer.Exit(1)

    monkeypatch.setattr(cli_erase, "_on_a_terminal", lambda: True)
    monkeypatch.setattr(cli_erase, "_ask", ask)
    monkeypatch.setattr(cli_erase.QueuedJobs, "any", lambda self: True)
    for keep, times in (((), 1), (("--keep-jobs",), 0)):
        words = ("erase", "--subject", "decoy", "--reason", "asked", "--user", "ann", *keep)
        monkeypatch.setattr(cli_erase, "_on_a_terminal", lambda: False)
        request = next(word for word in cli(sqlite_settings, *words, text=PASSWORD + "\n").output.split() if "ereq_" in word)
        monkeypatch.setattr(cli_erase, "_on_a_terminal", lambda: True)
        questions.clear()
        flag = cli(sqlite_settings, "erase", "--approve", request, "--keep-jobs", "--user", "dr.li", text=PASSWORD + "\n")
        assert isinstance(flag.exception, InputError) and "--keep-jobs" in str(flag.exception)
        done = cli(sqlite_settings, "erase", "--approve", request, "--user", "dr.li", text=PASSWORD + "\n")
        assert len(questions) == times and ("complete" in done.output) == (times == 0), done.output
        with open_store(sqlite_settings) as store:
            assert (erasure_requests.get_request(store, request).approved_by is None) == (times == 1), (
                "asked before it is approved"
            )


def test_b7_a_second_person_refuses_at_the_keyboard_and_the_log_says_why(sqlite_settings: Settings) -> None:
    world = World(sqlite_settings, PASSWORD)
    with world.client:
        flag, _ = flagged(world)
        waiting = world.erased("ann", {"subject": "decoy", "reason": "asked"})["request_id"]

    def refuse(reason: str, *more: str) -> Any:
        words = ("erase", "--refuse", waiting, "--reason", reason, "--user", "dr.li", *more)
        return cli(sqlite_settings, *words, text=PASSWORD + "\n")

    for reason in ("", "Call 13800138000 first"):
        assert isinstance(refuse(reason).exception, InputError)
    assert "--subject" in str(refuse("It is another person.", "--subject", "decoy").exception)
    nameless = cli(sqlite_settings, "erase", "--refuse", waiting, "--reason", "It is another person.")
    assert "needs your name" in str(nameless.exception)
    assert refuse("It is about another person.").output.strip().endswith("The request is closed. Nothing was removed.")
    assert "was refused" in str(refuse("Again.").exception)
    with open_store(sqlite_settings) as store:
        (line,) = audit.page(store, audit.AuditFilter(action="erasure.refuse"))
        assert line["detail"]["note"] == "It is about another person." and line["subject"] == waiting
        assert crud.get(store, crud.Feedback, flag) is not None


@pytest.mark.parametrize("reason", ["Call 13800138000", "患者张伟要求删除", "asked by Mary Johnson", "li.wei@example.org wrote"])
def test_b6_a_reason_that_names_a_person_is_refused_because_it_stays_for_good(world: World, reason: str) -> None:
    world.send("traces", trace_body(told("back"), subject="4711"))
    refused = world.post("ann", "erasure", {"subject": "4711", "reason": reason})
    assert refused.status_code == 422 and "stored for good" in refused.json()["error"] and reason not in refused.text
    at_keyboard = cli(world.settings, "erase", "--subject", "4711", "--reason", reason)
    assert isinstance(at_keyboard.exception, InputError) and reason not in str(at_keyboard.exception)
    for fine in ("asked on 3 May", "GDPR art. 17, request of 2026-05-03", "当事人要求删除", "患者本人申请"):
        assert world.post("ann", "erasure", {"subject": "4711", "reason": fine, "dry_run": True}).status_code == 202, fine
