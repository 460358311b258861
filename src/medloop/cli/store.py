"""`medloop db`, `medloop keys` and `medloop audit`: the database, its encryption keys and its audit log."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from medloop.cli import ui
from medloop.errors import ConfigError, InputError, IntegrityError, ResultError, explain_os_errors
from medloop.store import audit
from medloop.store.anchors import AnchorResult, check_against, is_configured, write_anchors
from medloop.store.audit_trail import actor
from medloop.store.check import check as check_store
from medloop.store.crypto import MasterKey, decode_key
from medloop.store.db import ensure_master_key, open_store
from medloop.store.db import upgrade as upgrade_schema
from medloop.store.files.private import open_to_others
from medloop.store.integrity import IntegrityReport, alarm_text, listed, verify_store
from medloop.store.records import users
from medloop.store.rotate import list_keys, rotate, rows_to_reencrypt
from medloop.store.rotate import reencrypt as reencrypt_rows
from medloop.store.row_macs import RowReport

db_app = typer.Typer(no_args_is_help=True, help="Upgrade and check the database.")
keys_app = typer.Typer(no_args_is_help=True, help="List and rotate the encryption keys. Never prints a key.")
audit_app = typer.Typer(no_args_is_help=True, help="Show the audit log, verify it, and anchor it outside the workspace.")


def register(app: typer.Typer) -> None:
    app.add_typer(db_app, name="db")
    app.add_typer(keys_app, name="keys")
    app.add_typer(audit_app, name="audit")


@db_app.command("upgrade")
def upgrade() -> None:
    """Create the database, or upgrade its schema to the version that this medloop needs. Safe to repeat.

    Example:  medloop db upgrade
    """
    settings = ui.settings()
    ensure_master_key(settings)
    before, after = upgrade_schema(settings)
    if before == after:
        ui.say(f"The store is up to date (schema {after}).")
    else:
        ui.say(f"The store now has schema {after} ({'new' if before is None else f'before: {before}'}).")


@db_app.command("check")
def check(json_: ui.AsJson = False) -> None:
    """Check the database file and decrypt every stored text. Exit code 6 if anything is damaged.

    Example:  medloop db check
    """
    with open_store(ui.settings()) as store:
        report = check_store(store)
        name = store.name
        readable = len(open_to_others(store.settings.workspace))
    if json_:
        ui.say_json({"store": name, **vars(report), "readable_by_others": readable})
    else:
        ui.say(f"{name}, schema {report.schema}")
        for table, rows in sorted(report.rows.items()):
            ui.say(f"  {table:<18}{rows:>10,} rows")
        if readable:
            ui.say(f"Files and folders of the workspace that other users of this machine can read: {readable}.")
            ui.next_step(f"init {shlex.quote(ui.shown(store.settings.home))}", "Make them private:")
        else:
            ui.say("No file of the workspace can be read by other users of this machine.")
    if report.problems:
        for problem in report.problems if not json_ else ():
            ui.say(f"  damaged: {problem}")
        raise IntegrityError(f"{name} has {len(report.problems)} problem(s), see above", "Restore what is damaged from a backup")
    if not json_:
        ui.say("No damage found.")


@keys_app.command("show")
def show_keys(json_: ui.AsJson = False) -> None:
    """List the keys by id, with the number of rows that each one decrypts.

    Example:  medloop keys show
    """
    with open_store(ui.settings()) as store:
        master, keys = list_keys(store)
    if json_:
        ui.say_json({"master": {"id": master.id, "origin": master.origin}, "keys": keys})
        return
    ui.say(f"Master key {master.id}, from {master.origin}")
    rows = [(k.key_id, k.purpose, f"{k.created:%Y-%m-%d %H:%M:%S}Z", f"{k.rows:,}", "yes" if k.in_use else "") for k in keys]
    ui.table(("key", "for", "created", "rows", "new rows"), rows)


@keys_app.command("rotate")
def rotate_keys(
    what: Annotated[Literal["both", "data", "master"], typer.Option(help="Keys to replace.")] = "both",
    reencrypt: Annotated[
        bool, typer.Option("--reencrypt", help="Also re-encrypt old rows with the new data key, then destroy the old key.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Make no new key; continue an interrupted --reencrypt.")] = False,
    new_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the new master key, if you manage that key yourself."),
    ] = None,
) -> None:
    """Make new encryption keys. Old rows stay readable all the time; an interrupted run loses nothing.

    medloop replaces the key file itself. If you keep the master key in MEDLOOP_DATABASE__ENCRYPTION_KEY, put a new one (base64
    of 32 bytes) in another variable, name that with --new-key-env, and afterwards set MEDLOOP_DATABASE__ENCRYPTION_KEY to it.

    Example:  medloop keys rotate --reencrypt
    """
    if new_key_env and (what == "data" or resume):
        raise ConfigError("--new-key-env is only for a new master key", "Use it with --what master or both")
    with open_store(ui.settings()) as store:
        if not resume:
            new_master = _master_from(new_key_env) if new_key_env else None
            rotation = rotate(store, data=what != "master", master=what != "data", new_master=new_master, actor=actor())
            ui.say(
                f"Master key {rotation.master_id}" + (f", new rows use data key {rotation.data_key}" if rotation.data_key else "")
            )
            if new_key_env:
                ui.say(
                    f"Now set MEDLOOP_DATABASE__ENCRYPTION_KEY to the value of {new_key_env}, here and for every running service."
                )
        if reencrypt or resume:
            with ui.progress("Re-encrypting", rows_to_reencrypt(store)) as bar:
                rows = reencrypt_rows(store, actor=actor(), progress=bar)
            ui.say(f"{rows:,} rows re-encrypted.")


@audit_app.command("verify")
def verify_audit(
    new_head: Annotated[
        bool,
        typer.Option(
            "--new-head", help="Accept the log as it is: for a database that is new to this workspace or was restored on purpose."
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also compare with the anchors in this text file, such as the system's log."),
    ] = None,
    json_: ui.AsJson = False,
) -> None:
    """Verify the hash chain of the audit log and the rows that carry a MAC: users, ratings, incidents, consents and others.

    Exit code 6 if a row was changed, removed or moved. Changed rows are listed by table and id. The log is also compared with the
    anchors in the places that the settings name ('medloop audit anchor'), and with those in --against FILE.

    Example:  medloop audit verify

    Example:  medloop audit verify --against /var/log/syslog
    """
    with open_store(ui.settings()) as store:
        report = verify_store(store)
        if new_head and report.audit.chain_ok:
            audit.start_new_head(store, actor())
            if is_configured(store.settings):
                _say_anchors(write_anchors(store, actor=actor(), accepted=True))
            report = verify_store(store)
        if against is not None:
            with explain_os_errors(against):
                outside = check_against(store, against.read_text(encoding="utf-8", errors="replace"))
            if not outside.checked:
                raise InputError(f"{against} holds no anchor of an audit log", "Name the file that audit.syslog writes to")
            report = replace(report, anchors=report.anchors.joined(outside))
    if json_:
        ui.say_json(_as_json(report))
    if not report.audit.ok:
        raise _damaged_log(report.audit)
    if report.anchors.problem is not None:
        to_do = "Compare it with a backup; if you restored the log yourself, accept it with --new-head"
        raise IntegrityError(f"The audit log does not fit its anchors: {report.anchors.problem}", to_do)
    if report.rows.wrong:
        raise _changed_rows(report.rows, json_)
    if not json_:
        _say_intact(report)


def _as_json(report: IntegrityReport) -> dict[str, Any]:
    log, rows = report.audit, report.rows
    return {
        "intact": report.ok, "rows": log.rows, "newest_hash": log.last_hash, "head_lags_by": log.rows - (log.head_seq or 0),
        "problem": log.problem, "rows_checked": rows.checked, "rows_wrong": rows.wrong, "wrong": rows.rows,
        "anchors": report.anchors, "restored": report.restored,
    }  # fmt: skip


def _damaged_log(report: audit.AuditReport) -> IntegrityError:
    accept = "if you know why, for example because you restored it yourself, accept it with --new-head"
    if report.kind == "copied":
        return IntegrityError(f"The audit log does not fit: {report.problem}", f"Copy with 'medloop backup create'; {accept}")
    to_do = f"Compare it with a backup; {accept}" if report.chain_ok else "Compare it with a backup"
    return IntegrityError(f"The audit log is damaged: {report.problem}; intact rows before it: {report.rows:,}", to_do)


def _changed_rows(report: RowReport, json_: bool) -> IntegrityError:
    if not json_:
        for line in listed(report.rows):
            ui.say(f"  {ui.printable(line)}")
        if report.wrong > len(report.rows):
            ui.say(f"  and {report.wrong - len(report.rows):,} more")
    return IntegrityError(alarm_text(report.wrong), "Compare them with a backup")


def _say_intact(report: IntegrityReport) -> None:
    lag = report.audit.rows - (report.audit.head_seq or 0)
    ui.say(f"The audit log is intact: {report.audit.rows:,} rows" + (f" (the head file lags by {lag})" if lag else "") + ".")
    ui.say(f"Newest hash {report.audit.last_hash}")
    ui.say(f"Rows that fit their MAC (users, feedback, incidents, consents and others): {report.rows.checked:,}.")
    if report.anchors.checked:
        stamped = f", {report.anchors.stamped:,} with a signed timestamp" if report.anchors.stamped else ""
        ui.say(f"Anchors on the chain: {report.anchors.checked:,}, up to row {report.anchors.newest:,}{stamped}.")
    if report.restored:
        note = report.restored
        ui.say(f"Restored by {note.actor} at {note.timestamp} from backup {note.backup}, with {note.rows:,} rows of the log.")


@audit_app.command("anchor")
def anchor_audit() -> None:
    """Write the newest hash of the audit log to places outside the workspace, so that a log that is rewritten later is noticed.

    Name at least one place in medloop.yaml: audit.anchor_file (a file on another disk), audit.syslog (the system's log) or
    audit.timestamp_url (a time-stamping service, with audit.timestamp_certificate). 'medloop audit verify' compares the log with
    them. Run this command every day; each backup writes an anchor too. Exit code 10 if a place cannot be reached; the other
    places still get theirs.

    Example:  medloop audit anchor

    Example:  medloop --set audit.anchor_file=/mnt/other-disk/clinic.anchors audit anchor
    """
    settings = ui.settings()
    if not is_configured(settings):
        raise ConfigError(
            "There is no place for an anchor outside the workspace",
            "Set audit.anchor_file, audit.syslog or audit.timestamp_url in medloop.yaml",
        )
    with open_store(settings) as store:
        results = write_anchors(store, actor=actor())
    _say_anchors(results)
    if failed := sum(result.problem is not None for result in results):
        raise ResultError(f"{failed} of {len(results)} places did not get the anchor", "Check them and run the command again")


def _say_anchors(results: Sequence[AnchorResult]) -> None:
    for result in results:
        ui.say(f"  {result.place}: {'anchored' if result.problem is None else f'not anchored, {result.problem}'}")


@audit_app.command("show")
def show_audit(
    last: Annotated[int, typer.Option(min=1, help="Number of newest rows to show.")] = 20,
    who: Annotated[str, typer.Option("--actor", metavar="NAME", help="Only what this user did; a name or an id.")] = "",
    action: Annotated[str, typer.Option(help="Only actions that start like this, for example users.")] = "",
    subject: Annotated[str, typer.Option("--object", help="Only about this user or record; a name or the start of an id.")] = "",
    since: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="From this day on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Up to this day (UTC).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """Print the newest rows of the audit log, oldest first.

    Example:  medloop audit show --action incidents. --since 2026-01-01
    """
    with open_store(ui.settings()) as store:
        names = users.names(store)
        ids = {name: user_id for user_id, name in names.items()}
        days = (None if day is None else day.date() for day in (since, until))
        which = audit.AuditFilter(action, ids.get(who, who), ids.get(subject, subject), *days)
        rows = audit.page(store, which, limit=last)[::-1]
    if json_:
        for row in rows:
            ui.say(json.dumps(row, ensure_ascii=False))
        return
    cells = []
    for row in rows:
        detail = ", ".join(f"{name}={value}" for name, value in row["detail"].items())
        people = (names.get(row[part], row[part]) for part in ("actor", "subject"))
        cells.append((str(row["seq"]), row["timestamp"], next(people), row["action"], next(people), detail))
    ui.table(("row", "time", "actor", "action", "subject", "detail"), cells)


def _master_from(variable: str) -> MasterKey:
    text = os.environ.get(variable)
    if not text:
        raise ConfigError(f"--new-key-env: the variable {variable} is not set", "Export it first")
    return MasterKey(decode_key(text, variable), f"environment {variable}")
