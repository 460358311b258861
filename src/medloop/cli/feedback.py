"""`medloop feedback`: numbers about what people said, the review queue, and reasons to train again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.data.feedback.build import FeedbackConfig
from medloop.errors import ConfigError
from medloop.feedback.insight import metrics_report as report
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig
from medloop.feedback.insight.metrics_report import write
from medloop.feedback.review.queue import QueueConfig, next_item
from medloop.feedback.review.queue import skip as give_back
from medloop.feedback.review.queue import stats as count
from medloop.feedback.trigger import TriggerConfig, config_of, look, weigh
from medloop.jobs.retrain import file_jobs
from medloop.knobs import load_config
from medloop.loop.feedback import build_from_feedback, fill_queue, measure_feedback
from medloop.settings import Settings
from medloop.store.audit_trail import actor, open_audit_trail
from medloop.store.db import Store
from medloop.store.records.review_queue import Leased, listed
from medloop.store.records.users import list_users

feedback_app = typer.Typer(no_args_is_help=True, help="What people said: numbers, the review queue, reasons to train again.")
queue_app = typer.Typer(no_args_is_help=True, help="The review queue: what raters are asked next, and why.")
feedback_app.add_typer(queue_app, name="queue")

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting of this step; may be repeated.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file with settings of this step.")]
Rater = Annotated[str, typer.Option(help="User id or name of the rater.")]
ItemId = Annotated[str, typer.Argument(metavar="ITEM_ID", help="As 'queue next' and 'queue list' show it.")]


def register(app: typer.Typer) -> None:
    app.add_typer(feedback_app, name="feedback")


@feedback_app.command("metrics")
def metrics(
    since: Annotated[str, typer.Option(help="Only records since: a date, a time, or 30d, 12h (default: all).")] = "",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Also write a report: Markdown, HTML, JSON and pictures.")
    ] = None,
    traces: Annotated[
        int | None, typer.Option(help="Traces to open for the coverage by risk; 0 opens no text (default 1000).")
    ] = None,
    set_: Set = None,
    json_: AsJson = False,
) -> None:
    """Volume, ratings, agreement, raters with their drift, coverage by risk, and what to look at.

    Example:  medloop feedback metrics --since 30d --output reports/feedback/march.md
    """
    settings = ui.settings()
    flags = {"since": _time(since) if since else None, "traces": traces}
    config = load_config(MetricsConfig, pairs=set_ or (), flags=flags, defaults={"seed": settings.seed})
    if output is not None and output.suffix != ".md":
        raise ConfigError(f"--output {output} is no Markdown file", "Name it FILE.md; the other files lie beside it")
    with open_audit_trail(settings) as trail:
        found = measure_feedback(settings, trail.store, config)
        if output is not None:
            path = output.expanduser().absolute()
            write(found, path)
            trail.note("feedback.metrics", path, alerts=len(found.alerts))
    if json_:
        ui.say(found.model_dump_json(indent=2))
    else:
        _show(found)
    if output is not None and not json_:
        ui.say(f"Report: {ui.shown(path)} (with .html, .json and pictures beside it)")


def _time(text: str) -> datetime:
    """`2026-03-01`, `2026-03-01T12:00Z`, `30d` or `12h`; without a zone it is UTC."""
    if ago := re.fullmatch(r"(\d{1,5})([dh])", text):
        return datetime.now(UTC) - timedelta(**{{"d": "days", "h": "hours"}[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--since {text} is no time", "Examples: 2026-03-01, 2026-03-01T12:00, 30d, 12h") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _show(found: FeedbackMetrics) -> None:
    for columns, rows in (
        (("", ""), report.summary(found)),
        (report.AGREEMENT, report.agreement_rows(found)),
        (report.RATERS, report.rater_rows(found)),
        (report.COVERAGE, report.coverage_rows(found)),
    ):
        if rows:
            ui.table(columns, rows)
            ui.say()
    for line in report.alert_lines(found):
        ui.say(f"LOOK  {line}")
    if not found.alerts:
        ui.say("Nothing to look at.")


@queue_app.command("fill")
def fill(
    size: Annotated[int | None, typer.Option(help="Open items there shall be (default 200).")] = None,
    raters: Annotated[int | None, typer.Option(help="People per item (default 2).")] = None,
    model: Annotated[str, typer.Option(help="Reward model whose doubt counts, under models/reward (default: none).")] = "",
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="More answers to ask about, JSON lines; those of one group as pairs too.")
    ] = None,
    questions: ui.QuestionFiles = None,
    config: Config = None,
    set_: Set = None,
    json_: AsJson = False,
) -> None:
    """Top the queue up with what teaches most: doubt, disagreement, novelty, risk, complaints; a share for each stratum.

    Example:  medloop feedback queue fill --size 200 --model first
    """
    settings = ui.settings()
    chosen = load_config(QueueConfig, file=config, pairs=set_ or (), flags={"size": size, "raters": raters})
    with open_audit_trail(settings) as trail:
        done = fill_queue(settings, trail.store, config=chosen, reward_model=model, answers=answers, questions=questions or ())
    if json_:
        ui.say(json.dumps(asdict(done), indent=2))
        return
    ui.say(f"Looked at {done.considered:,} answers and pairs, added {done.added:,}.")
    for name, n in done.by_stratum.items():
        ui.say(f"  {name:<12} {n:,}")
    if done.by_reason:
        ui.say("Reasons, on average: " + ", ".join(f"{name} {value:.2f}" for name, value in done.by_reason.items()))


@queue_app.command("list")
def list_(
    state: Annotated[str, typer.Option(help="open, disputed, done or all.")] = "open",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most items to show.")] = 20,
    json_: AsJson = False,
) -> None:
    """Items by priority with their reasons; no texts.

    Example:  medloop feedback queue list --state disputed
    """
    if state not in ("open", "disputed", "done", "all"):
        raise ConfigError(f"--state {state} is unknown", "Use open, disputed, done or all")
    with open_audit_trail(ui.settings()) as trail:
        rows = listed(trail.store, state=None if state == "all" else state, limit=limit)
    if json_:
        ui.say(json.dumps([asdict(row) for row in rows], indent=2))
        return
    cells = []
    for row in rows:
        why = ", ".join(f"{name} {value:.2f}" for name, value in sorted(row.reasons.items(), key=lambda pair: -pair[1]))
        rated = f"{row.done}/{row.raters}"
        cells.append((row.item_id, row.kind, row.state, row.stratum, f"{row.priority:.2f}", rated, why))
    ui.table(("item", "kind", "state", "risk", "priority", "rated", "why"), cells)
    if not rows:
        ui.say(f"No items ({state}).")


@queue_app.command("next")
def next_(
    rater: Rater,
    senior: Annotated[bool, typer.Option("--senior", help="May settle disputes.")] = False,
    kind: Annotated[list[str] | None, typer.Option(help="rate, compare or correct; may be repeated (default: all).")] = None,
    json_: AsJson = False,
) -> None:
    """Hand the next item to a rater; it is theirs for half an hour. Shows the texts, which leaves a line in the audit log.

    Example:  medloop feedback queue next --rater li
    """
    if wrong := set(kind or ()) - {"rate", "compare", "correct"}:
        raise ConfigError(f"--kind {min(wrong)} is unknown", "Use rate, compare or correct")
    with open_audit_trail(ui.settings()) as trail:
        found = next_item(trail.store, _user_id(trail.store, rater), senior=senior, kinds=kind)
    if found is None:
        ui.say("null" if json_ else f"Nothing for {rater} now. Fill the queue with: medloop feedback queue fill")
        return
    _show_item(found, json_)


def _user_id(store: Store, name: str) -> str:
    """A user's id for their name; any other text names a rater outside the user list."""
    return next((user.user_id for user in list_users(store) if user.name == name), name)


