"""Log-probabilities of given tokens, straight from the last hidden states, without the logits of the whole batch.

    scored = token_logprobs(hidden, model.lm_head.weight, targets, temperature=0.7, mask=mask, entropy="value")
    scored.logprobs, scored.entropy                                                                       # both (B, T)

For 64 answers of 256 tokens and 152k words, logits `(B, T, V)` in float32 take 10 GB, and training on them three times
that. Here `chunk` tokens are projected at a time, forwards and backwards, so at most `(chunk, V)` numbers exist. Chunks go
over tokens and keep the vocabulary whole: a row's softmax is then done at once, with no running logsumexp to rescale.

With a frozen projection (LoRA) nothing is projected twice: a token's log-probability depends on its own hidden state alone,
so its derivative is one vector of length H, which the forward pass can compute and keep while it has the probabilities.
With a trained projection the backward pass projects each chunk again.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from medloop.models.rollout.cuda_graph import kernels_run

# So many logits are in a chunk of the default size. A CPU gains nothing from more; a GPU reads the projection once per chunk.
CHUNK_CPU, CHUNK_GPU = 2**23, 2**27  # 32 MB in float32 and 256 MB in bfloat16; 55 and 880 tokens at 152k words

EntropyMode = Literal["none", "value", "gradient"]


class TokenLogprobs(NamedTuple):
    """Log-probabilities of the targets, and the entropy of the distributions they were drawn from, in nats, (B, T)."""

    logprobs: Tensor
    entropy: Tensor | None


def token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    temperature: float,
    bias: Tensor | None = None,
    softcap: float | None = None,
    mask: Tensor | None = None,
    places: Tensor | None = None,
    entropy: EntropyMode = "none",
    chunk: int | None = None,
) -> TokenLogprobs:
    """log softmax(logits / temperature) at `targets` (B, T), logits = hidden (B, T, H) @ weight (V, H).T + bias (V,).

    `hidden` at t must be the state that predicts the target at t: shift by one before the call.
    `softcap` c makes logits c tanh(logits / c) first (Gemma). Where `mask` (B, T) is False nothing is computed and the
    result is 0; `places` are the True ones of the flattened mask, for callers who know them: a GPU need not be waited for.
    `entropy`: `none`, its `value` for the log, or with its `gradient` for a bonus. Sums run in float32 (in
    float64 for float64 inputs); logits are rounded to the type of `hidden` first, as the model itself does when sampling.
    """
    assert temperature > 0, f"temperature must be above 0, here it is {temperature}"
    if places is None and mask is not None:
        places = mask.flatten().nonzero().squeeze(1)
    rows, answers = hidden.flatten(0, -2), targets.flatten()
    if places is not None:
        rows, answers = rows[places], answers[places]
    chunk = chunk or max(1, (CHUNK_CPU if hidden.device.type == "cpu" else CHUNK_GPU) // weight.shape[0])
    trained = weight.requires_grad or (bias is not None and bias.requires_grad)
    learns = torch.is_grad_enabled() and hidden.requires_grad
    head = _Head(temperature, softcap, chunk, entropy, "again" if trained else "keep" if learns else "none")
    logprobs, entropies = _ChunkedLogprobs.apply(rows, weight, bias, answers, head)  # type: ignore[no-untyped-call]
    return TokenLogprobs(
        *(_place(values, places, targets.shape) for values in (logprobs, entropies if entropy != "none" else None))
    )


def logits_logprobs(logits: Tensor, targets: Tensor, *, temperature: float, entropy: EntropyMode = "none") -> TokenLogprobs:
    """The same from logits (..., V) that exist already, as in sampling one token at a time; targets (...)."""
    assert temperature > 0, f"temperature must be above 0, here it is {temperature}"
    every = torch.log_softmax(logits.to(_sum_dtype(logits)) / temperature, dim=-1)
    logprobs = every.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if entropy == "none":
        return TokenLogprobs(logprobs, None)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "gradient"):
        # A forbidden token has logit -inf: it takes no part, where 0 x -inf would make NaN.
        return TokenLogprobs(logprobs, -(every.exp() * every.masked_fill(every == -torch.inf, 0.0)).sum(-1))


class _Head(NamedTuple):
    """How to project, and what the backward pass will find: derivatives to `keep`, hidden states to project `again`."""

    temperature: float
    softcap: float | None
    chunk: int
    entropy: EntropyMode
    backward: Literal["none", "keep", "again"]


class _ChunkedLogprobs(torch.autograd.Function):
    """hidden (N, H), weight (V, H), bias (V,) | None, targets (N,) -> log-probabilities and entropies (N,), float32."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, head: _Head
    ) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(targets.shape, dtype=_sum_dtype(hidden), device=hidden.device)
        log_z, entropies = torch.empty_like(logprobs), torch.zeros_like(logprobs)
        slope_products = [torch.empty_like(hidden) for _ in range(_slope_count(head))] if head.backward == "keep" else []
        fused = _fused_softmax(hidden, head)
        for rows in _chunks(len(targets), head.chunk):
            if fused is not None:
                logits = F.linear(hidden[rows], weight, bias)
                logprobs[rows], entropies[rows] = fused(logits, targets[rows], head.temperature, slopes=bool(slope_products))
                if slope_products:  # the logits are the slopes now
                    torch.mm(logits, weight, out=slope_products[0][rows])
                continue
            logits, damping = _project(hidden[rows], weight, bias, head)
            log_z[rows] = logits.logsumexp(1)
            logprobs[rows] = logits.gather(1, targets[rows, None]).squeeze(1) - log_z[rows]
            if head.entropy == "none" and head.backward != "keep":
                continue
            log_p = logits.sub_(log_z[rows, None])
            p = log_p.exp()
            if head.entropy != "none":
                entropies[rows] = -torch.einsum("nv,nv->n", p, log_p)
            if head.backward == "keep":
                slopes = _slopes(log_p, p, targets[rows], entropies[rows], damping, head)
                for place, slope in zip(slope_products, slopes, strict=True):
                    torch.mm(slope.to(weight.dtype), weight, out=place[rows])
        ctx.head = head
        ctx.set_materialize_grads(False)  # an unused output costs nothing on the way back
        if head.entropy != "gradient":
            ctx.mark_non_differentiable(entropies)
        ctx.save_for_backward(*(slope_products if head.backward == "keep" else (hidden, weight, bias, targets, log_z, entropies)))
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprobs: Tensor | None, by_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        if by_logprobs is None and by_entropy is None:
            return (None,) * 5
        pulls = [None if by is None else by[:, None] / ctx.head.temperature for by in (by_logprobs, by_entropy)]
        if ctx.head.backward == "again":
            return (*_backward_again(ctx, pulls), None, None)
        parts = [pull.to(slope.dtype) * slope for pull, slope in zip(pulls, ctx.saved_tensors, strict=False) if pull is not None]
        return (sum(parts[1:], parts[0]), None, None, None, None)


