"""The only code that loads or calls models: load, chat template, generation, batch prediction."""

import importlib.util
import os

from medloop.errors import MissingExtraError

# The libraries read these once, when they are imported, so they are set before.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # the libraries report nothing about what runs here
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a waiting thread sleeps: spinning made a busy machine 7 times slower

NEEDED = ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers")


def require_packages(*more: str) -> None:
    """Raise MissingExtraError, before anything heavy is imported, when the packages that run models are not installed."""
    if any(importlib.util.find_spec(name) is None for name in (*NEEDED, *more)):
        raise MissingExtraError.of("Running and training models", "train")
