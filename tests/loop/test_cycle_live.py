"""The live end of a cycle: deployed, compared with the champion for days, adopted or withdrawn; nothing twice, whatever dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))
from deploy_world import add_versions, artifact_of, live_version, promote
from traffic import quick_judge, send

from medloop.deploy.canary import load_canaries
from medloop.experiment.plan import PlanConfig
from medloop.loop import cycle_live, workflow
from medloop.loop import experiment as live
from medloop.loop.cycle import CycleConfig, cycle_steps
from medloop.loop.cycle_config import ExperimentStep
from medloop.loop.deploy import deploy_alias, open_fleet
from medloop.loop.rollback import block
from medloop.loop.standing import stage_of_step
from medloop.loop.workflow import CycleProgress, Ends, Known, Step, Waits, advance
from medloop.loop.workspace import init_workspace
from medloop.registry.promote import rollback_in
from medloop.settings import Settings
from medloop.store.audit_trail import open_audit_trail
from medloop.store.db import Store, open_store
from medloop.store.records import deploy_events, experiments, registry
from medloop.store.records.cycles import cycle_events
from medloop.store.records.routes import live_route, routes
from medloop.testing.served_double import ServerDouble

PLAN = PlanConfig(min_effect=0.2, spread=0.45, window_hours=0.0, min_users=20)
CONFIG = CycleConfig(name="c", experiment=ExperimentStep(plan=PLAN, share=1.0))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the detectors and without MLflow: both have tests of their own."""
    monkeypatch.setattr(live, "default_judge", lambda: quick_judge)
    monkeypatch.setattr("medloop.registry.promote.reconcile", lambda store: None)


@pytest.fixture
def double() -> Iterator[ServerDouble]:
    with ServerDouble() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, double: ServerDouble) -> Iterator[Store]:
    """Version 1 is the champion, version 2 has passed the gate."""
    home = tmp_path / "clinic"
    init_workspace(home)
    canaries = [canary.model_dump() for canary in load_canaries()[:4]]
    (home / "canaries.yaml").write_text(yaml.safe_dump(canaries), encoding="utf-8")
    deploy = {"canaries": str(home / "canaries.yaml"), "replicas": double.url, "drain_s": 0}
    settings = Settings.model_validate({"home": home, "deploy": deploy})
    with open_store(settings) as opened:
        add_versions(opened)
        yield opened


def go_on(store: Store, config: CycleConfig = CONFIG, version: int = 2) -> CycleProgress:
    """The steps before are done: version 2 is registered and signed."""
    before = [Step("sign-off", lambda _: {}, lambda _: {}), Step("register", lambda _: {}, lambda _: {"version": version})]
    return advance(store, config.name, [*before, *cycle_live.live_steps(store, config)], actor="test")


def the_experiment(store: Store) -> str:
    [experiment] = experiments.every(store)
    return experiment.plan.experiment_id


def test_it_waits_for_a_verdict_then_for_a_person_and_the_better_version_answers_everybody(store: Store, command_line) -> None:
    waiting = go_on(store)
    assert (waiting.state, waiting.at.name) == ("waiting", "experiment")
    assert live_version(store) == 1 and live_route(store, "challenger").version == 2
    assert waiting.command == f"experiment status {the_experiment(store)}"
    assert command_line("--home", store.settings.home, *waiting.command.split()).code == 0  # the next step that it prints
    assert command_line("--home", store.settings.home, "deploy", "status").code == 0
    events = cycle_events(store, "c")
    assert go_on(store) == waiting and cycle_events(store, "c") == events  # days of waiting write nothing

    send(store, range(400), likes=lambda challenger, _: 0.95 if challenger else 0.4)
    better = go_on(store)
    assert better.state == "waiting" and "A person adopts it" in better.reason and live_version(store) == 1
    live.decide(store, the_experiment(store), adopt=True, by="usr_1", reason="better in every language")
    done = go_on(store)
    assert done.state == "done" and live_version(store) == 2
    assert registry.current(store, "med-assistant")["champion"].version == 2
    assert go_on(store) == done


@pytest.mark.slow
def test_with_adopt_verdict_nobody_is_asked(store: Store) -> None:
    config = CONFIG.model_copy(update={"experiment": ExperimentStep(plan=PLAN, share=1.0, adopt="verdict")})
    go_on(store, config)
    send(store, range(400), likes=lambda challenger, _: 0.95 if challenger else 0.4)
    assert go_on(store, config).state == "done" and live_version(store) == 2


def test_harm_ends_the_cycle_and_the_version_is_off_the_servers_and_blocked(store: Store) -> None:
    go_on(store)
    answers = {True: "That is harmless, stay at home.", False: "Call an ambulance now."}
    send(store, range(60), likes=lambda _arm, _rng: 0.9, answer=answers.__getitem__)
    ended = go_on(store)
    assert ended.state == "ended" and "A guard stopped it" in ended.reason
    assert live_version(store) == 1 and live_route(store, "challenger").version is None  # the base
    assert deploy_events.block_of(store, artifact_of(store, 2)) is not None


@pytest.mark.slow
def test_a_challenger_that_is_not_better_gives_its_alias_back(store: Store) -> None:
    go_on(store)
    send(store, range(400), likes=lambda challenger, _: 0.3 if challenger else 0.9)
    ended = go_on(store)
    assert ended.state == "ended" and "What served before still serves." in ended.reason and live_version(store) == 1
    assert "challenger" not in registry.current(store, "med-assistant")


