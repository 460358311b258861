"""The fast decoder (decode.py) of a model of the library: which families it knows, and where their weights lie.

Llama 2 and 3, SmolLM2 and 3, Mistral, Qwen2, 2.5 and 3, Gemma 2 and 3, Phi-3 and 4. A family is read from the model's own modules
where they say what they do (windows, norms of heads, rotary tables), so a variant of a family needs no code.
"""

from typing import Any

import torch
from torch import Tensor

from medloop.models.rollout.decode import DecoderLayer, FastDecoder, FusedLinear, UnsupportedModelError, base_linear
from medloop.models.rollout.four_bit import FourBitMatrix, Scratch, fuse_four_bit, is_four_bit

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma2", "gemma3", "gemma3_text", "phi3")
RANK_MULTIPLE = 8  # rows of the adapters below a matrix: other sizes are slow to multiply
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")  # without them such products are many times slower than in float32
ACTIVATIONS = {"silu": False, "gelu_pytorch_tanh": True}


def build_fast_decoder(model: Any, *, merge: bool = True, products: torch.dtype | None = None) -> FastDecoder:
    """The fast decoder of a causal model, with a LoRA adapter or not. With `merge` float32 weights are a copy with it inside.

    A base in 4 bits stays as it is, and its adapter beside it. With `products`, the matrices of a float32 model on a CPU are
    copied in that type and multiplied in it.
    """
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    try:
        _refuse_unsupported(base)
        if products is not None:
            _refuse_low_products(base)
        decoder = _from_model(base, merge, products)
        decoder.refresh()
    except (AttributeError, TypeError) as error:  # a layer of another kind: in 8 bits, or an adapter that is not plain LoRA
        raise UnsupportedModelError(f"a layer is not a plain linear one with at most one plain LoRA adapter ({error})") from error
    return decoder


def _refuse_unsupported(base: Any) -> None:
    config, dtype = base.config.get_text_config(), base.get_input_embeddings().weight.dtype
    if config.model_type not in SUPPORTED:
        raise UnsupportedModelError(f"its architecture is {config.model_type}, not one of {', '.join(SUPPORTED)}")
    if _activation(config) not in ACTIVATIONS or dtype not in DTYPES:
        raise UnsupportedModelError(f"its activation is {_activation(config)} and its weights are {dtype}")
    if getattr(config, "use_bidirectional_attention", False):
        raise UnsupportedModelError("its attention is bidirectional")
    if getattr(config, "attn_logit_softcapping", None) and config._attn_implementation != "eager":
        raise UnsupportedModelError("its attention has a soft cap, which the library leaves out as it is loaded")


def _refuse_low_products(base: Any) -> None:
    embedding = base.get_input_embeddings().weight
    if (
        embedding.dtype != torch.float32
        or embedding.device.type != "cpu"
        or any(is_four_bit(module) for module in base.modules())
    ):
        raise UnsupportedModelError("it is not a float32 model on a CPU")
    if not any(torch.cpu.get_capabilities().get(name) for name in BFLOAT16_INSTRUCTIONS):
        raise UnsupportedModelError("this processor has no instructions for bfloat16")


