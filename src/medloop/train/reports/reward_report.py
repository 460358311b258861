"""The evaluation of a reward model: numbers, a page for people and a picture, beside the weights.

    report = measure(train, test, words_from=pairs, seed=42, ...)     # ScoredPairs in, one JSON-able dictionary out
    report.json, report.md, report.png = files(report, name="first", ...)

Three baselines that understand nothing choose on the same held-out pairs: the longer answer, the shorter answer, and a bag of
words. A model that does not beat them has learnt no more than they know, and the report says so first.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from medloop.bootstrap import Numbers
from medloop.models.classify import Scoring
from medloop.models.heads import Judged
from medloop.train.examples.pairs import Pair
from medloop.train.reports import pair_metrics
from medloop.train.reports.bag_of_words import bag_of_words
from medloop.train.reports.pair_metrics import answer_lengths

BASELINES = {"longer": "longer answer", "shorter": "shorter answer", "bag_of_words": "bag of words"}


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs with the judgements of both answers."""

    pairs: Sequence[Pair]
    judged_chosen: Judged
    judged_rejected: Judged

    @property
    def margins(self) -> Numbers:
        return self.margins_of("lowered")

    def margins_of(self, field: str) -> Numbers:
        return np.asarray(getattr(self.judged_chosen, field) - getattr(self.judged_rejected, field))

    @property
    def spread(self) -> Numbers:
        """Of the margin, as if the two answers were judged apart."""
        return np.hypot(self.judged_chosen.spread, self.judged_rejected.spread)


@dataclass(frozen=True)
class NegativePairs:
    """Synthetic negatives: how many were trained on, the share that was asked for, and (kind, margin) of held-out ones."""

    trained: int
    share: float
    margins: Sequence[tuple[str, float]]


