"""Get a version back from MLflow, checked by its hash; and a folder in the form of a model hub.

pull(store, 3, Path("models/pulled"))         # a sealed folder with the bytes that were registered, or nothing
push(store, 3, Path("/srv/hub/med-assistant"))     # weights, tokenizer and README.md, without samples of answers
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from medloop.errors import IntegrityError, ResultError
from medloop.models.safety import PAYLOAD, check_folder
from medloop.registry.hub_card import hub_card
from medloop.registry.mirror import MirrorError, open_mirror
from medloop.store.db import Store
from medloop.store.files.artifacts import MANIFEST, check_target, new_artifact, verify_artifact
from medloop.store.records.gates import promotion_refusal
from medloop.store.records.registry import StoredVersion, get_version

README = "README.md"


def pull(store: Store, version: int, target: Path) -> Path:
    """The bytes of a version from MLflow in a new folder; IntegrityError if they are not those that were registered."""
    stored = get_version(store, store.settings.registry.model, version)
    check_target(target, False)
    with tempfile.TemporaryDirectory(dir=_parent(target), prefix=".pull-") as temp:
        folder = _download(store, stored, Path(temp))
        with new_artifact(target) as new:
            _copy(folder, new, lambda name: name != MANIFEST)
    return target


def push(store: Store, version: int, target: Path, *, unreleased: bool = False) -> Path:
    """A folder that a hub or any loader of Hugging Face models takes. Samples, reports and tables stay here: they hold texts.

    ResultError for a version that may not be promoted now; with `unreleased` it is written, and its card says so.
    """
    stored = get_version(store, store.settings.registry.model, version)
    refusal = promotion_refusal(store, stored.record.artifact, against_champion=False)
    if refusal is not None and not unreleased:
        raise ResultError(
            f"{stored.record.label} was not written: {refusal.rstrip('.')}",
            "With --unreleased it is written with a warning in its card",
        )
    check_target(target, True)
    with tempfile.TemporaryDirectory(dir=_parent(target), prefix=".push-") as temp:
        folder = _download(store, stored, Path(temp))
        with new_artifact(target, replace=True) as new:
            _copy(folder, new, lambda name: name.endswith(PAYLOAD) and name not in (MANIFEST, README))
            (new / README).write_text(hub_card(store, stored.record, unreleased=refusal), encoding="utf-8")
    return target


def _download(store: Store, stored: StoredVersion, temp: Path) -> Path:
    """The folder as MLflow has it, after its files have passed the checks of every model folder and their hash."""
    if stored.mlflow_version is None:
        raise MirrorError(f"{stored.record.label} is not in MLflow yet", "Run: medloop registry verify --repair")
    with open_mirror(store.settings) as mirror:
        folder = mirror.download(stored.mlflow_version, temp)
    check_folder(folder)
    if verify_artifact(folder).sha256 != stored.record.artifact:
        raise IntegrityError(
            f"The bytes of {stored.record.label} in MLflow are not those that were registered", "Run: medloop registry verify"
        )
    return folder


def _copy(folder: Path, target: Path, wanted: Callable[[str], bool]) -> None:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and wanted(name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


def _parent(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.parent
