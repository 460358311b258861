"""`medloop reward drift`: does a judge still say what it said when people measured it?"""

from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.reward_judge import BUDGET_FREE, DwFile, ModelAlone, TeacherFile
from medloop.errors import ConfigError, ResultError
from medloop.feedback.insight.alerts import sentence
from medloop.knobs import load_config, split_pairs
from medloop.loop.judge_drift import DriftCheck, check_drift
from medloop.loop.scoring import judge_of, teachers_of
from medloop.loop.trust import NOTHING, card_folder, read_card
from medloop.reward.judge_drift import DriftConfig
from medloop.store.audit_trail import open_audit_trail


def drift(
    config: ui.RewardFile = None,
    with_: ui.RewardParts = None,
    dw: DwFile = None,
    teacher: TeacherFile = None,
    reward_model: ModelAlone = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One bound: fall, shift, min_cases, traces; may be repeated."),
    ] = None,
    fail_on_alert: Annotated[bool, typer.Option("--fail-on-alert", help="Exit with code 10 if an alert stands.")] = False,
    json_: ui.AsJson = False,
) -> None:
    """Compare the newest card with the one before, and what the judges say about fresh traffic with what they said then.

    A shift beyond its bound is an alert. It is raised once and stands in 'medloop feedback metrics', on the dashboard and on
    the trust page until a later check finds that it is over, or until the reward is measured again.

    Example:  medloop reward drift --set shift=0.1
    """
    settings = ui.settings()
    bounds = load_config(DriftConfig, file=None, pairs=set_ or (), flags={})
    _, judge = judge_of(
        settings, reward=str(config) if config else None, given=split_pairs("--with", with_ or (), bare=True), dw=dw,
        teacher=teacher, reward_model=reward_model, budget=BUDGET_FREE,
    )  # fmt: skip
    if read_card(settings, judge.version) is None:
        raise ConfigError(f"The reward {judge.version} has no card to compare with", NOTHING)
    asks_teacher = bool(teachers_of(judge))
    with open_audit_trail(settings) as trail:
        check = check_drift(settings, trail.store, judge, config=bounds, traffic=not asks_teacher)
        trail.record("reward.drift", card_folder(settings, judge.version), raised=len(check.raised), standing=len(check.standing))
    if json_:
        groups = {"raised": check.raised, "standing": check.standing, "ended": check.ended}
        ui.say_json({name: [alert.model_dump(mode="json") for alert in alerts] for name, alerts in groups.items()})
    else:
        if asks_teacher:
            ui.say("Exchanges are not sent to a teacher for this, so only the cards are compared.")
        show(check)
    if fail_on_alert and (check.raised or check.standing):
        count = len(check.raised) + len(check.standing)
        raise ResultError(f"{count} alerts stand about this reward", "Measure it again with: medloop reward validate CASES")


def show(check: DriftCheck) -> None:
    """What was compared, and the alerts; those that stood before are not raised again."""
    ui.say(f"Compared: {'; '.join(check.compared)}." if check.compared else "There is nothing to compare with yet.")
    for word, alerts in (("ALERT", check.raised), ("still", check.standing), ("over", check.ended)):
        for alert in alerts:
            ui.say(f"{word}  {sentence(alert)}")
    if check.compared and not check.raised and not check.standing:
        ui.say("No alerts.")
