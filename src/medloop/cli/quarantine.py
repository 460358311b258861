"""`medloop quarantine`: records that wait for a person to decide whether they identify somebody."""

from typing import Annotated, Literal

import typer

from medloop.cli import ui
from medloop.cli.data_print import say_rows_left_out
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import quarantine
from medloop.store.records.quarantine import RefusalReason, ReleaseReason

quarantine_app = typer.Typer(no_args_is_help=True, help="Review records that may still identify a person.")

RecordId = Annotated[str, typer.Argument(metavar="RECORD", help="Id of the record, from 'medloop quarantine list'.")]


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine_app, name="quarantine")


@quarantine_app.command("list")
def list_(
    state: Annotated[
        Literal["waiting", "released", "refused", "all"], typer.Option(help="Show only the records in this state.")
    ] = "waiting",
    json_: ui.AsJson = False,
) -> None:
    """List the held records of feedback with the reasons, without any text.

    Rows of imported files that 'medloop data prepare' left out are not among them: see data/processed.quarantine.jsonl.

    Example:  medloop quarantine list --state all
    """
    settings = ui.settings()
    with open_store(settings) as store:
        records = quarantine.list_held(store, None if state == "all" else state)
    if json_:
        ui.say_json(records)
        return
    if not records:
        ui.say("No records of feedback are waiting." if state == "waiting" else "No records.")
    for record in records:
        ui.say(f"{record.record_id}  {record.kind}  {record.state}  doubt {record.doubt:.2f}  {'; '.join(record.reasons)}")
    say_rows_left_out(settings)


@quarantine_app.command("show")
def show(record_id: RecordId) -> None:
    """Show the text of one held record, on a terminal only; the audit log records who read it.

    Example:  medloop quarantine show fb_0198a2…
    """
    ui.require_terminal("quarantine show")
    with open_store(ui.settings()) as store:
        record = quarantine.open_held(store, record_id, actor=actor())
    ui.say(f"{record_id} ({record.held.kind}, {record.held.state}): {'; '.join(record.held.reasons)}")
    for name, text in record.texts:
        ui.say(f"\n{name}:\n" + ui.printable(text, keep="\n\t"))


@quarantine_app.command("release")
def release(
    record_id: RecordId,
    reason: Annotated[ReleaseReason | None, typer.Option(help="Why, for the audit log.")] = None,
) -> None:
    """Decide that a record identifies nobody: datasets may use it from now on.

    Example:  medloop quarantine release fb_0198a2… --reason medical_term
    """
    _decide(record_id, "released", reason)


@quarantine_app.command("refuse")
def refuse(
    record_id: RecordId,
    reason: Annotated[RefusalReason | None, typer.Option(help="Why, for the audit log.")] = None,
) -> None:
    """Decide that a record identifies somebody: no dataset ever uses it. To remove it altogether: medloop erase --record ID.

    Example:  medloop quarantine refuse fb_0198a2… --reason story
    """
    _decide(record_id, "refused", reason)


def _decide(record_id: str, state: Literal["released", "refused"], reason: str | None) -> None:
    with open_store(ui.settings()) as store:
        held = quarantine.decide(store, record_id, state, actor=actor(), reason=reason)
    ui.say(f"{held.record_id}: {held.state} by {held.decided_by}.")
