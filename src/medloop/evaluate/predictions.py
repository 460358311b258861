"""Where answers come from: the splits to ask, predictions kept on disk, and the questions still open.

`predictions_<label>.jsonl` has a line per answer with a `key`: the hash of model, adapter, prompt and sampling. A second
run asks only for keys it does not find, so a killed evaluation goes on where it stopped and a changed model asks anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from medloop.contracts import Completion, Contract, Message, Record, canonical_json, sha256_id
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import InputError
from medloop.evaluate.run import Sample
from medloop.store.files import jsonl

DEFAULT_SPLITS = ("dev", "test", "gold", "red")
AT_ONCE = 8  # batches between two writes to the disk

Progress = Callable[[int, int], None]  # answers had, answers wanted


class Generate(Protocol):
    """Prompts in, completions out, in the same order."""

    def __call__(
        self, prompts: Sequence[Sequence[Message]], *, max_new_tokens: int, temperature: float, seed: int, batch_size: int
    ) -> list[Completion]: ...


class EvalConfig(Contract):
    """What is asked and how."""

    splits: tuple[str, ...] = DEFAULT_SPLITS
    n: int = Field(100, ge=1)
    """Questions per split, drawn by hash of the record and the seed; all of them where a split has fewer."""
    max_new_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0)
    """0 is greedy: the same answers every time."""
    batch_size: int = Field(16, ge=1)
    """Prompts answered together; changes the speed, not the answers."""
    seed: int = Field(42, ge=0)
    resamples: int = Field(2000, ge=100)
    """Bootstrap draws behind each interval."""

    @property
    def sampling(self) -> dict[str, Any]:
        """What decides an answer besides model and prompt."""
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
    given = config.splits != DEFAULT_SPLITS
    found = {}
    for split in config.splits:
        if split not in SPLIT_FILES:
            raise InputError(f"There is no split '{split}'", f"Splits are {', '.join(SPLIT_FILES)}")
        path = folder / SPLIT_FILES[split]
        if path.is_file():
            found[split] = _draw(jsonl.read(path, Record), config.n, config.seed)
        elif given:
            raise InputError(f"{path} does not exist", "Make the splits with: medloop data prepare")
    if not any(found.values()):
        raise InputError(f"{folder} holds no questions to evaluate on", "Make the splits with: medloop data prepare")
    return found


def _draw(records: Iterable[Record], n: int, seed: int) -> tuple[Record, ...]:
    """`n` records by the hash of their id: the same ones wherever they stand in the file."""
    ordered = sorted(records, key=lambda record: hashlib.sha256(f"{seed}:{record.record_id}".encode()).digest())
    return tuple(ordered[:n])


def prompt_key(record: Record, model: Mapping[str, str | None], config: EvalConfig) -> str:
    said = [message.model_dump() for message in record.conversation.prompt]
    return sha256_id(canonical_json({"model": dict(model), "prompt": said, **config.sampling}))


def answer_all(
    splits: Mapping[str, Sequence[Record]],
    load: Callable[[], Generate],
    model: Mapping[str, str | None],
    path: Path,
    config: EvalConfig,
    progress: Progress | None = None,
) -> list[Sample]:
    """Every question answered, from the file where it can be; the model is loaded only when a question is open."""
    wanted = [(split, record, prompt_key(record, model, config)) for split, records in splits.items() for record in records]
    known = {line.key: line for line in jsonl.read(path, Prediction)} if path.is_file() else {}
    open_ = list({key: (split, record, key) for split, record, key in wanted if key not in known}.values())
    generate = load() if open_ else None
    step = config.batch_size * AT_ONCE
    for start in range(0, len(open_), step):
        assert generate is not None
        part = open_[start : start + step]
        if progress is not None:
            progress(len(wanted) - len(open_) + start, len(wanted))
        new = [_prediction(*asked, done) for asked, done in zip(part, _ask(generate, part, config), strict=True)]
        jsonl.append(path, new)
        known.update({line.key: line for line in new})
    if progress is not None:
        progress(len(wanted), len(wanted))
    return [_sample(split, record, known[key]) for split, record, key in wanted]


def _ask(generate: Generate, part: Sequence[tuple[str, Record, str]], config: EvalConfig) -> list[Completion]:
    return generate(
        [record.conversation.prompt for _, record, _ in part],
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        seed=config.seed,
        batch_size=config.batch_size,
    )


def _prediction(split: str, record: Record, key: str, done: Completion) -> Prediction:
    return Prediction(
        record_id=record.record_id, split=split, key=key, text=done.text, finish_reason=done.finish_reason, n_tokens=done.n_tokens
    )


def _sample(split: str, record: Record, line: Prediction) -> Sample:
    failed = line.finish_reason == "error"
    why = "the question does not fit into the model"
    return sample_of(split, record, None if failed else line.text, why, cut_off=line.finish_reason == "length")


def sample_of(split: str, record: Record, answer: str | None, why_missing: str, *, cut_off: bool = False) -> Sample:
    question = record.conversation.asked
    return Sample(record.record_id, split, record.language, record.strata, question, answer, why_missing, cut_off)


def references(splits: Mapping[str, Sequence[Record]]) -> list[Sample]:
    """The answers that the data itself holds, to be scored like a model's; splits without answers are left out."""
    return [
        sample_of(split, record, record.conversation.answer, "the record holds no answer")
        for split, records in splits.items()
        if any(record.conversation.answer for record in records)
        for record in records
    ]


def read_predictions(path: Path, splits: Mapping[str, Sequence[Record]]) -> list[Sample]:
    """Answers made elsewhere: JSON lines with `record_id` (or `id`) and `text` (or `answer`). What lacks one is missing."""
    found: dict[str, tuple[str | None, bool]] = {}
    for number, row in jsonl.numbered(path):
        name, text, end = row.get("record_id", row.get("id")), row.get("text", row.get("answer")), row.get("finish_reason")
        if not isinstance(name, str) or not isinstance(text, str):
            raise InputError.at(path, number, "no record_id with a text", 'Lines look like {"record_id": ..., "text": ...}')
        if name in found:
            raise InputError.at(path, number, "this record was answered before", "Leave one answer per record")
        found[name] = (None if end == "error" else text, end == "length")
    samples = []
    for split, records in splits.items():
        for record in records:
            text, cut = found.get(record.record_id, (None, False))
            samples.append(sample_of(split, record, text, "no prediction for this record", cut_off=cut))
    if all(sample.answer is None for sample in samples):
        raise InputError(f"{path} answers none of the questions", "Its record_id values must be those of data/processed")
    return samples
