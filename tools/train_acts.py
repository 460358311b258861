"""Train the sentence classifier of `acts` on the corpus in tools/acts/ and write src/medloop/assets/acts/{en,zh}.npz.

    python tools/train_acts.py               # the same corpus and library versions give the same files, byte for byte
    python tools/train_acts.py --check       # also trains without each fifth of the topics and prints how that fifth is judged

The corpus is our own text: blocks `## id | topic | 主题`, lines `CODE text`, where CODE is kind.polarity (N.d, S.n,
A.c, ...). Directives of the kinds in `act_model.CLASSES` are classes of their own; everything else is "other".
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ngram_features import features
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from medloop.reward.detect.act_model import ASSETS, BITS, CLASSES, kind_of
from medloop.reward.detect.ngrams import Floats, Kind, NgramModel, quantized, save_ngrams

CORPUS = Path(__file__).parent / "acts"
LINE = re.compile(r"^([NDHAGBSCWQFX])\.([dcnrq]) (\S.*)$")
L2 = 1e-5


class Row(NamedTuple):
    text: str
    code: str
    topic: str

    @property
    def label(self) -> int:
        kind, polarity = self.code.split(".")
        return CLASSES.index(kind) if polarity == "d" and kind in CLASSES else 0


def read_corpus(folder: Path) -> list[Row]:
    rows = {}
    for path in sorted(folder.glob("*.txt")):
        topic = ""
        for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if raw.startswith("## "):
                topic = raw[3:].split("|")[1].strip()
            elif match := LINE.match(raw):
                rows.setdefault(match[3], Row(match[3], f"{match[1]}.{match[2]}", topic))
            elif raw.strip() and not raw.startswith("# "):
                raise SystemExit(f"{path.name}, line {number}: neither a header nor CODE text")
    return list(rows.values())


def fit(matrix: csr_matrix, labels: np.ndarray) -> tuple[Floats, Floats]:
    """Softmax regression by L-BFGS from zero: no random number takes part."""
    classes, size = len(CLASSES), len(labels)
    target = np.eye(classes)[labels]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table, bias = flat[:-classes].reshape(-1, classes), flat[-classes:]
        logits = matrix @ table + bias
        logits -= logits.max(1, keepdims=True)
        total = np.log(np.exp(logits).sum(1))
        value = (total - logits[np.arange(size), labels]).mean() + 0.5 * L2 * (table * table).sum()
        slope = (np.exp(logits - total[:, None]) - target) / size
        return value, np.concatenate([(matrix.T @ slope + L2 * table).ravel(), slope.sum(0)])

    start = np.zeros(((1 << BITS) + 1) * classes)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 120}).x
    return best[:-classes].reshape(-1, classes).astype(np.float32), best[-classes:].astype(np.float32)


def trained(rows: Sequence[Row], kind: Kind) -> NgramModel:
    matrix = features([row.text for row in rows], kind, BITS)
    return quantized(kind, CLASSES, *fit(matrix, np.array([row.label for row in rows])))


def unseen(rows: Sequence[Row], kind: Kind) -> list[tuple[Row, Floats]]:
    """Each row with the probabilities of a model that saw no row of its topic's fifth."""
    judged = []
    for fifth in range(5):
        held = [row for row in rows if zlib.crc32(row.topic.encode()) % 5 == fifth]
        model = trained([row for row in rows if row not in set(held)], kind)
        matrix = features([row.text for row in held], kind, BITS)
        logits = matrix @ (model.weights * model.scale) + model.bias
        shares = np.exp(logits - logits.max(1, keepdims=True))
        judged += list(zip(held, shares / shares.sum(1, keepdims=True), strict=True))
    return judged


def report(judged: Sequence[tuple[Row, Floats]], kind: Kind) -> None:
    for index, name in enumerate(CLASSES[1:], 1):
        line = []
        for limit in (0.2, 0.3, 0.4, 0.5, 0.6):
            fires = [row.label == index for row, shares in judged if shares[1:].argmax() + 1 == index and shares[index] >= limit]
            total = sum(row.label == index for row, _ in judged)
            line.append(f"{limit}: recall {sum(fires) / max(total, 1):.2f} precision {sum(fires) / max(len(fires), 1):.2f}")
        print(f"{kind} {name}, unseen topics   " + "   ".join(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of the corpus")
    parser.add_argument("--check", action="store_true", help="judge each fifth of the topics by a model that did not see it")
    parser.add_argument("--out", type=Path, default=ASSETS, help="folder for the weights")
    options = parser.parse_args()
    corpus = read_corpus(options.corpus)
    options.out.mkdir(parents=True, exist_ok=True)
    kinds: tuple[Kind, ...] = ("en", "zh")
    for kind in kinds:
        rows = [row for row in corpus if kind_of(row.text) == kind]
        if options.check:
            report(unseen(rows, kind), kind)
        path = options.out / f"{kind}.npz"
        save_ngrams(path, trained(rows, kind))
        print(f"{kind}: {len(rows)} sentences -> {path} ({path.stat().st_size:,} bytes)", flush=True)


if __name__ == "__main__":
    main()