def _fused_softmax(hidden: Tensor, head: _Head) -> Any:
    """The softmax as one kernel that reads the logits twice: on a GPU, in low precision, where its results are enough."""
    if hidden.device.type != "cuda" or hidden.dtype not in (torch.bfloat16, torch.float16):
        return None
    if head.softcap is not None or head.entropy == "gradient" or head.backward == "again":
        return None
    if not kernels_run():
        return None
    from medloop.models.forward_kernels import softmax_head  # triton

    return softmax_head


def _backward_again(ctx: Any, pulls: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Gradients of hidden, weight and bias, given those of the outputs (N, 1); each chunk is projected a second time."""
    hidden, weight, bias, targets, log_z, entropies = ctx.saved_tensors
    to_hidden, to_weight, to_bias = (
        torch.zeros(of.shape, dtype=_sum_dtype(hidden), device=of.device) if needed else None
        for of, needed in zip((hidden, weight, bias), ctx.needs_input_grad, strict=False)
    )
    for rows in _chunks(len(targets), ctx.head.chunk):
        logits, damping = _project(hidden[rows], weight, bias, ctx.head)
        log_p = logits.sub_(log_z[rows, None])
        slopes = _slopes(log_p, log_p.exp(), targets[rows], entropies[rows], damping, ctx.head)
        pulled = [slope.mul_(pull[rows]) for pull, slope in zip(pulls, slopes, strict=False) if pull is not None]
        to_logits = sum(pulled[1:], pulled[0])
        if to_bias is not None:
            to_bias += to_logits.sum(0)
        to_logits = to_logits.to(weight.dtype)
        if to_hidden is not None:
            to_hidden[rows] = (to_logits @ weight).to(to_hidden.dtype)
        if to_weight is not None:
            to_weight += to_logits.T @ hidden[rows]
    grads = zip((to_hidden, to_weight, to_bias), (hidden, weight, bias), strict=True)
    return tuple(None if grad is None else grad.to(of.dtype) for grad, of in grads)


def _project(hidden: Tensor, weight: Tensor, bias: Tensor | None, head: _Head) -> tuple[Tensor, Tensor | None]:
    """Logits / temperature (n, V), and what the softcap multiplies gradients by, (n, V) or None."""
    logits = hidden @ weight.T if bias is None else torch.addmm(bias, hidden, weight.T)
    logits = logits.to(_sum_dtype(hidden))
    damping = None
    if head.softcap is not None:
        logits.div_(head.softcap).tanh_()
        damping = 1 - logits.square()
        logits.mul_(head.softcap)
    return logits.div_(head.temperature), damping


def _slopes(log_p: Tensor, p: Tensor, targets: Tensor, entropy: Tensor, damping: Tensor | None, head: _Head) -> list[Tensor]:
    """By the logits z / T: d log p_t / dz = 1[t] - p and, with `gradient`, d H / dz = -p (log p + H), both (n, V).

    They are made in the memory of `p` and `log_p`, which are lost. The factor 1 / T is left to the backward pass.
    """
    by_entropy = [log_p.add_(entropy[:, None]).mul_(p).neg_()] if head.entropy == "gradient" else []
    by_logprob = p.neg_()
    by_logprob.scatter_add_(1, targets[:, None], torch.ones_like(by_logprob[:, :1]))
    slopes = [by_logprob, *by_entropy]
    return slopes if damping is None else [slope.mul_(damping) for slope in slopes]


def _slope_count(head: _Head) -> int:
    return 2 if head.entropy == "gradient" else 1


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _sum_dtype(of: Tensor) -> torch.dtype:
    return torch.float64 if of.dtype == torch.float64 else torch.float32


def _place(values: Tensor | None, places: Tensor | None, shape: torch.Size) -> Any:
    """Values of the chosen tokens (N,) in their places of (B, T), 0 elsewhere."""
    if values is None:
        return None
    if places is None:
        return values.view(shape)
    return values.new_zeros(shape.numel()).index_copy(0, places, values).view(shape)
