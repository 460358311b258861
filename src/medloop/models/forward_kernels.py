"""Between the products of the fast training forward, in Triton: norms, rotation, the MLP's gate, the softmax of the head.

Rows are tokens without padding. Each kernel reads its inputs once and writes its outputs once; sums are float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

HEAD_BLOCK = 4096  # words of the vocabulary that are read together


@triton.jit
def _norm(x, y, weight, added, normed, scales, size, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    value = tl.load(x + row * size + columns, mask=mask, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(y + row * size + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(added + row * size + columns, value, mask=mask)
    scale = tl.rsqrt(tl.sum(value * value) / size + eps)
    tl.store(scales + row, scale)
    result = value * scale * tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(normed + row * size + columns, result.to(normed.dtype.element_ty), mask=mask)


@triton.jit
def _norm_backward(x, weight, scales, by_normed, by_added, to_x, to_y, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    scale = tl.load(scales + row)
    unit = tl.load(x + row * size + columns, mask=mask, other=0.0).to(tl.float32) * scale
    pull = tl.load(by_normed + row * size + columns, mask=mask, other=0.0).to(tl.float32)
    pull *= tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    gradient = scale * (pull - unit * tl.sum(pull * unit) / size)
    gradient += tl.load(by_added + row * size + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(to_x + row * size + columns, gradient, mask=mask)
    tl.store(to_y + row * size + columns, gradient.to(to_y.dtype.element_ty), mask=mask)


@triton.jit
def _rotate(
    source, target, cos, sin, positions, source_stride, target_stride, heads, turned, D: tl.constexpr, R: tl.constexpr,
    BLOCK: tl.constexpr, HEADS: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """The first R dimensions of the first `turned` of `heads` heads are rotated, the rest is copied; BACK turns the other way."""
    row = tl.program_id(0).to(tl.int64)
    head, low = tl.arange(0, HEADS), tl.arange(0, BLOCK)
    HALF: tl.constexpr = D // 2
    mask = (head < heads)[:, None] & (low < HALF)[None, :]
    first = tl.where(low < R // 2, low, low + R // 2)  # dimensions that are not rotated are paired among themselves
    second = tl.where(low < R // 2, low + R // 2, low + HALF)
    here = source + row * source_stride + head[:, None] * D
    there = target + row * target_stride + head[:, None] * D
    a = tl.load(here + first[None, :], mask=mask, other=0.0).to(tl.float32)
    b = tl.load(here + second[None, :], mask=mask, other=0.0).to(tl.float32)
    place = tl.load(positions + row) * D
    c = tl.load(cos + place + first, mask=low < HALF, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + place + second, mask=low < HALF, other=0.0).to(tl.float32)[None, :]  # that of the first one has its sign
    if BACK:
        s = -s
    turns = (head < turned)[:, None]
    tl.store(there + first[None, :], tl.where(turns, a * c - b * s, a).to(target.dtype.element_ty), mask=mask)
    tl.store(there + second[None, :], tl.where(turns, b * c + a * s, b).to(target.dtype.element_ty), mask=mask)


@triton.jit
def _share(gate, GELU: tl.constexpr):
    """What a gate is multiplied with, and the slope of that by the gate: sigmoid(gate), or tanh's GELU, which is one, too."""
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate
    slope = 1.5957691216057308 * (1.0 + 0.134145 * gate * gate) if GELU else 1.0
    share = 1.0 / (1.0 + tl.exp(-inner))
    return share, share * (1.0 - share) * slope


