"""Train the English tagger of the PHI scrubber on generated sentences and write src/medloop/assets/phi/tagger.json.

    python tools/train_phi.py            # same seed, same file, byte for byte

An averaged perceptron over whole sentences: Viterbi with the weights so far, then gold features up and wrong ones down. A
margin is asked for while learning, wider for missed identifiers than for false alarms.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from phi_corpus import Maker, Span

from medloop.privacy.phi.english import tagger
from medloop.privacy.phi.english.tagger import TAGS, Tagger, Three
from medloop.privacy.phi.find import find_structured

OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/tagger.json"
MISSED, ALARM = 1.5, 0.7  # margins
FORGET = 0.25  # share of features hidden at each look, so that no single one is trusted alone
SEEN = 4  # a feature of fewer words than this says more about the corpus than about the language
# Added to every tag but "O", by the manner of the text (somebody spoken of? how medical?): up for recall, down for fewer
# false alarms. Set on the tuning half of the templates and of the medical texts, see docs/stages/privacy.md.
BIAS = {"00": 30, "01": 18, "02": -40, "10": 30, "11": 18, "12": -26}
Row = tuple[list[list[str]], list[int]]


def rows(texts: int, seed: int) -> list[Row]:
    maker, out = Maker(seed), list[Row]()
    for _ in range(texts):
        text, spans = maker.text()
        found = tagger.tokens(text, find_structured(text))
        case, kind = tagger.case_of(text), tagger.manner(token.word for token in found)
        words = [tagger.look(token.word, case) for token in found]
        out.append((tagger.features(words, kind), [tag_of(token, spans) for token in found]))
    seen = Counter(feature for found, _ in out for features in found for feature in features)
    return [([[f for f in features if seen[f] >= SEEN] for features in found], gold) for found, gold in out if gold]


def tag_of(token: tagger.Token, spans: Sequence[Span]) -> int:
    if token.word[0] == "<" and len(token.word) > 1:
        return 0  # already found by its form
    return next((TAGS.index(tag) for a, b, tag in spans if a <= token.start and token.end <= b), 0)


class Learner:
    """Weights and their sum over time (for the average), both sparse: feature -> [NAME, PLACE, ORG] relative to "O"."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now: dict[str, list[float]] = {}
        self.sum: dict[str, list[float]] = {}
        self.steps = [[0.0] * 4 for _ in range(4)]
        self.steps_sum = [[0.0] * 4 for _ in range(4)]
        self.time = 1

    def move(self, found: Sequence[str], tag: int, by: float) -> None:
        """One tag's weights up or down; moving "O" up is moving the three others down."""
        for feature in found:
            weight, total = self.now.setdefault(feature, [0.0] * 3), self.sum.setdefault(feature, [0.0] * 3)
            for at in range(3) if tag == 0 else (tag - 1,):
                change = -by if tag == 0 else by
                weight[at] += change
                total[at] += change * self.time

    def learn(self, row: Row) -> int:
        found, gold = [[f for f in features if self.dice.random() > FORGET] for features in row[0]], row[1]
        scores: list[Three] = []
        for features, tag in zip(found, gold, strict=True):
            total = [0.0, 0.0, 0.0]
            for feature in features:
                if feature in self.now:
                    total = [a + b for a, b in zip(total, self.now[feature], strict=True)]
            total = (
                [t + (ALARM if tag == 0 else -MISSED) for t in total]
                if tag == 0
                else [t - MISSED - ALARM * (i + 1 == tag) for i, t in enumerate(total)]
            )
            scores.append((total[0], total[1], total[2]))
        guess = Tagger({}, self.steps, {}).viterbi(scores)
        wrong, before = 0, (0, 0)
        for features, tag, said in zip(found, gold, guess, strict=True):
            if tag != said:
                wrong += 1
                self.move(features, tag, 1.0)
                self.move(features, said, -1.0)
            if (before[0], tag) != (before[1], said):
                self.step(before[0], tag, 1.0)
                self.step(before[1], said, -1.0)
            before = (tag, said)
        self.time += 1
        return wrong

    def step(self, a: int, b: int, by: float) -> None:
        self.steps[a][b] += by
        self.steps_sum[a][b] += by * self.time

    def average(self) -> tuple[dict[str, list[float]], list[list[float]]]:
        def mean(now: list[float], total: list[float]) -> list[float]:
            return [n - t / self.time for n, t in zip(now, total, strict=True)]

        steps = [mean(n, t) for n, t in zip(self.steps, self.steps_sum, strict=True)]
        return {name: mean(weight, self.sum[name]) for name, weight in self.now.items()}, steps


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--texts", type=int, default=16_000)
    args.add_argument("--epochs", type=int, default=4)
    args.add_argument("--seed", type=int, default=20_261)
    args.add_argument("--least", type=float, default=0.8, help="weights smaller than this are left out")
    args.add_argument("--out", type=Path, default=OUT)
    chosen = args.parse_args()
    began = time.monotonic()
    data = rows(chosen.texts, chosen.seed)
    learner, order = Learner(chosen.seed), random.Random(chosen.seed)
    for epoch in range(chosen.epochs):
        order.shuffle(data)
        wrong = sum(learner.learn(row) for row in data)
        print(f"epoch {epoch + 1}: {wrong} of {sum(len(row[1]) for row in data)} tokens wrong, {time.monotonic() - began:.0f} s")
    weights, steps = learner.average()
    kept = {name: [round(100 * w) for w in ws] for name, ws in sorted(weights.items()) if max(map(abs, ws)) >= chosen.least}
    held = {"tags": TAGS, "bias": BIAS, "steps": [[round(100 * w) for w in row] for row in steps], "weights": kept}
    chosen.out.write_text(
        json.dumps(held, ensure_ascii=False, separators=(",", ":")).replace('],"', '],\n"') + "\n", encoding="utf-8"
    )
    print(f"{len(kept)} of {len(weights)} features, {chosen.out.stat().st_size / 1e6:.2f} MB, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
