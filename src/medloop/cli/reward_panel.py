"""`medloop reward panel`: does the model improve, or does it only learn to please its reward?"""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ResultError
from medloop.evaluate.hacking.panel import Panel, PanelConfig
from medloop.evaluate.hacking.panel_report import caution, probe_table, table, write
from medloop.evaluate.side_by_side import file_name
from medloop.knobs import load_config, split_pairs
from medloop.loop.evaluation import hacking_panel
from medloop.loop.scoring import given_parts
from medloop.reward.mix import MixConfig
from medloop.store.audit_trail import open_audit_trail


def panel(
    scores: Annotated[list[Path], typer.Argument(help="Output of 'medloop reward score', one file per round, oldest first.")],
    held_out: Annotated[
        list[Path] | None,
        typer.Option(
            "--held-out",
            metavar="FILE",
            help="Scores of the same answers by another judge ('reward score', 'teacher judge'); once per round, same order.",
        ),
    ] = None,
    answers: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="The answers, once per round (default: NAME.jsonl beside NAME_scores.jsonl)."),
    ] = None,
    questions: ui.QuestionFiles = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Limits of the alarms, as in configs/panel.yaml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Override one limit; may be repeated.")
    ] = None,
    mix: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Reward that is tested with null answers, as in configs/reward.yaml.")
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PART[=SOURCE]", help="Supply a part of that reward, as for 'medloop reward score'."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write (default: reports/panel/LAST).")] = None,
    fail_on_alarm: Annotated[bool, typer.Option("--fail-on-alarm", help="Exit with code 10 if there is an alarm.")] = False,
) -> None:
    """Look for reward hacking over rounds of training: reward against a held-out judge, length, repetition, empty answers.

    Example:  medloop reward panel sft_scores.jsonl rl_scores.jsonl --held-out sft_teacher.jsonl --held-out rl_teacher.jsonl
    """
    settings = ui.settings()
    bounds = load_config(PanelConfig, file=config, pairs=set_ or (), flags={}, defaults={"seed": settings.seed})
    reward = load_config(MixConfig, file=mix, flags={})
    given = given_parts(settings, split_pairs("--with", with_ or (), bare=True))
    with open_audit_trail(settings) as trail:
        result = hacking_panel(
            scores=scores, held_out=held_out or [], answers=answers or [], questions=questions or [], mix=reward, given=given,
            config=bounds,
        )  # fmt: skip
        folder = (output or settings.workspace.reports / "panel" / file_name(result.rounds[-1].name)).expanduser().absolute()
        write(result, folder)
        trail.record("reward.panel", folder, rounds=len(result.rounds), alarms=len(result.alarms))
    _show(result)
    ui.say(f"Panel: {ui.shown(folder)} (panel.html, panel.md, panel.json)")
    if result.alarms and fail_on_alarm:
        raise ResultError(f"The panel raised {len(result.alarms)} alarms", "Read the answers with the highest reward first")


def _show(result: Panel) -> None:
    ui.table(("measure", *(round_.name for round_ in result.rounds)), table(result))
    if result.probes is not None:
        ui.say()
        ui.table(("null answer", "mean", "highest", "missing"), probe_table(result))
    ui.say()
    if warning := caution(result):
        ui.say(warning)
    for alarm in result.alarms:
        ui.say(f"ALARM {alarm.words}")
    if not result.alarms:
        ui.say("No alarms.")
