"""Rounds from files: scores, the answers they belong to, and the held-out scores of the same answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medloop.contracts import Reward, Sample
from medloop.errors import ConfigError, InputError
from medloop.evaluate.hacking.measures import PanelRow
from medloop.evaluate.hacking.panel import TrainingRound
from medloop.evaluate.inspection.pool import SCORES_END, answers_of
from medloop.evaluate.side_by_side import label_files
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import Questions, read_samples


def read_rounds(
    scores: Sequence[Path], held_out: Sequence[Path], answers: Sequence[Path], questions: Sequence[Path] = ()
) -> list[TrainingRound]:
    """One round per scores file, in order; the answers are beside them or named, held-out scores are for all rounds or none."""
    for flag, files in (("--held-out", held_out), ("--answers", answers)):
        if files and len(files) != len(scores):
            raise ConfigError(
                f"{flag}: {len(files)} files for {len(scores)} rounds", "Name one file per round, in the same order"
            )
    answer_files = answers or [_beside(path) for path in scores]
    held_out_files: Sequence[Path | None] = held_out or [None] * len(scores)
    names = [name.removesuffix(SCORES_END.removesuffix(".jsonl")) for name in label_files(scores)]
    known = Questions(questions)
    return [
        TrainingRound(name, _rows(path, answer_file, held_out_file, known))
        for name, path, answer_file, held_out_file in zip(names, scores, answer_files, held_out_files, strict=True)
    ]


def _beside(scores: Path) -> Path:
    path = answers_of(scores)
    if not scores.name.endswith(SCORES_END) or not path.is_file():
        raise ConfigError(f"The answers of {scores} are not beside it", "Name them with --answers, one file per round")
    return path


def _rows(scores: Path, answers: Path, held_out: Path | None, questions: Questions) -> list[PanelRow]:
    samples = {sample.id: sample for sample in read_samples(answers, questions)}
    held_out_values = _values(held_out, samples) if held_out else {}
    rows = []
    for number, row in jsonl.numbered(scores):
        reward = _reward(row, samples)
        if reward is None:
            raise InputError.at(scores, number, f"no score of an answer in {answers}", "Score that file: medloop reward score")
        sample = samples[row["id"]]
        rows.append(PanelRow(sample.id, sample.question, sample.answer, reward, held_out_values.get(sample.id)))
    if not rows:
        raise InputError(f"{scores} has no scores", "Score a file of answers: medloop reward score")
    if held_out and not any(row.held_out is not None for row in rows):
        raise InputError(f"{held_out} scores none of the answers of {scores}", "Its ids must be those of the answers")
    return rows


def _reward(row: dict[str, Any], samples: Mapping[str, Sample]) -> Reward | None:
    """The reward of a line, if it was given to the very answer that has this id here."""
    try:
        reward, sample = Reward.model_validate(row["reward"]), samples[row["id"]]
    except (KeyError, TypeError, ValidationError):
        return None
    return reward if row.get("key") == sample.score_key(reward.version) else None


def _values(path: Path, samples: Mapping[str, Sample]) -> dict[str, float | None]:
    """Held-out scores by id, from `medloop reward score` or `medloop teacher judge`. The same id twice would mix two answers."""
    values: dict[str, float | None] = {}
    for number, row in jsonl.numbered(path):
        name = row.get("id", row.get("prompt_id"))
        if not isinstance(name, str) or not row.keys() & {"reward", "score", "missing", "teacher_score"}:
            raise InputError.at(
                path, number, "no id with a score", "Give a file of 'medloop reward score' or 'medloop teacher judge'"
            )
        if name in values:
            raise InputError.at(
                path, number, "this id already has a score", "Give one file per round: medloop teacher judge --output"
            )
        if "reward" in row and name in samples and _reward(row, samples) is None:
            raise InputError.at(path, number, "a score of another answer with this id", "Score the answers of this round")
        value = _value(row)
        if value is not None and not isinstance(value, int | float):
            raise InputError.at(path, number, "the score is not a number", "Score the file again")
        values[name] = value
    return values


def _value(row: dict[str, Any]) -> Any:
    for name in ("reward", "score"):
        if isinstance(row.get(name), dict):
            return row[name].get("value")
    return row.get("teacher_score", row.get("score"))