@triton.jit
def _gated(gate_up, activated, size, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < size
    gate = tl.load(gate_up + row * 2 * size + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * size + size + columns, mask=mask, other=0.0).to(tl.float32)
    share, _ = _share(gate, GELU)
    result = gate * share * up
    tl.store(activated + row * size + columns, result.to(activated.dtype.element_ty), mask=mask)


@triton.jit
def _gated_backward(gate_up, by_activated, activated, size, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """Gradients take the place of gate and up; what came out in the forward pass is computed again."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < size
    here = gate_up + row * 2 * size + columns
    gate = tl.load(here, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(here + size, mask=mask, other=0.0).to(tl.float32)
    pull = tl.load(by_activated + row * size + columns, mask=mask, other=0.0).to(tl.float32)
    share, slope = _share(gate, GELU)
    activation = gate * share
    tl.store(activated + row * size + columns, (activation * up).to(activated.dtype.element_ty), mask=mask)
    by_gate = pull * up * (share + gate * slope)
    tl.store(here, by_gate.to(gate_up.dtype.element_ty), mask=mask)
    tl.store(here + size, (pull * activation).to(gate_up.dtype.element_ty), mask=mask)


@triton.jit
def _softmax_head(logits, targets, logprobs, entropies, temperature, size, stride, SLOPES: tl.constexpr, BLOCK: tl.constexpr):
    """Of a row of logits: log-probability of its target and entropy; with SLOPES the row becomes 1[target] - p."""
    row = tl.program_id(0).to(tl.int64)
    words = tl.arange(0, BLOCK)
    logits += row * stride
    top, total, weighted = -float("inf"), 0.0, 0.0
    for start in range(0, size, BLOCK):
        live = start + words < size
        x = tl.load(logits + start + words, mask=live, other=-float("inf")).to(tl.float32) / temperature
        higher = tl.maximum(top, tl.max(x))
        p = tl.exp(x - higher)
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(p)
        weighted = weighted * shrink + tl.sum(tl.where(live, p * x, 0.0))
        top = higher
    log_z = top + tl.log(total)
    target = tl.load(targets + row)
    tl.store(logprobs + row, tl.load(logits + target).to(tl.float32) / temperature - log_z)
    tl.store(entropies + row, log_z - weighted / total)
    if SLOPES:
        tl.debug_barrier()  # the target's logit has been read
        for start in range(0, size, BLOCK):
            live = start + words < size
            x = tl.load(logits + start + words, mask=live, other=-float("inf")).to(tl.float32) / temperature
            slope = tl.where(start + words == target, 1.0, 0.0) - tl.exp(x - log_z)
            tl.store(logits + start + words, slope.to(logits.dtype.element_ty), mask=live)


def add_and_norm(x: Tensor, y: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x (N, H) in float32, y to be added to it; the sum, its norm in `dtype`, and the scale of each row."""
    rows, size = x.shape
    added = x if y is None else torch.empty_like(x)
    normed, scales = torch.empty(rows, size, dtype=dtype, device=x.device), torch.empty(rows, device=x.device)
    _norm[(rows,)](
        x, x if y is None else y, weight, added, normed, scales, size, eps, ADD=y is not None,
        BLOCK=triton.next_power_of_2(size), num_warps=8 if size > 1024 else 4,
    )  # fmt: skip
    return added, normed, scales


def add_and_norm_backward(
    x: Tensor, weight: Tensor, scales: Tensor, by_normed: Tensor, by_added: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of both summands, in float32 and in the type of the norm."""
    to_x, to_y = torch.empty_like(x), torch.empty_like(by_normed)
    rows, size = x.shape
    _norm_backward[(rows,)](
        x, weight, scales, by_normed, by_added, to_x, to_y, size, BLOCK=triton.next_power_of_2(size),
        num_warps=8 if size > 1024 else 4,
    )  # fmt: skip
    return to_x, to_y


def rotate(
    source: Tensor, target: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *, heads: int, turned: int, rotary_dim: int,
    back: bool = False,
) -> None:  # fmt: skip
    """Heads of (N, heads x D), from one tensor to another or in place."""
    dim = cos.shape[-1]
    _rotate[(len(source),)](
        source, target, cos, sin, positions, source.stride(0), target.stride(0), heads, turned, D=dim,
        R=rotary_dim, BLOCK=triton.next_power_of_2(dim // 2), HEADS=triton.next_power_of_2(heads), BACK=back, num_warps=4,
    )  # fmt: skip


def gated(gate_up: Tensor, *, gelu: bool) -> Tensor:
    """activation(gate) * up."""
    rows, size = len(gate_up), gate_up.shape[1] // 2
    activated = torch.empty(rows, size, dtype=gate_up.dtype, device=gate_up.device)
    _gated[(rows, triton.cdiv(size, 1024))](gate_up, activated, size, GELU=gelu, BLOCK=1024, num_warps=4)
    return activated


def gated_backward(gate_up: Tensor, by_activated: Tensor, *, gelu: bool) -> Tensor:
    """`gate_up` becomes its gradient; returns what `gated` returned, computed again, in the memory of `by_activated`."""
    rows, size = by_activated.shape
    _gated_backward[(rows, triton.cdiv(size, 1024))](
        gate_up, by_activated, by_activated, size, GELU=gelu, BLOCK=1024, num_warps=4
    )
    return by_activated


def softmax_head(logits: Tensor, targets: Tensor, temperature: float, *, slopes: bool) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (n,) of logits (n, V); with `slopes` the logits become 1[target] - p."""
    logprobs = torch.empty(len(logits), device=logits.device)
    entropies = torch.empty_like(logprobs)
    _softmax_head[(len(logits),)](
        logits, targets, logprobs, entropies, temperature, logits.shape[1], logits.stride(0), SLOPES=slopes, BLOCK=HEAD_BLOCK,
        num_warps=8,
    )  # fmt: skip
    return logprobs, entropies
