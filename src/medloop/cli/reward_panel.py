"""`medloop reward panel`: is the model getting better, or only better at pleasing its reward?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from medloop.cli import ui
from medloop.errors import ResultError
from medloop.evaluate.hacking.panel import Panel, PanelConfig
from medloop.evaluate.hacking.panel_pages import caution, probe_table, table, write
from medloop.evaluate.side_by_side import file_name
from medloop.knobs import build
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
    bounds = build(PanelConfig, file=config, pairs=set_ or (), flags={}, defaults={"seed": settings.seed})
    reward = build(MixConfig, file=mix, flags={})
    given = given_parts(settings, {name.strip(): source.strip() for name, _, source in (w.partition("=") for w in with_ or ())})
    with open_audit_trail(settings) as trail:
        found = hacking_panel(
            scores=scores, held_out=held_out or [], answers=answers or [], mix=reward, given=given, config=bounds
        )
        folder = (output or settings.workspace.reports / "panel" / file_name(found.rounds[-1].name)).expanduser().absolute()
        write(found, folder)
        trail.note("reward.panel", folder, rounds=len(found.rounds), alarms=len(found.alarms))
    _show(found)
    ui.say(f"Panel: {ui.shown(folder)} (panel.html, panel.md, panel.json)")
    if found.alarms and fail_on_alarm:
        raise ResultError(
            f"{len(found.alarms)} alarms of the reward-hacking panel", "Read the answers with the highest reward first"
        )


def _show(found: Panel) -> None:

    console = ui.console()
    console.width = max(console.width, 120)
    shown = Table("measure", *(one.name for one in found.rounds), box=None, pad_edge=False)
    for row in table(found):
        shown.add_row(*row)
    console.print(shown)
    if found.probes is not None:
        probes = Table("null answer", "mean", "highest", "missing", box=None, pad_edge=False)
        for line in probe_table(found):
            probes.add_row(*line)
        console.print()
        console.print(probes)
    ui.say()
    if said := caution(found):
        ui.say(said)
    for alarm in found.alarms:
        ui.say(f"ALARM {alarm.words}")
    if not found.alarms:
        ui.say("No alarms.")
