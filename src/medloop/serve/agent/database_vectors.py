"""Vectors of documents in PostgreSQL: searched there by pgvector, with the same results as the files of a workspace.

    vectors = DatabaseVectors(store, pgvector_state(store), encoder.sha256, encoder.width)
    open_index(home, encoder, vectors=vectors)

The texts stay files of the workspace. Of the vectors, this process holds only those of documents that were asked about last.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medloop.errors import BusyError
from medloop.serve.agent import chunks
from medloop.serve.agent.library import Library, StoredDocument
from medloop.serve.agent.vectors import Floats, Nearest, part_name
from medloop.store.db import Store
from medloop.store.records.knowledge_vectors import PgvectorState, StaleVectorsError, VectorPart, VectorTable, forget, prune

KEPT_ROWS = 20_000  # vectors of whole documents in memory
log = logging.getLogger(__name__)


class DatabaseVectors:
    def __init__(self, store: Store, pgvector: PgvectorState, encoder: str, width: int, *, tidy: bool = False) -> None:
        self.store, self.encoder, self.tidy = store, encoder, tidy
        self.table = VectorTable(store, pgvector, f"{encoder}:{chunks.VERSION}", width)
        self.has_left = False  # whether vectors of removed documents could not be removed yet
        self._parts: dict[str, VectorPart] | None = None

    def holds(self, document: StoredDocument, count: int) -> bool:
        if self._parts is None:
            self.table.create()
            self._parts = self.table.parts()
        part = self._parts.get(part_name(self.encoder, document))
        return part is not None and part.rows == count

    def write(self, document: StoredDocument, vectors: Floats) -> None:
        if document.card.identifiers == "kept":  # added after somebody looked whether there is such a one: look again
            raise StaleVectorsError
        self.table.write(part_name(self.encoder, document), document.sha256, np.ascontiguousarray(vectors, ">f4").tobytes())

    def finish(self, library: Library, documents: Sequence[StoredDocument], name: str) -> Nearest:
        try:
            kept = lambda: {document.sha256 for document in library.documents()}  # noqa: E731
            prune(self.store, kept, patience_s=None if self.tidy else 0)
        except BusyError as error:
            if self.tidy:
                raise
            self.has_left = True  # a question does not wait for that, and never finds them
            log.warning("%s", error)
        if self.tidy:  # a server that still has another encoder makes its vectors again; two servers must not do that in turns
            forget(self.store, but=self.table.name)
        self.table.build_index()
        parts = self.table.parts()
        names = [part_name(self.encoder, document) for document in documents]
        if not set(names) <= parts.keys():
            raise StaleVectorsError
        return DatabaseNearest(self.table, [parts[part] for part in names])

    def repair(self) -> int:
        """Remove the parts whose vectors are not those that were written, so that they are made again; returns how many."""
        self.table.create()
        if names := self.table.damaged():
            self.table.remove(names)
        return len(names)


@dataclass(frozen=True)
class _Span:
    """Where the rows of a document stand among the chunks of the index."""

    part_id: int
    start: int
    rows: int


class DatabaseNearest:
    """HNSW of pgvector over inner products; what it finds is compared exactly, by the whole vectors."""

    def __init__(self, table: VectorTable, parts: Sequence[VectorPart]) -> None:
        self.backend = f"pgvector {table.version} in PostgreSQL"
        self._table = table
        starts = np.cumsum([0, *(part.rows for part in parts)])
        self._count = int(starts[-1])
        self._spans = {
            part.part_id: _Span(part.part_id, int(start), part.rows) for part, start in zip(parts, starts, strict=False)
        }
        self._starts, self._ids = starts[:-1], [part.part_id for part in parts]
        self._held: dict[int, Floats] = {}
        self._lock = threading.Lock()  # questions come from many threads

    def __call__(self, vector: Floats, count: int) -> NDArray[np.int64]:
        count, asked = min(count, self._count), vector.tolist()
        rows = self._known(self._table.nearest(asked, count))
        if len(rows) < count:  # rows of documents that this process does not know yet were nearer, or HNSW found too few
            rows = self._known(self._table.nearest(asked, count, parts=self._ids))
        if len(rows) < count:
            raise StaleVectorsError
        return np.array(rows, np.int64)

    def cosines(self, indices: NDArray[np.int64], vector: Floats) -> Floats:
        rows = [self._row(int(index)) for index in indices]
        products = self._table.products(rows, vector.tolist())
        if len(products) < len(rows):
            raise StaleVectorsError
        return np.array([products[row] for row in rows], np.float32)

    def rows(self, indices: NDArray[np.int64]) -> Floats:
        """(N, D) of chunks of one document, which stays in memory for the next question about it."""
        span = self._spans[self._row(int(indices[0]))[0]]
        with self._lock:
            block = self._held.get(span.part_id)
        if block is None:
            body = np.frombuffer(self._table.vectors(span.part_id), ">f4")
            if len(body) != span.rows * self._table.width:
                raise StaleVectorsError
            block = body.reshape(span.rows, self._table.width).astype(np.float32)
            with self._lock:
                if sum(len(held) for held in self._held.values()) + span.rows > KEPT_ROWS:
                    self._held.clear()
                self._held[span.part_id] = block
        return block[indices - span.start]

    def _row(self, index: int) -> tuple[int, int]:
        position = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._ids[position], index - int(self._starts[position])

    def _known(self, rows: Sequence[tuple[int, int]]) -> list[int]:
        return [self._spans[part_id].start + number for part_id, number in rows if part_id in self._spans]
