"""`medloop feedback`: metrics of the feedback, the review queue, and the retrain trigger."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.data.feedback.build import FeedbackConfig
from medloop.errors import ConfigError
from medloop.feedback.insight import metrics_report
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig
from medloop.feedback.insight.skill import measure_skill
from medloop.feedback.review.queue import QueueConfig, next_item
from medloop.feedback.review.queue import skip as skip_item
from medloop.feedback.review.queue import stats as queue_stats
from medloop.feedback.trigger import TriggerConfig, check_trigger, measure_evidence, trigger_config
from medloop.jobs.retrain import file_jobs, pending_jobs
from medloop.knobs import load_config
from medloop.loop.feedback import build_from_feedback, fill_queue, measure_feedback, queue_new_complaints
from medloop.settings import Settings
from medloop.store.audit_trail import actor, open_audit_trail
from medloop.store.db import Store
from medloop.store.records import users
from medloop.store.records.review_queue import LeasedItem, list_items
from medloop.store.records.users import list_users

feedback_app = typer.Typer(no_args_is_help=True, help="Feedback metrics, the review queue, and the retrain trigger.")
queue_app = typer.Typer(no_args_is_help=True, help="The review queue: fill it, list it, hand out items to raters.")
feedback_app.add_typer(queue_app, name="queue")

Rater = Annotated[str, typer.Option(help="Name or user id of the rater.")]
ItemId = Annotated[str, typer.Argument(metavar="ITEM_ID", help="Id of the item, from 'queue next' or 'queue list'.")]


def register(app: typer.Typer) -> None:
    app.add_typer(feedback_app, name="feedback")


@feedback_app.command("metrics")
def metrics(
    since: Annotated[str, typer.Option(help="Only newer records: a date, a time, 30d or 12h (default: all).")] = "",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Also write a report with HTML, JSON and plots beside it.")
    ] = None,
    traces: Annotated[
        int | None, typer.Option(help="Traces to read for the coverage by risk; 0 reads no text (default: 1000).")
    ] = None,
    set_: ui.SetPairs = None,
    json_: ui.AsJson = False,
) -> None:
    """Show volume, ratings, agreement, drift of the raters, coverage by risk, and alerts.

    Example:  medloop feedback metrics --since 30d --output reports/feedback/march.md
    """
    settings = ui.settings()
    flags = {"since": ui.parse_since(since) if since else None, "traces": traces}
    config = load_config(MetricsConfig, pairs=set_ or (), flags=flags, defaults={"seed": settings.seed})
    if output is not None and output.suffix != ".md":
        raise ConfigError(f"--output must end in .md, but is '{output.name}'", "Example: --output reports/feedback/march.md")
    with open_audit_trail(settings) as trail:
        measured, names = measure_feedback(settings, trail.store, config), users.names(trail.store)
        if output is not None:
            path = output.expanduser().absolute()
            metrics_report.write_report(measured, path, names)
            trail.record("feedback.metrics", path, alerts=len(measured.alerts))
    if json_:
        ui.say(measured.model_dump_json(indent=2))
    else:
        _show(metrics_report.with_names(measured, names))
    if output is not None and not json_:
        ui.say(f"Report: {ui.shown(path)} (with .html, .json and plots beside it)")


def _show(measured: FeedbackMetrics) -> None:
    for columns, rows in (
        (("", ""), metrics_report.summary(measured)),
        (metrics_report.SITES, metrics_report.site_rows(measured)),
        (metrics_report.AGREEMENT, metrics_report.agreement_rows(measured)),
        (metrics_report.RATERS, metrics_report.rater_rows(measured)),
        (metrics_report.COVERAGE, metrics_report.coverage_rows(measured)),
    ):
        if rows:
            ui.table(columns, rows)
            ui.say()
    for line in metrics_report.alert_lines(measured):
        ui.say(f"ALERT  {line}")
    if not measured.alerts:
        ui.say("No alerts.")


BECAUSE = {
    "role": "role (no evidence yet)", "evidence": "evidence", "drift": "drift: judged by what came after it",
    "chance": "no better than chance: does not count", "not_rater": "not a rater: only dislikes count",
}  # fmt: skip


@feedback_app.command("raters")
def raters(json_: ui.AsJson = False) -> None:
    """Show how much each rater's vote counts when a dataset is built, and why.

    The weight is the log odds of the rater's estimated accuracy; a vote of weight 0 does not count. 'compared' is how many
    judgements could be compared with those of other raters or with a known answer, 'known right' how many of the known ones were
    right. Engineers, admins and programs that name no clinician are not raters: only their dislikes count. No text is read.

    Example:  medloop feedback raters
    """
    with open_audit_trail(ui.settings()) as trail:
        skills, people = measure_skill(trail.store), {user.user_id: user for user in list_users(trail.store)}
    ranked = sorted(skills.items(), key=lambda entry: (-entry[1].weight, entry[0]))
    if json_:
        ui.say_json({name: {**asdict(skill), "because": skill.because} for name, skill in ranked})
        return
    rows = [
        (
            people[name].name if name in people else name, people[name].role if name in people else "-", f"{skill.weight:.2f}",
            f"{skill.accuracy:.2f}", f"{skill.shared:,}", f"{skill.right:,}/{skill.known:,}", BECAUSE[skill.because],
        )
        for name, skill in ranked
    ]  # fmt: skip
    ui.table(("rater", "role", "weight", "accuracy", "compared", "known right", "because of"), rows)


@queue_app.command("fill")
def fill(
    size: Annotated[int | None, typer.Option(help="Open items to fill up to (default: 200).")] = None,
    raters: Annotated[int | None, typer.Option(help="Raters per item (default: 2).")] = None,
    model: Annotated[str, typer.Option(help="Reward model whose uncertainty counts, under models/reward (default: none).")] = "",
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="More answers to rate, as JSON lines; a group also gives pairs."),
    ] = None,
    questions: ui.QuestionFiles = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
    json_: ui.AsJson = False,
) -> None:
    """Add answers that people should judge next: risky, disputed, uncertain or new ones, and some at random.

    Answers that somebody complained about are in the queue without this command. Some comparisons whose better answer is known
    are added to measure the raters; nothing tells a rater which these are.

    Example:  medloop feedback queue fill --size 200 --model first
    """
    settings = ui.settings()
    chosen = load_config(QueueConfig, file=config, pairs=set_ or (), flags={"size": size, "raters": raters})
    with open_audit_trail(settings) as trail:
        filled = fill_queue(settings, trail.store, config=chosen, reward_model=model, answers=answers, questions=questions or ())
    if json_:
        ui.say(json.dumps(asdict(filled), indent=2))
        return
    ui.say(f"Considered {filled.considered:,} answers and pairs, added {filled.added:,}.")
    for name, n in filled.by_stratum.items():
        ui.say(f"  {name:<12} {n:,}")
    if filled.checks:
        ui.say(f"Added {filled.checks:,} check items, whose better answer is known.")
    if filled.by_reason:
        ui.say("Reasons, on average: " + ", ".join(f"{name} {value:.2f}" for name, value in filled.by_reason.items()))


@queue_app.command("list")
def list_(
    state: Annotated[str, typer.Option(help="State of the items: open, disputed, done or all.")] = "open",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of items.")] = 20,
    json_: ui.AsJson = False,
) -> None:
    """List the items of the queue, the most important first, with the reasons why they are in it. Shows no text.

    Example:  medloop feedback queue list --state disputed
    """
    if state not in ("open", "disputed", "done", "all"):
        raise ConfigError(f"--state: '{state}' is unknown", "Use open, disputed, done or all")
    with open_audit_trail(ui.settings()) as trail:
        queue_new_complaints(trail.store)
        rows = list_items(trail.store, state=None if state == "all" else state, limit=limit)
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
    senior: Annotated[bool, typer.Option("--senior", help="The rater may settle disputes.")] = False,
    kind: Annotated[list[str] | None, typer.Option(help="rate, compare or correct; may be repeated (default: all).")] = None,
    json_: ui.AsJson = False,
) -> None:
    """Show the next item for a rater and reserve it for half an hour. The audit log records that its text was read.

    Asked again, the rater gets the same item until it is judged or skipped. Comparisons show no reason why they were chosen.

    Example:  medloop feedback queue next --rater li
    """
    if wrong := set(kind or ()) - {"rate", "compare", "correct"}:
        raise ConfigError(f"--kind: '{min(wrong)}' is unknown", "Use rate, compare or correct")
    with open_audit_trail(ui.settings()) as trail:
        queue_new_complaints(trail.store)
        item = next_item(trail.store, _user_id(trail.store, rater), senior=senior, kinds=kind)
    if item is None:
        if json_:
            ui.say("null")
        else:
            ui.next_step("feedback queue fill", f"Nothing for {rater} right now. Fill the queue with:")
        return
    _show_item(item, json_)


def _user_id(store: Store, name: str) -> str:
    """The id of the user with this name; any other text is a rater outside the user list."""
    return next((user.user_id for user in list_users(store) if user.name == name), name)


def _show_item(item: LeasedItem, json_: bool) -> None:
    if json_:
        shown = item.content.model_dump(mode="json", include={"prompt", "answers", "contexts"})  # as over HTTP
        content = {**vars(item), "content": shown, "until": item.until.isoformat()}
        ui.say(json.dumps(content, ensure_ascii=False, indent=2))
        return
    why = ", ".join(f"{name} {value:.2f}" for name, value in item.reasons.items()) or "-"
    ui.say(f"{item.item_id}  {item.kind}  {item.stratum}  until {item.until:%H:%M} UTC  (why: {why})")
    if item.adjudicates:
        ui.say("Other raters disagreed about this item; this verdict is final.")
    for message in item.content.prompt:
        ui.say(f"\n[{message.role}] {message.content}")
    order = (1, 0) if item.shown_first == "b" else range(len(item.content.answers))
    for index in order:
        ui.say(f"\n[{'answer' if item.kind != 'compare' else 'answer ' + 'ab'[index]}] {item.content.answers[index]}")


@queue_app.command("skip")
def skip(item_id: ItemId, rater: Rater) -> None:
    """Give an item back without judging it; this rater gets it again after 12 hours at the earliest, when nothing new is left.

    Example:  medloop feedback queue skip qi_5f0c1d2e3b4a59687786950413223140 --rater li
    """
    with open_audit_trail(ui.settings()) as trail:
        skip_item(trail.store, item_id, _user_id(trail.store, rater))
    ui.say(f"{item_id} is back in the queue for other raters.")


@queue_app.command("stats")
def stats(json_: ui.AsJson = False) -> None:
    """Show how many items wait, by risk and kind, and which ones raters were given last. Shows no text.

    Example:  medloop feedback queue stats
    """
    with open_audit_trail(ui.settings()) as trail:
        queue_new_complaints(trail.store)
        numbers = queue_stats(trail.store)
    if json_:
        ui.say(json.dumps(asdict(numbers), default=str, indent=2))
        return
    for name, counts in (
        ("items", numbers.states),
        ("open, by risk", numbers.open_by_stratum),
        ("open, by kind", numbers.open_by_kind),
        ("turns", numbers.turns),
        ("last turns, by risk", numbers.given_lately),
    ):
        ui.say(f"{name:<20} " + (", ".join(f"{key} {n:,}" for key, n in counts.items()) or "none"))


@feedback_app.command("trigger")
def trigger(
    every: Annotated[
        int | None,
        typer.Option(help="New usable records that are a reason (default: the setting feedback.retrain_every)."),
    ] = None,
    stage: Annotated[
        list[str] | None, typer.Option(help="Stage to train, one job each; may be repeated (default: REWARD and SFT).")
    ] = None,
    submit: Annotated[
        bool, typer.Option("--submit", help="Build the data and submit the jobs of each trigger that has none.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen; write nothing.")] = False,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
    json_: ui.AsJson = False,
) -> None:
    """Check for a reason to retrain: new records, critical flags, the schedule, drifting raters, falling agreement.

    Example:  medloop feedback trigger --every 1000 --submit
    """
    if submit and dry_run:
        raise ConfigError("--submit and --dry-run exclude each other", "Leave one of them out")
    settings = ui.settings()
    usual = trigger_config(settings).model_dump(include={"every", "days", "cooldown_hours", "raters"})
    chosen: TriggerConfig = load_config(
        TriggerConfig, file=config, pairs=set_ or (), flags={"every": every, "stages": stage or None}, defaults=usual
    )
    with open_audit_trail(settings) as trail:
        evidence, pending = measure_evidence(trail.store), bool(pending_jobs(settings))
        check = check_trigger(trail.store, chosen, evidence=evidence, pending=pending, actor=actor(), write=not dry_run)
        submitted, skipped = _submit_jobs(settings, trail.store) if submit else ([], [])
    if json_:
        trigger_id = check.trigger.trigger_id if check.trigger else None
        values = {"reason": check.reason, "words": check.words, **asdict(check.records), "trigger": trigger_id}
        values |= {"jobs": submitted, "skipped": skipped, "waits": check.waits and check.waits.words}
        ui.say(json.dumps(values, indent=2))
        return
    if check.reason is None:
        ui.say(f"No reason yet: {check.words}.")
    else:
        where = f" ({check.trigger.trigger_id})" if check.trigger else " (dry run: nothing was written)" if dry_run else ""
        ui.say(f"Reason to retrain: {check.reason}, {check.words}{where}.")
    if check.waits is not None and check.trigger is None:
        ui.say(f"No trigger for now: {check.waits.words}.")
    records = check.records
    ui.say(
        f"New records: {records.counted(chosen.raters):,} count, {records.waiting_for_consent:,} wait for consent,"
        f" {records.quarantined:,} are in quarantine."
    )
    for sentence in skipped:
        ui.say(sentence)
    for name in submitted:
        ui.say(f"Submitted {name}; it runs while the API serves.")
    if submitted:
        ui.next_step("jobs work", "Run it without the API:")
    if check.trigger and not submit:
        ui.next_step("feedback trigger --submit", "Submit the job with:")


def _submit_jobs(settings: Settings, store: Store) -> tuple[list[str], list[str]]:
    """The jobs of each waiting trigger, on data built now; and why a stage was left out."""
    skipped: list[str] = []

    def prepare(_: object) -> None:
        build_from_feedback(store, FeedbackConfig(), seed=settings.seed, actor=actor())

    filed = file_jobs(store, settings, actor=actor(), prepare=prepare, on_skip=skipped.append)
    return [f"{job.job_id} for {job.trigger.trigger_id}" for job in filed], skipped
