"""`medloop consent`: what the people that records are about have allowed."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.privacy.consent import PURPOSES, record, standing, subject_of
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import consents

consent_app = typer.Typer(no_args_is_help=True, help="Consent by subject and purpose: grant, withdraw, show.")

Who = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The id your own system uses (only its keyed hash is stored), or sub_….")
]


class Purpose(enum.StrEnum):
    training = "training"
    evaluation = "evaluation"
    teacher = "teacher"
    publication = "publication"


def register(app: typer.Typer) -> None:
    app.add_typer(consent_app, name="consent")


@consent_app.command("grant")
def grant(
    subject: Who,
    text: Annotated[str, typer.Option(metavar="VERSION", help="Version of the text that was agreed to, for example 2026-01.")],
    purpose: Annotated[list[Purpose], typer.Option(help="What it is for; may be repeated.")],
) -> None:
    """Record that a person allows these uses of what is about them. What was recorded before stays; the newest word counts.

    Example:  medloop consent grant 4711 --text 2026-01 --purpose training --purpose evaluation
    """
    _record(subject, text, [one.value for one in purpose], granted=True)


@consent_app.command("withdraw")
def withdraw(
    subject: Who,
    text: Annotated[str, typer.Option(metavar="VERSION", help="Version of the text it belongs to.")] = "withdrawal",
    purpose: Annotated[list[Purpose] | None, typer.Option(help="What is taken back; may be repeated (all by default).")] = None,
) -> None:
    """Record that a person takes it back: the next dataset is built without them. To remove what is there: medloop erase.

    Example:  medloop consent withdraw 4711 --purpose training
    """
    _record(subject, text, [one.value for one in purpose or list(Purpose)], granted=False)


@consent_app.command("show")
def show(subject: Who) -> None:
    """What a person said, oldest first, and what counts now.

    Example:  medloop consent show 4711
    """
    with open_store(ui.settings()) as store:
        name = subject_of(store, subject)
        said = consents.of(store, name)
    ui.say(f"{name}: {'nothing on file' if not said else f'{len(said)} on file'}")
    for one in said:
        word = "granted" if one.granted else "withdrawn"
        ui.say(f"  {one.timestamp:%Y-%m-%d %H:%M:%S}Z  {word:<9}  {', '.join(one.purposes)}  (text {one.text_version})")
    now = standing(said)
    if said:
        words = (f"{p}: {'yes' if now[p].granted else 'no'}" for p in PURPOSES if p in now)
        ui.say("Now: " + ", ".join(words))


def _record(subject: str, text: str, purposes: list[str], *, granted: bool) -> None:

    with open_store(ui.settings()) as store:
        chosen = [one for one in PURPOSES if one in purposes]
        made = record(store, subject, chosen, text_version=text, granted=granted, actor=actor())
    ui.say(f"{made.subject}: {'granted' if granted else 'withdrawn'} {', '.join(made.purposes)} (text {made.text_version}).")
