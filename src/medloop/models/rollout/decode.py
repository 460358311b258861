"""A second, leaner forward pass for sampling: the same Llama-shaped weights, one token at a time, nothing else.

    lean = build(model)                 # None when the architecture is another one; then the model itself must sample
    lean.refresh()                      # after the adapter has learnt
    hidden = lean.prefill(ids, positions, keep, cache)     # (B, T) -> (B, H) of the last token
    hidden = lean.step(tokens, positions, keep, cache, at) # (B,)  -> (B, H)

The library's forward spends most of a small step around the mathematics: masks, caches that grow by copying, one module call
per matrix. Here q, k and v are one matrix and so are gate and up; the cache is one block of memory, and every row writes to the
same column of it, because prompts are padded on the left.

In float32 the adapter is merged into a copy of the weights at each `refresh`. In bfloat16 rounding would swallow small updates,
so the adapter stays beside them; the fused matrices then are the model's own memory, not a copy.

It knows llama, mistral, qwen2 and qwen3 without sliding windows. `build` compares it with the model on a padded batch and
returns None if they differ, so an unknown detail of an architecture costs speed, never correctness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BLOCK = 512  # words of the vocabulary that are summed together when a token is drawn
KNOWN = ("llama", "mistral", "qwen2", "qwen3")
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}  # largest difference of a log-probability


@dataclass
class Fused:
    """Several linear layers with one input as one matrix; `down` and `up` are their adapters (a block for each layer)."""

    layers: list[nn.Module]
    weight: Tensor
    bias: Tensor | None
    down: Tensor | None = None  # (R, in)
    up: Tensor | None = None  # (R, out)

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        if self.down is None or self.up is None:
            return y
        return torch.addmm(y.view(-1, y.shape[-1]), F.linear(x, self.down).view(-1, len(self.down)), self.up).view_as(y)


@dataclass
class Layer:
    before: Tensor
    qkv: Fused
    out: Fused
    after: Tensor
    gate_up: Fused
    down: Fused
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None


@dataclass
class Lean:
    """The weights in the shape that sampling wants. `cos` and `sin` are the rotary tables by position."""

    embedding: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Tensor
    head_bias: Tensor | None
    cos: Tensor
    sin: Tensor
    eps: float
    heads: int
    kv_heads: int
    width: int  # of one head
    merged: bool
    _fused: list[Fused] = field(default_factory=list)

    @torch.no_grad()
    def refresh(self) -> None:
        """Read the adapter again. Tensors keep their memory, so that a captured CUDA graph sees the new values."""
        for fused in self._fused:
            _refresh(fused, merged=self.merged)

    def new_cache(self, rows: int, columns: int) -> Tensor:
        """(L, 2, B, K, T, D): keys and values of every layer."""
        shape = (len(self.layers), 2, rows, self.kv_heads, columns, self.width)
        return torch.zeros(shape, dtype=self.embedding.dtype, device=self.embedding.device)

    def prefill(self, ids: Tensor, positions: Tensor, keep: Tensor, cache: Tensor) -> Tensor:
        """ids, positions, keep: (B, T); fills the first T columns and returns the hidden state of the last one, (B, H)."""
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        mask = causal & keep[:, None, None, :]  # (B, 1, T, T)
        mask = mask | torch.eye(length, dtype=torch.bool, device=ids.device)  # a padding row may look at itself, else NaN
        x, cos, sin = F.embedding(ids, self.embedding), self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            q, k, v = self._heads(layer, x, cos, sin)  # (B, h, T, D)
            keys[:, :, :length], values[:, :, :length] = k, v
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=self.heads != self.kv_heads)
            x = self._rest(layer, x, mixed.transpose(1, 2).flatten(2))
        return self._normed(x[:, -1], self.norm)

    def step(self, tokens: Tensor, positions: Tensor, keep: Tensor, cache: Tensor, at: int | Tensor) -> Tensor:
        """tokens, positions: (B,); keep (B, T) marks the columns that count, `at` is the one to write; returns (B, H).

        With an int the attention reads the columns so far; with a tensor (inside a CUDA graph) it reads all, masked.
        """
        rows, columns = len(tokens), cache.shape[4] if isinstance(at, Tensor) else at + 1
        mask = torch.zeros(rows, 1, 1, columns, dtype=cache.dtype, device=cache.device)
        mask.masked_fill_(~keep[:, None, None, :columns], float("-inf"))
        x, cos, sin = (
            F.embedding(tokens, self.embedding)[:, None],
            self.cos[positions][:, None, None],
            self.sin[positions][:, None, None],
        )
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            q, k, v = self._heads(layer, x, cos, sin)  # (B, h, 1, D)
            if isinstance(at, Tensor):
                keys.index_copy_(2, at, k)
                values.index_copy_(2, at, v)
            else:
                keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
            # The queries that share a key-value head are taken as its sequence: no head is copied.
            grouped = q.reshape(rows, self.kv_heads, -1, self.width)
            mixed = F.scaled_dot_product_attention(grouped, keys[:, :, :columns], values[:, :, :columns], attn_mask=mask)
            x = self._rest(layer, x, mixed.reshape(rows, 1, -1))
        return self._normed(x[:, 0], self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.head, self.head_bias)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    def _heads(self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, length = x.shape[:2]
        both = layer.qkv(self._normed(x, layer.before)).view(rows, length, -1, self.width).transpose(1, 2)
        turning, v = torch.split(both, [self.heads + self.kv_heads, self.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = torch.split(turning, [self.heads, self.kv_heads], dim=1)
            turning = torch.cat([self._normed(q, layer.q_norm), self._normed(k, layer.k_norm)], dim=1)
        q, k = torch.split(_turned(turning, cos, sin), [self.heads, self.kv_heads], dim=1)
        return q, k, v

    def _rest(self, layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + layer.out(mixed)
        gate, up = layer.gate_up(self._normed(x, layer.after)).chunk(2, dim=-1)
        return x + layer.down(F.silu(gate) * up)


def build(model: Any) -> Lean | None:
    """The lean twin of a causal model (with a LoRA adapter or not), or None when it would not be the same."""
    whole = model.get_base_model() if hasattr(model, "peft_config") else model
    config = whole.config
    if config.model_type not in KNOWN or not _plain(whole, config):
        return None
    try:
        lean = _read(whole, config)
        lean.refresh()
    except (AttributeError, TypeError):
        return None  # a layer of another kind: quantised, or an adapter that is not plain LoRA
    return lean if _agrees(lean, model) else None


def _plain(whole: Any, config: Any) -> bool:
    weights = whole.get_input_embeddings().weight
    windows = [kind for kind in getattr(config, "layer_types", None) or () if kind != "full_attention"]
    sliding = config.model_type == "mistral" and getattr(config, "sliding_window", None)
    return weights.dtype in TOLERANCE and not windows and not sliding and config.hidden_act == "silu"


def _read(whole: Any, config: Any) -> Lean:
    body, head = whole.model, whole.get_output_embeddings()
    embedding = whole.get_input_embeddings().weight.detach()
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    merged = embedding.dtype == torch.float32
    fused: list[Fused] = []

    def fuse(*layers: Any) -> Fused:
        fused.append(_fuse(list(layers), merged=merged))
        return fused[-1]

    layers = [
        Layer(
            before=block.input_layernorm.weight.detach(),
            qkv=fuse(block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj),
            out=fuse(block.self_attn.o_proj),
            after=block.post_attention_layernorm.weight.detach(),
            gate_up=fuse(block.mlp.gate_proj, block.mlp.up_proj),
            down=fuse(block.mlp.down_proj),
            q_norm=block.self_attn.q_norm.weight.detach() if hasattr(block.self_attn, "q_norm") else None,
            k_norm=block.self_attn.k_norm.weight.detach() if hasattr(block.self_attn, "k_norm") else None,
        )
        for block in body.layers
    ]
    places = torch.arange(config.max_position_embeddings, device=embedding.device)[None]
    cos, sin = body.rotary_emb(embedding[:1, None].float(), places)  # (1, P, D)
    half = width // 2
    sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)  # the sign of the rotation is in the table
    return Lean(
        embedding=embedding, layers=layers, norm=body.norm.weight.detach(), head=head.weight.detach(),
        head_bias=None if head.bias is None else head.bias.detach(),
        cos=cos[0].to(embedding.dtype), sin=sin.to(embedding.dtype),
        eps=config.rms_norm_eps, heads=config.num_attention_heads, kv_heads=config.num_key_value_heads, width=width,
        merged=merged, _fused=fused,
    )  # fmt: skip


def _fuse(layers: list[Any], *, merged: bool) -> Fused:
    plain = [_inner(layer) for layer in layers]
    weight = torch.cat([layer.weight.detach() for layer in plain]) if merged or len(plain) > 1 else plain[0].weight.detach()
    bias = None if plain[0].bias is None else torch.cat([layer.bias.detach() for layer in plain])
    if not merged and len(plain) > 1:  # the model's own matrices become views of the fused one: no second copy
        for layer, part in zip(plain, weight.split([len(layer.weight) for layer in plain]), strict=True):
            layer.weight.data = part
    if merged or not any(hasattr(layer, "lora_A") for layer in layers):
        return Fused(layers, weight, bias)
    rank = sum(_rank(layer) for layer in layers)
    down = weight.new_zeros(rank, weight.shape[1])
    return Fused(layers, weight, bias, down, weight.new_zeros(rank, len(weight)))


def _refresh(fused: Fused, *, merged: bool) -> None:
    out, rank = 0, 0
    for layer in fused.layers:
        inner = _inner(layer)
        rows = slice(out, out := out + len(inner.weight))
        adapter = _adapter(layer)
        if merged:
            delta = 0 if adapter is None else (adapter[1] @ adapter[0]) * adapter[2]
            fused.weight[rows] = inner.weight + delta
        elif fused.down is not None and fused.up is not None:
            ranks = slice(rank, rank := rank + _rank(layer))
            if adapter is not None:
                fused.down[ranks] = adapter[0].to(fused.down.dtype)
                fused.up[ranks, rows] = (adapter[1].T * adapter[2]).to(fused.up.dtype)


def _inner(layer: Any) -> Any:
    inner = layer.base_layer if hasattr(layer, "base_layer") else layer
    if type(inner) is not nn.Linear:
        raise TypeError("not a plain linear layer")
    return inner


def _adapter(layer: Any) -> tuple[Tensor, Tensor, float] | None:
    """A, B and scale of the active adapter; None without one, or when it is switched off."""
    names = [name for name in getattr(layer, "active_adapters", ()) if name in getattr(layer, "lora_A", {})]
    if not names or layer.disable_adapters:
        return None
    if len(names) > 1 or names[0] in layer.lora_variant or layer.lora_B[names[0]].bias is not None:
        raise TypeError("more than one plain LoRA adapter")
    return layer.lora_A[names[0]].weight, layer.lora_B[names[0]].weight, float(layer.scaling[names[0]])


def _rank(layer: Any) -> int:
    """The largest rank among the layer's adapters, so that another of them can take the place."""
    return max((len(down.weight) for down in getattr(layer, "lora_A", {}).values()), default=0)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def draw(logits: Tensor, temperature: float | Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """(B, V), (B,) in [0, 1) -> tokens and log-probabilities (B,). Inverts the cumulative distribution: one number a token.

    In two stages, because a sum along 150,000 words is one slow thread per row on a GPU: first the block, then the word in it.
    Sums are double: so many small terms add up.
    """
    scaled = logits.float() / temperature
    logs = scaled - scaled.logsumexp(-1, keepdim=True)
    blocks = F.pad(logs.exp(), (0, -logs.shape[1] % BLOCK)).view(len(logs), -1, BLOCK)  # (B, K, BLOCK)
    edges = blocks.sum(-1, dtype=torch.float64).cumsum(-1)  # (B, K)
    wanted = (uniform * edges[:, -1])[:, None]
    block = torch.searchsorted(edges, wanted, right=True).clamp(max=edges.shape[1] - 1)  # (B, 1)
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, block[..., None].expand(-1, -1, BLOCK)).squeeze(1).cumsum(-1, dtype=torch.float64)  # (B, BLOCK)
    place = torch.searchsorted(inside, wanted - before, right=True).clamp(max=BLOCK - 1)
    chosen = (block * BLOCK + place).squeeze(1).clamp(max=logits.shape[1] - 1)
    return chosen, logs.gather(1, chosen[:, None]).squeeze(1)


@torch.no_grad()
def _agrees(lean: Lean, model: Any) -> bool:
    """Two prompts, one of them padded, and one step more: the same log-probabilities as the model's own."""
    size, device = lean.embedding.shape[0], lean.embedding.device
    ids = (torch.arange(22, device=device).view(2, 11) * 7919 + 13) % size
    keep = torch.ones_like(ids, dtype=torch.bool)
    keep[1, :4] = False
    positions = (keep.long().cumsum(-1) - 1).clamp(min=0)
    was = model.training
    model.eval()
    theirs = model(input_ids=ids, attention_mask=keep.long(), position_ids=positions, use_cache=False).logits[:, -2:]
    model.train(was)
    cache = lean.new_cache(2, 11)
    first = lean.prefill(ids[:, :-1], positions[:, :-1], keep[:, :-1], cache)
    second = lean.step(ids[:, -1], positions[:, -1], keep, cache, 10)
    ours = lean.logits(torch.stack([first, second], dim=1))
    difference = (ours.float().log_softmax(-1) - theirs.float().log_softmax(-1)).abs().max()
    return bool(difference < TOLERANCE[lean.embedding.dtype])
