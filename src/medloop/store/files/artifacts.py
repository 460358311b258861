"""Folders that appear whole or not at all, and are checked when they are read.

    with new_artifact(models / "lora/first") as folder:    # a hidden sibling of the target
        (folder / "card.json").write_text(card)            # ... write whatever belongs inside
    manifest = verify_artifact(models / "lora/first")      # IntegrityError names a missing, extra or changed file

When the block ends without an error, every file is fsynced, `MANIFEST.json` (sizes and SHA-256) is written last, and one
rename puts the folder in place. A crash before that leaves only a hidden folder, which `sweep` removes.
"""

import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from medloop.contracts import Contract, canonical_json, sha256_id, utc_now
from medloop.contracts.base import Hash, Text, Timestamp
from medloop.errors import InputError, IntegrityError, MedloopError, StoreError, explain_os_errors
from medloop.store.files.atomic import (
    TEMP_MARK,
    atomic_open,
    atomic_write,
    claim_temp,
    file_sha256,
    fsync_folder,
    make_folder,
    raise_if_full,
    remove_abandoned,
)
from medloop.store.files.lock import locked_file

__all__ = [
    "Manifest", "atomic_open", "atomic_write", "file_sha256", "folder_sha256", "new_artifact", "newest_verified",
    "open_artifact", "sweep", "verify_artifact", "verify_if_sealed",
]  # fmt: skip

MANIFEST = "MANIFEST.json"
OLD_MARK = ".old-"  # the replaced folder, between the two renames
_TEMP_NAME = re.compile(r"\..+\.tmp-(replaced-)?[0-9a-f]{12}")
_OLD_NAME = re.compile(r"\.(?P<target>.+)\.old-[0-9a-f]{12}")
SWAP_WAIT_S = 30.0  # a swap is two renames; if it takes longer than this, the other process is stuck

log = logging.getLogger(__name__)


class ManifestFile(Contract):
    path: Text
    size: int = Field(ge=0)
    sha256: Hash


class Manifest(Contract):
    """The files of an artifact. `sha256` identifies the content: equal files give equal hashes at any time and place."""

    scheme: Literal["medloop-artifact-1"] = "medloop-artifact-1"
    created: Timestamp
    files: tuple[ManifestFile, ...] = Field(min_length=1)

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each file by its path."""
        return {file.path: file.sha256 for file in self.files}

    @property
    def sha256(self) -> str:
        return _identity(self.hashes)

    def render(self) -> str:
        """The only accepted form: the manifest on one line, and its hash on the next."""
        body = self.canonical_json()
        return f"{body}\n{sha256_id(body)}\n"


@contextmanager
def new_artifact(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; it becomes `target` if the block ends without an error. `target` may be an empty folder."""
    _recover(target)
    check_target(target, replace)
    with explain_os_errors(target, writing=True):
        make_folder(target.parent)
        temp, fd = claim_temp(target, _make_temp)
    try:
        yield temp
        with explain_os_errors(target, writing=True):
            _seal(temp)
            _publish(temp, target, replace)
    except BaseException as error:
        shutil.rmtree(temp, ignore_errors=True)
        raise_if_full(error, target)
        raise
    finally:
        os.close(fd)


def verify_artifact(path: Path) -> Manifest:
    """The manifest of a folder, after every file has been checked against it; IntegrityError or InputError if one differs."""
    _recover(path)
    with explain_os_errors(path):
        manifest = read_manifest(path)
        files = {_relative(file, path): file for file in _files(path)}
        listed = {file.path: file for file in manifest.files}
        for name in sorted(listed.keys() | files.keys()):
            if name not in files:
                raise _damaged(path, name, "is missing")
            if name not in listed:
                raise _damaged(path, name, "is not in the manifest")
            if (size := files[name].stat().st_size) != listed[name].size:
                raise _damaged(path, name, f"has {size:,} bytes instead of {listed[name].size:,}")
            if file_sha256(files[name]) != listed[name].sha256:
                raise _damaged(path, name, "was changed (its SHA-256 differs)")
    return manifest


