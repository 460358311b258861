"""Score a file of answers: one line with the breakdown per answer, continued where it was stopped.

Input lines are those of `store/files/answer_lines.py`. A `group` joins several answers to one prompt; `context` is what the
answer may rely on.

An output line has a `key`, the hash of sample and reward version. A second run scores only new keys and answers that lacked a
part. With `normalise` a value depends on its neighbours, so the whole file is scored at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from medloop.contracts import Contract, Missing, Reward, Sample, Score, ScoredAnswer, Scorer
from medloop.contracts.base import Hash, Text
from medloop.contracts.score import ABSENT
from medloop.errors import ConfigError
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import Questions, read_samples

AT_ONCE = 512  # answers between two writes

OnScored = Callable[[Sequence[Sample], Sequence[Reward]], None]


class ScoreLine(Contract):
    """A line of the output."""

    id: Text
    key: Hash
    reward: Reward

    def stored(self) -> ScoredAnswer:
        """The same for the store."""
        reward = self.reward
        return ScoredAnswer(score_id=self.key, sample_id=self.id, version=reward.version, value=reward.value, reward=reward)


@dataclass(frozen=True)
class PartSummary:
    """One part over a file: its mean where it has a value and applies, and how often it does not."""

    mean: float | None
    scored: int
    does_not_apply: int
    missing: int


@dataclass(frozen=True)
class FileSummary:
    answers: int
    already_there: int
    mean: float | None
    missing: int
    parts: dict[str, PartSummary]


def score_file(
    source: Path,
    output: Path,
    scorer: Scorer,
    *,
    questions: Questions | None = None,
    whole: bool = False,
    on_scored: OnScored = lambda samples, rewards: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FileSummary:
    """Score `source` into `output`; `whole` scores all at once. The input is read and checked before anything is written."""
    if output.exists() and source.exists() and output.samefile(source):
        raise ConfigError(f"{output} is the input itself", "Name another output")
    samples = {sample.score_key(scorer.version): sample for sample in read_samples(source, questions)}
    before = jsonl.read(output, ScoreLine) if output.is_file() and not whole else ()
    scored = {line.key: line for line in before if line.key in samples and (is_whole(line) or samples[line.key].answer is None)}
    left = [(key, sample) for key, sample in samples.items() if key not in scored]
    already_there, step = len(scored), len(left) if whole else AT_ONCE
    for start in range(0, len(left), max(step, 1)):
        part = left[start : start + step]
        batch = [sample for _, sample in part]
        rewards = scorer.score(batch)
        new = [ScoreLine(id=sample.id, key=key, reward=reward) for (key, sample), reward in zip(part, rewards, strict=True)]
        on_scored(batch, rewards)
        if not whole:
            jsonl.append(output, new)
        scored.update({line.key: line for line in new})
        progress(already_there + start + len(part), len(samples))
    lines = [scored[key] for key in samples]
    if whole or [row.get("key") for row in jsonl.read(output)] != list(samples):  # a key stands for the whole line
        jsonl.write(output, lines)
    return _summary([line.reward for line in lines], already_there)


def is_whole(line: ScoreLine) -> bool:
    """Whether no part is missing that another try might bring (a teacher that did not answer)."""
    return not any(isinstance(part, Missing) and part.version != ABSENT for part in line.reward.parts)


def _summary(rewards: Sequence[Reward], already_there: int) -> FileSummary:
    values = [reward.value for reward in rewards if reward.value is not None]
    columns: dict[str, list[Score | Missing]] = {}
    for reward in rewards:
        for part in reward.parts:
            columns.setdefault(part.name, []).append(part)
    parts = {}
    for name, column in columns.items():
        scores = [part for part in column if isinstance(part, Score)]
        applying = [score.value for score in scores if score.applies]
        mean = fmean(applying) if applying else None
        parts[name] = PartSummary(mean, len(applying), len(scores) - len(applying), len(column) - len(scores))
    return FileSummary(len(rewards), already_there, fmean(values) if values else None, len(rewards) - len(values), parts)
