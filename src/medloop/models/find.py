"""Where a model and its adapter lie, and whether they may be opened. No torch here: a wrong name is told at once.

    resolve(ModelRef(base="embedded:tiny", adapter="sft"), settings)            -> folders, checked, with their fingerprints
    resolve_chat_model(...)                                                     -> the same, and an encoder is refused

A base is `embedded:NAME`, a folder, a GGUF file or a hub id. An adapter is a folder, or the name of one anywhere under `models/`.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from medloop.contracts import ModelRef
from medloop.errors import ConfigError, ModelError
from medloop.knobs import did_you_mean
from medloop.models import minilm
from medloop.models.safety import check_folder, fingerprint, read_json
from medloop.settings import Settings
from medloop.store.files.artifacts import verify_artifact

EMBEDDED = ("embedded:tiny", "embedded:obedient", "embedded:smollm2", "embedded:minilm")
HUB_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?(@[\w./-]+)?")
ADAPTER = "adapter_config.json"
SCORING = "scoring.json"  # in a reward model, beside the weights: how a logit becomes a score
WRITES_TEXT = re.compile(r"CausalLM|LMHead|ConditionalGeneration|DoubleHeads")  # in the name of an architecture


@dataclass(frozen=True)
class ResolvedModel:
    """A model that may be opened: its folder passed every check. `sha256` covers the files that decide its behaviour."""

    name: str
    folder: Path
    sha256: str
    adapter: Path | None = None
    adapter_sha256: str | None = None


def parse_model(flag: str, spec: str) -> ModelRef:
    """`BASE` or `BASE+ADAPTER`, as a flag or a setting gives it; an existing folder with a plus sign in its name is a BASE."""
    base, plus, adapter = (spec, "", "") if Path(spec).expanduser().is_dir() else spec.rpartition("+")
    if not plus:
        base, adapter = spec, ""
    if not base or (plus and not adapter):
        raise ConfigError(f"{flag} is '{spec}', which is not BASE or BASE+ADAPTER", "Example: embedded:tiny+sft")
    return ModelRef(base=base, adapter=adapter or None)


def resolve(ref: ModelRef, settings: Settings) -> ResolvedModel:
    """Find a model and its adapter and check both; nothing is opened by a framework yet."""
    adapter = None if ref.adapter is None else adapter_folder(ref.adapter, settings)
    folder = _base_folder(ref.base, settings)
    if (folder / ADAPTER).exists():
        raise ModelError(
            f"{ref.base} is a LoRA adapter, not a model", "Give it as the adapter, with the base model it was trained on"
        )
    for needed in ("config.json", "tokenizer_config.json"):
        if not (folder / needed).is_file():
            raise ModelError(
                f"{ref.base} has no {needed}, so it is not a model folder", "Name a folder in the Hugging Face layout"
            )
    return ResolvedModel(ref.label, folder, fingerprint(folder), adapter, None if adapter is None else fingerprint(adapter))


def resolve_chat_model(ref: ModelRef, settings: Settings) -> ResolvedModel:
    """A model that can answer: an encoder, which only reads, is refused by its name."""
    model = resolve(ref, settings)
    architectures = read_json(model.folder / "config.json").get("architectures") or []
    if architectures and not any(WRITES_TEXT.search(str(name)) for name in architectures):
        raise ModelError(
            f"{ref.base} is {architectures[0]}, an encoder, which cannot generate text",
            "Name a chat model such as embedded:tiny; an encoder can be the base of a reward model",
        )
    return model


def find_reward_model(model: str | Path, settings: Settings) -> Path:
    """Its folder: as given, relative to the workspace, or by its name; the last guess is returned for the error message."""
    path = Path(model).expanduser()
    folders = (path, settings.home / path, settings.workspace.models / "reward" / path)
    return next((folder for folder in folders if folder.is_dir()), folders[-1] if len(path.parts) == 1 else path)


def check_reward_model(folder: Path) -> None:
    """Whether a folder is a reward model that medloop wrote and nobody changed."""
    if not folder.is_dir():
        raise ModelError(f"There is no reward model {folder}", "Train one with: medloop train reward")
    if not (folder / SCORING).is_file():
        raise ModelError(f"{folder} is not a reward model of medloop", "Train one with: medloop train reward")
    verify_artifact(folder)
    check_folder(folder)


def adapters_named(name: str, settings: Settings) -> list[Path]:
    """Every adapter of this name in the workspace: results of SFT, DPO and KTO under models/lora, of RL under models/rl."""
    return [folder for folder in _adapters(settings) if folder.name == name]


def adapter_names(settings: Settings) -> list[str]:
    """The names of all adapters of the workspace."""
    return sorted({path.name for path in _adapters(settings)})


def _adapters(settings: Settings) -> list[Path]:
    """Adapters under models/, without reward models, which only score, and without unfinished folders."""
    models = settings.workspace.models
    folders = (path.parent for path in models.rglob(ADAPTER))
    return sorted(f for f in folders if not any(p == "reward" or p.startswith(".") for p in f.relative_to(models).parts))


def adapter_folder(name: str, settings: Settings) -> Path:
    """The folder that a person means: a path from here or from the workspace, else the one adapter of that name."""
    given = Path(name).expanduser()
    paths = [path for path in (given, settings.home / given, settings.workspace.models / given) if path.is_dir()]
    path = next((path for path in paths if (path / ADAPTER).is_file()), None) or _by_name(name, settings)
    if path is None and not paths:
        raise ModelError(f"There is no adapter '{name}'", _known_adapters(name, settings))
    path = path or paths[0]
    verify_if_ours(path)
    check_folder(path)
    for needed in (ADAPTER, "adapter_model.safetensors"):
        if not (path / needed).is_file():
            raise ModelError(f"{name} has no {needed}, so it is not a LoRA adapter", "Name the folder that contains it")
    return path


def _by_name(name: str, settings: Settings) -> Path | None:
    matches = adapters_named(name, settings)
    if len(matches) > 1:
        places = [str(path.relative_to(settings.home)) for path in matches]
        raise ModelError(f"The name '{name}' fits {len(places)} adapters: {', '.join(places)}", "Name the folder instead")
    return matches[0] if matches else None


def _known_adapters(name: str, settings: Settings) -> str:
    names = adapter_names(settings)
    if not names:
        return "This workspace has none yet; train one with: medloop train sft"
    guess = did_you_mean(name, names)
    more = ", …" if len(names) > 20 else ""
    return (f"Did you mean {guess}? " if guess else "") + f"Adapters in this workspace: {', '.join(names[:20])}{more}"


def _base_folder(name: str, settings: Settings) -> Path:
    if name.startswith("embedded:"):
        return _embedded(name)
    given = Path(name).expanduser()
    for path in (given, settings.home / given):
        if path.is_dir():
            verify_if_ours(path)
            _refuse_folder_of_gguf(path)
            check_folder(path)
            return path
        if path.is_file() and path.suffix == ".gguf":
            from medloop.models import gguf  # torch

            return gguf.folder_of(path)
    if given.exists():
        raise ModelError(f"{name} is a file, but a model is a folder", "Name the folder that contains it, or a .gguf file")
    if given.suffix == ".gguf":
        raise ModelError(f"There is no file {name}", "Name an existing .gguf file")
    if not HUB_ID.fullmatch(name):
        raise ModelError(
            f"There is no model {name}: it is neither a folder nor a hub id", f"Known by name: {', '.join(EMBEDDED)}"
        )

    from medloop.models.hub import fetch  # huggingface_hub

    return fetch(name, offline=settings.offline)


def _refuse_folder_of_gguf(folder: Path) -> None:
    """A GGUF model is one file, and a folder of them holds several models as a rule."""
    files = sorted(folder.glob("*.gguf"))
    if files and not any(folder.glob("*.safetensors")):
        one = "the file" if len(files) == 1 else f"one of its {len(files)} files, such as"
        raise ModelError(f"{folder} holds GGUF, and such a model is named by its file", f"Name {one}: {files[0]}")


def _embedded(name: str) -> Path:
    if name == "embedded:smollm2":
        from medloop.models import smollm2  # torch

        return smollm2.folder()
    if name == "embedded:minilm":
        return minilm.folder()
    folder = Path(str(files("medloop") / "assets" / name.removeprefix("embedded:")))
    if name not in EMBEDDED or not folder.is_dir():
        raise ModelError(f"There is no {name} in this installation", f"Known: {', '.join(EMBEDDED)}")
    check_folder(folder)
    return folder


def verify_if_ours(path: Path) -> None:
    """A folder that medloop wrote must be unchanged; other folders have no manifest to compare with."""
    if (path / "MANIFEST.json").is_file():
        verify_artifact(path)