def is_sealed(path: Path) -> bool:
    """Whether a folder is an artifact: nothing may be added to it."""
    return (path / MANIFEST).is_file()


def verify_if_sealed(path: Path) -> None:
    """Check a folder that has a manifest; a folder made by hand has none and is accepted as it is."""
    if is_sealed(path):
        verify_artifact(path)


def open_artifact(path: Path) -> Path:
    """Return `path` after verifying it."""
    verify_artifact(path)
    return path


def newest_verified(folder: Path, pattern: str) -> Path | None:
    """The highest-numbered artifact that is intact (`iter_10` comes after `iter_9`); damaged ones are logged and skipped."""
    if not folder.is_dir():
        return None
    sweep(folder)
    for path in sorted(folder.glob(pattern), key=_natural, reverse=True):
        if path.name.startswith(".") or not path.is_dir():
            continue
        try:
            return open_artifact(path)
        except MedloopError as error:
            log.warning("skipped: %s", error)
    return None


def sweep(folder: Path) -> list[Path]:
    """Remove temporary files of dead processes in `folder` and undo unfinished replacements; returns what was removed."""
    with explain_os_errors(folder):
        for target in {match["target"] for name in os.listdir(folder) if (match := _OLD_NAME.fullmatch(name))}:
            with _swap_lock(folder):
                _settle(folder / target)
        leftovers = [folder / name for name in sorted(os.listdir(folder)) if _TEMP_NAME.fullmatch(name)]
    return [path for path in leftovers if remove_abandoned(path)]


def remove_artifact(path: Path) -> None:
    """Remove a folder: gone at once for readers; what a kill leaves of it is removed by the next `sweep`."""
    with explain_os_errors(path, writing=True):
        with _swap_lock(path.parent):
            _settle(path)
            trash = path.with_name(f".{path.name}{TEMP_MARK}replaced-{secrets.token_hex(6)}")
            os.rename(path, trash)
            fsync_folder(path.parent)
        shutil.rmtree(trash)


def folder_sha256(path: Path) -> str:
    """One hash for all files of a folder by name and content; for an artifact it equals `Manifest.sha256`."""
    with explain_os_errors(path):
        names = {_relative(file, path): file for file in _files(path)}
    return _identity({name: file_sha256(file) for name, file in names.items()})


def _identity(files: dict[str, str]) -> str:
    return sha256_id(canonical_json(files))


