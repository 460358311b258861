"""The audit log: who did what. Each row's hash covers the row before it, so a change to a past row is noticed.

    h(i) = SHA-256( h(i-1) || canonical(row i) ),   h(0) = 32 zero bytes

A chain stays valid when rows are cut off its end. So the newest number and hash are also stored outside the database, in the
workspace's `logs/audit.head`, signed with a key that only the master key opens. The head is written after the commit. A crash
between the two leaves the head behind the log, which is normal; a head that is ahead of the log raises an alarm, and so does an
empty log in a store that holds data. The head also says in which folder it was written: in a copy of the workspace that was made
while somebody wrote, the two differ too, and the report says that it is a copy.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import ColumnElement, Connection, bindparam, func, make_url, or_, select

from medloop.contracts import AuditEvent, canonical_json
from medloop.contracts.base import iso_utc
from medloop.errors import InputError, MedloopError, explain_os_errors
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write, make_folder
from medloop.store.files.lock import locked_file
from medloop.store.insert_rows import insert_unsigned
from medloop.store.row_macs import NEW_HEAD, newest_rows
from medloop.store.tables import audit_log, metadata

if TYPE_CHECKING:
    from medloop.store.db import Store

GENESIS = "0" * 64
HEAD_BYTES = 256  # less than a disk sector, which is written whole or not at all
_LAST = "SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1"  # as text: asked with each batch of a server
_HASH_OF = select(audit_log.c.hash).where(audit_log.c.seq == bindparam("seq"))
# Tables that may hold rows while the log is empty.
_UNAUDITED = {"audit_log", "data_keys", "queue_cursor", "sent_records", "sync_cursors"}
_APPENDED = "medloop.audit"  # in conn.info: what this transaction added, until it is committed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Head:
    """The newest row, as stored outside the database."""

    seq: int
    hash: str
    place: str  # a hash of the folder it was written in
    mac: str

    def render(self) -> str:
        """The head as text, always of the same length: `_put_head` overwrites it in place."""
        return canonical_json(vars(self)).ljust(HEAD_BYTES - 1) + "\n"


ProblemKind = Literal["missing", "changed", "no_log", "no_head", "no_key", "head_changed", "cut_off", "rewritten", "copied"]


@dataclass(frozen=True)
class AuditReport:
    """The result of `verify`: how many rows from the start are good, and the first problem, if any.

    `chain_ok` with a problem means that each row follows the one before, but the last row does not match the head.
    """

    rows: int
    last_hash: str
    head_seq: int | None = None
    problem: str | None = None
    bad_row: int | None = None
    chain_ok: bool = True
    kind: ProblemKind | None = None  # of the problem, for those who say it in another language

    @property
    def ok(self) -> bool:
        return self.problem is None


@dataclass(frozen=True)
class _Appended:
    seq: int
    hash: str
    before: tuple[int, str]  # the end of the log when the transaction began


def append(conn: Connection, events: AuditEvent | Iterable[AuditEvent]) -> int:
    """Add events to the chain inside a `store.write()` transaction; returns the number of the last row."""
    assert _APPENDED in conn.info, "audit.append needs the connection of store.write()"
    appended: _Appended | None = conn.info[_APPENDED]
    before = appended.before if appended else _end(conn)
    seq, last = (appended.seq, appended.hash) if appended else before
    rows = []
    for event in [events] if isinstance(events, AuditEvent) else events:
        seq += 1
        row = _row(seq, event)
        last = _hash(last, row)
        rows.append({**row, "hash": last})
    if rows:
        insert_unsigned(conn, audit_log, rows)
        conn.info[_APPENDED] = _Appended(seq, last, before)
    return seq


def verify(store: Store) -> AuditReport:
    """Check the whole chain, compare its end with the head, and name the first row that was changed."""
    stored_head = _read_head(store.settings)  # before the rows: if a writer adds rows in between, the head only lags
    seq, last, at_head = 0, GENESIS, GENESIS
    with store.read() as conn:
        query = select(audit_log).order_by(audit_log.c.seq)
        with conn.execution_options(yield_per=1000).execute(query) as rows:
            for row in rows:
                if row.seq != seq + 1:
                    return _broken("missing", seq, last, seq + 1, f"row {seq + 1} is missing (the next row is {row.seq})")
                if row.hash != _hash(last, {name: value for name, value in row._mapping.items() if name != "hash"}):
                    return _broken("changed", seq, last, row.seq, f"row {row.seq} was changed, or does not follow row {seq}")
                seq, last = row.seq, row.hash
                if isinstance(stored_head, Head) and seq == stored_head.seq:
                    at_head = last
        return _against_head(store, conn, stored_head, AuditReport(seq, last), at_head)


def hash_at(store: Store, seq: int) -> str | None:
    """The hash of one row; None if there is no such row."""
    if seq == 0:
        return GENESIS
    with store.read() as conn:
        last: str | None = conn.execute(_HASH_OF, {"seq": seq}).scalar()
    return last


def show(store: Store, last: int) -> list[dict[str, Any]]:
    """The newest `last` rows, oldest first."""
    with store.read() as conn:
        rows = conn.execute(select(audit_log).order_by(audit_log.c.seq.desc()).limit(last)).all()
    return [{**row._mapping, "detail": json.loads(row.detail)} for row in reversed(rows)]


@dataclass(frozen=True)
class AuditFilter:
    """Which rows to show: by actor, by the start of the action (`users.` finds all of them) and of the object, by day (UTC)."""

    action: str = ""
    actor: str = ""
    subject: str = ""
    since: date | None = None
    until: date | None = None  # this day is included

    def conditions(self) -> list[ColumnElement[bool]]:
        columns, conditions = audit_log.c, list[ColumnElement[bool]]()
        if self.actor:
            conditions.append(columns.actor == self.actor)
        if self.action:
            conditions.append(columns.action.startswith(self.action, autoescape=True))
        if self.subject:
            conditions.append(columns.subject.startswith(self.subject, autoescape=True))
        if self.since is not None:  # times are stored as text, and every time of a day sorts behind the day itself
            conditions.append(columns.timestamp >= self.since.isoformat())
        if self.until is not None and self.until < date.max:
            conditions.append(columns.timestamp < (self.until + timedelta(days=1)).isoformat())
        return conditions


def page(store: Store, which: AuditFilter = AuditFilter(), *, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
    """Rows newest first, older than row `before`."""
    query = select(audit_log).where(*which.conditions()).order_by(audit_log.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(audit_log.c.seq < before)
    with store.read() as conn:
        return [{**row._mapping, "detail": json.loads(row.detail)} for row in conn.execute(query).all()]


def pages(store: Store, which: AuditFilter = AuditFilter(), *, size: int = 1000) -> Iterator[list[dict[str, Any]]]:
    """All rows that match, newest first, some at a time, so that memory stays bounded. Later rows are left out."""
    rows = page(store, which, limit=size)
    while rows:
        yield rows
        rows = page(store, which, before=rows[-1]["seq"], limit=size)


def counts_since_login(store: Store, user_id: str) -> dict[str, int]:
    """How often each action happened since the login before the current one of this user; empty at their first login."""
    log_in = select(audit_log.c.seq).where(audit_log.c.actor == user_id, audit_log.c.action == "sessions.login")
    with store.read() as conn:
        before = conn.execute(log_in.order_by(audit_log.c.seq.desc()).limit(1).offset(1)).scalar()
        if before is None:
            return {}
        query = select(audit_log.c.action, func.count()).where(audit_log.c.seq > before).group_by(audit_log.c.action)
        return {action: int(count) for action, count in conn.execute(query).all()}


def recent_actions(store: Store, last: int = 5000) -> list[str]:
    """The actions in the newest rows, for a list of suggestions."""
    newest = select(audit_log.c.action).order_by(audit_log.c.seq.desc()).limit(last).subquery()
    with store.read() as conn:
        return sorted(conn.execute(select(newest.c.action).distinct()).scalars())


def start_new_head(store: Store, actor: str) -> None:
    """Accept the log as it is and audit that: for a second workspace on one database, or a database restored on purpose."""
    stored_head = _read_head(store.settings)
    old = stored_head.seq if isinstance(stored_head, Head) else -1
    with store.read() as conn:
        detail: dict[str, str | int | float | bool] = {"old_head": old, **newest_rows(conn)}
    append_with_head(store, AuditEvent(actor=actor, action=NEW_HEAD, subject="audit_log", detail=detail))


def append_with_head(store: Store, event: AuditEvent) -> None:
    """Append a line, and write a head for it whatever the head on the disk says."""
    with store.write() as conn:
        append(conn, event)
        appended: _Appended = conn.info[_APPENDED]
        conn.info[_APPENDED] = None  # its head is not compared with the one on the disk: it replaces that one
        head = _sign(store.keys.auditing(conn).raw, _place_of(store.settings.home), appended.seq, appended.hash)
    _write_head(store.settings, head, force=True)


def head_file(settings: Settings) -> Path:
    """One head per database: `audit.head` for the workspace's own database, a name made from the URL for any other."""
    if settings.store_url == f"sqlite:///{settings.workspace.database}":
        return settings.workspace.logs / "audit.head"
    url = make_url(settings.store_url).set(password=None).difference_update_query(["password"])
    name = hashlib.sha256(url.render_as_string().encode()).hexdigest()[:12]
    return settings.workspace.logs / f"audit-{name}.head"


