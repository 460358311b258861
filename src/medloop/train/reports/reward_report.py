"""The evaluation of a reward model: numbers, a page for people and a picture, beside the weights.

    report = measure(train, test, words_from=pairs, seed=42)          # ScoredPairs in, one JSON-able dictionary out
    report.json, report.md, report.png = files(report, name="first", ...)

Three baselines that understand nothing choose on the same held-out pairs: the longer answer, the shorter answer, and a bag of
words. A model that does not beat them has learnt no more than they know.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from medloop.bootstrap import Numbers
from medloop.train.examples.pairs import Pair
from medloop.train.reports import pair_metrics
from medloop.train.reports.bag_of_words import bag_of_words
from medloop.train.reports.pair_metrics import answer_lengths

BASELINES = {"longer": "longer answer", "shorter": "shorter answer", "bag_of_words": "bag of words"}


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs with the logits of both answers."""

    pairs: Sequence[Pair]
    chosen: Numbers
    rejected: Numbers

    @property
    def margins(self) -> Numbers:
        return self.chosen - self.rejected


def measure(train: ScoredPairs, test: ScoredPairs, *, words_from: Sequence[Pair], seed: int) -> dict[str, Any]:
    """The whole report. `words_from` are all training pairs, for the bag of words."""
    long_chosen, long_rejected = answer_lengths(test.pairs, "chosen"), answer_lengths(test.pairs, "rejected")
    baselines = {
        "longer": long_chosen - long_rejected,
        "shorter": long_rejected - long_chosen,
        "bag_of_words": bag_of_words(words_from, test.pairs, seed),
    }
    return {
        "train": pair_metrics.accuracy(train.margins),
        "test": pair_metrics.accuracy(test.margins),
        "test_questions": len({pair.first_question for pair in test.pairs}),
        "baselines": {name: pair_metrics.accuracy(margins) for name, margins in baselines.items()},
        "ahead_of": {name: pair_metrics.accuracy_difference(test.margins, margins, seed) for name, margins in baselines.items()},
        "margins": {
            "mean": float(test.margins.mean()),
            "std": float(test.margins.std()),
            "histogram": pair_metrics.histogram(test.margins),
        },
        "calibration": pair_metrics.calibration(test.margins, seed),
        "length": pair_metrics.length_bias(test.chosen, test.rejected, long_chosen, long_rejected),
    }


