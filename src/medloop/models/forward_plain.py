"""The parts of the fast training forward as plain operations: on a CPU, and the attention of models with a soft cap anywhere.

The functions are those of forward_kernels.py under the same names, so a step without Triton is the same step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from medloop.models.packing import PackedRows


def add_and_norm(x: Tensor, y: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    added = x if y is None else x + y
    scales = torch.rsqrt(torch.linalg.vecdot(added, added) / added.shape[-1] + eps)
    return added, (added * scales[:, None]).mul_(weight).to(dtype), scales


def add_and_norm_backward(
    x: Tensor, weight: Tensor, scales: Tensor, by_normed: Tensor, by_added: Tensor
) -> tuple[Tensor, Tensor]:
    gradient = norm_backward(x, weight, scales[:, None], by_normed).add_(by_added)
    return gradient, gradient.to(by_normed.dtype)


def norm_backward(x: Tensor, weight: Tensor, scales: Tensor, by_normed: Tensor) -> Tensor:
    """The gradient of x, given that of x * scales * weight, where `scales` (…, 1) make the mean square of a row 1."""
    pull = by_normed.float() * weight
    means = torch.linalg.vecdot(pull, x)[..., None] / x.shape[-1]
    return torch.addcmul(pull, x, means * scales.square(), value=-1).mul_(scales)


def rotate(
    source: Tensor, target: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *, heads: int, turned: int, rotary_dim: int,
    back: bool = False,
) -> None:  # fmt: skip
    dim, half = cos.shape[-1], rotary_dim // 2
    x, out = (part[:, : heads * dim].unflatten(1, (heads, dim)) for part in (source, target))  # type: ignore[no-untyped-call]
    c, s = cos[positions, None, :half], sin[positions, None, half:rotary_dim]  # that of the first half has its sign
    s = -s if back else s
    a, b = x[:, :turned, :half], x[:, :turned, half:rotary_dim]
    first, second = torch.addcmul(a * c, b, s, value=-1), torch.addcmul(b * c, a, s)
    if source is not target:
        out[:, :turned, rotary_dim:], out[:, turned:] = x[:, :turned, rotary_dim:], x[:, turned:]
    out[:, :turned, :half], out[:, :turned, half:rotary_dim] = first, second


def gated(gate_up: Tensor, *, gelu: bool) -> Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") if gelu else F.silu(gate)).mul_(up).to(gate_up.dtype)


def gated_backward(gate_up: Tensor, by_activated: Tensor, *, gelu: bool) -> Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    pull = by_activated.float()
    activation = F.gelu(gate, approximate="tanh") if gelu else F.silu(gate)
    activated = (activation * up).to(gate_up.dtype)
    by_up, by_activation = activation.mul_(pull), pull * up
    aten = torch.ops.aten
    by_gate = aten.gelu_backward(by_activation, gate, approximate="tanh") if gelu else aten.silu_backward(by_activation, gate)
    half = gate_up.shape[1] // 2
    gate_up[:, :half], gate_up[:, half:] = by_gate, by_up
    return activated


@dataclass
class _Grid:
    """Some segments of packed rows side by side, padded on the right."""

    query: Tensor  # (S, Q): which token
    key: Tensor  # (S, K): which token
    mask: Tensor  # (S, 1, 1, Q, K): which keys a query attends to
    tokens: Tensor  # (n,): the tokens of these segments
    place: tuple[Tensor, Tensor]  # (n,): segment and column of each

    @cached_property
    def added(self) -> Tensor:
        """The mask as torch's kernel for a CPU adds it, (S, 1, Q, K): made once for all layers and both ways."""
        mask = self.mask[:, 0]
        return torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)


def _grids(rows: PackedRows, window: int | None) -> list[_Grid]:
    """Prompts and answers apart: long prompts are no padding for short answers. Made once for all layers of a window."""
    if window not in rows.grids:
        query_lengths, key_lengths = rows.query_starts.diff(), rows.key_starts.diff()
        whole = query_lengths == key_lengths
        parts = [part.nonzero().squeeze(1) for part in (whole, ~whole)]
        rows.grids[window] = [_grid(rows, segments, window) for segments in parts if len(segments)]
    return rows.grids[window]  # type: ignore[no-any-return]


