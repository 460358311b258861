"""Which section of the best document answers a question: words and meaning as they stand out inside that document alone.

Among all documents the name of the disease decides, and every section of its document has it. Inside the document that name
weighs nothing, because each piece has it, so what is asked about it decides.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.knowledge import Chunk
from medloop.serve.agent import chunks as chunking
from medloop.serve.agent.bm25 import BM25
from medloop.serve.agent.vectors import Floats
from medloop.serve.agent.words import search_words

WEIGHT = 0.5  # of each of the two, beside the rankings over all documents, which weigh 1; chosen on the development half
KEPT = 200  # documents whose words are kept


class SectionRanking:
    def __init__(self, chunks: Sequence[Chunk], titles: dict[str, str], vectors: Callable[[NDArray[np.int64]], Floats]) -> None:
        self._chunks, self._titles, self._vectors = chunks, titles, vectors
        rows: dict[str, list[int]] = {}
        for index, chunk in enumerate(chunks):
            rows.setdefault(chunk.document, []).append(index)
        self._rows = {document: np.array(indices, np.int64) for document, indices in rows.items()}
        self._words: dict[str, BM25] = {}

    def bonus(self, scores: Floats, words: Sequence[str], vector: Floats | None) -> Floats:
        """What each chunk of the document with the best chunk gains; 0 for all others."""
        gained = np.zeros(len(scores), np.float32)
        if not len(scores) or not float(scores.max()):
            return gained
        document = self._chunks[int(scores.argmax())].document
        rows = self._rows[document]
        if len(rows) < 2:
            return gained
        gained[rows] += WEIGHT * _scaled(self._bm25(document, rows).scores(words))
        if vector is not None:
            gained[rows] += WEIGHT * _scaled(_apart(self._vectors(rows), vector))
        return gained

    def _bm25(self, document: str, rows: NDArray[np.int64]) -> BM25:
        if document not in self._words:
            if len(self._words) >= KEPT:
                self._words.clear()
            title = self._titles[document]
            self._words[document] = BM25([search_words(chunking.indexed_text(title, self._chunks[i])) for i in rows])
        return self._words[document]


def _scaled(values: Floats) -> Floats:
    """Between 0 and 1, the best one 1."""
    return np.asarray(np.clip(values, 0, None) / max(float(values.max(initial=0)), 1e-6), np.float32)


def _apart(vectors: Floats, question: Floats) -> Floats:
    """(N,) how far each vector lies from the middle of its document in the direction of the question."""
    middle = vectors.mean(axis=0)
    away = vectors - middle
    asked = question - middle * float(question @ middle) / max(float(middle @ middle), 1e-9)
    return np.asarray((away @ asked) / (np.linalg.norm(away, axis=1) + 1e-6), np.float32)
