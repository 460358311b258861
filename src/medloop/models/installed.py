"""Whether a model is on this machine already, and where: without torch, and without the network.

    installed("BAAI/bge-m3", settings)       -> Installed(name="BAAI/bge-m3", folder=…, in_cache=True), or None

Looked up in this order: the embedded package, a folder of that name (from here, then from the workspace), `models/full/bge-m3` in
the workspace, the cache of the hub. A copy without safetensors does not count: pickled weights are never loaded.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from medloop.errors import MissingExtraError
from medloop.models import minilm
from medloop.models.safety import WEIGHTS
from medloop.settings import Settings

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(@[\w./-]+)?")


@dataclass(frozen=True)
class Installed:
    """`name` is what models/load.py opens it by; one that is `in_cache` is opened offline, so that the hub is not asked."""

    name: str
    folder: Path
    in_cache: bool = False


def installed(name: str, settings: Settings) -> Installed | None:
    """Where a model lies; None when it would have to be fetched or does not exist."""
    if name == "embedded:minilm":
        try:
            return Installed(name, minilm.folder())
        except MissingExtraError:
            return None
    for place in (Path(name).expanduser(), settings.home / name):
        if _has_weights(place):
            return Installed(name, place)
    if not _HUB_ID.fullmatch(name):
        return None
    short = f"models/full/{name.partition('@')[0].rpartition('/')[2]}"
    if _has_weights(settings.home / short):
        return Installed(short, settings.home / short)
    cached = _in_cache(name)
    return None if cached is None else Installed(name, cached, in_cache=True)


def _in_cache(name: str) -> Path | None:
    """The snapshot of a hub model, in the layout of huggingface_hub's cache; that package need not be installed."""
    repo, _, revision = name.partition("@")
    folder = _cache() / f"models--{repo.replace('/', '--')}"
    reference = folder / "refs" / (revision or "main")
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return snapshot if commit and _has_weights(snapshot) else None


def _cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or caches / "huggingface") / "hub")


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob(f"*{WEIGHTS}"))
