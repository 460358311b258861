"""`medloop release`: a model that the gate let pass, with its safety ledger, as a folder that verifies by hash."""

import re
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts import ModelRef
from medloop.errors import ConfigError, ResultError
from medloop.loop.release import PAGE, Release, ReleaseCheck, make_release, verify_release
from medloop.loop.rounds import is_round, path_in_use
from medloop.models.find import parse_model
from medloop.store.audit_trail import actor, open_audit_trail

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VERIFY = "verify"


def register(app: typer.Typer) -> None:
    app.command("release")(release)


def release(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the release, such as v1.0-rl; or the word 'verify'.")],
    which: Annotated[str | None, typer.Argument(metavar="[NAME]", help="After 'verify': the release to verify.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="BASE+ADAPTER", help="The model to release (default: the round that is in use).")
    ] = None,
) -> None:
    """Make models/rl/NAME: adapter, value head, settings, reward rules, judgements, evaluation report, safety ledger.

    Only a model that the gate let pass is released. 'medloop release verify NAME' checks every byte of a release.

    Example:  medloop release v1.0-rl --model embedded:tiny+models/rl/round1
    """
    if name == VERIFY:
        _verify(which, model)
        return
    if which is not None:
        raise ConfigError(f"'{which}' is one word too many", "Example: medloop release v1.0-rl")
    if not NAME.fullmatch(name):
        raise ConfigError(f"'{name}' cannot name a release", "Use letters, digits, dots, dashes and underscores: v1.0-rl")
    if is_round(name):
        raise ConfigError(f"'{name}' is the name of a round, so it cannot name a release", "Choose another name, such as v1.0-rl")
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        ref = (
            parse_model("--model", model) if model else ModelRef(base=settings.model, adapter=path_in_use(settings, trail.store))
        )
        _show(make_release(settings, trail.store, name, ref, actor=actor()))


def _show(made: Release) -> None:
    ledger, folder = made.ledger, ui.shown(made.folder)
    if made.already:
        ui.say(f"Already released: {folder} is this model. Nothing to do.")
    else:
        ui.say(
            f"Released {ledger.adapter} as {folder}: {len(ledger.files)} files, {ledger.records:,} records of feedback behind it."
        )
    for name, reason in ledger.missing.items():
        ui.say(f"Missing: {name}. {reason}.")
    ui.say(f"Safety ledger: {folder}/{PAGE}")
    ui.next_step(f"release verify {ledger.release}")
    ui.next_step(f"lineage {ledger.release}", lead="Behind it:")


def _verify(name: str | None, model: str | None) -> None:
    if name is None or model is not None:
        raise ConfigError("Name the release to verify", "Example: medloop release verify v1.0-rl")
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        check = verify_release(settings, trail.store, name)
    _say_verified(name, check)


def _say_verified(name: str, check: ReleaseCheck) -> None:
    ledger = check.ledger
    ui.say(f"{ui.shown(check.folder)}: {check.files} files are as they were released on {ledger.timestamp:%Y-%m-%d}.")
    ui.say(f"Its weights are those that the gate let pass ({ledger.gate_id[7:19]}), and the ledger has the gate's own record.")
    if check.refusal:
        raise ResultError(
            f"{name} is whole, but may not be used now: {check.refusal.rstrip('.')}",
            "Go back with: medloop rounds rollback (and medloop registry rollback, if its round is the champion)",
        )
