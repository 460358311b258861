"""Vectors of documents in PostgreSQL, by its extension pgvector; docs/decisions/0029-knowledge-index.md.

One table for each encoder (`knowledge_vectors_…`, named by its weights and width), and one list of the parts that are in them: a
part is all vectors of one document, as it was cut, and comes and goes in one transaction. Everything here can be made again from
the documents, so there are no migrations, no row MACs, no audit lines, and no backup holds it. Vectors are not encrypted: the
database could not compare them.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, inspect, text

from medloop.errors import MedloopError, StoreError
from medloop.store.db import Store

PREFIX = "knowledge_vector"  # begins the name of every table here
PARTS = f"{PREFIX}_parts"
OLDEST = (0, 5)  # of pgvector: the first one with HNSW
WIDEST = 2000  # numbers of a vector that HNSW can hold; wider ones are compared one by one
SEARCHED = 200  # vectors that HNSW keeps in view; more find more of the nearest and take longer
_WRITER = int.from_bytes(hashlib.sha256(b"medloop knowledge vectors").digest()[:8], "big", signed=True)
_NO_TABLE = "42P01"
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


class StaleVectorsError(MedloopError):
    """Another process changed the vectors after they were opened: open them again."""

    def __init__(self) -> None:
        super().__init__("The vectors of the documents were changed by another process", "Run the same command again")


@dataclass(frozen=True)
class PgvectorState:
    """Whether a store can search vectors itself; where it cannot, why, and what to do."""

    version: str = ""
    schema: str = ""  # in which the extension lies; a restore can move it off the search path
    reason: str = ""
    hint: str = ""

    @property
    def is_usable(self) -> bool:
        return not self.reason


def pgvector_state(store: Store) -> PgvectorState:
    if store.is_sqlite:
        return PgvectorState(reason="the store is SQLite")
    with store.read() as conn:
        row = conn.execute(
            text(
                "SELECT e.extversion, n.nspname, has_schema_privilege(n.oid, 'USAGE') FROM pg_extension e "
                "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
            )
        ).first()
        offered = conn.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")).first()
    create = "As a superuser run in medloop's database: CREATE EXTENSION vector"
    if row is None and offered is None:
        return PgvectorState(reason="the database server has no pgvector", hint=f"Install pgvector on the server. {create}")
    if row is None:
        return PgvectorState(reason="the extension pgvector is not enabled in this database", hint=create)
    version, schema, may_use = row
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        update = "Install a newer pgvector. As a superuser run in medloop's database: ALTER EXTENSION vector UPDATE"
        return PgvectorState(version, schema, f"pgvector {version} is older than 0.5", update)
    if not may_use:
        grant = f"As a superuser run in medloop's database: GRANT USAGE ON SCHEMA {schema} TO the user of medloop"
        return PgvectorState(version, schema, f"medloop's user may not use the schema '{schema}' of pgvector", grant)
    return PgvectorState(version, schema)


@dataclass(frozen=True)
class VectorPart:
    part_id: int
    name: str
    document: str
    rows: int
    sha256: str


class VectorTable:
    """The vectors of one encoder. They travel as big-endian float32 (`<` of NumPy is not what PostgreSQL sends)."""

    def __init__(self, store: Store, pgvector: PgvectorState, encoder: str, width: int) -> None:
        self.store, self.version, self.width = store, pgvector.version, width
        self.name = f"{PREFIX}s_{hashlib.sha256(f'{encoder}:{width}'.encode()).hexdigest()[:12]}"
        self._schema = '"' + pgvector.schema.replace('"', '""') + '"'
        self._product = f"OPERATOR({self._schema}.<#>) CAST(:vector AS {self._schema}.vector)"  # minus the inner product

    def create(self) -> None:
        with self.store.derived() as conn:
            _lock(conn)
            if not _has(conn, PARTS):
                conn.execute(
                    text(
                        f"CREATE TABLE {PARTS} (id bigserial PRIMARY KEY, vectors text NOT NULL, name text NOT NULL, "
                        "document text NOT NULL, rows integer NOT NULL, sha256 text NOT NULL, UNIQUE (vectors, name))"
                    )
                )
            if not _has(conn, self.name):
                conn.execute(text(f"DELETE FROM {PARTS} WHERE vectors = :name"), {"name": self.name})
                conn.execute(
                    text(
                        f"CREATE TABLE {self.name} (part_id bigint NOT NULL, number integer NOT NULL, "
                        f"embedding {self._schema}.vector({self.width}) NOT NULL, PRIMARY KEY (part_id, number))"
                    )
                )

    def parts(self) -> dict[str, VectorPart]:
        """What is complete, by name: a part whose rows are not all there is not in it."""
        with self.store.read() as conn:
            return self._parts(conn)

    def _parts(self, conn: Connection) -> dict[str, VectorPart]:
        query = text(
            f"SELECT p.id, p.name, p.document, p.rows, p.sha256 FROM {PARTS} p LEFT JOIN (SELECT part_id, count(*) AS there "
            f"FROM {self.name} GROUP BY part_id) v ON v.part_id = p.id WHERE p.vectors = :name AND p.rows = coalesce(v.there, 0)"
        )
        return {row.name: VectorPart(*row) for row in conn.execute(query, {"name": self.name})}

    def write(self, name: str, document: str, vectors: bytes) -> None:
        """Add a part whole. One that another process has added meanwhile stays, one that is not whole is replaced."""
        size = 4 * self.width
        values = {
            "vectors": self.name,
            "name": name,
            "document": document,
            "rows": len(vectors) // size,
            "sha256": _hash(vectors),
        }
        columns = "vectors, name, document, rows, sha256"
        with self.store.derived() as conn:
            _lock(conn)
            if name in self._parts(conn):
                return
            self._delete(conn, [name])
            insert = f"INSERT INTO {PARTS} ({columns}) VALUES (:{columns.replace(', ', ', :')}) RETURNING id"
            part_id = conn.execute(text(insert), values).scalar_one()
            self._copy(conn, part_id, (vectors[start : start + size] for start in range(0, len(vectors), size)))

    def build_index(self) -> None:
        """The graph over all rows; after the first time each new row joins it."""
        if self.width > WIDEST:
            return
        with self.store.derived() as conn:
            _lock(conn)
            conn.execute(
                text(
                    f"CREATE INDEX IF NOT EXISTS {self.name}_hnsw ON {self.name} "
                    f"USING hnsw (embedding {self._schema}.vector_ip_ops) WITH (m = 16, ef_construction = 96)"
                )
            )

    def nearest(self, vector: Sequence[float], count: int, *, parts: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """(part, number) of the nearest rows, best first; among `parts` every row is compared."""
        values: dict[str, Any] = {"vector": _literal(vector)}
        where, setting = "", f"hnsw.ef_search = {max(SEARCHED, min(count, 1000))}"
        if parts is not None:
            where, setting, values["parts"] = "WHERE part_id = ANY(:parts)", "enable_indexscan = off", list(parts)
        query = f"SELECT part_id, number FROM {self.name} {where} ORDER BY embedding {self._product} LIMIT {count:d}"
        with self._reading() as conn:
            conn.execute(text(f"SET LOCAL {setting}"))
            rows = conn.execute(text(query), values)
            return [(part_id, number) for part_id, number in rows]

    def products(self, rows: Sequence[tuple[int, int]], vector: Sequence[float]) -> dict[tuple[int, int], float]:
        """Exact inner products of the rows with a vector; a row that is not there is missing."""
        query = text(
            f"SELECT part_id, number, -(embedding {self._product}) FROM {self.name} JOIN "
            "unnest(CAST(:parts AS bigint[]), CAST(:numbers AS integer[])) AS wanted (part_id, number) USING (part_id, number)"
        )
        values = {"vector": _literal(vector), "parts": [part for part, _ in rows], "numbers": [number for _, number in rows]}
        with self._reading() as conn:
            return {(part_id, number): product for part_id, number, product in conn.execute(query, values)}

    def vectors(self, part_id: int) -> bytes:
        """All vectors of a part, as they were written."""
        query = text(f"SELECT {self._schema}.vector_send(embedding) FROM {self.name} WHERE part_id = :part ORDER BY number")
        with self._reading() as conn:
            return b"".join(bytes(row[0])[4:] for row in conn.execute(query, {"part": part_id}))

    def damaged(self) -> list[str]:
        """Names of parts whose vectors are not those that were written. Reads every vector."""
        return [part.name for part in self.parts().values() if _hash(self.vectors(part.part_id)) != part.sha256]

    def remove(self, names: Sequence[str]) -> None:
        with self.store.derived() as conn:
            self._delete(conn, names)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self.store.read() as conn:
                yield conn
        except StoreError as error:
            if getattr(getattr(error.__cause__, "orig", None), "sqlstate", "") == _NO_TABLE:
                raise StaleVectorsError from error
            raise

    def _delete(self, conn: Connection, names: Sequence[str]) -> None:
        values = {"vectors": self.name, "names": list(names)}
        ids = conn.execute(text(f"DELETE FROM {PARTS} WHERE vectors = :vectors AND name = ANY(:names) RETURNING id"), values)
        conn.execute(text(f"DELETE FROM {self.name} WHERE part_id = ANY(:ids)"), {"ids": list(ids.scalars())})

    def _copy(self, conn: Connection, part_id: int, rows: Iterable[bytes]) -> None:
        """PostgreSQL's binary COPY; each row: its fields, each after its length."""
        driver: Any = conn.connection.driver_connection
        command = f"COPY {self.name} (part_id, number, embedding) FROM STDIN (FORMAT BINARY)"
        with driver.cursor() as cursor, cursor.copy(command) as copy:
            copy.write(_COPY_HEAD)
            for number, row in enumerate(rows):
                copy.write(struct.pack(">hiqiiihh", 3, 8, part_id, 4, number, 4 + len(row), self.width, 0) + row)
            copy.write(_COPY_END)


