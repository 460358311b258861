"""A second, faster forward pass for sampling: the same Llama-shaped weights, one token at a time, nothing else.

    decoder = build_fast_decoder(model)     # build.py; UnsupportedModelError for another architecture
    decoder.refresh()                       # after the adapter was trained
    hidden = decoder.prefill(input_ids, positions, attention_mask, cache)         # (B, T) -> (B, H) of the last token
    hidden = decoder.step(tokens, positions, attention_mask, cache, column)       # (B,)  -> (B, H)

The library's forward spends most of a small step around the mathematics: masks, caches that grow by copying, one module call
per matrix. Here q, k and v are one matrix and so are gate and up; the cache is one block of memory, and every row writes to the
same column of it, because prompts are padded on the left.

In float32 an adapter is merged into a copy of the weights at each `refresh`. In bfloat16 rounding would swallow small updates,
so the adapter stays beside them. There, and without an adapter, the fused matrices are the model's own memory, not a copy.
With `products` in bfloat16 a CPU has a copy in it, and the adapter beside it; all but the products is float32.
A base in 4 bits stays in them: a matrix is made dense where it is multiplied with (four_bit.py).

What families do differently is data: sliding windows, norms of the heads or of what a block adds, soft caps, a rotation of a part
of the head, a scaled embedding. agreement.py compares the decoder with the model before it is used: an unknown detail that shows
within its 24 tokens costs speed, not correctness. What shows only in longer texts (a window, say) must be known to build.py.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from medloop.models.rollout.four_bit import FourBitMatrix, is_four_bit

BLOCK = 512  # words of the vocabulary that are summed together when a token is drawn


class UnsupportedModelError(Exception):
    """The fast decoder cannot stand in for this model; the message says why, as the end of a sentence."""


def position_ids(attention_mask: Tensor) -> Tensor:
    """Positions (B, T) for the attention mask (B, T) of left-padded rows: the first real token is 0, padding is 0 too.

    Absolute embeddings (GPT-2) are nats off without it.
    """
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


@dataclass
class FusedLinear:
    """Several linear layers with one input as one matrix. Their adapters' first matrices stand below it: one product for both.

    `sizes` and `ranks` are the outputs and the adapter's rank of each layer; `lora_b` has a block for each layer and zeros else.
    """

    layers: list[nn.Module]
    stored: Tensor | FourBitMatrix  # (out + R, in)
    bias: Tensor | None  # (out + R,)
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    lora_b: Tensor | None = None  # (R, out)
    _loras: list[tuple[Tensor, Tensor, float] | None] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    @property
    def lora_a(self) -> Tensor:
        """(R, in): the adapters' first matrices, where `lora_b` has the second ones."""
        return self.stored.lora_a if isinstance(self.stored, FourBitMatrix) else self.stored[self.outputs :]

    def extended(self) -> Tensor:
        """(out + R, in): the weights, and the adapters' first matrices below them.

        A base in 4 bits has only one such matrix at a time: it is gone when the next one is asked for.
        """
        return self.stored.dense() if isinstance(self.stored, FourBitMatrix) else self.stored

    def with_lora_inputs(self, x: Tensor) -> Tensor:
        """(…, out + R): the outputs without their adapters, and what `lora_b` is still to be multiplied with."""
        weights = self.extended()
        if weights.dtype == x.dtype:
            return F.linear(x, weights, self.bias)
        y = F.linear(x.to(weights.dtype), weights).to(x.dtype)  # on a CPU whose products alone are in bfloat16
        return y if self.bias is None else y + self.bias

    def __call__(self, x: Tensor) -> Tensor:
        y = self.with_lora_inputs(x)
        if self.lora_b is None:
            return y
        y = y.view(-1, y.shape[-1])
        return torch.addmm(y[:, : self.outputs], y[:, self.outputs :], self.lora_b).view(*x.shape[:-1], self.outputs)

    def parameters(self) -> list[Tensor]:
        """A and B of each layer's active adapter as they were read, where it has one."""
        return [matrix for lora in self._loras if lora is not None for matrix in lora[:2]]

    def parameter_gradients(self, by_a: Tensor, by_b: Tensor) -> list[Tensor | None]:
        """Of `parameters()`, given those of the adapters' rows of `extended` (R, in) and of `lora_b`, turned (out, R)."""
        gradients: list[Tensor | None] = []
        out, rank = 0, 0
        for lora, size, max_rank in zip(self._loras, self.sizes, self.ranks, strict=True):
            if lora is not None:
                ranks = slice(rank, rank + len(lora[0]))
                by_b_block = by_b[out : out + size, ranks].to(lora[1].dtype, memory_format=torch.contiguous_format)
                gradients += [by_a[ranks].to(lora[0].dtype), by_b_block if lora[2] == 1.0 else by_b_block.mul_(lora[2])]
            out, rank = out + size, rank + max_rank
        return gradients

    def copies(self) -> list[tuple[Tensor, Tensor]]:
        """Where the adapters' matrices lie, and what belongs there now."""
        if self.lora_b is None:
            return []
        pairs, out, rank = list[tuple[Tensor, Tensor]](), 0, 0
        for lora, size, max_rank in zip(self._loras, self.sizes, self.ranks, strict=True):
            if lora is not None:
                a, b, scale = lora
                ranks = slice(rank, rank + len(a))
                scaled = b if scale == 1.0 else b * scale
                pairs += [(self.lora_a[ranks], a), (self.lora_b[ranks, out : out + size], scaled.T)]
            out, rank = out + size, rank + max_rank
        return pairs

    def refresh(self, *, merged: bool) -> None:
        """Read the adapters of the layers again, into the memory that is there."""
        self._loras = [_active_lora(layer) for layer in self.layers]
        out, rank = 0, 0
        for layer, lora, size, max_rank in zip(self.layers, self._loras, self.sizes, self.ranks, strict=True):
            rows = slice(out, out := out + size)
            if merged:
                assert isinstance(self.stored, Tensor), "4 bits hold no merged adapter"
                delta = 0 if lora is None else (lora[1] @ lora[0]) * lora[2]
                self.stored[rows] = base_linear(layer).weight + delta
            elif self.lora_b is not None:
                lora_a, ranks = self.lora_a, slice(rank, rank := rank + max_rank)
                if lora is None or len(lora[0]) < max_rank:
                    lora_a[ranks] = 0
                    self.lora_b[ranks, rows] = 0
                if lora is not None:  # its rank may be below that of another adapter of this layer
                    lora_a[ranks.start : ranks.start + len(lora[0])] = lora[0].to(lora_a.dtype)
                    self.lora_b[ranks.start : ranks.start + len(lora[0]), rows] = (lora[1].T * lora[2]).to(self.lora_b.dtype)


