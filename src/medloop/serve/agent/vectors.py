"""Vectors of chunks on the disk, and the nearest ones to a question.

Each document has one file of vectors (raw float32 and its SHA-256), named by everything it depends on: the document's bytes, how
it was cut, the encoder. So an interrupted run goes on with the next document, and a changed document is encoded again. The file
of usearch is made from them and holds nothing else: missing, damaged or of another version, it is made again.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.base import canonical_json, sha256_id
from medloop.serve.agent import chunks
from medloop.serve.agent.library import Library, StoredDocument
from medloop.store.files.artifacts import atomic_write, file_sha256

Floats = NDArray[np.float32]
DIGEST = 32  # bytes of a SHA-256 at the end of a file of vectors


class Encode(Protocol):
    """A sentence encoder: texts -> (N, D), rows of length 1."""

    def __call__(self, texts: Sequence[str], /) -> Floats: ...


class Nearest(Protocol):
    """Rows of vectors: the nearest to a vector, best first, and what they are. `backend` says what finds them."""

    @property
    def backend(self) -> str: ...
    def __call__(self, vector: Floats, count: int, /) -> NDArray[np.int64]: ...
    def cosines(self, indices: NDArray[np.int64], vector: Floats, /) -> Floats:
        """(N,) exact, for rows and a vector of length 1."""
        ...

    def rows(self, indices: NDArray[np.int64], /) -> Floats:
        """(N, D) of rows of one document."""
        ...


class VectorPlace(Protocol):
    """Where the vectors of documents are kept: files of the workspace, or PostgreSQL (database_vectors.py)."""

    def holds(self, document: StoredDocument, count: int, /) -> bool: ...
    def write(self, document: StoredDocument, vectors: Floats, /) -> None: ...
    def finish(self, library: Library, documents: Sequence[StoredDocument], name: str, /) -> Nearest:
        """Forget what belongs to no document any more, and open the rows of these in their order."""
        ...


def part_name(encoder: str, document: StoredDocument) -> str:
    """Names the vectors of a document by everything that they depend on."""
    parts = {"encoder": encoder, "chunks": chunks.VERSION, "document": document.sha256}
    return sha256_id(canonical_json(parts))[7:39]


class VectorFiles:
    """The files of vectors of one encoder. `encoder` is the hash of its weights."""

    def __init__(self, home: Path, encoder: str, width: int) -> None:
        self.home, self.folder, self.encoder, self.width = home, home / "knowledge/vectors", encoder, width
        self._blocks: dict[str, Floats] = {}

    def path(self, document: StoredDocument) -> Path:
        return self.folder / f"{part_name(self.encoder, document)}.f32"

    def holds(self, document: StoredDocument, count: int) -> bool:
        if (block := self.read(document, count)) is not None:
            self._blocks[document.sha256] = block
        return block is not None

    def finish(self, library: Library, documents: Sequence[StoredDocument], name: str) -> Nearest:
        self.prune(documents)
        blocks = [self._blocks[document.sha256] for document in documents]
        return nearest_of(self.home, name, np.concatenate(blocks) if blocks else np.zeros((0, self.width), np.float32))

    def read(self, document: StoredDocument, count: int) -> Floats | None:
        """(count, D); None where the file is missing or is not what was written."""
        path = self.path(document)
        if not path.is_file():
            return None
        content = path.read_bytes()
        body, digest = content[:-DIGEST], content[-DIGEST:]
        if len(body) != count * self.width * 4 or hashlib.sha256(body).digest() != digest:
            return None
        return np.frombuffer(body, "<f4").reshape(count, self.width)

    def write(self, document: StoredDocument, vectors: Floats) -> None:
        body = np.ascontiguousarray(vectors, "<f4").tobytes()
        atomic_write(self.path(document), body + hashlib.sha256(body).digest())
        self._blocks[document.sha256] = vectors

    def prune(self, documents: Sequence[StoredDocument]) -> int:
        """Remove the vectors of documents that are gone or changed; returns how many files."""
        wanted = {self.path(document) for document in documents}
        extra = [path for path in self.folder.glob("*.f32") if path not in wanted] if self.folder.is_dir() else []
        for path in extra:
            path.unlink(missing_ok=True)
        return len(extra)


class ExactNearest:
    """Every row is compared: for few rows, or where no index can be kept."""

    backend = "numpy (exact)"

    def __init__(self, vectors: Floats) -> None:
        self.vectors = vectors

    def cosines(self, indices: NDArray[np.int64], vector: Floats) -> Floats:
        return np.asarray(self.vectors[indices] @ vector, np.float32)

    def rows(self, indices: NDArray[np.int64]) -> Floats:
        return self.vectors[indices]

    def __call__(self, vector: Floats, count: int) -> NDArray[np.int64]:
        scores = self.vectors @ vector
        count = min(count, len(scores))
        best = np.argpartition(-scores, count - 1)[:count] if count else np.zeros(0, np.int64)
        return np.asarray(best[np.argsort(-scores[best], kind="stable")], np.int64)


class UsearchNearest(ExactNearest):
    """usearch's graph (HNSW) over the rows, from its file where that is whole."""

    def __init__(self, folder: Path, name: str, vectors: Floats) -> None:
        import usearch
        from usearch.index import Index

        super().__init__(vectors)
        self.backend = f"usearch {usearch.__version__}"
        self.path, note = folder / f"{name}.usearch", folder / f"{name}.json"
        self.rebuilt = not _is_whole(self.path, note, usearch.__version__, vectors.shape)
        self._index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=16, expansion_search=128)
        if not self.rebuilt:
            self._index.load(str(self.path))
            self.rebuilt = len(self._index) != len(vectors)
        if self.rebuilt:
            self._index.reset()
            self._index.add(np.arange(len(vectors), dtype=np.uint64), vectors, threads=1)
            atomic_write(self.path, bytes(self._index.save()))
            card = {"version": usearch.__version__, "rows": len(vectors), "width": vectors.shape[1]}
            atomic_write(note, json.dumps({**card, "sha256": file_sha256(self.path)}))
            for other in (*folder.glob("*.usearch"), *folder.glob("*.json")):
                if other.stem != name:
                    other.unlink(missing_ok=True)

    def __call__(self, vector: Floats, count: int) -> NDArray[np.int64]:
        matches = self._index.search(vector, count, threads=1)
        return np.asarray(matches.keys, np.int64)


def _is_whole(path: Path, note: Path, version: str, shape: tuple[int, ...]) -> bool:
    """Checked before usearch reads it: native code must not meet a damaged file."""
    try:
        card = json.loads(note.read_text(encoding="utf-8"))
        wanted = {"version": version, "rows": shape[0], "width": shape[1], "sha256": file_sha256(path)}
    except Exception:  # missing, unreadable, not JSON: made again
        return False
    return bool(card == wanted)


def nearest_of(home: Path, name: str, vectors: Floats) -> Nearest:
    """usearch where it is installed, else every row is compared."""
    if not len(vectors):
        return ExactNearest(vectors)
    try:
        return UsearchNearest(home / "knowledge/index", name, vectors)
    except ImportError:
        return ExactNearest(vectors)
