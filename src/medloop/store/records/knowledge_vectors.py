"""Vectors of documents in PostgreSQL, by its extension pgvector; docs/decisions/0029-knowledge-index.md.

One table for each encoder (`knowledge_vectors_…`, named by its weights, width and the version of the cutting), and one list of
the parts that are in them: a part is all vectors of one document, and comes and goes in one transaction. Everything here can be
made again from the documents, so there are no migrations, no row MACs, no audit lines, and no backup holds it. Vectors are not
encrypted: the database could not compare them. So a removal writes the rest of a table into a new file: a deleted row's bytes
would stay in the old one, also after VACUUM.
"""

import hashlib
import re
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from medloop.errors import BusyError, MedloopError, StoreError
from medloop.store.db import Store

PREFIX = "knowledge_vector"  # begins the name of every table here
PARTS = f"{PREFIX}_parts"
PATIENCE_S = 20.0  # how long a removal tries again while somebody else reads the table, as a dump by hand does
OLDEST = (0, 5)  # of pgvector: the first one with HNSW
WIDEST = 2000  # numbers of a vector that HNSW can hold; wider ones are compared one by one
SEARCHED = 200  # vectors that HNSW keeps in view; more find more of the nearest and take longer
_WRITER = int.from_bytes(hashlib.sha256(b"medloop knowledge vectors").digest()[:8], "big", signed=True)
_OURS = re.compile(rf"{PREFIX}s_[0-9a-f]{{12}}|{PARTS}")
_HELD_MS = 1500  # one attempt; everybody who asks meanwhile waits behind it. PostgreSQL itself ends an autovacuum after 1 s
_BUSY = ("55P03", "40P01")
_STALE = ("42P01", "42703", "42704", "42883", "3F000")  # no such table, column, type, operator, schema: made again since
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


