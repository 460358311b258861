"""`medloop inspect`: draw answers for a medical reviewer, and import the verdicts."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts import utc_now
from medloop.errors import ConfigError
from medloop.evaluate.inspection.pool import AnswerPool
from medloop.evaluate.inspection.review_form import FormImport, ImportedRow
from medloop.evaluate.inspection.weekly_sample import InspectConfig, Inspection, check_week, week_of
from medloop.knobs import load_config
from medloop.loop.evaluation import inspect_answers
from medloop.loop.inspection import import_reviewed
from medloop.store.audit_trail import actor, open_audit_trail


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def inspect(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]", help="Answers, scores, or predictions of 'medloop eval' (default: those of the workspace)."
        ),
    ] = None,
    questions: ui.QuestionFiles = None,
    week: Annotated[str, typer.Option(help="ISO week of the sample, for example 2026-W46 (default: this week).")] = "",
    n: Annotated[int, typer.Option("--n", help="Answers in the sample, 40 to 60.")] = 50,
    all_: Annotated[bool, typer.Option("--all", help="Take every answer instead of a sample.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write (default: reports/inspect/WEEK).")] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", metavar="FORM", help="Import a completed form.csv instead of drawing a sample.")
    ] = None,
    reviewer: Annotated[str, typer.Option(help="With --import: the reviewer, where the form names none.")] = "",
) -> None:
    """Draw this week's answers for a medical reviewer, with a form to complete; or import the completed form.

    The sample of a week is drawn once. An answer is shown again only when no others are left.

    Example:  medloop inspect answers.jsonl --week 2026-W46
    """
    if import_ is not None:
        if files or week or all_ or output:
            raise ConfigError("--import takes only the form", "Leave out files, --week, --all and --output")
        _import(import_, reviewer)
    else:
        _draw(files or [], questions or [], week, n, all_, output)


def _draw(files: list[Path], questions: list[Path], week: str, n: int, everything: bool, output: Path | None) -> None:
    settings = ui.settings()
    flags = {"n": n, "everything": everything, "seed": settings.seed}
    config = load_config(InspectConfig, flags=flags)
    name = check_week(week) if week else week_of(utc_now().date())
    with open_audit_trail(settings) as trail:
        done, pool = inspect_answers(settings, files=files, questions=questions, week=name, config=config, output=output)
        trail.record("inspect.draw", done.folder, sample=done.name, answers=len(done.samples), again=done.again)
    _show(done, pool)


def _show(done: Inspection, pool: AnswerPool) -> None:
    groups = [(group, str(available), str(drawn)) for group, (available, drawn) in done.groups.items()]
    ui.table(("group", "available", "drawn"), groups)
    if pool.scored_now:
        ui.say(f"{pool.scored_now} answers had no score and were scored now, by the rules only.")
    if pool.scores_without_answer:
        ui.say(f"{pool.scores_without_answer} scores belong to none of these answers and were ignored.")
    if pool.unscrubbable:
        ui.say(f"{pool.unscrubbable} answers were left out: an identifier in them could not be removed.")
    if done.again:
        ui.say(f"{done.again} were already shown in an earlier week; no others were left.")
    if done.before:
        ui.say(f"The sample of {done.name} already exists and stays. For other answers use another --week, or --all.")
    form = " (the existing form.csv was not changed)" if done.form_kept else ""
    ui.say(f"{len(done.samples)} answers in {ui.shown(done.folder)}: report.html, report.md, samples.csv, form.csv{form}")


def _import(form: Path, reviewer: str) -> None:
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        done = import_reviewed(settings, trail.store, form, actor=actor(), reviewer=reviewer)
        new = sum(row.new for row in done.rows)
        trail.record("inspect.import", done.verdicts, verdicts=len(done.rows), new=new)
    _show_import(done)


def _show_import(done: FormImport) -> None:
    for row in done.rows:
        ui.say(f"{row.inspected}  {row.verdict:<10}  {', '.join(_added(row))}")
    new = sum(row.new for row in done.rows)
    left = f", {done.empty} rows are empty" if done.empty else ""
    ui.say(f"Imported {new} new verdicts of {len(done.rows)}{left}: {ui.shown(done.verdicts)}")
    if any(row.incident for row in done.rows):
        ui.next_step("incidents list", "Dangerous answers opened incidents; nothing is promoted before two people close them:")


def _added(row: ImportedRow) -> list[str]:
    if not row.new:
        return ["already imported"]
    added = ["supersedes the earlier verdict" if row.supersedes else "feedback"]
    added += ["SFT example"] if row.correction else []
    added += ["preference pair"] if row.pair else []
    added += ["proposed for the red-team set"] if row.red_team else []
    added += ["incident"] if row.incident else []
    return added
