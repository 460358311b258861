"""A GGUF file as a base model: turned into safetensors once, in bfloat16, and opened like any other folder from then on.

    folder_of(Path("gemma-3-270m-q4_k_m.gguf"))      -> the folder of its copy, made on the first call

The copy lies in the user's cache folder (XDG_CACHE_HOME, else ~/.cache) under the hash of the GGUF file, so another file makes
another copy. Quantised weights are dequantised: the copy takes two bytes per weight. A GGUF file is data, nothing in it is run.
"""

import importlib.util
import os
import struct
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from medloop.errors import MissingExtraError, ModelError, explain_os_errors
from medloop.models.runtime import keep_quiet, obey_umask
from medloop.models.safety import file_hash, file_state
from medloop.models.template import DEFAULT_TEMPLATE
from medloop.store.files.artifacts import new_artifact, verify_artifact

MAGIC = b"GGUF"
INSTALL = "Install it with: pip install 'medloop[smollm2]'"


def folder_of(gguf: Path, *, name: str | None = None) -> Path:
    """The safetensors copy; making it takes about a minute for every few hundred million weights."""
    _check(gguf)
    target = cache_folder() / f"{name or gguf.stem}-{file_hash(gguf).removeprefix('sha256:')[:12]}"
    if target.exists():
        with explain_os_errors(target):
            states = tuple((path.name, *file_state(path, follow=False)) for path in sorted(target.rglob("*")))
        _verify_copy(target, *states)
    else:
        _convert(gguf, target)
    return target


@lru_cache(maxsize=64)
def _verify_copy(target: Path, *_: tuple[str | int, ...]) -> None:
    """Checked once in a process, and again when a file of it has another state: a command asks for its model some ten times."""
    verify_artifact(target)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medloop/models"


def _check(gguf: Path) -> None:
    with explain_os_errors(gguf), gguf.open("rb") as file:
        start = file.read(8)
    if start[:4] != MAGIC or len(start) < 8:
        raise ModelError(f"{gguf} is not a GGUF file", "Name a GGUF file, or a folder in the Hugging Face layout")
    if (version := struct.unpack("<I", start[4:])[0]) not in (2, 3):
        raise ModelError(
            f"{gguf} has version {version} of GGUF; 2 and 3 can be read", "Convert the model again with a new llama.cpp"
        )
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("Reading GGUF needs a package that is not installed", INSTALL)


def _convert(gguf: Path, target: Path) -> None:
    keep_quiet()
    try:
        model, tokenizer = _read(gguf)
    except Exception as error:  # its bytes decide what the readers raise: tokenizers raises bare Exceptions
        line = (str(error).strip().splitlines() or [""])[0][:160]
        raise ModelError(
            f"{gguf} cannot be read ({type(error).__name__}: {line})",
            "It may be damaged, in parts, or of an architecture that transformers does not read from GGUF",
        ) from error
    with explain_os_errors(target, writing=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_artifact(target) as temp:
            model.save_pretrained(temp)
            tokenizer.save_pretrained(temp)
            obey_umask(temp)


def _read(gguf: Path) -> tuple[Any, Any]:
    """Model in bfloat16, and tokenizer. In a folder of its own: transformers reads settings of the file's neighbours, too."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "model.gguf")
        link.symlink_to(gguf.resolve())
        # With its whole path: transformers looks for a bare name in the current directory first.
        place: dict[str, Any] = {"gguf_file": str(link), "local_files_only": True, "trust_remote_code": False}
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **place)
        tokenizer = AutoTokenizer.from_pretrained(folder, **place)
        _begin_texts(tokenizer, link)
    # A model from GGUF cannot be saved and still calls itself quantised: give its weights to a fresh one. That one is made
    # without memory, because drawing first weights for 1.5 billion parameters takes more than a minute.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with torch.device("meta"):
        fresh = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    fresh.load_state_dict({name: weight.to(torch.bfloat16) for name, weight in model.state_dict().items()}, assign=True)
    fresh.tie_weights()
    return fresh, tokenizer


def _begin_texts(tokenizer: Any, gguf: Path) -> None:
    """A begin token where the file asks for one, which transformers leaves out; a chat template of the file writes its own."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf)
    adds, kind = (fields.get_field(f"tokenizer.ggml.{name}") for name in ("add_bos_token", "model"))
    wanted = bool(adds.contents()) if adds else bool(kind) and kind.contents() == "llama"  # as llama.cpp does
    if not wanted or tokenizer.bos_token is None:
        return
    tokenizer.add_bos_token = True
    if tokenizer.chat_template is None:
        tokenizer.chat_template = "{{ bos_token }}" + DEFAULT_TEMPLATE
