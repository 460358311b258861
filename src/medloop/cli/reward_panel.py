"""`medloop reward panel`: is the model getting better, or only better at pleasing its reward?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ResultError
from medloop.evaluate.hacking.panel import Panel, PanelConfig
from medloop.evaluate.hacking.panel_report import caution, probe_table, table, write
from medloop.evaluate.side_by_side import file_name
from medloop.knobs import load_config
from medloop.loop.evaluation import hacking_panel
from medloop.loop.scoring import given_parts
from medloop.reward.mix import MixConfig
from medloop.store.audit_trail import open_audit_trail


def panel(
    scores: Annotated[list[Path], typer.Argument(help="Scores of 'medloop reward score', one file per round, oldest first.")],
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
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="When to raise an alarm, as in configs/panel.yaml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One bound of the panel; may be repeated.")
    ] = None,
    mix: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The reward that null answers are tried on, as configs/reward.yaml.")
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="PART[=SOURCE]", help="Hand a given part into that reward, as for 'medloop reward score'."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the files go (default: reports/panel/LAST).")] = None,
    fail_on_alarm: Annotated[bool, typer.Option("--fail-on-alarm", help="Exit with code 10 when there is an alarm.")] = False,
) -> None:
    """Compare rounds of training: reward against a held-out judge, length, repetition, stock answers, null answers.

    Example:  medloop reward panel sft_scores.jsonl rl_scores.jsonl --held-out sft_teacher.jsonl --held-out rl_teacher.jsonl
    """
    settings = ui.settings()
    bounds = load_config(PanelConfig, file=config, pairs=set_ or (), flags={}, defaults={"seed": settings.seed})
    reward = load_config(MixConfig, file=mix, flags={})
    given = given_parts(settings, {name.strip(): source.strip() for name, _, source in (w.partition("=") for w in with_ or ())})
    with open_audit_trail(settings) as trail:
        result = hacking_panel(
            scores=scores,
            held_out=held_out or [],
            answers=answers or [],
            questions=questions or [],
            mix=reward,
            given=given,
            config=bounds,
        )
        folder = (output or settings.workspace.reports / "panel" / file_name(result.rounds[-1].name)).expanduser().absolute()
        write(result, folder)
        trail.note("reward.panel", folder, rounds=len(result.rounds), alarms=len(result.alarms))
    _show(result)
    ui.say(f"Panel: {ui.shown(folder)} (panel.html, panel.md, panel.json)")
    if result.alarms and fail_on_alarm:
        raise ResultError(
            f"{len(result.alarms)} alarms of the reward-hacking panel", "Read the answers with the highest reward first"
        )


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
