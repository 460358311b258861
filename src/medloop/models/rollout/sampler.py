"""Rollouts: many samples from a policy, with the log-probability of every token under the temperature that drew it.

    sampler = Sampler(model, stop_ids=stop_ids(model, tokenizer), pad_id=0)
    rollouts = sampler(prompts, streams, max_new_tokens=128, temperature=1.0)   # prompts: token ids; one Rollout each, in order
    sampler.refresh()                                                           # after the policy was trained

Nothing is removed from the distribution (no top-k, no top-p, no penalty), or the log-probabilities would be of another policy.
Every row draws from its own random stream, named by the caller: the same name gives the same answer, whatever it is batched with.

There are three backends for the next token: the fast decoder (decode.py), where rows that have ended leave the batch; the same
decoder on CUDA as captured graphs, where others then enter (cuda_graph.py); and, with a warning, the library's own forward pass
for any other architecture. On a CPU no row enters: a step there costs what its rows cost, so it would not pay (docs/log.md).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from medloop.errors import ModelError, ResultError
from medloop.models.rollout.agreement import check_agreement
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.cuda_graph import CudaGraphs
from medloop.models.rollout.decode import FastDecoder, UnsupportedModelError, position_ids, sample_tokens
from medloop.models.rollout.rollouts import Rollout, RolloutRequest, requests_for, uniforms
from medloop.models.runtime import compute_in_batches
from medloop.models.template import end_ids

OnRows = Callable[[int, int], None]  # rows done, rows in all
OnRollouts = Callable[[Mapping[int, Rollout]], None]
COMPACT = 0.9  # rows leave the batch when at most this share continues
ADVICE = "Ask for fewer tokens, or use a smaller model"  # where memory is not enough for one answer
PULSE_S = 1.0  # between two reports from within a batch
log = logging.getLogger(__name__)


class RolloutSampler(Protocol):
    """A policy as a function from prompts (token ids) to rollouts: `Sampler` here, `ServedSampler` by a server."""

    @property
    def backend(self) -> str: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def __call__(
        self, prompts: Sequence[Sequence[int]], streams: Sequence[str], *, max_new_tokens: int, temperature: float = 1.0,
        batch_size: int = 64, progress: OnRows | None = None,
    ) -> list[Rollout]: ...  # fmt: skip


class Sampler:
    """A policy in this process as a function from prompts (token ids) to rollouts."""

    def __init__(
        self,
        model: Any,
        *,
        stop_ids: Sequence[int],
        pad_id: int,
        vocabulary: int | None = None,
        library: bool = False,
        decoder: FastDecoder | None = None,
        products: torch.dtype | None = None,
    ) -> None:
        """Only the first `vocabulary` token ids are sampled. `library` takes the library's own forward pass in any case.

        `decoder` is the model's fast decoder, where it exists already: two of them would hold the weights twice. `products` is
        the type in which a float32 model on a CPU multiplies.
        """
        self.model = model
        self.device = next(model.parameters()).device
        self.stop_ids = torch.tensor(sorted(set(stop_ids)), device=self.device)
        self.pad_id = pad_id
        self.vocabulary = vocabulary
        self.fast_decoder = None if library else decoder or self._low_decoder(products) or self._fast_decoder()
        self._graphs: CudaGraphs | None = None
        if self.fast_decoder is not None and self.device.type == "cuda":
            self._graphs = CudaGraphs(self.fast_decoder, self.stop_ids, vocabulary)
        self._beyond = False
        self.batch_limit: int | None = None  # answers at once, since memory ran out

    def _low_decoder(self, products: torch.dtype | None) -> FastDecoder | None:
        if products is None:
            return None
        try:
            decoder = build_fast_decoder(self.model, products=products)
            check_agreement(decoder, self.model, autocast=True)
        except UnsupportedModelError as error:
            log.warning("Sampling does not multiply in bfloat16, which was measured as up to 2.5 times faster: %s.", error)
            return None
        return decoder

    def _fast_decoder(self) -> FastDecoder | None:
        try:
            decoder = build_fast_decoder(self.model)
            check_agreement(decoder, self.model)
        except UnsupportedModelError as error:
            slower = "8 to 40 times slower" if self.device.type == "cuda" else "up to 1.2 times slower"  # docs/log.md
            log.warning(
                "Sampling uses the library's forward pass, measured as %s, because the fast decoder does not fit this model: %s.",
                slower, error,
            )  # fmt: skip
            return None
        return decoder

    @property
    def backend(self) -> str:
        """How tokens are computed: fast, fast_bfloat16, cuda_graph or library; mixed where some batches were too long for it."""
        if self._beyond:
            return "mixed"
        if self.fast_decoder is None:
            return "library"
        if self.fast_decoder.lm_head.dtype != self.fast_decoder.embedding.dtype:
            return "fast_bfloat16"
        return "cuda_graph" if self.device.type == "cuda" else "fast"

    def refresh(self) -> None:
        """Read the adapter again after it has changed."""
        if self.fast_decoder is not None:
            self.fast_decoder.refresh()

    def close(self) -> None:
        """Nothing to release."""

    def _limit(self, batch_size: int) -> None:
        """Memory ran out: the next calls begin with this size too."""
        self.batch_limit = batch_size
        log.warning("Memory ran out: %d answers at once in sampling from here on.", batch_size)

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[str],
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 64,
        progress: OnRows | None = None,
        on_rollouts: OnRollouts | None = None,
    ) -> list[Rollout]:
        """One rollout per prompt, in order; temperature 0 is greedy. Prompts of like length are batched, equal ones read once.

        `progress` is called after each batch, and in a slow one about once a second; `on_rollouts` gets what has ended by index.
        """
        if self.fast_decoder is not None and not self.fast_decoder.merged:
            self.fast_decoder.refresh_if_changed()  # training shares it, and may have left it with the reference's adapter
        rollouts = dict[int, Rollout]()

        def take(new: Mapping[int, Rollout]) -> None:
            rollouts.update(new)
            if on_rollouts is not None:
                on_rollouts(new)

        requests = requests_for(prompts, streams)
        pulse = None if progress is None else Pulse(progress, len(prompts))
        if self._graphs is not None:
            self._sample_by_graphs(self._graphs, requests, max_new_tokens, temperature, batch_size, take, pulse)
            requests = [request for request in requests if request.index not in rollouts]
        compute_in_batches(
            requests, lambda batch: self._sample(batch, max_new_tokens, temperature, pulse), _longest_first,
            batch_size=min(batch_size, self.batch_limit or batch_size), unit="sample", advice=ADVICE,
            progress=None if pulse is None else pulse.after_batch, on_halved=self._limit,
            on_results=lambda new: take({requests[place].index: rollout for place, rollout in new.items()}),
        )  # fmt: skip
        if not all(all(-1e30 < value <= 1e-3 for value in rollout.logprobs) for rollout in rollouts.values()):
            raise ModelError(
                "The model's output is not finite (NaN or infinity)", "Its weights are damaged or training diverged; use another"
            )
        return [rollouts[index] for index in range(len(prompts))]

    def _sample_by_graphs(
        self, graphs: CudaGraphs, requests: Sequence[RolloutRequest], max_new_tokens: int, temperature: float, batch_size: int,
        take: OnRollouts, pulse: "Pulse | None",
    ) -> None:  # fmt: skip
        """All but the longest, which are beyond the decoder's rotary tables. Where memory runs out, half as many go on."""
        longest = graphs.decoder.max_positions - max_new_tokens
        waiting = sorted((request for request in requests if len(request.prompt) <= longest), key=_longest_first)
        total = len(waiting)
        while waiting:
            places = min(batch_size, self.batch_limit or batch_size, len(waiting))
            answers = graphs.sample(waiting, places=places, max_new_tokens=max_new_tokens, temperature=temperature)
            while (new := _next_if_it_fits(answers)) is not None:
                if not new:
                    return
                take(new)
                waiting = [request for request in waiting if request.index not in new]
                if pulse is not None:
                    pulse.while_rows_end(total - len(waiting))
            graphs.clear()
            torch.cuda.empty_cache()
            if places == 1:
                raise ResultError("There is not enough memory for a single sample", ADVICE)
            self._limit(places // 2)

    @torch.inference_mode()
    def _sample(
        self, batch: Sequence[RolloutRequest], max_new_tokens: int, temperature: float, pulse: "Pulse | None" = None
    ) -> list[Rollout]:
        distinct = list(dict.fromkeys(tuple(request.prompt) for request in batch))
        places = {prompt: place for place, prompt in enumerate(distinct)}
        prompt_index = torch.tensor([places[tuple(request.prompt)] for request in batch], device=self.device)  # (B,)
        width = len(distinct[0])
        padded = [[self.pad_id] * (width - len(prompt)) + list(prompt) for prompt in distinct]
        input_ids = torch.tensor(padded, device=self.device)  # (U, P)
        attention_mask = torch.zeros(len(distinct), width + max_new_tokens, dtype=torch.bool, device=self.device)  # (U, T)
        for row, prompt in enumerate(distinct):
            attention_mask[row, width - len(prompt) : width] = True
        noise = torch.stack([uniforms(request.stream, max_new_tokens) for request in batch]).to(self.device)  # (B, N)
        decoder = self.fast_decoder
        if decoder is not None and width + max_new_tokens > decoder.max_positions:
            if not self._beyond:
                log.warning(
                    "Batches of more than %d tokens are sampled by the library's forward pass, which is slower.",
                    decoder.max_positions,
                )
            decoder, self._beyond = None, True  # longer than its rotary tables: the library knows what comes then
        tokens, logprobs = self._decode(decoder, input_ids, attention_mask, prompt_index, noise, temperature, pulse)
        return _rollouts(batch, tokens.cpu(), logprobs.cpu(), set(self.stop_ids.tolist()))

    def _decode(
        self, decoder: FastDecoder | None, input_ids: Tensor, attention_mask: Tensor, prompt_index: Tensor, noise: Tensor,
        temperature: float, pulse: "Pulse | None" = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(B, N) tokens and log-probabilities; after the end of a row stand -1 and 0."""
        rows, steps = noise.shape
        device = input_ids.device
        tokens = torch.full((rows, steps), -1, device=device)
        logprobs = torch.zeros(rows, steps, device=device)
        alive, going = torch.arange(rows, device=device), torch.ones(rows, dtype=torch.bool, device=device)
        decoding: DecodeStep = (
            LibraryDecodeStep(self.model, input_ids, attention_mask)
            if decoder is None
            else FastDecodeStep(decoder, input_ids, attention_mask)
        )
        logits = decoding.first(prompt_index)
        for step in range(steps):
            next_tokens, next_logprobs = sample_tokens(logits[:, : self.vocabulary], temperature, noise[alive, step])
            tokens[alive[going], step], logprobs[alive[going], step] = next_tokens[going], next_logprobs[going]
            going = going & ~torch.isin(next_tokens, self.stop_ids)
            left = int(going.sum())
            if not left or step == steps - 1:
                break
            if pulse is not None:
                pulse.within_batch(rows - left)
            if left <= COMPACT * len(going):
                rest = decoding.leave(going)
                alive, next_tokens, going = alive[rest], next_tokens[rest], going[rest]
            logits = decoding.next(next_tokens)
        return tokens, logprobs


class Pulse:
    """Reports how many rows are done, also while a slow batch is being sampled."""

    def __init__(self, progress: OnRows, total: int) -> None:
        self._progress, self._total, self._by_graphs, self._done, self._told = progress, total, 0, 0, monotonic()

    def while_rows_end(self, done: int) -> None:
        """By graphs, which come first."""
        self._by_graphs = self._done = done
        if done == self._total or monotonic() - self._told >= PULSE_S:
            self._tell(done)

    def after_batch(self, done: int, _: int) -> None:
        self._done = self._by_graphs + done
        self._tell(self._done)

    def within_batch(self, ended: int) -> None:
        if monotonic() - self._told >= PULSE_S:
            self._tell(self._done + ended)

    def _tell(self, done: int) -> None:
        self._told = monotonic()
        self._progress(done, self._total)


def _longest_first(request: RolloutRequest) -> tuple[int, tuple[int, ...]]:
    """The order of sampling: neighbours have like lengths, equal prompts stand together, and a lack of memory shows at once."""
    return -len(request.prompt), tuple(request.prompt)


def _next_if_it_fits(answers: Iterator[dict[int, Rollout]]) -> dict[int, Rollout] | None:
    """The next answers, none after the last ones; None where memory ran out."""
    try:
        return next(answers, {})
    except torch.OutOfMemoryError:
        return None


def continuing(going: Tensor) -> Tensor:
    """The rows that continue, in places from 0 on: those beyond the new size fill the gaps, the others stay where they are."""
    left = int(going.sum())
    rest = torch.arange(left, device=going.device)
    rest[~going[:left]] = left + going[left:].nonzero().squeeze(1)
    return rest


class DecodeStep(Protocol):
    """A batch while it is decoded: logits (B, V) of the next token, one after the other."""

    def first(self, prompt_index: Tensor) -> Tensor:
        """Of B rows: row b answers prompt `prompt_index[b]`."""
        ...

    def next(self, tokens: Tensor) -> Tensor: ...

    def leave(self, going: Tensor) -> Tensor:
        """Rows that have ended leave. Returns those that go on, in their new order."""
        ...


class FastDecodeStep:
    def __init__(self, decoder: FastDecoder, input_ids: Tensor, attention_mask: Tensor) -> None:
        self.decoder, self.input_ids, self.attention_mask, self.column = decoder, input_ids, attention_mask, input_ids.shape[1]
        self.positions = position_ids(attention_mask[:, : self.column])  # (B, T)

    def first(self, prompt_index: Tensor) -> Tensor:
        decoder, width = self.decoder, self.column
        prompts = decoder.new_cache(len(self.input_ids), width)
        hidden = decoder.prefill(self.input_ids, self.positions, self.attention_mask[:, :width], prompts)
        self.cache = decoder.new_cache(len(prompt_index), self.attention_mask.shape[1])
        self.cache[..., :width, :] = prompts[:, :, prompt_index]
        self.attention_mask, self.positions = self.attention_mask[prompt_index], self.positions[prompt_index, -1]
        return decoder.logits(hidden)[prompt_index]

    def next(self, tokens: Tensor) -> Tensor:
        self.positions = self.positions + 1
        self.attention_mask[:, self.column] = True
        hidden = self.decoder.step(tokens, self.positions, self.attention_mask, self.cache, self.column)
        self.column += 1
        return self.decoder.logits(hidden)

    def leave(self, going: Tensor) -> Tensor:
        """In place: few rows are moved, where a copy would move all."""
        rest = continuing(going)
        gaps = (rest >= len(rest)).nonzero().squeeze(1)
        self.cache[:, :, gaps, :, : self.column] = self.cache[:, :, rest[gaps], :, : self.column]
        self.cache = self.cache[:, :, : len(rest)]
        self.attention_mask, self.positions = self.attention_mask[rest], self.positions[rest]
        return rest


class LibraryDecodeStep:
    def __init__(self, model: Any, input_ids: Tensor, attention_mask: Tensor) -> None:
        config = model.get_base_model().config if hasattr(model, "peft_config") else model.config
        self.model, self.input_ids, self.cache = model, input_ids, DynamicCache(config=config)
        self.attention_mask = attention_mask[:, : input_ids.shape[1]].long()
        self.positions = position_ids(self.attention_mask)

    def first(self, prompt_index: Tensor) -> Tensor:
        logits = self._logits(self.input_ids)
        if len(logits) < len(prompt_index):
            self._select(prompt_index)
            logits = logits[prompt_index]
        return logits

    def next(self, tokens: Tensor) -> Tensor:
        self.attention_mask = torch.cat([self.attention_mask, self.attention_mask.new_ones(len(tokens), 1)], dim=1)
        self.positions = self.positions[:, -1:] + 1
        return self._logits(tokens[:, None])

    def leave(self, going: Tensor) -> Tensor:
        rest = going.nonzero().squeeze(1)
        self._select(rest)
        return rest

    def _select(self, rows: Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.attention_mask, self.positions = self.attention_mask[rows], self.positions[rows]

    def _logits(self, input_ids: Tensor) -> Tensor:
        output = self.model(
            input_ids=input_ids, attention_mask=self.attention_mask, position_ids=self.positions, past_key_values=self.cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        logits: Tensor = output.logits[:, -1]
        return logits


def stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends an answer: of the generation settings, the tokenizer, and the chat template."""
    eos = model.generation_config.eos_token_id
    several = eos if isinstance(eos, list) else [eos]
    return sorted({i for i in (*several, tokenizer.eos_token_id, end_ids(tokenizer)[-1]) if i is not None})


def _rollouts(batch: Sequence[RolloutRequest], tokens: Tensor, logprobs: Tensor, stop_ids: set[int]) -> list[Rollout]:
    rollouts = []
    for request, row, values in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
        length = row.index(-1) if -1 in row else len(row)
        ended = row[length - 1] in stop_ids
        rollouts.append(Rollout(tuple(request.prompt), tuple(row[:length]), tuple(values[:length]), ended, request.stream))
    return rollouts
