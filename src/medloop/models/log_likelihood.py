"""How likely a model finds a continuation after a prompt, computed as lm-evaluation-harness does.

    log_likelihoods(loaded, [("Aspirin is a", " drug"), ("Aspirin is a", " fruit")])   -> LogLikelihood of each, in order

*The border.* Spaces at the end of a plain prompt move to the continuation, because tokenizers join them with the next word.
Prompt and continuation are then encoded together, and the prompt's own tokens are cut off. Before a text without a prompt stands
the tokenizer's begin token, else its end token. A prompt of messages is rendered by the chat template, as in training.

*The context.* Tokens at the start that do not fit into the model are left out and counted in `truncated`, so that a caller can
tell such a value from the others.

*Speed.* Each distinct prompt is read once and its keys and values serve all its continuations; texts of like length are batched.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from medloop.contracts.suite import LikelihoodPrompt, LogLikelihood
from medloop.errors import ModelError
from medloop.models.load import Loaded
from medloop.models.rollout.decode import position_ids
from medloop.models.runtime import compute_in_batches
from medloop.models.template import encode_prompt, neutralise, tokenise

MOST_LOGITS = 1 << 28  # numbers of one batch of continuations: a gigabyte in float32
ADVICE = "Use a smaller model, or shorter texts"


class EncodedPair(NamedTuple):
    """Token ids of a prompt (at least one) and of its continuation; `truncated` counts those that were left out before them."""

    prompt: tuple[int, ...]
    continuation: tuple[int, ...]
    truncated: int = 0


@dataclass(frozen=True)
class PromptGroup:
    """A prompt and the indices of the pairs that begin with it."""

    prompt: tuple[int, ...]
    indices: tuple[int, ...]


def log_likelihoods(
    loaded: Loaded,
    pairs: Sequence[tuple[LikelihoodPrompt, str]],
    *,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> list[LogLikelihood]:
    """One for each (prompt, continuation), in order; the batch size changes the speed and the memory, not the values."""
    encoded = [encode_pair(loaded, prompt, continuation) for prompt, continuation in pairs]
    indices: dict[tuple[int, ...], list[int]] = {}
    for index, pair in enumerate(encoded):
        indices.setdefault(pair.prompt, []).append(index)
    groups = [PromptGroup(prompt, tuple(of_prompt)) for prompt, of_prompt in indices.items()]
    by_group = compute_in_batches(
        groups, partial(_score_groups, loaded, encoded, batch_size), lambda group: (-len(group.prompt), group.prompt),
        batch_size=batch_size, unit="prompt", advice=ADVICE, progress=progress,
    )  # fmt: skip
    by_index = {
        index: likelihood
        for group, likelihoods in zip(groups, by_group, strict=True)
        for index, likelihood in zip(group.indices, likelihoods, strict=True)
    }
    return [by_index[index] for index in range(len(pairs))]


def encode_pair(loaded: Loaded, prompt: LikelihoodPrompt, continuation: str) -> EncodedPair:
    """The ids on both sides of the border, with the oldest left out where the model cannot hold them all."""
    tokenizer = loaded.tokenizer
    if isinstance(prompt, str):
        before, after = _encode_text(tokenizer, neutralise(tokenizer, prompt), neutralise(tokenizer, continuation))
    else:
        before, after = encode_prompt(tokenizer, prompt), tokenise(tokenizer, neutralise(tokenizer, continuation))
    surplus = len(before) + len(after) - (loaded.max_length + 1)  # the last token is predicted, never read
    if surplus <= 0:
        return EncodedPair(tuple(before), tuple(after))
    ids, border = (before + after)[surplus:], max(len(before) - surplus, 1)
    return EncodedPair(tuple(ids[:border]), tuple(ids[border:]), surplus)


def _encode_text(tokenizer: Any, prompt: str, continuation: str) -> tuple[list[int], list[int]]:
    stripped = prompt.rstrip()
    before = tokenise(tokenizer, stripped)
    whole = tokenise(tokenizer, prompt + continuation)
    border = len(before)
    if border >= len(whole) and continuation:  # the tokenizer joined all of it with the end of the prompt
        border = _common_start(before, whole)
        before = before[:border]
    begin = tokenizer.bos_token_id
    if begin is not None and begin in tokenizer("")["input_ids"]:
        before = [begin, *before]
    return before or [_first_id(tokenizer)], whole[border:]


def _common_start(first: Sequence[int], second: Sequence[int]) -> int:
    return next((index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))


def _first_id(tokenizer: Any) -> int:
    """What stands before a text that has nothing before it."""
    first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if first is None:
        raise ModelError("The tokenizer has neither a begin nor an end token, so a text cannot stand alone", "Use another model")
    return int(first)


@torch.inference_mode()
def _score_groups(
    loaded: Loaded, encoded: Sequence[EncodedPair], batch_size: int, groups: Sequence[PromptGroup]
) -> list[list[LogLikelihood]]:
    """The prompts are read together; then their continuations, the longest first, on copies of the prompts' cache."""
    prompts = _ReadPrompts(loaded, [group.prompt for group in groups])
    rows = [(row, encoded[index]) for row, group in enumerate(groups) for index in group.indices]
    longest = max(len(pair.continuation) for _, pair in rows)
    rows_at_once = max(1, MOST_LOGITS // (prompts.logprobs.shape[1] * max(longest, 1)))
    likelihoods = iter(
        compute_in_batches(
            rows, prompts.score, lambda item: -len(item[1].continuation), batch_size=min(batch_size, rows_at_once),
            unit="continuation", advice=ADVICE,
        )
    )  # fmt: skip
    return [[next(likelihoods) for _ in group.indices] for group in groups]


class _ReadPrompts:
    """Prompts after one forward pass: their cache, and what the model expects after each."""

    def __init__(self, loaded: Loaded, prompts: Sequence[tuple[int, ...]]) -> None:
        self.model, self.device, self.pad_id = loaded.model, loaded.device, loaded.tokenizer.pad_token_id
        self.last_position = loaded.max_length - 1
        width = max(map(len, prompts))
        padded = [[self.pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        self.attention_mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=self.device)  # (U, P)
        self.lengths = self.attention_mask.sum(-1)
        config = self.model.get_base_model().config if hasattr(self.model, "peft_config") else self.model.config
        self.cache = DynamicCache(config=config)
        logits = self.model(
            input_ids=torch.tensor(padded, device=self.device), attention_mask=self.attention_mask,
            position_ids=position_ids(self.attention_mask), past_key_values=self.cache, use_cache=True, logits_to_keep=1,
        ).logits  # fmt: skip
        self.logprobs = logits[:, -1].float().log_softmax(-1)  # (U, V)

    def score(self, rows: Sequence[tuple[int, EncodedPair]]) -> list[LogLikelihood]:
        """Of continuations after the prompts with these row numbers."""
        prompt_index = torch.tensor([row for row, _ in rows], device=self.device)
        continuations = [pair.continuation for _, pair in rows]
        width = max(map(len, continuations))
        padded = [[*ids, *[self.pad_id] * (width - len(ids))] for ids in continuations]
        targets = torch.tensor(padded, dtype=torch.long, device=self.device)  # (B, C)
        logprobs = self.logprobs[prompt_index, None]  # (B, 1, V)
        if width > 1:
            logprobs = torch.cat([logprobs, self._continue(prompt_index, targets[:, :-1], continuations)], dim=1)  # (B, C, V)
        chosen = logprobs[:, :width].gather(-1, targets[..., None]).squeeze(-1).double().cpu()
        greedy = (logprobs[:, :width].argmax(-1) == targets).cpu()
        return [
            _likelihood(chosen[row, : len(pair.continuation)], greedy[row, : len(pair.continuation)], pair)
            for row, (_, pair) in enumerate(rows)
        ]

    def _continue(self, prompt_index: Tensor, input_ids: Tensor, continuations: Sequence[tuple[int, ...]]) -> Tensor:
        cache = deepcopy(self.cache)
        cache.batch_select_indices(prompt_index)
        columns = torch.arange(input_ids.shape[1], device=self.device)
        read = torch.tensor([len(ids) for ids in continuations], device=self.device)[:, None] > columns  # (B, C - 1)
        logits = self.model(
            input_ids=input_ids, attention_mask=torch.cat([self.attention_mask[prompt_index], read.long()], dim=1),
            position_ids=(self.lengths[prompt_index, None] + columns).clamp(max=self.last_position),  # only padding is beyond it
            past_key_values=cache, use_cache=True,
        ).logits  # fmt: skip
        logprobs: Tensor = logits.float().log_softmax(-1)
        return logprobs


def _likelihood(logprobs: Tensor, greedy: Tensor, pair: EncodedPair) -> LogLikelihood:
    total = float(logprobs.sum())
    if not -1e30 < total <= 1e-3:
        raise ModelError(
            "The model's output is not finite (NaN or infinity)", "Its weights are damaged or training diverged; use another"
        )
    return LogLikelihood(total=total, tokens=len(pair.continuation), greedy=bool(greedy.all()), truncated=pair.truncated)
