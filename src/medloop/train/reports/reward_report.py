"""How good a reward model is, honestly: numbers, a page for people and a picture, all beside the weights.

    found = measure(train, test, seed=42)          # Judged pairs in, one JSON-able dictionary out
    report.json, report.md, report.png = files(found, name="first", ...)

On the same held-out pairs stand three ways to choose that understand nothing: the longer answer, the shorter one, and a bag
of words. A model that does not beat them has learnt what they know.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from medloop.train.examples.pairs import Pair
from medloop.train.reports import pair_numbers as numbers
from medloop.train.reports.bag_of_words import bag_of_words
from medloop.train.reports.pair_numbers import Numbers

BASELINES = {"longer": "longer answer", "shorter": "shorter answer", "bag_of_words": "bag of words"}


@dataclass(frozen=True)
class Judged:
    """Pairs with the logits of both answers."""

    pairs: Sequence[Pair]
    chosen: Numbers
    rejected: Numbers

    @property
    def margins(self) -> Numbers:
        return self.chosen - self.rejected


def measure(train: Judged, test: Judged, *, words_from: Sequence[Pair], seed: int) -> dict[str, Any]:
    """Everything the report says. `words_from` are the training pairs, all of them, for the bag of words."""
    long_chosen, long_rejected = _lengths(test.pairs, "chosen"), _lengths(test.pairs, "rejected")
    rivals = {
        "longer": long_chosen - long_rejected,
        "shorter": long_rejected - long_chosen,
        "bag_of_words": bag_of_words(words_from, test.pairs, seed),
    }
    return {
        "train": numbers.accuracy(train.margins),
        "test": numbers.accuracy(test.margins),
        "test_openings": len({pair.opening for pair in test.pairs}),
        "baselines": {name: numbers.accuracy(margins) for name, margins in rivals.items()},
        "ahead_of": {name: numbers.difference(test.margins, margins, seed) for name, margins in rivals.items()},
        "margins": {
            "mean": float(test.margins.mean()),
            "std": float(test.margins.std()),
            "histogram": numbers.histogram(test.margins),
        },
        "calibration": numbers.calibration(test.margins, seed),
        "length": numbers.length_bias(test.chosen, test.rejected, long_chosen, long_rejected),
    }


def files(found: dict[str, Any], *, name: str, base: str, reference: str) -> dict[str, bytes]:
    """The report in its three forms, by file name."""
    return {
        "report.json": (json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode(),
        "report.md": markdown(found, name, base, reference).encode(),
        "report.png": picture(found, name),
    }


def verdict(found: dict[str, Any]) -> str:
    """One sentence: is it better than a coin, and than the bag of words?"""
    test, ahead = found["test"], found["ahead_of"]["bag_of_words"]
    if test["low"] <= 0.5:
        return "It is not shown to be better than a coin: the interval holds 50 %."
    if ahead["low"] > 0:
        return "It is better than a coin, and better than the bag of words."
    if ahead["high"] < 0:
        return "It is better than a coin, but worse than the bag of words."
    return "It is better than a coin; against the bag of words these pairs do not decide."


def summary(found: dict[str, Any]) -> list[str]:
    """The same in some lines, for a terminal."""
    rows = [("model, held out", found["test"]), ("model, training", found["train"])]
    rows += [(words, found["baselines"][key]) for key, words in BASELINES.items()]
    length, fit = found["length"], found["calibration"]
    return [
        *(
            f"  {who:<16} {part['value']:6.1%}  [{part['low']:.1%}, {part['high']:.1%}]  {part['n']:,} pairs"
            for who, part in rows
        ),
        f"  length: margin and length difference correlate {length['margin_and_difference']:+.2f}; "
        f"calibration error {fit['ece']:.3f}, Brier {fit['brier']:.3f}",
        verdict(found),
    ]


def markdown(found: dict[str, Any], name: str, base: str, reference: str) -> str:
    """The page for people."""
    length, fit = found["length"], found["calibration"]
    lines = [
        f"# Reward model {name}: how good is it?",
        "",
        f"Base `{base}`. {found['test']['n']:,} held-out pairs of {found['test_openings']:,} openings, none trained on.",
        "",
        f"**{verdict(found)}**",
        "",
        "| who chooses | accuracy | 95 % interval | model is ahead by |",
        "|---|---|---|---|",
        f"| model, held-out pairs | {_interval(found['test'])} | |",
        f"| model, training pairs | {_interval(found['train'])} | |",
        *(
            f"| {words}, held-out pairs | {_interval(found['baselines'][key])} | {_points(found['ahead_of'][key])} |"
            for key, words in BASELINES.items()
        ),
        "",
        "Intervals: Wilson for shares, bootstrap over pairs for differences. A tie is half right.",
        "",
        "## Length",
        "",
        f"Margin and length difference correlate with {length['margin_and_difference']:+.2f} (Spearman), score and length with "
        f"{length['score_and_length']:+.2f}. The longer answer gets the higher score in {length['longer_scored_higher']:.1%} of "
        f"pairs; people chose it in {found['baselines']['longer']['value']:.1%}.",
        "",
        "| chosen answer is | pairs | accuracy | 95 % interval |",
        "|---|---|---|---|",
        *(f"| {where} | {part['n']:,} | {_interval(part)} |" for where, part in length["accuracy_where_chosen_is"].items()),
        "",
        "About equal: they differ by at most a tenth of the longer one.",
        "",
        "## Calibration",
        "",
        f"sigmoid(margin) as the chance that the first answer is the better one, pairs shown in random order: expected "
        f"calibration error {fit['ece']:.3f}, Brier score {fit['brier']:.3f} (a coin has 0.250).",
        "",
        "| forecast | pairs | mean forecast | came true |",
        "|---|---|---|---|",
        *(
            f"| {row['from']:.1f} to {row['to']:.1f} | {row['pairs']:,} | {row['forecast']:.2f} | {row['outcome']:.2f} |"
            for row in fit["table"]
        ),
        "",
        "## Margins",
        "",
        f"Mean {found['margins']['mean']:+.2f}, standard deviation {found['margins']['std']:.2f}; histogram in `report.png`.",
        "",
        "## Score",
        "",
        f"sigmoid((logit - mean) / std), centred on {reference}.",
    ]
    return "\n".join(lines) + "\n"


def picture(found: dict[str, Any], name: str) -> bytes:
    """Margins, calibration, and accuracy beside the baselines; PNG."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    bars = found["margins"]["histogram"]
    colours = ["tab:red" if (bar["from"] + bar["to"]) / 2 < 0 else "tab:blue" for bar in bars]
    widths = [bar["to"] - bar["from"] for bar in bars]
    left.bar([bar["from"] for bar in bars], [bar["pairs"] for bar in bars], widths, align="edge", color=colours)
    left.set(title="margin on held-out pairs", xlabel="logit of chosen - of rejected", ylabel="pairs")
    table = found["calibration"]["table"]
    middle.plot([0, 1], [0, 1], color="grey", linewidth=1)
    middle.plot([row["forecast"] for row in table], [row["outcome"] for row in table], "o-")
    middle.set(title="calibration", xlabel="forecast", ylabel="came true", xlim=(0, 1), ylim=(0, 1))
    shown = {"model": found["test"], **{words: found["baselines"][key] for key, words in BASELINES.items()}}
    for at, part in enumerate(shown.values()):
        right.plot([part["low"], part["high"]], [at, at], color="tab:blue", linewidth=2)
        right.plot(part["value"], at, "o", color="tab:blue")
    right.axvline(0.5, color="grey", linewidth=1)
    right.set(title="accuracy, 95 % interval", yticks=range(len(shown)), yticklabels=list(shown), xlim=(0, 1))
    right.invert_yaxis()
    figure.suptitle(name)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100, metadata={"Software": None})
    return out.getvalue()


def _lengths(pairs: Sequence[Pair], side: str) -> Numbers:
    return np.array([len(getattr(pair, side)) for pair in pairs], dtype=np.float64)


def _interval(part: dict[str, float]) -> str:
    return f"{part['value']:.1%} | {part['low']:.1%} to {part['high']:.1%}"


def _points(part: dict[str, float]) -> str:
    return f"{100 * part['value']:+.1f} points ({100 * part['low']:+.1f} to {100 * part['high']:+.1f})"
