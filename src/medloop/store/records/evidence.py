"""What an erasure has to know about the rows it removes, beside their texts: whose they are, which are safety evidence, and where
their names lie in clear.

    foreign_records(store, ids, named)     # those of others that would be removed too
    safety_evidence(store, ids)            # {"critical flags": 1, "incidents": 1}
    sessions_of(store, ids)                # session ids that no other record has
    orphans(store, ids, sources)           # derived rows that came from no record which stays
    remove_clear_names(conn, every, drop_model)      # idempotency rows, and model names that may name a person
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, func, select, update

from medloop.store import tables
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.tables import id_column, idempotency_keys, incidents, natural_id

SESSIONS: tuple[Table, ...] = (tables.rlhf_feedback, tables.rlhf_preferences, tables.traces)
SOURCES = ("rlhf_feedback", "rlhf_preferences", "rlhf_corrections", "traces")
FLAGGED: tuple[Table, ...] = (tables.rlhf_feedback, tables.rlhf_preferences)

PARENTS: dict[Table, str] = {  # the column that names the record which a derived row came from
    tables.incidents: "record_id", tables.red_team_cases: "record_id", tables.queue_items: "trace_id",
    tables.scored_answers: "sample_id", tables.rubric_criteria: "correction_id",
}  # fmt: skip

_STRING = re.compile(r'"([^"]*)"')


@dataclass(frozen=True)
class ForeignRecord:
    """A record that does not name the person itself. `why`: it is linked to a record or trace of theirs, or has the same text;
    `match` then says what it has, without repeating it."""

    record_id: str
    table: str
    recorded_by: str | None
    critical: bool
    why: str
    match: str | None = None


def foreign_records(
    store: Store, linked: Mapping[str, set[str]], copies: Mapping[str, dict[str, str]], subject: str | None, asked: Iterable[str]
) -> list[ForeignRecord]:
    """The records that were not named by the request but would be erased with it; `copies` say what each holds."""
    records, named = [], set(asked)
    for why, ids in (("linked", linked), ("same text", {name: set(matches) for name, matches in copies.items()})):
        for name in dict.fromkeys([*SOURCES, *(copies if why == "same text" else ())]):
            table = tables.metadata.tables[name]
            with store.read() as conn:
                for chunk in chunks(sorted(ids.get(name, set()) - named)):
                    for row in conn.execute(select(table).where(id_column(table).in_(chunk)).order_by(table.c.id)):
                        values = row._mapping
                        if subject is None or subject not in (values.get("subject"), values.get("user_hash")):
                            record_id, by = values[natural_id(table)], values.get("recorded_by")
                            match = copies[name][record_id] if why == "same text" else None
                            records.append(ForeignRecord(record_id, name, by, bool(values.get("critical")), why, match))
    return records


def safety_evidence(store: Store, ids: Mapping[str, set[str]]) -> dict[str, int]:
    """How many critical flags, and incidents about these records, would lose their text; without those that are zero."""
    every = sorted(set().union(*ids.values()))
    with store.read() as conn:
        flags = [
            flag
            for table in FLAGGED
            for chunk in chunks(sorted(ids.get(table.name, ())))
            for flag in conn.execute(select(table.c.critical).where(id_column(table).in_(chunk))).scalars()
            if flag
        ]
        about = [
            row for chunk in chunks(every) for row in conn.execute(select(incidents.c.id).where(incidents.c.record_id.in_(chunk)))
        ]
    counts = {"critical flags": len(flags), "incidents": len(about)}
    return {name: count for name, count in counts.items() if count}


def sessions_of(store: Store, ids: Mapping[str, set[str]]) -> list[str]:
    """The session ids of these rows that no other row has: their senders chose them, so they may name somebody."""
    own: set[str] = set()
    with store.read() as conn:
        for table in SESSIONS:
            for chunk in chunks(sorted(ids.get(table.name, ()))):
                own |= set(conn.execute(select(table.c.session_id).where(id_column(table).in_(chunk))).scalars()) - {None}
        for table in SESSIONS:
            erased = ids.get(table.name, set())
            for chunk in chunks(sorted(own)):
                rows = conn.execute(select(id_column(table), table.c.session_id).where(table.c.session_id.in_(chunk)))
                own -= {session for record_id, session in rows if record_id not in erased}
    return sorted(own)


def names_of_others(store: Store, but: Mapping[str, set[str]]) -> set[str]:
    """The names of agents and models in the records that stay: whoever wrote such a name did not write about a person."""
    names: set[str] = set()
    with store.read() as conn:
        for name in SOURCES:
            table = tables.metadata.tables[name]
            for column in (table.c[key] for key in ("agent_name", "model_version") if key in table.c):
                counts = Counter[str | None]()
                for value, count in conn.execute(select(column, func.count()).group_by(column)):
                    counts[value] = count
                for chunk in chunks(sorted(but.get(name, ()))):
                    counts.subtract(conn.execute(select(column).where(id_column(table).in_(chunk))).scalars())
                names |= {value for value, count in counts.items() if value and count > 0}
    return names


def remove_clear_names(conn: Connection, record_ids: Iterable[str], drop_model: Callable[[str], bool]) -> None:
    """Remove what names these records outside their rows: the idempotency rows of the requests that sent them, and in incidents,
    which stay, a model name that `drop_model` says may name a person."""
    every = set(record_ids)
    answers = select(idempotency_keys.c.id, idempotency_keys.c.answer).execution_options(yield_per=1000)
    repeated = [number for number, answer in conn.execute(answers) if every & set(_STRING.findall(json.dumps(answer)))]
    for chunk in chunks(repeated):
        conn.execute(delete(idempotency_keys).where(idempotency_keys.c.id.in_(chunk)))
    for chunk in chunks(sorted(every)):
        for row in conn.execute(select(incidents.c.id, incidents.c.model_version).where(incidents.c.record_id.in_(chunk))).all():
            if row.model_version is not None and drop_model(row.model_version):
                conn.execute(update(incidents).where(incidents.c.id == row.id).values(model_version=None))


def entries_from(conn: Connection, every: set[str]) -> set[str]:
    """Revisions of the codebook that one of these records is the evidence of, with all later and earlier ones of their entry."""
    table = tables.codebook_entries
    rows = conn.execute(select(table.c.revision_id, table.c.entry_id, table.c.evidence)).all()
    entries = {row.entry_id for row in rows if every & set(row.evidence)}
    return {str(row.revision_id) for row in rows if row.entry_id in entries}


def criteria_from(conn: Connection, every: set[str]) -> set[str]:
    """Criteria that came from one of these corrections."""
    table = tables.rubric_criteria
    rows = conn.execute(select(table.c.criterion_id, table.c.correction_id)).all()
    return {str(row.criterion_id) for row in rows if row.correction_id in every}


def orphans(store: Store, gone: Mapping[str, set[str]], sources: Sequence[str]) -> dict[str, set[str]]:
    """Derived rows that came from no record which stays when these are gone, such as a rule that somebody wrote by hand."""
    ids: dict[str, set[str]] = {}
    with store.read() as conn:
        stay = set[str]()
        for name in sources:
            stay |= set(conn.execute(select(id_column(tables.metadata.tables[name]))).scalars()) - gone.get(name, set())
        for table, column in PARENTS.items():
            rows = conn.execute(select(id_column(table), table.c[column])).all()
            ids[table.name] = {record_id for record_id, parent in rows if parent not in stay}
        entries = tables.codebook_entries
        ids[entries.name] = set(conn.execute(select(entries.c.revision_id)).scalars()) - entries_from(conn, stay)
    return ids