def _show_item(found: Leased, json_: bool) -> None:

    if json_:
        said = {**vars(found), "content": found.content.model_dump(mode="json"), "until": found.until.isoformat()}
        ui.say(json.dumps(said, ensure_ascii=False, indent=2))
        return
    why = ", ".join(f"{name} {value:.2f}" for name, value in found.reasons.items()) or "-"
    ui.say(f"{found.item_id}  {found.kind}  {found.stratum}  until {found.until:%H:%M} UTC  (why: {why})")
    if found.adjudicates:
        ui.say("Others disagreed about this one; this verdict is final.")
    for message in found.content.prompt:
        ui.say(f"\n[{message.role}] {message.content}")
    order = (1, 0) if found.shown_first == "b" else range(len(found.content.answers))
    for at in order:
        ui.say(f"\n[{'answer' if found.kind != 'compare' else 'answer ' + 'ab'[at]}] {found.content.answers[at]}")


@queue_app.command("skip")
def skip(item_id: ItemId, rater: Rater) -> None:
    """Give an item back; the rater does not get it again.

    Example:  medloop feedback queue skip qi_5f0c1d2e3b4a59687786950413223140 --rater li
    """
    with open_audit_trail(ui.settings()) as trail:
        give_back(trail.store, item_id, _user_id(trail.store, rater))
    ui.say(f"{item_id} is free for others.")


