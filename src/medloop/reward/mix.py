"""The mix: several scores become one reward, with weights, bounds and versions from one YAML file (`configs/reward.yaml`).

    scorer = build_mix(MixConfig(), given={"teacher": teacher})      # a Scorer: score(samples) -> list[Reward]

    plain sum      R = clip(Σ wᵢ·vᵢ); the weight of a penalty is negative
    normalise      z = (v - mean) / (std + 1e-4) of each part over its group or batch, then Σ wᵢ·zᵢ (GDPO, arXiv 2601.05242)

A part that is missing or does not apply is left out. The weights of what can be earned then grow in proportion, so that their
sum stays; penalties keep their weight. A missing part that is `required` makes the whole reward missing. Never is a failure 0.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import fmean, pstdev
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from medloop.contracts import Component, Contract, Missing, Reward, Rule, Sample, Score, Scorer, canonical_json, sha256_id
from medloop.contracts.base import Text, Unit
from medloop.errors import ConfigError
from medloop.reward.rules import load_rules

EPS = 1e-4  # as in TRL: a group whose members all score alike has no spread to divide by
AUTHOR = "reward:mix"
ABSENT = "absent"  # the version of a part that was not given
GivenParts = Mapping[str, Component]  # parts that are not rules (teacher, reward model, relevance), by name


class Part(Contract):
    """One part of the mix."""

    weight: float = Field(ge=-10, le=10)
    """Negative for a penalty; 0 reports the part without mixing it."""
    rule: Text | None = None
    """Rule by name or `module:object`; without it the part's own name."""
    given: bool = False
    """Not a rule: handed in by the caller (teacher, reward model). Where nobody hands it in, it is declared absent."""
    required: bool = False
    """Without it a sample has no reward."""
    options: dict[str, float] = Field(default_factory=dict)
    """Numbers of a rule that differ from its own, such as the length band; they enter its version."""


def _document_000() -> dict[str, Part]:
    """R = 0.35·chain + 0.25·emergency - 0.15·risk + 0.25·teacher, with the penalties that keep it honest."""
    return {
        "chain": Part(weight=0.35),
        "emergency": Part(weight=0.25),
        "risk": Part(weight=-0.15),
        "teacher": Part(weight=0.25, given=True),
        "false_reassurance": Part(weight=-0.10),
        "overtriage": Part(weight=-0.10),
        "length": Part(weight=-0.05),
        "repetition": Part(weight=-0.10),
        "format": Part(weight=0.0),
    }


class MixConfig(Contract):
    """Weights, bounds and versions of a reward."""

    version: Text = "1"
    """Yours to raise; the reward's full version also hashes everything below and the versions of the parts."""
    normalise: Literal["none", "group", "batch"] = "none"
    """Over what each part is brought to mean 0 and spread 1 before the sum."""
    bounds: tuple[float, float] = (-1.0, 1.0)
    """Least and greatest reward of the plain sum."""
    z_bound: float = Field(3.0, gt=0)
    """With `normalise`: a part counts at most so many standard deviations."""
    conflict: Unit = 0.4
    """Teacher and rules further apart than this are a conflict (see conflicts.py)."""
    parts: dict[str, Part] = Field(default_factory=_document_000, min_length=1)

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
            raise ValueError("no part has a positive weight: there would be nothing to earn")
        if both := [name for name, part in self.parts.items() if part.given and (part.rule or part.options)]:
            raise ValueError(f"{', '.join(both)}: a part is given or a rule, not both")
        return self


