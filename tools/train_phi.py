"""Train the English tagger of the PHI scrubber on generated sentences and write src/medloop/assets/phi/tagger.json.

    python tools/train_phi.py            # same seed, same file, byte for byte

An averaged perceptron over whole sentences: Viterbi with the weights so far, then the features of the gold tags up and those of
the wrong tags down. Learning asks for a margin, wider for missed identifiers than for false alarms.
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
from medloop.privacy.phi.english.tagger import TAGS, Scores, Tagger
from medloop.privacy.phi.find import find_structured

OUT = Path(__file__).parent.parent / "src/medloop/assets/phi/tagger.json"
MISSED_MARGIN, ALARM_MARGIN = 1.5, 0.7
DROPOUT = 0.25  # share of features hidden in each update, so that the tagger relies on no single one
MIN_COUNT = 4  # a feature of fewer words tells more about the corpus than about the language
# Added to every tag but "O", by `tagger.text_type`: up for recall, down for fewer false alarms. Set on the tuning half of the
# templates and of the medical texts, see docs/stages/privacy.md.
BIAS = {"00": 30, "01": 18, "02": -40, "10": 30, "11": 18, "12": -26}
Row = tuple[list[list[str]], list[int]]  # the features of each token, and its tag


def rows(texts: int, seed: int) -> list[Row]:
    maker, result = Maker(seed), list[Row]()
    for _ in range(texts):
        text, spans = maker.text()
        tokens = tagger.tokens(text, find_structured(text))
        case, text_type = tagger.case_of(text), tagger.text_type(token.word for token in tokens)
        words = [tagger.look(token.word, case) for token in tokens]
        result.append((tagger.features(words, text_type), [tag_of(token, spans) for token in tokens]))
    counts = Counter(feature for sentence, _ in result for features in sentence for feature in features)
    return [
        ([[feature for feature in features if counts[feature] >= MIN_COUNT] for features in sentence], gold)
        for sentence, gold in result
        if gold
    ]


def tag_of(token: tagger.Token, spans: Sequence[Span]) -> int:
    if token.word[0] == "<" and len(token.word) > 1:
        return 0  # already found by its form
    return next((TAGS.index(tag) for start, end, tag in spans if start <= token.start and token.end <= end), 0)


class Learner:
    """Weights and their sum over time (for the average), both sparse: feature -> [NAME, PLACE, ORG] relative to "O"."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.weights: dict[str, list[float]] = {}
        self.sums: dict[str, list[float]] = {}
        self.transitions = [[0.0] * 4 for _ in range(4)]
        self.transition_sums = [[0.0] * 4 for _ in range(4)]
        self.time = 1

    def move(self, features: Sequence[str], tag: int, by: float) -> None:
        """One tag's weights up or down; moving "O" up is moving the three others down."""
        for feature in features:
            weight, total = self.weights.setdefault(feature, [0.0] * 3), self.sums.setdefault(feature, [0.0] * 3)
            for index in range(3) if tag == 0 else (tag - 1,):
                change = -by if tag == 0 else by
                weight[index] += change
                total[index] += change * self.time

    def learn(self, row: Row) -> int:
        """Update the weights on one sentence; returns how many tokens were tagged wrongly."""
        sentence = [[feature for feature in features if self.rng.random() > DROPOUT] for features in row[0]]
        gold = row[1]
        scores = [self.scores(features, tag) for features, tag in zip(sentence, gold, strict=True)]
        predicted = Tagger({}, self.transitions, {}).viterbi(scores)
        wrong, before, predicted_before = 0, 0, 0
        for features, tag, prediction in zip(sentence, gold, predicted, strict=True):
            if tag != prediction:
                wrong += 1
                self.move(features, tag, 1.0)
                self.move(features, prediction, -1.0)
            if (before, tag) != (predicted_before, prediction):
                self.move_transition(before, tag, 1.0)
                self.move_transition(predicted_before, prediction, -1.0)
            before, predicted_before = tag, prediction
        self.time += 1
        return wrong

    def scores(self, features: Sequence[str], gold: int) -> Scores:
        """Of one token, with the margins against the gold tag."""
        total = [0.0, 0.0, 0.0]
        for feature in features:
            if feature in self.weights:
                total = [a + b for a, b in zip(total, self.weights[feature], strict=True)]
        if gold == 0:
            total = [score + ALARM_MARGIN for score in total]
        else:
            total = [score - MISSED_MARGIN - ALARM_MARGIN * (tag == gold) for tag, score in enumerate(total, 1)]
        return total[0], total[1], total[2]

    def move_transition(self, before: int, tag: int, by: float) -> None:
        self.transitions[before][tag] += by
        self.transition_sums[before][tag] += by * self.time

    def average(self) -> tuple[dict[str, list[float]], list[list[float]]]:
        def mean(now: list[float], total: list[float]) -> list[float]:
            return [n - t / self.time for n, t in zip(now, total, strict=True)]

        transitions = [mean(now, total) for now, total in zip(self.transitions, self.transition_sums, strict=True)]
        return {name: mean(weight, self.sums[name]) for name, weight in self.weights.items()}, transitions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=16_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=20_261)
    parser.add_argument("--least", type=float, default=0.8, help="weights smaller than this are left out")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    began = time.monotonic()
    data = rows(args.texts, args.seed)
    learner, order = Learner(args.seed), random.Random(args.seed)
    for epoch in range(args.epochs):
        order.shuffle(data)
        wrong = sum(learner.learn(row) for row in data)
        print(f"epoch {epoch + 1}: {wrong} of {sum(len(row[1]) for row in data)} tokens wrong, {time.monotonic() - began:.0f} s")
    weights, transitions = learner.average()
    strong = {name: [round(100 * w) for w in ws] for name, ws in sorted(weights.items()) if max(map(abs, ws)) >= args.least}
    model = {"tags": TAGS, "bias": BIAS, "steps": [[round(100 * w) for w in row] for row in transitions], "weights": strong}
    args.out.write_text(
        json.dumps(model, ensure_ascii=False, separators=(",", ":")).replace('],"', '],\n"') + "\n", encoding="utf-8"
    )
    print(f"{len(strong)} of {len(weights)} features, {args.out.stat().st_size / 1e6:.2f} MB, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