@queue_app.command("stats")
def stats(json_: AsJson = False) -> None:
    """How full the queue is, and what was handed out lately.

    Example:  medloop feedback queue stats
    """
    with open_audit_trail(ui.settings()) as trail:
        found = count(trail.store)
    if json_:
        ui.say(json.dumps(asdict(found), default=str, indent=2))
        return
    for name, numbers in (
        ("items", found.states),
        ("open, by risk", found.open_by_stratum),
        ("open, by kind", found.open_by_kind),
        ("turns", found.turns),
        ("last turns, by risk", found.given_lately),
    ):
        ui.say(f"{name:<20} " + (", ".join(f"{key} {n:,}" for key, n in numbers.items()) or "none"))


@feedback_app.command("trigger")
def trigger(
    every: Annotated[
        int | None, typer.Option(help="New usable records that are reason enough (default: the setting feedback.retrain_every).")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="What the job trains (default REWARD).")] = None,
    submit: Annotated[
        bool, typer.Option("--submit", help="Build the data and file a job for each trigger that has none.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen; nothing is written.")] = False,
    config: Config = None,
    set_: Set = None,
    json_: AsJson = False,
) -> None:
    """Is there reason to train again? New records, critical flags, raters who changed, agreement that fell.

    Example:  medloop feedback trigger --every 1000 --submit
    """
    if submit and dry_run:
        raise ConfigError("--submit and --dry-run do not go together", "Leave one of them out")
    settings = ui.settings()
    usual = {"every": config_of(settings).every}
    chosen: TriggerConfig = load_config(
        TriggerConfig, file=config, pairs=set_ or (), flags={"every": every, "stage": stage}, defaults=usual
    )
    with open_audit_trail(settings) as trail:
        found = look(trail.store, chosen, measured=weigh(trail.store), actor=actor(), write=not dry_run)
        filed = _file(settings, trail.store) if submit else []
    if json_:
        made = found.trigger.trigger_id if found.trigger else None
        said = {"reason": found.reason, "words": found.words, "usable": found.usable, "trigger": made, "jobs": filed}
        ui.say(json.dumps(said, indent=2))
        return
    if found.reason is None:
        ui.say(f"No reason yet: {found.words}.")
    else:
        made = f" ({found.trigger.trigger_id})" if found.trigger else " (dry run: nothing was written)"
        ui.say(f"Reason to train again: {found.reason}, {found.words}{made}.")
    for name in filed:
        ui.say(f"Filed {name}; it runs with 'medloop jobs work' or the API.")
    if found.trigger and not submit:
        ui.say("File the job with: medloop feedback trigger --submit")


def _file(settings: Settings, store: Store) -> list[str]:
    """A job for each trigger that waits, on data built now."""

    def prepare(_: object) -> None:
        build_from_feedback(store, FeedbackConfig(), seed=settings.seed, actor=actor())

    return [f"{one.job_id} for {one.trigger.trigger_id}" for one in file_jobs(store, settings, actor=actor(), prepare=prepare)]
