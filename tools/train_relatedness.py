"""Learn which medical words belong together, and write src/medloop/assets/relatedness/{en,zh}.npz.

    OMP_NUM_THREADS=1 python tools/train_relatedness.py --encoder embedded:minilm \\
        --zh zh_toyhom_dialogue.jsonl.gz:question,answer zh_huatuo26m_test_qa.jsonl.gz:question,answer \\
        --en en_medquad_qa.jsonl.gz:question,answer en_mts_dialog.jsonl.gz:dialogue,note

FILE:FIELD,FIELD names JSON lines and the texts of a row that belong together; a field of messages gives their texts. Of these
files only rows whose first text has an even CRC-32 are read; benchmarks/question_fit.py measures on the others. Our own corpus
of presentations (tools/urgency/) is always read.

A truncated SVD of words against texts puts words that stand in the same texts near one another. For English, vectors are added
whose sums imitate what a sentence encoder says of whole sentences (ridge regression). The same files, versions and one thread
give the same tables.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, eye
from scipy.sparse.linalg import svds
from train_urgency import read_corpus

from medloop.models.encode import load_encoder
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.ngrams import Kind
from medloop.reward.points import content_of
from medloop.reward.relatedness import ASSETS
from medloop.settings import Settings

Floats = NDArray[np.float64]
WORDS: dict[Kind, int] = {"en": 10_000, "zh": 14_000}
TIMES = 4  # texts in which a word has to stand
DIMENSIONS, IMITATED = 96, 64
LONGEST = 600  # characters of each field; what an answer is about stands at its beginning
SENTENCES = 30_000  # that the encoder reads
ROUNDS, RIDGE = 60, 1.0
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|(?:Doctor|Patient|Guest_\w+|\[\w+\]) ?:?")


def read_groups(sources: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The texts of each row, of the rows that are for training."""
    for source in sources:
        path, _, fields = source.partition(":")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                texts = tuple(text for field in fields.split(",") for text in _texts(row.get(field)))
                if texts and zlib.crc32(texts[0].encode()) % 2 == 0:
                    yield texts


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part["content"] if isinstance(part, dict) else part)


def own_groups(kind: Kind) -> Iterator[tuple[str, ...]]:
    """The wordings of each presentation, four at a time."""
    blocks: dict[str, list[str]] = {}
    for row in read_corpus(Path(__file__).parent / "urgency"):
        if kind_of(row.text) == kind:
            blocks.setdefault(row.presentation, []).append(row.text)
    for texts in blocks.values():
        yield from (tuple(texts[start : start + 4]) for start in range(0, len(texts), 4))


def term_matrix(texts: Sequence[set[str]], words: Sequence[str], weights: Floats) -> csr_matrix:
    """One row of length 1 per text."""
    number = {word: column for column, word in enumerate(words)}
    rows, columns, values = [], [], []
    for row, content in enumerate(texts):
        known = sorted(number[word] for word in content if word in number)
        length = np.sqrt((weights[known] ** 2).sum()) if known else 1.0
        rows += [row] * len(known)
        columns += known
        values += list(weights[known] / length)
    return csr_matrix((values, (rows, columns)), shape=(len(texts), len(words)))


def topics(matrix: csr_matrix) -> Floats:
    """A vector for each word, by the texts it stands in."""
    start = np.ones(min(matrix.shape)) / np.sqrt(min(matrix.shape))
    _, strengths, right = svds(matrix, k=DIMENSIONS, v0=start)
    vectors = right.T * np.sqrt(strengths)
    return np.asarray(vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9))


def imitated(matrix: csr_matrix, targets: Floats) -> Floats:
    """Word vectors whose sums come near `targets`: ridge regression by conjugate gradients."""
    centred = targets - targets.mean(0)
    _, _, axes = np.linalg.svd(centred[:: max(1, len(centred) // 4000)], full_matrices=False)
    wanted = centred @ axes[:IMITATED].T
    normal = (matrix.T @ matrix + RIDGE * eye(matrix.shape[1])).tocsr()
    scale = normal.diagonal()[:, None]
    solution = np.zeros((matrix.shape[1], IMITATED))
    residual = matrix.T @ wanted
    scaled = residual / scale
    step, size = scaled.copy(), (residual * scaled).sum(0)
    for _ in range(ROUNDS):
        product = normal @ step
        pace = size / ((step * product).sum(0) + 1e-12)
        solution += pace * step
        residual -= pace * product
        scaled = residual / scale
        grown = (residual * scaled).sum(0)
        step, size = scaled + grown / (size + 1e-12) * step, grown
    return solution


def sentences_of(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """Some sentences of all groups, the same ones every time."""
    found = {part.strip() for texts in groups for text in texts for part in _SENTENCE.split(text[:LONGEST])}
    fitting = [text for text in found if 15 < len(text) < 260]
    return sorted(sorted(fitting, key=lambda text: zlib.crc32(text.encode()))[:SENTENCES], key=lambda text: (len(text), text))


def train(kind: Kind, sources: Sequence[str], encoder: str | None) -> None:
    groups = [*read_groups(sources), *own_groups(kind)]
    texts = [content_of(" \n".join(text[:LONGEST] for text in group)) for group in groups]
    counts = Counter(word for content in texts for word in content)
    words = sorted((word for word, times in counts.items() if times >= TIMES), key=lambda word: (-counts[word], word))
    words = sorted(words[: WORDS[kind]])
    weights = np.log(len(texts) / np.array([counts[word] for word in words]))
    vectors = topics(term_matrix(texts, words, weights))
    if encoder and kind == "en":
        chosen = sentences_of(groups)
        targets = np.asarray(load_encoder(encoder, Settings(home=Path.cwd())).encode(chosen), np.float64)
        more = imitated(term_matrix([content_of(text) for text in chosen], words, weights), targets)
        vectors = np.hstack([vectors, more / np.sqrt((more**2).sum(1)).mean()])
    longest = np.abs(vectors).max(1, keepdims=True) + 1e-9
    path = ASSETS / f"{kind}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        path, words=np.array("\n".join(words)), vectors=np.rint(vectors / longest * 127).astype(np.int8),
        weights=(weights * longest[:, 0] / 127).astype(np.float32),
    )  # fmt: skip
    print(f"{kind}: {len(texts):,} texts, {len(words):,} words -> {path.name} ({path.stat().st_size:,} bytes)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--en", nargs="*", default=[])
    parser.add_argument("--zh", nargs="*", default=[])
    parser.add_argument("--encoder")
    args = parser.parse_args()
    if args.zh:
        train("zh", args.zh, None)
    if args.en:
        train("en", args.en, args.encoder)


if __name__ == "__main__":
    main()
