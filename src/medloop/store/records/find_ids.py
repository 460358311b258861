"""Find things by the beginning of their id or a part of their name; ids and names only, no text of a record is read.

for kind, subject, label in find_ids(store, "inc_01", kinds=("incident", "trace"), most=5): ...
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, or_, select

from medloop.store.db import Store
from medloop.store.tables import (
    artifacts,
    codebook_entries,
    experiments,
    gate_results,
    incidents,
    registry_versions,
    tombstones,
    traces,
)


class FoundId(NamedTuple):
    kind: str
    subject: str
    label: str


def find_ids(store: Store, text: str, *, kinds: Sequence[str], most: int) -> Iterator[FoundId]:
    """Up to `most` of each kind, the newest first."""
    queries = _queries(text)
    with store.read() as conn:
        for kind in kinds:
            rows = conn.execute(queries[kind].limit(most)).all()
            yield from (FoundId(kind, str(row[0]), str(row[1])) for row in rows)


def _queries(text: str) -> dict[str, Select[Any]]:
    hash_start = f"sha256:{text.removeprefix('sha256:')}"

    def starts(column: Any, value: str = text) -> Any:
        return column.startswith(value, autoescape=True)

    def has(column: Any) -> Any:
        return column.icontains(text, autoescape=True)

    trace, incident, entry, version = traces.c, incidents.c, codebook_entries.c, registry_versions.c
    made, gate, experiment = artifacts.c, gate_results.c, experiments.c
    title = experiment.plan["name"].as_string()
    erased = select(tombstones.c.record_id)
    return {
        "trace": select(trace.trace_id, trace.trace_id)
        .where(or_(starts(trace.trace_id), trace.session_id == text), trace.trace_id.not_in(erased))
        .order_by(trace.id.desc()),
        "incident": select(incident.incident_id, incident.incident_id)
        .where(or_(starts(incident.incident_id), incident.record_id == text))
        .order_by(incident.id.desc()),
        "rule": select(entry.entry_id, entry.entry_id).where(starts(entry.entry_id)).distinct(),
        "version": select(version.version_id, version.version_id)
        .where(or_(has(version.version_id), starts(version.artifact, hash_start)))
        .order_by(version.id.desc()),
        "artifact": select(made.sha256, made.path)
        .where(or_(has(made.path), starts(made.sha256, hash_start)))
        .order_by(made.id.desc()),
        "gate": select(gate.gate, gate.label)
        .where(or_(has(gate.label), starts(gate.gate, hash_start)))
        .order_by(gate.id.desc()),
        "experiment": select(experiment.experiment_id, title)
        .where(or_(has(title), starts(experiment.experiment_id)))
        .order_by(experiment.id.desc()),
    }  # fmt: skip