def prepare(store: Store) -> None:
    """Write a head for row 0 before the first row, so that from then on a missing head raises an alarm.

    The key is committed before the head is written: if a crash rolled the key back, the head it signed would raise an alarm too.
    In a store with data, an empty log without a head was emptied by somebody: a new head would hide that.
    """
    if head_file(store.settings).exists():
        return
    with store.transaction() as conn:
        if _end(conn)[0] > 0 or _holds_data(conn):
            return
        head = _sign(store.keys.auditing(conn).raw, _place_of(store.settings.home), 0, GENESIS)
    _write_head(store.settings, head)


def begin(conn: Connection) -> None:
    """Start a write transaction with nothing appended: a rolled-back one may have left its mark on the connection."""
    conn.info[_APPENDED] = None


def sign_head(store: Store, conn: Connection) -> Head | None:
    """The head that is valid once this transaction is committed; None if nothing was appended.

    Also None when the head on the disk does not fit the chain: it is evidence that rows were removed, so it must not be replaced.
    """
    appended: _Appended | None = conn.info.pop(_APPENDED)
    if appended is None:
        return None
    key, stored_head = store.keys.auditing(conn).raw, _read_head(store.settings)
    if not isinstance(stored_head, Head) or not _signed(key, stored_head) or not _on_chain(conn, stored_head, appended.before):
        if not store.head_alarm:  # once, so that a busy server does not flood its log
            log.error("%s does not fit the audit log and is left as it is; run: medloop audit verify", head_file(store.settings))
        store.head_alarm = True
        return None
    return _sign(key, _place_of(store.settings.home), appended.seq, appended.hash)


