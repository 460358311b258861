"""`medloop consent`: what the people that records are about have allowed, and what the forms tick in advance."""

from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError
from medloop.privacy.consent import PURPOSES, record, standing, subject_of
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import consents
from medloop.store.records.workspace_settings import FORM_PURPOSES, consent_default, set_consent_default

consent_app = typer.Typer(no_args_is_help=True, help="Grant, withdraw and show consent by subject and purpose.")

Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The id in your own system (only its keyed hash is stored), or sub_…")
]

USES = ", ".join(PURPOSES)


def register(app: typer.Typer) -> None:
    app.add_typer(consent_app, name="consent")


@consent_app.command("grant")
def grant(
    subject: Subject,
    text: Annotated[str, typer.Option(metavar="VERSION", help="Version of the consent text, for example 2026-01.")],
    purpose: Annotated[list[str], typer.Option(metavar="PURPOSE", help=f"Use that is allowed: {USES}; may be repeated.")],
) -> None:
    """Record that a person allows these uses of their data. Earlier entries stay; the newest one counts.

    Example:  medloop consent grant 4711 --text 2026-01 --purpose training --purpose evaluation
    """
    _record(subject, text, purpose, granted=True)


@consent_app.command("withdraw")
def withdraw(
    subject: Subject,
    text: Annotated[str, typer.Option(metavar="VERSION", help="Version of the consent text.")] = "withdrawal",
    purpose: Annotated[
        list[str] | None, typer.Option(metavar="PURPOSE", help=f"Use that is withdrawn: {USES}; may be repeated (default: all).")
    ] = None,
) -> None:
    """Record that a person withdraws consent: the next dataset is built without them.

    To remove the data that is already stored, use 'medloop erase'.

    Example:  medloop consent withdraw 4711 --purpose training
    """
    _record(subject, text, purpose or list(PURPOSES), granted=False)


@consent_app.command("show")
def show(subject: Subject, json_: ui.AsJson = False) -> None:
    """Show a person's consents, oldest first, and what counts now.

    Example:  medloop consent show 4711
    """
    with open_store(ui.settings()) as store:
        name = subject_of(store, subject)
        entries = consents.list_consents(store, name)
    if json_:
        granted = {purpose: entry.granted for purpose, entry in standing(entries).items()}
        ui.say_json({"subject": name, "consents": entries, "now": granted})
        return
    ui.say(f"{name}: {f'{len(entries)} on file' if entries else 'nothing on file'}")
    for entry in entries:
        word = "granted" if entry.granted else "withdrawn"
        ui.say(f"  {entry.timestamp:%Y-%m-%d %H:%M:%S}Z  {word:<9}  {', '.join(entry.purposes)}  (text {entry.text_version})")
    if entries:
        now = standing(entries)
        ui.say("Now: " + ", ".join(f"{p}: {'yes' if now[p].granted else 'no'}" for p in PURPOSES if p in now))


@consent_app.command("default")
def default(
    purpose: Annotated[
        list[str] | None, typer.Option(metavar="PURPOSE", help=f"Tick this use: {' or '.join(FORM_PURPOSES)}; may be repeated.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Tick nothing in advance.")] = False,
) -> None:
    """Show or set which uses are ticked when a form on the web pages opens. Every change is in the audit log.

    Whoever fills in the form can change the ticks. A record that comes over HTTP says itself what it may be used for.

    Example:  medloop consent default --purpose training
    """
    if none and purpose:
        raise ConfigError("--none and --purpose exclude each other", "Pass one of them")
    with open_store(ui.settings()) as store:
        change = none or purpose
        ticked = set_consent_default(store, purpose or (), actor=actor()) if change else consent_default(store)
    ui.say(f"Ticked when a form opens: {', '.join(ticked) or 'nothing'}.")


def _record(subject: str, text: str, purposes: list[str], *, granted: bool) -> None:
    if unknown := set(purposes) - set(PURPOSES):
        raise ConfigError(f"--purpose: '{min(unknown)}' is unknown", f"Use {USES}")
    with open_store(ui.settings()) as store:
        chosen = [purpose for purpose in PURPOSES if purpose in purposes]
        entry = record(store, subject, chosen, text_version=text, granted=granted, actor=actor())
    ui.say(f"{entry.subject}: {'granted' if granted else 'withdrawn'} {', '.join(entry.purposes)} (text {entry.text_version}).")
