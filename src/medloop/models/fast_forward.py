"""The forward pass that trains a LoRA on a GPU: the weights of the fast decoder, tokens without padding, few kernels.

    forward = FastForward(decoder)
    states = forward(packed)                # (N, H) of the tokens of `packed`; gradients reach the adapters' own parameters

The library's forward with a PEFT adapter spends more time around its products than in them: casts between float32 adapters and
bfloat16 activations, one kernel for every elementwise step, padding. Here a layer is two functions with their own derivatives
(attention with its projections, and the MLP) and two fused additions with norm. Only what the way back needs is kept; SwiGLU is
computed again. Rows of a group share their prompt: it is computed once, and the answers attend to it (`PackedRows`).

The base is frozen: no gradient of it is computed. agreement.py compares it with the library before it is used.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from medloop.models import forward_kernels as kernels
from medloop.models.packing import PackedRows, pack
from medloop.models.rollout.agreement import STEPS, check_agreement, compare_with_library
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import DecoderLayer, FastDecoder, FusedLinear, UnsupportedModelError


class FastForward:
    """A model as a function from packed rows to hidden states."""

    def __init__(self, decoder: FastDecoder) -> None:
        self.decoder = decoder

    @property
    def bytes_per_token(self) -> int:
        """What a token keeps for the way back: the residual twice in float32; the rest in the type of the weights."""
        layer, hidden = self.decoder.layers[0], self.decoder.embedding.shape[1]
        linears = layer.qkv_proj, layer.o_proj, layer.gate_up_proj
        return len(self.decoder.layers) * (8 * hidden + 2 * (2 * hidden + sum(linear.outputs for linear in linears)))

    def __call__(self, rows: PackedRows) -> Tensor:
        decoder, dtype = self.decoder, self.decoder.embedding.dtype
        x = F.embedding(rows.tokens, decoder.embedding).float()
        y: Tensor | None = None
        for layer in decoder.layers:
            x, normed = _AddAndNorm.apply(x, y, layer.input_norm, decoder.eps, dtype)  # type: ignore[no-untyped-call]
            y = _Attention.apply(  # type: ignore[no-untyped-call]
                normed, decoder, layer, rows, *layer.qkv_proj.parameters(), *layer.o_proj.parameters()
            )
            x, normed = _AddAndNorm.apply(x, y, layer.post_attention_norm, decoder.eps, dtype)  # type: ignore[no-untyped-call]
            y = _MLP.apply(  # type: ignore[no-untyped-call]
                normed, layer, *layer.gate_up_proj.parameters(), *layer.down_proj.parameters()
            )
        _, normed = _AddAndNorm.apply(x, y, decoder.norm, decoder.eps, dtype)  # type: ignore[no-untyped-call]
        return normed  # type: ignore[no-any-return]


def open_fast_forward(model: Any) -> FastForward:
    """UnsupportedModelError if the model is not one of ours, or its log-probabilities are not as good as the library's."""
    decoder = build_fast_decoder(model)
    if decoder.layers[0].q_norm is not None or decoder.embedding.dtype == torch.float32:
        raise UnsupportedModelError("its heads are normed, or its weights are float32")
    known = {id(matrix) for layer in decoder.layers for linear in _linears(layer) for matrix in linear.parameters()}
    if any(parameter.requires_grad and id(parameter) not in known for parameter in model.parameters()):
        raise UnsupportedModelError("it trains more than the LoRA matrices of its linear layers")
    forward = FastForward(decoder)

    def logprobs(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        prompts = [ids[mask][:-STEPS].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        rows, predictors = pack(prompts, [[*ids[-STEPS:].tolist(), 0] for ids in input_ids], input_ids.device)
        return decoder.logits(forward(rows)[predictors]).float().log_softmax(-1)

    compare_with_library(logprobs, model, autocast=True)
    check_agreement(decoder, model)
    return forward


def _linears(layer: DecoderLayer) -> tuple[FusedLinear, ...]:
    return layer.qkv_proj, layer.o_proj, layer.gate_up_proj, layer.down_proj


def _project(linear: FusedLinear, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Outputs with their adapters, and the adapters' inner activations (N, R)."""
    y = linear.with_lora_inputs(x)
    if linear.lora_b is None:
        return y, None
    inner = y[:, linear.outputs :].contiguous()
    return torch.addmm(y[:, : linear.outputs], inner, linear.lora_b), inner


def _project_back(linear: FusedLinear, x: Tensor, inner: Tensor | None, by_y: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of x, and of A and B of each adapter in the order of `linear.parameters()`."""
    if linear.lora_b is None or inner is None:
        return by_y @ linear.extended, []
    by_inner = by_y @ linear.lora_b.T  # (N, R)
    to_x = torch.addmm(by_y @ linear.extended[: linear.outputs], by_inner, linear.extended[linear.outputs :])
    return to_x, linear.parameter_gradients(by_inner.T @ x, by_y.T @ inner)


class _AddAndNorm(torch.autograd.Function):
    """x + y in float32, and its norm."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        added, normed, scales = kernels.add_and_norm(x, y, weight, eps, dtype)
        ctx.save_for_backward(added, weight, scales)
        ctx.adds = y is not None
        if y is None:
            ctx.mark_dirty(x)
        return added, normed

    @staticmethod
    def backward(ctx: Any, by_added: Tensor, by_normed: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scales = ctx.saved_tensors
        to_x, to_y = kernels.add_and_norm_backward(x, weight, scales, by_normed.contiguous(), by_added.contiguous())
        return to_x, to_y if ctx.adds else None, None, None, None


class _Attention(torch.autograd.Function):
    """Projections of the queries, keys and values, rotation, attention, output projection."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, decoder: FastDecoder, layer: DecoderLayer, rows: PackedRows, *_: Tensor) -> Tensor:
        qkv, inner = _project(layer.qkv_proj, x)
        heads, kv_heads, dim = decoder.heads, decoder.kv_heads, decoder.head_dim
        kernels.rotate(qkv, qkv, decoder.cos, decoder.sin, rows.positions, heads=heads + 2 * kv_heads, turned=heads + kv_heads)
        q, k, v = _split_heads(qkv, decoder)
        k, v = k[rows.key_index], v[rows.key_index]
        attended, log_sums, state, unused, _mask = torch.ops.aten._flash_attention_forward(
            q, k, v, rows.query_starts, rows.key_starts, rows.longest_query, rows.longest_key, 0.0, True, False, scale=dim**-0.5
        )
        flat = attended.reshape(len(x), heads * dim)
        y, o_inner = _project(layer.o_proj, flat)
        ctx.save_for_backward(x, inner, qkv, attended, log_sums, state, unused, o_inner)
        ctx.context = decoder, layer, rows
        return y

    @staticmethod
    def backward(ctx: Any, by_y: Tensor) -> tuple[Any, ...]:
        x, inner, qkv, attended, log_sums, state, unused, o_inner = ctx.saved_tensors
        decoder, layer, rows = ctx.context
        heads, kv_heads, dim = decoder.heads, decoder.kv_heads, decoder.head_dim
        by_flat, o_gradients = _project_back(layer.o_proj, attended.reshape(len(x), heads * dim), o_inner, by_y.contiguous())
        q, k, v = _split_heads(qkv, decoder)
        k, v = k[rows.key_index], v[rows.key_index]
        by_q, by_k, by_v = torch.ops.aten._flash_attention_backward(
            by_flat.view_as(attended), q, k, v, attended, log_sums, rows.query_starts, rows.key_starts, rows.longest_query,
            rows.longest_key, 0.0, True, state, unused, scale=dim**-0.5,
        )  # fmt: skip
        by_qkv = torch.empty_like(qkv)
        by_k, by_v = (_sum_shared(gradient, rows.key_index, len(x)) for gradient in (by_k, by_v))
        parts = ((by_q, 0, heads, heads), (by_k, heads, kv_heads, kv_heads), (by_v, heads + kv_heads, kv_heads, 0))
        for gradient, first, count, turned in parts:
            kernels.rotate(
                gradient.reshape(len(x), count * dim), by_qkv[:, first * dim :], decoder.cos, decoder.sin, rows.positions,
                heads=count, turned=turned, back=True,
            )  # fmt: skip
        to_x, gradients = _project_back(layer.qkv_proj, x, inner, by_qkv)
        return to_x, None, None, None, *gradients, *o_gradients


class _MLP(torch.autograd.Function):
    """down(silu(gate) * up)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: DecoderLayer, *_: Tensor) -> Tensor:
        gate_up, inner = _project(layer.gate_up_proj, x)
        y, down_inner = _project(layer.down_proj, kernels.swiglu(gate_up))
        ctx.save_for_backward(x, inner, gate_up, down_inner)
        ctx.layer = layer
        return y

    @staticmethod
    def backward(ctx: Any, by_y: Tensor) -> tuple[Any, ...]:
        x, inner, gate_up, down_inner = ctx.saved_tensors
        layer = ctx.layer
        by_y = by_y.contiguous()
        down = layer.down_proj
        by_inner = None if down.lora_b is None else by_y @ down.lora_b.T
        by_activated = by_y @ down.extended[: down.outputs]
        if by_inner is not None:
            by_activated.addmm_(by_inner, down.extended[down.outputs :])
        activated = kernels.swiglu_backward(gate_up, by_activated)  # gate_up is its gradient now: this graph goes back only once
        down_gradients = [] if by_inner is None else down.parameter_gradients(by_inner.T @ activated, by_y.T @ down_inner)
        to_x, gradients = _project_back(layer.gate_up_proj, x, inner, gate_up)
        return to_x, None, *gradients, *down_gradients


def _split_heads(qkv: Tensor, decoder: FastDecoder) -> tuple[Tensor, Tensor, Tensor]:
    heads = qkv.view(len(qkv), -1, decoder.head_dim)
    q, k, v = torch.split(heads, [decoder.heads, decoder.kv_heads, decoder.kv_heads], dim=1)
    return q, k, v


def _sum_shared(gradient: Tensor, key_index: Tensor, rows: int) -> Tensor:
    """A token that several segments attend to has the sum of their gradients."""
    total = torch.zeros(rows, *gradient.shape[1:], dtype=torch.float32, device=gradient.device)
    return total.index_add_(0, key_index, gradient.float())