def keep_head(settings: Settings, head: Head) -> None:
    """Write the head after the commit. A failure is logged, not raised: the data is safe, only the head lags."""
    try:
        _write_head(settings, head)
    except MedloopError as error:
        log.error("the audit head lags behind the log: %s", error)


def _broken(kind: ProblemKind, rows: int, last: str, bad_row: int, problem: str) -> AuditReport:
    return AuditReport(rows, last, problem=problem, bad_row=bad_row, chain_ok=False, kind=kind)


def _against_head(
    store: Store, conn: Connection, stored_head: Head | str | None, report: AuditReport, at_head: str
) -> AuditReport:
    path = head_file(store.settings)
    if report.rows == 0 and (stored_head is None or (isinstance(stored_head, Head) and stored_head.seq == 0)):
        if not _holds_data(conn):
            return report
        return replace(report, problem="the log is empty, but the store holds data: somebody emptied it", kind="no_log")
    if stored_head is None:
        return replace(report, problem=f"{path} is missing, so rows cut off the end would go unnoticed", kind="no_head")
    if not store.keys.exists(conn, "audit"):
        return replace(report, problem=f"the store no longer has the key that signs {path}", kind="no_key")
    if isinstance(stored_head, str) or not _signed(store.keys.auditing(conn).raw, stored_head):
        return replace(report, problem=f"{path} was changed", kind="head_changed")
    seq = stored_head.seq
    report = replace(report, head_seq=seq)
    if at_head != stored_head.hash and stored_head.place != _place_of(store.settings.home):
        problem = (
            f"this folder is a copy of a workspace, or was moved: {path} was written elsewhere, at row {seq}, and the database "
            f"here has {report.rows} rows that do not lead there, as in a copy that was made while medloop was writing"
        )
        return replace(report, problem=problem, bad_row=min(seq, report.rows + 1), kind="copied")
    if seq > report.rows:
        problem = f"rows {report.rows + 1} to {seq} were cut off the end"
        return replace(report, problem=problem, bad_row=report.rows + 1, kind="cut_off")
    if at_head != stored_head.hash:
        problem = f"rows up to {seq} were rewritten: their last hash differs from {path}"
        return replace(report, problem=problem, bad_row=seq, kind="rewritten")
    return report


