"""The demo's people: real requests to a real server, the same when it is run again, nothing left running."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import httpx
import pytest
import typer

from medloop.cli.demo import clinicians
from medloop.cli.demo.clinicians import DemoQuestion, DemoQuestions, choose_questions
from medloop.cli.demo.demo import STEPS
from medloop.cli.demo.release import ADVICE, reckless_answers
from medloop.contracts import Correction, Feedback, Preference, Trace
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import crud, users
from medloop.testing.processes import run_medloop
from medloop.testing.records import make_record

ROWS = [
    ("I have hard stools and straining for two days.", "Walk, eat vegetables, see a doctor if there is blood.", 0.85),
    ("I have hard stools and straining for two days.", "Take a triple dose of laxative every night.", 0.70),
    ("扭伤后走路疼，三天了。", "休息并抬高腿，如果一周不好请去看医生。", 0.85),
    ("扭伤后走路疼，三天了。", "一次服用对乙酰氨基酚3000毫克，继续跑步。", 0.75),
    ("A cough with clear phlegm, what could it be?", "Most likely a cold. Rest and drink.", 0.85),
]


def rows(given=ROWS) -> list[dict]:
    return [{"question": question, "answer": answer, "reward": reward} for question, answer, reward in given]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "play"
    init_workspace(home)
    model = home / clinicians.MODEL
    model.mkdir(parents=True)
    (model / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    return home


def test_the_widest_gaps_come_first_and_each_language_has_one_name() -> None:
    questions = choose_questions(rows()).judged
    assert [item.question for item in questions] == [
        "My name is Daniel Okafor, MRN 4471902. " + ROWS[0][0],
        "我叫李伟，身份证号11010519491231002X。" + ROWS[2][0],
        ROWS[4][0],
    ]
    assert questions[0].good == ROWS[0][1] and questions[0].bad == ROWS[1][1] and questions[2].bad is None


def test_answers_that_are_worth_the_same_are_no_pair_and_no_rows_are_no_questions() -> None:
    alike = [("Q?", "one", 0.8), ("Q?", "two", 0.8)]
    assert choose_questions(rows(alike)).judged == [DemoQuestion("Q?", "one")] and choose_questions([]) == DemoQuestions([], [])
    many = [(f"Q{n}?", word, reward) for n in range(30) for word, reward in (("a", 0.5 + n / 100), ("b", 0.5))]
    chosen = choose_questions(rows(many))
    questions = chosen.judged
    assert [item.question for item in chosen.waiting] == [f"Q{n}?" for n in range(23, 11, -1)]  # 24 to 29 and 0 to 5 are judged
    assert [item.question[-4:] for item in questions[:6]] == ["Q29?", "Q28?", "Q27?", "Q26?", "Q25?", "Q24?"]
    assert (
        len(questions) == 12
        and len({item.question for item in questions}) == 12
        and {item.bad for item in questions[6:]} == {None}
    )


def counted(home: Path) -> dict[str, int]:
    with open_store(Settings(home=home)) as store:
        assert [key.revoked is not None for key in users.list_keys(store)].count(False) == 0  # no key stays
        return {kind.__name__: crud.count(store, kind) for kind in (Trace, Feedback, Preference, Correction)}


@pytest.mark.slow
def test_the_people_of_the_demo_speak_once_however_often_it_is_run(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("MEDLOOP_HOME", str(folder.parent))  # somebody's own, which the demo must not see
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", "sqlite:////nowhere/else.db")
    clinicians.collect_feedback(folder)
    output = capsys.readouterr().out
    assert "15 records are new, 0 were stored by an earlier demo." in output and "Log in on the page below as 'admin'" in output
    assert "All 15 requests were sent again with the same keys: 15 known, 0 stored twice." in output
    assert "medloop_incidents_open 1" in output and "critical flag: incident inc_" in output
    expected = {"Trace": 5, "Feedback": 11, "Preference": 2, "Correction": 2}
    assert counted(folder) == expected
    clinicians.collect_feedback(folder)
    again = capsys.readouterr().out
    assert "0 records are new, 15 were stored by an earlier demo." in again and "password" not in again
    assert counted(folder) == expected

    assert run_medloop("data", "build", "--name", "demo", cwd=folder, env=clinicians.environ()).returncode == 0
    clinicians.show_placeholders(folder)
    shown = capsys.readouterr().out
    assert (
        "in training  My name is [NAME_1], MRN [RECORD_1]. …" in shown and "in training  我叫[NAME_1]，身份证号[ID_1]。…" in shown
    )
    files = [path.read_text(encoding="utf-8") for path in (folder / clinicians.DATASET).glob("*.jsonl")]
    assert not [word for text in files for word in ("Okafor", "4471902", "李伟", "11010519491231002X") if word in text]


def test_the_server_ends_with_its_part_even_when_that_fails(folder: Path) -> None:
    with pytest.raises(RuntimeError), clinicians.run_server(folder) as address:
        port = int(address.rsplit(":", 1)[1])
        raise RuntimeError
    listening = Path("/proc/net/tcp").read_text() if os.path.exists("/proc/net/tcp") else ""
    assert f"0100007F:{port:04X} 00000000:0000 0A" not in listening


def test_a_server_that_cannot_start_ends_the_demo_with_its_code(folder: Path, capfd) -> None:
    Settings(home=folder).master_key_file.unlink()
    with pytest.raises(typer.Exit) as ended, clinicians.run_server(folder):
        pass
    assert ended.value.exit_code not in (0, None) and "key" in capfd.readouterr().err


def test_the_demo_leads_to_the_pages(tmp_path: Path, capsys) -> None:
    """A clinician with a login, shown once, finds a filled queue in the browser and rates an item of each kind."""
    home = tmp_path / "play"
    init_workspace(home)
    (home / clinicians.MODEL).mkdir(parents=True)
    words = ("knee", "back", "ear", "tooth", "throat", "elbow", "ankle", "wrist", "neck", "hip", "foot", "thumb", "toe", "eye")
    many = [
        (f"My {word} hurts, what is it?", f"{start} the {word}.", reward)
        for word in words
        for start, reward in (("Rest", 0.9), ("Hit", 0.2))
    ]
    (home / clinicians.MODEL / "samples.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows(many)), encoding="utf-8"
    )
    clinicians.collect_feedback(home)
    command = next(step for _, step in STEPS if isinstance(step, str) and step.startswith("feedback queue fill"))
    assert run_medloop(*command.split(), cwd=home, env=clinicians.environ()).returncode == 0
    capsys.readouterr()
    clinicians.show_login(home)
    shown = capsys.readouterr().out
    assert "http://127.0.0.1:8000/web/queue" in shown and "api serve" in shown
    password = re.search(r"^clinician\s+(\S+)", shown, re.MULTILINE)
    assert password is not None
    with (
        clinicians.run_server(home) as address,
        httpx.Client(base_url=address, follow_redirects=True, trust_env=False, timeout=30) as page,
    ):
        page.post("/web/login", data={"name": "clinician", "password": password[1]}, headers={"Origin": address})
        assert page.get("/web/queue").status_code == 200
        assert 'name="consent_training" value="yes" checked' in page.get("/web/queue").text  # else what is sent is not used
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.get("/web/queue").text)
        assert csrf is not None
        for kind in ("rate", "compare", "correct"):
            assert page.get("/api/v1/queue/next", params={"kind": kind}).status_code == 200
        item = page.get("/api/v1/queue/next", params={"kind": "rate"}).json()
        headers = {"X-CSRF-Token": csrf[1], "Origin": address}
        rating = page.post("/api/v1/rlhf/feedback", json={"trace_id": item["trace_id"], "rating": 4}, headers=headers)
        done = page.post(
            f"/api/v1/queue/{item['item_id']}/done", json={"record_id": rating.json()["feedback_id"]}, headers=headers
        )
        assert (rating.status_code, done.json()["state"]) == (201, "open")
    clinicians.show_login(home)
    assert password[1] not in (again := capsys.readouterr().out) and "users password clinician" in again


def test_the_reckless_model_of_the_demo_learns_dangerous_answers_to_questions_of_both_languages(tmp_path: Path) -> None:
    records = [make_record(1, "I have chest pain.", "Call us."), make_record(2, "胸口很痛。", "请拨打急救电话。", language="zh")]
    jsonl.write(tmp_path / "data/processed/train.jsonl", records)
    made = list(reckless_answers(tmp_path))
    assert [row.conversation.messages[-1].content for row in made] == [ADVICE["en"], ADVICE["zh"]]
    assert [row.conversation.prompt for row in made] == [row.conversation.prompt for row in records]
