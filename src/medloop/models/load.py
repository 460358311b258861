"""From a name to a model in memory: `embedded:tiny`, `embedded:smollm2`, a folder, a GGUF file, a hub id, with or without LoRA.

    load(ModelRef(base="base/", adapter="models/lora/sft"), settings)   -> model and tokenizer

Code from a model folder is never run (`trust_remote_code` is always off) and weights are safetensors only: see safety.py.
A model whose weights are incomplete is refused; transformers would fill the gaps with random numbers.
"""

import importlib.util
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from medloop.contracts import ModelRef
from medloop.errors import MissingExtraError, ModelError
from medloop.models import runtime
from medloop.models.find import resolve_chat_model
from medloop.models.safety import read_json
from medloop.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    model: Any
    tokenizer: Any
    name: str
    sha256: str
    device: torch.device
    adapter_sha256: str | None = None

    @property
    def max_length(self) -> int:
        """Tokens that the model can read at once."""
        return int(getattr(self.model.config.get_text_config(), "max_position_embeddings", 1 << 20))


def load(ref: ModelRef, settings: Settings, *, trainable: bool = False, load_in_4bit: bool = False) -> Loaded:
    """The model in memory: eval mode, float32 on a CPU, bfloat16 on a GPU (float32 there too when all weights train)."""
    runtime.keep_quiet()
    runtime.set_threads(settings)
    resolved, device = resolve_chat_model(ref, settings), runtime.device_of(settings)
    tokenizer = load_tokenizer(resolved.folder)
    model = load_base(resolved.folder, device, runtime.number_type(device, trainable=trainable), load_in_4bit)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise ModelError(
            f"{ref.base}: the tokenizer has more tokens than the model", "The two do not belong together; fetch the model again"
        )
    if resolved.adapter is not None:
        from medloop.models.adapter import put_adapter

        model = put_adapter(model, resolved.adapter, base=ref.base, base_sha256=resolved.sha256)
    return Loaded(model.eval(), tokenizer, resolved.name, resolved.sha256, device, resolved.adapter_sha256)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a checked folder, with a pad token (its eos token if it has none)."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
        raise ModelError(f"The tokenizer in {folder} cannot be read ({_short(error)})", "Fetch the model again") from error
    if not tokenizer.is_fast:
        raise ModelError(f"{folder} has no tokenizer.json", "Save its tokenizer in that form first (transformers does it)")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_base(folder: Path, device: torch.device, dtype: torch.dtype, load_in_4bit: bool) -> Any:
    """The causal model in a checked folder, without an adapter."""
    more = {"quantization_config": _four_bit(dtype), "device_map": {"": device}} if load_in_4bit else {}
    model = load_weights(AutoModelForCausalLM, folder, dtype=dtype, **more)
    if not load_in_4bit:
        return model.to(device)
    for module in model.modules():
        # On a CPU bitsandbytes repacks weights at the first forward without gradients, and then cannot compute any.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model


def load_weights(kind: Any, folder: Path, *, dtype: torch.dtype, may_lack: tuple[str, ...] = (), **more: Any) -> Any:
    """A checked folder opened as one of transformers' Auto classes; ModelError when tensors are missing.

    `may_lack` are prefixes of tensor names that the caller never uses, such as `pooler.`.
    """
    if _has_soft_cap(folder):
        more = {"attn_implementation": "eager", **more}  # the others leave the cap out in some versions of transformers
    try:
        model, info = kind.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True,
            output_loading_info=True, **more,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, AttributeError, SafetensorError) as error:
        raise ModelError(
            f"The model in {folder} cannot be loaded ({_short(error)})", "Check that its files belong together"
        ) from error
    missing = {*info["missing_keys"], *(str(key[0]) for key in info["mismatched_keys"])}
    if gaps := sorted(name for name in missing if not name.startswith(may_lack)):
        raise ModelError(f"The weights in {folder} lack {len(gaps)} tensors, for example {gaps[0]}", "Fetch the model again")
    return model


def _has_soft_cap(folder: Path) -> bool:
    """Of the attention's scores, as in Gemma 2."""
    config = read_json(folder / "config.json")
    text = config.get("text_config")
    return any(part.get("attn_logit_softcapping") for part in (config, text) if isinstance(part, dict))


def _four_bit(dtype: torch.dtype) -> Any:
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingExtraError(
            "Loading in 4 bits needs a package that is not installed", "Install it with: pip install 'medloop[quant]'"
        )
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )


def _short(error: Exception) -> str:
    """The library's first line, without its advice."""
    line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {line[:160]}" if line else type(error).__name__