def _make_temp(path: Path) -> int:
    path.mkdir(mode=0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def check_target(target: Path, replace: bool) -> None:
    """Refuse before any work is done. A folder with files that medloop did not write is never replaced."""
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise StoreError(f"{target} exists and is not a folder", "Choose another folder")
    with explain_os_errors(target):
        inside = {_relative(file, target) for file in target.rglob("*") if not file.is_dir()}
    if not inside:
        return
    if not replace:
        raise StoreError(f"{target} already exists", "Choose another name, or replace it explicitly")
    if not (target / MANIFEST).is_file():
        raise StoreError(f"{target} was not made by medloop, so it is not replaced", "Move it away, or choose another folder")
    try:
        foreign = inside - {file.path for file in read_manifest(target).files} - {MANIFEST}
    except IntegrityError:
        raise StoreError(f"{target} is damaged, so replacing it might delete other files", "Move it away first") from None
    if foreign:
        raise StoreError(f"Replacing {target} would delete {min(foreign)}, which is not part of it", "Move that file away first")


def _seal(temp: Path) -> None:
    files = []
    for path in _files(temp):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            files.append(ManifestFile(path=_relative(path, temp), size=file.tell(), sha256=f"sha256:{digest}"))
    assert files, "an artifact holds at least one file"
    assert not (temp / MANIFEST).exists(), f"{MANIFEST} is written by the store"
    with (temp / MANIFEST).open("x", encoding="utf-8", newline="\n") as file_out:
        file_out.write(Manifest(created=utc_now(), files=tuple(files)).render())
        file_out.flush()
        os.fsync(file_out.fileno())
    for folder, _, _ in os.walk(temp, topdown=False):
        fsync_folder(Path(folder))


def _publish(temp: Path, target: Path, replace: bool) -> None:
    with _swap_lock(target.parent):
        _settle(target)
        check_target(target, replace)
        if not (target / MANIFEST).exists():
            os.rename(temp, target)  # also replaces an empty folder
            fsync_folder(target.parent)
            return
        old = target.with_name(temp.name.replace(TEMP_MARK, OLD_MARK))
        os.rename(target, old)
        try:
            os.rename(temp, target)
        except OSError:
            os.rename(old, target)
            raise
        fsync_folder(target.parent)
        trash = _discard(old)
    shutil.rmtree(trash, ignore_errors=True)


def _recover(target: Path) -> None:
    """Put the old folder back when a replacement was killed between its two renames.

    The replacing process holds the lock of the parent folder. So if the target is absent while we hold that lock, the
    process is dead.
    """
    if not os.path.lexists(target) and _olds(target):
        with explain_os_errors(target), _swap_lock(target.parent):
            _settle(target)


def _settle(target: Path) -> None:
    """Finish a dead process's replacement, under the lock: restore the old folder if the new one is not in place."""
    for old in _olds(target):
        if os.path.lexists(target):
            _discard(old)
        else:
            os.rename(old, target)
        fsync_folder(target.parent)


def _discard(old: Path) -> Path:
    """Give a folder a temporary name before it is removed, so that a half-removed folder is never restored as an old one."""
    head, _, token = old.name.rpartition(OLD_MARK)
    trash = old.with_name(f"{head}{TEMP_MARK}replaced-{token}")
    os.rename(old, trash)
    return trash


def _olds(target: Path) -> list[Path]:
    with suppress(OSError):
        matches = (_OLD_NAME.fullmatch(name) for name in os.listdir(target.parent))
        return sorted(target.parent / match[0] for match in matches if match and match["target"] == target.name)
    return []


def _swap_lock(folder: Path) -> AbstractContextManager[int]:
    return locked_file(folder, wait_s=SWAP_WAIT_S)


def read_manifest(path: Path) -> Manifest:
    """The manifest alone; the files are not read."""
    if not path.is_dir():
        raise InputError(f"{path} does not exist or is not a folder", "Check the path")
    file = path / MANIFEST
    if not file.is_file():
        raise IntegrityError(f"{path} has no {MANIFEST}, so it is not a finished artifact", "Make it again")
    raw = file.read_bytes()
    try:
        manifest = Manifest.from_json(raw.split(b"\n", 1)[0].decode())
    except (ValidationError, UnicodeDecodeError):
        raise _damaged(path, MANIFEST, "cannot be read") from None
    if raw != manifest.render().encode():
        raise _damaged(path, MANIFEST, "was changed (its SHA-256 differs)")
    return manifest


def _damaged(path: Path, name: str, what: str) -> IntegrityError:
    return IntegrityError(f"{path}: {name} {what}", "Do not use it; restore the folder from a copy or make it again")


def _files(folder: Path) -> Iterator[Path]:
    """Every file except the manifest, sorted by name. Links and devices are refused: they have no content that can be hashed."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise IntegrityError(f"{path} is neither a file nor a folder", "Put the file itself there")
        if path.is_file() and path != folder / MANIFEST:
            yield path


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _natural(path: Path) -> list[tuple[int, str]]:
    """`iter_10` after `iter_9`: every second part of the split is a run of digits and compares as a number."""
    return [(int(part), "") if index % 2 else (-1, part) for index, part in enumerate(re.split(r"(\d+)", path.name))]
