"""Answers in batches, the same whatever they are batched with.

    generate = load_generator(ModelRef(base="embedded:tiny", adapter="models/lora/sft"), settings)
    answers = generate([(Message(role="user", content="..."),)], max_new_tokens=200)

Prompts are padded on the left with explicit positions, so that a prompt gets the same answer alone and in a batch.
Greedy (`temperature=0`) or plain temperature sampling; nothing is removed from the distribution. Each prompt draws from its
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
from medloop.models.rollout.decode import position_ids
from medloop.models.rollout.sampler import stop_ids, uniforms
from medloop.models.template import THINK, control_ids, fit_prompt, opens_thinking, render_prompt
from medloop.settings import Settings

Prompt = Sequence[Message]
OnAnswers = Callable[[int, int], None]  # prompts answered, prompts in all


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


@dataclass(frozen=True)
class _EncodedPrompt:
    """A prompt as token ids, its place in the list of answers, and the random numbers it will use, one per token."""

    index: int
    input_ids: list[int]
    uniforms: torch.Tensor | None


class TorchGenerator:
    """A model and its tokenizer as a function from prompts to completions."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.name = loaded.name
        self.adapter = loaded.adapter_sha256
        model, tokenizer = loaded.model, loaded.tokenizer
        self._vocabulary = len(tokenizer)
        self._stop_ids = stop_ids(model, tokenizer)
        self._stop_tensor = torch.tensor(self._stop_ids, device=loaded.device)
        self._max_length = int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20))
        self._hidden = control_ids(tokenizer)

    def __call__(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        batch_size: int = 16,
        progress: OnAnswers | None = None,
        streams: Sequence[str] | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in order. A prompt too long for the model gets `finish_reason="error"`, never a guess.

        `streams` names the random stream of each prompt, for callers that spread the prompts over several calls.
        """
        if max_new_tokens >= self._max_length:
            raise ConfigError(
                f"max_new_tokens is {max_new_tokens}, but {self.name} holds {self._max_length} tokens in all", "Ask for fewer"
            )
        keys = streams or _streams(prompts)
        encoded = self._encode(prompts, max_new_tokens, [f"{seed}:{key}" for key in keys] if temperature > 0 else None)
        answers: dict[int, list[int]] = {}
        for start in range(0, len(encoded), batch_size):
            batch = encoded[start : start + batch_size]
            answers.update(self._decode_or_halve(batch, max_new_tokens, temperature))
            if progress is not None:
                progress(len(prompts) - len(encoded) + start + len(batch), len(prompts))
        return [self._completion(prompt, answers.get(index), temperature, seed) for index, prompt in enumerate(prompts)]

    def _encode(self, prompts: Sequence[Prompt], max_new_tokens: int, streams: list[str] | None) -> list[_EncodedPrompt]:
        """Prompts that fit, longest first: neighbours have like lengths, and a lack of memory shows at once."""
        encoded = []
        for index, messages in enumerate(prompts):
            if input_ids := fit_prompt(self.loaded.tokenizer, messages, self._max_length - max_new_tokens):
                noise = None if streams is None else uniforms(streams[index], max_new_tokens)
                encoded.append(_EncodedPrompt(index, input_ids, noise))
        return sorted(encoded, key=lambda prompt: -len(prompt.input_ids))

    def _decode_or_halve(self, batch: list[_EncodedPrompt], max_new_tokens: int, temperature: float) -> dict[int, list[int]]:
        """Decode one batch; when memory runs out, its halves."""
        try:
            return self._decode(batch, max_new_tokens, temperature)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ResultError("There is not enough memory for a single prompt", "Ask for fewer tokens, or use a smaller model")
        half = len(batch) // 2
        first = self._decode_or_halve(batch[:half], max_new_tokens, temperature)
        return first | self._decode_or_halve(batch[half:], max_new_tokens, temperature)

    @torch.inference_mode()
    def _decode(self, batch: list[_EncodedPrompt], max_new_tokens: int, temperature: float) -> dict[int, list[int]]:
        device, pad = self.loaded.device, self.loaded.tokenizer.pad_token_id
        width = max(len(prompt.input_ids) for prompt in batch)
        padding = [width - len(prompt.input_ids) for prompt in batch]
        rows = zip(padding, batch, strict=True)
        input_ids = torch.tensor([[pad] * left + prompt.input_ids for left, prompt in rows], device=device)  # (B, T)
        attention_mask = torch.tensor([[0] * left + [1] * (width - left) for left in padding], device=device)
        positions = position_ids(attention_mask)
        noise = None if temperature == 0 else torch.stack([p.uniforms for p in batch if p.uniforms is not None]).to(device)
        answers: dict[int, list[int]] = {prompt.index: [] for prompt in batch}
        alive, cache = [prompt.index for prompt in batch], DynamicCache(config=self.loaded.model.config)
        for step in range(max_new_tokens):
            output = self.loaded.model(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, past_key_values=cache,
                use_cache=True, logits_to_keep=1,
            )  # fmt: skip
            logits = output.logits[:, -1, : self._vocabulary].float()  # (B, V): ids that the tokenizer cannot write are left out
            tokens = _next_tokens(logits, temperature, None if noise is None else noise[:, step])  # (B,)
            for index, token in zip(alive, tokens.tolist(), strict=True):
                answers[index].append(token)
            going = ~torch.isin(tokens, self._stop_tensor)
            attention_mask = torch.cat([attention_mask, attention_mask.new_ones(len(alive), 1)], dim=1)
            if not bool(going.all()):
                rest = going.nonzero().squeeze(1)  # finished rows leave the batch
                if not len(rest):
                    break
                cache.batch_select_indices(rest)
                attention_mask, tokens, noise = attention_mask[rest], tokens[rest], None if noise is None else noise[rest]
                alive = [alive[i] for i in rest.tolist()]
            input_ids, positions = tokens[:, None], attention_mask.sum(-1, keepdim=True) - 1
        return answers

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


def _next_tokens(logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None) -> torch.Tensor:
    """(B, V) -> (B,). Sampling inverts the cumulative distribution: one random number per token, and cheap on a CPU."""
    if not bool(torch.isfinite(logits.amax(-1)).all()):
        raise ModelError(
            "The model's output is not finite (NaN or infinity)", "Its weights are damaged or training diverged; use another"
        )
    if uniform is None:
        return logits.argmax(-1)
    edges = torch.softmax(logits.double() / temperature, dim=-1).cumsum(-1)  # double: 150,000 small terms add up
    return torch.searchsorted(edges, uniform[:, None] * edges[:, -1:], right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
