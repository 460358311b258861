"""`medloop init`: lay out a workspace with its settings file, encryption key and empty store."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from medloop.errors import ConfigError, explain_os_errors
from medloop.settings import Settings, Workspace, resolve
from medloop.store.audit_trail import open_audit_trail
from medloop.store.db import ensure_master_key, upgrade
from medloop.store.files.private import TightenReport, tighten

CONFIG_TEMPLATE = """\
# Settings of this workspace. Each can also be set for one command (medloop --set database.url=URL ...) or in the
# environment (MEDLOOP_DATABASE__URL=URL). 'medloop config show' prints all of them and where each value comes from.

# model: embedded:tiny        # embedded:NAME, a local folder, a GGUF file, or a hub id
# device: auto                # auto, cpu, cuda
# seed: 42
# database:
#   url: postgresql+psycopg://user@host/medloop   # empty: SQLite in this folder
"""


@dataclass(frozen=True)
class Initialised:
    is_new: bool
    private: TightenReport


def init_workspace(folder: Path, flags: Mapping[str, object] | None = None) -> Initialised:
    """Lay out a workspace. Repeating it completes what is missing and makes everything private to its owner."""
    home = folder.expanduser().absolute()
    if home.exists() and not home.is_dir():
        raise ConfigError(f"{folder} is a file", "Name a folder that does not exist yet, or an empty one")
    workspace = Workspace(home)
    new = not workspace.config.exists()
    with explain_os_errors(home, writing=True):
        for path in workspace.folders():
            path.mkdir(parents=True, exist_ok=True)
        if new:
            workspace.config.write_text(CONFIG_TEMPLATE, encoding="utf-8")
        private = tighten(workspace)  # it holds what patients wrote
    _start_store(resolve({**(flags or {}), "home": home}).settings)
    return Initialised(new, TightenReport() if new else private)


def _start_store(settings: Settings) -> None:
    """The encryption key and the store at its newest schema; the audit log's first row is the workspace's birth."""
    ensure_master_key(settings)
    before, _ = upgrade(settings)
    if before is None:
        with open_audit_trail(settings) as trail:
            trail.record("workspace.init", settings.home)
