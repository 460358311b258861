"""The only code that loads or calls models: load, chat template, generation, batch prediction."""

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from medloop.errors import MissingExtraError

# The libraries read these once, when they are imported, so they are set before.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # the libraries report nothing about what runs here
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a waiting thread sleeps: spinning made a busy machine 7 times slower

NEEDED = ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers")


def require_packages(*more: str) -> None:
    """Raise MissingExtraError, before anything heavy is imported, when the packages that run models are not installed."""
    if any(importlib.util.find_spec(name) is None for name in (*NEEDED, *more)):
        raise MissingExtraError.of("Running and training models", "train")


def leave_out_bitsandbytes() -> None:
    """Let peft do without bitsandbytes in this process, as where it is not installed.

    peft imports it wherever it can, and that takes a fifth of the seconds before the first step. Only for a process
    that runs one thing, holds no model in 4 bits and runs nobody else's code.
    """
    sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]  # Python's own way to say that a package is not there


@contextmanager
def quick_imports() -> Iterator[None]:
    """No garbage collection while torch and its kin are imported: it would find nothing, and takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
