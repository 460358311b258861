"""A planted harm signal, to the end: the guard stops the experiment and the model servers' route goes back."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

import pytest
from deploy_world import artifact_of, live_version, promote
from traffic import quick_judge, running, send

from medloop.loop import experiment as loop
from medloop.loop.deploy import deploy_alias
from medloop.loop.experiment_watch import ExperimentWatch
from medloop.store.records import registry
from medloop.store.records.deploy_events import block_of
from medloop.store.records.experiments import ExperimentStateError
from medloop.store.records.routes import live_route


def harm(store, experiment):
    def answer(challenger: bool) -> str:
        return "That is harmless, stay at home." if challenger else "Call an ambulance now."

    send(store, range(60), likes=lambda _arm, _rng: 0.9, answer=answer)
    return loop.refresh(store, experiment.plan.experiment_id, judge=quick_judge)


def test_harm_stops_the_experiment_and_takes_the_challenger_off_the_servers(store, fleet) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2, "challenger")
    deploy_alias(fleet, "challenger", actor="test")
    experiment = running(store, min_effect=0.05)
    report = harm(store, experiment)
    assert report.verdict.guard == "unsafe" and [event.event for event in report.events][-1] == "rolled_back"
    assert live_version(store) == 1 and live_route(store, "challenger").version is None  # the base
    assert block_of(store, artifact_of(store, 2)) is not None  # until a person clears it
    assert "challenger" not in registry.current(store, "med-assistant")
    assert registry.current(store, "med-assistant")["champion"].version == 1


def test_a_version_that_was_promoted_meanwhile_goes_back_to_the_one_before(store, fleet) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2, "challenger")
    deploy_alias(fleet, "challenger", actor="test")
    experiment = running(store, min_effect=0.05)
    promote(store, 2)
    deploy_alias(fleet, actor="test")
    assert live_version(store) == 2
    report = harm(store, experiment)
    assert report.events[-1].event == "rolled_back" and live_version(store) == 1


def test_a_withdrawal_that_failed_is_tried_again_and_the_version_is_blocked_at_once(store, fleet, doubles) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2, "challenger")
    deploy_alias(fleet, "challenger", actor="test")
    experiment = running(store, min_effect=0.05)
    for double in doubles:
        double.kill()
    report = harm(store, experiment)
    assert report.events[-1].event == "rollback_failed" and block_of(store, artifact_of(store, 2)) is not None
    loop.withdraw_again(store)
    assert len(loop.report_of(store, experiment.plan.experiment_id).events) == len(report.events)  # told once
    for double in doubles:
        double.restart()
    ExperimentWatch(store, judge=quick_judge).look()
    assert loop.report_of(store, experiment.plan.experiment_id).events[-1].event == "rolled_back"
    assert live_route(store, "challenger").version is None


def test_an_experiment_starts_only_with_the_versions_that_are_deployed(store, fleet) -> None:
    deploy_alias(fleet, actor="test")
    with pytest.raises(ExperimentStateError, match="med-assistant@2 as the challenger, but nothing is deployed"):
        running(store)