@dataclass(frozen=True)
class Mix:
    """The scorer of a MixConfig. `absent` are the given parts that nobody handed in."""

    config: MixConfig
    rules: Mapping[str, Rule]
    given: GivenParts
    absent: frozenset[str]
    version: str

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        scored = self._given_scores(samples)
        rows = [
            self._parts_of(sample, {name: column[at] for name, column in scored.items()}) for at, sample in enumerate(samples)
        ]
        values = _normalised(self.config, samples, rows) if self.config.normalise != "none" else [_values(row) for row in rows]
        return [self._combine(row, value) for row, value in zip(rows, values, strict=True)]

    def _given_scores(self, samples: Sequence[Sample]) -> dict[str, dict[int, Score | Missing]]:
        """What the given components say of the samples that have an answer; one call each."""
        asked = [at for at, sample in enumerate(samples) if sample.answer is not None]
        found: dict[str, dict[int, Score | Missing]] = {}
        for name, component in self.given.items():
            results = component.score([samples[at] for at in asked]) if asked else []
            assert len(results) == len(asked), f"{name} returned {len(results)} results for {len(asked)} samples"
            said = dict(zip(asked, results, strict=True))
            found[name] = {at: said.get(at) or _missing(name, s.why_missing, component.version) for at, s in enumerate(samples)}
        return found

    def _parts_of(self, sample: Sample, given: Mapping[str, Score | Missing]) -> tuple[Score | Missing, ...]:
        """One score per part, in the order of the configuration and under the part's name."""
        parts: list[Score | Missing] = []
        for name in self.config.parts:
            if name in self.absent:
                found: Score | Missing = _missing(name, "declared absent", ABSENT)
            elif name in given:
                found = given[name]
            elif sample.answer is None:
                found = _missing(name, sample.why_missing, self.rules[name].version)
            else:
                found = self.rules[name].score(sample.question, sample.answer)
            parts.append(found if found.name == name else found.model_copy(update={"name": name}))
        return tuple(parts)

    def _matters(self, part: Score | Missing) -> bool:
        """Is it worth a word that a part was left out? Not of a penalty that has nothing to say."""
        weight = self.config.parts[part.name].weight
        return weight > 0 or (weight < 0 and isinstance(part, Missing))

    def _combine(self, row: tuple[Score | Missing, ...], values: Mapping[str, float]) -> Reward:
        asked = self.config.parts
        left_out = [f"{part.name}: {_why_left_out(part)}" for part in row if part.name not in values and self._matters(part)]
        said = "; ".join(left_out) or None
        lacking = [p for p in row if isinstance(p, Missing) and asked[p.name].required]
        if lacking:
            why = f"required and missing: {lacking[0].name} ({lacking[0].reason})"
            return Reward(value=None, parts=row, weights={}, version=self.version, reason=why)
        weights = effective_weights(asked, values)
        if not any(weight > 0 for weight in weights.values()):
            why = f"nothing that can be earned was scored ({said})"
            return Reward(value=None, parts=row, weights={}, version=self.version, reason=why)
        total = sum(weight * values[name] for name, weight in weights.items())
        low, high = self.config.bounds if self.config.normalise == "none" else (float("-inf"), float("inf"))
        return Reward(value=round(min(high, max(low, total)), 6), parts=row, weights=weights, version=self.version, reason=said)


def effective_weights(parts: Mapping[str, Part], present: Iterable[str]) -> dict[str, float]:
    """Weights of what is there; those of what can be earned grow so that their sum is the declared one."""
    there = {name: parts[name].weight for name in present if parts[name].weight}
    declared = sum(part.weight for part in parts.values() if part.weight > 0)
    earned = sum(weight for weight in there.values() if weight > 0)
    return {name: round(weight * declared / earned, 6) if weight > 0 else weight for name, weight in there.items()}


def _missing(name: str, why: str, version: str) -> Missing:
    return Missing(name=name, reason=why, author=AUTHOR, version=version)


def _why_left_out(part: Score | Missing) -> str:
    return part.reason if isinstance(part, Missing) else "does not apply"


def _values(row: Iterable[Score | Missing]) -> dict[str, float]:
    return {part.name: part.value for part in row if isinstance(part, Score) and part.applies}