def measure(
    train: ScoredPairs, test: ScoredPairs, *, words_from: Sequence[Pair], seed: int, scoring: Scoring,
    negatives: NegativePairs, sources: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    """The whole report. `words_from` are all training pairs, for the bag of words."""
    lengths = answer_lengths(test.pairs, "chosen"), answer_lengths(test.pairs, "rejected")
    baselines = {
        "longer": lengths[0] - lengths[1],
        "shorter": lengths[1] - lengths[0],
        "bag_of_words": bag_of_words(words_from, test.pairs, seed),
    }
    questions = [pair.first_question for pair in test.pairs]
    ahead = {name: pair_metrics.accuracy_difference(test.margins, other, questions, seed) for name, other in baselines.items()}
    judged = test.judged_chosen, test.judged_rejected
    return {
        "train": pair_metrics.accuracy(train.margins),
        "test": pair_metrics.accuracy(test.margins),
        "test_questions": len(set(questions)),
        "sources": dict(sources),
        "baselines": {name: pair_metrics.accuracy(margins) for name, margins in baselines.items()},
        "ahead_of": ahead,
        "parts": {words: pair_metrics.accuracy(test.margins_of(field)) for field, words in _parts(scoring).items()},
        "length_matched": _length_matched({"model": test.margins, **baselines}, *lengths),
        "margins": {
            "mean": float(test.margins.mean()),
            "std": float(test.margins.std()),
            "histogram": pair_metrics.histogram(test.margins),
        },
        "calibration": pair_metrics.calibration(test.margins_of("mean"), seed),
        "length": pair_metrics.length_bias(judged[0].lowered, judged[1].lowered, *lengths),
        "uncertainty": _uncertainty(test, scoring),
        "hard_negatives": _by_kind(negatives),
    }


def _parts(scoring: Scoring) -> dict[str, str]:
    """What else can be shown of the model, by field of Judged: without caution, and each half of it where there are two."""
    parts = {"mean": "without caution"} if scoring.weights.caution and scoring.weights.head_weight else {}
    if scoring.encoder == "fine-tuned" and scoring.weights.head_weight:
        parts |= {"from_base": "fine-tuned base alone", "from_heads": "heads alone"}
    return parts


def _length_matched(margins: Mapping[str, Numbers], chosen: Numbers, rejected: Numbers) -> dict[str, dict[str, float]]:
    """Accuracy where the two answers are about equally long, so that length decides nothing."""
    close = pair_metrics.equally_long(chosen, rejected)
    return {name: pair_metrics.accuracy(values[close]) for name, values in margins.items()} if close.any() else {}


def _uncertainty(test: ScoredPairs, scoring: Scoring) -> dict[str, Any]:
    """Does the spread know where the model is wrong? Accuracy in three equal parts of the pairs, by the spread of the margin."""
    judged = test.judged_chosen, test.judged_rejected
    thirds: list[Any] = np.array_split(np.argsort(test.spread, kind="stable"), 3) if scoring.weights.head_weight else []
    return {
        "caution": scoring.weights.caution,
        "spread": float(np.concatenate([side.spread for side in judged]).mean()),
        "distant": float((np.concatenate([side.distance for side in judged]) > 0).mean()),
        "thirds": [pair_metrics.accuracy(test.margins_of("mean")[rows]) for rows in thirds],
    }


def _by_kind(negatives: NegativePairs) -> dict[str, Any]:
    by_kind: dict[str, list[float]] = {}
    for kind, margin in negatives.margins:
        by_kind.setdefault(kind, []).append(margin)
    held_out = {kind: pair_metrics.accuracy(np.array(margins)) for kind, margins in sorted(by_kind.items())}
    return {"trained": negatives.trained, "share": negatives.share, "held_out": held_out}


def files(report: dict[str, Any], *, name: str, base: str, reference: str) -> dict[str, bytes]:
    """The report in its three forms, by file name."""
    return {
        "report.json": (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode(),
        "report.md": markdown(report, name, base, reference).encode(),
        "report.png": picture(report, name),
    }


def warning(report: dict[str, Any]) -> str | None:
    """What has to be said before anything else: no better than chance, or worse than a baseline; else None."""
    test = report["test"]
    if test["low"] <= 0.5:
        return "Not significantly better than chance: the 95 % interval contains 50 %."
    name = max(BASELINES, key=lambda name: report["baselines"][name]["value"])
    best, ahead = report["baselines"][name]["value"], report["ahead_of"][name]
    if test["value"] >= best:
        return None
    proven = "Significantly worse" if ahead["high"] < 0 else "Worse, though not significantly,"
    return (
        f"{proven} than a baseline: right in {test['value']:.1%} of the held-out pairs, '{BASELINES[name]}' in {best:.1%}. "
        "It has not learnt more than that baseline knows."
    )


def warnings(report: dict[str, Any]) -> list[str]:
    """Everything that has to be said first: `warning`, and broken copies of answers that earn more than the answers."""
    held_out = report["hard_negatives"]["held_out"]
    preferred = [f"{kind} ({1 - part['value']:.0%})" for kind, part in held_out.items() if part["high"] < 0.5]
    problems = [problem] if (problem := warning(report)) else []
    if preferred:
        problems.append(
            f"It scores broken copies of held-out answers above the answers themselves: {', '.join(preferred)}. "
            "A policy can gain by such text: use it beside other parts of the reward, not alone."
        )
    return problems


def verdict(report: dict[str, Any]) -> str:
    """One sentence: is it better than chance, and than the baselines?"""
    if (problem := warning(report)) is not None:
        return problem
    beaten = [words for name, words in BASELINES.items() if report["ahead_of"][name]["low"] > 0]
    others = [words for name, words in BASELINES.items() if report["ahead_of"][name]["low"] <= 0]
    if not others:
        return "Significantly better than chance, than length and than the bag of words."
    proven = f" and than: {', '.join(beaten)}" if beaten else ""
    return f"Significantly better than chance{proven}; ahead of, but not significantly: {', '.join(others)}."


def summary(report: dict[str, Any]) -> list[str]:
    """The report in a few lines, for a terminal; what is wrong comes first."""
    rows = [("model, held-out", report["test"]), ("model, training", report["train"])]
    rows += [(words, report["baselines"][key]) for key, words in BASELINES.items()]
    rows += list(report["parts"].items())
    if report["length_matched"]:
        rows.append(("model, equal length", report["length_matched"]["model"]))
    length, fit, doubt = report["length"], report["calibration"], report["uncertainty"]
    lines = [f"WARNING: {problem}" for problem in warnings(report)]
    lines += [
        f"  {label:<22} {part['value']:6.1%}  [{part['low']:.1%}, {part['high']:.1%}]  {part['n']:,} pairs"
        for label, part in rows
    ]
    lines.append(
        f"  correlation of margin and length difference {length['margin_and_difference']:+.2f}; "
        f"calibration error {fit['ece']:.3f}, Brier {fit['brier']:.3f}"
    )
    if doubt["thirds"]:
        thirds = ", ".join(f"{part['value']:.1%}" for part in doubt["thirds"])
        lines.append(
            f"  spread of the heads {doubt['spread']:.2f}, caution {doubt['caution']:g}; "
            f"right where the spread is least, medium, greatest: {thirds}"
        )
    if report["hard_negatives"]["held_out"]:
        kinds = ", ".join(f"{kind} {part['value']:.0%}" for kind, part in report["hard_negatives"]["held_out"].items())
        lines.append(f"  {report['hard_negatives']['trained']:,} synthetic negatives trained on; right on held-out ones: {kinds}")
    return [*lines, *([] if warning(report) else [verdict(report)])]


def markdown(report: dict[str, Any], name: str, base: str, reference: str) -> str:
    """The page for people."""
    test, length, fit = report["test"], report["length"], report["calibration"]
    lines = [
        f"# Reward model {name}: evaluation",
        "",
        f"Base model `{base}`. {test['n']:,} held-out pairs of {report['test_questions']:,} questions, none trained on.",
        "",
        *(line for sentence in dict.fromkeys([*warnings(report), verdict(report)]) for line in (f"**{sentence}**", "")),
        "| chosen by | accuracy | 95 % interval | lead of the model |",
        "|---|---|---|---|",
        f"| model, held-out pairs | {_interval(test)} | |",
        f"| model, training pairs | {_interval(report['train'])} | |",
        *(
            f"| {words}, held-out pairs | {_interval(report['baselines'][key])} | {_points(report['ahead_of'][key])} |"
            for key, words in BASELINES.items()
        ),
        *(f"| {words}, held-out pairs | {_interval(part)} | |" for words, part in report["parts"].items()),
        "",
        "Intervals: Wilson for shares, bootstrap over questions for differences. A tie counts half.",
        "",
        f"Pairs by file: {', '.join(f'{name} {count:,}' for name, count in report['sources'].items())}. "
        f"Synthetic negatives, for the heads only: {report['hard_negatives']['trained']:,} "
        f"({report['hard_negatives']['share']:.0%} of the training pairs were asked for).",
        "",
        *_doubt(report),
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
        "About equal: the lengths differ by at most a tenth of the longer answer. On those pairs, where length decides nothing: "
        + ", ".join(f"{BASELINES.get(name, name)} {part['value']:.1%}" for name, part in report["length_matched"].items())
        + ".",
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
        f"sigmoid((logit - caution * uncertainty - mean) / std), centred on {reference}.",
    ]
    return "\n".join(lines) + "\n"


def _doubt(report: dict[str, Any]) -> list[str]:
    """Spread, caution, and what became of held-out synthetic negatives."""
    doubt, kinds = report["uncertainty"], report["hard_negatives"]["held_out"]
    if not doubt["thirds"]:
        return []
    lines = [
        "## Uncertainty", "",
        f"Mean spread of the heads on held-out answers {doubt['spread']:.3f}; {doubt['distant']:.1%} of them lie far from the "
        f"training answers. Both lower the reward, times {doubt['caution']:g} (`caution`).", "",
        "| spread of the heads | pairs | accuracy | 95 % interval |", "|---|---|---|---|",
        *(
            f"| {name} third | {part['n']:,} | {_interval(part)} |"
            for name, part in zip(("least", "middle", "greatest"), doubt["thirds"], strict=True)
        ), "",
    ]  # fmt: skip
    if kinds:
        lines += ["| held-out synthetic negatives | pairs | accuracy | 95 % interval |", "|---|---|---|---|"]
        lines += [*(f"| {kind} | {part['n']:,} | {_interval(part)} |" for kind, part in kinds.items()), ""]
    return lines


def picture(report: dict[str, Any], name: str) -> bytes:
    """Margins, calibration, and accuracy beside the baselines; PNG."""
    figure = Figure(figsize=(12, 3.6))
    left, middle, right = figure.subplots(1, 3)
    figure.subplots_adjust(left=0.07, right=0.985, top=0.82, bottom=0.14, wspace=0.42)  # to let matplotlib find them is slow
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
