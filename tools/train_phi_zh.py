"""Train the weights of Chinese names (src/medloop/assets/phi/hanzi.json) on generated sentences.

    python tools/train_phi_zh.py         # same seed, same file

Logistic regression over the features of every candidate, one pass after the other, steps by AdaGrad, a share of the features
hidden at each look.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from pathlib import Path

from phi_corpus_zh import Maker

from medloop.privacy import hanzi

OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/hanzi.json"
FORGET, SEEN, RATE, DECAY = 0.15, 4, 0.4, 1e-5
MISSED = 2.0  # a missed name counts as much as so many false alarms


def rows(texts: int, seed: int) -> list[tuple[list[str], int]]:
    maker, out = Maker(seed), list[tuple[list[str], int]]()
    for _ in range(texts):
        text, spans = maker.text()
        gold = {(a, b) for a, b, _ in spans}
        out += [(hanzi.features(text, c), int((c.start, c.end) in gold)) for c in hanzi.candidates(text)]
    seen = Counter(feature for found, _ in out for feature in found)
    return [([f for f in found if seen[f] >= SEEN], label) for found, label in out]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--texts", type=int, default=30_000)
    args.add_argument("--epochs", type=int, default=5)
    args.add_argument("--seed", type=int, default=20_262)
    args.add_argument("--least", type=float, default=0.15, help="weights smaller than this are left out")
    args.add_argument("--bias", type=float, default=-1.4, help="down for fewer false alarms, up for fewer misses")
    args.add_argument("--in-records", type=float, default=1.2, help="the same for texts that are records of somebody")
    args.add_argument("--out", type=Path, default=OUT)
    chosen = args.parse_args()
    began = time.monotonic()
    data, dice = rows(chosen.texts, chosen.seed), random.Random(chosen.seed)
    weights, squares = dict[str, float](), dict[str, float]()
    for epoch in range(chosen.epochs):
        dice.shuffle(data)
        loss = 0.0
        for found, label in data:
            kept = [f for f in found if dice.random() > FORGET]
            z = sum(weights.get(f, 0.0) for f in kept)
            p = 1 / (1 + math.exp(-max(-30.0, min(30.0, z))))
            loss -= math.log(max(1e-9, p if label else 1 - p))
            for f in kept:
                step = (p - label) * (MISSED if label else 1.0) + DECAY * weights.get(f, 0.0)
                squares[f] = squares.get(f, 1e-2) + step * step
                weights[f] = weights.get(f, 0.0) - RATE * step / math.sqrt(squares[f])
        print(f"epoch {epoch + 1}: loss {loss / len(data):.4f} on {len(data)} candidates, {time.monotonic() - began:.0f} s")
    kept_weights = {name: round(100 * w) for name, w in sorted(weights.items()) if abs(w) >= chosen.least}
    held = {"bias": round(100 * chosen.bias), "in_records": round(100 * chosen.in_records), "weights": kept_weights}
    chosen.out.write_text(json.dumps(held, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{len(kept_weights)} features, {chosen.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
