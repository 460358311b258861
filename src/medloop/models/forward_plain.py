"""The parts of the fast training forward as plain operations: on a CPU, and the attention of models with a soft cap anywhere.

The functions are those of forward_kernels.py under the same names, so a step without Triton is the same step.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from medloop.models.packing import PackedRows


def add_and_norm(x: Tensor, y: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    added = x if y is None else x + y
    scales = torch.rsqrt(added.square().mean(-1) + eps)
    return added, (added * scales[:, None] * weight).to(dtype), scales


def add_and_norm_backward(
    x: Tensor, weight: Tensor, scales: Tensor, by_normed: Tensor, by_added: Tensor
) -> tuple[Tensor, Tensor]:
    gradient = norm_backward(x, weight, scales[:, None], by_normed) + by_added
    return gradient, gradient.to(by_normed.dtype)


def norm_backward(x: Tensor, weight: Tensor, scales: Tensor, by_normed: Tensor) -> Tensor:
    """The gradient of x, given that of x * scales * weight, where `scales` (…, 1) make the mean square of a row 1."""
    unit, pull = x * scales, by_normed.float() * weight
    return scales * (pull - unit * (pull * unit).mean(-1, keepdim=True))


def rotate(
    source: Tensor, target: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *, heads: int, turned: int, rotary_dim: int,
    back: bool = False,
) -> None:  # fmt: skip
    dim, half = cos.shape[-1], rotary_dim // 2
    x = source[:, : heads * dim].reshape(len(source), heads, dim)
    c, s = cos[positions, None, :half], sin[positions, None, half:rotary_dim]  # that of the first half has its sign
    s = -s if back else s
    a, b = x[:, :turned, :half], x[:, :turned, half:rotary_dim]
    out = x.clone()
    out[:, :turned, :half], out[:, :turned, half:rotary_dim] = a * c - b * s, b * c + a * s
    target[:, : heads * dim] = out.flatten(1)


def gated(gate_up: Tensor, *, gelu: bool) -> Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    return ((F.gelu(gate, approximate="tanh") if gelu else F.silu(gate)) * up).to(gate_up.dtype)


def gated_backward(gate_up: Tensor, by_activated: Tensor, *, gelu: bool) -> Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    inner = 1.5957691216057308 * (gate + 0.044715 * gate**3) if gelu else gate  # GELU by tanh is gate * sigmoid(inner), too
    slope = 1.5957691216057308 * (1 + 0.134145 * gate.square()) if gelu else 1.0
    share, pull = torch.sigmoid(inner), by_activated.float()
    activation = gate * share
    activated = (activation * up).to(gate_up.dtype)
    gate_up[:] = torch.cat([pull * up * (share + activation * (1 - share) * slope), pull * activation], dim=-1)
    return activated


class _Grid(NamedTuple):
    """Segments of packed rows side by side, padded on the right."""

    query: Tensor  # (S, Q): which token
    key: Tensor  # (S, K): which of the tokens that `key_index` names
    mask: Tensor  # (S, 1, 1, Q, K): which keys a query attends to
    query_place: tuple[Tensor, Tensor]  # of each token: segment and column
    key_place: tuple[Tensor, Tensor]


def _grid(rows: PackedRows, window: int | None) -> _Grid:
    def side(starts: Tensor, longest: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        first, lengths = starts[:-1].long(), starts.diff().long()
        columns = torch.arange(longest, device=starts.device)
        index = first[:, None] + torch.minimum(columns, lengths[:, None] - 1)
        segment = torch.repeat_interleave(torch.arange(len(first), device=starts.device), lengths, output_size=total)
        return index, lengths, (segment, torch.arange(total, device=starts.device) - first[segment])

    total = len(rows.tokens)
    query, query_lengths, query_place = side(rows.query_starts, rows.longest_query)
    total = len(rows.key_index)
    key, key_lengths, key_place = side(rows.key_starts, rows.longest_key)
    columns = torch.arange(rows.longest_query, device=query.device)
    # Of a query; padding stands at the last one, because beyond it a window may hold no key, and softmax is NaN there.
    place = torch.minimum(columns, query_lengths[:, None] - 1) + (key_lengths - query_lengths)[:, None]
    distance = place[:, :, None] - torch.arange(rows.longest_key, device=query.device)  # (S, Q, K)
    mask = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return _Grid(query, key, mask[:, None, None], query_place, key_place)


def _scores(q: Tensor, k: Tensor, grid: _Grid, scale: float, softcap: float | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries (S, K, G, Q, D) and keys (S, K, 1, C, D) in float32, weights (S, K, G, Q, C), and the capped scores' tangents."""
    kv_heads = k.shape[1]
    queries = q[grid.query].float().reshape(*grid.query.shape, kv_heads, -1, q.shape[2]).permute(0, 2, 3, 1, 4)
    keys = k[grid.key].float().transpose(1, 2)[:, :, None]
    scores = queries @ keys.transpose(-1, -2) * scale
    tangent = torch.empty(0)
    if softcap is not None:
        tangent = torch.tanh(scores / softcap)
        scores = tangent * softcap
    return queries, keys, scores.masked_fill(~grid.mask, -torch.inf).softmax(-1), tangent


def attention(
    q: Tensor, k: Tensor, v: Tensor, rows: PackedRows, scale: float, window: int | None, softcap: float | None
) -> Tensor:
    """q (N, h, D), k and v (M, K, D), as `key_index` names them; returns (N, h, D)."""
    grid = _grid(rows, window)
    with torch.autocast(q.device.type, enabled=False):  # as on the way back
        weights = _scores(q, k, grid, scale, softcap)[2]
        attended = weights @ v[grid.key].float().transpose(1, 2)[:, :, None]  # (S, K, G, Q, D)
    segment, column = grid.query_place
    return attended.permute(0, 3, 1, 2, 4).flatten(2, 3)[segment, column].to(q.dtype)


def attention_backward(
    by_attended: Tensor, q: Tensor, k: Tensor, v: Tensor, rows: PackedRows, scale: float, window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v; the weights are computed again."""
    grid = _grid(rows, window)
    queries, keys, weights, tangent = _scores(q, k, grid, scale, softcap)
    padded = torch.zeros(*grid.query.shape, *q.shape[1:], dtype=torch.float32, device=q.device)
    padded[grid.query_place] = by_attended.float()
    pull = padded.reshape(*grid.query.shape, k.shape[1], -1, q.shape[2]).permute(0, 2, 3, 1, 4)  # (S, K, G, Q, D)
    values = v[grid.key].float().transpose(1, 2)[:, :, None]
    to_values = (weights.transpose(-1, -2) @ pull).sum(2)  # (S, K, C, D)
    by_weights = pull @ values.transpose(-1, -2)
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True)) * scale
    if softcap is not None:
        by_scores = by_scores * (1 - tangent.square())
    to_queries = (by_scores @ keys).permute(0, 3, 1, 2, 4).flatten(2, 3)  # (S, Q, h, D)
    to_keys = (by_scores.transpose(-1, -2) @ queries).sum(2)
    to_k, to_v = (part.transpose(1, 2)[grid.key_place].to(k.dtype) for part in (to_keys, to_values))
    return to_queries[grid.query_place].to(q.dtype), to_k, to_v
