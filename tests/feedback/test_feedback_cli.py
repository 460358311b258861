"""`medloop feedback` as a person uses it: numbers, queue, trigger, and sentences where something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from queue_desk import thumb, trace
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Feedback, Preference
from medloop.errors import ConfigError, InputError
from medloop.jobs import queue as jobs
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud

Medloop = Callable[..., str]


@pytest.fixture
def clinic(workspace: Path) -> Path:
    init_workspace(workspace)
    return workspace


@pytest.fixture
def store(clinic: Path) -> Iterator[Store]:
    with open_store(Settings(home=clinic)) as opened:
        yield opened


@pytest.fixture
def medloop(clinic: Path) -> Medloop:
    def run(*args: str) -> str:
        done = CliRunner().invoke(app, ["--home", str(clinic), "feedback", *args])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return run


def seed(store: Store) -> None:
    crud.add(store, [trace(f"t{n}", f"chest pain word{n}", "rest") for n in range(4)], actor="t")
    crud.add(
        store, [trace("t9", "a cold since monday", "tea"), thumb("t9", "ann", up=False), thumb("t9", "ben", up=True)], actor="t"
    )


def test_metrics_as_table_json_and_report(store: Store, medloop: Medloop, clinic: Path) -> None:
    seed(store)
    assert "thumbs up" in (shown := medloop("metrics", "--since", "30d")) and "emergency" in shown
    numbers = json.loads(medloop("metrics", "--json", "--traces", "0"))
    assert numbers["thumbs_up"]["mean"] == 0.5 and numbers["coverage"] is None
    report = clinic / "reports/feedback/week.md"
    medloop("metrics", "--output", str(report))
    assert report.is_file() and report.with_suffix(".html").is_file() and report.with_name("week_volume.svg").is_file()


@pytest.mark.parametrize("args", [("--since", "yesterday"), ("--output", "report.pdf"), ("--set", "seed=-1")])
def test_metrics_refuses_what_it_cannot_read(medloop: Medloop, args: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=args[1].split("=")[0]):
        medloop("metrics", *args)


def test_fill_list_next_skip_stats(store: Store, medloop: Medloop) -> None:
    seed(store)
    assert "added 5" in medloop("queue", "fill")
    first = json.loads(medloop("queue", "list", "--json"))[0]
    assert first["kind"] == "correct" and first["reasons"]["thumbs_down"] == 1.0
    item = json.loads(medloop("queue", "next", "--rater", "li", "--json"))
    assert item["content"]["answers"] == ["rest"]  # an emergency is furthest behind its share
    assert "is back in the queue" in medloop("queue", "skip", item["item_id"], "--rater", "li")
    assert "skipped 1" in (output := medloop("queue", "stats")) and "emergency 4" in output
    assert "[user] " in medloop("queue", "next", "--rater", "li")
    with pytest.raises(InputError):
        medloop("queue", "skip", "qi_none", "--rater", "li")


def test_fill_takes_conflicts_and_answers_from_files(store: Store, medloop: Medloop, clinic: Path, tmp_path: Path) -> None:
    conflict = {"question": "a cough", "answer": "honey", "gap": 0.8}
    (clinic / "data/rl/teacher_conflicts.jsonl").write_text(json.dumps(conflict) + "\n")
    lines = [{"id": str(n), "question": "a rash", "answer": f"cream {n}", "group": "g"} for n in range(2)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    medloop("queue", "fill", "--answers", str(tmp_path / "answers.jsonl"))
    items = json.loads(medloop("queue", "list", "--json"))
    assert sorted(row["kind"] for row in items) == ["compare", "rate", "rate", "rate"]
    assert items[0]["reasons"]["disagreement"] == 0.8


def test_an_empty_queue_says_so(medloop: Medloop) -> None:
    assert "Nothing for li" in medloop("queue", "next", "--rater", "li")
    assert "No items" in medloop("queue", "list", "--state", "disputed")
    assert json.loads(medloop("queue", "fill", "--json"))["added"] == 0


def test_trigger_dry_then_filed_with_data_built_from_the_feedback(store: Store, medloop: Medloop, clinic: Path) -> None:
    values = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "consent": ("training",)}
    crud.add(store, [Feedback.model_validate({**values, "rating": 3}) for _ in range(5)], actor="t")
    words = ("fever", "cough", "rash", "migraine", "back pain")
    pairs = [
        {
            "prompt": f"What helps against {word}?",
            "response_a": f"Rest with {word}.",
            "response_b": f"See somebody about {word} today.",
        }
        for word in words
    ]
    crud.add(
        store, [Preference.model_validate({**pair, "preferred": "a", "consent": ("training",)}) for pair in pairs], actor="t"
    )
    crud.add(store, [thumb("t1", "ann", up=True)], actor="t")  # without consent
    assert "No reason yet" in (shown := medloop("trigger")) and "1 wait for consent" in shown
    assert "dry run" in medloop("trigger", "--every", "10", "--dry-run")
    assert "retrain-1" in medloop("trigger", "--every", "10")
    assert "Submitted train_" in medloop("trigger", "--every", "10", "--submit")
    assert (clinic / "data/preferences/preferences.jsonl").is_file()
    (job,) = jobs.ids(Settings(home=clinic))
    assert "Filed" not in medloop("trigger", "--every", "10", "--submit")
    assert jobs.ids(Settings(home=clinic)) == [job]
    with pytest.raises(ConfigError):
        medloop("trigger", "--submit", "--dry-run")
