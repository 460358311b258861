"""`medloop quarantine`: records that wait for a person to say whether they name somebody."""

from __future__ import annotations

import enum
import sys
from typing import Annotated, Literal

import typer

from medloop.cli import ui
from medloop.errors import ConfigError
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import quarantine

quarantine_app = typer.Typer(
    no_args_is_help=True, help="Records held back because they may name somebody: look, release, refuse."
)

RecordId = Annotated[str, typer.Argument(metavar="RECORD", help="Id of a held record, from 'medloop quarantine list'.")]


class State(enum.StrEnum):
    waiting = "waiting"
    released = "released"
    refused = "refused"
    all = "all"


class Release(enum.StrEnum):
    """As in store/records/quarantine.py; a test compares them."""

    nobody = "nobody"
    medical_term = "medical_term"
    public_name = "public_name"


class Refuse(enum.StrEnum):
    name_ = "name"
    contact = "contact"
    place_or_date = "place_or_date"
    story = "story"
    other = "other"


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine_app, name="quarantine")


@quarantine_app.command("list")
def list_(state: Annotated[State, typer.Option(help="Which ones.")] = State.waiting) -> None:
    """The held records by id, with the sort of thing that is left in them; no text.

    Example:  medloop quarantine list --state all
    """
    with open_store(ui.settings()) as store:
        found = quarantine.listed(store, None if state is State.all else state.value)
    if not found:
        ui.say("Nothing waits." if state is State.waiting else "None.")
    for one in found:
        ui.say(f"{one.record_id}  {one.kind}  {one.state}  doubt {one.doubt:.2f}  {'; '.join(one.reasons)}")


@quarantine_app.command("show")
def show(record_id: RecordId) -> None:
    """The text of one held record, to a terminal only, after the reading is in the audit log.

    Example:  medloop quarantine show fb_0198a2…
    """
    if not sys.stdout.isatty():
        raise ConfigError("'medloop quarantine show' prints what somebody wrote, and only to a terminal", "Run it without a pipe")
    with open_store(ui.settings()) as store:
        found = quarantine.opened(store, record_id, actor=actor())
    ui.say(f"{record_id} ({found.held.kind}, {found.held.state}): {'; '.join(found.held.reasons)}")
    for name, text in found.texts:
        ui.say(f"\n{name}:\n{_printable(text)}")


@quarantine_app.command("release")
def release(
    record_id: RecordId,
    reason: Annotated[Release | None, typer.Option(help="Why; it goes into the audit log.")] = None,
) -> None:
    """Say that a record names nobody: datasets may hold it from now on.

    Example:  medloop quarantine release fb_0198a2… --reason medical_term
    """
    _decide(record_id, "released", None if reason is None else reason.value)


@quarantine_app.command("refuse")
def refuse(
    record_id: RecordId,
    reason: Annotated[Refuse | None, typer.Option(help="Why; it goes into the audit log.")] = None,
) -> None:
    """Say that a record names somebody: it never enters a dataset. To remove it altogether: medloop erase --record ID.

    Example:  medloop quarantine refuse fb_0198a2… --reason story
    """
    _decide(record_id, "refused", None if reason is None else reason.value)


def _decide(record_id: str, state: Literal["released", "refused"], reason: str | None) -> None:

    with open_store(ui.settings()) as store:
        held = quarantine.decide(store, record_id, state, actor=actor(), reason=reason)
    ui.say(f"{held.record_id}: {held.state} by {held.decided_by}.")


def _printable(text: str) -> str:
    """What could steer a terminal is shown as a box."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{WHITE SQUARE}" for char in text)
