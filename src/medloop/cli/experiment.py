"""`medloop experiment`: champion against challenger on live traffic, with a test that may be looked at at any time."""

from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts.experiment import DEFAULT_SITE, Estimate, ExperimentPlan, ExperimentReport, Metric, version_name
from medloop.errors import ConfigError
from medloop.experiment.plan import PlanConfig, days, make_plan, spread_of_rate
from medloop.experiment.report_page import write_report
from medloop.loop import experiment as loop
from medloop.loop.evaluation import open_model, parse_examined
from medloop.loop.experiment_shadow import shadow as run_shadow
from medloop.registry import promote as aliases
from medloop.store.audit_trail import actor
from medloop.store.db import Store, open_store
from medloop.store.records import experiments
from medloop.store.records.routes import live_route

experiment_app = typer.Typer(
    no_args_is_help=True, help="Compare champion and challenger on live traffic: plan, start, watch, decide; guards stop harm."
)

ExperimentId = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Id of the experiment, from 'medloop experiment list'.")]
Enrolled = Annotated[
    float, typer.Option("--share", min=0.001, max=1.0, help="Share of all users who take part, in both arms together.")
]
Reason = Annotated[str, typer.Option(help="Why, for the audit log; without names of people.")]


def register(app: typer.Typer) -> None:
    app.add_typer(experiment_app, name="experiment")


@experiment_app.command("plan")
def plan(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is about, for lists.")],
    champion: Annotated[str, typer.Option(metavar="VERSION", help="Version in use (default: the registry's champion).")] = "",
    challenger: Annotated[str, typer.Option(metavar="VERSION", help="Version to try (default: the registry's challenger).")] = "",
    primary: Annotated[Metric, typer.Option(help="The one metric that decides.")] = "satisfaction",
    effect: Annotated[float, typer.Option(min=0.001, max=0.999, help="Smallest improvement that is worth having.")] = 0.05,
    spread: Annotated[
        float | None, typer.Option(min=0.001, max=1.0, help="Standard deviation of the metric between users.")
    ] = None,
    base: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Rate of a yes-or-no metric now; gives the spread.")
    ] = None,
    split: Annotated[float, typer.Option(min=0.01, max=0.99, help="Share of those who take part that get the challenger.")] = 0.5,
    power: Annotated[float, typer.Option(min=0.5, max=0.99, help="Chance to find such an improvement.")] = 0.8,
    window_hours: Annotated[
        float, typer.Option(min=0.0, max=2160.0, help="Hours after a user's first value that count; 0: only the first value.")
    ] = 24.0,
    min_users: Annotated[int, typer.Option(min=2, help="Users of each arm before the first verdict.")] = 50,
    site: Annotated[str, typer.Option(help="Site whose users it is about.")] = DEFAULT_SITE,
    users_per_day: Annotated[float | None, typer.Option(min=0.01, help="New users a day, for the duration.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compute how many users it needs; store nothing.")] = False,
    json_: ui.AsJson = False,
) -> None:
    """Plan an experiment: how many users it needs and how long that takes. Nothing starts, and the plan cannot change later.

    Example:  medloop experiment plan "second round" --effect 0.05 --base 0.7 --users-per-day 120
    """
    if spread is not None and base is not None:
        raise ConfigError("--spread and --base say the same thing in two ways", "Name one of them")
    known = spread_of_rate(base, effect) if base is not None else spread if spread is not None else PlanConfig().spread
    config = PlanConfig(
        primary=primary, min_effect=effect, spread=known, split=split, power=power, window_hours=window_hours, min_users=min_users
    )  # fmt: skip
    with open_store(ui.settings()) as store:
        names = {"champion": champion or _holder(store, "champion"), "challenger": challenger or _holder(store, "challenger")}
        made = make_plan(config, name=name, by=actor(), site=site, **names)
        if not dry_run:
            loop.plan_experiment(store, made)
    if json_:
        ui.say_json({"plan": made, "stored": not dry_run})
        return
    _say_plan(made, users_per_day)
    if not dry_run:
        ui.next_step(f"experiment start {made.experiment_id} --share 0.1")


@experiment_app.command("start")
def start(experiment_id: ExperimentId, share: Enrolled = 1.0) -> None:
    """Start an experiment. One runs at a site at a time; each user keeps their arm until it ends.

    Where versions are deployed, they must be those of the plan.

    Example:  medloop experiment start exp_0198a2… --share 0.1
    """
    with open_store(ui.settings()) as store:
        started = loop.start(store, experiment_id, enrolled=share, by=actor())
        is_deployed = live_route(store) is not None
    ui.say(f"{experiment_id} runs: {share:.0%} of the users take part, {share * started.plan.split:.1%} get the challenger.")
    if not is_deployed:
        ui.say("Nothing is deployed here, so no model server was checked: what answers must name its version in its traces.")
    ui.next_step(f"experiment status {experiment_id}")


