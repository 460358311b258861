"""The documents of a workspace as the assistant sees them: a function from a question to passages.

    find = passages_of(settings)          # None where there is no document
    find("Does dantrolene help?")         # PassagesFound: best first, none where it is not in the documents

On PostgreSQL with its extension pgvector, and given the store, vectors lie and are searched in the database (`vector_note`).
The encoder is `reward.encoder` of the settings, else BAAI/bge-m3 where it is installed (it reads Chinese), else embedded:minilm;
without one, and without torch, the words decide alone.
"""

import importlib.util
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.assistant import FindPassages, PassagesFound
from medloop.errors import BusyError, IntegrityError, MedloopError
from medloop.models.installed import Installed, installed
from medloop.serve.agent.database_vectors import DatabaseVectors
from medloop.serve.agent.library import Library
from medloop.serve.agent.search import KnowledgeIndex, OnDocument, SearchResult, TextEncoder, open_index
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import knowledge_vectors
from medloop.store.records.knowledge_vectors import PgvectorState, StaleVectorsError, pgvector_state

OPENINGS = 3  # while others change the vectors
LATER_S = 60.0  # until vectors of removed documents that somebody else's reading held back are removed again
ENCODERS = ("BAAI/bge-m3", "embedded:minilm")
log = logging.getLogger(__name__)


@dataclass
class KnowledgeSearch:
    """An index that follows the documents: opened at the first question, opened again when they have changed."""

    settings: Settings
    on_document: OnDocument = lambda done, total: None
    store: Store | None = None
    tidy: bool = False  # whether vectors of other encoders are removed from the database, which servers leave to the commands
    encoder: TextEncoder | None = None
    _loaded: bool = False
    _index: KnowledgeIndex | None = None
    _state: tuple[tuple[str, int], ...] | None = None
    _in_database: bool = False
    _remove_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_quick(self) -> bool:
        """Whether there is nothing to search."""
        return not Library(self.settings.home).state()

    def index(self) -> KnowledgeIndex | None:
        """The index as the documents are now; None where there is none."""
        library = Library(self.settings.home)
        with self._lock:
            for attempt in range(1, OPENINGS + 1):
                if (state := library.state()) == self._state:
                    break
                try:
                    self._open(bool(state))
                    self._state = state
                except StaleVectorsError:
                    if attempt == OPENINGS:
                        raise
            if self._remove_at is not None and time.monotonic() >= self._remove_at:
                self._remove_left()
            return self._index

    def _open(self, has_documents: bool) -> None:
        if has_documents and not self._loaded:
            self.encoder, self._loaded = load_text_encoder(self.settings), True
        vectors = self.database_vectors() if has_documents else None
        self._index = open_index(self.settings.home, self.encoder, on_document=self.on_document, vectors=vectors)
        if self._in_database and has_documents and vectors is None:
            log.warning("%s", vector_note(self.store))
        self._in_database = vectors is not None
        self._remove_at = time.monotonic() + LATER_S if vectors is not None and vectors.has_left else None
        if self.store is not None and not (has_documents and vector_state(self.store).is_usable):
            self._remove_left()

    def _remove_left(self) -> None:
        """Remove vectors that do not belong into the database; where somebody reads them, a server tries again later."""
        assert self.store is not None
        patience = None if self.tidy else 0
        try:
            if self._in_database:
                prune_vectors(self.store, patience_s=patience)
            else:
                knowledge_vectors.forget(self.store, patience_s=patience)
            self._remove_at = None
        except BusyError as error:
            if self.tidy:
                raise
            log.warning("%s", error)
            self._remove_at = time.monotonic() + LATER_S

    def database_vectors(self) -> DatabaseVectors | None:
        """The database as the place of the vectors; None where they are files."""
        if self.store is None or self.encoder is None or not (pgvector := vector_state(self.store)).is_usable:
            return None
        return DatabaseVectors(self.store, pgvector, self.encoder.sha256, self.encoder.width, tidy=self.tidy)

    def repair(self) -> int:
        """Make vectors again that are damaged in the database; returns of how many documents. Reads every vector."""
        vectors = None if self._index is None else self.database_vectors()
        if vectors is None or not (count := vectors.repair()):
            return 0
        self._state = None
        self.index()
        return count

    def examine(self, question: str, *, count: int = 5) -> SearchResult | None:
        for attempt in (1, 2):
            index = self.index()
            try:
                return None if index is None else index.examine(question, count=count)
            except StaleVectorsError:
                with self._lock:
                    self._state = None
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def __call__(self, question: str) -> PassagesFound:
        try:
            result = self.examine(question)
        except MedloopError as error:  # an answer without documents is better than none
            log.error("documents cannot be searched: %s", error)
            result = None
        return PassagesFound(index=NO_INDEX) if result is None else result.found


