"""The copy of a version that model servers read: a folder of its own, never changed, under a name that says which bytes it has.

    served = make_copy(Path("/srv/serving"), record, source)     # ServedCopy("med-assistant-v3-1f2e3d4c", …/that name)
    copy_problem(served.folder)                                  # None, or what is wrong with its bytes
    remove_copies(folder, keep={"med-assistant-v3-1f2e3d4c"})

vLLM opens an adapter again when it was pushed out of its cache and ends when the folder is gone, and its prefix cache knows a
version by name and path. So new bytes always have a new name and a new folder, and a folder is deleted only after no server has
it. A copy whose bytes were changed is left as it is, because a server may have it loaded; the next copy gets a number.
"""

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from medloop.contracts import ModelVersion
from medloop.errors import IntegrityError, MedloopError
from medloop.models.safety import check_folder, decides, fingerprint_of
from medloop.store.files.artifacts import MANIFEST, new_artifact, read_manifest, verify_artifact
from medloop.store.files.atomic import make_folder

MERGED = "-merged"
_NAME = re.compile(r"(?P<model>.+)-v(?P<version>\d+)-(?P<bytes>[0-9a-f]{8})(?P<merged>-merged)?(?:-c(?P<copy>\d+))?")


@dataclass(frozen=True)
class ServedCopy:
    name: str
    folder: Path


def served_name(record: ModelVersion, *, merged: bool = False, number: int = 1) -> str:
    """`med-assistant-v3-1f2e3d4c`: the version and the beginning of its hash; from the second copy on with its number."""
    again = f"-c{number}" if number > 1 else ""
    return f"{record.model}-v{record.version}-{record.artifact[7:15]}{MERGED if merged else ''}{again}"


def is_ours(name: str, model: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and match["model"] == model


def make_copy(folder: Path, record: ModelVersion, source: Path) -> ServedCopy:
    """A verified copy of the registered bytes; one that is there already is used again."""
    for number in range(1, 1000):
        name = served_name(record, number=number)
        served = ServedCopy(name, folder / name)
        if not served.folder.exists():
            restore_copy(served.folder, record, source)
            return served
        if copy_problem(served.folder) is None and difference(served.folder, record, source) is None:
            return served
    raise AssertionError("a thousand damaged copies of one version")


def difference(folder: Path, record: ModelVersion, source: Path) -> str | None:
    """How a copy differs from the registered bytes; its own manifest may have been written anew together with its files."""
    try:
        registered, copied = read_manifest(source), read_manifest(folder)
    except MedloopError as error:
        return f"It cannot be compared with the registered bytes: {error.what}."
    if registered.sha256 != record.artifact:
        return "It cannot be compared with the registered bytes: their folder was changed, too."
    return None if fingerprint_of(copied.hashes) == fingerprint_of(registered.hashes) else "It has other bytes than the registry."


def restore_copy(target: Path, record: ModelVersion, source: Path) -> None:
    """The same bytes under the same path; IntegrityError if the registered folder does not have them any more."""
    check_folder(source)
    manifest = verify_artifact(source)
    if manifest.sha256 != record.artifact:
        raise IntegrityError(
            f"{source} no longer has the bytes of {record.label}", f"Get them back: medloop registry pull {record.version} FOLDER"
        )
    make_folder(target.parent)
    with new_artifact(target) as new:
        for name in manifest.hashes:
            if decides(name):
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, new / name)
    if fingerprint_of(verify_artifact(target).hashes) != fingerprint_of(manifest.hashes):
        raise IntegrityError(f"{target} was not copied as it is registered", "Deploy again")


def copy_problem(folder: Path) -> str | None:
    """What is wrong with a copy; its files are read again only when they have changed."""
    try:
        stamps = tuple(
            (str(path.relative_to(folder)), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            for path in sorted(folder.rglob("*"))
            if (stat := path.stat()) and path.is_file()
        )
    except OSError:
        return "It cannot be read."
    return _verified(folder, stamps)


@lru_cache(maxsize=64)
def _verified(folder: Path, stamps: tuple[tuple[str, int, int, int], ...]) -> str | None:
    if not any(name == MANIFEST for name, *_ in stamps):
        return "It is gone." if not stamps else "It has no manifest."
    try:
        verify_artifact(folder)
    except MedloopError as error:
        return error.what + "."
    return None


def remove_copies(folder: Path, model: str, *, keep: Iterable[str]) -> list[str]:
    """Delete the copies that are not to be kept; the names of those that are gone."""
    kept, gone = set(keep), []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir() and not path.is_symlink() and is_ours(path.name, model) and path.name not in kept:
            doomed = path.with_name(f".{path.name}.gone")  # from now on nobody takes it for a copy
            shutil.rmtree(doomed, ignore_errors=True)
            os.rename(path, doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            gone.append(path.name)
    return gone
