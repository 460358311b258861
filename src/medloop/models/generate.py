"""Answers in batches, the same whatever they are batched with.

    generate = load_generator(ModelRef(base="embedded:tiny", adapter="models/lora/sft"), settings)
    answers = generate([(Message(role="user", content="..."),)], max_new_tokens=200)

The tokens come from the same sampler as RL's rollouts (rollout/sampler.py), so evaluation and prediction are as fast.
Greedy (`temperature=0`) or plain temperature sampling; nothing is removed from the distribution. Each prompt draws from its
own random stream, seeded by the run's seed, the prompt and how often it occurred before: neither order nor batch size
changes an answer. (On a GPU, bfloat16 rounding may still decide a near-tie otherwise.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch

from medloop.contracts import Completion, Message, ModelRef, canonical_json, sha256_id
from medloop.contracts.suite import LikelihoodPrompt, LogLikelihood
from medloop.errors import ConfigError
from medloop.models.context_limits import ContextLimits
from medloop.models.context_prompt import fit_with_context
from medloop.models.load import Loaded, load
from medloop.models.log_likelihood import log_likelihoods
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import Sampler, stop_ids
from medloop.models.template import THINK, control_ids, fit_prompt, opens_thinking, render_prompt
from medloop.settings import Settings

Prompt = Sequence[Message]
Progress = Callable[[int, int], None]  # prompts answered, prompts in all
OnAnswers = Callable[[Mapping[int, Completion]], None]  # the answers of a batch, by the index of their prompt


def load_generator(ref: ModelRef, settings: Settings) -> TorchGenerator:
    """A model ready to answer. In float32 the adapter is merged into the weights, which makes each token cheaper."""
    loaded = load(ref, settings)
    if ref.adapter is not None and next(loaded.model.parameters()).dtype == torch.float32:
        merged = loaded.model.merge_and_unload()
        loaded = Loaded(merged, loaded.tokenizer, loaded.name, loaded.sha256, loaded.device, loaded.adapter_sha256)
    return TorchGenerator(loaded)


def prompt_id(messages: Prompt) -> str:
    """The hash of the messages; the same prompt has the same id anywhere."""
    return sha256_id(canonical_json([m.model_dump() for m in messages]))


class TorchGenerator:
    """A model and its tokenizer as a function from prompts to completions."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.name = loaded.name
        self.adapter = loaded.adapter_sha256
        model, tokenizer = loaded.model, loaded.tokenizer
        self._stop_ids = stop_ids(model, tokenizer)
        # Ids beyond the tokenizer's are padding of the matrix; it could not write them.
        self.sampler = Sampler(model, stop_ids=self._stop_ids, pad_id=tokenizer.pad_token_id, vocabulary=len(tokenizer))
        self._max_length = loaded.max_length
        self._hidden = control_ids(tokenizer)

    def with_passages(self, messages: Prompt, passages: Sequence[str], limits: ContextLimits) -> tuple[Prompt, tuple[str, ...]]:
        """The prompt as RL shows it to a policy, and its passages as they stand in it; a question without room has none."""
        if not passages:
            return messages, ()
        prompt = fit_with_context(self.loaded.tokenizer, messages, passages[: limits.top_k], limits.max_prompt)
        return (messages, ()) if prompt is None or not prompt.shown else (prompt.messages, prompt.shown)

    def __call__(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        batch_size: int = 64,
        progress: Progress | None = None,
        on_answers: OnAnswers | None = None,
        streams: Sequence[str] | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in order. A prompt too long for the model gets `finish_reason="error"`, never a guess.

        `streams` names the random stream of each prompt, for callers that spread the prompts over several calls. `on_answers`
        gets the answers of each batch as soon as they are there.
        """
        if max_new_tokens >= self._max_length:
            raise ConfigError(
                f"max_new_tokens is {max_new_tokens}, but {self.name} holds {self._max_length} tokens in all", "Ask for fewer"
            )
        encoded: dict[int, list[int]] = {}
        for index, messages in enumerate(prompts):
            if input_ids := fit_prompt(self.loaded.tokenizer, messages, self._max_length - max_new_tokens):
                encoded[index] = input_ids
        keys, too_long, indices = streams or _streams(prompts), len(prompts) - len(encoded), list(encoded)
        answers: dict[int, Completion] = {}

        def on_rollouts(rollouts: Mapping[int, Rollout]) -> None:
            new = {
                index: self._completion(prompts[index], list(rollout.tokens), temperature, seed)
                for index, rollout in ((indices[place], rollout) for place, rollout in rollouts.items())
            }
            answers.update(new)
            if on_answers is not None:
                on_answers(new)

        self.sampler(
            list(encoded.values()), [f"{seed}:{keys[index]}" for index in encoded], max_new_tokens=max_new_tokens,
            temperature=temperature, batch_size=batch_size,
            progress=None if progress is None else lambda done, _: progress(too_long + done, len(prompts)),
            on_rollouts=on_rollouts,
        )  # fmt: skip
        return [answers.get(index) or self._completion(prompt, None, temperature, seed) for index, prompt in enumerate(prompts)]

    def log_likelihoods(self, pairs: Sequence[tuple[LikelihoodPrompt, str]]) -> list[LogLikelihood]:
        return log_likelihoods(self.loaded, pairs)

    def _completion(self, messages: Prompt, ids: list[int] | None, temperature: float, seed: int) -> Completion:
        stopped = ids is not None and ids[-1] in self._stop_ids
        return Completion(
            prompt_id=prompt_id(messages), model=self.name, adapter=self.adapter,
            text="" if ids is None else self._text(messages, ids), temperature=temperature,
            seed=seed if temperature > 0 else None, finish_reason="error" if ids is None else "stop" if stopped else "length",
            n_tokens=len(ids or ()),
        )  # fmt: skip

    def _text(self, messages: Prompt, ids: list[int]) -> str:
        """Without control tokens; with `<think>`, also where the prompt had opened it."""
        text = self.loaded.tokenizer.decode([token for token in ids if token not in self._hidden], skip_special_tokens=False)
        return f"{THINK}\n{text}" if opens_thinking(render_prompt(self.loaded.tokenizer, messages)) else str(text)


def _streams(prompts: Sequence[Prompt]) -> list[str]:
    """The prompt and how often it came before: the same prompt twice gets two answers."""
    seen: Counter[str] = Counter()
    streams = []
    for name in map(prompt_id, prompts):
        streams.append(f"{name}:{seen[name]}")
        seen[name] += 1
    return streams
