"""The answers to evaluate: from models, from files of predictions, and the reference answers of the data.

`predictions_<label>.jsonl` has one line per answer with a `key`: the hash of model, adapter, prompt and sampling. A second run
generates only the keys that are missing, so a killed evaluation continues where it stopped and a changed model answers again.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from medloop.contracts import Completion, Contract, Message, Record, Sample, canonical_json, sha256_id
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import InputError
from medloop.evaluate.run import EvalAnswer
from medloop.models.context_limits import ContextLimits
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import AnswerLine, read_answers, refuse_duplicate

DEFAULT_SPLITS = ("dev", "test", "gold", "red")
AT_ONCE = 8  # batches between two writes to the disk

Progress = Callable[[int, int], None]  # answers so far, answers in all


class Generate(Protocol):
    """Prompts in, completions out, in the same order."""

    def with_passages(
        self, messages: Sequence[Message], passages: Sequence[str], limits: ContextLimits
    ) -> tuple[Sequence[Message], tuple[str, ...]]: ...

    def __call__(
        self, prompts: Sequence[Sequence[Message]], *, max_new_tokens: int, temperature: float, seed: int, batch_size: int
    ) -> list[Completion]: ...


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
    batch_size: int = Field(16, ge=1)
    """Prompts answered together; changes the speed, not the answers."""
    seed: int = Field(42, ge=0)
    resamples: int = Field(2000, ge=100)
    """Bootstrap draws behind each interval."""
    accept_untrusted: bool = False
    """Compare models by rules although people disagree with one of them (medloop reward validate); the report says so."""

    @property
    def sampling(self) -> dict[str, Any]:
        """What determines an answer besides model and prompt."""
        seed = self.seed if self.temperature > 0 else None
        return {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature, "seed": seed}


class Prediction(Contract):
    """A line of `predictions_<label>.jsonl`."""

    record_id: str
    split: str
    key: str
    text: str
    finish_reason: str = "stop"
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


def prompt_key(record: Record, model: Mapping[str, str | None], config: EvalConfig) -> str:
    prompt = [message.model_dump() for message in record.conversation.prompt]
    context = {"context": record.context[: config.limits.top_k], "max_prompt": config.limits.max_prompt} if record.context else {}
    return sha256_id(canonical_json({"model": dict(model), "prompt": prompt, **context, **config.sampling}))


def answer_all(
    splits: Mapping[str, Sequence[Record]],
    load: Callable[[], Generate],
    model: Mapping[str, str | None],
    path: Path,
    config: EvalConfig,
    progress: Progress | None = None,
) -> list[EvalAnswer]:
    """Every question answered, from the file where it can be; the model is loaded only when an answer is missing."""
    asked = [(split, record, prompt_key(record, model, config)) for split, records in splits.items() for record in records]
    known = {line.key: line for line in jsonl.read(path, Prediction)} if path.is_file() else {}
    missing = list({key: (split, record, key) for split, record, key in asked if key not in known}.values())
    generate = load() if missing else None
    step = config.batch_size * AT_ONCE
    for start in range(0, len(missing), step):
        assert generate is not None
        part = missing[start : start + step]
        if progress is not None:
            progress(len(asked) - len(missing) + start, len(asked))
        new = _predict(generate, part, config)
        jsonl.append(path, new)
        known.update({line.key: line for line in new})
    if progress is not None:
        progress(len(asked), len(asked))
    return [_answer_of(split, record, known[key]) for split, record, key in asked]


def _predict(generate: Generate, part: Sequence[tuple[str, Record, str]], config: EvalConfig) -> list[Prediction]:
    completions = generate(
        [generate.with_passages(record.conversation.prompt, record.context or (), config.limits)[0] for _, record, _ in part],
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature, seed=config.seed, batch_size=config.batch_size,
    )  # fmt: skip
    return [
        Prediction(
            record_id=record.record_id, split=split, key=key, text=completion.text, finish_reason=completion.finish_reason,
            n_tokens=completion.n_tokens,
        )
        for (split, record, key), completion in zip(part, completions, strict=True)
    ]  # fmt: skip


def _answer_of(split: str, record: Record, line: Prediction) -> EvalAnswer:
    text = None if line.finish_reason == "error" else line.text
    return eval_answer(split, record, text, "the question does not fit into the model", truncated=line.finish_reason == "length")


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
