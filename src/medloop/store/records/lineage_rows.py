"""The rows behind the lineage graph: artifacts with their cards, and the records of datasets in numbers and by page.

Ids, hashes and counts only: no text of a record is read here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import Connection, Select, Table, func, literal, select

from medloop.contracts import Correction, Feedback, Preference, Trace, sha256_id
from medloop.contracts.lineage import LineageEdge, LineageGraph, LineageNode, NodeKind, RecordKind, TaughtRecord
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.tables import (
    artifact_flags,
    artifacts,
    codebook_entries,
    gate_results,
    id_column,
    lineage,
    registry_versions,
    rubric_criteria,
    tombstones,
    users,
)

CRITERION = "criterion"
KINDS: dict[RecordKind, Table] = {
    "feedback": crud.TABLES[Feedback], "preference": crud.TABLES[Preference], "correction": crud.TABLES[Correction],
    "trace": crud.TABLES[Trace],
}  # fmt: skip
assert set(KINDS) == set(get_args(RecordKind)) - {"erased"}


@dataclass(frozen=True)
class ArtifactRow:
    """An entry of the catalog. `path` is relative to the workspace where it lies inside."""

    kind: str
    path: str
    sha256: str
    fingerprint: str | None
    card: Mapping[str, Any]
    created: datetime


def artifact_rows(conn: Connection) -> list[ArtifactRow]:
    """The whole catalog, oldest first."""
    columns = (artifacts.c[name] for name in ("kind", "path", "sha256", "fingerprint", "card", "created"))
    return [ArtifactRow(*row) for row in conn.execute(select(*columns).order_by(artifacts.c.id)).all()]


def gate_rows(conn: Connection) -> list[ArtifactRow]:
    """The gate's verdicts, oldest first, as if they were in the catalog."""
    names = ("gate", "label", "artifact", "report", "outcome", "timestamp")
    return [
        ArtifactRow(
            "gate", f"gate of {row.label}", row.gate, None,
            {"inputs": {"examined": row.artifact, "evaluation": row.report}, "outcome": row.outcome}, row.timestamp,
        )
        for row in conn.execute(select(*(gate_results.c[name] for name in names)).order_by(gate_results.c.id)).all()
    ]  # fmt: skip


def version_rows(conn: Connection) -> list[ArtifactRow]:
    """The versions of the registry, oldest first, as if they were in the catalog."""
    columns = (registry_versions.c[name] for name in ("version_id", "artifact", "record", "timestamp"))
    return [
        ArtifactRow(
            "version", row.version_id, sha256_id(f"version {row.version_id}"), None,
            {"inputs": {"registered": row.artifact, **_evidence(row.record)}}, row.timestamp,
        )
        for row in conn.execute(select(*columns).order_by(registry_versions.c.id)).all()
    ]  # fmt: skip


def _evidence(record: Mapping[str, Any]) -> dict[str, str]:
    named = {"gate": record.get("gate"), "evaluation": record.get("report")}
    return {role: sha256 for role, sha256 in named.items() if sha256}


@dataclass(frozen=True)
class RuleRow:
    """The newest revision of an entry of the codebook, or a criterion, without its words."""

    entry_id: str
    state: str
    kind: str
    evidence: tuple[str, ...]
    created: datetime


def rule_rows(conn: Connection) -> dict[str, RuleRow]:
    """Every entry of the codebook and every criterion by its id; `evidence` is that of all revisions."""
    table, entries = codebook_entries, dict[str, RuleRow]()
    for row in conn.execute(select(table).order_by(table.c.id)).all():
        before = entries[row.entry_id].evidence if row.entry_id in entries else ()
        evidence = tuple(dict.fromkeys([*before, *row.evidence]))
        entries[row.entry_id] = RuleRow(row.entry_id, row.state, row.kind, evidence, row.timestamp)
    for row in conn.execute(select(rubric_criteria).order_by(rubric_criteria.c.id)).all():
        entries[row.criterion_id] = RuleRow(row.criterion_id, row.state, CRITERION, (row.correction_id,), row.timestamp)
    return entries


def graph_of_rule(rule: RuleRow) -> LineageGraph:
    """An entry of the codebook and the records that it comes from."""
    node = rule_node(rule)
    sources = [LineageNode(id=name, kind="record", label=name, detail="evidence") for name in rule.evidence]
    edges = [LineageEdge(source=source.id, target=node.id, role="taught", records=1) for source in sources]
    return LineageGraph(subject=node, nodes=(node, *sources), edges=tuple(edges), records=len(sources))


def rule_node(rule: RuleRow) -> LineageNode:
    kind: NodeKind = "criterion" if rule.kind == CRITERION else "rule"
    return LineageNode(id=rule.entry_id, kind=kind, label=rule.entry_id, detail=rule.state, created=rule.created)


