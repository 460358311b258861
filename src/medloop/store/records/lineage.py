"""Which records are in which dataset, and what an erasure said about datasets and models.

enter(conn, card_sha256, ["fb_…", "pref_…"])      # inside a store.write()
datasets_of(store, ["fb_…"])                      # hashes of the datasets that hold them
flag(conn, model_sha256, "tainted", "trained on data erased in er_…")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, insert, select

from medloop.contracts import utc_now
from medloop.store.db import Store
from medloop.store.tables import artifact_flags, lineage, natural_id, tombstones

CHUNK = 500  # ids per query; far below SQLite's limit on variables


def enter(conn: Connection, dataset: str, record_ids: Iterable[str]) -> int:
    """Say which records a dataset (by its hash) holds; what is known already stays. Returns how many lines are new."""
    wanted = sorted(set(record_ids))
    known = set(conn.execute(select(lineage.c.record_id).where(lineage.c.dataset == dataset)).scalars())
    new = [one for one in wanted if one not in known]
    for some in chunks(new):
        conn.execute(insert(lineage), [{"dataset": dataset, "record_id": one} for one in some])
    return len(new)


def datasets_of(store: Store, record_ids: Sequence[str]) -> dict[str, set[str]]:
    """Per dataset that holds some of these records, which ones."""
    found: dict[str, set[str]] = {}
    with store.read() as conn:
        for some in chunks(record_ids):
            for row in conn.execute(select(lineage).where(lineage.c.record_id.in_(some))).all():
                found.setdefault(row.dataset, set()).add(row.record_id)
    return found


def records_of(store: Store, dataset: str) -> list[str]:
    with store.read() as conn:
        return sorted(conn.execute(select(lineage.c.record_id).where(lineage.c.dataset == dataset)).scalars())


def forget(conn: Connection, record_ids: Sequence[str]) -> int:
    """Take erased records out of every lineage; their tombstones say that they were there."""
    return sum(conn.execute(delete(lineage).where(lineage.c.record_id.in_(some))).rowcount for some in chunks(record_ids))


def flag(conn: Connection, sha256: str, name: str, reason: str) -> bool:
    """Mark an artifact by its hash, once; False when it was marked so before."""
    same = select(artifact_flags.c.id).where(
        artifact_flags.c.sha256 == sha256, artifact_flags.c.flag == name, artifact_flags.c.reason == reason
    )
    if conn.execute(same).first() is not None:
        return False
    conn.execute(insert(artifact_flags).values(sha256=sha256, flag=name, reason=reason, timestamp=utc_now()))
    return True


def flags_of(store: Store, sha256: str) -> list[tuple[str, str]]:
    """(flag, reason) of an artifact, oldest first."""
    query = select(artifact_flags).where(artifact_flags.c.sha256 == sha256).order_by(artifact_flags.c.id)
    with store.read() as conn:
        return [(row.flag, row.reason) for row in conn.execute(query).all()]


def erased(store: Store) -> set[str]:
    """The ids of all records that were erased: one that comes back under such an id is not to be used."""
    with store.read() as conn:
        return set(conn.execute(select(tombstones.c.record_id)).scalars())


def superseded(store: Store, table: Table) -> set[str]:
    """The ids of records of a table that a newer record replaces."""
    with store.read() as conn:
        return set(conn.execute(select_superseded(table)).scalars())


def select_superseded(table: Table) -> Select[Any]:
    """A record that came back after its erasure replaces none."""
    alive = table.c[natural_id(table)].not_in(select(tombstones.c.record_id))
    return select(table.c.supersedes).where(table.c.supersedes.is_not(None), alive)


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(values)
    while some := list(islice(rest, CHUNK)):
        yield some
