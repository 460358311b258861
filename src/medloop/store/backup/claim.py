"""The folder of a restore. It is marked before anything in it is touched, so that a rerun after a kill finishes what was begun.

    mark = claim_folder(home, manifest, replace=True)
    ...                                              # files, keys, database
    release(home)

The order: the mark says what will be set aside and where; then the content moves; then the newest keys of the old workspace come
back, because what it destroyed must stay destroyed; then the mark says that all of this is done. Until `release` every command
refuses the folder. If something cannot be moved, everything is moved back.
"""

import os
from contextlib import suppress
from pathlib import Path

from medloop.contracts import Contract, utc_now
from medloop.contracts.base import Text
from medloop.errors import ConfigError, StoreError, explain_os_errors
from medloop.settings import ASIDE, RESTORING, Workspace
from medloop.store.backup.contracts import BackupManifest
from medloop.store.backup.keys import keep_newer_keys
from medloop.store.files.atomic import atomic_write, fsync_folder, make_folder

PROBE = f"{RESTORING}.probe"  # a file that is moved to see whether files can be
IGNORED = {RESTORING, PROBE, "lost+found"}  # what a folder that counts as empty may hold


class RestoreMark(Contract):
    """A restore that has begun: from which backup, and where the old workspace goes."""

    backup_id: Text
    name: Text  # of what is set aside, and of this restore
    replace: bool = False
    aside: str | None = None  # the folder of the old workspace
    moved: bool = False  # all of it is there, and its newest keys are back


def claim_folder(home: Path, manifest: BackupManifest, *, replace: bool) -> RestoreMark:
    """Mark a folder as being restored; what is in the way is moved aside if that was asked for, never deleted."""
    if home.exists() and not home.is_dir():
        raise ConfigError(f"{home} is a file", "Name a folder that does not exist yet, or an empty one")
    with explain_os_errors(home, writing=True):
        make_folder(home)
        mark = _read(home) or _begin(home, manifest.backup_id, replace)
        if mark.backup_id != manifest.backup_id:
            raise StoreError(
                f"{home} holds a part of another backup, {mark.backup_id}",
                f"Finish that restore with --backup {mark.backup_id}, or name an empty folder",
            )
        if replace and not mark.replace:
            mark = _write(home, mark.model_copy(update={"replace": True}))
        if mark.aside is not None and not mark.moved:
            _move_aside(home, Path(mark.aside))
            mark = _write(home, mark.model_copy(update={"moved": True}))
        home.chmod(0o700)
        for path in Workspace(home).folders():
            make_folder(path)
        Workspace(home).keys.chmod(0o700)
    return mark


def release(home: Path) -> None:
    """The workspace is complete: commands may use it."""
    (home / RESTORING).unlink()
    fsync_folder(home)


def _begin(home: Path, backup_id: str, replace: bool) -> RestoreMark:
    now = utc_now()
    name = f"{ASIDE}-{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}Z"
    mark = RestoreMark(backup_id=backup_id, name=name, replace=replace)
    if _content(home):
        if not replace:
            raise StoreError(
                f"{home} is not empty; nothing was changed", "Name an empty folder, or keep the old one with --replace"
            )
        mark = mark.model_copy(update={"aside": str(_place_aside(home, mark.name))})
    return _write(home, mark)


def _content(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.name not in IGNORED and not path.name.startswith(f".{ASIDE}-"))


def _place_aside(home: Path, name: str) -> Path:
    """A new folder beside the workspace, or a hidden one in it if nothing can be moved out of it, as of a mount point."""
    real = home.resolve()
    beside, probe = real.with_name(f"{real.name}.{name}"), real / PROBE
    try:
        beside.mkdir(mode=0o700)
        probe.touch()
        try:
            os.rename(probe, beside / probe.name)
            (beside / probe.name).unlink()
            return beside
        except OSError:
            probe.unlink()
            beside.rmdir()
            raise
    except OSError:
        inside = real / f".{name}"
        inside.mkdir(mode=0o700)
        return inside


def _move_aside(home: Path, aside: Path) -> None:
    """Also what a killed call had begun. A name that is in `aside` already has been moved; the new keys may be in its place."""
    try:
        for path in _content(home):
            if not (aside / path.name).exists():
                os.rename(path, aside / path.name)
        fsync_folder(aside)
    except OSError as error:
        _move_back(home, aside)
        raise ConfigError(
            f"{home} cannot be moved aside ({error.filename}: {error.strerror}); everything is where it was",
            "Stop what uses it and unmount what is mounted in it, or restore into an empty folder",
        ) from None
    keep_newer_keys(aside, home)


def _move_back(home: Path, aside: Path) -> None:
    for path in sorted(aside.iterdir()):
        os.rename(path, home / path.name)
    fsync_folder(home)
    (home / RESTORING).unlink()
    with suppress(OSError):
        aside.rmdir()


def _read(home: Path) -> RestoreMark | None:
    marker = home / RESTORING
    return RestoreMark.from_json(marker.read_text(encoding="utf-8")) if marker.exists() else None


def _write(home: Path, mark: RestoreMark) -> RestoreMark:
    atomic_write(home / RESTORING, mark.canonical_json(), mode=0o600)
    return mark
