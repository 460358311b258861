"""Rounds from files: scores, the answers they belong to, and the held-out scores of the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medloop.contracts import Reward, Sample
from medloop.errors import ConfigError, InputError
from medloop.evaluate.hacking.panel import Round, Row
from medloop.evaluate.inspection.pool import SCORES_END, answers_of
from medloop.evaluate.side_by_side import by_name
from medloop.store.files import jsonl

ReadSamples = Callable[[Path], Iterable[Sample]]
KeyOf = Callable[[Sample, str], str]


def read_rounds(
    scores: Sequence[Path], held_out: Sequence[Path], answers: Sequence[Path], *, read_samples: ReadSamples, key_of: KeyOf
) -> list[Round]:
    """One round per scores file, in order; answers lie beside them or are named, held-out scores are for all rounds or none."""
    for flag, given in (("--held-out", held_out), ("--answers", answers)):
        if given and len(given) != len(scores):
            raise ConfigError(
                f"{flag}: {len(given)} files for {len(scores)} rounds", "Name one file per round, in the same order"
            )
    texts = answers or [_beside(path) for path in scores]
    others: Sequence[Path | None] = held_out or [None] * len(scores)
    names = [name.removesuffix(SCORES_END.removesuffix(".jsonl")) for name in by_name(scores)]
    return [
        Round(name, _rows(path, text, other, read_samples, key_of))
        for name, path, text, other in zip(names, scores, texts, others, strict=True)
    ]


def _beside(scores: Path) -> Path:
    found = answers_of(scores)
    if not scores.name.endswith(SCORES_END) or not found.is_file():
        raise ConfigError(f"The answers of {scores} do not lie beside it", "Name them with --answers, one file per round")
    return found


def _rows(scores: Path, answers: Path, held_out: Path | None, read_samples: ReadSamples, key_of: KeyOf) -> list[Row]:
    samples = {sample.id: sample for sample in read_samples(answers)}
    other = _values(held_out, samples, key_of) if held_out else {}
    rows = []
    for number, row in jsonl.numbered(scores):
        reward = _reward(row, samples, key_of)
        if reward is None:
            raise InputError.at(scores, number, f"no score of an answer in {answers}", "Score that file: medloop reward score")
        sample = samples[row["id"]]
        rows.append(Row(sample.id, sample.question, sample.answer, reward, other.get(sample.id)))
    if not rows:
        raise InputError(f"{scores} holds no scores", "Score a file of answers: medloop reward score")
    if held_out and not any(one.held_out is not None for one in rows):
        raise InputError(f"{held_out} scores none of the answers of {scores}", "Its ids must be those of the answers")
    return rows


def _reward(row: dict[str, Any], samples: Mapping[str, Sample], key_of: KeyOf) -> Reward | None:
    """The reward of a line, if it was given to the very answer that has this id here."""
    try:
        reward, sample = Reward.model_validate(row["reward"]), samples[row["id"]]
    except (KeyError, TypeError, ValidationError):
        return None
    return reward if row.get("key") == key_of(sample, reward.version) else None


def _values(path: Path, samples: Mapping[str, Sample], key_of: KeyOf) -> dict[str, float | None]:
    """Held-out scores by id, of `medloop reward score` or `medloop teacher judge`. An id twice would mix two answers."""
    found: dict[str, float | None] = {}
    for number, row in jsonl.numbered(path):
        name = row.get("id", row.get("prompt_id"))
        if not isinstance(name, str) or not row.keys() & {"reward", "score", "missing", "teacher_score"}:
            raise InputError.at(
                path, number, "no id with a score", "Give a file of 'medloop reward score' or 'medloop teacher judge'"
            )
        if name in found:
            raise InputError.at(
                path, number, "this id has a score already", "Give one file per round: medloop teacher judge --output"
            )
        if "reward" in row and name in samples and _reward(row, samples, key_of) is None:
            raise InputError.at(path, number, "a score of another answer with this id", "Score the answers of this round")
        value = _value(row)
        if value is not None and not isinstance(value, int | float):
            raise InputError.at(path, number, "the score is no number", "Score the file again")
        found[name] = value
    return found


def _value(row: dict[str, Any]) -> Any:
    for name, key in (("reward", "value"), ("score", "value")):
        if isinstance(row.get(name), dict):
            return row[name].get(key)
    return row.get("teacher_score", row.get("score"))