def _normalised(
    config: MixConfig, samples: Sequence[Sample], rows: Sequence[tuple[Score | Missing, ...]]
) -> list[dict[str, float]]:
    """z of each part. Scores of two versions are two measures and never share a mean; a part said by one alone is 0."""
    columns: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for at, (sample, row) in enumerate(zip(samples, rows, strict=True)):
        group = (sample.group or sample.id) if config.normalise == "group" else ""
        for part in row:
            if isinstance(part, Score) and part.applies:
                columns.setdefault((group, part.name, part.version), []).append((at, part.value))
    found: list[dict[str, float]] = [{} for _ in samples]
    for (_, name, _), column in columns.items():
        values = [value for _, value in column]
        mean, spread = fmean(values), pstdev(values)
        for at, value in column:
            z = (value - mean) / (spread + EPS)
            found[at][name] = min(config.z_bound, max(-config.z_bound, z))
    return found


def build_mix(config: MixConfig, given: GivenParts | None = None) -> Mix:
    """The mix of a configuration, all problems at once."""
    given = given or {}
    wanted = {name for name, part in config.parts.items() if part.given}
    rules = {name: _rule(name, part) for name, part in config.parts.items() if not part.given}
    problems = [f"'{name}' was handed in, but is not a given part of the mix" for name in given if name not in wanted]
    problems += [f"'{name}' is required, but was not handed in" for name in wanted - set(given) if config.parts[name].required]
    everyone: dict[str, Rule | Component] = {**rules, **{name: part for name, part in given.items() if name in wanted}}
    for name, found in everyone.items():
        weight = config.parts[name].weight
        if (weight > 0) == found.penalty and weight:
            problems.append(f"{name} is {'a penalty' if found.penalty else 'no penalty'}: its weight cannot be {weight:g}")
    if problems:
        hint = "A given part stands in the mix like 'rel: {weight: 0.2, given: true}'; penalties have negative weights"
        raise ConfigError("; ".join(sorted(problems)), f"{hint}; see configs/reward.yaml")
    absent = frozenset(wanted - set(given))
    versions = {name: part.version for name, part in everyone.items()} | dict.fromkeys(absent, ABSENT)
    digest = sha256_id(canonical_json([config.model_dump(mode="json"), versions]))[7:19]
    return Mix(config=config, rules=rules, given=dict(given), absent=absent, version=f"{config.version}+{digest}")


def _rule(name: str, part: Part) -> Rule:
    (rule,) = load_rules([part.rule or name])
    if not part.options:
        return rule
    known = {field.name for field in fields(rule) if field.type in ("float", float)} if is_dataclass(rule) else set[str]()
    if unknown := sorted(set(part.options) - known):
        raise ConfigError(f"{name} has no option {', '.join(unknown)}", f"It has {', '.join(sorted(known)) or 'none'}")
    said = ",".join(f"{key}={value:g}" for key, value in sorted(part.options.items()))
    return replace(rule, **part.options, version=f"{rule.version}({said})")  # type: ignore[type-var]


def load_scorer(name: str = "mix", config: MixConfig | None = None, given: GivenParts | None = None) -> Scorer:
    """`mix`, or your own as `module:object`: a scorer, or what makes one when called without arguments."""
    if name == "mix":
        return build_mix(config or MixConfig(), given)
    scorer = _imported("scorer", name)
    if not (hasattr(scorer, "score") and hasattr(scorer, "version")):
        raise ConfigError(f"'{name}' is not a scorer", "A scorer has a version and score(samples)")
    return scorer  # type: ignore[no-any-return]


def load_component(name: str, source: str) -> Component:
    """A given part of your own, as `module:object`: a component, or what makes one when called without arguments."""
    component = _imported("part", source or name)
    if not all(hasattr(component, wanted) for wanted in ("score", "version", "penalty")):
        raise ConfigError(f"'{source}' is no part of a reward", "A part has a name, a version, penalty and score(samples)")
    return component  # type: ignore[no-any-return]


def _imported(kind: str, name: str) -> Any:
    module, sign, attribute = name.partition(":")
    if not sign:
        raise ConfigError(f"There is no {kind} '{name}'", "It is named in the docs, or your own as module:object")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise ConfigError(f"The {kind} '{name}' cannot be imported", "Check the module and the name after the colon") from None
    try:
        return found() if isinstance(found, type) or not hasattr(found, "score") else found
    except TypeError:
        raise ConfigError(f"'{name}' cannot be called without arguments", f"Name a {kind}, or what makes one") from None