@experiment_app.command("ramp")
def ramp(experiment_id: ExperimentId, share: Enrolled) -> None:
    """Let a larger share of the users take part. Nobody changes arms.

    Example:  medloop experiment ramp exp_0198a2… --share 0.5
    """
    with open_store(ui.settings()) as store:
        loop.ramp(store, experiment_id, enrolled=share, by=actor())
    ui.say(f"{share:.0%} of the users take part now.")


@experiment_app.command("list")
def list_(
    site: Annotated[str | None, typer.Option(help="Only experiments of this site.")] = None, json_: ui.AsJson = False
) -> None:  # fmt: skip
    """List experiments, newest first.

    Example:  medloop experiment list --json
    """
    with open_store(ui.settings()) as store:
        known = experiments.every(store, site=site)
    if json_:
        rows = [
            {"plan": row.plan, "state": row.state, "enrolled": row.enrolled, "verdict": loop.verdict_of(row)} for row in known
        ]
        ui.say_json(rows)
        return
    if not known:
        ui.say("There are no experiments yet.")
        ui.next_step("experiment plan NAME --champion VERSION --challenger VERSION", "Plan one:")
        return
    ui.table(
        ("experiment", "name", "site", "champion", "challenger", "state", "verdict"),
        [
            (
                row.plan.experiment_id, row.plan.name, row.plan.site, row.plan.champion, row.plan.challenger, row.state,
                reached.outcome if (reached := loop.verdict_of(row)) else "",
            )
            for row in known
        ],
    )  # fmt: skip


@experiment_app.command("status")
def status(experiment_id: ExperimentId, json_: ui.AsJson = False) -> None:
    """Read what is new and show where the experiment stands. A verdict stops it; a guard also withdraws the version.

    Looking as often as you like is safe: the intervals hold for all looks together.

    Example:  medloop experiment status exp_0198a2…
    """
    with open_store(ui.settings()) as store:
        report = loop.refresh(store, experiment_id)
    if json_:
        ui.say_json(report)
        return
    _say_report(report)
    if report.state == "planned":
        ui.next_step(f"experiment start {experiment_id} --share 0.1")
    elif report.state == "stopped":
        better = report.verdict is not None and report.verdict.outcome == "better"
        ui.next_step(f"experiment verdict {experiment_id} {'--adopt' if better else '--keep'} --reason REASON", "Decide:")


@experiment_app.command("stop")
def stop(experiment_id: ExperimentId, reason: Reason = "") -> None:
    """Stop a running experiment before its verdict; everybody gets the champion.

    Example:  medloop experiment stop exp_0198a2… --reason "new base model"
    """
    with open_store(ui.settings()) as store:
        loop.stop(store, experiment_id, by=actor(), reason=reason)
    ui.say(f"{experiment_id} is stopped. Everybody gets the champion.")
    ui.next_step(f"experiment verdict {experiment_id} --keep --reason REASON", "Decide:")


@experiment_app.command("verdict")
def verdict(
    experiment_id: ExperimentId,
    adopt: Annotated[
        bool, typer.Option("--adopt/--keep", help="Adopt the challenger (after 'better' only), or keep the champion.")
    ],
    reason: Reason,
) -> None:
    """Record what you decide after an experiment has stopped. It changes no model: the gate still decides about a promotion.

    Example:  medloop experiment verdict exp_0198a2… --adopt --reason "better in every language"
    """
    with open_store(ui.settings()) as store:
        decided = loop.decide(store, experiment_id, adopt=adopt, by=actor(), reason=reason)
        version = aliases.holder(store, "challenger") if adopt else None
    ui.say(f"Decided: {'adopt' if adopt else 'keep'} {decided.plan.challenger if adopt else decided.plan.champion}.")
    if version is not None and version_name(version.record.label) == decided.plan.challenger:
        ui.next_step(f"registry promote {version.record.version}")
    else:
        ui.next_step(f"experiment report {experiment_id}")


@experiment_app.command("report")
def report(experiment_id: ExperimentId, json_: ui.AsJson = False) -> None:
    """Write the report (HTML with the plot, and JSON) into reports/experiments/.

    Example:  medloop experiment report exp_0198a2…
    """
    settings = ui.settings()
    with open_store(settings) as store:
        made = loop.refresh(store, experiment_id)
    folder = write_report(settings.workspace.reports / "experiments" / experiment_id, made)
    if json_:
        ui.say_json(made)
        return
    _say_report(made)
    ui.say(f"Report: {ui.shown(folder / 'report.html')}")


