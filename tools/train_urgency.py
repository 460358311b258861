"""Train the models of `urgency` on the corpus in tools/urgency/ and write src/medloop/assets/urgency/{en,zh,minilm}.npz.

    python tools/train_urgency.py --encoder embedded:minilm \\
        --background medquad.jsonl.gz kqa.jsonl.gz huatuo.jsonl.gz toyhom.jsonl.gz

The same corpus, background and library versions give the same files, byte for byte. The corpus is our own text: blocks of one
presentation each, lines `LEVEL.SHAPE text` (E emergent, U urgent, R routine). A background is unlabelled medical text that counts
as routine, with less weight; Chinese texts with acute words are left out of it, because nobody labelled them. Only texts whose
checksum is even are taken: the odd ones stay unseen, and benchmarks/urgency.py uses them as traffic.

It prints recall and alarms on a fifth of the presentations that a model did not see. That measures the corpus' own template, not
the task; believe benchmarks/urgency.py.

    python tools/train_urgency.py --folds 10 --background ...         # how the whole detector does on presentations it never saw

With --folds nothing is written: each fold of the presentations is read by a detector whose models were trained on the others. The
word list and the limits are those in use, so this measures what the models add for a presentation that the corpus leaves out.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ngram_features import features
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, diags

from medloop.bootstrap import wilson
from medloop.lexicon.scan import fold
from medloop.reward.detect import encoder_head
from medloop.reward.detect.framing import frame_flags
from medloop.reward.detect.ngrams import BITS, Floats, Kind, load_ngrams, quantized, save_ngrams
from medloop.reward.detect.urgency import ASSETS, CLASSES, UrgencyDetector, margin

CORPUS = Path(__file__).parent / "urgency"
LINE = re.compile(r"^([EUR])\.([sltpomhiqydn]) (\S.*)$")
HAN = re.compile(r"[\u4e00-\u9fff]")
ACUTE = re.compile("突然|突发|急|昏|晕|血|抽搐|中毒|误|高烧|高热|胸|呼吸|自杀|摔|撞|救|疼|剧|惊厥|休克")
L2, BACKGROUND_WEIGHT = 3e-6, 0.3
KINDS: tuple[Kind, ...] = ("en", "zh")
MOST_BACKGROUND = {"en": 2000, "zh": 4000}


class Row(NamedTuple):
    text: str
    level: int  # index into CLASSES
    presentation: str
    weight: float = 1.0


def kind_of(text: str) -> Kind:
    return "zh" if HAN.search(text) else "en"


def visible(row: Row, kind: Kind) -> Row:
    """The row as the detector's models see it: without red flags that are denied or an aside."""
    return row._replace(text=frame_flags(row.text, fold(row.text), kind == "zh").visible)


def read_corpus(folder: Path) -> list[Row]:
    rows, seen = [], set()
    for path in sorted(folder.glob("*.txt")):
        presentation = ""
        for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if raw.startswith("## "):
                presentation = f"{path.stem}/{raw[3:].split('|')[0].strip()}"
            elif match := LINE.match(raw):
                if match[3] not in seen:
                    rows.append(Row(match[3], "EUR".index(match[1]), presentation))
                seen.add(match[3])
            elif raw.strip() and not raw.startswith("# "):
                raise SystemExit(f"{path.name}, line {number}: neither a header nor LEVEL.SHAPE text")
    return rows


def read_background(paths: Sequence[Path], kind: Kind) -> list[Row]:
    """Questions of JSON lines, gzipped or not; a title stands before its question."""
    texts = set()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for line in lines:
                row: dict[str, Any] = json.loads(line)
                texts.add(" ".join(str(row[key]) for key in ("title", "question") if row.get(key)))
    chosen = [text for text in texts if text and kind_of(text) == kind and is_training_half(text)]
    if kind == "zh":
        chosen = [text for text in chosen if not ACUTE.search(text)]
    chosen.sort(key=lambda text: zlib.crc32(text.encode()))
    share = MOST_BACKGROUND[kind]
    return [Row(text, 2, "background", BACKGROUND_WEIGHT) for text in chosen[:share]]


def is_training_half(text: str) -> bool:
    return zlib.crc32(text.encode()) % 2 == 0