@dataclass
class DecoderLayer:
    input_norm: Tensor
    qkv_proj: FusedLinear
    o_proj: FusedLinear
    post_attention_norm: Tensor  # before the MLP
    gate_up_proj: FusedLinear
    down_proj: FusedLinear
    cos: Tensor  # (P, D): the rotary tables by position; the same tensors for layers that rotate alike
    sin: Tensor
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    attention_output_norm: Tensor | None = None  # of what the attention adds (Gemma)
    mlp_output_norm: Tensor | None = None
    window: int | None = None  # tokens that a token attends to, itself included; None: all before it


@dataclass
class FastDecoder:
    """The weights in the layout that sampling needs, and what the family does differently from Llama."""

    embedding: Tensor
    layers: list[DecoderLayer]
    norm: Tensor
    lm_head: Tensor
    lm_head_bias: Tensor | None
    eps: float
    heads: int
    kv_heads: int
    head_dim: int
    merged: bool
    scale: float  # of the attention's scores
    rotary_dim: int  # the first dimensions of a head, which are rotated
    embed_scale: float = 1.0
    gelu: bool = False  # GELU (tanh) in place of SiLU
    softcap: float | None = None  # of the attention's scores
    logit_softcap: float | None = None
    _fused: list[FusedLinear] = field(default_factory=list)
    _seen: list[Any] | None = None
    reads: int = 0  # how often the adapter was read

    @property
    def in_four_bits(self) -> bool:
        return any(isinstance(fused.stored, FourBitMatrix) for fused in self._fused)

    @property
    def max_positions(self) -> int:
        """How many tokens the rotary tables reach."""
        return len(self.layers[0].cos)

    @torch.no_grad()
    def refresh(self) -> None:
        """Read the adapter again. Tensors keep their memory, so that a captured CUDA graph sees the new values."""
        for fused in self._fused:
            fused.refresh(merged=self.merged)
        self.reads += 1
        self._seen = self._versions()

    @torch.no_grad()
    def refresh_values(self) -> None:
        """The same adapter's matrices again after a step of training: in few kernels, and without asking the layers."""
        if self.merged:
            return self.refresh()
        targets, sources = list[Tensor](), list[Tensor]()
        for fused in self._fused:
            for target, source in fused.copies():
                targets.append(target)
                sources.append(source)
        if targets:
            torch._foreach_copy_(targets, sources)
        self.reads += 1
        self._seen = None

    def refresh_if_changed(self) -> None:
        """Read the adapter again if it was trained, exchanged or switched off since it was read."""
        if self._seen != self._versions():
            self.refresh()

    def _versions(self) -> list[Any]:
        """Which adapter is active (the same one in every layer), and how often each of its matrices was written."""
        first = next((layer for fused in self._fused for layer in fused.layers if hasattr(layer, "lora_A")), None)
        active = (getattr(first, "disable_adapters", None), *getattr(first, "active_adapters", ()))
        return [active, *((id(matrix), matrix._version) for fused in self._fused for matrix in fused.parameters())]

    def new_cache(self, rows: int, columns: int) -> Tensor:
        """(L, 2, B, K, T, D): keys and values of every layer."""
        shape = (len(self.layers), 2, rows, self.kv_heads, columns, self.head_dim)
        return torch.zeros(shape, dtype=self.embedding.dtype, device=self.embedding.device)

    def prefill(self, input_ids: Tensor, positions: Tensor, attention_mask: Tensor, cache: Tensor, past: int = 0) -> Tensor:
        """input_ids, positions: (B, T); attention_mask (B, past + T). Returns the hidden state of the last column, (B, H).

        Fills T columns of the cache, after the `past` ones that are there already: a beginning that was computed before.
        """
        length, device = input_ids.shape[1], input_ids.device
        end = past + length
        causal = torch.ones(length, end, dtype=torch.bool, device=device).tril(past)
        mask = causal & attention_mask[:, None, None, :]  # (B, 1, T, past + T)
        own = torch.eye(length, dtype=torch.bool, device=device)  # a padding row may look at itself, else NaN
        mask[..., past:] |= own
        masks: dict[int | None, Tensor] = {None: mask}
        before = torch.arange(past, device=device).expand(len(positions), past)
        distance = positions[:, None, :, None] - torch.cat([before, positions], dim=1)[:, None, None, :]  # (B, 1, T, past + T)
        for window in self._windows():
            masks[window] = mask & (distance < window)
        x = self._embed(input_ids)
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            cos, sin = layer.cos[positions].unsqueeze(1), layer.sin[positions].unsqueeze(1)
            q, k, v = self._attention_inputs(layer, x, cos, sin)  # (B, h, T, D)
            keys[:, :, past:end], values[:, :, past:end] = k, v
            if past:
                k, v = keys[:, :, :end], values[:, :, :end]
            attended = self._attend(q, k, v, masks[layer.window])
            x = self._layer_output(layer, x, attended.transpose(1, 2).flatten(2))
        return self._rms_norm(x[:, -1], self.norm)

    def step(self, tokens: Tensor, positions: Tensor, attention_mask: Tensor, cache: Tensor, column: int | Tensor) -> Tensor:
        """tokens, positions: (B,); attention_mask (B, T); `column` of the cache is written; returns (B, H).

        With an int the attention reads the columns so far; with a tensor (inside a CUDA graph) it reads all, masked.
        """
        rows, columns = len(tokens), cache.shape[4] if isinstance(column, Tensor) else column + 1
        mask = torch.zeros(rows, 1, 1, columns, dtype=cache.dtype, device=cache.device)
        mask.masked_fill_(~attention_mask[:, None, None, :columns], float("-inf"))
        masks: dict[int | None, Tensor] = {None: mask}
        for window in self._windows():
            masks[window] = mask.masked_fill(torch.arange(columns, device=cache.device) <= column - window, float("-inf"))
        x = self._embed(tokens)[:, None]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            cos, sin = layer.cos[positions][:, None, None], layer.sin[positions][:, None, None]
            q, k, v = self._attention_inputs(layer, x, cos, sin)  # (B, h, 1, D)
            if isinstance(column, Tensor):
                keys.index_copy_(2, column, k)
                values.index_copy_(2, column, v)
            else:
                keys[:, :, column : column + 1], values[:, :, column : column + 1] = k, v
            # The queries that share a key-value head are taken as its sequence: no head is copied.
            grouped = q.reshape(rows, self.kv_heads, -1, self.head_dim)
            attended = self._attend(grouped, keys[:, :, :columns], values[:, :, :columns], masks[layer.window])
            x = self._layer_output(layer, x, attended.reshape(rows, 1, -1))
        return self._rms_norm(x[:, 0], self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        logits = F.linear(hidden.to(self.lm_head.dtype), self.lm_head, self.lm_head_bias)
        return logits if self.logit_softcap is None else torch.tanh(logits / self.logit_softcap) * self.logit_softcap

    def _windows(self) -> set[int]:
        return {layer.window for layer in self.layers if layer.window is not None}

    def _embed(self, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, self.embedding)
        return x if self.embed_scale == 1 else x * self.embed_scale

    def _rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if weight.dtype == x.dtype:
            return F.rms_norm(x, (x.shape[-1],), weight, self.eps)
        return F.rms_norm(x.float(), (x.shape[-1],), weight, self.eps).to(x.dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """q (B, h, T, D) or (B, K, T, D), k and v (B, K, C, D); the mask is of booleans, or added."""
        if self.softcap is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale, enable_gqa=q.shape[1] != k.shape[1])
        grouped = q.reshape(len(q), k.shape[1], -1, *q.shape[2:])  # (B, K, G, T, D)
        scores = torch.tanh(grouped @ k[:, :, None].transpose(-1, -2) * (self.scale / self.softcap)).float() * self.softcap
        mask = mask[:, :, None]
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        return (scores.softmax(-1).to(v.dtype) @ v[:, :, None]).flatten(1, 2)

    def _attention_inputs(self, layer: DecoderLayer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, length = x.shape[:2]
        qkv = layer.qkv_proj(self._rms_norm(x, layer.input_norm)).view(rows, length, -1, self.head_dim).transpose(1, 2)
        qk, v = torch.split(qkv, [self.heads + self.kv_heads, self.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = torch.split(qk, [self.heads, self.kv_heads], dim=1)
            qk = torch.cat([self._rms_norm(q, layer.q_norm), self._rms_norm(k, layer.k_norm)], dim=1)
        q, k = torch.split(_apply_rotary(qk, cos, sin, self.rotary_dim), [self.heads, self.kv_heads], dim=1)
        return q, k, v

    def _layer_output(self, layer: DecoderLayer, x: Tensor, attended: Tensor) -> Tensor:
        added = layer.o_proj(attended)
        if layer.attention_output_norm is not None:
            added = self._rms_norm(added, layer.attention_output_norm)
        x = x + added
        gate, up = layer.gate_up_proj(self._rms_norm(x, layer.post_attention_norm)).chunk(2, dim=-1)
        activated = F.gelu(gate, approximate="tanh") if self.gelu else F.silu(gate)
        added = layer.down_proj(activated * up)
        if layer.mlp_output_norm is not None:
            added = self._rms_norm(added, layer.mlp_output_norm)
        return x + added


def base_linear(layer: Any) -> Any:
    base = layer.base_layer if hasattr(layer, "base_layer") else layer
    if type(base) is not nn.Linear and not is_four_bit(base):
        raise TypeError("not a plain linear layer")
    return base


def _active_lora(layer: Any) -> tuple[Tensor, Tensor, float] | None:
    """A, B and scale of the active adapter; None without one, or when it is disabled."""
    names = [name for name in getattr(layer, "active_adapters", ()) if name in getattr(layer, "lora_A", {})]
    if not names or layer.disable_adapters:
        return None
    if len(names) > 1 or names[0] in layer.lora_variant or layer.lora_B[names[0]].bias is not None:
        raise TypeError("more than one plain LoRA adapter")
    return layer.lora_A[names[0]].weight, layer.lora_B[names[0]].weight, float(layer.scaling[names[0]])


def _apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int) -> Tensor:
    """The tables have 1 and 0 for dimensions beyond `rotary_dim`."""
    if rotary_dim == x.shape[-1]:
        return x * cos + x.roll(rotary_dim // 2, dims=-1) * sin
    rolled = x[..., :rotary_dim].roll(rotary_dim // 2, dims=-1)
    return x * cos + torch.cat([rolled, x[..., rotary_dim:]], dim=-1) * sin


def sample_tokens(logits: Tensor, temperature: float | Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """(B, V), (B,) in [0, 1) -> tokens and log-probabilities (B,). Inverts the cumulative distribution: one number per token.

    Temperature 0.0 takes the most likely token, with its log-probability at temperature 1.
    In two steps, because a sum along 150,000 words is one slow thread per row on a GPU: first the block, then the word in it.
    Sums are double: so many small terms add up.
    """
    greedy = isinstance(temperature, float) and temperature == 0
    scaled = logits.float() if greedy else logits.float() / temperature
    logprobs = scaled - scaled.logsumexp(-1, keepdim=True)
    if greedy:
        values, tokens = logprobs.max(-1)
        return tokens, values
    blocks = F.pad(logprobs.exp(), (0, -logprobs.shape[1] % BLOCK)).view(len(logprobs), -1, BLOCK)  # (B, K, BLOCK)
    edges = blocks.sum(-1, dtype=torch.float64).cumsum(-1)  # (B, K)
    target = (uniform * edges[:, -1])[:, None]
    block = torch.searchsorted(edges, target, right=True).clamp(max=edges.shape[1] - 1)  # (B, 1)
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, block[..., None].expand(-1, -1, BLOCK)).squeeze(1).cumsum(-1, dtype=torch.float64)  # (B, BLOCK)
    offset = torch.searchsorted(inside, target - before, right=True).clamp(max=BLOCK - 1)
    tokens = (block * BLOCK + offset).squeeze(1).clamp(max=logits.shape[1] - 1)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)
