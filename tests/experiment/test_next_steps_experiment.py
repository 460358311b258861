"""The commands, and every next step that they print."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traffic import CHALLENGER, CHAMPION, SALT, quick_judge, send

from medloop.loop import experiment as loop
from medloop.settings import Settings
from medloop.store.db import open_store


def steps_in(text: str) -> list[str]:
    return re.findall(r"medloop --home \S+ (experiment .+)", text)


def test_an_experiment_on_the_command_line(home: Path, command_line: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(loop, "new_salt", lambda: SALT)

    def run(line: str) -> str:
        ended = command_line("--home", home, *shlex.split(line))
        assert ended.code == 0, ended.err
        return str(ended.out)

    assert "no experiments yet" in run("experiment list")
    models = f"--champion {CHAMPION} --challenger {CHALLENGER}"
    only = json.loads(run(f"experiment plan trial {models} --base 0.5 --effect 0.1 --dry-run --json"))
    assert only["stored"] is False and only["plan"]["planned_users"] > only["plan"]["fixed_users"]
    planned = run(f"experiment plan trial {models} --base 0.5 --effect 0.3 --window-hours 0 --min-users 20 --users-per-day 50")
    assert "however often you look" in planned and "days at 50%" in planned
    (start,) = steps_in(planned)
    (status,) = steps_in(run(start.replace("--share 0.1", "--share 1")))
    assert "No verdict yet" in run(status)
    experiment_id = status.split()[-1]
    with open_store(Settings(home=home)) as store:
        send(store, range(160), likes=lambda challenger, _: 0.95 if challenger else 0.4)
        loop.refresh(store, experiment_id, judge=quick_judge)
    stopped = run(status)
    assert "Verdict: better" in stopped
    (decide,) = steps_in(stopped)
    (report,) = steps_in(run(decide.replace("REASON", "better")))
    written = run(report)
    page = (home / "reports/experiments" / experiment_id / "report.html").read_text(encoding="utf-8")
    assert "The challenger is better" in page and "<svg" in page and "report.html" in written
    listed = json.loads(run("experiment list --json"))
    assert [(row["state"], row["verdict"]["outcome"]) for row in listed] == [("decided", "better")]


def test_stopping_by_hand_and_the_next_step(home: Path, command_line: Callable[..., Any]) -> None:
    def run(line: str) -> Any:
        return command_line("--home", home, *shlex.split(line))

    planned = run(f"experiment plan trial --champion {CHAMPION} --challenger {CHALLENGER}").out
    (start,) = steps_in(planned)
    assert run(start).code == 0
    experiment_id = start.split()[2]
    assert run(f"experiment ramp {experiment_id} --share 0.5").code == 0
    (decide,) = steps_in(run(f"experiment stop {experiment_id} --reason 'new base'").out)
    assert run(decide.replace("REASON", "stopped")).code == 0
    assert "not running" in run(f"experiment stop {experiment_id}").err
    assert "There is no experiment" in run("experiment status exp_0").err
    assert "No version of the registry is the champion" in run("experiment plan trial").err