class StaleVectorsError(MedloopError):
    """Somebody changed the vectors, or pgvector itself, after they were opened: open them again."""

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
        self._schema = _quoted(pgvector.schema)
        # Minus the inner product. By way of a text: a prepared statement would keep the type of an extension that is gone. In a
        # query of its own: a prepared plan would read the text again for every row.
        self._product = f"OPERATOR({self._schema}.<#>) (SELECT CAST(CAST(:vector AS text) AS {self._schema}.vector))"

    def create(self) -> None:
        with _changing(self.store) as conn:
            _lock(conn)
            if not _has(conn, PARTS):
                conn.execute(
                    text(
                        f"CREATE TABLE {PARTS} (id bigserial PRIMARY KEY, vectors text NOT NULL, name text NOT NULL, "
                        "document text NOT NULL, rows integer NOT NULL, sha256 text NOT NULL, UNIQUE (vectors, name))"
                    )
                )
            if not self._is_sound(conn):
                _drop(conn, self.name, None)
                conn.execute(text(f"DELETE FROM {PARTS} WHERE vectors = :name"), {"name": self.name})
                conn.execute(
                    text(
                        f"CREATE TABLE {self.name} (part_id bigint NOT NULL, number integer NOT NULL, "
                        f"embedding {self._schema}.vector({self.width}) NOT NULL, PRIMARY KEY (part_id, number))"
                    )
                )

    def _is_sound(self, conn: Connection) -> bool:
        """Whether the table is there with its column: dropping the extension takes the column and leaves the table."""
        query = "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = 'embedding' AND NOT attisdropped"
        return conn.execute(text(query), {"name": self.name}).first() is not None

    def parts(self) -> dict[str, VectorPart]:
        """What is complete, by name: a part whose rows are not all there is not in it."""
        query = text(
            f"SELECT p.id, p.name, p.document, p.rows, p.sha256 FROM {PARTS} p LEFT JOIN (SELECT part_id, count(*) AS there "
            f"FROM {self.name} GROUP BY part_id) v ON v.part_id = p.id WHERE p.vectors = :name AND p.rows = coalesce(v.there, 0)"
        )
        with self._reading() as conn:
            return {row.name: VectorPart(*row) for row in conn.execute(query, {"name": self.name})}

    def _is_whole(self, conn: Connection, name: str) -> bool:
        query = text(
            f"SELECT p.rows = (SELECT count(*) FROM {self.name} v WHERE v.part_id = p.id) FROM {PARTS} p "
            "WHERE p.vectors = :vectors AND p.name = :name"
        )
        return bool(conn.execute(query, {"vectors": self.name, "name": name}).scalar())

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
        with _changing(self.store) as conn:
            _lock(conn)
            if self._is_whole(conn, name):
                return
            self._delete(conn, [name])
            insert = f"INSERT INTO {PARTS} ({columns}) VALUES (:{columns.replace(', ', ', :')}) RETURNING id"
            part_id = conn.execute(text(insert), values).scalar_one()
            self._copy(conn, part_id, (vectors[start : start + size] for start in range(0, len(vectors), size)))

    def build_index(self) -> None:
        """The graph over all rows; after the first time each new row joins it."""
        if self.width > WIDEST:
            return
        _build_graph(self.store, self.name, self._schema)

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
        parts = self.parts()
        _remake(self.store, self.name, [parts[name].part_id for name in names if name in parts], None)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _stale(), self.store.read() as conn:
            # Each statement sees what is there when it begins: one that waited for a removal must not see an empty new table.
            conn.execute(text("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
            yield conn

    def _delete(self, conn: Connection, names: Sequence[str]) -> None:
        values = {"vectors": self.name, "names": list(names)}
        ids = conn.execute(text(f"DELETE FROM {PARTS} WHERE vectors = :vectors AND name = ANY(:names) RETURNING id"), values)
        conn.execute(text(f"DELETE FROM {self.name} WHERE part_id = ANY(:ids)"), {"ids": list(ids.scalars())})

    def _copy(self, conn: Connection, part_id: int, rows: Iterable[bytes]) -> None:
        """PostgreSQL's binary COPY; each row: its fields, each after its length."""
        driver: Any = conn.connection.driver_connection
        command = f"COPY {self.name} (part_id, number, embedding) FROM STDIN (FORMAT BINARY)"
        errors: Any = self.store.engine.dialect.loaded_dbapi.Error
        try:
            with driver.cursor() as cursor, cursor.copy(command) as copy:
                copy.write(_COPY_HEAD)
                for number, row in enumerate(rows):
                    copy.write(struct.pack(">hiqiiihh", 3, 8, part_id, 4, number, 4 + len(row), self.width, 0) + row)
                copy.write(_COPY_END)
        except errors as error:  # the driver's own, which nobody would turn into a sentence
            raise DBAPIError.instance(command, None, error, errors) from error


def prune(store: Store, documents: Callable[[], Collection[str]], *, patience_s: float | None = None) -> int:
    """Remove the vectors of documents that are gone or changed, of every encoder; returns how many parts.

    `documents` is asked after the parts were read: a document is kept before its vectors are, so one that another process adds
    meanwhile is never taken for gone. BusyError: somebody read a table for longer than `patience_s` (None: PATIENCE_S); then all
    of it is as it was.
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
    for name, ids in gone.items():
        _remake(store, name, ids, patience_s)
    return sum(len(ids) for ids in gone.values())


def _remake(store: Store, name: str, ids: Sequence[int], patience_s: float | None) -> None:
    """Remove parts, and write the other rows of their table into a new file; the graph follows, until then all are compared."""
    if not ids:
        return
    old, new = _quoted(name), _quoted(f"{name}_new")
    try:
        with _changing(store) as conn:
            _lock(conn)
            conn.execute(text(f"DELETE FROM {PARTS} WHERE id = ANY(:ids)"), {"ids": list(ids)})
            if not _OURS.fullmatch(name) or not _has(conn, name):
                return
            _hold(conn, name, patience_s)
            graph = _has_index(conn, f"{name}_hnsw")
            conn.execute(text(f"CREATE TABLE {new} (LIKE {old})"))
            rows = f"SELECT * FROM {old} WHERE part_id IN (SELECT id FROM {PARTS} WHERE vectors = :name)"
            conn.execute(text(f"INSERT INTO {new} {rows}"), {"name": name})
            conn.execute(text(f"DROP TABLE {old}"))
            conn.execute(text(f"ALTER TABLE {new} RENAME TO {old}"))
            conn.execute(text(f"ALTER TABLE {old} ADD PRIMARY KEY (part_id, number)"))
        if graph and (pgvector := pgvector_state(store)).is_usable:
            _build_graph(store, name, _quoted(pgvector.schema))
    except StaleVectorsError:  # another process dropped it, or the extension; the next opening finds what is left
        return


def _build_graph(store: Store, name: str, schema: str) -> None:
    with _changing(store) as conn:
        _lock(conn)
        conn.execute(
            text(
                f"CREATE INDEX IF NOT EXISTS {_quoted(f'{name}_hnsw')} ON {_quoted(name)} "
                f"USING hnsw (embedding {schema}.vector_ip_ops) WITH (m = 16, ef_construction = 96)"
            )
        )


def forget(store: Store, *, but: str = "", patience_s: float | None = None) -> None:
    """Remove all vectors, or those of all encoders except the one whose table is `but`."""
    if store.is_sqlite or not (names := [name for name in tables(store) if name not in (but, PARTS if but else "")]):
        return
    with _changing(store) as conn:
        _lock(conn)
        for name in names:
            _drop(conn, name, patience_s)
        if but:
            conn.execute(text(f"DELETE FROM {PARTS} WHERE vectors <> :but"), {"but": but})


def tables(store: Store) -> list[str]:
    """Our tables that are there; never one that somebody else gave a similar name."""
    with store.read() as conn:
        return sorted(name for name in inspect(conn).get_table_names() if _OURS.fullmatch(name))


@contextmanager
def _changing(store: Store) -> Iterator[Connection]:
    with _stale(), store.derived() as conn:
        yield conn


@contextmanager
def _stale() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        if _sqlstate(error.__cause__) in _STALE:
            raise StaleVectorsError from error
        raise


def _hold(conn: Connection, name: str, patience_s: float | None) -> None:
    """Have a table for this transaction alone, in short attempts, so that nobody else waits long behind one."""
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        try:
            with conn.begin_nested():
                conn.execute(text(f"SET LOCAL lock_timeout = {_HELD_MS}"))
                conn.execute(text(f"LOCK TABLE {_quoted(name)} IN ACCESS EXCLUSIVE MODE"))
            return
        except DBAPIError as error:
            if _sqlstate(error) not in _BUSY:
                raise
            if time.monotonic() >= deadline:
                raise BusyError(
                    "Vectors of removed documents are still in the database, because somebody reads their table (a dump?)",
                    "When that has ended, run: medloop knowledge check",
                ) from error
        time.sleep(0.2)


def _drop(conn: Connection, name: str, patience_s: float | None) -> None:
    if _has(conn, name):
        _hold(conn, name, patience_s)
        conn.execute(text(f"DROP TABLE {_quoted(name)}"))


def _sqlstate(error: BaseException | None) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def _lock(conn: Connection) -> None:
    """One process at a time writes vectors; others wait until its transaction ends."""
    conn.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER})"))


def _has(conn: Connection, name: str) -> bool:
    return inspect(conn).has_table(name)


def _has_index(conn: Connection, name: str) -> bool:
    return conn.execute(text("SELECT to_regclass(:name)"), {"name": name}).scalar() is not None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(vector: Sequence[float]) -> str:
    return f"[{','.join(map(repr, vector))}]"


def _hash(vectors: bytes) -> str:
    return f"sha256:{hashlib.sha256(vectors).hexdigest()}"
