"""Erasures that remove safety evidence wait here for a second person.

    request_id = add_request(store, subject="sub_…", records=(), reason="asked", keep_jobs=False, by="usr_1", …)
    approve(store, request_id, by="usr_2")           # somebody else, a clinician or an admin
    refuse(store, request_id, by="usr_2", note="It is about another person.")
    finish(store, request_id, "er_…")                # when everything is erased; until then the request is listed

A request that nobody decides is over after WAITS. `ids` and `evidence` are what the two people see: ids and counts, no text.
`ids_sha256` names the set of records that the request was about (`ErasurePlan.ids_sha256`); the erasure itself compares it.

The rule is checked here, in the transaction of the change, so it holds for every door.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.tables import erasure_requests, users

DECIDERS = ("clinician", "admin")
NEED_SECOND = "Ask another clinician or admin"
WAITS = timedelta(days=14)  # for a second person; after that somebody has to look at the records anew
VALID = timedelta(days=1)  # of an approval: time enough to finish an erasure that was interrupted


class NoSuchRequestError(InputError):
    pass


class NotAllowedError(InputError):
    """This person may not request or approve this erasure."""


class OwnRequestError(NotAllowedError):
    """Whoever requested an erasure cannot approve it."""


class DecidedError(InputError):
    """Somebody has approved or refused this erasure, or its time is over."""


class ApprovalOverError(DecidedError):
    """The erasure was approved too long ago to begin now."""


class CarriedOutError(DecidedError):
    """Everything that this request was about is erased."""


@dataclass(frozen=True)
class StoredRequest:
    """An erasure that needs two people; `approved_by` is None while it waits. `ids` are the records it removes, by table."""

    request_id: str
    subject: str | None
    records: tuple[str, ...]
    reason: str
    keep_jobs: bool
    requested_by: str
    timestamp: datetime
    approved_by: str | None
    ids_sha256: str
    ids: dict[str, list[str]]
    evidence: dict[str, int]
    approved: datetime | None

    @property
    def expires(self) -> datetime:
        return self.timestamp + WAITS if self.approved is None else self.approved + VALID


def add_request(
    store: Store, *, subject: str | None, records: Sequence[str], reason: str, keep_jobs: bool, by: str,
    evidence: Mapping[str, int], ids: Mapping[str, Sequence[str]], ids_sha256: str,
) -> str:  # fmt: skip
    """Store a request; an equal one that waits already is not stored twice."""
    same = (subject, tuple(records), by, ids_sha256, keep_jobs, reason)
    for row in waiting(store):
        if (row.subject, row.records, row.requested_by, row.ids_sha256, row.keep_jobs, row.reason) == same:
            return row.request_id
    request_id = f"ereq_{uuid7()}"
    with store.write() as conn:
        _check_person(conn, by)
        values: dict[str, Any] = {
            "request_id": request_id,
            "subject": subject,
            "records": list(records),
            "reason": reason,
            "requested_by": by,
        }
        values |= {"ids": {name: list(some) for name, some in ids.items()}, "evidence": dict(evidence), "keep_jobs": keep_jobs}
        conn.execute(insert(erasure_requests).values(**values, ids_sha256=ids_sha256, timestamp=utc_now()))
        total = sum(evidence.values())
        detail: dict[str, str | int | float | bool] = {"evidence": total, "reason": reason, "ids_sha256": ids_sha256}
        audit.append(conn, AuditEvent(actor=by, action="erasure.request", subject=request_id, detail=detail))
    return request_id


def approve(store: Store, request_id: str, *, by: str, note: str = "") -> StoredRequest:
    """The request, approved by a second person; approved again within a day it stays, so that a killed erasure can go on.

    Later it is refused: what was said about the person since then was not part of what two people agreed on.
    """
    with store.write() as conn:
        row = _checked(conn, request_id, by)
        if row.approved_by is None:
            conn.execute(
                update(erasure_requests)
                .where(erasure_requests.c.request_id == request_id)
                .values(approved_by=by, approved=utc_now(), note=note or None)
            )
            detail: dict[str, str | int | float | bool] = {"ids_sha256": row.ids_sha256, **({"note": note} if note else {})}
            audit.append(conn, AuditEvent(actor=by, action="erasure.approve", subject=request_id, detail=detail))
        return _stored(_get(conn, request_id))


def check_approval(store: Store, request_id: str, *, by: str) -> StoredRequest:
    """The request, if this person may approve it now; the same errors as `approve`, and nothing is changed."""
    with store.read() as conn:
        return _stored(_checked(conn, request_id, by))


def _checked(conn: Connection, request_id: str, by: str) -> Row[Any]:
    row = _get(conn, request_id)
    _check_person(conn, by)
    if row.requested_by == by:
        raise OwnRequestError("You requested this erasure, so somebody else has to approve it", NEED_SECOND)
    _check_undecided(row)
    if row.erasure_id is not None:
        raise CarriedOutError(f"This erasure was approved and carried out ({row.erasure_id})", "Its proof is in reports/erasure")
    if row.approved is not None and utc_now() - row.approved > VALID:
        raise ApprovalOverError("This erasure was approved more than a day ago and is over", "Request the erasure anew")
    return row


def finish(store: Store, request_id: str, erasure_id: str) -> None:
    """Everything is erased: the request leaves the list."""
    mine = (erasure_requests.c.request_id == request_id, erasure_requests.c.erasure_id.is_(None))
    with store.write() as conn:
        conn.execute(update(erasure_requests).where(*mine).values(erasure_id=erasure_id))


def refuse(store: Store, request_id: str, *, by: str, note: str) -> None:
    """The erasure does not happen; whoever requested it may take it back in the same way. The note is part of the audit log."""
    with store.write() as conn:
        row = _get(conn, request_id)
        _check_person(conn, by)
        if row.approved_by is not None:
            raise DecidedError("This erasure was approved already", "It cannot be taken back")
        _check_undecided(row)
        mine = erasure_requests.c.request_id == request_id
        conn.execute(update(erasure_requests).where(mine).values(refused_by=by, refused=utc_now(), note=note))
        detail: dict[str, str | int | float | bool] = {"note": note, "ids_sha256": row.ids_sha256}
        audit.append(conn, AuditEvent(actor=by, action="erasure.refuse", subject=request_id, detail=detail))


def _check_undecided(row: Row[Any]) -> None:
    if row.refused_by is not None:
        raise DecidedError("This erasure was refused", "Request the erasure anew")
    if row.approved_by is None and utc_now() > row.timestamp + WAITS:
        raise DecidedError(f"This request is more than {WAITS.days} days old and is over", "Request the erasure anew")


def get_request(store: Store, request_id: str) -> StoredRequest:
    with store.read() as conn:
        return _stored(_get(conn, request_id))


def unfinished(store: Store) -> list[StoredRequest]:
    """The requests that wait for a decision, and those that were approved and are not carried out yet, oldest first."""
    requests = erasure_requests.c
    undone = (requests.refused_by.is_(None), requests.erasure_id.is_(None), requests.timestamp > utc_now() - WAITS)
    with store.read() as conn:
        return [_stored(row) for row in conn.execute(select(erasure_requests).where(*undone).order_by(requests.id))]


def waiting(store: Store) -> list[StoredRequest]:
    """The requests that nobody has decided yet and that are not over, oldest first."""
    return [request for request in unfinished(store) if request.approved_by is None]


def _get(conn: Connection, request_id: str) -> Row[Any]:
    row = conn.execute(select(erasure_requests).where(erasure_requests.c.request_id == request_id)).first()
    if row is None:
        raise NoSuchRequestError("There is no such request for an erasure", "The command that requested it printed the id")
    return row


def _check_person(conn: Connection, user_id: str) -> None:
    user = conn.execute(select(users.c.role, users.c.disabled).where(users.c.user_id == user_id)).first()
    if user is None or user.disabled:
        raise NotAllowedError("Only an active user of this workspace can do this", "'medloop users list' shows all users")
    if user.role not in DECIDERS:
        raise NotAllowedError(f"Your role ({user.role}) cannot decide about an erasure", f"Allowed roles: {', '.join(DECIDERS)}")


def _stored(row: Row[Any]) -> StoredRequest:
    return StoredRequest(
        row.request_id, row.subject, tuple(row.records), row.reason, row.keep_jobs, row.requested_by, row.timestamp,
        row.approved_by, row.ids_sha256, row.ids, row.evidence, row.approved,
    )  # fmt: skip