def files(report: dict[str, Any], *, name: str, base: str, reference: str) -> dict[str, bytes]:
    """The report in its three forms, by file name."""
    return {
        "report.json": (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode(),
        "report.md": markdown(report, name, base, reference).encode(),
        "report.png": picture(report, name),
    }


def verdict(report: dict[str, Any]) -> str:
    """One sentence: is it better than chance, and than the bag of words?"""
    test, ahead = report["test"], report["ahead_of"]["bag_of_words"]
    if test["low"] <= 0.5:
        return "Not significantly better than chance: the 95 % interval contains 50 %."
    if ahead["low"] > 0:
        return "Significantly better than chance and than the bag of words."
    if ahead["high"] < 0:
        return "Significantly better than chance, but worse than the bag of words."
    return "Significantly better than chance; not significantly different from the bag of words."


def summary(report: dict[str, Any]) -> list[str]:
    """The report in a few lines, for a terminal."""
    rows = [("model, held-out", report["test"]), ("model, training", report["train"])]
    rows += [(words, report["baselines"][key]) for key, words in BASELINES.items()]
    length, fit = report["length"], report["calibration"]
    return [
        *(
            f"  {label:<16} {part['value']:6.1%}  [{part['low']:.1%}, {part['high']:.1%}]  {part['n']:,} pairs"
            for label, part in rows
        ),
        f"  correlation of margin and length difference {length['margin_and_difference']:+.2f}; "
        f"calibration error {fit['ece']:.3f}, Brier {fit['brier']:.3f}",
        verdict(report),
    ]


def markdown(report: dict[str, Any], name: str, base: str, reference: str) -> str:
    """The page for people."""
    test, length, fit = report["test"], report["length"], report["calibration"]
    lines = [
        f"# Reward model {name}: evaluation",
        "",
        f"Base model `{base}`. {test['n']:,} held-out pairs of {report['test_questions']:,} questions, none trained on.",
        "",
        f"**{verdict(report)}**",
        "",
        "| chosen by | accuracy | 95 % interval | lead of the model |",
        "|---|---|---|---|",
        f"| model, held-out pairs | {_interval(test)} | |",
        f"| model, training pairs | {_interval(report['train'])} | |",
        *(
            f"| {words}, held-out pairs | {_interval(report['baselines'][key])} | {_points(report['ahead_of'][key])} |"
            for key, words in BASELINES.items()
        ),
        "",
        "Intervals: Wilson for shares, bootstrap over pairs for differences. A tie counts half.",
        "",
        "## Length",
        "",
        f"Spearman correlation of margin and length difference: {length['margin_and_difference']:+.2f}; of score and length: "
        f"{length['score_and_length']:+.2f}. The longer answer gets the higher score in {length['longer_scored_higher']:.1%} of "
        f"pairs; people chose it in {report['baselines']['longer']['value']:.1%}.",
        "",
        "| chosen answer is | pairs | accuracy | 95 % interval |",
        "|---|---|---|---|",
        *(f"| {relation} | {part['n']:,} | {_interval(part)} |" for relation, part in length["accuracy_where_chosen_is"].items()),
        "",
        "About equal: the lengths differ by at most a tenth of the longer answer.",
        "",
        "## Calibration",
        "",
        f"sigmoid(margin) as the probability that the first answer is better, with each pair in random order: expected "
        f"calibration error {fit['ece']:.3f}, Brier score {fit['brier']:.3f} (0.250 is chance).",
        "",
        "| forecast | pairs | mean forecast | observed |",
        "|---|---|---|---|",
        *(
            f"| {row['from']:.1f} to {row['to']:.1f} | {row['pairs']:,} | {row['forecast']:.2f} | {row['outcome']:.2f} |"
            for row in fit["table"]
        ),
        "",
        "## Margins",
        "",
        f"Mean {report['margins']['mean']:+.2f}, standard deviation {report['margins']['std']:.2f}; histogram in `report.png`.",
        "",
        "## Score",
        "",
        f"sigmoid((logit - mean) / std), centred on {reference}.",
    ]
    return "\n".join(lines) + "\n"


def picture(report: dict[str, Any], name: str) -> bytes:
    """Margins, calibration, and accuracy beside the baselines; PNG."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    bars = report["margins"]["histogram"]
    colours = ["tab:red" if (bar["from"] + bar["to"]) / 2 < 0 else "tab:blue" for bar in bars]
    widths = [bar["to"] - bar["from"] for bar in bars]
    left.bar([bar["from"] for bar in bars], [bar["pairs"] for bar in bars], widths, align="edge", color=colours)
    left.set(title="margin on held-out pairs", xlabel="logit of chosen - logit of rejected", ylabel="pairs")
    table = report["calibration"]["table"]
    middle.plot([0, 1], [0, 1], color="grey", linewidth=1)
    middle.plot([row["forecast"] for row in table], [row["outcome"] for row in table], "o-")
    middle.set(title="calibration", xlabel="forecast", ylabel="observed", xlim=(0, 1), ylim=(0, 1))
    shown = {"model": report["test"], **{words: report["baselines"][key] for key, words in BASELINES.items()}}
    for height, part in enumerate(shown.values()):
        right.plot([part["low"], part["high"]], [height, height], color="tab:blue", linewidth=2)
        right.plot(part["value"], height, "o", color="tab:blue")
    right.axvline(0.5, color="grey", linewidth=1)
    right.set(title="accuracy, 95 % interval", yticks=range(len(shown)), yticklabels=list(shown), xlim=(0, 1))
    right.invert_yaxis()
    figure.suptitle(name)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100, metadata={"Software": None})
    return out.getvalue()


def _interval(part: dict[str, float]) -> str:
    return f"{part['value']:.1%} | {part['low']:.1%} to {part['high']:.1%}"


def _points(part: dict[str, float]) -> str:
    return f"{100 * part['value']:+.1f} points ({100 * part['low']:+.1f} to {100 * part['high']:+.1f})"
