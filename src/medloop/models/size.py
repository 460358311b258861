"""How large a model is, by config.json and the headers of its safetensors files. No torch, and no weights are read."""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_LAYERS = 1000
MAX_HEADER = 100_000_000  # bytes
WIDTHS, LAYERS = ("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer", "n_layers")  # as architectures name them


@dataclass(frozen=True)
class ModelSize:
    """Of a model on this disk. `adapter` are the weights of a LoRA adapter of rank 1."""

    parameters: int
    adapter: int
    layers: int
    width: int


def model_size(folder: Path) -> ModelSize | None:
    """None for a folder that cannot be read that way; whoever loads the model says what is wrong with it."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config", config)
        shapes = model_shapes(folder)
        layers, width = (next(int(config[name]) for name in names if name in config) for names in (LAYERS, WIDTHS))
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RuntimeError, struct.error):
        return None
    adapter = sum(sum(shape) for shape in matrices(shapes))
    return ModelSize(sum(math.prod(shape) for _, shape in shapes), adapter, min(layers, MAX_LAYERS), width)


def model_shapes(folder: Path) -> list[tuple[str, list[int]]]:
    """Names and shapes of all tensors of a folder."""
    return [pair for file in sorted(folder.glob("*.safetensors")) for pair in tensor_shapes(file)]


def matrices(shapes: list[tuple[str, list[int]]]) -> list[list[int]]:
    """The weights that every token is multiplied with: without embeddings and output layer."""
    return [shape for name, shape in shapes if len(shape) == 2 and "embed" not in name and "lm_head" not in name]


def tensor_shapes(file: Path) -> list[tuple[str, list[int]]]:
    """Names and shapes of the tensors in a safetensors file: 8 bytes of length, then JSON."""
    with file.open("rb") as raw:
        (length,) = struct.unpack("<Q", raw.read(8))
        header: dict[str, Any] = json.loads(raw.read(min(length, MAX_HEADER)))
    return [(name, value["shape"]) for name, value in header.items() if name != "__metadata__"]
