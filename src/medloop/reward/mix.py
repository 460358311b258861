"""The mix: several scores become one reward, with weights, bounds and versions from one YAML file (`configs/reward.yaml`).

    scorer = build_mix(MixConfig(), given={"teacher": teacher})      # a Scorer: score(samples) -> list[Reward]

    plain sum      R = clip(Σ wᵢ·vᵢ); the weight of a penalty is negative
    gate           positive parts count by max(0, 1 - v / 0.5) of each gate (`risk`): a serious risk earns nothing
    normalise      z = (v - mean) / (std + 1e-4) of each part over its group or batch, then Σ wᵢ·zᵢ (GDPO, arXiv 2601.05242)

A part that is missing or does not apply is left out. All other weights then grow by one factor, so that the sum of the positive
ones stays the same and a penalty keeps its proportion to them. A rule that raises, or whose value is not a number, is missing
under its name. Rules that know only English and Chinese words are left out for a question in another language. A missing part
that is `required`, or a gate, makes the whole reward missing. A failure is never 0.

All answers of a group are scored with the same parts, so that none gains by making one missing: a part that most of them have is
required of the others, and a part that half of them lack is left out for all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from statistics import fmean, pstdev
from typing import Literal

from pydantic import Field, field_validator, model_validator

from medloop.contracts import Component, Contract, Missing, Reward, Rule, Sample, Score, Scorer, canonical_json, sha256_id
from medloop.contracts.base import Text, Unit
from medloop.contracts.score import ABSENT, SERIOUS, Objective, ObjectivePart
from medloop.errors import ConfigError, MedloopError
from medloop.knobs import import_object
from medloop.lexicon.language import is_read
from medloop.reward.rules import load_rules

EPS = 1e-4  # as in TRL: a group with equal scores has no spread to divide by
AUTHOR = "reward:mix"
UNREAD_RULES = frozenset(  # they know words of English and Chinese; left out for a question in any other language
    ("chain", "emergency", "risk", "undertriage", "overtriage", "safety_net", "false_reassurance", "length", "repetition")
)
GivenParts = Mapping[str, Component]  # parts that are not rules (teacher, reward model, relevance), by name


class MixPart(Contract):
    """One part of the mix."""

    weight: float = Field(ge=-10, le=10)
    """Negative for a penalty; 0 reports the part without mixing it."""
    rule: Text | None = None
    """Rule by name or `module:object`; default: the name of the part."""
    given: bool = False
    """Not a rule: given by the caller (teacher, reward model). Where it is not given, it is declared absent."""
    required: bool = False
    """A sample without this part has no reward."""
    gate: bool = False
    """A penalty that no positive part can outweigh: at 0.5 or more they earn nothing, below it in proportion."""
    options: dict[str, float] = Field(default_factory=dict)
    """Parameters of a rule that differ from its defaults, such as the length range; they are part of its version."""


def default_parts() -> dict[str, MixPart]:
    """R = 0.35·chain + 0.25·emergency - 0.15·risk + 0.25·teacher + 0.15·helpfulness, minus penalties; what harms is a gate."""
    return {
        "chain": MixPart(weight=0.35), "emergency": MixPart(weight=0.25), "risk": MixPart(weight=-0.15, gate=True),
        "teacher": MixPart(weight=0.25, given=True), "helpfulness": MixPart(weight=0.15),
        "undertriage": MixPart(weight=-0.25, gate=True), "overtriage": MixPart(weight=-0.005, gate=True),
        "safety_net": MixPart(weight=-0.06, gate=True), "off_topic": MixPart(weight=-0.10, gate=True),
        "false_reassurance": MixPart(weight=-0.10), "length": MixPart(weight=-0.05), "repetition": MixPart(weight=-0.10),
        "format": MixPart(weight=0.0),
    }  # fmt: skip


class MixConfig(Contract):
    """Weights, bounds and versions of a reward."""

    version: Text = "3"
    """Your own version; the reward's full version also has a hash of everything below and of the versions of the parts."""
    normalise: Literal["none", "group", "batch"] = "none"
    """Over what each part is normalised to mean 0 and standard deviation 1 before the sum."""
    bounds: tuple[float, float] = (-1.0, 1.0)
    """Lowest and highest reward of the plain sum."""
    z_bound: float = Field(3.0, gt=0)
    """With `normalise`: a part is clipped to this many standard deviations."""
    conflict: Unit = 0.4
    """Teacher and rules further apart than this are a conflict (see conflicts.py)."""
    parts: dict[str, MixPart] = Field(default_factory=default_parts, min_length=1)

    @field_validator("version", mode="before")
    @classmethod
    def _as_text(cls, version: object) -> object:
        return str(version) if isinstance(version, int | float) else version  # YAML reads 2 as a number

    @field_validator("bounds")
    @classmethod
    def _in_order(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if bounds[0] >= bounds[1]:
            raise ValueError("the first bound must be below the second")
        return bounds

    @model_validator(mode="after")
    def _something_to_earn(self) -> MixConfig:
        if not any(part.weight > 0 for part in self.parts.values()):
            raise ValueError("no part has a positive weight, so nothing could be earned")
        if ambiguous := [name for name, part in self.parts.items() if part.given and (part.rule or part.options)]:
            raise ValueError(f"{', '.join(ambiguous)}: a part is either given or a rule")
        return self


@dataclass(frozen=True)
class RewardMix:
    """The scorer of a MixConfig. `absent` are the parts that should be given but are not."""

    config: MixConfig
    rules: Mapping[str, Rule]
    given: GivenParts
    absent: frozenset[str]
    version: str
    notes: tuple[str, ...] = ()  # for the objective: what the caller has to say about this choice

    @property
    def objective(self) -> Objective:
        """The parts with a weight; one that was not given has the version `absent`, and its weight goes to the others."""
        scorers = {**self.rules, **self.given}
        versions = {name: scorers[name].version if name in scorers else ABSENT for name in self.config.parts}
        weights = {name: part.weight for name, part in self.config.parts.items() if part.weight}
        notes = dict.fromkeys((*self.notes, *(note for part in self.given.values() for note in getattr(part, "notes", ()))))
        parts = {name: ObjectivePart(weight=weight, version=versions[name]) for name, weight in weights.items()}
        return Objective(version=self.version, parts=parts, notes=tuple(notes))

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        scored = self._given_scores(samples)
        rows = [
            self._parts_of(sample, {name: column[index] for name, column in scored.items()})
            for index, sample in enumerate(samples)
        ]
        gates = [self._gate(row) for row in rows]
        partial = self._partly_missing(samples, rows)
        if self.config.normalise == "none":
            values = [_values(row) for row in rows]
        else:
            values = self._normalised(samples, rows, gates)
        return [
            self._combine(row, value, gate, missing)
            for row, value, gate, missing in zip(rows, values, gates, partial, strict=True)
        ]

    @property
    def unnormalised(self) -> RewardMix:
        """The same mix as a plain sum: what held-out answers are measured by, because z-scores have the mean 0 in any round."""
        if self.config.normalise == "none":
            return self
        config = self.config.model_copy(update={"normalise": "none"})
        return replace(self, config=config, version=f"{self.version}/plain")

    def _gate(self, row: tuple[Score | Missing, ...]) -> float:
        """The share of the positive parts that counts; every gate that applies lowers it."""
        values = [part.value for part in row if self.config.parts[part.name].gate and isinstance(part, Score) and part.applies]
        return round(math.prod(max(0.0, 1 - value / SERIOUS) for value in values), 6)

    def _partly_missing(self, samples: Sequence[Sample], rows: Sequence[tuple[Score | Missing, ...]]) -> list[dict[str, bool]]:
        """For each answer, the weighted parts that only some answers of its group have; True where most of them have it."""
        groups: dict[str, list[int]] = {}
        for index, sample in enumerate(samples):
            if sample.answer is not None:
                groups.setdefault(sample.group or sample.id, []).append(index)
        partial: list[dict[str, bool]] = [{} for _ in samples]
        for members in groups.values():
            if len(members) == 1:  # it has all parts that its group has
                continue
            counts = Counter(name for index in members for name in _values(rows[index]) if self.config.parts[name].weight)
            shares = {name: count > len(members) / 2 for name, count in counts.items() if count < len(members)}
            for index in members:
                partial[index] = shares
        return partial

    def _given_scores(self, samples: Sequence[Sample]) -> dict[str, dict[int, Score | Missing]]:
        """The scores of the given parts, in one call each; samples without an answer are missing."""
        answered = [index for index, sample in enumerate(samples) if sample.answer is not None]
        columns: dict[str, dict[int, Score | Missing]] = {}
        for name, component in self.given.items():
            results = _component_scores(name, component, [samples[index] for index in answered]) if answered else []
            column: dict[int, Score | Missing] = dict(zip(answered, results, strict=True))
            for index, sample in enumerate(samples):
                column.setdefault(index, _missing(name, sample.why_missing, component.version))
            columns[name] = column
        return columns

    def _parts_of(self, sample: Sample, given: Mapping[str, Score | Missing]) -> tuple[Score | Missing, ...]:
        """One score per part, in the order of the configuration and under the part's name."""
        parts: list[Score | Missing] = []
        read = is_read(sample.question)
        for name, config in self.config.parts.items():
            if name in self.absent:
                part: Score | Missing = _missing(name, "declared absent", ABSENT)
            elif name in given:
                part = given[name]
            elif sample.answer is None:
                part = _missing(name, sample.why_missing, self.rules[name].version)
            elif not read and (config.rule or name) in UNREAD_RULES:
                part = _unread(name, self.rules[name])
            else:
                part = _rule_score(name, self.rules[name], sample.question, sample.answer)
            parts.append(part if part.name == name else part.model_copy(update={"name": name}))
        return tuple(parts)

    def _is_reported(self, part: Score | Missing) -> bool:
        """Whether the reason names a part that was left out; not a penalty that does not apply."""
        weight = self.config.parts[part.name].weight
        return weight > 0 or (weight < 0 and isinstance(part, Missing))

    def _combine(
        self, row: tuple[Score | Missing, ...], values: Mapping[str, float], gate: float, partial: Mapping[str, bool]
    ) -> Reward:
        config = self.config.parts
        lacking = [name for name, common in partial.items() if common and name not in values]
        values = {name: value for name, value in values.items() if partial.get(name, True) or config[name].gate}
        left_out = [f"{part.name}: {_why_left_out(part)}" for part in row if part.name not in values and self._is_reported(part)]
        gates = ", ".join(name for name, value in values.items() if config[name].gate and value)
        closed = [f"gate ({gates}): {gate:.0%} of the positive parts count"] if gate < 1 else []
        reason = "; ".join([*closed, *left_out]) or None
        required = [part for part in row if isinstance(part, Missing) and (config[part.name].required or config[part.name].gate)]
        if required:
            reason = f"required and missing: {required[0].name} ({required[0].reason})"
            return Reward(value=None, parts=row, weights={}, version=self.version, reason=reason)
        if lacking:
            reason = f"{lacking[0]} is missing, while most answers to this question have it"
            return Reward(value=None, parts=row, weights={}, version=self.version, reason=reason)
        weights = effective_weights(config, values)
        if not any(weight > 0 for weight in weights.values()):
            reason = f"no part with a positive weight has a score ({reason})"
            return Reward(value=None, parts=row, weights={}, version=self.version, reason=reason)
        if self.config.normalise == "none":
            weights = {name: round(weight * gate, 6) if weight > 0 else weight for name, weight in weights.items()}
        total = sum(weight * values[name] for name, weight in weights.items())
        low, high = self.config.bounds if self.config.normalise == "none" else (float("-inf"), float("inf"))
        return Reward.trusted(
            value=round(min(high, max(low, total)), 6), parts=row, weights=weights, gate=gate, version=self.version, reason=reason
        )

    def _normalised(
        self, samples: Sequence[Sample], rows: Sequence[tuple[Score | Missing, ...]], gates: Sequence[float]
    ) -> list[dict[str, float]]:
        """The z-score of each part, positive ones behind the gate. Scores of two versions never share a mean; one alone has 0."""
        config = self.config
        columns: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        for index, (sample, row) in enumerate(zip(samples, rows, strict=True)):
            group = (sample.group or sample.id) if config.normalise == "group" else ""
            for part in row:
                if isinstance(part, Score) and part.applies:
                    value = part.value * gates[index] if config.parts[part.name].weight > 0 else part.value
                    columns.setdefault((group, part.name, part.version), []).append((index, value))
        z_scores: list[dict[str, float]] = [{} for _ in samples]
        for (_, name, _), column in columns.items():
            values = [value for _, value in column]
            mean, spread = fmean(values), pstdev(values)
            for index, value in column:
                z = (value - mean) / (spread + EPS)
                z_scores[index][name] = min(config.z_bound, max(-config.z_bound, z))
        return z_scores


def effective_weights(parts: Mapping[str, MixPart], present: Iterable[str]) -> dict[str, float]:
    """The weights of the present parts, all scaled by one factor: that which keeps the sum of the positive weights."""
    weights = {name: parts[name].weight for name in present if parts[name].weight}
    declared = sum(part.weight for part in parts.values() if part.weight > 0)
    positive = sum(weight for weight in weights.values() if weight > 0)
    return {name: round(weight * declared / positive, 6) for name, weight in weights.items()} if positive else weights


def _rule_score(name: str, rule: Rule, question: str, answer: str) -> Score | Missing:
    """A rule's score; one that fails is missing. Its message is not repeated, because it may quote the patient."""
    try:
        return _checked(name, rule.score(question, answer), rule.version)
    except Exception as error:
        return _missing(name, f"the rule failed with {type(error).__name__}", rule.version)


def _unread(name: str, rule: Rule) -> Score:
    """The score of a rule that cannot read the language of the question: it is left out."""
    reason = "The question is in a language that this rule does not read."
    return Score(name=name, value=0.0, reason=reason, author=AUTHOR, version=rule.version, applies=False)


def _component_scores(name: str, component: Component, samples: Sequence[Sample]) -> list[Score | Missing]:
    """The scores of a given part. An error with advice for people ends the scoring; any other makes the part missing."""
    try:
        results = component.score(samples)
        problem = None if len(results) == len(samples) else f"gave {len(results)} results for {len(samples)} answers"
    except MedloopError:
        raise
    except Exception as error:
        results, problem = [], f"failed with {type(error).__name__}"
    if problem:
        return [_missing(name, f"the part {problem}", component.version) for _ in samples]
    return [_checked(name, result, component.version) for result in results]


def _checked(name: str, part: object, version: str) -> Score | Missing:
    """The part if it is a score with a number; else it is missing."""
    if not isinstance(part, Score | Missing):
        return _missing(name, f"it gave {type(part).__name__} instead of a score", version)
    if isinstance(part, Score) and not math.isfinite(part.value):
        return _missing(name, f"its value is {part.value}, which is not a number", version)
    return part


@lru_cache(maxsize=256)  # the same for many answers
def _missing(name: str, why: str, version: str) -> Missing:
    return Missing(name=name, reason=why, author=AUTHOR, version=version)


def _why_left_out(part: Score | Missing) -> str:
    if isinstance(part, Missing):
        return part.reason
    return "missing for other answers to this question" if part.applies else "does not apply"


def _values(row: Iterable[Score | Missing]) -> dict[str, float]:
    return {part.name: part.value for part in row if isinstance(part, Score) and part.applies}


def build_mix(config: MixConfig, given: GivenParts | None = None) -> RewardMix:
    """The mix of a configuration; ConfigError lists all problems."""
    expected = {name for name, part in config.parts.items() if part.given}
    given, problems = _with_views(expected, given or {})
    rules = {name: _rule(name, part) for name, part in config.parts.items() if not part.given}
    problems += [f"'{name}' is required, but was not given" for name in expected - set(given) if config.parts[name].required]
    scorers: dict[str, Rule | Component] = {**rules, **given}
    for name, scorer in scorers.items():
        weight = config.parts[name].weight
        if (weight > 0) == scorer.penalty and weight:
            problems.append(f"{name} is {'a penalty' if scorer.penalty else 'not a penalty'}: its weight cannot be {weight:g}")
        if config.parts[name].gate and not scorer.penalty:
            problems.append(f"{name} is not a penalty: it cannot be a gate")
    if problems:
        hint = "Name a given part in the mix like 'rel: {weight: 0.2, given: true}'; penalties have negative weights"
        raise ConfigError("; ".join(sorted(problems)), f"{hint}; see configs/reward.yaml")
    absent = frozenset(expected - set(given))
    versions = {name: scorer.version for name, scorer in scorers.items()} | dict.fromkeys(absent, ABSENT)
    digest = sha256_id(canonical_json([config.model_dump(mode="json"), versions]))[7:19]
    return RewardMix(config=config, rules=rules, given=dict(given), absent=absent, version=f"{config.version}+{digest}")


def _with_views(expected: set[str], given: GivenParts) -> tuple[GivenParts, list[str]]:
    """The given parts of a mix, and problems. `teacher.risk` comes with `teacher`, whose `views` are parts of its verdict."""
    parts: dict[str, Component] = {name: part for name, part in given.items() if name in expected}
    problems, owners = [], set[str]()
    for name in sorted(expected - set(given)):
        owner, _, view = name.partition(".")
        views: Mapping[str, Component] = getattr(given.get(owner), "views", {})
        if view in views:
            parts[name] = views[view]
            owners.add(owner)
        elif view and views:
            problems.append(f"'{owner}' has no part '{view}' here (it has {', '.join(views)})")
    unknown = [name for name in given if name not in expected and name not in owners]
    return parts, problems + [f"'{name}' was given, but the mix has no such given part" for name in unknown]


def _rule(name: str, part: MixPart) -> Rule:
    (rule,) = load_rules([part.rule or name])
    if not part.options:
        return rule
    known = {field.name for field in fields(rule) if field.type in ("float", float)} if is_dataclass(rule) else set[str]()
    if unknown := sorted(set(part.options) - known):
        raise ConfigError(f"{name} has no option {', '.join(unknown)}", f"It has {', '.join(sorted(known)) or 'none'}")
    options = ",".join(f"{key}={value:g}" for key, value in sorted(part.options.items()))
    return replace(rule, **part.options, version=f"{rule.version}({options})")  # type: ignore[type-var]


def load_scorer(name: str = "mix", config: MixConfig | None = None, given: GivenParts | None = None) -> Scorer:
    """`mix`, or your own as `module:object`: a scorer, or a class or function that returns one."""
    if name == "mix":
        return build_mix(config or MixConfig(), given)
    scorer = import_object("scorer", name, "score")
    if not (hasattr(scorer, "score") and hasattr(scorer, "version")):
        raise ConfigError(f"'{name}' is not a scorer", "A scorer has a version and score(samples)")
    return scorer  # type: ignore[no-any-return]


def load_component(name: str, source: str) -> Component:
    """Your own given part as `module:object`: a component, or a class or function that returns one."""
    component = import_object("part", source or name, "score")
    if not all(hasattr(component, name) for name in ("score", "version", "penalty")):
        raise ConfigError(f"'{source}' is not a part of a reward", "A part has a name, a version, penalty and score(samples)")
    return component  # type: ignore[no-any-return]
