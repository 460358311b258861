"""`medloop reward fit`: the weights of a mix from labels that people gave.

A pair of answers says which one people preferred; a fault or a harm says of one answer that it is worse than another without it.
Both become differences of the parts, and the weights minimise

    mean log(1 + exp(-10 · Σ wᵢ·dᵢ))  +  strength · Σ (wᵢ - w⁰ᵢ)²

over weights within bounds: logistic regression with an L2 pull towards the present weights w⁰. No gain becomes a penalty. The
safety parts never fall below their floor, `risk` is a gate, and every part has a ceiling, chain and teacher a lower one. A part
that no label speaks about keeps its weight. The strength of the pull is chosen by cross-validation.

Pairs that a gate decides say nothing about weights and are left out. All folds are by question: two answers to one question are
never on both sides. Agreement is measured with the whole mix (gates, parts that do not apply) on questions that were held out,
the strength chosen anew without them. The same labels give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from medloop.bootstrap import percentile_interval
from medloop.contracts import Component, Contract, Missing, Reward, Sample, Score, canonical_json, sha256_id
from medloop.contracts.evaluation import Interval
from medloop.contracts.validity import LabelledCase
from medloop.errors import ConfigError, InputError
from medloop.reward.mix import MixConfig, MixPart, RewardMix, build_mix

Numbers = NDArray[np.float64]
SHARPNESS: Final = 10.0  # a difference of 0.1 in the reward means odds of e
FLOORS: Final = {
    "emergency": 0.25,
    "risk": 0.15,
    "undertriage": 0.25,
    "safety_net": 0.06,
    "off_topic": 0.10,
    "false_reassurance": 0.10,
}
CEILINGS: Final = {"chain": 0.35, "teacher": 0.35}
CEILING: Final = 0.5  # of all other parts
SAFETY: Final = ("risk", "undertriage", "safety_net", "false_reassurance")  # parts that a label of harm speaks about
STEPS: Final = 400
RESAMPLES: Final = 2000
AT_ONCE: Final = 256  # answers scored in one call


class FitConfig(Contract):
    """How weights are fitted."""

    folds: int = Field(5, ge=2, le=20)
    """Parts into which the questions are divided for cross-validation."""
    strengths: tuple[float, ...] = Field((0.1, 0.3, 1.0, 3.0, 10.0), min_length=1)
    """Pulls towards the present weights, among which cross-validation chooses."""
    min_pairs: int = Field(60, ge=10)
    """With fewer labelled pairs nothing is fitted."""
    min_questions: int = Field(20, ge=5)
    """With fewer different questions nothing is fitted."""
    seed: int = 0
    """Of the resampled intervals."""


class FitMeasure(Contract):
    """Agreement with people on held-out questions, a tie as half; the interval resamples questions."""

    agreement: Interval
    ties: int


class FittedWeights(Contract):
    """The new mix, and how it agrees with people on questions that it was not fitted on."""

    mix: MixConfig
    before: dict[str, float]
    """Weights of the parts before."""
    old: FitMeasure
    new: FitMeasure
    difference: Interval
    by_source: dict[str, tuple[FitMeasure, FitMeasure]]
    strength: float
    unchanged: dict[str, str]
    """Parts whose weight was not fitted, and why."""
    notes: tuple[str, ...] = ()
    pairs: int
    questions: int
    faults: int
    cases: str
    """Hash of the labelled cases."""
    base_version: str


@dataclass(frozen=True)
class _Differences:
    """One row per comparison: signed differences of the parts, its question, and whether it is a pair that people judged."""

    names: tuple[str, ...]
    rows: Numbers
    questions: tuple[str, ...]


@dataclass(frozen=True)
class _Recorded:
    """A part of a mix whose scores are known already."""

    name: str
    version: str
    penalty: bool
    scores: Mapping[str, Score | Missing]

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [self.scores[sample.id] for sample in samples]


def fit_weights(
    cases: Sequence[LabelledCase],
    mix: RewardMix,
    *,
    config: FitConfig | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FittedWeights:
    """New weights for a mix; InputError where the labels are too few."""
    config = config or FitConfig()
    pairs = [case for case in cases if case.chosen is not None]
    questions = sorted({case.question for case in pairs}, key=sha256_id)
    _require_enough(len(pairs), len(questions), config)
    mix = mix.unnormalised
    rewards = _score(cases, mix, progress)
    names = _fitted_names(mix)
    data = _differences(cases, rewards, mix, names)
    bounds = _Bounds.of(mix.config, data)
    fold_of = {question: index % config.folds for index, question in enumerate(questions)}
    folds = np.array([fold_of.get(question, -1) for question in data.questions])  # -1: a fault, always used for fitting
    _require_undecided(folds, len(pairs))
    held: dict[str, Reward] = {}
    for fold in range(config.folds):
        weights, _ = _choose(data, folds, fold, bounds, config)
        fold_mix = _recorded(mix, rewards, _with_weights(mix.config, names, weights))
        held |= _rewards_of([case for case in pairs if fold_of[case.question] == fold], fold_mix)
    weights, strength = _choose(data, folds, None, bounds, config)
    fitted = _with_weights(mix.config, names, weights)
    digest = sha256_id(canonical_json([case.model_dump(mode="json", exclude_none=True) for case in cases]))
    fitted = fitted.model_copy(update={"version": f"{mix.config.version}-fit-{digest[7:15]}"})
    unchanged = _unchanged(mix, data)
    comparison = _Comparison(pairs, rewards, held, config.seed)
    return FittedWeights(
        mix=fitted, before={name: part.weight for name, part in mix.config.parts.items()}, old=comparison.measure(rewards),
        new=comparison.measure(held), difference=comparison.difference(), by_source=comparison.by_source(), strength=strength,
        unchanged=unchanged, notes=_notes(mix.config, fitted, unchanged), pairs=len(pairs), questions=len(questions),
        faults=sum(bool(case.faults) or case.harm is not None for case in cases), cases=digest, base_version=mix.version,
    )  # fmt: skip


def _require_enough(pairs: int, questions: int, config: FitConfig) -> None:
    if pairs < config.min_pairs or questions < max(config.min_questions, config.folds):
        needed = f"at least {config.min_pairs} pairs on {max(config.min_questions, config.folds)} questions are needed"
        raise InputError(
            f"The labels are too few to fit weights: {pairs} pairs on {questions} questions, {needed}",
            "Collect more lines with 'chosen' and 'rejected'. To measure the present weights: medloop reward validate CASES",
        )


def _require_undecided(folds: NDArray[np.int_], pairs: int) -> None:
    """Cross-validation holds out a fold, and a fold of the rest: some rows must be left."""
    if len({*folds.tolist()} - {-1}) < 3 and -1 not in folds:
        decided = pairs - len(folds)
        raise InputError(
            f"The labels are too few to fit weights: gates decide {decided} of the {pairs} pairs, and no weight changes that",
            "Collect pairs of two answers that are both safe and on topic, or answers with named faults",
        )


def _score(cases: Sequence[LabelledCase], mix: RewardMix, progress: Callable[[int, int], None]) -> dict[str, Reward]:
    """The reward of every labelled answer, by the id of its sample."""
    samples = [sample for case in cases for sample in _samples(case)]
    rewards: dict[str, Reward] = {}
    for start in range(0, len(samples), AT_ONCE):
        chunk = samples[start : start + AT_ONCE]
        rewards |= {sample.id: reward for sample, reward in zip(chunk, mix.score(chunk), strict=True)}
        progress(min(start + AT_ONCE, len(samples)), len(samples))
    return rewards


def _samples(case: LabelledCase) -> list[Sample]:
    labels_answer = case.faults or case.harm is not None
    texts = {"chosen": case.chosen, "rejected": case.rejected, "answer": case.answer if labels_answer else None}
    return [
        Sample(id=f"{case.id}/{name}", question=case.question, answer=text) for name, text in texts.items() if text is not None
    ]


def _fitted_names(mix: RewardMix) -> tuple[str, ...]:
    """The parts with a weight that have scores."""
    names = tuple(name for name, part in mix.config.parts.items() if part.weight and name not in mix.absent)
    if not any(mix.config.parts[name].weight > 0 for name in names):
        raise ConfigError("No part with a positive weight has a score", "Name the given parts with --with, or add a rule")
    return names


def _differences(
    cases: Sequence[LabelledCase], rewards: Mapping[str, Reward], mix: RewardMix, names: tuple[str, ...]
) -> _Differences:
    """The rows of all pairs and faults. Where the gate counts the gains of two answers differently, no weight decides."""
    rows, questions = [], []
    for case in cases:
        if case.chosen is None:
            continue
        better, worse = (rewards[f"{case.id}/{which}"] for which in ("chosen", "rejected"))
        if better.gate == worse.gate:
            rows.append(np.nan_to_num(_values(better, mix, names) - _values(worse, mix, names)))
            questions.append(case.question)
    for row in _fault_rows(cases, rewards, mix, names):
        rows.append(row)
        questions.append("")
    return _Differences(names, np.array(rows).reshape(-1, len(names)), tuple(questions))


def _values(reward: Reward, mix: RewardMix, names: Sequence[str]) -> Numbers:
    """What each part contributes at a weight of 1: gains behind the gate, penalties negative; NaN where it has no value.

    Where parts are left out, the weights of the others grow, and so do these values.
    """
    parts = {part.name: part.value for part in reward.parts if isinstance(part, Score) and part.applies}
    present = {name: part.weight for name, part in mix.config.parts.items() if part.weight > 0 and name in parts}
    growth = sum(part.weight for part in mix.config.parts.values() if part.weight > 0) / (sum(present.values()) or 1.0)
    return np.array([parts.get(name, np.nan) * growth * (reward.gate if name in present else -1.0) for name in names])


def _fault_rows(
    cases: Sequence[LabelledCase], rewards: Mapping[str, Reward], mix: RewardMix, names: Sequence[str]
) -> list[Numbers]:
    """An answer with a fault against one without it, in the part that looks for it; a harm in all safety parts."""
    labels: dict[str, dict[bool, list[Numbers]]] = {}
    for case in cases:
        harm = {} if case.harm is None else dict.fromkeys(set(SAFETY) & set(names), case.harm)
        for name, label in {**harm, **case.faults}.items():
            if name in names:
                values = _values(rewards[f"{case.id}/answer"], mix, names)
                labels.setdefault(name, {True: [], False: []})[label].append(values)
    rows: list[Numbers] = []
    for name, by_label in sorted(labels.items()):
        faulty, clean = by_label[True], by_label[False]
        column = names.index(name)
        for index in range(max(len(faulty), len(clean)) if faulty and clean else 0):
            row = np.zeros(len(names))
            row[column] = np.nan_to_num(clean[index % len(clean)][column] - faulty[index % len(faulty)][column])
            rows.append(row)
    return rows


@dataclass(frozen=True)
class _Bounds:
    """Sizes of the weights, without sign: where they start, and between what they lie."""

    start: Numbers
    low: Numbers
    high: Numbers

    @staticmethod
    def of(config: MixConfig, data: _Differences) -> _Bounds:
        start = np.array([max(abs(config.parts[name].weight), FLOORS.get(name, 0.0)) for name in data.names])
        low = np.array([FLOORS.get(name, 0.0) for name in data.names])
        high = np.array([CEILINGS.get(name.partition(".")[0], CEILING) for name in data.names])
        silent = ~data.rows.any(0)  # no label speaks about these parts
        return _Bounds(start, np.where(silent, start, low), np.where(silent, start, np.maximum(start, high)))


def _choose(
    data: _Differences, folds: NDArray[np.int_], held: int | None, bounds: _Bounds, config: FitConfig
) -> tuple[Numbers, float]:
    """Weights from all rows outside the held fold; the strength is the best one on inner folds of these rows."""
    rows, inner = data.rows[folds != held], folds[folds != held]
    losses = []
    for strength in config.strengths:
        loss = 0.0
        for fold in sorted(set(inner.tolist()) - {-1}):
            weights = _minimise(rows[inner != fold], bounds, strength)
            loss += float(np.logaddexp(0, -SHARPNESS * rows[inner == fold] @ weights).sum())
        losses.append(loss)
    best = config.strengths[int(np.argmin(losses))]
    return _minimise(rows, bounds, best), best


def _minimise(rows: Numbers, bounds: _Bounds, strength: float) -> Numbers:
    """Projected gradient with a step that the curvature allows."""
    curvature = SHARPNESS**2 / 4 * float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]) + 2 * strength
    weights = bounds.start.copy()
    for _ in range(STEPS):
        wrong = 1 / (1 + np.exp(np.clip(SHARPNESS * rows @ weights, -50, 50)))
        gradient = -SHARPNESS * (wrong @ rows) / len(rows) + 2 * strength * (weights - bounds.start)
        weights = np.clip(weights - gradient / curvature, bounds.low, bounds.high)
    return weights


def _with_weights(config: MixConfig, names: Sequence[str], weights: Numbers) -> MixConfig:
    parts: dict[str, MixPart] = dict(config.parts)
    for name, weight in zip(names, weights, strict=True):
        sign = 1 if config.parts[name].weight > 0 else -1
        parts[name] = parts[name].model_copy(update={"weight": sign * round(float(weight), 3)})
    if "risk" in parts and parts["risk"].weight < 0:
        parts["risk"] = parts["risk"].model_copy(update={"gate": True})
    return config.model_copy(update={"parts": parts})


def _recorded(mix: RewardMix, rewards: Mapping[str, Reward], config: MixConfig) -> RewardMix:
    """A mix of other weights over scores that are known already."""
    scorers: dict[str, Component] = {}
    for name, scorer in {**mix.rules, **mix.given}.items():
        scores = {id: next(part for part in reward.parts if part.name == name) for id, reward in rewards.items()}
        scorers[name] = _Recorded(name, scorer.version, scorer.penalty, scores)
    parts = {name: part.model_copy(update={"given": True, "rule": None, "options": {}}) for name, part in config.parts.items()}
    return build_mix(config.model_copy(update={"parts": parts}), scorers)


def _rewards_of(pairs: Sequence[LabelledCase], mix: RewardMix) -> dict[str, Reward]:
    samples = [sample for case in pairs for sample in _samples(case) if not sample.id.endswith("/answer")]
    return {sample.id: reward for sample, reward in zip(samples, mix.score(samples), strict=True)}


@dataclass(frozen=True)
class _Comparison:
    """Old and new rewards of the same pairs."""

    pairs: Sequence[LabelledCase]
    old: Mapping[str, Reward]
    new: Mapping[str, Reward]
    seed: int

    def measure(self, rewards: Mapping[str, Reward], source: str | None = None) -> FitMeasure:
        chosen = [case for case in self.pairs if source is None or case.source == source]
        hits = self._hits(rewards, chosen)
        return FitMeasure(agreement=self._interval(chosen, hits), ties=int((hits == 0.5).sum()))

    def difference(self) -> Interval:
        return self._interval(self.pairs, self._hits(self.new, self.pairs) - self._hits(self.old, self.pairs))

    def by_source(self) -> dict[str, tuple[FitMeasure, FitMeasure]]:
        sources = sorted({case.source for case in self.pairs if case.source})
        return {source: (self.measure(self.old, source), self.measure(self.new, source)) for source in sources}

    @staticmethod
    def _hits(rewards: Mapping[str, Reward], pairs: Sequence[LabelledCase]) -> Numbers:
        """1, 0, or 0.5 for a tie and for a reward that is missing."""
        values = [(rewards[f"{case.id}/chosen"].value, rewards[f"{case.id}/rejected"].value) for case in pairs]
        return np.array([0.5 if None in pair or pair[0] == pair[1] else float(pair[0] > pair[1]) for pair in values])  # type: ignore[operator]

    def _interval(self, pairs: Sequence[LabelledCase], hits: Numbers) -> Interval:
        """The mean with the interval of resampled questions: pairs of one question are alike."""
        _, group = np.unique([case.question for case in pairs], return_inverse=True)
        sums, counts = np.bincount(group, hits), np.bincount(group).astype(np.float64)
        draws = np.random.default_rng(self.seed).integers(0, len(sums), (RESAMPLES, len(sums)))
        low, high = percentile_interval(sums[draws].sum(1) / counts[draws].sum(1))
        return Interval(mean=float(hits.mean()), low=low, high=high, n=len(hits))


def _unchanged(mix: RewardMix, data: _Differences) -> dict[str, str]:
    reasons = {}
    for name, part in mix.config.parts.items():
        if name in mix.absent:
            reasons[name] = "it was not given"
        elif not part.weight:
            reasons[name] = "its weight is 0"
        elif not data.rows[:, data.names.index(name)].any():
            reasons[name] = "no label separates two of its values"
    return reasons


def _notes(before: MixConfig, after: MixConfig, unchanged: Mapping[str, str]) -> tuple[str, ...]:
    """What the safety rules changed or held."""
    notes = []
    for name, floor in FLOORS.items():
        part = before.parts.get(name)
        if part and part.weight and abs(part.weight) < floor:
            notes.append(f"{name}: raised to its safety floor, {floor:g}")
        elif part and part.weight and name not in unchanged and abs(after.parts[name].weight) == floor:
            notes.append(f"{name}: at its safety floor, {floor:g}")
    if "risk" in before.parts and not before.parts["risk"].gate and after.parts["risk"].gate:
        notes.append("risk: made a gate")
    return tuple(notes)