NO_INDEX = "sha256:" + "0" * 64  # of a workspace whose last document was removed while it is served


def passages_of(settings: Settings, store: Store | None = None) -> FindPassages | None:
    """What the assistant asks for passages; None where the workspace has no document."""
    return KnowledgeSearch(settings, store=store) if Library(settings.home).state() else None


@contextmanager
def postgres_store(settings: Settings) -> Iterator[Store | None]:
    """The store where it is PostgreSQL, which may hold vectors; None for SQLite, which never does."""
    with nullcontext() if settings.store_url.startswith("sqlite") else open_store(settings) as store:
        yield store


def vector_state(store: Store) -> PgvectorState:
    """Whether the vectors of this workspace belong into its database; otherwise why not, and what to do about it."""
    if store.settings.database.vectors == "files":
        return PgvectorState(reason="database.vectors is 'files'")
    library = Library(store.settings.home)
    if any(library.card(name).identifiers == "kept" for name, _ in library.state()):
        hint = "Remove that document, or add it again with --identifiers scrub ('medloop knowledge list' shows which it is)"
        return PgvectorState(
            reason="a document was kept with identifiers of a person, and vectors cannot be encrypted", hint=hint
        )
    return pgvector_state(store)


def vector_note(store: Store | None) -> str:
    """For people: where the vectors lie, if the store is PostgreSQL; empty for SQLite."""
    if store is None:
        return ""
    pgvector = vector_state(store)
    if pgvector.is_usable:
        return f"Vectors: in the database (pgvector {pgvector.version}), not encrypted."
    return f"Vectors: files of the workspace, because {pgvector.reason}.{f' {pgvector.hint}.' if pgvector.hint else ''}"


def prune_vectors(store: Store, *, patience_s: float | None = None) -> int:
    """Remove from the database the vectors of documents that were removed or rewritten, without waiting for the next question."""
    try:
        documents = Library(store.settings.home).documents
        return knowledge_vectors.prune(store, lambda: {document.sha256 for document in documents()}, patience_s=patience_s)
    except (IntegrityError, ValueError):  # a damaged document: which vectors are its own cannot be said, so none stays
        knowledge_vectors.forget(store, patience_s=patience_s)
        return 0


def top_passages(find: FindPassages, question: str, top_k: int) -> list[str]:
    """Texts of the best passages for the prompt of a training question (`top_k`), best first; none where nothing fits."""
    return [passage.text for passage in find(question).passages[:top_k]]


def encoder_place(settings: Settings) -> Installed | None:
    """Where the encoder of the documents lies, without loading it; None: the search goes by words alone."""
    if importlib.util.find_spec("torch") is None:
        return None
    names = (settings.reward.encoder,) if settings.reward.encoder else ENCODERS
    return next((place for name in names if (place := installed(name, settings)) is not None), None)


def load_text_encoder(settings: Settings) -> TextEncoder | None:
    """The encoder in memory; None where none is installed."""
    place = encoder_place(settings)
    if place is None:
        return None
    from medloop.models.encode import load_encoder  # torch

    try:
        encoder = load_encoder(place.name, settings.model_copy(update={"offline": True}) if place.in_cache else settings)
    except MedloopError as error:
        log.warning("documents are searched by words alone: %s", error)
        return None

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        return encoder.encode(texts)

    return TextEncoder(encoder.name, encoder.sha256, encoder.width, encoder.reads_chinese, encode)
