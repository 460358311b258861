"""The durable workflow: killed anywhere, it goes on and does nothing twice; it waits, ends, and starts again when inputs change."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from medloop.errors import BusyError, InputError, IntegrityError
from medloop.loop import workflow
from medloop.loop.workflow import Ends, Known, Outputs, Step, Waits, advance, progress_of
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records.cycles import cycle_events, cycle_names


class PowerCutError(BaseException):
    """Nothing after it runs, as after kill -9; locks are released as the kernel does."""


@pytest.fixture
def store(sqlite_settings: Settings):
    with open_store(sqlite_settings) as opened:
        yield opened


def made(home: Path) -> list[str]:
    """What the steps have put into the world, one line each."""
    return (home / "world").read_text().splitlines() if (home / "world").exists() else []


def steps_of(home: Path, *, seed: int = 1, waits: bool = False) -> list[Step]:
    """Three steps that do something once, however often they are called: as a training does with its sealed folder."""

    def once(name: str, *inputs: str) -> Outputs:
        line = " ".join((name, *inputs))
        if line not in made(home):
            with (home / "world").open("a") as file:
                file.write(line + "\n")
        return {"made": line}

    def sign(known: Known) -> Outputs | Waits:
        return {"by": 2} if (home / "signed").exists() or not waits else Waits("1 sign-off is missing", "gate show abc")

    return [
        Step("data", lambda _: {"seed": seed}, lambda _: once("data", str(seed))),
        Step("train", lambda known: {"data": known.outputs["data"]}, lambda known: once("train", known.text("data", "made"))),
        Step("sign-off", lambda known: {"train": known.outputs["train"]}, sign),
        Step("promote", lambda known: {"train": known.outputs["train"]}, lambda known: once("promote", known.text("train", "made"))),
    ]  # fmt: skip


WORLD = ["data 1", "train data 1", "promote train data 1"]


def test_a_cycle_runs_its_steps_in_order_and_a_second_call_does_nothing(store: Store) -> None:
    home = store.settings.home
    first = advance(store, "c", steps_of(home), actor="test")
    assert first.state == "done" and made(home) == WORLD
    events = cycle_events(store, "c")
    again = advance(store, "c", steps_of(home), actor="test", on_step=pytest.fail)
    assert again == first and cycle_events(store, "c") == events and cycle_names(store) == ["c"]


def test_power_lost_at_every_moment_leaves_nothing_undone_and_nothing_done_twice(store: Store, monkeypatch) -> None:
    """Before and after each row that is written: every place where a process can have died."""
    home, real = store.settings.home, workflow.add_cycle_event
    whole = 9  # rows of an undisturbed cycle
    for cut in range(2 * whole):
        (home / "world").unlink(missing_ok=True)
        name, calls = f"cut{cut}", iter(range(100))

        def add(store, event, calls=calls, cut=cut):
            number = next(calls)
            if 2 * number == cut:
                raise PowerCutError
            done = real(store, event)
            if 2 * number + 1 == cut:
                raise PowerCutError
            return done

        with monkeypatch.context() as patch, pytest.raises(PowerCutError):
            patch.setattr(workflow, "add_cycle_event", add)
            advance(store, name, steps_of(home), actor="test")
        assert advance(store, name, steps_of(home), actor="test").state == "done"
        assert made(home) == WORLD
        finished = [event.step for event in cycle_events(store, name) if event.event == "done"]
        assert finished == ["plan", "data", "train", "sign-off", "promote"]


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_workflow import steps_of
from medloop.loop.workflow import advance
from medloop.settings import Settings
from medloop.store.db import open_store
settings = Settings(home=Path({home!r}))
with open_store(settings) as store:
    print("ready", flush=True)
    for n in range(1000):
        advance(store, f"c{{n}}", steps_of(settings.home, seed=n), actor="test")
        print(n, flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_for_real_at_random_moments(sqlite_settings: Settings, kills: int) -> None:
    home = sqlite_settings.home
    with open_store(sqlite_settings):
        pass
    code = KILLED.format(tests=str(Path(__file__).parent), home=str(home))
    chance, reached = random.Random(7), 0
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            for _ in range(chance.randrange(1, 4)):
                child.stdout.readline()
            os.kill(child.pid, signal.SIGKILL)
        with open_store(sqlite_settings) as store:
            for name in cycle_names(store):
                seed = int(name[1:])
                assert advance(store, name, steps_of(home, seed=seed), actor="test").state == "done"
                reached = max(reached, seed)
    assert reached >= 1
    lines = made(home)
    assert len(lines) == len(set(lines)) and len(lines) == 3 * (reached + 1)


def test_a_cycle_waits_for_people_and_goes_on_when_they_have_acted(store: Store) -> None:
    home = store.settings.home
    waiting = advance(store, "c", steps_of(home, waits=True), actor="test")
    assert (waiting.state, waiting.reason, waiting.command) == ("waiting", "1 sign-off is missing", "gate show abc")
    events = cycle_events(store, "c")
    assert advance(store, "c", steps_of(home, waits=True), actor="test") == waiting
    assert cycle_events(store, "c") == events  # days of waiting write nothing
    (home / "signed").touch()
    assert advance(store, "c", steps_of(home, waits=True), actor="test").state == "done" and made(home) == WORLD


def test_changed_inputs_run_the_step_and_what_depends_on_it_again(store: Store) -> None:
    home = store.settings.home
    advance(store, "c", steps_of(home), actor="test")
    ran: list[str] = []
    assert advance(store, "c", steps_of(home, seed=2), actor="test", on_step=ran.append).state == "done"
    assert ran == ["data", "train", "sign-off", "promote"] and made(home)[-1] == "promote train data 2"


def test_an_end_is_a_result_with_its_reason(store: Store) -> None:
    steps = [
        Step("gate", lambda _: {}, lambda _: Ends("The gate refused the model: risk", {"gate": "x"})),
        *steps_of(store.settings.home),
    ]
    ended = advance(store, "c", steps, actor="test")
    assert ended.state == "ended" and ended.reason == "The gate refused the model: risk" and made(store.settings.home) == []
    assert advance(store, "c", steps, actor="test", on_step=pytest.fail) == ended
    assert progress_of("c", cycle_events(store, "c")).state == "ended"


def test_a_failure_is_kept_without_its_text_and_tried_again(store: Store) -> None:
    broken = [True]

    def run(_: Known) -> Outputs:
        if broken[0]:
            raise InputError("Mrs Example's file cannot be read", "Mend it")
        return {}

    steps = [Step("data", lambda _: {}, run)]
    with pytest.raises(InputError):
        advance(store, "c", steps, actor="test")
    failed = cycle_events(store, "c")[-1]
    assert (failed.event, failed.reason) == ("failed", "InputError")  # the text may name a person
    broken[0] = False
    assert advance(store, "c", steps, actor="test").state == "done"


def test_one_process_at_a_time(store: Store) -> None:
    def nested(_: Known) -> Outputs:
        with pytest.raises(BusyError, match="The loop of this workspace"):
            advance(store, "c", steps_of(store.settings.home), actor="test")
        return {}

    assert advance(store, "c", [Step("data", lambda _: {}, nested)], actor="test").state == "done"


def test_an_event_changed_past_medloop_is_refused(store: Store) -> None:
    advance(store, "c", steps_of(store.settings.home), actor="test")
    with store.transaction() as conn:
        conn.execute(text("UPDATE cycle_events SET event = 'waiting' WHERE step = 'sign-off'"))
    with pytest.raises(IntegrityError, match="cycle_events was changed"):
        advance(store, "c", steps_of(store.settings.home), actor="test")