def rules_in_trace(store: Store, trace_id: str) -> tuple[str, ...]:
    """The entries of the codebook that an answer used."""
    trace = crud.get(store, Trace, trace_id)
    names = trace.meta.get("rules") if trace else None
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def flags_by_hash(conn: Connection) -> dict[str, set[str]]:
    flags: dict[str, set[str]] = {}
    for row in conn.execute(select(artifact_flags.c.sha256, artifact_flags.c.flag)).all():
        flags.setdefault(row.sha256, set()).add(row.flag)
    return flags


def erased_in(conn: Connection, record_id: str) -> tuple[str, datetime] | None:
    """The erasure that removed a record, and when."""
    row = conn.execute(select(tombstones).where(tombstones.c.record_id == record_id)).first()
    return None if row is None else (row.erasure_id, row.timestamp)


def flagged_by(conn: Connection, erasure_id: str) -> set[str]:
    """The hashes of models and datasets that an erasure flagged."""
    named = artifact_flags.c.reason.endswith(erasure_id, autoescape=True)
    return set(conn.execute(select(artifact_flags.c.sha256).where(named)).scalars())


def find_record(conn: Connection, record_id: str, sender: str | None) -> tuple[RecordKind, datetime] | None:
    """The kind and the time of a record; None without one, or when `sender` is given and somebody else sent it."""
    for kind, table in KINDS.items():
        query = select(table.c.timestamp).where(id_column(table) == record_id)
        if sender is not None:
            if "recorded_by" not in table.c:
                continue
            query = query.where(table.c.recorded_by == sender)
        if (row := conn.execute(query).first()) is not None:
            return kind, row.timestamp
    return None


def hashes_with(conn: Connection, record_id: str) -> list[str]:
    """The datasets and files that contain a record."""
    return list(conn.execute(select(lineage.c.dataset).where(lineage.c.record_id == record_id).order_by(lineage.c.id)).scalars())


def count_by_hash(conn: Connection, hashes: Iterable[str]) -> dict[str, int]:
    """How many records each of these datasets and files contains; those without any are left out."""
    query = select(lineage.c.dataset, func.count()).where(lineage.c.dataset.in_(sorted(hashes))).group_by(lineage.c.dataset)
    return {row[0]: row[1] for row in conn.execute(query).all()}


def count_records(conn: Connection, hashes: Iterable[str]) -> int:
    """How many distinct records these datasets and files contain."""
    distinct = select(lineage.c.record_id).where(lineage.c.dataset.in_(sorted(hashes))).distinct().subquery()
    return int(conn.execute(select(func.count()).select_from(distinct)).scalar_one())


def page_of_ids(conn: Connection, hashes: Iterable[str], *, after: str, limit: int, sender: str | None = None) -> list[str]:
    """The next distinct record ids, in their order; with `sender`, only those of one sender."""
    ids: set[str] = set()
    for dataset in sorted(hashes):  # each of these reads a few entries of the unique index
        inside = select(lineage.c.record_id).where(lineage.c.dataset == dataset, lineage.c.record_id > after)
        for query in [inside] if sender is None else _sent_by(inside, sender):
            ids.update(conn.execute(query.order_by(lineage.c.record_id).limit(limit)).scalars())
    return sorted(ids)[:limit]


def _sent_by(query: Select[Any], sender: str) -> list[Select[Any]]:
    spoken = [table for table in KINDS.values() if "recorded_by" in table.c]
    return [
        query.join(table, id_column(table) == lineage.c.record_id).where(table.c.recorded_by == sender) for table in spoken
    ]  # fmt: skip


def describe(conn: Connection, record_ids: Sequence[str]) -> list[TaughtRecord]:
    """The records with their kind and the role of the person behind them, in this order."""
    known: dict[str, TaughtRecord] = {}
    for kind, table in KINDS.items():
        query = _with_role(table).where(id_column(table).in_(list(record_ids)))
        known |= {row[0]: TaughtRecord(record_id=row[0], kind=kind, role=row[1] or "") for row in conn.execute(query).all()}
    return [known.get(name) or TaughtRecord(record_id=name, kind="erased") for name in record_ids]


def count_by_role(conn: Connection, hashes: Iterable[str]) -> dict[tuple[RecordKind, str], int]:
    """How many records of each kind these datasets have from people of each role; an empty role: no person is named."""
    inside = select(lineage.c.record_id).where(lineage.c.dataset.in_(sorted(hashes)))
    counts: dict[tuple[RecordKind, str], int] = {}
    for kind, table in KINDS.items():
        query = _with_role(table).where(id_column(table).in_(inside)).subquery()
        for role, count in conn.execute(select(query.c.role, func.count()).group_by(query.c.role)).all():
            counts[kind, role or ""] = count
    return counts


def _with_role(table: Table) -> Select[Any]:
    """Ids, and the role of the clinician or annotator who judged; a trace has none, and a patient's thumb neither."""
    if "clinician_id" not in table.c:
        columns: list[Any] = [id_column(table), literal("").label("role")]
        return select(*columns)
    people = users.alias("people")
    query = select(id_column(table), people.c.role.label("role"))
    return query.select_from(table.outerjoin(people, people.c.user_id == table.c.clinician_id))
