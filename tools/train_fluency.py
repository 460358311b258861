"""Count which words stand beside which in our own texts, and write src/medloop/assets/fluency/{en,zh}.npz.

    python tools/train_fluency.py            # the same texts give the same files, byte for byte
    python tools/train_fluency.py --check    # also prints the mean of held-out texts as they are and shuffled

The texts are our own: the corpora in tools/urgency/ and tools/acts/, and answers of the embedded corpus.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from medloop.embedded.corpus import generate
from medloop.lexicon.words import Words, split_words
from medloop.reward import fluency
from medloop.reward.answer_text import split_answer
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.ngrams import Kind

FREQUENT: dict[Kind, int] = {"en": 200, "zh": 400}
EMBEDDED = 4000  # answers of the embedded corpus
LINE = re.compile(r"^[A-Z]\.[a-z] (\S.*)$")
PRIOR = 0.5  # neighbours that every pair of classes is thought to have been seen


def read_texts() -> list[str]:
    folder = Path(__file__).parent
    paths = [*sorted((folder / "urgency").glob("*.txt")), *sorted((folder / "acts").glob("*.txt"))]
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [match[1] for line in lines if (match := LINE.match(line))]
    for row in generate(EMBEDDED, seed=1):
        texts.append(split_answer(next(m["content"] for m in row["messages"] if m["role"] == "assistant")).visible)
    return texts


def train(texts: Sequence[Words], kind: Kind) -> fluency.NeighbourTable:
    counts = Counter(word for text in texts for word in text if kind == "en" or not word.isascii())
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: FREQUENT[kind]]
    classes, characters = fluency.numbered(frequent, kind)
    size = len(classes) + fluency.OTHER[kind]
    pairs = np.zeros((size, size))
    for text in texts:
        ids = fluency.class_ids(text, classes, characters)
        np.add.at(pairs, (ids[:-1], ids[1:]), 1)
    by_chance = np.outer(pairs.sum(1), pairs.sum(0)) / pairs.sum()
    logs = np.log((pairs + PRIOR) / (by_chance + PRIOR))
    return fluency.NeighbourTable(classes, characters, np.rint(np.clip(logs, -3, 3) * fluency.SCALE).astype(np.int8))


def check(texts: Sequence[Words], kind: Kind) -> None:
    table = train([text for number, text in enumerate(texts) if number % 5], kind)
    rng = random.Random(0)
    held = [text for text in texts[::5] if len(text) >= 20]
    for name, rows in (("as they are", held), ("shuffled", [rng.sample(text, len(text)) for text in held])):
        means = [fluency.neighbour_mean(tuple(row), table) for row in rows]
        low, middle, high = np.percentile(means, [1, 50, 99])
        print(f"{kind}, held out, {name}: 1 % {low:.2f}, median {middle:.2f}, 99 % {high:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="hold out every fifth text, and compare it with its words shuffled")
    parser.add_argument("--out", type=Path, default=fluency.ASSETS, help="folder for the tables")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    texts = read_texts()
    kinds: tuple[Kind, ...] = ("en", "zh")
    for kind in kinds:
        rows = [split_words(text) for text in texts if kind_of(text) == kind]
        if options.check:
            check(rows, kind)
        table = train(rows, kind)
        path = options.out / f"{kind}.npz"
        np.savez_compressed(path, words=np.array(" ".join(table.classes)), values=table.values)
        print(f"{kind}: {len(rows)} texts -> {path} ({path.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
