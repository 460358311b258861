"""An adapter folder, read once and without trust: what is hashed is what is served.

The files are read into memory, hashed there and opened from there, so nobody can exchange them between the check and the use. The
configuration is laid over the shape of the base model (without its weights): every tensor that it asks for must be in the file,
with that shape and finite, and no other. The hash is the fingerprint that the registry and the gate know the adapter by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from torch import Tensor, nn

from medloop.contracts import sha256_id
from medloop.errors import ModelError, explain_os_errors
from medloop.models.adapter import check_base, lora_config, unfit
from medloop.models.find import ADAPTER, verify_if_ours
from medloop.models.safety import check_folder, decides, fingerprint_of, folder_files

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."


@dataclass(frozen=True)
class AdapterWeights:
    """A verified adapter. `loras` maps the name of a linear layer to A (r, in) and B (out, r) times its scale."""

    folder: Path
    sha256: str
    rank: int
    config: LoraConfig
    tensors: dict[str, Tensor]
    loras: dict[str, tuple[Tensor, Tensor]]


def read_adapter(folder: Path, model: Any, *, base: str, base_sha256: str) -> AdapterWeights:
    """The adapter of a folder for `model`, the base that is served; ModelError says what does not fit."""
    verify_if_ours(folder)
    check_folder(folder)
    for needed in (ADAPTER, WEIGHTS):
        if not (folder / needed).is_file():
            raise ModelError(f"{folder} has no {needed}, so it is not a LoRA adapter", "Name the folder that contains it")
    with explain_os_errors(folder):
        content = {name: path.read_bytes() for name, path in folder_files(folder) if decides(name)}
    try:
        values = json.loads(content[ADAPTER])
        tensors = load_bytes(content[WEIGHTS])
    except (ValueError, RecursionError, SafetensorError):
        raise ModelError(f"{folder} cannot be read as a LoRA adapter", "Save it again with peft") from None
    if not isinstance(values, dict):
        raise ModelError(f"{folder / ADAPTER} should hold a JSON object", "Save the adapter again with peft")
    check_base(folder, values, base, base_sha256)
    config = lora_config(folder, values, "CAUSAL_LM")
    _refuse_unsupported(folder, config)
    loras = _fit(folder, config, tensors, model, base)
    sha256 = fingerprint_of({name: sha256_id(data) for name, data in content.items()})
    rank = max((len(a) for a, _ in loras.values()), default=0)
    return AdapterWeights(folder, sha256, rank, config, tensors, loras)


def _refuse_unsupported(folder: Path, config: LoraConfig) -> None:
    wrong = [name for name in ("use_dora", "modules_to_save") if getattr(config, name)] + ["bias"] * (config.bias != "none")
    if wrong:
        raise ModelError(f"{folder}: the server cannot serve an adapter with {', '.join(wrong)}", "Merge it into its base model")


def _fit(folder: Path, config: LoraConfig, tensors: dict[str, Tensor], model: Any, base: str) -> dict[str, tuple[Tensor, Tensor]]:
    """A and scaled B by layer, after comparing names and shapes with what peft would make of this configuration."""
    try:
        with torch.device("meta"):
            shape = get_peft_model(type(model)(model.config), config)
        expected = {name: tensor.shape for name, tensor in get_peft_model_state_dict(shape).items()}
    except (ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        raise unfit(folder, base) from error
    if {name: tensor.shape for name, tensor in tensors.items()} != expected:
        raise unfit(folder, base)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ModelError(f"{folder} has weights that are not numbers", "Train the adapter again")
    loras = {}
    for name, layer in shape.get_base_model().named_modules():
        if not hasattr(layer, "lora_A"):
            continue
        a, b = tensors.get(f"{PREFIX}{name}.lora_A.weight"), tensors.get(f"{PREFIX}{name}.lora_B.weight")
        if a is None or b is None or not isinstance(layer.base_layer, nn.Linear) or layer.lora_variant:
            return {}  # on a layer of another kind: only the library's own forward can serve it
        loras[name] = (a.float(), b.float() * float(layer.scaling["default"]))
    return loras
