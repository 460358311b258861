"""The closed loop: the stages in order, each handed the product of the one before.

Stages are siblings and never import one another; what one needs of another is passed here.
"""

from __future__ import annotations

from pathlib import Path

from medloop.errors import ConfigError, speaking_of
from medloop.settings import Workspace

CONFIG_TEMPLATE = """\
# Settings of this workspace. Each line can also be given as an environment variable (MEDLOOP_SEED=7)
# or for one command (medloop --set seed=7 ...). 'medloop config show' prints all of them with their origin.

# model: embedded:tiny        # embedded:NAME, a local folder, or a hub id
# database_url: postgresql+psycopg://user@host/medloop   # empty: SQLite in this folder
# device: auto                # auto, cpu, cuda
# seed: 42
"""


def init_workspace(folder: Path) -> bool:
    """Lay out a workspace; True if it is new. Repeating it completes what is missing and changes nothing else."""
    home = folder.expanduser().absolute()
    if home.exists() and not home.is_dir():
        raise ConfigError(f"{folder} is a file", "Name a folder that does not exist yet, or an empty one")
    workspace = Workspace(home)
    new = not workspace.config.exists()
    with speaking_of(home):
        for path in workspace.folders():
            path.mkdir(parents=True, exist_ok=True)
        workspace.keys.chmod(0o700)
        if new:
            workspace.config.write_text(CONFIG_TEMPLATE, encoding="utf-8")
    return new
