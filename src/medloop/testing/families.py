"""Configurations of tiny random twins of the model families that the fast forward passes know, by a short name."""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from medloop.models.load import load_base

SHAPE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2, "vocab_size": 262}  # fmt: skip
WINDOW = 7  # tokens: shorter than the texts of the tests
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}  # fmt: skip
LOCAL_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]


def family_configs(**changes: Any) -> dict[str, PretrainedConfig]:
    """One configuration for each family, with what sets it apart switched on."""
    shape = {**SHAPE, **changes}
    pairs = int(0.75 * shape["hidden_size"] / shape["num_attention_heads"]) // 2
    longrope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1 + 0.1 * n for n in range(pairs)],
        "long_factor": [4 + 0.5 * n for n in range(pairs)], "original_max_position_embeddings": 128}  # fmt: skip
    tokens = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    return {
        "llama": LlamaConfig(**shape, **tokens),
        "llama3": LlamaConfig(**shape, **tokens, rope_parameters=LLAMA3),
        "qwen2": Qwen2Config(**shape, **tokens),
        "qwen2-window": Qwen2Config(
            **shape, **tokens, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1, tie_word_embeddings=True
        ),
        "qwen3": Qwen3Config(**shape, **tokens, head_dim=16),
        "mistral": MistralConfig(**shape, **tokens, sliding_window=WINDOW),
        "smollm3": SmolLM3Config(**shape, **tokens, no_rope_layers=[1, 0, 1]),
        "gemma2": Gemma2Config(
            **shape, **tokens, head_dim=16, query_pre_attn_scalar=24, sliding_window=WINDOW, layer_types=LOCAL_LAYERS,
            attn_logit_softcapping=5.0, final_logit_softcapping=6.0, attn_implementation="eager",
        ),
        "gemma3": Gemma3TextConfig(
            **shape, **tokens, head_dim=16, query_pre_attn_scalar=24, sliding_window=WINDOW, layer_types=LOCAL_LAYERS
        ),
        "phi3": Phi3Config(**shape, **tokens, partial_rotary_factor=0.75, sliding_window=WINDOW),
        "phi4-mini": Phi3Config(
            **shape, **tokens, partial_rotary_factor=0.75, rope_parameters=longrope, original_max_position_embeddings=128,
            tie_word_embeddings=True,
        ),
    }  # fmt: skip


def family_twin(family: str, *, adapter: bool = False, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A random model whose norms, biases and adapter are not what they are initialised to."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(family_configs(**changes)[family], dtype=torch.float32)
    if adapter:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(0.3 * torch.randn(weight.shape))
            elif "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.3)
            if "lora_" not in name:
                weight.data = weight.to(dtype)
    return model.eval()


def four_bit_twin(
    family: str, folder: Path, *, adapter: bool = False, dtype: torch.dtype = torch.float32, saved: torch.dtype | None = None,
    device: str = "cpu", **changes: Any,
) -> Any:  # fmt: skip
    """Such a model in 4 bits, as `load_in_4bit` opens it: it computes in `dtype`, its file is in `saved`, by default the same.

    Its rows are whole blocks of 64 weights.
    """
    shape = {"hidden_size": 64, "intermediate_size": 128, **changes}
    family_twin(family, dtype=saved or dtype, **shape).save_pretrained(folder)
    model = load_base(folder, torch.device(device), dtype, load_in_4bit=True)
    if adapter:
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        torch.manual_seed(1)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.1)
    return model.eval()