def _activation(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def _from_model(base: Any, merge: bool, products: torch.dtype | None) -> FastDecoder:
    config, body, head = base.config.get_text_config(), base.get_decoder(), base.get_output_embeddings()
    words = base.get_input_embeddings()
    embedding = words.weight.detach()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    merged = merge and embedding.dtype == torch.float32 and any(hasattr(module, "lora_A") for module in base.modules())
    merged = merged and products is None and not any(is_four_bit(module) for module in base.modules())
    scratch = Scratch(embedding)
    gemma = config.model_type.startswith("gemma")
    tables = _RotaryTables(config, body.rotary_emb, head_dim, embedding)
    fused: list[FusedLinear] = []

    def fuse(*layers: Any) -> FusedLinear:
        fused.append(_fuse(list(layers), scratch, products, merged=merged))
        return fused[-1]

    def norm(module: Any) -> Tensor | None:
        if module is None:
            return None
        weight: Tensor = module.weight.detach()
        return 1 + weight.float() if gemma else weight

    layers = []
    for index, block in enumerate(body.layers):
        attention, mlp = block.self_attn, block.mlp
        cos, sin = tables.of_layer(index, attention)
        layers.append(
            DecoderLayer(
                input_norm=norm(block.input_layernorm),  # type: ignore[arg-type]
                qkv_proj=fuse(attention.qkv_proj)
                if hasattr(attention, "qkv_proj")
                else fuse(attention.q_proj, attention.k_proj, attention.v_proj),
                o_proj=fuse(attention.o_proj),
                post_attention_norm=norm(block.pre_feedforward_layernorm if gemma else block.post_attention_layernorm),  # type: ignore[arg-type]
                gate_up_proj=fuse(mlp.gate_up_proj) if hasattr(mlp, "gate_up_proj") else fuse(mlp.gate_proj, mlp.up_proj),
                down_proj=fuse(mlp.down_proj), cos=cos, sin=sin,
                q_norm=norm(getattr(attention, "q_norm", None)), k_norm=norm(getattr(attention, "k_norm", None)),
                attention_output_norm=norm(block.post_attention_layernorm) if gemma else None,
                mlp_output_norm=norm(block.post_feedforward_layernorm) if gemma else None,
                window=_window(attention, config, len(cos)),
            )
        )  # fmt: skip
    dtype = products or embedding.dtype
    return FastDecoder(
        embedding=embedding, layers=layers, norm=norm(body.norm),  # type: ignore[arg-type]
        # A classifier has none, and computes no logits here.
        lm_head=embedding if head is None else head.weight.detach().to(dtype),
        lm_head_bias=None if head is None or head.bias is None else head.bias.detach().to(dtype),
        eps=config.rms_norm_eps, heads=config.num_attention_heads, kv_heads=config.num_key_value_heads, head_dim=head_dim,
        merged=merged, scale=float(body.layers[0].self_attn.scaling), rotary_dim=tables.rotary_dim,
        embed_scale=float(words.embed_scale.to(embedding.dtype)) if hasattr(words, "embed_scale") else 1.0,
        gelu=ACTIVATIONS[_activation(config)], softcap=getattr(config, "attn_logit_softcapping", None),
        logit_softcap=getattr(config, "final_logit_softcapping", None), _fused=fused,
    )  # fmt: skip


def _window(attention: Any, config: Any, positions: int) -> int | None:
    """Mistral and Phi have one window for all layers, the others say it layer by layer."""
    window = attention.sliding_window if hasattr(attention, "sliding_window") else getattr(config, "sliding_window", None)
    return None if window is None or window >= positions else int(window)


class _RotaryTables:
    """cos and sin (P, D) by position. The sign of the rotation is in the sine; what is not rotated has 1 and 0."""

    def __init__(self, config: Any, rotary: Any, head_dim: int, like: Tensor) -> None:
        self.config, self.rotary, self.head_dim, self.like = config, rotary, head_dim, like
        self.by_kind: dict[str | None, tuple[Tensor, Tensor]] = {}
        self.rotary_dim = head_dim

    def of_layer(self, index: int, attention: Any) -> tuple[Tensor, Tensor]:
        kind = self.config.layer_types[index] if hasattr(self.rotary, "layer_types") else None
        if not getattr(attention, "use_rope", True):
            kind = "none"
        if kind not in self.by_kind:
            self.by_kind[kind] = self._compute(kind)
        return self.by_kind[kind]

    def _compute(self, kind: str | None) -> tuple[Tensor, Tensor]:
        positions = torch.arange(self._positions(), device=self.like.device)[None]
        named = () if kind in (None, "none") else (kind,)
        cos, sin = (table[0] for table in self.rotary(self.like[:1, None].float(), positions, *named))  # (P, R)
        half = (size := cos.shape[-1]) // 2
        if kind == "none":
            cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
        self.rotary_dim = size
        sin = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)
        rest = (len(cos), self.head_dim - size)
        cos, sin = torch.cat([cos, cos.new_ones(rest)], dim=-1), torch.cat([sin, sin.new_zeros(rest)], dim=-1)
        return cos.to(self.like.dtype), sin.to(self.like.dtype)

    def _positions(self) -> int:
        """Beyond its original length a model with `longrope` rotates all tokens otherwise: the tables end there."""
        rope = getattr(self.config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "longrope":
            return int(rope.get("original_max_position_embeddings") or self.config.original_max_position_embeddings)
        return int(self.config.max_position_embeddings)


def _fuse(layers: list[Any], scratch: Scratch, products: torch.dtype | None, *, merged: bool) -> FusedLinear:
    plain = [base_linear(layer) for layer in layers]
    ranks = tuple(0 if merged else _max_rank(layer) for layer in layers)
    below = -(-sum(ranks) // RANK_MULTIPLE) * RANK_MULTIPLE
    sizes, like = tuple(layer.out_features for layer in plain), scratch.memory
    biases = [layer.bias.detach().to(like.dtype) for layer in plain if layer.bias is not None]
    if len(biases) not in (0, len(plain)):
        raise TypeError("some of its layers have a bias")
    bias = torch.cat([*biases, like.new_zeros(below)]) if biases else None
    lora_b = like.new_zeros(below, sum(sizes)) if below else None
    stored = _store(plain, below, scratch, products, copied=merged or products is not None)
    return FusedLinear(layers, stored, bias, sizes, ranks, lora_b)


def _store(
    plain: list[Any], below: int, scratch: Scratch, products: torch.dtype | None, *, copied: bool
) -> Tensor | FourBitMatrix:
    """The layers' weights as one, with room below them; the layers' own are views of it unless they are `copied`."""
    if all(is_four_bit(layer) for layer in plain):
        try:
            return fuse_four_bit(plain, below, scratch)
        except ValueError as error:
            raise UnsupportedModelError(str(error)) from error
    if any(is_four_bit(layer) for layer in plain):
        raise UnsupportedModelError("of matrices with one input some are in 4 bits and some are not")
    parts: list[Tensor] = [layer.weight.detach() for layer in plain]
    if not (copied or len(plain) > 1 or below > 0):
        return parts[0]
    extended = torch.cat([*parts, parts[0].new_zeros(below, parts[0].shape[1])])
    if products is not None:
        extended = extended.to(products)
    if not copied:
        for layer, part in zip(plain, torch.split(extended[: len(extended) - below], [len(part) for part in parts]), strict=True):
            layer.weight.data = part
    return extended


def _max_rank(layer: Any) -> int:
    """The largest rank among the layer's adapters, so that any of them fits."""
    return max((len(lora_a.weight) for lora_a in getattr(layer, "lora_A", {}).values()), default=0)
