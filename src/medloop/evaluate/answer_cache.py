"""Answers and log-likelihoods on the disk, by content hash: what a model said once is not asked again, in any report or suite.

    cache = AnswerCache(workspace.reports / "eval" / "answers", identity)
    cache.answers.get(key), cache.add_answers([...])

One pair of files per model: `<hash>.jsonl` and `<hash>_likelihoods.jsonl`, where the hash is that of the model, its adapter and
its codebook. Lines are only appended, so two evaluations may run at the same time; the last line of a key counts.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from medloop.contracts import Contract, LogLikelihood, Message, canonical_json, sha256_id
from medloop.contracts.suite import LikelihoodPrompt
from medloop.store.files import jsonl

C = TypeVar("C", bound=Contract)
Identity = Mapping[str, str | None]  # what decides an answer besides the prompt, by hash: base, adapter, codebook


class CachedAnswer(Contract):
    """One answer; `key` is the hash of model, prompt and sampling. `error` says why there is none; then it is never stored."""

    key: str
    prompt_id: str
    text: str
    finish_reason: Literal["stop", "length", "error"] = "stop"
    n_tokens: int = Field(0, ge=0)
    error: str | None = None

    @property
    def why_missing(self) -> str:
        return self.error or "the question does not fit into the model"


class CachedLikelihood(Contract):
    key: str
    value: LogLikelihood


def prompt_id(messages: Sequence[Message]) -> str:
    return sha256_id(canonical_json([message.model_dump() for message in messages]))


def answer_key(identity: Identity, messages: Sequence[Message], sampling: Mapping[str, Any]) -> str:
    prompt = [message.model_dump() for message in messages]
    return sha256_id(canonical_json({"model": dict(identity), "prompt": prompt, **sampling}))


def likelihood_key(prompt: LikelihoodPrompt, continuation: str) -> str:
    text = prompt if isinstance(prompt, str) else [message.model_dump() for message in prompt]
    return sha256_id(canonical_json([text, continuation]))


class AnswerCache:
    """What one model has answered so far; with `fresh`, what it answers from now on."""

    def __init__(self, folder: Path, identity: Identity, *, fresh: bool = False) -> None:
        name = sha256_id(canonical_json(dict(identity))).removeprefix("sha256:")[:24]
        self.path, self._likelihood_path = folder / f"{name}.jsonl", folder / f"{name}_likelihoods.jsonl"
        self._fresh = fresh

    @cached_property
    def answers(self) -> dict[str, CachedAnswer]:
        return {} if self._fresh else {line.key: line for line in _lines(self.path, CachedAnswer)}

    @cached_property
    def likelihoods(self) -> dict[str, LogLikelihood]:
        return {} if self._fresh else {line.key: line.value for line in _lines(self._likelihood_path, CachedLikelihood)}

    def add_answers(self, answers: Sequence[CachedAnswer]) -> None:
        """Known from now on; only those without a failure are stored, so that the next run asks again for the others."""
        if lasting := [answer for answer in answers if answer.error is None]:
            jsonl.append(self.path, lasting)
        self.answers.update({answer.key: answer for answer in answers})

    def add_likelihoods(self, values: Mapping[str, LogLikelihood]) -> None:
        jsonl.append(self._likelihood_path, [CachedLikelihood(key=key, value=value) for key, value in values.items()])
        self.likelihoods.update(values)


def _lines(path: Path, kind: type[C]) -> list[C]:
    return list(jsonl.read(path, kind)) if path.is_file() else []
