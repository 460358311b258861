"""Answers in batches, the same whatever they are batched with.

    generate = load_generator(ModelRef(base="embedded:tiny", adapter="models/lora/sft"), settings)
    answers = generate([(Message(role="user", content="..."),)], max_new_tokens=200)

Prompts are padded on the left with explicit positions, so that a prompt gives the same answer alone and in company.
Greedy (`temperature=0`) or plain temperature sampling; nothing is cut off the distribution. Each prompt draws from its
own random stream, seeded by the run's seed, the prompt and how often it occurred before: neither order nor batch size
changes an answer. (On a GPU, bfloat16 rounding may still decide a near-tie otherwise.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from medloop.contracts import Completion, Message, ModelRef, canonical_json, sha256_id
from medloop.errors import ConfigError, ModelError, ResultError
from medloop.models.load import Loaded, load
from medloop.models.rollout.sampler import stop_ids, uniforms
from medloop.models.template import THINK, control_ids, fit_prompt, opens_thinking, render_prompt
from medloop.settings import Settings

Prompt = Sequence[Message]
Progress = Callable[[int, int], None]  # prompts answered, prompts in all


def load_generator(ref: ModelRef, settings: Settings) -> TorchGenerator:
    """A model ready to answer. In float32 the adapter is merged into the weights, which makes each token cheaper."""
    loaded = load(ref, settings)
    if ref.adapter is not None and next(loaded.model.parameters()).dtype == torch.float32:
        merged = loaded.model.merge_and_unload()
        loaded = Loaded(merged, loaded.tokenizer, loaded.name, loaded.sha256, loaded.device, loaded.adapter_sha256)
    return TorchGenerator(loaded)


def prompt_id(messages: Prompt) -> str:
    """The hash of what was said; the same prompt has the same id anywhere."""
    return sha256_id(canonical_json([m.model_dump() for m in messages]))


@dataclass(frozen=True)
class _Row:
    """One prompt on its way: ids in, the random numbers it will use (one per token), its place in the answer list."""

    at: int
    ids: list[int]
    uniforms: torch.Tensor | None


class TorchGenerator:
    """A model and its tokenizer as a function from prompts to completions."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.name = loaded.name
        self.adapter = loaded.adapter_sha256
        model, tokenizer = loaded.model, loaded.tokenizer
        self._vocabulary = len(tokenizer)
        self._stops = set(stop_ids(model, tokenizer))
        self._stop = torch.tensor(sorted(self._stops), device=loaded.device)
        self._room = int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20))
        self._hidden = control_ids(tokenizer)

    def __call__(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        batch_size: int = 16,
        progress: Progress | None = None,
        streams: Sequence[str] | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in order. A prompt too long for the model gets `finish_reason="error"`, never a guess.

        `streams` names the random stream of each prompt, for callers that ask in several calls and have ids of their own.
        """
        if max_new_tokens >= self._room:
            raise ConfigError(
                f"max_new_tokens is {max_new_tokens}, but {self.name} holds {self._room} tokens in all", "Ask for fewer"
            )
        keys = streams or _streams(prompts)
        rows = self._rows(prompts, max_new_tokens, [f"{seed}:{key}" for key in keys] if temperature > 0 else None)
        answers: dict[int, list[int]] = {}
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            answers.update(self._answer(batch, max_new_tokens, temperature))
            if progress is not None:
                progress(len(prompts) - len(rows) + start + len(batch), len(prompts))
        return [self._completion(p, answers.get(at), temperature, seed) for at, p in enumerate(prompts)]

    def _rows(self, prompts: Sequence[Prompt], max_new_tokens: int, streams: list[str] | None) -> list[_Row]:
        """Prompts that fit, longest first: neighbours have like lengths, and a lack of memory shows at once."""
        rows = []
        for at, messages in enumerate(prompts):
            if ids := fit_prompt(self.loaded.tokenizer, messages, self._room - max_new_tokens):
                rows.append(_Row(at, ids, None if streams is None else uniforms(streams[at], max_new_tokens)))
        return sorted(rows, key=lambda row: -len(row.ids))

    def _answer(self, batch: list[_Row], max_new_tokens: int, temperature: float) -> dict[int, list[int]]:
        """Decode one batch; when memory runs out, its halves."""
        try:
            return self._decode(batch, max_new_tokens, temperature)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ResultError("There is not enough memory for a single prompt", "Ask for fewer tokens, or use a smaller model")
        half = len(batch) // 2
        return self._answer(batch[:half], max_new_tokens, temperature) | self._answer(batch[half:], max_new_tokens, temperature)

    @torch.inference_mode()
    def _decode(self, batch: list[_Row], max_new_tokens: int, temperature: float) -> dict[int, list[int]]:
        device, pad = self.loaded.device, self.loaded.tokenizer.pad_token_id
        width = max(len(row.ids) for row in batch)
        ids = torch.tensor([[pad] * (width - len(row.ids)) + row.ids for row in batch], device=device)  # (B, T)
        mask = torch.tensor([[0] * (width - len(row.ids)) + [1] * len(row.ids) for row in batch], device=device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        noise = None if temperature == 0 else torch.stack([row.uniforms for row in batch if row.uniforms is not None]).to(device)
        out: dict[int, list[int]] = {row.at: [] for row in batch}
        alive, cache = [row.at for row in batch], DynamicCache(config=self.loaded.model.config)
        for step in range(max_new_tokens):
            result = self.loaded.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            logits = result.logits[:, -1, : self._vocabulary].float()  # (B, V): ids that the tokenizer cannot write are left out
            chosen = _choose(logits, temperature, None if noise is None else noise[:, step])  # (B,)
            for at, token in zip(alive, chosen.tolist(), strict=True):
                out[at].append(token)
            going = ~torch.isin(chosen, self._stop)
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], dim=1)
            if not bool(going.all()):
                keep = going.nonzero().squeeze(1)  # finished rows leave the batch
                if not len(keep):
                    break
                cache.batch_select_indices(keep)
                mask, chosen, noise = mask[keep], chosen[keep], None if noise is None else noise[keep]
                alive = [alive[i] for i in keep.tolist()]
            ids, positions = chosen[:, None], mask.sum(-1, keepdim=True) - 1
        return out

    def _completion(self, messages: Prompt, ids: list[int] | None, temperature: float, seed: int) -> Completion:
        stopped = ids is not None and ids[-1] in self._stops
        return Completion(
            prompt_id=prompt_id(messages),
            model=self.name,
            adapter=self.adapter,
            text="" if ids is None else self._text(messages, ids),
            temperature=temperature,
            seed=seed if temperature > 0 else None,
            finish_reason="error" if ids is None else "stop" if stopped else "length",
            n_tokens=len(ids or ()),
        )

    def _text(self, messages: Prompt, ids: list[int]) -> str:
        """Without control tokens; with `<think>`, also where the prompt had opened it."""
        text = self.loaded.tokenizer.decode([token for token in ids if token not in self._hidden], skip_special_tokens=False)
        return f"{THINK}\n{text}" if opens_thinking(render_prompt(self.loaded.tokenizer, messages)) else str(text)


def _streams(prompts: Sequence[Prompt]) -> list[str]:
    """The prompt and how often it came before: asked twice, it is answered twice."""
    seen: Counter[str] = Counter()
    streams = []
    for name in map(prompt_id, prompts):
        streams.append(f"{name}:{seen[name]}")
        seen[name] += 1
    return streams


def _choose(logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None) -> torch.Tensor:
    """(B, V) -> (B,). Sampling inverts the cumulative distribution: one random number per token, and cheap on a CPU."""
    if not bool(torch.isfinite(logits.amax(-1)).all()):
        raise ModelError(
            "The model's output is not finite (NaN or infinity)", "Its weights are damaged or training diverged; use another"
        )
    if uniform is None:
        return logits.argmax(-1)
    edges = torch.softmax(logits.double() / temperature, dim=-1).cumsum(-1)  # double: 150,000 small terms add up
    return torch.searchsorted(edges, uniform[:, None] * edges[:, -1:], right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