def _grid(rows: PackedRows, segments: Tensor, window: int | None) -> _Grid:
    def side(starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, lengths = starts[:-1][segments].long(), starts.diff()[segments].long()
        columns = torch.arange(int(lengths.max()), device=starts.device)
        return first[:, None] + torch.minimum(columns, lengths[:, None] - 1), lengths, columns

    query, query_lengths, columns = side(rows.query_starts)
    key, key_lengths, key_columns = side(rows.key_starts)
    # Of a query; padding stands at the last one, because beyond it a window may hold no key, and softmax is NaN there.
    place = torch.minimum(columns, query_lengths[:, None] - 1) + (key_lengths - query_lengths)[:, None]
    distance = place[:, :, None].int() - key_columns.int()  # (S, Q, K)
    mask = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    live = (columns < query_lengths[:, None]).nonzero()
    segment, column = live[:, 0], live[:, 1]
    return _Grid(query, rows.key_index[key], mask[:, None, None], query[segment, column], (segment, column))


def _scores(q: Tensor, k: Tensor, grid: _Grid, scale: float, softcap: float | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries (S, K, G, Q, D) and keys (S, K, 1, C, D) in float32, weights (S, K, G, Q, C), and the capped scores' tangents."""
    queries, keys = _queries(q, k.shape[1], grid), k[grid.key].float().transpose(1, 2)[:, :, None]
    scores = queries @ keys.transpose(-1, -2) * scale
    tangent = torch.empty(0)
    if softcap is not None:
        tangent = torch.tanh(scores / softcap)
        scores = tangent * softcap
    return queries, keys, scores.masked_fill(~grid.mask, -torch.inf).softmax(-1), tangent


def _queries(q: Tensor, kv_heads: int, grid: _Grid) -> Tensor:
    return q[grid.query].float().reshape(*grid.query.shape, kv_heads, -1, q.shape[2]).permute(0, 2, 3, 1, 4)


def attention(
    q: Tensor, k: Tensor, v: Tensor, rows: PackedRows, scale: float, window: int | None, softcap: float | None
) -> tuple[Tensor, list[Tensor]]:
    """q (N, h, D), k and v (N, K, D); returns (N, h, D), and what the way back needs of it."""
    result, saved = torch.empty_like(q, memory_format=torch.contiguous_format), []
    for grid in _grids(rows, window):
        if _is_fused(q, softcap):
            attended, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *_side_by_side(q, k, v, grid), 0.0, False, attn_mask=grid.added, scale=scale
            )
            saved += [attended, log_sums]
            attended = attended.transpose(1, 2)  # (S, Q, h, D)
        else:
            with torch.autocast(q.device.type, enabled=False):  # as on the way back
                weights = _scores(q, k, grid, scale, softcap)[2]
                attended = weights @ v[grid.key].float().transpose(1, 2)[:, :, None]  # (S, K, G, Q, D)
            attended = attended.permute(0, 3, 1, 2, 4).flatten(2, 3)
        result[grid.tokens] = attended[grid.place].to(q.dtype)
    return result, saved


def attention_backward(
    by_attended: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: PackedRows, scale: float, window: int | None,
    softcap: float | None, saved: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v in float32; without the fused kernel the weights are computed again."""
    to_q = torch.empty(q.shape, device=q.device)
    to_k, to_v = torch.zeros(k.shape, device=k.device), torch.zeros(v.shape, device=v.device)
    for number, grid in enumerate(_grids(rows, window)):
        padded = torch.zeros(*grid.query.shape, *q.shape[1:], dtype=torch.float32, device=q.device)
        padded[grid.place] = by_attended[grid.tokens].float()
        if _is_fused(q, softcap):
            by_q, by_k, by_v = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                padded.transpose(1, 2), *_side_by_side(q, k, v, grid), *saved[2 * number : 2 * number + 2], 0.0, False,
                attn_mask=grid.added, scale=scale,
            )  # fmt: skip
            by_q = by_q.transpose(1, 2)  # (S, Q, h, D)
        else:
            queries, keys, weights, tangent = _scores(q, k, grid, scale, softcap)
            pull = padded.reshape(*grid.query.shape, k.shape[1], -1, q.shape[2]).permute(0, 2, 3, 1, 4)  # (S, K, G, Q, D)
            values = v[grid.key].float().transpose(1, 2)[:, :, None]
            by_v = (weights.transpose(-1, -2) @ pull).sum(2)  # (S, K, C, D)
            by_weights = pull @ values.transpose(-1, -2)
            by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True)) * scale
            if softcap is not None:
                by_scores = by_scores * (1 - tangent.square())
            by_q = (by_scores @ keys).permute(0, 3, 1, 2, 4).flatten(2, 3)
            by_k = (by_scores.transpose(-1, -2) @ queries).sum(2)
        to_q[grid.tokens] = by_q[grid.place]
        for total, part in ((to_k, by_k), (to_v, by_v)):  # a prompt's tokens have the sum over its answers; padding adds 0
            total.index_add_(0, grid.key.flatten(), part.transpose(1, 2).reshape(-1, *k.shape[1:]))
    return to_q, to_k, to_v


def _is_fused(q: Tensor, softcap: float | None) -> bool:
    """Whether torch's own kernel for a CPU does it; it knows no soft cap."""
    return q.device.type == "cpu" and softcap is None and q.dtype == torch.float32


def _side_by_side(q: Tensor, k: Tensor, v: Tensor, grid: _Grid) -> list[Tensor]:
    """(S, h, Q, D), and (S, K, C, D) twice."""
    return [q[grid.query].transpose(1, 2), k[grid.key].transpose(1, 2), v[grid.key].transpose(1, 2)]
