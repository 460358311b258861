"""Where models run: device, number type, threads, and quiet libraries.

CPU: float32, because bfloat16 matrix products are tens of times slower there. CUDA: bfloat16 for frozen weights,
float32 for trained ones (bfloat16 weights do not move at small learning rates).
"""

import math
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import transformers

from medloop.errors import ConfigError, ResultError
from medloop.settings import Settings

T = TypeVar("T")
R = TypeVar("R")
CORES = torch.get_num_threads()  # what torch finds at its start: the cores that this process may use


def device_of(settings: Settings, which: Literal["device", "reward.device"] = "device") -> torch.device:
    """The device that a setting names; `auto` is a GPU if there is one."""
    name = settings.get(which)
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{which} is 'cuda', but torch sees no GPU", "Set it to auto or cpu, or install a CUDA build of torch")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def number_type(device: torch.device, *, trainable: bool) -> torch.dtype:
    return torch.float32 if trainable or device.type == "cpu" else torch.bfloat16


def set_threads(settings: Settings) -> int:
    """Set torch's threads and return them: the setting, else every core (torch's own default, or OMP_NUM_THREADS)."""
    torch.set_num_threads(settings.threads or CORES)
    return torch.get_num_threads()


def keep_quiet() -> None:
    """No progress bars or advice from the libraries."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def versions() -> dict[str, str]:
    """The packages that decide a result, for the card beside it."""
    names = ("medloop", "torch", "transformers", "trl", "peft", "accelerate", "tokenizers", "safetensors")
    return {name: version(name) for name in names}


def obey_umask(folder: Path) -> None:
    """Safetensors files are created readable by their owner alone; give them the permissions of other files."""
    umask = os.umask(0)
    os.umask(umask)
    for path in folder.rglob("*.safetensors"):
        path.chmod(0o666 & ~umask)


def count_parameters(model: Any) -> tuple[int, int]:
    """Trainable and all parameters; a weight shared by two layers counts once, and a frozen copy of the adapter not at all."""
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    copies = sum(p.numel() for name, p in model.named_parameters() if ".lora_" in name and not p.requires_grad)
    return trainable, sum(_size(p) for p in model.parameters()) - copies


def _size(p: Any) -> int:
    """A 4-bit weight is stored two to a byte; its quantisation state has its real shape."""
    shape = getattr(getattr(p, "quant_state", None), "shape", None)
    return int(p.numel() if shape is None else math.prod(shape))


def commit() -> str | None:
    """The commit of the running source, when it is a checkout."""
    here = Path(__file__).resolve()
    root = next((p for p in here.parents if (p / ".git").exists() and (p / "src/medloop").is_dir()), None)
    if root is None or shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=10)
    return done.stdout.strip() or None


def compute_in_batches(
    items: Sequence[T], compute: Callable[[Sequence[T]], list[R]], key: Callable[[T], Any], *, batch_size: int, unit: str,
    advice: str, progress: Callable[[int, int], None] | None = None, on_halved: Callable[[int], None] | None = None,
    on_results: Callable[[Mapping[int, R]], None] | None = None,
) -> list[R]:  # fmt: skip
    """One result for each item, in order. Where memory runs out, batches are half as large from there on; `on_halved` is told.

    `on_results` gets the results of each batch, by the index of their item, as soon as they are there.

    `key` sorts the items, the longest first: neighbours have like lengths, and a lack of memory shows at once.
    """
    order = sorted(range(len(items)), key=lambda index: key(items[index]))
    results: dict[int, R] = {}
    while len(results) < len(order):
        batch = order[len(results) : len(results) + batch_size]
        computed = _compute_if_it_fits([items[index] for index in batch], compute)
        if computed is None:
            torch.cuda.empty_cache()
            if len(batch) == 1:
                raise ResultError(f"There is not enough memory for a single {unit}", advice)
            batch_size = len(batch) // 2
            if on_halved is not None:
                on_halved(batch_size)
            continue
        new = dict(zip(batch, computed, strict=True))
        results.update(new)
        if on_results is not None:
            on_results(new)
        if progress is not None:
            progress(len(results), len(items))
    return [results[index] for index in range(len(items))]


def _compute_if_it_fits(batch: Sequence[T], compute: Callable[[Sequence[T]], list[R]]) -> list[R] | None:
    """None where memory ran out; what it held is free again when this returns."""
    try:
        return compute(batch)
    except torch.OutOfMemoryError:
        return None
