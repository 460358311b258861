"""Consent, quarantine and erasure in numbers, for those who check them; nothing here names a person or reads a text."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Integer, cast, func, select

from medloop.store.db import Store
from medloop.store.tables import consents, erasure_requests, quarantine, tombstones


@dataclass(frozen=True)
class ErasureCount:
    """An erasure that was carried out: how many records it removed, by kind, and who had asked for it."""

    erasure_id: str
    records: int
    erased_by: str
    timestamp: datetime


@dataclass(frozen=True)
class RequestRow:
    """A request for an erasure that needs two people; `state` says how far it is."""

    request_id: str
    state: str
    requested_by: str
    decided_by: str | None
    timestamp: datetime
    erasure_id: str | None


@dataclass(frozen=True)
class PrivacyCounts:
    """`held` counts records by their state in the privacy review."""

    granted: int
    withdrawn: int
    people: int
    held: dict[str, int]
    erased: int
    erasures: list[ErasureCount]
    requests: list[RequestRow]


def privacy_counts(store: Store, *, most: int = 50) -> PrivacyCounts:
    """The newest erasures and requests first."""
    with store.read() as conn:
        granted = func.sum(cast(consents.c.granted, Integer))
        total, yes, people = conn.execute(
            select(func.count(), granted, func.count(consents.c.subject.distinct())).select_from(consents)
        ).one()
        held = conn.execute(select(quarantine.c.state, func.count()).group_by(quarantine.c.state)).all()
        stone = tombstones.c
        query = select(stone.erasure_id, func.count(), func.max(stone.erased_by), func.max(stone.timestamp))
        done = conn.execute(query.group_by(stone.erasure_id).order_by(func.max(stone.id).desc()).limit(most)).all()
        asked = conn.execute(select(erasure_requests).order_by(erasure_requests.c.id.desc()).limit(most)).all()
        erased = conn.execute(select(func.count()).select_from(tombstones)).scalar_one()
    requests = [
        RequestRow(
            row.request_id, _state(row.erasure_id, row.refused_by, row.approved_by), row.requested_by,
            row.refused_by or row.approved_by, row.timestamp, row.erasure_id,
        )
        for row in asked
    ]  # fmt: skip
    return PrivacyCounts(
        int(yes or 0), int(total) - int(yes or 0), int(people), {state: int(n) for state, n in held}, int(erased),
        [ErasureCount(row[0], int(row[1]), row[2], row[3]) for row in done], requests,
    )  # fmt: skip


def _state(erasure_id: str | None, refused_by: str | None, approved_by: str | None) -> str:
    if erasure_id is not None:
        return "done"
    if refused_by is not None:
        return "refused"
    return "waiting" if approved_by is None else "approved"
