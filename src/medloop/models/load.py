"""From a name to a model in memory: `embedded:tiny`, `embedded:smollm2`, a folder, a hub id, each with a LoRA adapter or not.

    resolve(ModelRef(base="embedded:tiny"), settings)            -> where it lies, checked, with its fingerprint
    load(ModelRef(base="base/", adapter="models/lora/sft"), settings)   -> model and tokenizer

Code from a model folder is never run (`trust_remote_code` is always off) and weights are safetensors only: see safety.py.
A model whose weights are incomplete is refused; transformers would fill the gaps with random numbers.
"""

import importlib.util
import logging
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from medloop.contracts import ModelRef
from medloop.errors import MissingExtraError, ModelError
from medloop.models import minilm, runtime, smollm2
from medloop.models.hub import fetch
from medloop.models.safety import check_folder, fingerprint, read_json
from medloop.settings import Settings
from medloop.store.files.artifacts import verify_artifact

EMBEDDED = ("embedded:tiny", "embedded:smollm2", "embedded:minilm")
HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?(@[\w./-]+)?")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResolvedModel:
    """A model that may be opened: its folder passed every check. `sha256` covers the files that decide its behaviour."""

    name: str
    folder: Path
    sha256: str
    adapter: Path | None = None
    adapter_sha256: str | None = None


@dataclass(frozen=True)
class Loaded:
    model: Any
    tokenizer: Any
    name: str
    sha256: str
    device: torch.device
    adapter_sha256: str | None = None


def resolve(ref: ModelRef, settings: Settings) -> ResolvedModel:
    """Find a model and its adapter and check both; nothing is opened by a framework yet."""
    folder = _base_folder(ref.base, settings)
    if (folder / "adapter_config.json").exists():
        raise ModelError(
            f"{ref.base} is a LoRA adapter, not a model", "Give it as the adapter, with the base model it was trained on"
        )
    for needed in ("config.json", "tokenizer_config.json"):
        if not (folder / needed).is_file():
            raise ModelError(
                f"{ref.base} has no {needed}, so it is not a model folder", "Name a folder in the Hugging Face layout"
            )
    adapter = None if ref.adapter is None else _adapter_folder(ref.adapter, settings)
    return ResolvedModel(ref.label, folder, fingerprint(folder), adapter, None if adapter is None else fingerprint(adapter))


def load(ref: ModelRef, settings: Settings, *, trainable: bool = False, load_in_4bit: bool = False) -> Loaded:
    """The model in memory: eval mode, float32 on a CPU, bfloat16 on a GPU (float32 there too when all weights train)."""
    runtime.keep_quiet()
    runtime.set_threads(settings)
    resolved, device = resolve(ref, settings), runtime.device_of(settings)
    tokenizer = load_tokenizer(resolved.folder)
    model = _load_base(resolved.folder, device, runtime.number_type(device, trainable=trainable), load_in_4bit)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise ModelError(
            f"{ref.base}: the tokenizer has more tokens than the model", "The two do not belong together; fetch the model again"
        )
    if resolved.adapter is not None:
        from medloop.models.adapter import put_adapter

        model = put_adapter(model, resolved.adapter, base=ref.base, base_sha256=resolved.sha256)
    return Loaded(model.eval(), tokenizer, resolved.name, resolved.sha256, device, resolved.adapter_sha256)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a checked folder, with a pad token (its eos token if it has none)."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
        raise ModelError(f"The tokenizer in {folder} cannot be read ({_short(error)})", "Fetch the model again") from error
    if not tokenizer.is_fast:
        raise ModelError(f"{folder} has no tokenizer.json", "Save its tokenizer in that form first (transformers does it)")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _base_folder(name: str, settings: Settings) -> Path:
    if name.startswith("embedded:"):
        return _embedded(name)
    given = Path(name).expanduser()
    for path in (given, settings.home / given):
        if path.is_dir():
            _verify_if_ours(path)
            check_folder(path)
            return path
    if given.exists():
        raise ModelError(f"{name} is a file, but a model is a folder", "Name the folder that contains it")
    if not HUB_ID.fullmatch(name):
        raise ModelError(
            f"There is no model {name}: it is neither a folder nor a hub id", f"Known by name: {', '.join(EMBEDDED)}"
        )

    return fetch(name, offline=settings.offline)


