"""Train the weights that choose among the Chinese candidates of the network (src/medloop/assets/phi/choice_zh.json).

    python tools/train_phi_choice.py --carriers texts.jsonl.gz ...      # same texts: same file

Learned from the sentences of benchmarks/phi_hard that may be read (odd ids of `blind`, and `develop`), from generated texts
(tools/phi_corpus_zh.py), and from every fifth even row of the given medical texts, where nobody is named. By Newton's method.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from phi_corpus_zh import Maker, Span, sentences

from medloop.privacy.phi.chinese import choice, names, network
from medloop.privacy.phi.chinese.cues import TITLED_BEHIND
from medloop.privacy.phi.normalize import fold

ROOT = Path(__file__).parent.parent
OUT = ROOT / "src/medloop/assets/phi/choice_zh.json"
GENERATED, LIGHT, RIDGE, LONGEST = 1500, 0.25, 0.5, 500  # LIGHT: what a generated text counts
Sample = tuple[dict[str, float], bool, float]  # features, whether it is a name, weight


def samples(text: str, spans: Sequence[Span], weight: float) -> Iterable[Sample]:
    folded = fold(text)
    if len(folded) != len(text):
        return
    candidates = names.candidates(folded, network.load())
    context = choice.text_features(folded, any(best >= 0.95 for _, _, best in candidates))
    for start, end, best in candidates:
        features = context | names.features_of(names.NameCandidate(folded, start, end), best)
        yield features, any(first < end and last > start for first, last in spans), weight


def readable() -> Iterable[Sample]:
    for name in ("blind", "develop"):
        for line in (ROOT / f"benchmarks/phi_hard/{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["lang"] == "zh" and row["part"] not in ("hid", "disguised") and (name == "develop" or row["id"] % 2):
                yield from samples(row["text"], [(s["start"], s["end"]) for s in row["spans"] if s["type"] == "NAME"], 1.0)


def real(paths: Sequence[Path]) -> Iterable[Sample]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                row: dict[str, Any] = json.loads(line) if number % 10 == 8 else {}
                for field in ("question", "answer"):
                    text = row.get(field)
                    if isinstance(text, str) and not TITLED_BEHIND.search(text):
                        yield from samples(text[:LONGEST], [], 1.0)


def fit(rows: Sequence[Sample], ridge: float) -> dict[str, float]:
    """Weights of a logistic regression, by Newton's method."""
    columns = ["always", *sorted({name for features, _, _ in rows for name in features})]
    table = np.array([[1.0, *(features.get(name, 0.0) for name in columns[1:])] for features, _, _ in rows])
    gold, weight = np.array([float(is_name) for _, is_name, _ in rows]), np.array([weight for _, _, weight in rows])
    solution = np.zeros(len(columns))
    for _ in range(40):
        chance = 1 / (1 + np.exp(-table @ solution))
        gradient = table.T @ (weight * (chance - gold)) + ridge * solution
        curvature = (table * (weight * chance * (1 - chance))[:, None]).T @ table + ridge * np.eye(len(columns))
        solution -= np.linalg.solve(curvature, gradient)
    return {name: round(float(value), 3) for name, value in zip(columns, solution, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carriers", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    maker = Maker(991, sentences(args.carriers, "dev"))
    rows = [*readable(), *real(args.carriers)]
    rows += [sample for _ in range(GENERATED) for sample in samples(*maker.text(), LIGHT)]
    weights = fit(rows, RIDGE)
    args.out.write_text(json.dumps(weights, indent=1) + "\n")
    print(
        f"{len(rows)} candidates, {sum(is_name for _, is_name, _ in rows)} of them names; {len(weights)} weights", file=sys.stderr
    )


if __name__ == "__main__":
    main()
