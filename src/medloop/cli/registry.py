"""`medloop registry`: versions of the model, which one is the champion, and their copies in MLflow."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts.registry import Alias
from medloop.errors import ResultError
from medloop.registry import promote as aliases
from medloop.registry.hub_card import OUTCOMES, shown
from medloop.registry.listing import ListedVersion, get_listed, list_versions
from medloop.registry.pull import pull as pull_version
from medloop.registry.pull import push as push_version
from medloop.registry.reconcile import reconcile
from medloop.registry.register import register_in
from medloop.registry.verify import repair as repair_mirror
from medloop.registry.verify import verify as verify_registry
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import registry

registry_app = typer.Typer(
    no_args_is_help=True, help="Versions of the model with their history; promote one, roll back, verify the copies in MLflow."
)

Version = Annotated[int, typer.Argument(min=1, metavar="VERSION", help="Number of the version, from 'medloop registry list'.")]
Which = Annotated[Alias, typer.Option("--alias", help="The alias to give or take.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit log; without names of people.")]


def register(app: typer.Typer) -> None:
    app.add_typer(registry_app, name="registry")


@registry_app.command("add")
def add(
    adapter: Annotated[str, typer.Argument(metavar="ADAPTER", help="Folder of the adapter, or its name under models/.")],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Evaluation report (.json) whose scores the version carries.")
    ] = None,
    json_: ui.AsJson = False,
) -> None:
    """Register a trained adapter as the next version; the same bytes keep the number they have.

    Run the gate first: a version keeps the verdict, scores and report it was registered with, and adding the same bytes again
    changes nothing (a later --report is ignored).

    Example:  medloop registry add models/rl/round1 --report reports/rl_stage/eval_report_round1.json
    """
    with open_store(ui.settings()) as store:
        outcome = register_in(store, adapter, actor=actor(), report=report)
        listed = get_listed(store, outcome.stored.record.version)
    if json_:
        ui.say_json({**listed.fields(), "lag": outcome.lag})
        return
    record = outcome.stored.record
    ui.say(f"{record.name} is version {record.version} of {record.model} ({record.artifact[:19]}…).")
    _say_lag(outcome.lag)
    if listed.refusal:
        ui.say(f"It cannot be promoted yet: {listed.refusal}")
    else:
        ui.next_step(f"registry promote {record.version}")


@registry_app.command("list")
def list_(json_: ui.AsJson = False) -> None:
    """List the versions, newest first, with their aliases and the gate's newest verdict.

    Example:  medloop registry list --json
    """
    with open_store(ui.settings()) as store:
        lag = reconcile(store)
        versions = list_versions(store)
    if json_:
        ui.say_json({"versions": [listed.fields() for listed in versions], "lag": lag})
        return
    if not versions:
        ui.say("The registry has no version yet.")
        ui.next_step("registry add ADAPTER", "Register one:")
        return
    ui.table(("version", "name", "method", "registered", "alias", "gate", "bytes"), [_cells(listed) for listed in versions])
    _say_lag(lag)


@registry_app.command("show")
def show(version: Version, json_: ui.AsJson = False) -> None:
    """Show everything about one version: inputs, scores, the gate, and each change of its aliases.

    Example:  medloop registry show 3
    """
    with open_store(ui.settings()) as store:
        listed = get_listed(store, version)
        stored, record = listed.stored, listed.stored.record
        changes = [change for change in registry.history(store, record.model) if change.version == version]
    if json_:
        ui.say_json({**listed.fields(), "history": [change.model_dump(mode="json") for change in changes]})
        return
    facts = {"bytes": record.artifact, "folder": stored.path, "base": f"{record.base} ({record.base_sha256[:19]}…)"}
    facts |= {"parent": record.parent or "none", "reward": record.reward or "none", "report": record.report or "none"}
    facts |= {f"data: {name}": sha256 for name, sha256 in record.inputs.items()}
    facts |= {name: f"{value:.6g}" for name, value in record.losses.items()}
    facts |= {name: shown(score) for name, score in record.scores.items()}
    mlflow = "not yet" if stored.mirrored is None else f"version {stored.mlflow_version}, run {stored.mlflow_run}"
    facts |= {"MLflow": mlflow, "alias": ", ".join(listed.aliases) or "none", "gate": _outcome(listed)}
    ui.table(("", ""), list(facts.items()), title=f"{record.label}: {record.name} ({record.method})")
    for change in changes:
        why = f": {change.reason}" if change.reason else ""
        ui.say(f"{change.timestamp:%Y-%m-%d %H:%M}Z  {change.action} {change.alias} by {change.changed_by}{why}")
    ui.say(f"It cannot be promoted: {listed.refusal}" if listed.refusal else "It may be promoted.")


@registry_app.command("promote")
def promote(version: Version, alias: Which = "champion", reason: Reason = "") -> None:
    """Give an alias to a version. Refused without a passed gate for the same bytes, with an open incident, or if it is tainted.

    The champion is the version to deploy, the challenger the one that is compared with it. A refusal ends with exit code 10.

    Example:  medloop registry promote 3 --alias challenger
    """
    with open_store(ui.settings()) as store:
        outcome = aliases.promote_in(store, version, actor=actor(), alias=alias, reason=reason)
    ui.say(f"{outcome.stored.record.label} is the {alias} now.")
    _say_lag(outcome.lag)


@registry_app.command("rollback")
def rollback(alias: Which = "champion", reason: Reason = "") -> None:
    """Give an alias back to the version that had it before. An open incident does not stop it; a failed gate or a taint does.

    Example:  medloop registry rollback --reason "worse in triage"
    """
    with open_store(ui.settings()) as store:
        outcome = aliases.rollback_in(store, actor=actor(), alias=alias, reason=reason)
    ui.say(f"{outcome.stored.record.label} is the {alias} again.")
    _say_lag(outcome.lag)


@registry_app.command("demote")
def demote(
    alias: Annotated[Alias, typer.Argument(metavar="ALIAS", help="champion or challenger.")], reason: Reason = ""
) -> None:  # fmt: skip
    """Take an alias away from the version that has it; no version has it then.

    Example:  medloop registry demote challenger
    """
    with open_store(ui.settings()) as store:
        lag = aliases.demote_in(store, alias, actor=actor(), reason=reason)
        model = store.settings.registry.model
    ui.say(f"No version of {model} is the {alias} now.")
    _say_lag(lag)


@registry_app.command("verify")
def verify(
    repair: Annotated[bool, typer.Option("--repair", help="Send MLflow what it lost, and set its aliases back.")] = False,
    json_: ui.AsJson = False,
) -> None:
    """Compare the registry with MLflow: every version by its bytes, every alias. Fails if they cannot be shown to agree.

    Example:  medloop registry verify --repair
    """
    with open_store(ui.settings()) as store:
        if repair:
            repair_mirror(store, actor=actor())
        report = verify_registry(store)
    if json_:
        ui.say_json(report)
    else:
        for sentence in (*report.problems, *report.notes):
            ui.say(f"- {sentence}")
    if report.problems:
        raise ResultError(
            f"The registry and MLflow could not be shown to agree (problems: {len(report.problems)})",
            "Look at each, then run: medloop registry verify --repair",
        )
    if not json_:
        ui.say(f"{report.versions} versions and their aliases are the same in MLflow.")


@registry_app.command("pull")
def pull(version: Version, folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder.")]) -> None:
    """Get a version back from its copy in MLflow into a new folder, checked by its hash.

    Example:  medloop registry pull 3 models/lora/v3
    """
    with open_store(ui.settings()) as store:
        pull_version(store, version, folder)
    ui.say(f"{folder} has the bytes of version {version}, checked by their hash.")


@registry_app.command("push")
def push(
    version: Version,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a model hub; replaced.")],
    unreleased: Annotated[
        bool, typer.Option("--unreleased", help="Write a version that may not be promoted, too; its README.md says why not.")
    ] = False,
) -> None:
    """Write a version as a folder in the form of a model hub: weights, tokenizer and README.md, without samples of answers.

    The bytes come from the copy in MLflow. A version that may not be promoted now is refused.

    Example:  medloop registry push 3 /srv/hub/med-assistant
    """
    with open_store(ui.settings()) as store:
        push_version(store, version, folder, unreleased=unreleased)
    ui.say(f"{folder} has version {version} in the form of a model hub.")


def _outcome(listed: ListedVersion) -> str:
    if listed.gate_outcome is None:
        return "not examined"
    return OUTCOMES[listed.gate_outcome] + (f", passed by waiver ({listed.waived})" if listed.waived else "")


def _cells(listed: ListedVersion) -> tuple[str, ...]:
    record = listed.stored.record
    marks = ("" if listed.stored.mirrored else "  not in MLflow yet") + ("  tainted" if listed.tainted else "")
    held = ", ".join(listed.aliases)
    return (
        str(record.version), record.name, record.method, f"{record.timestamp:%Y-%m-%d}", held, _outcome(listed),
        record.artifact[:19] + marks,
    )  # fmt: skip


def _say_lag(lag: str | None) -> None:
    if lag:
        ui.say(f"MLflow does not have the newest change yet; 'medloop registry list' or the next change sends it: {lag}")
