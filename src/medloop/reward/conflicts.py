"""Where teacher and rules disagree: `data/rl/teacher_conflicts.jsonl`, for the medical reviewer.

    write_conflicts(path, samples, rewards, config)      # after scoring, also in training; returns how many are new

The score of the rules is their part of the mix, as a share of what they could earn, 0–1. A conflict is written once per answer
and versions: scoring the same file again adds nothing, a new rule or prompt version may. The teacher's critique and its better
answer stand in the line. Praise of an answer in which a rule found harm is a conflict however small the gap, and names the rule:
the teacher may have been talked round.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from medloop.contracts import Contract, Missing, Reward, Sample, Score, canonical_json, sha256_id, utc_now
from medloop.contracts.base import Hash, Text, Timestamp, Unit
from medloop.reward.mix import MixConfig
from medloop.store.files import jsonl

TEACHER = "teacher"
PRAISE = 0.5  # a teacher's score from which it contradicts a rule that found harm


class Conflict(Contract):
    """A line of `teacher_conflicts.jsonl`."""

    key: Hash
    id: Text
    question: str
    answer: str
    teacher: Unit
    rules: Unit
    gap: Unit
    harm: tuple[Text, ...] = ()
    """Gates of the mix that a rule has closed although the teacher praises the answer."""
    parts: tuple[Score | Missing, ...]
    critique: Text | None = None
    suggested_answer: str | None = None
    version: Text
    timestamp: Timestamp


def write_conflicts(
    path: Path, samples: Sequence[Sample], rewards: Sequence[Reward], config: MixConfig, *, relative: bool = False
) -> int:
    """Append the new conflicts; returns how many. `relative`: the teacher ranks, so the rules' scores are ranked the same way."""
    conflicts = {conflict.key: conflict for conflict in find_conflicts(samples, rewards, config, relative=relative)}
    if not conflicts:
        return 0
    known = {row["key"] for row in jsonl.read(path)} if path.is_file() else set()
    new = [conflict for key, conflict in conflicts.items() if key not in known]
    return jsonl.append(path, new) if new else 0


def find_conflicts(
    samples: Sequence[Sample], rewards: Sequence[Reward], config: MixConfig, *, relative: bool = False
) -> Iterator[Conflict]:
    shares = [rules_share(reward, config) for reward in rewards]
    if relative:
        shares = _ranked(samples, shares)
    for sample, reward, rules in zip(samples, rewards, shares, strict=True):
        scores = (part for part in reward.parts if part.name == TEACHER and isinstance(part, Score) and part.applies)
        teacher = next(scores, None)
        if teacher is None or rules is None or sample.answer is None:
            continue
        harm = _harm(reward, config) if teacher.value >= PRAISE and not relative else ()
        if abs(teacher.value - rules) <= config.conflict and not harm:
            continue
        versions = {part.name: part.version for part in reward.parts}
        yield Conflict(
            key=sha256_id(canonical_json([sample.question, sample.answer, teacher.value, versions, reward.version])),
            id=sample.id,
            question=sample.question,
            answer=sample.answer,
            teacher=teacher.value,
            rules=rules,
            gap=round(abs(teacher.value - rules), 6),
            harm=harm,
            parts=reward.parts,
            critique=teacher.reason,
            suggested_answer=teacher.suggested_answer,
            version=reward.version,
            timestamp=utc_now(),
        )


def _harm(reward: Reward, config: MixConfig) -> tuple[str, ...]:
    """The rules that found harm: gates with a negative weight, at least half closed."""
    rules = (part for part in reward.parts if isinstance(part, Score) and part.applies and not config.parts[part.name].given)
    gates = (part for part in rules if config.parts[part.name].gate and config.parts[part.name].weight < 0)
    return tuple(part.name for part in gates if part.value >= 0.5)


def _ranked(samples: Sequence[Sample], shares: Sequence[float | None]) -> list[float | None]:
    """The share of the other answers to the same question that score less; ties count half. None where there is no other."""
    groups: dict[tuple[str | None, str], list[float]] = {}
    for sample, share in zip(samples, shares, strict=True):
        if share is not None:
            groups.setdefault((sample.group, sample.question), []).append(share)
    ranks: list[float | None] = []
    for sample, share in zip(samples, shares, strict=True):
        values = groups.get((sample.group, sample.question), [])
        if share is None or len(values) < 2:
            ranks.append(None)
            continue
        below, tied = sum(value < share for value in values), sum(value == share for value in values) - 1
        ranks.append(round((below + tied / 2) / (len(values) - 1), 6))
    return ranks


def rules_share(reward: Reward, config: MixConfig) -> float | None:
    """The mix without its given parts, as a share of what could be earned; None when no rule has a score."""
    scores = [
        (config.parts[part.name].weight, part.value)
        for part in reward.parts
        if isinstance(part, Score) and part.applies and not config.parts[part.name].given
    ]
    highest = sum(weight for weight, _ in scores if weight > 0)
    if not highest:
        return None
    total = sum(weight * value * (reward.gate if weight > 0 else 1.0) for weight, value in scores)
    return round(min(1.0, max(0.0, total / highest)), 6)
