"""Which records are in which dataset, which of them still count, and the flags that erasures set on datasets and models.

add_records(conn, card_sha256, ["fb_…", "pref_…"])      # inside a store.write()
datasets_of(store, ["fb_…"])                            # hashes of the datasets that hold them
flag_artifact(conn, model_sha256, "tainted", "trained on data erased in er_…", actor="usr_1")
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, insert, select

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.tables import artifact_flags, id_column, lineage, tombstones, withdrawals


def add_records(conn: Connection, dataset: str, record_ids: Iterable[str]) -> int:
    """Store which records a dataset (by its hash) contains; existing rows stay. Returns how many rows are new."""
    stored = set(conn.execute(select(lineage.c.record_id).where(lineage.c.dataset == dataset)).scalars())
    new = sorted(set(record_ids) - stored)
    for chunk in chunks(new):
        conn.execute(insert(lineage), [{"dataset": dataset, "record_id": record_id} for record_id in chunk])
    return len(new)


def datasets_of(store: Store, record_ids: Sequence[str]) -> dict[str, set[str]]:
    """The datasets that contain any of these records, with those records."""
    datasets: dict[str, set[str]] = {}
    with store.read() as conn:
        for chunk in chunks(record_ids):
            for row in conn.execute(select(lineage).where(lineage.c.record_id.in_(chunk))).all():
                datasets.setdefault(row.dataset, set()).add(row.record_id)
    return datasets


def records_of(store: Store, dataset: str) -> list[str]:
    with store.read() as conn:
        return sorted(conn.execute(select(lineage.c.record_id).where(lineage.c.dataset == dataset)).scalars())


def remove_records(conn: Connection, record_ids: Sequence[str]) -> int:
    """Remove erased records from every dataset's lineage; their tombstones stay."""
    return sum(conn.execute(delete(lineage).where(lineage.c.record_id.in_(chunk))).rowcount for chunk in chunks(record_ids))


def flag_artifact(conn: Connection, sha256: str, flag: str, reason: str, *, actor: str) -> bool:
    """Flag an artifact by its hash; False if it already has this flag for this reason."""
    same = select(artifact_flags.c.id).where(
        artifact_flags.c.sha256 == sha256, artifact_flags.c.flag == flag, artifact_flags.c.reason == reason
    )
    if conn.execute(same).first() is not None:
        return False
    flag_id = f"flag_{uuid7()}"
    conn.execute(insert(artifact_flags).values(flag_id=flag_id, sha256=sha256, flag=flag, reason=reason, timestamp=utc_now()))
    detail: dict[str, str | int | float | bool] = {"flag": flag, "sha256": sha256}
    audit.append(conn, AuditEvent(actor=actor, action="artifact_flags.add", subject=flag_id, detail=detail))
    return True


def flags_of(store: Store, sha256: str) -> list[tuple[str, str]]:
    """(flag, reason) of an artifact, oldest first."""
    query = select(artifact_flags).where(artifact_flags.c.sha256 == sha256).order_by(artifact_flags.c.id)
    with store.read() as conn:
        return [(row.flag, row.reason) for row in conn.execute(query).all()]


def erased_ids(store: Store) -> set[str]:
    """The ids of all erased records. A record that is sent again under such an id must not be used."""
    with store.read() as conn:
        return set(conn.execute(select(tombstones.c.record_id)).scalars())


def superseded(store: Store, table: Table) -> set[str]:
    """The ids of the records in a table that count no more: a newer one replaces them, or their author took them back."""
    with store.read() as conn:
        withdrawn = conn.execute(select(withdrawals.c.record_id).where(withdrawals.c.kind == table.name)).scalars()
        return {*conn.execute(select_superseded(table)).scalars(), *withdrawn}


def select_superseded(table: Table) -> Select[Any]:
    """Select the replaced ids. A record that was sent again after its erasure, or taken back, replaces nothing."""
    erased, withdrawn = select(tombstones.c.record_id), select(withdrawals.c.record_id)
    alive = id_column(table).not_in(erased), id_column(table).not_in(withdrawn)
    return select(table.c.supersedes).where(table.c.supersedes.is_not(None), *alive)