def fit(matrix: csr_matrix, levels: np.ndarray, weights: np.ndarray) -> tuple[Floats, Floats]:
    """Softmax regression by L-BFGS from zero: no random number takes part. Rare n-grams are held back less than common ones."""
    classes, columns = len(CLASSES), np.unique(matrix.indices)
    rarity = np.log((matrix.shape[0] + 1) / (np.bincount(matrix.indices, minlength=1 << BITS)[columns] + 1)) / 4
    used = csr_matrix(matrix[:, columns] @ diags(rarity))
    target, share, size = np.eye(classes)[levels], weights / weights.sum(), len(levels)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        table, bias = flat[:-classes].reshape(len(columns), classes), flat[-classes:]
        logits = used @ table + bias
        logits -= logits.max(1, keepdims=True)
        total = np.log(np.exp(logits).sum(1))
        value = (share * (total - logits[np.arange(size), levels])).sum() + 0.5 * L2 * (table * table).sum()
        slope = (np.exp(logits - total[:, None]) - target) * share[:, None]
        return value, np.concatenate([(used.T @ slope + L2 * table).ravel(), slope.sum(0)])

    start = np.zeros(len(columns) * classes + classes)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    table = np.zeros((1 << BITS, classes), np.float32)
    table[columns] = best[:-classes].reshape(-1, classes) * rarity[:, None]
    return table, best[-classes:].astype(np.float32)


def train_ngrams(kind: Kind, rows: Sequence[Row], out: Path, check: bool) -> None:
    matrix = features([row.text for row in rows], kind, BITS)
    levels, weights = np.array([row.level for row in rows]), np.array([row.weight for row in rows])
    if check:
        held = np.array([zlib.crc32(row.presentation.encode()) % 5 == 0 and row.presentation != "background" for row in rows])
        table, bias = fit(matrix[~held], levels[~held], weights[~held])
        scores = margin((matrix[held] @ table + bias).astype(np.float32))
        report(kind, scores, levels[held])
    save_ngrams(out / f"{kind}.npz", quantized(kind, CLASSES, *fit(matrix, levels, weights)))
    size = (out / f"{kind}.npz").stat().st_size
    print(f"{kind}: {len(rows)} texts -> {out / f'{kind}.npz'} ({size:,} bytes)", flush=True)


def report(kind: Kind, scores: np.ndarray, levels: np.ndarray) -> None:
    limit = np.quantile(scores[levels == 2], 0.95)
    recall, between = (scores[levels == 0] > limit).mean(), (scores[levels == 1] > limit).mean()
    print(f"{kind}, unseen presentations: {recall:.0%} of emergent and {between:.0%} of urgent texts above 95% of routine ones.")
    print("This measures the template of the corpus, not the task: see benchmarks/urgency.py for text by others.", flush=True)


def check_folds(corpus: Sequence[Row], background: dict[Kind, list[Row]], folds: int) -> None:
    """Each fold by a detector that was trained on the presentations of the others, and all folds together, by language."""
    whole: dict[Kind, Counter[tuple[int, str]]] = {kind: Counter() for kind in background}
    for held in range(folds):
        for kind, routine in background.items():
            mine = [row for row in corpus if kind_of(row.text) == kind]
            seen = [visible(row, kind) for row in mine if fold_of(row, folds) != held]
            unseen = [row for row in mine if fold_of(row, folds) == held]
            if not unseen:
                continue
            answers = detector_of(kind, [*seen, *routine]).read([row.text for row in unseen])
            counts = Counter((row.level, answer.level) for row, answer in zip(unseen, answers, strict=True))
            whole[kind] += counts
            print(fold_line(f"fold {held + 1}", kind, len({row.presentation for row in unseen}), counts), flush=True)
    for kind, counts in whole.items():
        print(fold_line("all", kind, len({row.presentation for row in corpus if kind_of(row.text) == kind}), counts))


def fold_of(row: Row, folds: int) -> int:
    return zlib.crc32(row.presentation.encode()) % folds


def detector_of(kind: Kind, rows: Sequence[Row]) -> UrgencyDetector:
    """The detector of one language, its model trained on these rows and rounded like the one in use."""
    matrix = features([row.text for row in rows], kind, BITS)
    table, bias = fit(matrix, np.array([row.level for row in rows]), np.array([row.weight for row in rows]))
    model = quantized(kind, CLASSES, table, bias)
    return UrgencyDetector({"en": model, "zh": model}, "fold")


def fold_line(name: str, kind: Kind, presentations: int, counts: Counter[tuple[int, str]]) -> str:
    """Shares with their 95 % intervals; the answers are counted by label and level."""

    def share(label: int, *levels: str) -> str:
        total = sum(n for (given, _), n in counts.items() if given == label)
        hits = sum(counts[label, level] for level in levels)
        low, high = wilson(hits, total)
        return f"{hits}/{total} {hits / max(total, 1):.1%} [{low:.1%}, {high:.1%}]"

    unknown = sum(n for (_, level), n in counts.items() if level == "unknown")
    return (
        f"{name}, {kind}, {presentations} presentations: recall {share(0, 'emergent')}, emergent called routine "
        f"{share(0, 'routine')}, false alarms {share(2, 'emergent')}, urgent taken for routine {share(1, 'routine')}, "
        f"unknown {unknown}/{counts.total()} {unknown / max(counts.total(), 1):.1%}"
    )


