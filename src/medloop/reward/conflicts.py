"""Where teacher and rules disagree: `data/rl/teacher_conflicts.jsonl`, for the medical reviewer.

    write_conflicts(path, samples, rewards, config)      # after scoring; returns how many are new

The score of the rules is their part of the mix, as a share of what they could earn, 0–1. A conflict is written once per answer
and versions: scoring the same file again adds nothing, a new rule or prompt version may.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from medloop.contracts import Contract, Missing, Reward, Sample, Score, canonical_json, sha256_id, utc_now
from medloop.contracts.base import Hash, Text, Timestamp, Unit
from medloop.reward.mix import MixConfig
from medloop.store.files import jsonl

TEACHER = "teacher"


class Conflict(Contract):
    """A line of `teacher_conflicts.jsonl`."""

    key: Hash
    id: Text
    question: str
    answer: str
    teacher: Unit
    rules: Unit
    gap: Unit
    parts: tuple[Score | Missing, ...]
    version: Text
    timestamp: Timestamp


def write_conflicts(path: Path, samples: Sequence[Sample], rewards: Sequence[Reward], config: MixConfig) -> int:
    """Append the new conflicts; returns how many."""
    conflicts = {conflict.key: conflict for conflict in find_conflicts(samples, rewards, config)}
    if not conflicts:
        return 0
    known = {row["key"] for row in jsonl.read(path)} if path.is_file() else set()
    new = [conflict for key, conflict in conflicts.items() if key not in known]
    return jsonl.append(path, new) if new else 0


def find_conflicts(samples: Sequence[Sample], rewards: Sequence[Reward], config: MixConfig) -> Iterator[Conflict]:
    for sample, reward in zip(samples, rewards, strict=True):
        teacher = next((part for part in reward.parts if part.name == TEACHER and isinstance(part, Score)), None)
        rules = rules_share(reward, config)
        if teacher is None or rules is None or sample.answer is None or abs(teacher.value - rules) <= config.conflict:
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
            parts=reward.parts,
            version=reward.version,
            timestamp=utc_now(),
        )


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
