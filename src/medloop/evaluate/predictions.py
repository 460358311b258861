"""The answers to evaluate: from models, from files of predictions, and the reference answers of the data.

Models answer through the shared cache (answer_cache.py). `predictions_<label>.jsonl` beside a report has its answers, one a line.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from medloop.bootstrap import LEVEL
from medloop.contracts import Contract, Record, Sample, SuiteConfig
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import InputError
from medloop.evaluate.answer_cache import CachedAnswer
from medloop.evaluate.examined import AnswerSampling, AskedPrompt, ExaminedModel, Progress
from medloop.evaluate.run import EvalAnswer
from medloop.models.context_limits import ContextLimits
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import AnswerLine, read_answers, refuse_duplicate

LOOKS, FIRST_LOOK = 4, 30
DEFAULT_SPLITS = ("dev", "test", "gold", "red")


class EvalConfig(Contract):
    """Which questions, and how they are answered."""

    splits: tuple[str, ...] = DEFAULT_SPLITS
    n: int = Field(100, ge=1)
    """Questions per split, drawn by hash of the record and the seed; all of them where a split has fewer."""
    max_new_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0)
    """0 is greedy: the same answers every time."""
    limits: ContextLimits = ContextLimits()
    """How many context passages of a question stand in its prompt, and how long that may be."""
    batch_size: int = Field(64, ge=1)
    """Prompts answered together; changes the speed, not the answers."""
    seed: int = Field(42, ge=0)
    resamples: int = Field(2000, ge=100)
    """Bootstrap draws behind each interval."""
    accept_untrusted: bool = False
    """Compare models by rules although people disagree with one of them (medloop reward validate); the report says so."""

    precision: float | None = Field(None, gt=0, lt=1)
    """Stop asking when half the interval of every metric on every whole split is at most this (early_stop.py)."""
    all_pairs: bool = False
    """Compare each model with every other one, not only with the first."""
    fresh: bool = False
    """Ask again although answers are stored: a model behind a URL may have changed."""

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many questions per split the precision is looked at; the last look is at all of them."""
        if self.precision is None:
            return (self.n,)
        return tuple(sorted({max(min(FIRST_LOOK, self.n), self.n // 2**halved) for halved in range(LOOKS)}))

    @property
    def level(self) -> float:
        """Of every interval: several looks share the 5 % of error."""
        return 1 - (1 - LEVEL) / len(self.looks)

    @property
    def sampling(self) -> AnswerSampling:
        return AnswerSampling(self.max_new_tokens, self.temperature, self.seed, self.limits)

    def suite(self, n: int) -> SuiteConfig:
        """What the suites are told at one look."""
        return SuiteConfig(n=n, seed=self.seed, max_new_tokens=self.max_new_tokens, batch_size=self.batch_size)


class Prediction(Contract):
    """A line of `predictions_<label>.jsonl`."""

    record_id: str
    split: str
    key: str
    text: str
    finish_reason: Literal["stop", "length", "error"] = "stop"
    n_tokens: int = 0


def read_splits(folder: Path, config: EvalConfig) -> dict[str, tuple[Record, ...]]:
    """The questions of each split. A split asked for by name must be there; of the default ones, those that exist."""
    named = config.splits != DEFAULT_SPLITS
    splits = {}
    for split in config.splits:
        if split not in SPLIT_FILES:
            raise InputError(f"There is no split '{split}'", f"Splits are {', '.join(SPLIT_FILES)}")
        path = folder / SPLIT_FILES[split]
        if path.is_file():
            splits[split] = _draw(jsonl.read(path, Record), config.n, config.seed)
        elif named:
            raise InputError(f"{path} does not exist", "Make the splits with: medloop data prepare")
    if not any(splits.values()):
        raise InputError(f"{folder} has no questions to evaluate on", "Make the splits with: medloop data prepare")
    return splits


def _draw(records: Iterable[Record], n: int, seed: int) -> tuple[Record, ...]:
    """`n` records by the hash of their id: the same ones in any order of the file."""
    ordered = sorted(records, key=lambda record: hashlib.sha256(f"{seed}:{record.record_id}".encode()).digest())
    return tuple(ordered[:n])


def answer_all(
    splits: Mapping[str, Sequence[Record]], model: ExaminedModel, path: Path, config: EvalConfig, progress: Progress | None = None
) -> list[EvalAnswer]:
    """Every question answered, from the cache where it can be; `path` gets the answers, one a line."""
    asked = [(split, record) for split, records in splits.items() for record in records]
    prompts = [AskedPrompt(record.conversation.prompt, record.context or ()) for _, record in asked]
    answers = model.complete(prompts, config.sampling, batch_size=config.batch_size, progress=progress)
    pairs = list(zip(asked, answers, strict=True))
    jsonl.write(path, [_prediction(split, record, answer) for (split, record), answer in pairs])
    return [_answer_of(split, record, answer) for (split, record), answer in pairs]


def _prediction(split: str, record: Record, answer: CachedAnswer) -> Prediction:
    return Prediction(
        record_id=record.record_id, split=split, key=answer.key, text=answer.text, finish_reason=answer.finish_reason,
        n_tokens=answer.n_tokens,
    )  # fmt: skip


def _answer_of(split: str, record: Record, answer: CachedAnswer) -> EvalAnswer:
    text = None if answer.finish_reason == "error" else answer.text
    return eval_answer(split, record, text, answer.why_missing, truncated=answer.finish_reason == "length")


def eval_answer(split: str, record: Record, answer: str | None, why_missing: str, *, truncated: bool = False) -> EvalAnswer:
    sample = Sample(id=record.record_id, question=record.conversation.user_text, answer=answer, why_missing=why_missing)
    return EvalAnswer(sample, split, record.language, record.strata, truncated)


def references(splits: Mapping[str, Sequence[Record]]) -> list[EvalAnswer]:
    """The answers in the data itself, to be scored like a model's; splits without answers are left out."""
    return [
        eval_answer(split, record, record.conversation.answer, "the record has no answer")
        for split, records in splits.items()
        if any(record.conversation.answer for record in records)
        for record in records
    ]


def read_predictions(path: Path, splits: Mapping[str, Sequence[Record]]) -> list[EvalAnswer]:
    """Answers made elsewhere, matched by the id of their record; a record without one is missing."""
    known = {record.record_id for records in splits.values() for record in records}
    lines, first_lines = dict[str, AnswerLine](), dict[str, int]()
    for line in read_answers(path, unique=False, need_question=False):
        if not line.ids:
            raise InputError.at(path, line.number, "no record_id", 'Lines look like {"record_id": ..., "answer": ...}')
        name = next((name for name in line.ids if name in known), line.ids[0])
        refuse_duplicate(first_lines, name, path, line.number)
        lines[name] = line
    answers = [_predicted(split, record, lines.get(record.record_id)) for split, records in splits.items() for record in records]
    if all(answer.sample.answer is None for answer in answers):
        raise InputError(f"{path} answers none of the questions", "Its record_id values must be those of data/processed")
    return answers


def _predicted(split: str, record: Record, line: AnswerLine | None) -> EvalAnswer:
    if line is None:
        return eval_answer(split, record, None, "no prediction for this record")
    return eval_answer(split, record, line.answer, "the model gave no answer", truncated=line.truncated)
