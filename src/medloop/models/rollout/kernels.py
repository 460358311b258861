"""The step of the fast decoder on CUDA as few kernels: what stands between the matrix products, written in Triton.

    step = FusedStep(decoder, rows=64)              # the memory of one size; the weights stay the decoder's
    hidden = step(tokens, first, column, cache)     # (B,), (B,), (1,), (L, 2, B, K, T, D) -> (B, H)
    draw = FusedDraw(rows, vocabulary, stop_ids)
    draw(logits, ...)                               # tokens and log-probabilities, by inverting the cumulative distribution

A layer is four products and six kernels. The product of a layer also computes the input of its adapter's second matrix (`lora_a`
stands below the weights), and that second matrix is multiplied inside the kernel that follows: with the rotation and the write
into the cache, with the gate, or with the residual and the norm. The attention reads only the columns between a row's first token
and the current one, or the last of them in a layer with a window. The residual stream is float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from medloop.models.rollout.decode import FastDecoder, FusedLinear

ATTENTION_BLOCK = 64  # columns of the cache that are read together
PROGRAMS = 132  # of the attention at least: one for each multiprocessor of a large GPU
CHUNK = 2048  # words of the vocabulary that are summed together


@triton.jit
def _add_lora(y, b, acc, columns, mask, out_size, first_rank, last_rank, RANKS: tl.constexpr):
    """acc + a[first_rank:last_rank] @ b[first_rank:last_rank, columns], where a stands in y after its `out_size` outputs."""
    for offset in tl.static_range(RANKS):  # unrolled, so that all loads are on their way at once
        rank = first_rank + offset
        a = tl.load(y + out_size + rank, mask=rank < last_rank, other=0.0).to(tl.float32)
        acc += a * tl.load(b + rank * out_size + columns, mask=mask & (rank < last_rank), other=0.0).to(tl.float32)
    return acc


@triton.jit
def _norm_and_store(x, weight, out, columns, mask, size, eps):
    scale = tl.rsqrt(tl.sum(x * x) / size + eps)
    normed = x * scale * tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + columns, normed.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _embed(tokens, embedding, residual, weight, out, size, eps, embed_scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    x = tl.load(embedding + tl.load(tokens + row) * size + columns, mask=mask, other=0.0).to(tl.float32) * embed_scale
    tl.store(residual + row * size + columns, x, mask=mask)
    _norm_and_store(x, weight, out + row * size, columns, mask, size, eps)


@triton.jit
def _add_and_norm(
    y, b, residual, weight, output_norm, out, size, y_stride, ranks, eps, BLOCK: tl.constexpr, RANKS: tl.constexpr,
    OUTPUT_NORM: tl.constexpr,
):  # fmt: skip
    """residual += y + its adapter, normed where the family does that; out = norm(residual)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < size
    y += row * y_stride
    acc = tl.load(y + columns, mask=mask, other=0.0).to(tl.float32)
    acc = _add_lora(y, b, acc, columns, mask, size, 0, ranks, RANKS)
    if OUTPUT_NORM:
        acc = acc * tl.rsqrt(tl.sum(acc * acc) / size + eps)
        acc = acc * tl.load(output_norm + columns, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(residual + row * size + columns, mask=mask, other=0.0) + acc
    tl.store(residual + row * size + columns, x, mask=mask)
    _norm_and_store(x, weight, out + row * size, columns, mask, size, eps)


@triton.jit
def _rotate_and_cache(
    y, b, q_out, keys, values, cos, sin, first, column, q_norm, k_norm, y_stride, row_stride, head_stride,
    heads, kv_heads, q_ranks, k_ranks, v_ranks, eps, D: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr,
    RANKS: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """A head of q, k or v: adapter, norm of the head where the model has one, rotation of its first R dimensions; k and v go into
    the cache. SHARED: one adapter for q, k and v together, as their matrix is one."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    HALF: tl.constexpr = D // 2
    out_size = (heads + 2 * kv_heads) * D
    pair = tl.arange(0, BLOCK)
    mask = pair < HALF
    low = tl.where(pair < R // 2, pair, pair + R // 2)  # dimensions that are not rotated are paired among themselves
    high = tl.where(pair < R // 2, pair + R // 2, pair + HALF)
    is_q, is_v = head < heads, head >= heads + kv_heads
    first_rank = tl.where(is_q, 0, tl.where(is_v, q_ranks + k_ranks, q_ranks))
    last_rank = tl.where(is_q, q_ranks, tl.where(is_v, q_ranks + k_ranks + v_ranks, q_ranks + k_ranks))
    if SHARED:
        first_rank, last_rank = 0, q_ranks
    y += row * y_stride
    a = tl.load(y + head * D + low, mask=mask, other=0.0).to(tl.float32)
    c = tl.load(y + head * D + high, mask=mask, other=0.0).to(tl.float32)
    a = _add_lora(y, b, a, head * D + low, mask, out_size, first_rank, last_rank, RANKS)
    c = _add_lora(y, b, c, head * D + high, mask, out_size, first_rank, last_rank, RANKS)
    at = tl.load(column)
    if not is_v:
        if NORM:
            scale = tl.rsqrt((tl.sum(a * a) + tl.sum(c * c)) / D + eps)
            norm = q_norm if is_q else k_norm
            a = a * scale * tl.load(norm + low, mask=mask, other=0.0).to(tl.float32)
            c = c * scale * tl.load(norm + high, mask=mask, other=0.0).to(tl.float32)
        position = (at - tl.load(first + row)) * D
        turned = a * tl.load(cos + position + low, mask=mask, other=0.0).to(tl.float32)
        turned += c * tl.load(sin + position + low, mask=mask, other=0.0).to(tl.float32)
        c = c * tl.load(cos + position + high, mask=mask, other=0.0).to(tl.float32)
        c += a * tl.load(sin + position + high, mask=mask, other=0.0).to(tl.float32)
        a = turned
    if is_q:
        target = q_out + (row * heads + head) * D
    else:
        kv_head = tl.where(is_v, head - heads - kv_heads, head - heads)
        offset = row * row_stride + kv_head * head_stride + at * D
        target = (values if is_v else keys) + offset
    tl.store(target + low, a.to(target.dtype.element_ty), mask=mask)
    tl.store(target + high, c.to(target.dtype.element_ty), mask=mask)


@triton.jit
def _attend(
    q, keys, values, out, partial, first, column, row_stride, head_stride, heads, scale, window, softcap,
    GROUP: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    """The queries of one row that share a key-value head, over one part of the live columns (flash decoding)."""
    row, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    g, d, n = tl.arange(0, G), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK)
    in_head = d < D
    head = row * heads + kv_head * GROUP + g
    queries = tl.load(q + head[:, None] * D + d[None, :], mask=(g < GROUP)[:, None] & in_head[None, :], other=0.0)
    end = tl.load(column) + 1
    start = tl.maximum(tl.load(first + row), end - window)
    blocks = tl.cdiv(end - start, BLOCK * SPLITS)
    start += split * blocks * BLOCK
    end = tl.minimum(end, start + blocks * BLOCK)
    keys += row * row_stride + kv_head * head_stride
    values += row * row_stride + kv_head * head_stride
    highest = tl.full([G], -1e30, tl.float32)
    total = tl.zeros([G], tl.float32)
    acc = tl.zeros([G, BLOCK_D], tl.float32)
    for block in range(start, end, BLOCK):
        columns = block + n
        live = columns < end
        k = tl.load(keys + columns[None, :] * D + d[:, None], mask=live[None, :] & in_head[:, None], other=0.0)
        scores = tl.dot(queries, k) * scale
        if SOFTCAP:
            scores = softcap * (2.0 / (1.0 + tl.exp(-2.0 * scores / softcap)) - 1.0)  # tanh
        scores = tl.where(live[None, :], scores, -1e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.where(live[None, :], tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(highest - higher)
        v = tl.load(values + columns[:, None] * D + d[None, :], mask=live[:, None] & in_head[None, :], other=0.0)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = higher
    mask = (g < GROUP)[:, None] & in_head[None, :]
    if SPLITS == 1:
        tl.store(out + head[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty), mask=mask)
    else:  # the sum, the highest score and the total of this part
        place = (head * SPLITS + split) * (D + 2)
        tl.store(partial + place[:, None] + d[None, :], acc, mask=mask)
        tl.store(partial + place + D, highest, mask=g < GROUP)
        tl.store(partial + place + D + 1, total, mask=g < GROUP)


@triton.jit
def _join_splits(partial, out, D: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    place = (head * SPLITS + s) * (D + 2)
    highest = tl.load(partial + place + D, mask=s < SPLITS, other=-1e30)
    share = tl.exp(highest - tl.max(highest))
    total = tl.sum(share * tl.load(partial + place + D + 1, mask=s < SPLITS, other=0.0))
    parts = tl.load(partial + place[:, None] + d[None, :], mask=(s < SPLITS)[:, None] & (d < D)[None, :], other=0.0)
    joined = tl.sum(parts * share[:, None], 0) / total
    tl.store(out + head * D + d, joined.to(out.dtype.element_ty), mask=d < D)


@triton.jit
def _gate_times_up(
    y, b, out, rows, size, y_stride, gate_ranks, up_ranks, up_first, M: tl.constexpr, N: tl.constexpr, R: tl.constexpr,
    GELU: tl.constexpr,
):  # fmt: skip
    """activation(gate + its adapter) * (up + its adapter); the ranks of up's adapter begin at `up_first`."""
    m = (tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)
    n = tl.program_id(1) * N + tl.arange(0, N)
    mask = (m < rows)[:, None] & (n < size)[None, :]
    gate = tl.load(y + m[:, None] * y_stride + n[None, :], mask=mask, other=0.0).to(tl.float32)
    up = tl.load(y + m[:, None] * y_stride + size + n[None, :], mask=mask, other=0.0).to(tl.float32)
    if R > 0:
        r = tl.arange(0, R)
        a = y + m[:, None] * y_stride + 2 * size + r[None, :]
        gate_a = tl.load(a, mask=(m < rows)[:, None] & (r < gate_ranks)[None, :], other=0.0)
        up_a = tl.load(a + up_first, mask=(m < rows)[:, None] & (r < up_ranks)[None, :], other=0.0)
        columns = (n < size)[None, :]
        gate_b = tl.load(b + r[:, None] * 2 * size + n[None, :], mask=(r < gate_ranks)[:, None] & columns, other=0.0)
        up_rows = b + (up_first + r[:, None]) * 2 * size + size + n[None, :]
        gate += tl.dot(gate_a, gate_b)
        up += tl.dot(up_a, tl.load(up_rows, mask=(r < up_ranks)[:, None] & columns, other=0.0))
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate  # GELU by tanh is a sigmoid, too
    activated = gate / (1.0 + tl.exp(-inner)) * up
    tl.store(out + m[:, None] * size + n[None, :], activated.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _sum_chunks(logits, highest, sums, temperature, size, stride, chunks, GREEDY: tl.constexpr, CHUNK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    words = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row * stride + words, mask=words < size, other=-float("inf")).to(tl.float32)
    if not GREEDY:
        x = x / tl.load(temperature)
    top = tl.max(x)
    tl.store(highest + row * chunks + chunk, top)
    tl.store(sums + row * chunks + chunk, tl.sum(tl.exp(x - top)))


@triton.jit
def _draw(
    logits, highest, sums, temperature, noise, step, stop_ids, tokens, output, logprobs, done, size, stride, chunks, steps, stops,
    GREEDY: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    """The chunk of the vocabulary in which the random number falls, then the word in it; stored unless the row has ended."""
    row = tl.program_id(0).to(tl.int64)
    c, w = tl.arange(0, CHUNKS), tl.arange(0, CHUNK)
    at = tl.load(step)
    tops = tl.load(highest + row * chunks + c, mask=c < chunks, other=-float("inf"))
    top = tl.max(tops)
    shares = tl.load(sums + row * chunks + c, mask=c < chunks, other=0.0).to(tl.float64) * tl.exp(tops - top).to(tl.float64)
    total = tl.sum(shares)
    if GREEDY:
        chunk = tl.minimum(tl.min(tl.where(tops == top, c, chunks)), chunks - 1)  # also of NaN
    else:
        target = tl.load(noise + row * steps + at) * total
        chunk = tl.minimum(tl.sum((tl.cumsum(shares, 0) <= target).to(tl.int32)), chunks - 1)
    words = chunk * CHUNK + w
    x = tl.load(logits + row * stride + words, mask=words < size, other=-float("inf")).to(tl.float32)
    if not GREEDY:
        x = x / tl.load(temperature)
    if GREEDY:
        word = tl.min(tl.where(x == top, w, CHUNK - 1))
        word = tl.minimum(word, tl.minimum(CHUNK, size - chunk * CHUNK) - 1)
    else:
        before = tl.sum(tl.where(c < chunk, shares, 0.0))
        weights = tl.exp(x - top).to(tl.float64)
        share = tl.sum(tl.where(c == chunk, shares, 0.0))
        inside_target = (target - before) / share * tl.sum(weights)  # both sums of the chunk end at the same place
        word = tl.sum((tl.cumsum(weights, 0) <= inside_target).to(tl.int32))
        word = tl.minimum(word, tl.minimum(CHUNK, size - chunk * CHUNK) - 1)
    token = chunk * CHUNK + word
    logprob = tl.sum(tl.where(w == word, x, 0.0)) - top - tl.log(total).to(tl.float32)
    ended = tl.load(done + row) != 0
    tl.store(output + row * steps + at, tl.where(ended, -1, token).to(tl.int64))
    tl.store(logprobs + row * steps + at, tl.where(ended, 0.0, logprob))
    s = tl.arange(0, STOPS)
    stop = tl.sum((tl.load(stop_ids + s, mask=s < stops, other=-1) == token).to(tl.int32)) > 0
    tl.store(done + row, ended | stop)
    tl.store(tokens + row, token.to(tl.int64))


def _power_of_two(size: int, least: int = 1) -> int:
    return max(least, int(triton.next_power_of_2(size)))


class FusedStep:
    """One token for every row. `first` is the column of a row's first token; positions count from there."""

    def __init__(self, decoder: FastDecoder, rows: int) -> None:
        self.decoder = decoder
        device, dtype, size = decoder.embedding.device, decoder.embedding.dtype, decoder.embedding.shape[1]
        self.residual = torch.zeros(rows, size, dtype=torch.float32, device=device)
        self.splits = max(1, min(8, PROGRAMS // (rows * decoder.kv_heads)))  # parts of a row's columns
        partial = rows * decoder.heads * self.splits * (decoder.head_dim + 2) if self.splits > 1 else 1
        self.partial = torch.zeros(partial, dtype=torch.float32, device=device)
        self.q = torch.zeros(rows, decoder.heads * decoder.head_dim, dtype=dtype, device=device)
        self.attended, self.normed = torch.zeros_like(self.q), torch.zeros(rows, size, dtype=dtype, device=device)

    def __call__(self, tokens: Tensor, first: Tensor, column: Tensor, cache: Tensor) -> Tensor:
        decoder, rows, size = self.decoder, len(tokens), self.normed.shape[1]
        layers, block = decoder.layers, _power_of_two(size)
        _embed[(rows,)](
            tokens,
            decoder.embedding,
            self.residual,
            layers[0].input_norm,
            self.normed,
            size,
            decoder.eps,
            decoder.embed_scale,
            BLOCK=block,
            num_warps=8,
        )
        for index, (layer, (keys, values)) in enumerate(zip(layers, cache, strict=True)):
            self._attention(layer, self.normed, first, column, keys, values)
            self._add(layer.o_proj, self.attended, layer.attention_output_norm, layer.post_attention_norm, block)
            activated = self._activated(layer.gate_up_proj, self.normed)
            next_norm = layers[index + 1].input_norm if index + 1 < len(layers) else decoder.norm
            self._add(layer.down_proj, activated, layer.mlp_output_norm, next_norm, block)
        return self.normed

    def _attention(self, layer: Any, x: Tensor, first: Tensor, column: Tensor, keys: Tensor, values: Tensor) -> None:
        decoder, y, rows = self.decoder, layer.qkv_proj.with_lora_inputs(x), len(x)
        heads, kv_heads, dim = decoder.heads, decoder.kv_heads, decoder.head_dim
        ranks = layer.qkv_proj.ranks
        shared = len(ranks) == 1
        norms = (layer.q_norm, layer.k_norm) if layer.q_norm is not None else (x, x)
        _rotate_and_cache[(rows, heads + 2 * kv_heads)](
            y, _lora_b(layer.qkv_proj, y), self.q, keys, values, layer.cos, layer.sin, first, column, *norms,
            y.stride(0), keys.stride(0), keys.stride(1), heads, kv_heads, *(ranks * 3 if shared else ranks), decoder.eps,
            D=dim, R=decoder.rotary_dim, BLOCK=_power_of_two(dim // 2), NORM=layer.q_norm is not None, RANKS=max(ranks),
            SHARED=shared, num_warps=1,
        )  # fmt: skip
        group = heads // kv_heads
        _attend[(rows, kv_heads, self.splits)](
            self.q, keys, values, self.attended, self.partial, first, column, keys.stride(0), keys.stride(1), heads,
            decoder.scale, layer.window or 1 << 30, decoder.softcap or 0.0,
            GROUP=group, G=_power_of_two(group, 16), D=dim, BLOCK_D=_power_of_two(dim, 16), BLOCK=ATTENTION_BLOCK,
            SPLITS=self.splits, SOFTCAP=decoder.softcap is not None, num_warps=4, num_stages=3 if dim <= 128 else 2,
        )  # fmt: skip
        if self.splits > 1:
            _join_splits[(rows * heads,)](
                self.partial, self.attended, D=dim, BLOCK_D=_power_of_two(dim), SPLITS=self.splits,
                BLOCK_S=_power_of_two(self.splits), num_warps=1,
            )  # fmt: skip

    def _add(self, linear: FusedLinear, x: Tensor, output_norm: Tensor | None, norm: Tensor, block: int) -> None:
        y, size = linear.with_lora_inputs(x), self.normed.shape[1]
        _add_and_norm[(len(x),)](
            y, _lora_b(linear, y), self.residual, norm, norm if output_norm is None else output_norm, self.normed, size,
            y.stride(0), linear.ranks[0], self.decoder.eps, BLOCK=block, RANKS=linear.ranks[0],
            OUTPUT_NORM=output_norm is not None, num_warps=8,
        )  # fmt: skip

    def _activated(self, linear: FusedLinear, x: Tensor) -> Tensor:
        y, ranks, size = linear.with_lora_inputs(x), linear.ranks, linear.outputs // 2
        out = torch.empty(len(x), size, dtype=x.dtype, device=x.device)
        wide = _power_of_two(max(ranks), 16) if sum(ranks) else 0
        shared = len(ranks) == 1
        gate, up, up_first = (ranks[0], ranks[0], 0) if shared else (*ranks, ranks[0])
        _gate_times_up[(triton.cdiv(len(x), 16), triton.cdiv(size, 128))](
            y, _lora_b(linear, y), out, len(x), size, y.stride(0), gate, up, up_first, M=16, N=128, R=wide,
            GELU=self.decoder.gelu, num_warps=4,
        )  # fmt: skip
        return out


def _lora_b(linear: FusedLinear, instead: Tensor) -> Tensor:
    return instead if linear.lora_b is None else linear.lora_b


class FusedDraw:
    """Draws a token for every row; `stop_ids` end it."""

    def __init__(self, rows: int, vocabulary: int, stop_ids: Tensor) -> None:
        self.vocabulary, self.stop_ids, self.chunks = vocabulary, stop_ids, triton.cdiv(vocabulary, CHUNK)
        self.highest = torch.zeros(rows, self.chunks, dtype=torch.float32, device=stop_ids.device)
        self.sums = torch.zeros_like(self.highest)

    def __call__(
        self, logits: Tensor, noise: Tensor, step: Tensor, temperature: Tensor, tokens: Tensor, output: Tensor, logprobs: Tensor,
        done: Tensor, *, greedy: bool,
    ) -> None:  # fmt: skip
        rows, steps = noise.shape
        _sum_chunks[(rows, self.chunks)](
            logits,
            self.highest,
            self.sums,
            temperature,
            self.vocabulary,
            logits.stride(0),
            self.chunks,
            GREEDY=greedy,
            CHUNK=CHUNK,
        )
        _draw[(rows,)](
            logits, self.highest, self.sums, temperature, noise, step, self.stop_ids, tokens, output, logprobs, done,
            self.vocabulary, logits.stride(0), self.chunks, steps, len(self.stop_ids),
            GREEDY=greedy, CHUNK=CHUNK, CHUNKS=_power_of_two(self.chunks), STOPS=_power_of_two(max(len(self.stop_ids), 1)),
            num_warps=8,
        )  # fmt: skip
