"""Workspaces for the tests of the registry."""

import shutil
from pathlib import Path


def copy_workspace(template: Path, home: Path) -> None:
    """MLflow's database is made anew in a copy; that of the template is empty and fits every place."""
    shutil.copytree(template, home)
    (home / "registry/place").write_text(str(home / "registry"))
