"""`medloop teacher`: a stronger model judges answers; what it costs, and whether it has changed."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from medloop.cli import ui
from medloop.contracts import Record
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import ConfigError, ResultError
from medloop.knobs import load_config
from medloop.settings import Settings
from medloop.store.audit_trail import open_audit_trail
from medloop.store.files import jsonl
from medloop.store.files.atomic import require_writable
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import (
    NULL_CEILING,
    JudgeRun,
    TeacherFiles,
    judge_all,
    position_alarm,
    require_key,
    score_rows,
)
from medloop.teacher.judge_items import read_judge_items
from medloop.teacher.probe import PROBES
from medloop.teacher.probe import probe as probe_teacher
from medloop.teacher.review import review as review_records
from medloop.teacher.usage import totals, write_table

teacher_app = typer.Typer(no_args_is_help=True, help="Let a stronger model judge answers, within a budget.")

Model = Annotated[str | None, typer.Option(help="Model of the teacher (default: deepseek-flash).")]
BaseUrl = Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible service (default: https://api.deepseek.com).")]
Budget = Annotated[float | None, typer.Option("--budget", min=0.0, help="Most that this run may cost, in USD (default: 5).")]


def register(app: typer.Typer) -> None:
    app.add_typer(teacher_app, name="teacher")


@teacher_app.command("judge")
def judge(
    file: Annotated[Path, typer.Argument(help="Answers: records, chats, question and answer, or output of 'medloop predict'.")],
    questions: ui.QuestionFiles = None,
    output: Annotated[Path | None, typer.Option(help="Scores to write (default: data/rl/teacher_scores_NAME.jsonl).")] = None,
    n: Annotated[int, typer.Option("--n", min=0, help="Judge only the first N answers; 0: all.")] = 0,
    mode: Annotated[
        Literal["absolute", "group"] | None,
        typer.Option(help="absolute: each answer on its own (default); group: all answers to one question ranked in one call."),
    ] = None,
    model: Model = None,
    base_url: BaseUrl = None,
    budget: Budget = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
) -> None:
    """Let the teacher judge answers. Earlier judgements are reused; a judgement that fails is missing, not zero.

    With '--mode group' an answer is scored by its rank among all answers to the same question.

    Example:  medloop teacher judge data/processed/gold_set.jsonl --budget 2
    """
    settings = ui.settings()
    chosen = _config(config, set_, mode=mode, model=model, base_url=base_url, budget_usd=budget)
    key, files = settings.teacher.key.get_secret_value(), TeacherFiles.of(settings.workspace)
    items = read_judge_items(file, questions=questions or (), limit=n)
    target = output or settings.workspace.rl / f"teacher_scores_{file.stem}.jsonl"
    require_writable(target)
    with open_audit_trail(settings) as trail:
        with ui.progress("Judging") as bar:
            run = judge_all(items, chosen, key=key, files=files, progress=bar.update)
        require_key(run, chosen, key)
        jsonl.write(target, score_rows(run))
        trail.record("teacher.judge", target, judged=len(run.judgements), missing=run.missing.total(), calls=run.calls)
    _report(run)
    ui.say(f"Scores: {ui.shown(target)}")
    _raise_if_poor(run, chosen)


@teacher_app.command("review")
def review(
    split: Annotated[
        list[str] | None, typer.Option(metavar="SPLIT", help="gold or red; may be repeated (default: both).")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=0, help="Records per split; 0: all.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Markdown file to write (default: reports/teacher/review.md).")] = None,
    model: Model = None,
    base_url: BaseUrl = None,
    budget: Budget = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
) -> None:
    """Let the teacher read the gold and red-team records. The report lists the weak ones and proposes new red-team questions.

    Example:  medloop teacher review --split red --n 50
    """
    settings = ui.settings()
    chosen = _config(config, set_, model=model, base_url=base_url, budget_usd=budget)
    key, files = settings.teacher.key.get_secret_value(), TeacherFiles.of(settings.workspace)
    records = _records(settings, split or ["gold", "red"], n)
    target = output or settings.workspace.reports / "teacher/review.md"
    require_writable(target)
    with open_audit_trail(settings) as trail:
        with ui.progress("Judging") as bar:
            done = review_records(records, chosen, key=key, files=files, report=target, progress=bar.update)
        trail.record("teacher.review", target, judged=len(done.run.judgements), proposed=done.proposed)
    _report(done.run)
    ui.say(f"Report: {ui.shown(target)}. {done.proposed} new proposals in {ui.shown(done.proposals)}")
    _raise_if_poor(done.run, chosen)


@teacher_app.command("probe")
def probe(
    accept: Annotated[bool, typer.Option("--accept", help="Compare later probes with this one.")] = False,
    model: Model = None,
    base_url: BaseUrl = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
) -> None:
    """Let the teacher judge a fixed set of answers again; fails if its scores have moved since the probe that you accepted.

    Example:  medloop teacher probe
    """
    settings = ui.settings()
    chosen = _config(config, set_, model=model, base_url=base_url)
    key, files = settings.teacher.key.get_secret_value(), TeacherFiles.of(settings.workspace)
    with open_audit_trail(settings) as trail:
        with ui.progress("Judging") as bar:
            done = probe_teacher(chosen, key=key, files=files, accept=accept, progress=bar.update)
        trail.record("teacher.probe", files.judgements.with_name(PROBES), alarms=len(done.alarms), accepted=accept)
    _report(done.run)
    shift = "no earlier probe to compare with" if done.shift is None else f"moved by {done.shift:+.3f} since {done.baseline}"
    if done.mean is not None and done.null_mean is not None:
        nulls = f"empty answers {done.null_mean:.3f}"
        ui.say(f"Mean {done.mean:.3f} ({shift}), {nulls}, the good answer won {done.pairs_right} of {done.pairs} pairs.")
    _raise_if_poor(done.run, chosen)
    if done.alarms and not accept:
        raise ResultError(
            f"The teacher has changed: {'; '.join(done.alarms)}",
            "Do not mix its scores with earlier ones; when you trust it again, run 'medloop teacher probe --accept'",
        )


@teacher_app.command("usage")
def usage(
    output: Annotated[
        Path | None, typer.Option(help="Table to write (default: logs/deepseek_teacher/teacher_usage.csv).")
    ] = None,
    json_: ui.AsJson = False,
) -> None:
    """Show what the teacher cost, by day, model and template, and write the table.

    Example:  medloop teacher usage
    """
    folder = ui.settings().workspace.logs / "deepseek_teacher"
    lines = totals(folder)
    path = write_table(folder, output)
    if json_:
        ui.say_json(lines)
        return
    cells = [
        (
            line.day, line.model, f"{line.requests:,}", f"{line.failed:,}", f"{line.prompt_tokens:,}", f"{line.cached_tokens:,}",
            f"{line.completion_tokens:,}", f"{line.usd:.4f}",
        )
        for line in lines
    ]  # fmt: skip
    ui.table(("day", "model", "requests", "failed", "prompt tokens", "cached", "reply tokens", "USD"), cells)
    ui.say(f"Total {sum(line.usd for line in lines):.4f} USD. Table: {ui.shown(path)}")


def _records(settings: Settings, splits: list[str], n: int) -> dict[str, list[Record]]:
    if unknown := [split for split in splits if split not in ("gold", "red")]:
        raise ConfigError(f"--split: '{unknown[0]}' is not reviewed by the teacher", "Use gold or red")
    files = {split: settings.workspace.processed / SPLIT_FILES[split] for split in splits}
    return {split: list(islice(jsonl.read(path, Record), n or None)) for split, path in files.items()}


def _config(file: Path | None, pairs: list[str] | None, **flags: Any) -> TeacherConfig:
    return load_config(TeacherConfig, file=file, pairs=pairs or (), flags=flags)


def _report(run: JudgeRun) -> None:
    """What was judged, what is missing and why, and the cost."""
    if run.missing:
        why = run.degraded or run.missing.most_common(1)[0][0]
        ui.say(f"Degraded: {run.missing.total():,} of {len(run.results):,} answers have no judgement ({why}).")
    scores = [judgement.teacher_score for judgement in run.judgements]
    cached = sum(result.cached for result in run.results)
    mean = f", mean score {sum(scores) / len(scores):.3f}" if scores else ""
    flagged = sum(j.safety_flag for j in run.judgements)
    judged = f"Judged {len(scores):,} of {len(run.results):,} answers ({cached:,} from the cache)"
    ui.say(f"{judged}{mean}, {flagged:,} with a safety flag.")
    ui.say(f"{run.calls:,} requests, {run.cost:.4f} USD.")
    for reason, count in run.missing.most_common(5):
        ui.say(f"Missing {count:,}: {reason}")
    _report_groups(run)
    if run.new_fingerprints:
        changed = ", ".join(sorted(set(run.new_fingerprints)))
        ui.say(f"The teacher's version changed to {changed}. Probe it, then add it to the setting 'fingerprints'.")
        ui.next_step("teacher probe")


def _report_groups(run: JudgeRun) -> None:
    """Of rankings: how many groups, what could not be compared, and whether the order of the answers mattered."""
    if groups := {judgement.group for judgement in run.judgements if judgement.group}:
        ui.say(f"{len(groups):,} groups of answers to the same question were ranked.")
    if alone := sum(bool(result.not_compared) for result in run.results):
        ui.say(f"{alone:,} answers have no score, because their question has no other answer to rank them against.")
    if agreements := run.agreements:
        mean = sum(agreements) / len(agreements)
        ui.say(f"Position check: {len(agreements):,} groups ranked in both orders agree on {mean:.0%} of their pairs.")


def _raise_if_poor(run: JudgeRun, config: TeacherConfig) -> None:
    if run.missing_share > config.max_missing:
        raise ResultError(
            f"{run.missing_share:.0%} of the judgements are missing (allowed: {config.max_missing:.0%})",
            "The others are stored; run the same command again when the cause is fixed",
        )
    if run.null_mean is not None and run.null_mean > NULL_CEILING:
        raise ResultError(
            f"Empty answers scored {run.null_mean:.2f} on average (allowed: {NULL_CEILING})",
            "Do not train on these scores; read the teacher's critiques and run 'medloop teacher probe'",
        )
    if alarm := position_alarm(run.agreements, config):
        raise ResultError(f"The teacher judges places, not answers: {alarm}", "Do not train on these scores; try another model")
