"""`medloop incidents`: answers that somebody flagged as critical, and closing them with a second person."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from medloop.cli import ui
from medloop.cli.login import logged_in
from medloop.contracts import Incident
from medloop.contracts.dataset import Language
from medloop.feedback import incidents
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.incident_rows import IncidentFilter, Step, list_incidents, may_confirm

incidents_app = typer.Typer(no_args_is_help=True, help="List and read safety incidents; close them with a second person.")

IncidentId = Annotated[str, typer.Argument(metavar="INCIDENT", help="Id of the incident, from 'medloop incidents list'.")]
UserName = Annotated[str, typer.Option("--user", metavar="NAME", help="Your user name; the password is asked for.")]
Note = Annotated[str, typer.Option(prompt=True, help="What was done about it. All who may open incidents can read it.")]


def register(app: typer.Typer) -> None:
    app.add_typer(incidents_app, name="incidents")


@incidents_app.command("list")
def list_(
    state: Annotated[
        Literal["open", "proposed", "closed", "all"],
        typer.Option(help="Show only these; 'proposed' ones wait for a second person."),
    ] = "open",
    since: Annotated[datetime | None, typer.Option(help="Opened on this day or later (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Opened before this day (UTC).")] = None,
    language: Annotated[Language | None, typer.Option(help="Language of the question.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """List incidents, oldest first, without any text.

    Example:  medloop incidents list --state proposed
    """
    which = IncidentFilter(None if state == "all" else state, _utc(since), _utc(until), language)
    with open_store(ui.settings()) as store:
        rows, names = list_incidents(store, which, limit=10_000), users.names(store)
    if json_:
        for row in rows:
            ui.say(json.dumps(asdict(row), ensure_ascii=False))
        return
    if not rows:
        ui.say("No incidents match." if state != "open" else "No open incidents.")
        return
    shown = [
        (row.incident_id, row.timestamp[:10], _state(row.state, row.proposed_by), row.language or "", row.model_version or "",
         names.get(row.opened_by or "", row.opened_by or ""))
        for row in rows
    ]  # fmt: skip
    ui.table(("incident", "opened", "state", "language", "model", "reported by"), shown)


@incidents_app.command("show")
def show(incident_id: IncidentId) -> None:
    """Show one incident with its conversation and notes, on a terminal only; the audit log records who read it.

    Example:  medloop incidents show inc_0198a2…
    """
    ui.require_terminal("incidents show")
    with open_store(ui.settings()) as store:
        incident = incidents.get_incident(store, incident_id)
        texts, names = incidents.read_texts(store, incident, actor=actor()), users.names(store)
    ui.say(f"{incident_id}: {_state(incident.state, incident.proposed_by)}, opened {incident.timestamp:%Y-%m-%d %H:%M}Z")
    for message in texts.messages:
        ui.say(f"\n{message.role}:\n" + ui.printable(message.content, keep="\n\t"))
    if not texts.messages:
        ui.say("The conversation was erased.")
    elif texts.comments:
        ui.say("\nreason of the flag:\n" + ui.printable(texts.comments, keep="\n\t"))
    for step, note in zip(incident.steps, incident.notes or ("",) * len(incident.steps), strict=True):
        ui.say(f"\n{step.timestamp:%Y-%m-%d %H:%M}Z  {step.step} by {names.get(step.by, step.by)}: {ui.printable(note)}")


@incidents_app.command("propose")
def propose(incident_id: IncidentId, user: UserName, note: Note) -> None:
    """Propose to close an incident. It stays open until another person, a clinician, confirms.

    Example:  medloop incidents propose inc_0198a2… --user sam --note "Rule 12 added; the case passes."
    """
    incident, others = _take(incident_id, "proposed", user, note)
    who = f"Waiting for one of: {', '.join(others)}." if others else "A second clinician is needed; there is none yet."
    ui.say(f"{incident.incident_id}: closing is proposed. {who}")
    if not others:
        ui.next_step("users add NAME --role clinician", "Add one:")


@incidents_app.command("decline")
def decline(incident_id: IncidentId, user: UserName, note: Note) -> None:
    """Decline a proposal to close an incident, or take back your own. The incident stays open.

    Example:  medloop incidents decline inc_0198a2… --user dr.li --note "The rule misses the Chinese wording."
    """
    incident, _ = _take(incident_id, "declined", user, note)
    ui.say(f"{incident.incident_id}: declined; the incident stays open.")


@incidents_app.command("close")
def close(
    incident_id: IncidentId, user: UserName, note: Annotated[str, typer.Option(help="A note on your review.")] = ""
) -> None:
    """Confirm the proposal of somebody else and close the incident. Only clinicians can confirm.

    Example:  medloop incidents close inc_0198a2… --user dr.li
    """
    incident, _ = _take(incident_id, "closed", user, note)
    ui.say(f"{incident.incident_id}: closed by {user}. Its red-team case stays.")


def _take(incident_id: str, step: Step, user_name: str, note: str) -> tuple[Incident, list[str]]:
    """One step under the name of a user who proves who they are, as on the pages: two people cannot be one account."""
    with open_store(ui.settings()) as store:
        user = logged_in(store, user_name)
        with GroupCommitWriter(store).running() as writer:
            writer.submit_and_wait(incidents.step_request(store, incident_id, step, by=user.user_id, note=note))
        incident = incidents.get_incident(store, incident_id)
        return incident, may_confirm(store, incident)


def _utc(day: datetime | None) -> datetime | None:
    return None if day is None else day.replace(tzinfo=UTC)


def _state(state: str, proposed_by: str | None) -> str:
    return "proposed" if state == "open" and proposed_by else state
