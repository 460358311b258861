"""Score a file of answers: JSON lines in, one line with the breakdown per answer out, continued where it was stopped.

A line in is `question` (or `prompt`, `messages`, `conversation`) with `answer` (or `text`; else the last assistant message), an
`id` (or `record_id`, `prompt_id`) and, if there are several answers to a prompt, a `group`; `context` is what the answer may
rely on. Of a conversation the rules see all
that the user said: a red flag in the first message is still one in the third.

A line out carries a `key`, the hash of sample and reward version. A second run scores only keys it does not find, and
answers of which a part was missing. With
`normalise` a value depends on its neighbours, so the whole file is scored at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from medloop.contracts import Contract, Missing, Reward, Sample, Score, ScoredAnswer, Scorer, canonical_json, sha256_id
from medloop.contracts.base import Hash, Text
from medloop.errors import ConfigError, InputError
from medloop.reward.mix import ABSENT
from medloop.store.files import jsonl

AT_ONCE = 512  # answers between two writes
IDS = ("id", "record_id", "prompt_id")

Scored = Callable[[Sequence[Sample], Sequence[Reward]], None]


class Line(Contract):
    """A line of the output."""

    id: Text
    key: Hash
    reward: Reward

    def stored(self) -> ScoredAnswer:
        """The same for the store."""
        said = self.reward
        return ScoredAnswer(score_id=self.key, sample_id=self.id, version=said.version, value=said.value, reward=said)


@dataclass(frozen=True)
class PartSummary:
    """Of one part over a file: its mean where it has a value and applies, and how often it has not."""

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
    whole: bool = False,
    scored: Scored = lambda samples, rewards: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FileSummary:
    """Score `source` into `output`; `whole` scores all at once. The input is read and checked before anything is written."""
    if output.exists() and source.exists() and output.samefile(source):
        raise ConfigError(f"{output} is the input itself", "Name another output")
    wanted = {sample_key(sample, scorer.version): sample for sample in read_samples(source)}
    before = jsonl.read(output, Line) if output.is_file() and not whole else ()
    known = {line.key: line for line in before if line.key in wanted and (is_whole(line) or wanted[line.key].answer is None)}
    left = [(key, sample) for key, sample in wanted.items() if key not in known]
    there, step = len(known), len(left) if whole else AT_ONCE
    for start in range(0, len(left), max(step, 1)):
        part = left[start : start + step]
        samples = [sample for _, sample in part]
        rewards = scorer.score(samples)
        new = [Line(id=sample.id, key=key, reward=reward) for (key, sample), reward in zip(part, rewards, strict=True)]
        scored(samples, rewards)
        if not whole:
            jsonl.append(output, new)
        known.update({line.key: line for line in new})
        progress(there + start + len(part), len(wanted))
    lines = [known[key] for key in wanted]
    if whole or list(jsonl.read(output, Line)) != lines:
        jsonl.write(output, lines)
    return _summary([line.reward for line in lines], there)


def is_whole(line: Line) -> bool:
    """Whether nothing was missing that might be there at another try (a teacher that did not answer)."""
    return not any(isinstance(part, Missing) and part.version != ABSENT for part in line.reward.parts)


def sample_key(sample: Sample, version: str) -> str:
    return sha256_id(canonical_json([sample.model_dump(mode="json", exclude_none=True), version]))


def read_samples(path: Path) -> Iterator[Sample]:
    """Every answer of a file, streaming; the first bad line stops with an InputError that names it."""
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path} is empty", "Give a file with one JSON object per line")
    seen: set[str] = set()
    for number, row in jsonl.numbered(path):
        try:
            sample = sample_of(row, default_id=str(number))
        except ValueError as problem:
            hint = 'Lines look like {"id": ..., "question": ..., "answer": ...}'
            raise InputError.at(path, number, str(problem), hint) from None
        if sample.id in seen:
            raise InputError.at(path, number, "its id stands on an earlier line too", "Give each answer its own id, and a group")
        seen.add(sample.id)
        yield sample


def sample_of(row: dict[str, Any], default_id: str) -> Sample:
    """A line as a sample; ValueError says what is lacking, never what stands there."""
    messages = _messages(row)
    question = "\n".join(m["content"] for m in messages if m["role"] == "user") or row.get("question", row.get("prompt"))
    answer = row.get("answer", row.get("text"))
    if answer is None and messages and messages[-1]["role"] == "assistant":
        answer = messages[-1]["content"]
    if not isinstance(question, str):
        raise ValueError("no question")
    if answer is not None and not isinstance(answer, str):
        raise ValueError("the answer is not a text")
    failed = row.get("finish_reason") == "error"
    if answer is None and not failed:
        raise ValueError("no answer")
    name = next((str(row[key]) for key in IDS if row.get(key) not in (None, "")), default_id)
    group = row.get("group")
    return Sample(
        id=name, question=question, answer=None if failed else answer, group=str(group) if group else None,
        context=_context(row), why_missing="the model gave no answer",
    )  # fmt: skip


def _context(row: dict[str, Any]) -> str | None:
    """What the answer may rely on: a text, or a list of passages."""
    found = row.get("context", row.get("contexts"))
    passages = found if isinstance(found, list) else [found]
    return "\n".join(text for text in passages if isinstance(text, str) and text) or None


def _messages(row: dict[str, Any]) -> list[dict[str, str]]:
    found = row.get("messages")
    if found is None and isinstance(row.get("conversation"), dict):
        found = row["conversation"].get("messages")
    if found is None:
        return []
    good = isinstance(found, list) and all(
        isinstance(m, dict) and isinstance(m.get("content"), str) and "role" in m for m in found
    )
    if not good:
        raise ValueError("messages are not a list of role and content")
    return list(found)


def _summary(rewards: Sequence[Reward], there: int) -> FileSummary:
    values = [reward.value for reward in rewards if reward.value is not None]
    columns: dict[str, list[Any]] = {}
    for reward in rewards:
        for part in reward.parts:
            columns.setdefault(part.name, []).append(part)
    parts = {}
    for name, column in columns.items():
        had = [part for part in column if isinstance(part, Score)]
        said = [part.value for part in had if part.applies]
        parts[name] = PartSummary(fmean(said) if said else None, len(said), len(had) - len(said), len(column) - len(had))
    mean = fmean(values) if values else None
    return FileSummary(len(rewards), there, mean, len(rewards) - len(values), parts)