def _embedded(name: str) -> Path:
    if name == "embedded:smollm2":
        return smollm2.folder()
    if name == "embedded:minilm":
        return minilm.folder()
    folder = Path(str(files("medloop") / "assets" / name.removeprefix("embedded:")))
    if name not in EMBEDDED or not folder.is_dir():
        raise ModelError(f"There is no {name} in this installation", f"Known: {', '.join(EMBEDDED)}")
    check_folder(folder)
    return folder


def _adapter_folder(name: str, settings: Settings) -> Path:
    """A folder, or the name of an adapter in the workspace (`sft` means models/lora/sft)."""
    given = Path(name).expanduser()
    path = next((p for p in (given, settings.home / given, settings.workspace.models / "lora" / given) if p.is_dir()), None)
    if path is None:
        raise ModelError(f"There is no adapter folder {name}", "Train one with: medloop train sft, or check the path")
    _verify_if_ours(path)
    check_folder(path)
    for needed in ("adapter_config.json", "adapter_model.safetensors"):
        if not (path / needed).is_file():
            raise ModelError(f"{name} has no {needed}, so it is not a LoRA adapter", "Name the folder that contains it")
    return path


def _verify_if_ours(path: Path) -> None:
    """A folder that medloop wrote must be unchanged; other folders have no manifest to compare with."""
    if (path / "MANIFEST.json").is_file():
        verify_artifact(path)


def _load_base(folder: Path, device: torch.device, dtype: torch.dtype, load_in_4bit: bool) -> Any:
    more = {"quantization_config": _four_bit(dtype), "device_map": {"": device}} if load_in_4bit else {}
    model = load_weights(AutoModelForCausalLM, folder, dtype=dtype, **more)
    if not load_in_4bit:
        return model.to(device)
    for module in model.modules():
        # On a CPU bitsandbytes repacks weights at the first forward without gradients, and then cannot compute any.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model


def load_weights(kind: Any, folder: Path, *, dtype: torch.dtype, may_lack: tuple[str, ...] = (), **more: Any) -> Any:
    """A checked folder opened as one of transformers' Auto classes; ModelError when tensors are missing.

    `may_lack` are prefixes of tensor names that the caller never uses, such as `pooler.`.
    """
    try:
        model, info = kind.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True,
            output_loading_info=True, **more,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, AttributeError, SafetensorError) as error:
        raise ModelError(
            f"The model in {folder} cannot be loaded ({_short(error)})", "Check that its files belong together"
        ) from error
    missing = {*info["missing_keys"], *(str(key[0]) for key in info["mismatched_keys"])}
    if gaps := sorted(name for name in missing if not name.startswith(may_lack)):
        raise _incomplete(kind, folder, gaps)
    return model


def _incomplete(kind: Any, folder: Path, gaps: list[str]) -> ModelError:
    """An encoder lacks the head that generates text; other folders lack part of their weights."""
    architectures = read_json(folder / "config.json").get("architectures") or []
    if kind is AutoModelForCausalLM and architectures and not any("LM" in name for name in architectures):
        return ModelError(
            f"{folder} holds {architectures[0]}, an encoder, which cannot generate text",
            "Name a causal language model; an encoder can be the base of a reward model",
        )
    return ModelError(f"The weights in {folder} lack {len(gaps)} tensors, for example {gaps[0]}", "Fetch the model again")


def _four_bit(dtype: torch.dtype) -> Any:
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingExtraError(
            "Loading in 4 bits needs a package that is not installed", "Install it with: pip install 'medloop[quant]'"
        )
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )


def _short(error: Exception) -> str:
    """The library's first line, without its advice."""
    line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {line[:160]}" if line else type(error).__name__
