"""The trust meter: every part of a reward, the whole mix and the urgency detector against labels that people gave.

    recall      share of the labelled faults (or emergencies) that the judge sees
    precision   share of what the judge sees that people labelled so
    agreement   share of pairs in which the judge prefers the answer that people preferred; a tie is half

Each quantity has its Wilson interval, over all cases and by language, stratum and source. A judge is `trusted` when the lower
end of every interval over all cases reaches its bound, `untrusted` when one does not, and `unmeasured` with too few cases.
A missing score is not counted as right or wrong: it is in `missing`. An urgency of "unknown" is missing as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from medloop.bootstrap import share_interval, wilson
from medloop.contracts import Contract, Missing, Reward, Sample, Score, canonical_json, sha256_id
from medloop.contracts.base import Unit
from medloop.contracts.detect import Urgency
from medloop.contracts.evaluation import Interval
from medloop.contracts.validity import JudgeTrust, LabelledCase, Quantity, Validity, ValidityCard
from medloop.errors import ConfigError, InputError
from medloop.lexicon.language import detect_language
from medloop.reward.mix import RewardMix
from medloop.store.files import jsonl

MIX, URGENCY, ALL = "reward", "urgency", "all"
AT_ONCE = 256  # cases scored in one call
Strata = Callable[[str], Sequence[str]]


class TrustConfig(Contract):
    """The bounds that the lower end of an interval must reach."""

    recall: Unit = 0.6
    """Least share of labelled faults and emergencies that a judge must see."""
    precision: Unit = 0.6
    """Least share of what a judge sees that people must have labelled so."""
    agreement: Unit = 0.5
    """Least share of pairs on which a judge must agree with people; 0.5 is chance."""
    min_cases: int = Field(20, ge=1)
    """With fewer cases a quantity is not measured."""
    threshold: Unit = 0.25
    """From this value on a penalty counts as seen."""


@dataclass
class Tally:
    """Hits of one quantity on one slice."""

    hits: float = 0.0
    n: int = 0
    ties: int = 0
    missing: int = 0

    def interval(self) -> Interval:
        if self.ties:
            low, high = wilson(self.hits, self.n)
            return Interval(mean=self.hits / self.n, low=low, high=high, n=self.n, missing=self.missing)
        return share_interval(int(self.hits), self.n).model_copy(update={"missing": self.missing})


@dataclass
class Counts:
    """All tallies by judge, quantity and slice."""

    tallies: dict[tuple[str, Quantity, str], Tally] = field(default_factory=lambda: defaultdict(Tally))

    def count(self, judge: str, quantity: Quantity, slices: Iterable[str], hit: float | None) -> None:
        """`hit`: 1, 0, 0.5 for a tie, None for a missing score."""
        for name in slices:
            tally = self.tallies[judge, quantity, name]
            if hit is None:
                tally.missing += 1
                continue
            tally.hits, tally.n, tally.ties = tally.hits + hit, tally.n + 1, tally.ties + (hit == 0.5)

    def verdict(self, judge: str, slices: Sequence[str], label: bool, seen: bool | None) -> None:
        """A yes or no against a label: it counts for recall if people said yes, for precision if the judge did."""
        if label:
            self.count(judge, "recall", slices, None if seen is None else float(seen))
        if seen:
            self.count(judge, "precision", slices, float(label))


def read_cases(paths: Sequence[Path]) -> list[LabelledCase]:
    """The cases of all files. A case without a source is from its file; an id may stand only once."""
    cases: dict[str, LabelledCase] = {}
    for path in paths:
        for case in jsonl.read(path, LabelledCase):
            named = case if case.source else case.model_copy(update={"source": path.name.split(".")[0]})
            if case.id in cases and cases[case.id] != named:
                raise InputError(f"The id '{case.id}' has two different cases", f"Give each case its own id; see {path}")
            cases[case.id] = named
    if not cases:
        raise InputError("There are no labelled cases", "Name a file of JSON lines with questions and labels")
    return list(cases.values())


def measure(
    cases: Sequence[LabelledCase],
    mix: RewardMix,
    *,
    config: TrustConfig | None = None,
    urgency: Callable[[str], Urgency],
    strata: Strata = lambda question: (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ValidityCard:
    """The validity card of a mix on labelled cases."""
    config = config or TrustConfig()
    _check_faults(cases, mix)
    counts = Counts()
    detector_version = ""
    for start in range(0, len(cases), AT_ONCE):
        chunk = cases[start : start + AT_ONCE]
        rewards = _rewards(chunk, mix)
        for case in chunk:
            slices = [ALL, f"language={detect_language(case.question)}", f"source={case.source}"]
            slices += [f"stratum={name}" for name in strata(case.question)]
            if case.urgency is not None:
                finding = urgency(case.question)
                detector_version = finding.version
                _count_urgency(counts, slices, case, finding)
            for name, label in case.faults.items():
                seen = _seen(_part(rewards[case.id, "answer"], name), config.threshold)
                counts.verdict(name, slices, label, seen)
            if case.chosen is not None:
                _count_pair(counts, slices, rewards[case.id, "chosen"], rewards[case.id, "rejected"], mix)
        progress(min(start + AT_ONCE, len(cases)), len(cases))
    versions = {MIX: mix.version, **{name: part.version for name, part in mix.objective.parts.items()}}
    if detector_version:
        versions[URGENCY] = detector_version
    return _card(cases, counts, versions, config, mix.version)


def _check_faults(cases: Sequence[LabelledCase], mix: RewardMix) -> None:
    penalties = {name for name, part in mix.config.parts.items() if part.weight < 0}
    if unknown := sorted({name for case in cases for name in case.faults} - penalties):
        hint = f"Faults are named like the penalties of the reward: {', '.join(sorted(penalties))}"
        raise ConfigError(f"The cases label {', '.join(unknown)}, which the reward does not have", hint)


def _rewards(cases: Sequence[LabelledCase], mix: RewardMix) -> dict[tuple[str, str], Reward]:
    """The reward of every answer of the cases, by case and by which answer it is."""
    answers = [
        (case, which, text)
        for case in cases
        for which, text in (("answer", case.answer), ("chosen", case.chosen), ("rejected", case.rejected))
        if text is not None and (which != "answer" or case.faults)
    ]
    samples = [Sample(id=f"{case.id}/{which}", question=case.question, answer=text) for case, which, text in answers]
    rewards = mix.score(samples) if samples else []
    return {(case.id, which): reward for (case, which, _), reward in zip(answers, rewards, strict=True)}


def _part(reward: Reward, name: str) -> Score | Missing:
    return next(part for part in reward.parts if part.name == name)


def _seen(part: Score | Missing, threshold: float) -> bool | None:
    if isinstance(part, Missing):
        return None
    return part.applies and part.value >= threshold


def _count_urgency(counts: Counts, slices: Sequence[str], case: LabelledCase, finding: Urgency) -> None:
    """Emergent against the rest. What people call urgent lies between: an alarm there is neither right nor wrong."""
    seen = None if finding.level == "unknown" else finding.level == "emergent"
    if case.urgency == "emergent":
        counts.verdict(URGENCY, slices, True, seen)
    elif case.urgency == "routine":
        counts.verdict(URGENCY, slices, False, seen)


def _count_pair(counts: Counts, slices: Sequence[str], chosen: Reward, rejected: Reward, mix: RewardMix) -> None:
    counts.count(MIX, "agreement", slices, _preference(chosen.value, rejected.value))
    for name, part in mix.config.parts.items():
        if not part.weight or name in mix.absent:
            continue
        first, second = _part(chosen, name), _part(rejected, name)
        if isinstance(first, Missing) or isinstance(second, Missing):
            counts.count(name, "agreement", slices, None)
        elif first.applies and second.applies and first.value != second.value:  # most parts tie on most pairs, and say nothing
            sign = 1 if part.weight > 0 else -1
            counts.count(name, "agreement", slices, _preference(sign * first.value, sign * second.value))


def _preference(chosen: float | None, rejected: float | None) -> float | None:
    if chosen is None or rejected is None:
        return None
    return 0.5 if chosen == rejected else float(chosen > rejected)


def _card(
    cases: Sequence[LabelledCase], counts: Counts, versions: Mapping[str, str], config: TrustConfig, reward_version: str
) -> ValidityCard:
    measures = tuple(
        Validity(judge=judge, quantity=quantity, slice=name, value=tally.interval(), ties=tally.ties)
        for (judge, quantity, name), tally in sorted(counts.tallies.items())
    )
    judges = tuple(
        judge_trust(judge, version, [row for row in measures if row.judge == judge and row.slice == ALL], config)
        for judge, version in versions.items()
    )
    digest = sha256_id(canonical_json([case.model_dump(mode="json", exclude_none=True) for case in cases]))
    bounds = {"recall": config.recall, "precision": config.precision, "agreement": config.agreement}
    return ValidityCard(
        reward_version=reward_version, cases=digest, n_cases=len(cases), judges=judges, measures=measures, bounds=bounds,
        sources=tuple(sorted({case.source for case in cases if case.source})),
    )  # fmt: skip


def judge_trust(judge: str, version: str, measures: Sequence[Validity], config: TrustConfig) -> JudgeTrust:
    """Below one bound: untrusted. Nothing measured on enough cases: unmeasured."""
    bounds: dict[Quantity, float] = {"recall": config.recall, "precision": config.precision, "agreement": config.agreement}
    enough = [row for row in measures if row.value.n >= config.min_cases]
    for row in enough:
        if (row.value.low or 0.0) < bounds[row.quantity]:
            reason = f"{row.quantity} {_said(row.value)} may be below {bounds[row.quantity]:g}"
            return JudgeTrust(judge=judge, version=version, verdict="untrusted", reason=reason)
    if not enough:
        most = max((row.value.n for row in measures), default=0)
        reason = f"{most} cases, at least {config.min_cases} are needed" if most else "no case labels what it judges"
        return JudgeTrust(judge=judge, version=version, verdict="unmeasured", reason=reason)
    reason = ", ".join(f"{row.quantity} {_said(row.value)}" for row in enough)
    return JudgeTrust(judge=judge, version=version, verdict="trusted", reason=reason)


def _said(value: Interval) -> str:
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}] of {value.n}"


def rows_of(card: ValidityCard) -> Iterator[tuple[str, str, str, str]]:
    """Judge, verdict, reason and version, untrusted ones first."""
    order = {"untrusted": 0, "unmeasured": 1, "trusted": 2}
    for row in sorted(card.judges, key=lambda row: order[row.verdict]):
        yield row.judge, row.verdict, row.reason, row.version
