"""The forward pass that trains a LoRA: the weights of the fast decoder, tokens without padding, few kernels.

    forward = FastForward(decoder)
    states = forward(packed)                # (N, H) of the tokens of `packed`; gradients reach the adapters' own parameters

The library's forward with a PEFT adapter spends more time around its products than in them: casts between float32 adapters and
bfloat16 activations, one kernel for every elementwise step, padding. Here a layer is two functions with their own derivatives
(attention with its projections, and the MLP) and two fused additions with norm. Only what the way back needs is kept; SwiGLU is
computed again. Rows of a group share their prompt: it is computed once, and the answers attend to it (`PackedRows`).

The base is frozen: no gradient of it is computed. agreement.py compares it with the library before it is used.

On a GPU the steps between the products are Triton kernels (forward_kernels.py), elsewhere plain operations (forward_plain.py).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from medloop.models import forward_plain
from medloop.models.packing import PackedRows, pack, pack_whole
from medloop.models.rollout.agreement import FLOOR, MARGIN, STEPS, check_agreement, compare_with_library, in_float32, probe
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import DecoderLayer, FastDecoder, FusedLinear, UnsupportedModelError


class FastForward:
    """A model as a function from packed rows to hidden states."""

    def __init__(self, decoder: FastDecoder) -> None:
        self.decoder = decoder
        self.ops: Any = forward_plain
        if decoder.embedding.device.type == "cuda":
            from medloop.models import forward_kernels  # triton

            self.ops = forward_kernels

    @property
    def bytes_per_token(self) -> int:
        """What a token keeps for the way back: the residual twice in float32; the rest in the type of the weights."""
        layer, hidden = self.decoder.layers[0], self.decoder.embedding.shape[1]
        linears = layer.qkv_proj, layer.o_proj, layer.gate_up_proj
        normed_outputs = 0 if layer.attention_output_norm is None else 12 * hidden  # both in float32, and their norms
        kept = 8 * hidden + 2 * (2 * hidden + sum(linear.outputs for linear in linears)) + normed_outputs
        return len(self.decoder.layers) * kept

    def __call__(self, rows: PackedRows) -> Tensor:
        decoder = self.decoder
        x = F.embedding(rows.tokens, decoder.embedding).float()
        if decoder.embed_scale != 1:
            x *= decoder.embed_scale
        y: Tensor | None = None
        for layer in decoder.layers:
            x, normed = _AddAndNorm.apply(x, y, layer.input_norm, self)  # type: ignore[no-untyped-call]
            y = _Attention.apply(  # type: ignore[no-untyped-call]
                normed, self, layer, rows, *layer.qkv_proj.parameters(), *layer.o_proj.parameters()
            )
            y = self._norm_output(y, layer.attention_output_norm)
            x, normed = _AddAndNorm.apply(x, y, layer.post_attention_norm, self)  # type: ignore[no-untyped-call]
            y = _MLP.apply(  # type: ignore[no-untyped-call]
                normed, self, layer, *layer.gate_up_proj.parameters(), *layer.down_proj.parameters()
            )
            y = self._norm_output(y, layer.mlp_output_norm)
        _, normed = _AddAndNorm.apply(x, y, decoder.norm, self)  # type: ignore[no-untyped-call]
        return normed  # type: ignore[no-any-return]

    def _norm_output(self, y: Any, weight: Tensor | None) -> Tensor:
        """What a block adds, normed where the family does that."""
        if weight is None:
            return y  # type: ignore[no-any-return]
        return F.rms_norm(y.float(), (y.shape[-1],), weight, self.decoder.eps).to(y.dtype)

    def turned_heads(self, layer: DecoderLayer, qkv: Tensor, rows: PackedRows) -> Tensor:
        """Heads as they attend: normed where the family does that, and rotated; else in the memory of `qkv`."""
        decoder = self.decoder
        heads, kv_heads = decoder.heads, decoder.kv_heads
        if layer.q_norm is not None:
            qkv = qkv.clone()
            for part, weight in self._normed_heads(layer, qkv):
                part.copy_(F.rms_norm(part.float(), (decoder.head_dim,), weight.float(), decoder.eps))
        self.ops.rotate(
            qkv, qkv, layer.cos, layer.sin, rows.positions, heads=heads + 2 * kv_heads, turned=heads + kv_heads,
            rotary_dim=decoder.rotary_dim,
        )  # fmt: skip
        return qkv

    def heads_backward(
        self, layer: DecoderLayer, qkv: Tensor, by_turned: tuple[Tensor, Tensor, Tensor], rows: PackedRows
    ) -> Tensor:
        """The gradient of `qkv`, given those of its queries, keys and values after `turned_heads`."""
        decoder, dim, first = self.decoder, self.decoder.head_dim, 0
        by_qkv = torch.empty_like(qkv)
        for gradient, turned in zip(by_turned, (True, True, False), strict=True):
            count = gradient.shape[1]
            self.ops.rotate(
                gradient.reshape(len(qkv), count * dim), by_qkv[:, first * dim :], layer.cos, layer.sin, rows.positions,
                heads=count, turned=count if turned else 0, rotary_dim=decoder.rotary_dim, back=True,
            )  # fmt: skip
            first += count
        if layer.q_norm is not None:
            for (x, weight), (by_normed, _) in zip(
                self._normed_heads(layer, qkv), self._normed_heads(layer, by_qkv), strict=True
            ):
                scales = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + decoder.eps)
                by_normed.copy_(forward_plain.norm_backward(x.float(), weight.float(), scales, by_normed))
        return by_qkv

    def _normed_heads(self, layer: DecoderLayer, qkv: Tensor) -> list[tuple[Tensor, Tensor]]:
        assert layer.q_norm is not None and layer.k_norm is not None
        q, k, _ = split_heads(qkv, self.decoder)
        return [(q, layer.q_norm), (k, layer.k_norm)]


def open_fast_forward(model: Any) -> FastForward:
    """UnsupportedModelError if the model is not one of ours, or its log-probabilities are not as good as the library's."""
    decoder = build_fast_decoder(model, merge=False)
    forward = _open(model, decoder)

    def logprobs(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        prompts = [ids[mask][:-STEPS].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        rows, predictors = pack(prompts, [[*ids[-STEPS:].tolist(), 0] for ids in input_ids], input_ids.device)
        return decoder.logits(forward(rows)[predictors]).float().log_softmax(-1)

    compare_with_library(logprobs, model, autocast=decoder.embedding.dtype != torch.float32)
    check_agreement(decoder, model)
    return forward


def open_fast_classifier(model: Any) -> FastForward:
    """Of a causal base with a LoRA and one logit from its last token (`score`), which is the caller's to apply.

    UnsupportedModelError if it is not one of ours, or its logits are not as good as the library's.
    """
    base = model.get_base_model()
    if not hasattr(base, "score"):
        raise UnsupportedModelError(f"its architecture is {base.config.model_type}, without a score of the last token")
    forward = _open(model, build_fast_decoder(model, merge=False), besides={id(p) for p in base.score.parameters()})
    ids = probe(forward.decoder.embedding.shape[0], forward.decoder.embedding.device)[0]
    pad = base.config.get_text_config().pad_token_id
    ids = ids.masked_fill(ids == pad, (pad or 0) + 1)
    low = forward.decoder.embedding.dtype != torch.float32
    was_training = model.training
    model.eval()
    with torch.no_grad():
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=low):
            library = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
            rows = pack_whole(ids.tolist()).to(ids.device)
            ours = base.score(forward(rows)[rows.query_starts[1:].long() - 1]).float()
        with in_float32(model):
            truth = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    model.train(was_training)
    away, theirs = (float((logits - truth).square().mean().sqrt()) for logits in (ours, library))
    if not away <= max(MARGIN * theirs, FLOOR * (1 + float(truth.abs().max()))):
        raise UnsupportedModelError(f"its logits are {away:.2g} from float32, the library's {theirs:.2g}")
    return forward


def _open(model: Any, decoder: FastDecoder, besides: set[int] | None = None) -> FastForward:
    """UnsupportedModelError where a parameter is trained that is neither of a LoRA of the decoder nor one of `besides`."""
    if decoder.embedding.device.type == "cuda" and decoder.embedding.dtype == torch.float32:
        raise UnsupportedModelError("its weights are float32")
    known = {id(matrix) for layer in decoder.layers for linear in _linears(layer) for matrix in linear.parameters()}
    known |= besides or set()
    if any(parameter.requires_grad and id(parameter) not in known for parameter in model.parameters()):
        raise UnsupportedModelError("it trains more than the LoRA matrices of its linear layers")
    return FastForward(decoder)


def _linears(layer: DecoderLayer) -> tuple[FusedLinear, ...]:
    return layer.qkv_proj, layer.o_proj, layer.gate_up_proj, layer.down_proj


def _project(linear: FusedLinear, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Outputs with their adapters, and the adapters' inner activations (N, R)."""
    if (merged := _merged(linear, x)) is not None:
        return F.linear(x, merged, None if linear.bias is None else linear.bias[: linear.outputs]), x @ linear.lora_a.T
    y = linear.with_lora_inputs(x)
    if linear.lora_b is None:
        return y, None
    inner = y[:, linear.outputs :].contiguous()
    return torch.addmm(y[:, : linear.outputs], inner, linear.lora_b), inner


def _project_back(linear: FusedLinear, x: Tensor, inner: Tensor | None, by_y: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of x, and of A and B of each adapter in the order of `linear.parameters()`."""
    if linear.lora_b is None or inner is None:
        return by_y @ linear.extended(), []
    by_inner = by_y @ linear.lora_b.T  # (N, R)
    return _to_input(linear, by_y, by_inner), linear.parameter_gradients(by_inner.T @ x, by_y.T @ inner)


def _to_input(linear: FusedLinear, by_y: Tensor, by_inner: Tensor) -> Tensor:
    if (merged := _merged(linear, by_y)) is not None:
        return by_y @ merged
    return torch.addmm(by_y @ linear.extended()[: linear.outputs], by_inner, linear.lora_a)


def _merged(linear: FusedLinear, x: Tensor) -> Tensor | None:
    """On a CPU in float32 it is cheaper to add the adapters to the weights than to add their outputs to those of many tokens."""
    if linear.lora_b is None or x.device.type != "cpu" or x.dtype != torch.float32 or len(x) < linear.lora_a.shape[1]:
        return None
    return torch.addmm(linear.extended()[: linear.outputs], linear.lora_b.T, linear.lora_a)


class _AddAndNorm(torch.autograd.Function):
    """x + y in float32, and its norm in the type of the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, weight: Tensor, forward: FastForward) -> tuple[Tensor, Tensor]:
        decoder = forward.decoder
        added, normed, scales = forward.ops.add_and_norm(x, y, weight, decoder.eps, decoder.embedding.dtype)
        ctx.save_for_backward(added, weight, scales)
        ctx.adds, ctx.ops = y is not None, forward.ops
        if y is None:
            ctx.mark_dirty(x)
        return added, normed

    @staticmethod
    def backward(ctx: Any, by_added: Tensor, by_normed: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scales = ctx.saved_tensors
        to_x, to_y = ctx.ops.add_and_norm_backward(x, weight, scales, by_normed.contiguous(), by_added.contiguous())
        return to_x, to_y if ctx.adds else None, None, None


class _Attention(torch.autograd.Function):
    """Projections of the queries, keys and values, rotation, attention, output projection."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: FastForward, layer: DecoderLayer, rows: PackedRows, *_: Tensor) -> Tensor:
        decoder = forward.decoder
        qkv, inner = _project(layer.qkv_proj, x)
        q, k, v = split_heads(forward.turned_heads(layer, qkv, rows), decoder)
        attended, saved = _attend(decoder, layer, q, k, v, rows)
        y, o_inner = _project(layer.o_proj, attended.reshape(len(x), decoder.heads * decoder.head_dim))
        ctx.save_for_backward(x, inner, qkv, attended, o_inner, *saved)
        ctx.context, ctx.reads = (forward, layer, rows), decoder.reads
        return y

    @staticmethod
    def backward(ctx: Any, by_y: Tensor) -> tuple[Any, ...]:
        x, inner, qkv, attended, o_inner, *saved = ctx.saved_tensors
        forward, layer, rows = ctx.context
        decoder = forward.decoder
        _check_reads(decoder, ctx.reads)
        flat = attended.reshape(len(x), decoder.heads * decoder.head_dim)
        by_flat, o_gradients = _project_back(layer.o_proj, flat, o_inner, by_y.contiguous())
        turned = qkv if layer.q_norm is None else forward.turned_heads(layer, qkv, rows)
        q, k, v = split_heads(turned, decoder)
        by_heads = _attend_back(decoder, layer, by_flat.view_as(attended), q, k, v, attended, saved, rows)
        to_x, gradients = _project_back(layer.qkv_proj, x, inner, forward.heads_backward(layer, qkv, by_heads, rows))
        return to_x, None, None, None, *gradients, *o_gradients


def _uses_flash(decoder: FastDecoder, q: Tensor) -> bool:
    """It knows no soft caps, and runs on a GPU only."""
    return q.device.type == "cuda" and decoder.softcap is None


def _window_arguments(layer: DecoderLayer) -> dict[str, int]:
    return {} if layer.window is None else {"window_size_left": layer.window - 1, "window_size_right": 0}


def _attend(
    decoder: FastDecoder, layer: DecoderLayer, q: Tensor, k: Tensor, v: Tensor, rows: PackedRows
) -> tuple[Tensor, list[Tensor]]:
    """(N, h, D), and what the way back needs of it."""
    if not _uses_flash(decoder, q):
        return forward_plain.attention(q, k, v, rows, decoder.scale, layer.window, decoder.softcap)
    k, v = k[rows.key_index], v[rows.key_index]
    attended, log_sums, state, unused, _mask = torch.ops.aten._flash_attention_forward(
        q, k, v, rows.query_starts, rows.key_starts, rows.longest_query, rows.longest_key, 0.0, True, False, scale=decoder.scale,
        **_window_arguments(layer),
    )  # fmt: skip
    return attended, [log_sums, state, unused]


def _attend_back(
    decoder: FastDecoder, layer: DecoderLayer, by_attended: Tensor, q: Tensor, k: Tensor, v: Tensor, attended: Tensor,
    saved: list[Tensor], rows: PackedRows,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of the queries, keys and values of each token."""
    if not _uses_flash(decoder, q):
        return forward_plain.attention_backward(by_attended, q, k, v, rows, decoder.scale, layer.window, decoder.softcap, saved)
    log_sums, state, unused = saved
    k, v = k[rows.key_index], v[rows.key_index]
    by_q, by_k, by_v = torch.ops.aten._flash_attention_backward(
        by_attended, q, k, v, attended, log_sums, rows.query_starts, rows.key_starts, rows.longest_query, rows.longest_key, 0.0,
        True, state, unused, scale=decoder.scale, **_window_arguments(layer),
    )  # fmt: skip
    return by_q, _sum_shared(by_k, rows.key_index, len(q)), _sum_shared(by_v, rows.key_index, len(q))


class _MLP(torch.autograd.Function):
    """down(activation(gate) * up)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: FastForward, layer: DecoderLayer, *_: Tensor) -> Tensor:
        gate_up, inner = _project(layer.gate_up_proj, x)
        y, down_inner = _project(layer.down_proj, forward.ops.gated(gate_up, gelu=forward.decoder.gelu))
        ctx.save_for_backward(x, inner, gate_up, down_inner)
        ctx.context, ctx.reads = (forward, layer), forward.decoder.reads
        return y

    @staticmethod
    def backward(ctx: Any, by_y: Tensor) -> tuple[Any, ...]:
        x, inner, gate_up, down_inner = ctx.saved_tensors
        forward, layer = ctx.context
        _check_reads(forward.decoder, ctx.reads)
        by_y = by_y.contiguous()
        down = layer.down_proj
        by_inner = None if down.lora_b is None else by_y @ down.lora_b.T
        by_activated = by_y @ down.extended() if by_inner is None else _to_input(down, by_y, by_inner)
        # gate_up is its gradient after this: this graph goes back only once
        activated = forward.ops.gated_backward(gate_up, by_activated, gelu=forward.decoder.gelu)
        down_gradients = [] if by_inner is None else down.parameter_gradients(by_inner.T @ activated, by_y.T @ down_inner)
        to_x, gradients = _project_back(layer.gate_up_proj, x, inner, gate_up)
        return to_x, None, None, *gradients, *down_gradients


def _check_reads(decoder: FastDecoder, reads: int) -> None:
    """The way back multiplies with the decoder's own matrices: those must be the ones of the way there."""
    assert decoder.reads == reads, "the adapter was read again between the forward pass and its backward pass"


def split_heads(qkv: Tensor, decoder: FastDecoder) -> tuple[Tensor, Tensor, Tensor]:
    heads = qkv.view(len(qkv), -1, decoder.head_dim)
    q, k, v = torch.split(heads, [decoder.heads, decoder.kv_heads, decoder.kv_heads], dim=1)
    return q, k, v


def _sum_shared(gradient: Tensor, key_index: Tensor, rows: int) -> Tensor:
    """A token that several segments attend to has the sum of their gradients."""
    total = torch.zeros(rows, *gradient.shape[1:], dtype=torch.float32, device=gradient.device)
    return total.index_add_(0, key_index, gradient.float())
