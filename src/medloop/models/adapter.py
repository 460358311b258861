"""LoRA adapters, opened without trusting their configuration.

`adapter_config.json` may name code to import or a base model to fetch. So it is read as plain JSON: the fields that
describe a LoRA go into a LoraConfig of our own, a field that we do not know and that is set refuses the adapter, and
the weights come from safetensors. Missing, extra or misshapen tensors refuse it as well.
"""

import json
import logging
from pathlib import Path
from typing import Any

from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

from medloop.contracts import TrainingCard
from medloop.errors import ModelError
from medloop.models.safety import read_json

FIELDS = frozenset(
    {"r", "lora_alpha", "target_modules", "exclude_modules", "lora_dropout", "bias", "use_rslora", "use_dora", "fan_in_fan_out",
     "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform", "layers_pattern"}
)  # fmt: skip
# Written by peft; ignored here, and without effect on how trained weights are used.
HARMLESS = frozenset(
    {"peft_type", "peft_version", "task_type", "inference_mode", "base_model_name_or_path", "revision", "init_lora_weights",
     "auto_mapping", "megatron_core", "qalora_group_size", "ensure_weight_tying", "lora_ga_config"}
)  # fmt: skip

log = logging.getLogger(__name__)


def fresh_lora(model: Any, **shape: Any) -> LoraConfig:
    """A LoRA on every linear layer of a model; `shape` as LoraConfig takes it (r, lora_alpha, ...)."""
    transposed = any(isinstance(module, Conv1D) for module in model.modules())  # GPT-2 keeps its matrices that way
    return LoraConfig(**{"target_modules": "all-linear", "task_type": "CAUSAL_LM", "fan_in_fan_out": transposed, **shape})


def put_adapter(model: Any, folder: Path, *, base: str, base_sha256: str, task_type: str = "CAUSAL_LM") -> Any:
    """The model with the adapter of `folder` on it, after checking that the two belong together."""
    config = read_json(folder / "adapter_config.json")
    check_base(folder, config, base, base_sha256)
    try:
        adapted = get_peft_model(model, lora_config(folder, config, task_type))
        loaded = set_peft_model_state_dict(adapted, tensors := load_file(folder / "adapter_model.safetensors"))
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise unfit(folder, base) from error
    if loaded.unexpected_keys or len(tensors) != len(get_peft_model_state_dict(adapted)):
        raise unfit(folder, base)
    return adapted


def lora_config(folder: Path, config: dict[str, Any], task_type: str) -> LoraConfig:
    """The configuration of a plain LoRA; a field that is set and that we do not know refuses the adapter."""
    if config.get("peft_type") != "LORA":
        raise ModelError(f"{folder} is a {config.get('peft_type')} adapter", "Only LoRA adapters can be loaded")
    unknown = sorted(key for key, value in config.items() if key not in FIELDS | HARMLESS and value)
    if unknown:
        raise ModelError(
            f"{folder}: its configuration sets {', '.join(unknown)}, which is not supported", "Use a plain LoRA adapter"
        )
    known = {key: value for key, value in config.items() if key in FIELDS and value is not None}
    return LoraConfig(**known, task_type=task_type, init_lora_weights=True)


def check_base(folder: Path, config: dict[str, Any], base: str, base_sha256: str) -> None:
    """Our card names the base by hash, so a mismatch is an error; other adapters name it by name, so it is a warning."""
    path = folder / "card.json"
    if path.is_file():
        card = _read_card(path)
        if card.base_sha256 != base_sha256:
            raise ModelError(
                f"{folder} was trained on {card.base} ({card.base_sha256[7:19]}), not on {base} ({base_sha256[7:19]})",
                f"Load it with --model {card.base}",
            )
        return
    name = str(config.get("base_model_name_or_path") or "")
    if name.rstrip("/").rsplit("/", 1)[-1] != base.rstrip("/").rsplit("/", 1)[-1].partition("@")[0]:
        log.warning("adapter %s says that it was trained on '%s', but is loaded on '%s'", folder, name, base)


def _read_card(path: Path) -> TrainingCard:
    try:
        return TrainingCard.model_validate(read_json(path))
    except ValidationError:
        raise ModelError(f"{path} is not a training card", "Train the adapter again, or remove that file") from None


def unfit(folder: Path, base: str) -> ModelError:
    return ModelError(f"The weights in {folder} do not fit {base}", "Load the adapter on the base model that it was trained on")


def save_adapter(folder: Path, model: Any, base: str) -> None:
    """As peft does, but with its sets in order, so that the same adapter is the same bytes."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in get_peft_model_state_dict(model).items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        key: sorted(value) if isinstance(value, set) else value for key, value in model.peft_config["default"].to_dict().items()
    }
    config |= {"base_model_name_or_path": base, "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
