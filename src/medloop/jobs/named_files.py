"""Which files of a workspace a job may name. Links are followed before it is decided, and the worker decides again.

Nobody's job reads the encryption keys, the database or the settings. A job that came over HTTP reads `data/` (without `data/raw`,
where imported files lie as they came), `models/`, `configs/` and YAML files beside them, and nothing else.
"""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from medloop.errors import ConfigError
from medloop.models.find import adapters_named
from medloop.settings import Settings

FOLDERS = ("data", "models", "configs")
CLOSED = ("keys", "jobs", "logs", "reports", "erasures", "medloop.db", "medloop.yaml")  # also where they do not exist yet


def refuse_closed(field: str, name: str, settings: Settings) -> None:
    """For every job: the keys, the database and the settings are nobody's training data."""
    if any(_meets(path, _secrets(settings)) for path in _places(name, settings)):
        raise ConfigError(
            f"{field}: a job cannot read the keys, the database or the settings of the workspace",
            "Name one of data/ or models/",
        )


def refuse_outside(field: str, name: str, settings: Settings) -> None:
    """For jobs over HTTP: only the folders that training is for. The name is not repeated: it may be anything."""
    first = unicodedata.normalize("NFKC", Path(name).parts[0]).casefold() if Path(name).parts else ""
    closed = first in CLOSED or first.startswith(f"{settings.workspace.database.name}-")
    if closed or not all(_is_open(path, settings) for path in _places(name, settings)):
        raise ConfigError(
            f"{field}: a job may read only {', '.join(f'{folder}/' for folder in FOLDERS)} of the workspace, without data/raw",
            "Name a file or folder there that is not a link to another place",
        )


def _places(name: str, settings: Settings) -> Iterator[Path]:
    """What exists under this name, wherever a stage would look for it. An empty name and the whole workspace name nothing."""
    given = Path(name).expanduser() if name.startswith("~") else Path(name)
    if not given.parts or (given.is_absolute() and settings.home.is_relative_to(given)):
        return
    for path in (settings.home / given, settings.workspace.models / given, *adapters_named(name, settings)):
        if os.path.lexists(path):
            yield path


def _secrets(settings: Settings) -> list[Path]:
    workspace, url = settings.workspace, settings.store_url
    databases = [str(workspace.database), *([url.removeprefix("sqlite:///").partition("?")[0]] if "sqlite:" in url else [])]
    files = [Path(database + end) for database in databases for end in ("", "-wal", "-shm")]
    return [workspace.keys, settings.master_key_file, workspace.config, *files]


def _is_open(path: Path, settings: Settings) -> bool:
    home = settings.home.resolve()
    roots = [(home / folder).resolve() for folder in FOLDERS]
    if _meets(path, [settings.workspace.raw, *_secrets(settings)]):
        return False
    for place in (path, *_links(path)):
        real = _resolved(place)
        beside = real is not None and real.parent == home and real.suffix in (".yaml", ".yml")
        if real is None or not (beside or any(real.is_relative_to(root) for root in roots)):
            return False
    return True


def _meets(path: Path, closed: list[Path]) -> bool:
    """Whether a file or folder is one of these, lies in one, holds one, or links to one; also under a second name (hard link)."""
    for place in (path, *_links(path)):
        real = _resolved(place)
        for item in map(Path.resolve, closed):
            if real is None or real == item or real.is_relative_to(item) or item.is_relative_to(real):
                return True
            if real.is_file() and item.is_file() and real.samefile(item):
                return True
    return False


def _links(path: Path) -> list[Path]:
    """Links inside a folder; a model's files are read without being named."""
    return [inner for inner in path.rglob("*") if inner.is_symlink()] if path.is_dir() else []


def _resolved(path: Path) -> Path | None:
    """None for a link that leads to itself: Python up to 3.12 raises, later ones leave the link as it is."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return None
    return None if real.is_symlink() else real