def test_the_first_version_has_nothing_to_be_compared_with(store: Store) -> None:
    registry.change_alias(store, "med-assistant", "champion", None, action="demote", actor="test")
    done = go_on(store)
    assert done.state == "done" and live_version(store) == 2 and experiments.every(store) == []


def test_a_canary_that_fails_ends_the_cycle_and_a_server_that_is_away_is_waited_for(store: Store, double: ServerDouble) -> None:
    config = CycleConfig(name="c")
    double.kill()
    waiting = go_on(store, config)
    assert (waiting.state, waiting.reason) == ("waiting", "No model server answers.")
    double.restart()
    double.bad.add(f"med-assistant-v2-{artifact_of(store, 2)[7:15]}")
    ended = go_on(store, config)
    assert ended.state == "ended" and "canary" in ended.reason and live_route(store) is None


def champion(store: Store) -> int | None:
    return registry.current(store, "med-assistant")["champion"].version


def test_what_people_did_while_the_adoption_waited_is_not_undone(store: Store, double: ServerDouble) -> None:
    known = Known({"promote": {"version": 2}})
    promote(store, 2, "challenger")
    double.kill()
    assert cycle_live._adopt(store, True, known) == Waits("No model server answers.", "deploy status")
    assert champion(store) == 2
    rollback_in(store, actor="usr_1", reason="worse in triage")
    double.restart()
    ended = cycle_live._adopt(store, True, known)
    assert isinstance(ended, Ends) and "not the challenger any more" in ended.reason
    assert champion(store) == 1 and live_route(store) is None


def test_a_version_that_was_rolled_back_is_not_promoted(store: Store, command_line) -> None:
    block(store, "name", artifact_of(store, 2), 2, actor="test", reason="harm")
    waiting = go_on(store, CycleConfig(name="c"))
    assert (waiting.at.name, waiting.state) == ("promote", "waiting") and "It was rolled back on " in waiting.reason
    assert command_line("--home", store.settings.home, *waiting.command.split()).code == 0
    promote(store, 2, "challenger")
    adopted = cycle_live._adopt(store, False, Known({"promote": {"version": 2}}))
    assert isinstance(adopted, Waits) and "It was rolled back on " in adopted.reason and champion(store) == 1


def test_power_lost_after_a_promotion_does_not_undo_a_rollback(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = workflow.add_cycle_event

    def add(store, event):
        if (event.step, event.event) == ("promote", "done"):
            raise KeyboardInterrupt
        return real(store, event)

    with monkeypatch.context() as patch:
        patch.setattr(workflow, "add_cycle_event", add)
        for _ in range(2):  # dying twice changes nothing
            with pytest.raises(KeyboardInterrupt):
                go_on(store, CycleConfig(name="c"))
    assert champion(store) == 2
    rollback_in(store, actor="usr_1", reason="worse in triage")
    ended = go_on(store, CycleConfig(name="c"))
    assert ended.state == "ended" and "not the champion any more" in ended.reason and champion(store) == 1


def test_a_challenger_does_not_change_what_answers_everybody(
    store: Store, double: ServerDouble, command_line, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    add_versions(store, "third")
    promote(store, 3)
    with open_fleet(store) as fleet:
        deploy_alias(fleet, "champion", actor="test")
    promote(store, 1)
    waiting = go_on(store)
    assert waiting.at.name == "deploy" and "The champion is not the version that answers" in waiting.reason
    assert live_version(store) == 3 and live_route(store, "challenger") is None
    monkeypatch.setenv("MEDLOOP_DEPLOY__REPLICAS", double.url)
    monkeypatch.setenv("MEDLOOP_DEPLOY__CANARIES", str(store.settings.deploy.canaries))
    monkeypatch.setenv("MEDLOOP_DEPLOY__DRAIN_S", "0")
    assert command_line("--home", store.settings.home, *waiting.command.split()).code == 0  # the next step that it prints
    assert go_on(store).at.name == "experiment" and live_version(store) == 1


def test_every_step_of_a_cycle_has_a_stage(store: Store) -> None:
    with open_audit_trail(store.settings) as trail:
        steps = [step.name for step in cycle_steps(store.settings, trail, CONFIG)]
    assert steps[-3:] == ["deploy", "experiment", "adopt"]
    assert [step for step in steps if stage_of_step(step) is None] == []


@pytest.mark.slow
def test_power_lost_at_every_moment_of_the_live_steps_does_nothing_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Before and after each row of each step: one experiment, one deployment of each arm, whatever happened."""
    real, cut = workflow.add_cycle_event, 0

    class PowerCutError(BaseException):
        pass

    for cut in range(24):
        calls = iter(range(100))

        def add(store, event, calls=calls, cut=cut):
            number = next(calls)
            if 2 * number == cut % 4:  # the rows of what is done are not written again: early ones are the new ones
                raise PowerCutError
            done = real(store, event)
            if 2 * number + 1 == cut % 4:
                raise PowerCutError
            return done

        with monkeypatch.context() as patch:
            patch.setattr(workflow, "add_cycle_event", add)
            try:
                progress = go_on(store)
            except PowerCutError:
                continue
        if progress.state == "waiting":
            break
    assert cut >= 4
    assert go_on(store).state == "waiting" and len(experiments.every(store)) == 1
    assert [row.version for row in routes(store)] == [1] and [row.version for row in routes(store, arm="challenger")] == [2]
    started = [event for event in experiments.every(store)[0].events if event.event == "started"]
    assert len(started) == 1
