"""The documents of a workspace as the assistant sees them: a function from a question to passages.

    find = passages_of(settings)          # None where there is no document
    find("Does dantrolene help?")         # PassagesFound: best first, none where it is not in the documents

The encoder is `reward.encoder` of the settings, else BAAI/bge-m3 where it is installed (it reads Chinese), else embedded:minilm;
without one, and without torch, the words decide alone.
"""

import importlib.util
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.assistant import FindPassages, PassagesFound
from medloop.errors import MedloopError
from medloop.models.installed import Installed, installed
from medloop.serve.agent.library import Library
from medloop.serve.agent.search import KnowledgeIndex, OnDocument, SearchResult, TextEncoder, open_index
from medloop.settings import Settings

ENCODERS = ("BAAI/bge-m3", "embedded:minilm")
log = logging.getLogger(__name__)


@dataclass
class KnowledgeSearch:
    """An index that follows the documents: opened at the first question, opened again when they have changed."""

    settings: Settings
    on_document: OnDocument = lambda done, total: None
    encoder: TextEncoder | None = None
    _loaded: bool = False
    _index: KnowledgeIndex | None = None
    _state: tuple[tuple[str, int], ...] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_quick(self) -> bool:
        """Whether there is nothing to search."""
        return not Library(self.settings.home).state()

    def index(self) -> KnowledgeIndex | None:
        """The index as the documents are now; None where there is none."""
        library = Library(self.settings.home)
        with self._lock:
            state = library.state()
            if state != self._state:
                if state and not self._loaded:
                    self.encoder, self._loaded = load_text_encoder(self.settings), True
                self._index = open_index(self.settings.home, self.encoder, on_document=self.on_document)
                self._state = state
            return self._index

    def examine(self, question: str, *, count: int = 5) -> SearchResult | None:
        index = self.index()
        return None if index is None else index.examine(question, count=count)

    def __call__(self, question: str) -> PassagesFound:
        try:
            result = self.examine(question)
        except MedloopError as error:  # an answer without documents is better than none
            log.error("documents cannot be searched: %s", error)
            result = None
        return PassagesFound(index=NO_INDEX) if result is None else result.found


NO_INDEX = "sha256:" + "0" * 64  # of a workspace whose last document was removed while it is served


def passages_of(settings: Settings) -> FindPassages | None:
    """What the assistant asks for passages; None where the workspace has no document."""
    return KnowledgeSearch(settings) if Library(settings.home).state() else None


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