def train_head(name: str, rows: Sequence[Row], out: Path) -> None:
    """Three networks with one hidden layer each; Adam with a fixed seed."""
    from medloop.models.encode import load_encoder
    from medloop.settings import Settings

    encoder = load_encoder(name, Settings(home=Path.cwd()), max_tokens=encoder_head.MAX_TOKENS)
    vectors = encoder.encode([row.text for row in rows]) * np.float32(encoder_head.SCALE)
    levels, weights = np.array([row.level for row in rows]), np.array([row.weight for row in rows])
    members = [train_network(vectors, levels, weights, seed) for seed in range(encoder_head.MEMBERS)]
    layers = {f"layer{k}": np.stack([member[k] for member in members]).astype(np.float16) for k in range(4)}
    np.savez_compressed(out / "minilm.npz", encoder=np.array(encoder.sha256), **layers)
    print(f"head: {len(rows)} texts -> {out / 'minilm.npz'} ({(out / 'minilm.npz').stat().st_size:,} bytes)")


def train_network(
    vectors: Floats, levels: np.ndarray, weights: np.ndarray, seed: int, *, hidden: int = 64, epochs: int = 12, batch: int = 128
) -> list[Floats]:
    rng = np.random.default_rng(seed)
    size, width = vectors.shape
    classes, dropout = len(CLASSES), 0.2
    layers: list[Floats] = [
        rng.normal(0, np.sqrt(2 / width), (width, hidden)).astype(np.float32), np.zeros(hidden, np.float32),
        rng.normal(0, np.sqrt(1 / hidden), (hidden, classes)).astype(np.float32), np.zeros(classes, np.float32),
    ]  # fmt: skip
    means, squares = [np.zeros_like(layer) for layer in layers], [np.zeros_like(layer) for layer in layers]
    target, share = np.eye(classes, dtype=np.float32)[levels], (weights / weights.mean()).astype(np.float32)
    step = 0
    for epoch in range(epochs):
        order, rate = rng.permutation(size), 2e-3 * (1 - epoch / epochs)
        for begin in range(0, size, batch):
            rows, step = order[begin : begin + batch], step + 1
            inputs = (vectors[rows] * (rng.random((len(rows), width)) > dropout) / (1 - dropout)).astype(np.float32)
            active = np.maximum(inputs @ layers[0] + layers[1], 0)
            logits = active @ layers[2] + layers[3]
            shares = np.exp(logits - logits.max(1, keepdims=True))
            slope = (shares / shares.sum(1, keepdims=True) - target[rows]) * share[rows, None] / len(rows)
            back = (slope @ layers[2].T) * (active > 0)
            slopes = (inputs.T @ back, back.sum(0), active.T @ slope, slope.sum(0))
            for k, gradient in enumerate(slopes):
                means[k] = 0.9 * means[k] + 0.1 * gradient
                squares[k] = 0.999 * squares[k] + 0.001 * gradient**2
                size_of = np.sqrt(squares[k] / (1 - 0.999**step)) + 1e-8
                layers[k] -= (rate * (means[k] / (1 - 0.9**step) / size_of + 1e-4 * layers[k])).astype(np.float32)
    return layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of the corpus")
    parser.add_argument("--background", type=Path, nargs="*", default=(), help="unlabelled questions, JSON lines")
    parser.add_argument("--encoder", default="", help="also train the head for this sentence encoder: embedded:minilm")
    parser.add_argument("--only", choices=("en", "zh", "head"), help="train one of the three")
    parser.add_argument("--no-check", action="store_true", help="do not train a second time to score unseen presentations")
    parser.add_argument(
        "--folds", type=int, default=0, metavar="K", help="measure on K folds of the presentations; write nothing"
    )
    parser.add_argument("--out", type=Path, default=ASSETS, help="folder for the weights")
    options = parser.parse_args()
    corpus = read_corpus(options.corpus)
    if options.folds:
        only = [kind for kind in KINDS if options.only in (None, kind)]
        background = {kind: [visible(row, kind) for row in read_background(options.background, kind)] for kind in only}
        return check_folds(corpus, background, options.folds)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = {
        kind: [visible(row, kind) for row in corpus if kind_of(row.text) == kind]
        + [visible(row, kind) for row in read_background(options.background, kind)]
        for kind in KINDS
    }
    for kind in KINDS:
        if options.only in (None, kind):
            train_ngrams(kind, rows[kind], options.out, not options.no_check)
            load_ngrams(options.out / f"{kind}.npz")
    if options.encoder and options.only in (None, "head"):
        train_head(options.encoder, rows["en"], options.out)


if __name__ == "__main__":
    main()
