"""Checkpoints that survive `kill -9`: safetensors and JSON only, whole or absent, checked before use.

    save_checkpoint(folder, step, weights, optimizer, scheduler, extra={"kl": 0.2, "buffer": tensor})
    checkpoint = load_newest(folder)         # None, or the newest that verifies
    checkpoint.restore(model, optimizer, scheduler); checkpoint.restore_random(); checkpoint.extra["kl"]

A checkpoint is an artifact folder `step-00000120` with `tensors.safetensors` and `state.json`. The random states of
Python, numpy and torch are always inside. `extra` may be any nesting of dictionaries, lists, tuples, numbers, strings
and tensors. No pickle is written, and none is ever read.
"""

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from medloop.errors import IntegrityError
from medloop.models.runtime import obey_umask
from medloop.store.files.artifacts import new_artifact, newest_verified

TENSORS, STATE = "tensors.safetensors", "state.json"
MARK = "!"  # {"!": "tensor", "of": name}: values that JSON cannot express
SCHEME = "medloop-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at one step; tensors are on the CPU."""

    path: Path
    step: int
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, Any] | None
    scheduler: dict[str, Any] | None
    random: dict[str, Any]
    extra: dict[str, Any]

    def restore(self, model: torch.nn.Module, optimizer: Any = None, scheduler: Any = None) -> None:
        """Restore weights (by parameter name), optimizer and scheduler."""
        named = dict(model.named_parameters())
        if unknown := self.weights.keys() - named.keys():
            raise IntegrityError(
                f"{self.path} has weights that this model lacks, for example {min(unknown)}", "Train from the start"
            )
        with torch.no_grad():
            for name, weight in self.weights.items():
                named[name].copy_(weight)
        if optimizer is not None:
            optimizer.load_state_dict(self.optimizer)
        if scheduler is not None:
            scheduler.load_state_dict(self.scheduler)

    def restore_random(self) -> None:
        """Python, numpy and torch continue their random streams, also on the GPUs."""
        random.setstate(self.random["python"])
        name, keys, position, has_gauss, gauss = self.random["numpy"]
        np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
        torch.set_rng_state(self.random["torch"])
        if torch.cuda.is_available() and self.random["cuda"]:
            torch.cuda.set_rng_state_all(self.random["cuda"])


def save_checkpoint(
    folder: Path,
    step: int,
    weights: Mapping[str, torch.Tensor],
    optimizer: Any = None,
    scheduler: Any = None,
    extra: Mapping[str, Any] | None = None,
    *,
    files: Mapping[str, str] | None = None,
    keep: int = 2,
) -> Path:
    """Write `folder/step-N` durably and delete all but the newest `keep`. `files` are more text files beside it."""
    state = {
        "weights": dict(weights),
        "optimizer": None if optimizer is None else optimizer.state_dict(),
        "scheduler": None if scheduler is None else scheduler.state_dict(),
        "random": _random_state(),
        "extra": dict(extra or {}),
    }
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps({"scheme": SCHEME, "step": step, "state": _pack(state, "", tensors)}, allow_nan=False)
    target = folder / f"step-{step:08d}"
    with new_artifact(target, replace=True) as temp:
        save_file(_unshared(tensors), temp / TENSORS)
        obey_umask(temp)
        for name, content in {STATE: text, **(files or {})}.items():
            (temp / name).write_text(content, encoding="utf-8")
    for old in sorted(folder.glob("step-*"))[:-keep]:
        shutil.rmtree(old)
    return target


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint whose every byte is as it was written; incomplete ones are deleted."""
    path = newest_verified(folder, "step-*")
    return None if path is None else _read(path)


def _read(path: Path) -> Checkpoint:
    content = json.loads((path / STATE).read_text(encoding="utf-8"))
    if content.get("scheme") != SCHEME:
        raise IntegrityError(f"{path} is a checkpoint of another medloop version", "Train from the start (--replace)")
    state = _unpack(content["state"], load_file(path / TENSORS))
    return Checkpoint(path=path, step=content["step"], **state)


def _random_state() -> dict[str, Any]:
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(gauss)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _pack(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """`value` as JSON; its tensors go into `tensors` under the path that leads to them."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().to("cpu").contiguous()
        return {MARK: "tensor", "of": name}
    if isinstance(value, dict):
        if all(isinstance(key, str) and key != MARK for key in value):
            return {key: _pack(item, f"{name}/{key}", tensors) for key, item in value.items()}
        return {MARK: "dict", "of": [[key, _pack(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [_pack(item, f"{name}/{index}", tensors) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {MARK: "tuple", "of": items}
    assert value is None or isinstance(value, bool | int | float | str), (
        f"{name}: a checkpoint cannot hold a {type(value).__name__}"
    )
    return value


def _unshared(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each with memory of its own, as safetensors wants it: optimizers in 8 bits share a table between parameters."""
    storages: set[int] = set()
    unshared = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        unshared[name] = tensor.clone() if storage in storages else tensor
        storages.add(storage)
    return unshared


def _unpack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(MARK)
    if kind == "tensor":
        return tensors[value["of"]]
    if kind == "tuple":
        return tuple(_unpack(item, tensors) for item in value["of"])
    if kind == "dict":
        return {key: _unpack(item, tensors) for key, item in value["of"]}
    return {key: _unpack(item, tensors) for key, item in value.items()}