@experiment_app.command("shadow")
def shadow(
    experiment_id: ExperimentId,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="The challenger: BASE, BASE+ADAPTER or a URL, as for 'medloop eval'.")
    ],
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Newest questions of the champion to ask.")] = 50,
    json_: ui.AsJson = False,
) -> None:
    """Let the challenger answer silently what the champion was asked, and queue the pairs for a blind comparison.

    No user sees these answers. Reviewers compare them on the page Compare, in an order that is drawn for each and recorded;
    'medloop experiment status' shows their votes.

    Example:  medloop experiment shadow exp_0198a2… --model embedded:tiny+sft --limit 20
    """
    settings = ui.settings()
    _, load = open_model(parse_examined(model), settings)
    with open_store(settings) as store:
        experiments.get(store, experiment_id)
        done = run_shadow(store, experiment_id, load(), most=limit, actor=actor())
    if json_:
        ui.say_json(done)
        return
    ui.say(f"Asked {done.asked} questions: {done.queued} new pairs are in the review queue, {done.same} answers were the same,")
    ui.say(f"{done.withheld} were left out (no answer, or a text that may name a person).")
    ui.next_step(f"experiment status {experiment_id}", "The votes:")


def _holder(store: Store, alias: str) -> str:
    found = aliases.holder(store, "champion" if alias == "champion" else "challenger")
    if found is None:
        raise ConfigError(f"No version of the registry is the {alias}", f"Name the version that answers: --{alias} VERSION")
    return version_name(found.record.label)


def _say_plan(made: ExperimentPlan, users_per_day: float | None) -> None:
    guards = sum(rule.alpha for rule in made.guards)
    ui.say(f"{made.name}: {made.champion} against {made.challenger}, decided by {made.primary}.")
    ui.say(
        f"To find +{made.min_effect:g} with {made.power:.0%} power: at most {made.planned_users:,} users "
        f"({made.fixed_users:,} with a single look at the end, {made.planned_users / made.fixed_users:.2f} times)."
    )
    ui.say(
        f"A false verdict of any kind: at most {made.alpha:.1%} ({made.primary_alpha:.2%} {made.primary}, {guards:.2%} all "
        f"{len(made.guards)} guards together, {made.srm_alpha:.2%} sample ratio), however often you look."
    )
    if users_per_day:
        shown = ", ".join(
            f"{days(made, users_per_day=users_per_day, enrolled=part):,.0f} days at {part:.0%}" for part in (1, 0.5, 0.1)
        )
        ui.say(f"With {users_per_day:g} new users a day who give a value: {shown} of the users.")


def _say_report(made: ExperimentReport) -> None:
    plan = made.plan
    ui.say(f"{plan.name} ({plan.experiment_id}, site {plan.site}): {made.state}, {made.enrolled:.0%} of the users take part.")
    done = sum(made.primary.users.values())
    waiting = f"; {made.primary.waiting:,} are in their time window" if made.primary.waiting else ""
    ui.say(f"{done:,} of {plan.planned_users:,} planned users have a value of {plan.primary}{waiting}.")
    rows = [made.primary, *made.others, *made.segments, *made.sites]
    ui.table(("metric", "group", "champion", "challenger", "difference", "interval"), [_cells(row) for row in rows])
    guards = [
        (
            guard.name, f"{guard.users_hit['champion']}/{guard.users['champion']}",
            f"{guard.users_hit['challenger']}/{guard.users['challenger']}", f"{guard.level:.0%}", "STOPS" if guard.stops else "",
        )
        for guard in made.guards
    ]  # fmt: skip
    ui.table(("guard", "champion", "challenger", "way to a stop", ""), guards)
    ratio = made.ratio
    ui.say(
        f"Users: {ratio.users['champion']:,} champion, {ratio.users['challenger']:,} challenger "
        f"({ratio.expected:.0%} expected): {'NOT as it should be' if ratio.suspect else 'as it should be'}."
    )
    if made.answered_ratio.suspect:
        ui.say(f"Values of {plan.primary} are missing more often in one arm: read the difference with care.")
    if made.erased:
        ui.say(f"{made.erased:,} observations were erased with the records they came from.")
    if made.other_model:
        ui.say(f"{made.other_model:,} answers came from another version than their arm's.")
    if made.shadow is not None and made.shadow.share is not None:
        votes = made.shadow
        ui.say(
            f"Blind comparison: {votes.challenger} for the challenger, {votes.champion} for the champion, {votes.ties} equal, "
            f"{votes.both_bad} both bad; share {votes.share:.2f} ({votes.low:.2f} to {votes.high:.2f})."
        )
    if made.verdict is not None:
        ui.say(f"Verdict: {made.verdict.outcome}. {made.verdict.reason}.")
    elif made.state == "running":
        ui.say("No verdict yet.")


def _cells(row: Estimate) -> tuple[str, ...]:
    means = {arm: "–" if mean is None else f"{mean:.3f} ({row.users[arm]:,})" for arm, mean in row.means.items()}
    if row.difference is None or row.low is None or row.high is None:
        return (row.metric, row.group, means["champion"], means["challenger"], "–", "too few users")
    interval = f"{row.low:+.3f} to {row.high:+.3f}"
    return (row.metric, row.group, means["champion"], means["challenger"], f"{row.difference:+.3f}", interval)