def _end(conn: Connection) -> tuple[int, str]:
    row = conn.exec_driver_sql(_LAST).first()
    return (0, GENESIS) if row is None else (row.seq, row.hash)


def _row(seq: int, event: AuditEvent) -> dict[str, str | int]:
    row: dict[str, str | int] = {
        "seq": seq, "timestamp": iso_utc(event.timestamp), "actor": event.actor, "action": event.action, "subject": event.subject,
        "detail": canonical_json(event.detail) if event.detail else "{}",
    }  # fmt: skip
    if "\0" in f"{event.actor}{event.action}{event.subject}":  # in the detail, JSON has its own form of it
        raise InputError("An audit event contains a NUL character", "Remove it from the id or name you gave")
    return row


def _hash(before: str, row: Mapping[str, Any]) -> str:
    return hashlib.sha256(bytes.fromhex(before) + canonical_json(dict(row)).encode()).hexdigest()


def _sign(key: bytes, place: str, seq: int, last: str) -> Head:
    return Head(seq, last, place, hmac.digest(key, f"audit head {seq} {last} {place}".encode(), "sha256").hex())


def _signed(key: bytes, head: Head) -> bool:
    return hmac.compare_digest(_sign(key, head.place, head.seq, head.hash).mac, head.mac)


@cache
def _place_of(home: Path) -> str:
    """The folder of a workspace, as a head names it."""
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]


def _holds_data(conn: Connection) -> bool:
    tables = (table for name, table in metadata.tables.items() if name not in _UNAUDITED)
    return bool(conn.execute(select(or_(*(select(table.c[0]).exists() for table in tables)))).scalar())


def _on_chain(conn: Connection, head: Head, end: tuple[int, str]) -> bool:
    if head.seq == end[0]:
        return head.hash == end[1]
    return head.seq == 0 or conn.execute(_HASH_OF, {"seq": head.seq}).scalar() == head.hash


@contextmanager
def _head_lock(settings: Settings) -> Iterator[Path]:
    """The head's path, while nobody else reads or writes it."""
    path = head_file(settings)
    with explain_os_errors(path, writing=True):
        make_folder(path.parent)
        with locked_file(path.parent, wait_s=5.0, what=str(path)):
            yield path


def _read_head(settings: Settings) -> Head | str | None:
    """The head; None if there is none; the text of the file if it is not a valid head."""
    with _head_lock(settings) as path:
        return _parse_head(path)


def _parse_head(path: Path) -> Head | str | None:
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        head = Head(**json.loads(text))
        return head if head.render() == text and type(head.seq) is int else text
    except (ValueError, TypeError):
        return text


def _write_head(settings: Settings, head: Head, *, force: bool = False) -> None:
    """Write a newer head; an older one only if forced, because two writers may arrive in either order after their commits."""
    with _head_lock(settings) as path:
        stored_head = _parse_head(path)
        if force or not isinstance(stored_head, Head):
            atomic_write(path, head.render(), mode=0o600)
        elif stored_head.seq < head.seq:
            _put_head(path, head)


def _put_head(path: Path, head: Head) -> None:
    """Overwrite the head in place without fsync: this is fast and survives a kill; after a power cut the head may lag."""
    with path.open("r+b", buffering=0) as file:
        file.write(head.render().encode())
