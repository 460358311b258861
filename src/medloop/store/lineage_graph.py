"""Lineage both ways: what contains a record, and which records a model learnt from.

    graph = lineage_graph(store, "co_…")                 # datasets, models, evaluations, gates and releases that contain it
    graph = lineage_graph(store, "models/rl/v1.0-rl")    # what a model or release came from, and what came of it
    page = taught_records(store, "models/rl/v1.0-rl")    # the ids behind it, page by page

It stands on the catalog (cards name their inputs and their parent by hash) and on the table `lineage` (which records are in
which file). Files count one by one: a model that learnt from the pairs of a dataset has not learnt from its golden answers. A
file that is only measured with (dev and held-out data) teaches nothing. Trainers may hold out part of a file, so a model of a
file that contains a record may not have seen that record.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import Connection

from medloop.contracts import canonical_json, sha256_id
from medloop.contracts.lineage import LineageEdge, LineageGraph, LineageNode, NodeKind, RecordKind, TaughtRecord, TaughtRecords
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import lineage_rows as rows
from medloop.store.records.lineage_rows import ArtifactRow

KIND_OF: dict[str, NodeKind] = {
    "feedback": "dataset", "dataset": "dataset", "source": "dataset", "prompts": "dataset", "adapter": "model", "model": "model",
    "reward model": "model", "evaluation": "evaluation", "gate": "gate", "version": "version", "release": "release",
}  # fmt: skip
MEASURED = ("dev", "held_out", "questions")  # roles of what is only measured with
EVIDENCE = ("evaluation", "gate", "version")  # roles of what was found out about a model
START, REWARD, EXAMINED = "adapter", "reward", "examined"
RECORDS = "records"  # the id of the node that stands for all records of a model
HASH_START = re.compile(r"(sha256:)?[0-9a-f]{8,64}")
MOST_DRAWN = 400  # nodes of one graph; records are traced through all of them
PAGE = 1000  # records that are described at once


class UnknownSubjectError(InputError):
    """Neither a record nor anything made from records has this name, or the reader may not see it."""


@dataclass(frozen=True)
class MadeFrom:
    """One thing that an artifact was made from, by hash."""

    role: str
    sha256: str

    @property
    def teaches(self) -> bool:
        return self.role not in (*MEASURED, *EVIDENCE)


@dataclass
class Catalog:
    """The catalog as a graph: which artifacts a hash stands for, and which were made from it."""

    artifacts: list[ArtifactRow]
    flags: Mapping[str, set[str]]
    owners: dict[str, list[int]] = field(default_factory=dict)
    consumers: dict[str, list[tuple[int, MadeFrom]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, row in enumerate(self.artifacts):
            for sha256 in names_of(row):
                self.owners.setdefault(sha256, []).append(index)
        for index, row in enumerate(self.artifacts):
            for source in self.made_from(row):
                self.consumers.setdefault(source.sha256, []).append((index, source))

    def made_from(self, row: ArtifactRow) -> list[MadeFrom]:
        card = row.card
        sources = [MadeFrom(_role(row.kind, role), sha256) for role, sha256 in (card.get("inputs") or {}).items()]
        known = {source.sha256 for source in sources}
        if (parent := card.get("parent")) and parent not in known:
            sources.append(MadeFrom(START, parent))
        if row.kind == "dataset":  # of a dataset from feedback they are what it was compared with
            sources += [MadeFrom("source", parent) for parent in card.get("parents") or ()]
        if row.kind == "prompts" and "dataset" in card:
            sources.append(MadeFrom("drawn", card["dataset"]))
        if (base := card.get("base_sha256")) in self.owners and base not in known:
            sources.append(MadeFrom("base", str(base)))
        return [*sources, *(MadeFrom(REWARD, sha256) for sha256 in self._reward_models(card))]

    def _reward_models(self, card: Mapping[str, object]) -> Iterator[str]:
        """The reward models that a policy was rewarded by: their version begins with their fingerprint."""
        config = card.get("config")
        objective = (config.get("objective") if isinstance(config, Mapping) else None) or {}
        for part in (objective.get("parts") or {}).values():
            start = f"sha256:{str(part.get('version', '')).removeprefix('model-')}"
            if str(part.get("version", "")).startswith("model-"):
                yield from (row.fingerprint for row in self.reward_models if (row.fingerprint or "").startswith(start))  # type: ignore[misc]

    @cached_property
    def reward_models(self) -> list[ArtifactRow]:
        return [row for row in self.artifacts if row.kind == "reward model" and row.fingerprint]

    @cached_property
    def newest_at(self) -> dict[tuple[str, str], str]:
        """The hash of what lies at a path now, by kind and path."""
        return {(row.kind, row.path): row.sha256 for row in self.artifacts}

    def node(self, row: ArtifactRow) -> LineageNode:
        flags = self.flags.get(row.sha256, set()) | self.flags.get(row.fingerprint or "", set())
        detail = str(row.card.get("method") or row.card.get("outcome") or row.kind)
        return LineageNode(
            id=row.sha256, kind=KIND_OF.get(row.kind, "file"), label=row.path, detail=detail, flags=tuple(sorted(flags)),
            replaced=self.newest_at[row.kind, row.path] != row.sha256, created=row.created,
        )  # fmt: skip

    def find(self, name: str) -> ArtifactRow | None:
        """By hash or the beginning of one, path, or the last part of a path; of several the newest."""
        newest_first = self.artifacts[::-1]
        text = name.rstrip("/")
        if HASH_START.fullmatch(text):
            start = text if text.startswith("sha256:") else f"sha256:{text}"
            for row in newest_first:
                if row.sha256.startswith(start) or (row.fingerprint or "").startswith(start):
                    return row
        by_path = (row for row in newest_first if row.path == text)
        by_name = (row for row in newest_first if row.path.rsplit("/", 1)[-1] == text)
        return next(by_path, None) or next(by_name, None)


def names_of(row: ArtifactRow) -> list[str]:
    """Every hash by which others name an artifact or a file inside it."""
    # A release has the weights of its adapter: whoever names these weights means the adapter.
    names = [row.sha256, *([row.fingerprint] if row.fingerprint and row.kind != "release" else [])]
    files = row.card.get("files")
    if isinstance(files, Mapping):
        names += [entry["sha256"] for entry in files.values()]
    if row.kind == "source":
        names.append(row.card["sha256"])  # of the file itself
    if row.kind == "dataset":
        names.append(sha256_id(canonical_json(row.card)))  # prompts name their dataset by its card
    return list(dict.fromkeys(names))


def _role(kind: str, role: str) -> str:
    """An evaluation names its inputs `adapter of LABEL`, `data gold`; training runs have roles already."""
    if kind == "evaluation":
        return "questions" if role.startswith("data ") else EXAMINED
    return role


@dataclass
class _Drawing:
    """The part of the catalog around one subject, as far as it has been walked."""

    catalog: Catalog
    nodes: dict[str, LineageNode] = field(default_factory=dict)
    edges: dict[tuple[str, str, str], LineageEdge] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(
        default_factory=dict
    )  # hashes of files with records, by the node that was made from them

    def add(self, row: ArtifactRow) -> LineageNode:
        if row.sha256 not in self.nodes:
            self.nodes[row.sha256] = self.catalog.node(row)
        return self.nodes[row.sha256]

    def connect(self, source: str, target: str, made_from: MadeFrom, records: int | None = None) -> None:
        if source != target:
            edge = LineageEdge(source=source, target=target, role=made_from.role, teaches=made_from.teaches, records=records)
            self.edges.setdefault((source, target, made_from.role), edge)

    def descend(self, hashes: Iterable[str], origin: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """Everything made from these hashes, in every later generation; `origin` is the node that a hash belongs to."""
        origin, queue, seen = dict(origin), deque(hashes), set(hashes)
        while queue:
            sha256 = queue.popleft()
            for index, source in self.catalog.consumers.get(sha256, ()):
                row = self.catalog.artifacts[index]
                node = self.add(row)
                self.connect(origin[sha256], node.id, source, counts.get(sha256))
                if source.role in MEASURED:
                    continue  # it learnt nothing from it, and so did whatever came of it
                for name in names_of(row):
                    origin.setdefault(name, node.id)
                    if name not in seen:
                        seen.add(name)
                        queue.append(name)

    def ascend(self, row: ArtifactRow) -> set[str]:
        """Everything that an artifact was made from, in every earlier generation; returns the hashes that it learnt from."""
        learnt, queue, seen = {*_own_hashes(row)}, deque([(row, True)]), {row.sha256}
        while queue:
            child, teaches = queue.popleft()
            for source in self.catalog.made_from(child):
                is_learnt = teaches and source.teaches
                if is_learnt:
                    learnt.add(source.sha256)
                owners = self.catalog.owners.get(source.sha256, ())
                if not owners:
                    self.sources.setdefault(source.sha256, set()).add(child.sha256)
                for index in owners[-1:]:  # of equal content the newest entry
                    parent = self.catalog.artifacts[index]
                    self.connect(self.add(parent).id, child.sha256, source)
                    if parent.sha256 not in seen:
                        seen.add(parent.sha256)
                        queue.append((parent, is_learnt))
        return learnt


def _own_hashes(row: ArtifactRow) -> list[str]:
    return names_of(row) if KIND_OF.get(row.kind) == "dataset" else []


def lineage_graph(store: Store, subject: str, *, sender: str | None = None) -> LineageGraph:
    """The graph around a record, dataset, model, evaluation, gate or release; with `sender`, of records only their own.

    UnknownSubjectError if there is no such thing for this reader.
    """
    with store.read() as conn:
        catalog = load_catalog(conn)
        if (record := rows.find_record(conn, subject, sender)) is not None:
            node = LineageNode(id=subject, kind="record", label=subject, detail=record[0], created=record[1])
            used = rows.rules_in_trace(store, subject) if record[0] == "trace" else ()
            return _of_record(conn, catalog, node, used)
        if sender is None and (rule := rows.rule_rows(conn).get(subject)) is not None:
            return rows.graph_of_rule(rule)
        if sender is None and (erased := rows.erased_in(conn, subject)) is not None:
            node = LineageNode(id=subject, kind="record", label=subject, detail="erased", flags=(erased[0],), created=erased[1])
            return _of_erased(conn, catalog, node, erased[0])
        row = catalog.find(subject)
        if row is None:
            raise unknown_subject(subject)
        return _of_artifact(conn, catalog, row)


def taught_records(
    store: Store, subject: str, *, after: str = "", limit: int = 50, sender: str | None = None
) -> TaughtRecords:  # fmt: skip
    """A page of the records that a dataset, model or release contains; with `sender`, only theirs."""
    with store.read() as conn:
        catalog = load_catalog(conn)
        row = catalog.find(subject)
        if row is None:
            raise unknown_subject(subject)
        ids = rows.page_of_ids(conn, _Drawing(catalog).ascend(row), after=after, limit=limit + 1, sender=sender)
        return TaughtRecords(items=tuple(rows.describe(conn, ids[:limit])), next=ids[limit - 1] if len(ids) > limit else None)


def newest_made(store: Store, limit: int = 20) -> list[LineageNode]:
    """The newest models and releases, the last one first."""
    with store.read() as conn:
        catalog = load_catalog(conn)
    made = (row for row in catalog.artifacts[::-1] if KIND_OF.get(row.kind) in ("model", "release"))
    return [catalog.node(row) for row, _ in zip(made, range(limit), strict=False)]


@dataclass(frozen=True)
class Teaching:
    """All records behind a model, and how many of each kind people of each role gave; `chain` is the model and its parents."""

    chain: list[ArtifactRow]
    records: list[TaughtRecord]
    counts: dict[tuple[RecordKind, str], int]


def teaching_of(store: Store, artifact: str) -> Teaching:
    """Who taught the model with this hash, through all its parents."""
    with store.read() as conn:
        catalog = load_catalog(conn)
        row = catalog.find(artifact)
        if row is None:
            raise unknown_subject(artifact)
        hashes = _Drawing(catalog).ascend(row)
        records: list[TaughtRecord] = []
        while page := rows.page_of_ids(conn, hashes, after=records[-1].record_id if records else "", limit=PAGE):
            records += rows.describe(conn, page)
        return Teaching(list(_chain(catalog, row)), records, rows.count_by_role(conn, hashes))


def _chain(catalog: Catalog, row: ArtifactRow) -> Iterator[ArtifactRow]:
    """The model, and the adapters that it and its parents started from."""
    seen: set[str] = set()
    current: ArtifactRow | None = row
    while current is not None and current.sha256 not in seen:
        yield current
        seen.add(current.sha256)
        starts = [source.sha256 for source in catalog.made_from(current) if source.role == START]
        owners = [index for sha256 in starts for index in catalog.owners.get(sha256, ())]
        current = catalog.artifacts[owners[-1]] if owners else None


def load_catalog(conn: Connection) -> Catalog:
    entries = [*rows.artifact_rows(conn), *rows.gate_rows(conn), *rows.version_rows(conn)]
    return Catalog(entries, rows.flags_by_hash(conn))


def unknown_subject(subject: str) -> UnknownSubjectError:
    return UnknownSubjectError(
        f"There is no record, dataset, model, evaluation or release '{subject[:80]}'", "Give an id, a path or a name"
    )


def _add_rules(conn: Connection, drawing: _Drawing, node: LineageNode, used: Sequence[str]) -> None:
    """Rules that came from a record; of an answer those that it used, with the records behind them."""
    known = rows.rule_rows(conn)
    for rule in known.values():
        if node.id in rule.evidence:
            drawing.nodes.setdefault(rule.entry_id, rows.rule_node(rule))
            drawing.connect(node.id, rule.entry_id, MadeFrom("taught", rule.entry_id), 1)
    for name in used:
        if (rule_used := known.get(name)) is None:
            continue
        drawing.nodes.setdefault(name, rows.rule_node(rule_used))
        drawing.connect(name, node.id, MadeFrom("used", name))
        for source in rule_used.evidence:
            drawing.nodes.setdefault(source, LineageNode(id=source, kind="record", label=source, detail="evidence"))
            drawing.connect(source, name, MadeFrom("taught", source), 1)


def _of_record(conn: Connection, catalog: Catalog, node: LineageNode, used: Sequence[str] = ()) -> LineageGraph:
    drawing, hashes = _Drawing(catalog, {node.id: node}), rows.hashes_with(conn, node.id)
    origin: dict[str, str] = {}
    for sha256 in hashes:
        owners = catalog.owners.get(sha256, ())
        holder = drawing.add(catalog.artifacts[owners[-1]]) if owners else _file_node(drawing, sha256)
        origin[sha256] = holder.id
        drawing.connect(node.id, holder.id, MadeFrom("contains", sha256), 1)
    consumed = [sha256 for sha256 in hashes if sha256 in catalog.consumers]
    drawing.descend(hashes, origin, rows.count_by_hash(conn, consumed))
    _add_rules(conn, drawing, node, used)
    return _graph(drawing, node, records=1)


def _file_node(drawing: _Drawing, sha256: str) -> LineageNode:
    """A file that the catalog does not name, such as an export, or data/preferences as it was at some time."""
    node = LineageNode(id=sha256, kind="file", label=f"file {sha256[7:19]}", detail="file")
    return drawing.nodes.setdefault(sha256, node)


def _of_erased(conn: Connection, catalog: Catalog, node: LineageNode, erasure_id: str) -> LineageGraph:
    """The record is gone from every dataset; what an erasure flagged says which models had learnt from it or its neighbours."""
    drawing, flagged = _Drawing(catalog, {node.id: node}), rows.flagged_by(conn, erasure_id)
    for row in catalog.artifacts:
        if row.sha256 in flagged:
            drawing.connect(node.id, drawing.add(row).id, MadeFrom("erased", row.sha256))
    return _graph(drawing, node, records=0)


def _of_artifact(conn: Connection, catalog: Catalog, row: ArtifactRow) -> LineageGraph:
    drawing = _Drawing(catalog)
    node = drawing.add(row)
    learnt = drawing.ascend(row)
    counts = rows.count_by_hash(conn, {*learnt, *drawing.sources})
    for sha256, targets in drawing.sources.items():
        if sha256 in counts:
            holder = _file_node(drawing, sha256)
            for target in targets:
                drawing.connect(holder.id, target, MadeFrom("file", sha256), counts[sha256])
    total = rows.count_records(conn, learnt) if learnt else 0
    _count_edges(drawing, counts)
    if total:
        _add_records(drawing, counts, learnt, total)
    names = names_of(row)
    drawing.descend(names, dict.fromkeys(names, node.id), {})
    return _graph(drawing, node, records=total)


def _count_edges(drawing: _Drawing, counts: Mapping[str, int]) -> None:
    """How many records pass from a dataset to what was made from one of its files."""
    catalog = drawing.catalog
    for key, edge in drawing.edges.items():
        target = catalog.artifacts[catalog.owners[edge.target][-1]]
        hashes = {source.sha256 for source in catalog.made_from(target) if source.role == edge.role}
        passed = [counts[sha256] for sha256 in hashes if sha256 in counts]
        if passed and edge.records is None:
            drawing.edges[key] = edge.model_copy(update={"records": sum(passed)})


def _add_records(drawing: _Drawing, counts: Mapping[str, int], learnt: Iterable[str], total: int) -> None:
    """One node for all records, with an edge to each dataset that holds some of them."""
    drawing.nodes[RECORDS] = LineageNode(id=RECORDS, kind="records", label=f"{total:,}")
    holders: dict[str, int] = {}
    for sha256 in learnt:
        owners = drawing.catalog.owners.get(sha256, ())
        holder = drawing.catalog.artifacts[owners[-1]].sha256 if owners else sha256
        if sha256 in counts and holder in drawing.nodes:
            holders[holder] = max(holders.get(holder, 0), counts[sha256])
    for holder, count in holders.items():
        drawing.connect(RECORDS, holder, MadeFrom("contains", holder), count)


def _graph(drawing: _Drawing, subject: LineageNode, *, records: int) -> LineageGraph:
    """Those nodes that were reached first, and how many there are beyond them."""
    subject_first = dict.fromkeys((subject.id, *([RECORDS] if RECORDS in drawing.nodes else []), *drawing.nodes))
    drawn = {node_id: drawing.nodes[node_id] for node_id in list(subject_first)[:MOST_DRAWN]}
    return LineageGraph(
        subject=subject, nodes=tuple(drawn.values()), records=records, truncated=len(drawing.nodes) - len(drawn),
        edges=tuple(edge for edge in drawing.edges.values() if edge.source in drawn and edge.target in drawn),
    )  # fmt: skip
