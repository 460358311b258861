"""Search the documents: words (BM25) and meaning (vectors) together, neighbours joined, and whether anything fits at all.

    index = open_index(settings.home, encoder)        # None where there is no document
    index.search("Does dantrolene help in heat stroke?").passages[0].page

A chunk's score is the sum of both rankings, each divided by its best: on the questions of benchmarks/knowledge.py that finds more
than reciprocal ranks, which forget by how much the first is better. Sections of the best document are ranked once more among
themselves (section_rank.py). Chunks that follow one another on a page become one passage.
Whether anything fits is decided by `fit` against a threshold that was measured on questions that the documents do not cover.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.assistant import Passage, PassagesFound
from medloop.contracts.base import canonical_json, sha256_id
from medloop.contracts.knowledge import Chunk, KnowledgeDocument
from medloop.lexicon.language import detect_language
from medloop.serve.agent import chunks as chunking
from medloop.serve.agent import section_rank
from medloop.serve.agent.bm25 import BM25
from medloop.serve.agent.library import Library, StoredDocument
from medloop.serve.agent.section_rank import SectionRanking
from medloop.serve.agent.vectors import Encode, ExactNearest, Floats, Nearest, VectorFiles, VectorPlace
from medloop.serve.agent.words import query_words, search_words

VERSION = "3"  # of words, fusion and thresholds
PASSAGES = 5
CANDIDATES = 100  # of each ranking
POOL = 20  # chunks that may join a passage
LONGEST = 1600  # characters of a passage
COSINE_WEIGHT = 0.8  # of `fit`; the rest is the share of the question's words that the best chunk has
# Measured by benchmarks/knowledge.py; with an encoder whose cosines were not measured, words decide.
FIT_WITH_VECTORS = {"embedded:minilm": 0.47}
FIT_BY_WORDS = {"zh": 0.135, "en": 0.40}
OnDocument = Callable[[int, int], None]  # documents encoded, documents in all


@dataclass(frozen=True)
class TextEncoder:
    """A sentence encoder with what the index must know of it."""

    name: str
    sha256: str
    width: int
    reads_chinese: bool
    encode: Encode


@dataclass(frozen=True)
class SearchResult:
    """What was found, and how well it fits: below `threshold` no passage is given."""

    found: PassagesFound
    fit: float
    threshold: float
    candidates: tuple[Passage, ...] = ()  # the best passages, whether they fit or not


class KnowledgeIndex:
    """All chunks of a workspace in memory, ready to be searched. `hash` names everything that could change a result."""

    def __init__(
        self, documents: Sequence[StoredDocument], chunks: Sequence[Chunk], encoder: TextEncoder | None, nearest: Nearest,
        pages: Mapping[tuple[str, int], str],
    ) -> None:  # fmt: skip
        self.cards: dict[str, KnowledgeDocument] = {document.card.document_id: document.card for document in documents}
        self.chunks, self.encoder, self.nearest, self.pages = chunks, encoder, nearest, pages
        self.hash = index_hash(documents, encoder)
        texts = (chunking.indexed_text(self.cards[chunk.document].title, chunk) for chunk in chunks)
        self.bm25 = BM25([search_words(text) for text in texts])
        self.sections = SectionRanking(chunks, {name: card.title for name, card in self.cards.items()}, nearest.rows)

    @property
    def backend(self) -> str:
        return f"words + {self.nearest.backend} ({self.encoder.name})" if self.encoder else "words only (no encoder is installed)"

    def search(self, question: str, *, count: int = PASSAGES) -> PassagesFound:
        return self.examine(question, count=count).found

    def examine(self, question: str, *, count: int = PASSAGES) -> SearchResult:
        """The passages that fit a question; none below the threshold. Never fails on what a user may type."""
        words = query_words(question)
        by_words = self.bm25.scores(words)
        vector = self._vector(question)
        cosines = None if vector is None else self._cosines(vector, by_words)
        scores = by_words / max(float(by_words.max(initial=0)), 1e-6)
        if cosines is not None:
            scores = scores + np.clip(cosines, 0, 1) / max(float(cosines.max(initial=0)), 1e-6)
        scores = scores + self.sections.bonus(scores, words, vector)
        best = np.argsort(-scores, kind="stable")[:POOL]
        fit, threshold = self._fit(question, words, best, cosines)
        whole = (1.0 if cosines is None else 2.0) * (1 + section_rank.WEIGHT)
        groups = self._joined([int(index) for index in best if scores[index] > 0], count)
        passages = tuple(self._passage(group, max(group, key=lambda i: scores[i]), scores, whole) for group in groups)
        fits = bool(words) and fit >= threshold
        return SearchResult(PassagesFound(index=self.hash, passages=passages if fits else ()), fit, threshold, passages)

    def _vector(self, question: str) -> Floats | None:
        """None where the encoder cannot read the question."""
        encoder = self.encoder
        if encoder is None or not (encoder.reads_chinese or detect_language(question) == "en"):
            return None
        return np.asarray(encoder.encode([question])[0], np.float32)

    def _cosines(self, vector: Floats, by_words: Floats) -> Floats:
        """Cosines of the candidates of both rankings, 0 for all others."""
        near = self.nearest(vector, min(CANDIDATES, len(self.chunks)))
        likely = np.argsort(-by_words, kind="stable")[:CANDIDATES]
        candidates = np.unique(np.concatenate([near, likely]).astype(np.int64))
        cosines = np.zeros(len(self.chunks), np.float32)
        cosines[candidates] = self.nearest.cosines(candidates, vector)
        return cosines

    def _fit(self, question: str, words: Sequence[str], best: NDArray[np.int64], cosines: Floats | None) -> tuple[float, float]:
        coverage = float(self.bm25.coverage(words)[best[:PASSAGES]].max(initial=0))
        measured = None if self.encoder is None or cosines is None else FIT_WITH_VECTORS.get(self.encoder.name)
        if measured is None:
            return coverage, FIT_BY_WORDS["en" if detect_language(question) == "en" else "zh"]
        assert cosines is not None
        return COSINE_WEIGHT * float(cosines.max(initial=0)) + (1 - COSINE_WEIGHT) * coverage, measured

    def _joined(self, ranked: Sequence[int], count: int) -> list[list[int]]:
        """Groups of chunks, best first: a chunk that follows or precedes a group on its page joins it."""
        groups: list[list[int]] = []
        for index in ranked:
            for group in groups:
                if self._adjoins(group, index):
                    group.append(index)
                    group.sort()
                    break
            else:
                if len(groups) < count:
                    groups.append([index])
        return groups

    def _adjoins(self, group: Sequence[int], index: int) -> bool:
        first, last = min(group[0], index), max(group[-1], index)
        if index not in (group[0] - 1, group[-1] + 1):
            return False
        one, other = self.chunks[first], self.chunks[last]
        same_page = (one.document, one.page_index) == (other.document, other.page_index)
        return same_page and other.end - one.start <= LONGEST

    def _passage(self, group: Sequence[int], best: int, scores: Floats, whole: float) -> Passage:
        first, last = self.chunks[group[0]], self.chunks[group[-1]]
        text = self.pages[first.document, first.page_index][first.start : last.end]
        return Passage(
            passage_id=f"{first.document}:{first.page_index}:{first.start}-{last.end}", document=first.document,
            title=chunking.path_of(self.cards[first.document].title, self.chunks[best])[:300], page=first.page, start=first.start,
            end=last.end, text=text, score=round(float(scores[best]) / whole, 4),
        )  # fmt: skip


def index_hash(documents: Sequence[StoredDocument], encoder: TextEncoder | None) -> str:
    """Names what a search depends on: the documents' bytes, how they are cut and ranked, the encoder."""
    parts = {
        "search": VERSION, "chunks": chunking.VERSION, "encoder": encoder.sha256 if encoder else "",
        "documents": sorted(document.sha256 for document in documents),
    }  # fmt: skip
    return sha256_id(canonical_json(parts))