def prune(store: Store, documents: Callable[[], Collection[str]]) -> int:
    """Remove the vectors of documents that are gone or changed, of every encoder; returns how many parts.

    `documents` is asked after the parts were read: a document is kept before its vectors are, so one that another process adds
    meanwhile is never taken for gone.
    """
    if store.is_sqlite or PARTS not in tables(store):
        return 0
    with store.read() as conn:
        parts = conn.execute(text(f"SELECT id, vectors, document FROM {PARTS}")).all()
    kept = set(documents())
    gone: dict[str, list[int]] = {}
    for part_id, name, document in parts:
        if document not in kept:
            gone.setdefault(name, []).append(part_id)
    names = tables(store)
    with store.derived() as conn:
        for name, ids in gone.items():
            conn.execute(text(f"DELETE FROM {PARTS} WHERE id = ANY(:ids)"), {"ids": ids})
            if name in names:
                conn.execute(text(f"DELETE FROM {name} WHERE part_id = ANY(:ids)"), {"ids": ids})
    store.vacuum(name for name in gone if name in names)  # a deleted row stays on its page, and in the graph, until then
    return sum(len(ids) for ids in gone.values())


def forget(store: Store, *, but: str = "") -> None:
    """Remove all vectors, or those of all encoders except the one whose table is `but`."""
    if store.is_sqlite or not (names := [name for name in tables(store) if name not in (but, PARTS if but else "")]):
        return
    with store.derived() as conn:
        _lock(conn)
        if but:
            conn.execute(text(f"DELETE FROM {PARTS} WHERE vectors <> :but"), {"but": but})
        for name in names:
            conn.execute(text(f"DROP TABLE IF EXISTS {name}"))


def tables(store: Store) -> list[str]:
    with store.read() as conn:
        return sorted(name for name in inspect(conn).get_table_names() if name.startswith(PREFIX))


def _lock(conn: Connection) -> None:
    """One process at a time writes vectors; others wait until its transaction ends."""
    conn.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER})"))


def _has(conn: Connection, name: str) -> bool:
    return inspect(conn).has_table(name)


def _literal(vector: Sequence[float]) -> str:
    return f"[{','.join(map(repr, vector))}]"


def _hash(vectors: bytes) -> str:
    return f"sha256:{hashlib.sha256(vectors).hexdigest()}"
