"""`medloop teacher`: verdicts of a stronger model on answers, what they cost, and whether the teacher is still the same."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from medloop.cli import ui
from medloop.contracts import Record
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import ConfigError, ResultError
from medloop.knobs import load_config
from medloop.settings import Settings
from medloop.store.audit_trail import open_audit_trail
from medloop.store.files import jsonl
from medloop.teacher import judge as stage
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import NULL_CEILING, JudgeRun, TeacherFiles
from medloop.teacher.judge_items import read_judge_items

teacher_app = typer.Typer(no_args_is_help=True, help="Teacher: a stronger model judges answers, within a budget.")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file with the teacher's settings (configs/teacher.yaml).")
]
Pairs = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any teacher setting; may be repeated.")]
Model = Annotated[str | None, typer.Option(help="Model to ask [deepseek-flash].")]
BaseUrl = Annotated[str | None, typer.Option(help="Service that speaks OpenAI's chat completions [https://api.deepseek.com].")]
Money = Annotated[float | None, typer.Option("--budget", min=0.0, help="Most that this run may cost, in USD [5].")]


def register(app: typer.Typer) -> None:
    app.add_typer(teacher_app, name="teacher")


@teacher_app.command("judge")
def judge(
    file: Annotated[Path, typer.Argument(help="Answers: records, chats, question and answer, or what 'medloop predict' wrote.")],
    questions: ui.QuestionFiles = None,
    output: Annotated[Path | None, typer.Option(help="Scores to write [data/rl/teacher_scores_NAME.jsonl].")] = None,
    n: Annotated[int, typer.Option("--n", min=0, help="Only the first so many; 0 means all.")] = 0,
    model: Model = None,
    base_url: BaseUrl = None,
    budget: Money = None,
    config: ConfigFile = None,
    set_: Pairs = None,
) -> None:
    """Let the teacher judge answers; what it judged before is not asked again, what cannot be had is missing.

    Example:  medloop teacher judge data/processed/gold_set.jsonl --budget 2
    """
    settings = ui.settings()
    wish = _config(config, set_, model=model, base_url=base_url, budget_usd=budget)
    items = read_judge_items(file, questions=questions or (), limit=n)
    target = output or settings.workspace.rl / f"teacher_scores_{file.stem}.jsonl"
    with open_audit_trail(settings) as trail:
        with ui.progress("Judging") as bar:
            run = stage.judge_all(
                items,
                wish,
                key=settings.teacher.key.get_secret_value(),
                files=stage.TeacherFiles.of(settings.workspace),
                progress=bar.update,
            )
        stage.require_key(run, wish, settings.teacher.key.get_secret_value())
        jsonl.write(target, stage.rows(run))
        trail.note("teacher.judge", target, judged=len(run.judgements), missing=run.missing.total(), calls=run.calls)
    _report(run)
    ui.say(f"Scores: {ui.shown(target)}")
    _raise_if_poor(run, wish)


@teacher_app.command("review")
def review(
    split: Annotated[
        list[str] | None, typer.Option(metavar="SPLIT", help="gold or red; may be repeated (default: both).")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=0, help="Records per split; 0 means all.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Markdown file to write [reports/teacher/review.md].")] = None,
    model: Model = None,
    base_url: BaseUrl = None,
    budget: Money = None,
    config: ConfigFile = None,
    set_: Pairs = None,
) -> None:
    """Let the teacher read the gold and red-team records; a report shows the weak ones and proposes new red-team questions.

    Example:  medloop teacher review --split red --n 50
    """
    from medloop.teacher import review as stage

    settings = ui.settings()
    wish = _config(config, set_, model=model, base_url=base_url, budget_usd=budget)
    records = _records(settings, split or ["gold", "red"], n)
    target = output or settings.workspace.reports / "teacher/review.md"
    with open_audit_trail(settings) as trail:
        with ui.progress("Judging") as bar:
            done = stage.review(
                records,
                wish,
                key=settings.teacher.key.get_secret_value(),
                files=TeacherFiles.of(settings.workspace),
                report=target,
                progress=bar.update,
            )
        trail.note("teacher.review", target, judged=len(done.run.judgements), proposed=done.proposed)
    _report(done.run)
    ui.say(f"Report: {ui.shown(target)}. {done.proposed} new proposals in {ui.shown(done.proposals)}")
    _raise_if_poor(done.run, wish)


@teacher_app.command("probe")
def probe(
    accept: Annotated[bool, typer.Option("--accept", help="Compare later probes with this one.")] = False,
    model: Model = None,
    base_url: BaseUrl = None,
    config: ConfigFile = None,
    set_: Pairs = None,
) -> None:
    """Judge the pinned answers anew; fails when the teacher has drifted from the accepted probe.

    Example:  medloop teacher probe
    """
    from medloop.teacher import probe as stage

    settings = ui.settings()
    wish = _config(config, set_, model=model, base_url=base_url)
    files = TeacherFiles.of(settings.workspace)
    with open_audit_trail(settings) as trail:
        with ui.progress("Judging") as bar:
            done = stage.probe(wish, key=settings.teacher.key.get_secret_value(), files=files, accept=accept, progress=bar.update)
        trail.note("teacher.probe", files.judgements.with_name(stage.PROBES), alarms=len(done.alarms), accepted=accept)
    _report(done.run)
    shift = "no earlier probe to compare with" if done.shift is None else f"moved by {done.shift:+.3f} since {done.baseline}"
    if done.mean is not None and done.null_mean is not None:
        nulls = f"answers that say nothing {done.null_mean:.3f}"
        ui.say(f"Mean {done.mean:.3f} ({shift}), {nulls}, the good answer won {done.pairs_right} of {done.pairs} pairs.")
    _raise_if_poor(done.run, wish)
    if done.alarms and not accept:
        raise ResultError(
            f"The teacher has changed: {'; '.join(done.alarms)}",
            "Do not mix its scores with earlier ones; when you trust it again, run 'medloop teacher probe --accept'",
        )


@teacher_app.command("usage")
def usage(
    output: Annotated[Path | None, typer.Option(help="Table to write [logs/deepseek_teacher/teacher_usage.csv].")] = None,
) -> None:
    """Show what the teacher cost, by day, model and template, and write the table.

    Example:  medloop teacher usage
    """
    from medloop.teacher import usage as stage

    folder = ui.settings().workspace.logs / "deepseek_teacher"
    lines = stage.sums(folder)
    path = stage.write_table(folder, output)
    ui.say("day         model               requests  failed  prompt tokens  (cached)  reply tokens       USD")
    for line in lines:
        counts = f"{line.requests:>8,}  {line.failed:>6,}  {line.prompt_tokens:>13,}  {line.cached_tokens:>8,}"
        ui.say(f"{line.day}  {line.model:<18}  {counts}  {line.completion_tokens:>12,}  {line.usd:>8.4f}")
    ui.say(f"Together {sum(line.usd for line in lines):.4f} USD. Table: {ui.shown(path)}")


def _records(settings: Settings, splits: list[str], n: int) -> dict[str, list[Record]]:
    if unknown := [split for split in splits if split not in ("gold", "red")]:
        raise ConfigError(f"--split {unknown[0]} is not a reviewed split", "Known: gold, red")
    files = {split: settings.workspace.processed / SPLIT_FILES[split] for split in splits}
    return {split: list(islice(jsonl.read(path, Record), n or None)) for split, path in files.items()}


def _config(file: Path | None, pairs: list[str] | None, **flags: Any) -> TeacherConfig:

    return load_config(TeacherConfig, file=file, pairs=pairs or (), flags=flags)


def _report(run: JudgeRun) -> None:
    """Judged, missing with reasons, cost; and in what the run fell short, said plainly."""
    scores = [j.teacher_score for j in run.judgements]
    cached = sum(o.cached for o in run.outcomes)
    mean = f", mean score {sum(scores) / len(scores):.3f}" if scores else ""
    flagged = sum(j.safety_flag for j in run.judgements)
    judged = f"Judged {len(scores):,} of {len(run.outcomes):,} answers ({cached:,} from the cache)"
    ui.say(f"{judged}{mean}, {flagged:,} with a safety flag.")
    ui.say(f"{run.calls:,} requests, {run.cost:.4f} USD.")
    for reason, count in run.missing.most_common(5):
        ui.say(f"Missing {count:,}: {reason}")
    if run.degraded:
        ui.say(f"Degraded: {run.degraded}. Answers without a judgement have no score.")
    if run.changes:
        changed = ", ".join(sorted(set(run.changes)))
        ui.say(f"The teacher's version changed to {changed}. Run 'medloop teacher probe', then name it in 'fingerprints'.")


def _raise_if_poor(run: JudgeRun, config: TeacherConfig) -> None:

    if run.missing_share > config.max_missing:
        raise ResultError(
            f"{run.missing_share:.0%} of the judgements are missing (at most {config.max_missing:.0%} may be)",
            "What was judged is kept; run the same command again when the cause is gone",
        )
    if run.null_mean is not None and run.null_mean > NULL_CEILING:
        raise ResultError(
            f"Empty answers scored {run.null_mean:.2f} on average (at most {NULL_CEILING} is sound)",
            "Do not train on these scores; look at the teacher's critiques and run 'medloop teacher probe'",
        )
