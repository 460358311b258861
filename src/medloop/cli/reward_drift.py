"""`medloop reward drift`: does a judge still say what it said when people measured it?"""

from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.reward_judge import BUDGET_FREE, DwFile, ModelAlone, TeacherFile, judge_source
from medloop.contracts.validity import JudgeSource
from medloop.errors import ConfigError, ResultError
from medloop.feedback.insight.alerts import Alert, sentence
from medloop.knobs import load_config
from medloop.loop.judge_drift import DriftCheck, check_all, check_drift
from medloop.loop.scoring import judge_of, teachers_of
from medloop.loop.trust import NOTHING, card_folder, read_card
from medloop.reward.judge_drift import DriftConfig
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail, open_audit_trail


def drift(
    config: ui.RewardFile = None,
    with_: ui.RewardParts = None,
    dw: DwFile = None,
    teacher: TeacherFile = None,
    reward_model: ModelAlone = None,
    all_: Annotated[bool, typer.Option("--all", help="Every reward that has a card (the newest 8), as it was measured.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One bound: fall, shift, min_cases, traces; may be repeated."),
    ] = None,
    fail_on_alert: Annotated[bool, typer.Option("--fail-on-alert", help="Exit with code 10 if an alert stands.")] = False,
    json_: ui.AsJson = False,
) -> None:
    """Compare the newest card with the one before, and what the judges say about fresh traffic with what they said then.

    A shift beyond its bound is an alert. It is raised once and stands in 'medloop feedback metrics', on the dashboard and on
    the trust page until a later check finds that it is over, or until the reward is measured again. 'medloop api serve' runs
    'medloop reward drift --all' by itself, as often as the setting reward.drift_hours says.

    Example:  medloop reward drift --set shift=0.1
    """
    settings = ui.settings()
    bounds = load_config(DriftConfig, file=None, pairs=set_ or (), flags={})
    source = judge_source(config, with_, dw, teacher, reward_model)
    if all_:
        if source != JudgeSource():
            raise ConfigError("--all looks at every reward, but one is named as well", "Leave out --all, or the other options")
        checks = _check_all(settings, bounds)
    else:
        checks = [_check(settings, bounds, source)]
    if json_:
        groups = {name: [alert for check in checks for alert in getattr(check, name)] for name in ("raised", "standing", "ended")}
        ui.say_json({name: [alert.model_dump(mode="json") for alert in alerts] for name, alerts in groups.items()})
    else:
        for check in checks:
            show(check)
    standing: list[Alert] = [alert for check in checks for alert in (*check.raised, *check.standing)]
    if fail_on_alert and standing:
        raise ResultError(
            f"{len(standing)} alerts stand about the judges", "Measure the reward again with: medloop reward validate CASES"
        )


def _check(settings: Settings, bounds: DriftConfig, source: JudgeSource) -> DriftCheck:
    _, judge = judge_of(settings, source, budget=BUDGET_FREE)
    if read_card(settings, judge.version) is None:
        raise ConfigError(f"The reward {judge.version} has no card to compare with", NOTHING)
    with open_audit_trail(settings) as trail:
        check = check_drift(settings, trail.store, judge, config=bounds, traffic=not teachers_of(judge))
        _record(trail, settings, check)
    return check


def _check_all(settings: Settings, bounds: DriftConfig) -> list[DriftCheck]:
    checks = []
    with open_audit_trail(settings) as trail:
        for check in check_all(settings, trail.store, config=bounds):
            checks.append(check)
            _record(trail, settings, check)
    if not checks:
        raise ConfigError("No reward of this workspace has a card to compare with", NOTHING)
    return checks


def _record(trail: AuditTrail, settings: Settings, check: DriftCheck) -> None:
    detail = {"raised": len(check.raised), "standing": len(check.standing), "checked": not check.problem}
    trail.record("reward.drift", card_folder(settings, check.reward), **detail)


def show(check: DriftCheck) -> None:
    """What was compared, and the alerts; those that stood before are not raised again."""
    ui.say(f"Reward {check.reward}")
    if check.problem:
        return ui.say(f"Not checked: {check.problem}.")
    ui.say(f"Compared: {'; '.join(check.compared)}." if check.compared else "There is nothing to compare with yet.")
    for word, alerts in (("ALERT", check.raised), ("still", check.standing), ("over", check.ended)):
        for alert in alerts:
            ui.say(f"{word}  {sentence(alert)}")
    if check.compared and not check.raised and not check.standing:
        ui.say("No alerts.")