def forget_vectors(home: Path) -> None:
    """Without documents there is nothing to search: no vector of a removed text stays."""
    for folder in ("knowledge/vectors", "knowledge/index"):
        shutil.rmtree(home / folder, ignore_errors=True)


def open_index(
    home: Path, encoder: TextEncoder | None, *, on_document: OnDocument = lambda done, total: None,
    vectors: VectorPlace | None = None,
) -> KnowledgeIndex | None:  # fmt: skip
    """The index of all documents; what it lacks is made. None where there is no document. Without a place, vectors are files."""
    library = Library(home)
    documents = library.documents()
    if not documents or vectors is not None:
        forget_vectors(home)
    if not documents:
        return None
    place = vectors if encoder is None or vectors is not None else VectorFiles(home, encoder.sha256, encoder.width)
    chunks: list[Chunk] = []
    texts: dict[tuple[str, int], str] = {}
    for done, document in enumerate(documents, start=1):
        document_id = document.card.document_id
        pages = library.pages(document_id)
        texts.update({(document_id, index): page.text for index, page in enumerate(pages)})
        own = chunking.chunk_pages(document_id, pages)
        chunks += own
        if encoder is not None and place is not None:
            if not place.holds(document, len(own)):
                place.write(document, _encoded(encoder, document, own))
            on_document(done, len(documents))
    if encoder is None or place is None:
        return KnowledgeIndex(documents, chunks, None, ExactNearest(np.zeros((0, 0), np.float32)), texts)
    nearest = place.finish(library, documents, index_hash(documents, encoder)[7:39])
    return KnowledgeIndex(documents, chunks, encoder, nearest, texts)


def _encoded(encoder: TextEncoder, document: StoredDocument, own: Sequence[Chunk]) -> Floats:
    """(N, D) of a document's chunks; a chunk that the encoder cannot read has a row of zeros."""
    vectors = np.zeros((len(own), encoder.width), np.float32)
    readable = [i for i, chunk in enumerate(own) if encoder.reads_chinese or detect_language(chunk.text) in ("en", "other")]
    if readable:
        vectors[readable] = encoder.encode([chunking.indexed_text(document.card.title, own[i]) for i in readable])
    return vectors
