"""Batch prediction: JSON lines in, JSON lines out, continued where it was stopped. No torch until input and output are checked.

Each answer carries the hash of everything that decided it (`run`: model, adapter, sampling). A second call with the same
`run` answers only what is missing; a file with answers of another run is refused. Answers come in the order of
the input and each draws from the random stream of its own id, so a file written in three calls equals one written in one.
Context passages stand in the prompt as in RL training; `context` in a line of the output are those that the model read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Completion, ModelRef, canonical_json, sha256_id
from medloop.errors import ConfigError, InputError
from medloop.models import quick_imports
from medloop.models.context_limits import ContextLimits
from medloop.models.find import ResolvedModel, resolve_chat_model
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import ConversationLine, read_conversations, refuse_duplicate

if TYPE_CHECKING:
    from medloop.models.generate import Prompt, TorchGenerator


class Sampling(BaseModel):
    """How answers are sampled."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(256, ge=1, description="Maximum tokens of an answer.")
    temperature: float = Field(0.0, ge=0, le=100, description="Sampling temperature; 0 is greedy.")
    seed: int = Field(0, ge=0, description="Random seed.")


@dataclass(frozen=True)
class Summary:
    answered: int
    already_there: int
    stopped: int
    truncated: int
    too_long: int
    tokens: int


@dataclass(frozen=True)
class AskedQuestion:
    """A line of the input, the messages that the model reads, and the passages in them."""

    line: ConversationLine
    messages: Prompt
    shown: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.line.ids[0]


def predict(
    source: Path,
    output: Path,
    ref: ModelRef,
    sampling: Sampling,
    settings: Settings,
    *,
    limits: ContextLimits | None = None,
    batch_size: int = 64,
    replace: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Summary:
    """Answer every line of `source` into `output`. The whole input is read and checked before anything is written."""
    lines = _read(source)
    if output.exists() and output.samefile(source):
        raise ConfigError(f"{output} is the input itself", "Name another output")
    run = _run(resolve_chat_model(ref, settings), sampling)
    answered = set() if replace else _answered(output, run)
    with quick_imports():
        from medloop.models.generate import load_generator, prompt_id  # torch, so after everything that may be wrong

    generate = load_generator(ref, settings)
    if replace:
        output.unlink(missing_ok=True)
    elif answered:
        jsonl.append(output, [])  # a last line that lost its newline in a kill gets it back
    asked = [_ask(generate, line, limits or ContextLimits()) for line in lines]
    left = [question for question in asked if (question.name, prompt_id(question.messages)) not in answered]
    completions = []
    for start in range(0, len(left), batch_size):  # each batch is written: no more than one is lost when the process dies
        part = left[start : start + batch_size]
        new = generate(
            [question.messages for question in part], streams=[question.name for question in part], batch_size=batch_size,
            progress=partial(_shifted, progress, start, len(left)), **sampling.model_dump(),
        )  # fmt: skip
        jsonl.append(output, [_row(question, completion, run) for question, completion in zip(part, new, strict=True)])
        completions += new
    return _summary(completions, len(lines) - len(left))


def _shifted(progress: Callable[[int, int], None], start: int, total: int, done: int, _: int) -> None:
    progress(start + done, total)


def _read(source: Path) -> list[ConversationLine]:
    """Every line with its own id; a line without one is named by its number."""
    lines, first_lines = [], dict[str, int]()
    for line in read_conversations(source):
        name = line.ids[0] if line.ids else f"line-{line.number}"
        refuse_duplicate(first_lines, name, source, line.number)
        if not line.conversation.question:
            raise InputError.at(source, line.number, "no question", "Repair or remove that line")
        lines.append(line._replace(ids=(name,)))
    return lines


def _run(model: ResolvedModel, sampling: Sampling) -> str:
    parts = {"model": model.sha256, "adapter": model.adapter_sha256, **sampling.model_dump()}
    return sha256_id(canonical_json(parts))


def _answered(output: Path, run: str) -> set[tuple[str, str]]:
    """(id, prompt id) of what this run has answered already; ConfigError when the file has other lines."""
    if not output.exists():
        return set()
    rows = list(jsonl.read(output))
    if any(row.get("run") != run for row in rows):
        raise ConfigError(
            f"{output} has lines that are not answers of this model with these settings",
            "Name another output, or add --replace",
        )
    return {(row["id"], row["prompt_id"]) for row in rows}


def _ask(generate: TorchGenerator, line: ConversationLine, limits: ContextLimits) -> AskedQuestion:
    messages, shown = generate.with_passages(line.conversation.prompt, line.passages, limits)
    return AskedQuestion(line, messages, shown)


def _row(question: AskedQuestion, completion: Completion, run: str) -> dict[str, Any]:
    """A line for every reader of answers (`store/files/answer_lines.py`); a prompt of several messages is kept whole."""
    line, prompt = question.line, question.line.conversation.prompt
    messages = {"messages": [message.model_dump() for message in prompt]} if len(prompt) > 1 else {}
    return {
        "id": line.ids[0],
        "prompt_id": completion.prompt_id,
        "question": line.conversation.user_text,
        **messages,
        **({"context": list(question.shown)} if question.shown else {}),
        "answer": completion.text,
        "model": completion.model,
        "adapter": completion.adapter,
        "finish_reason": completion.finish_reason,
        "n_tokens": completion.n_tokens,
        "run": run,
    }


def _summary(completions: list[Completion], already_there: int) -> Summary:
    reasons = [completion.finish_reason for completion in completions]
    return Summary(
        answered=len(completions), already_there=already_there, stopped=reasons.count("stop"),
        truncated=reasons.count("length"), too_long=reasons.count("error"),
        tokens=sum(completion.n_tokens for completion in completions),
    )  # fmt: skip
