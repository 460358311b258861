"""Make a backup while others work: first the database, then the files of the workspace, then the manifest.

In this order the backup holds every file that its database knows. A file that is written meanwhile may be there too, which does
no harm; a record that is erased meanwhile is removed again after a restore (loop/restore.py). After an interruption the next
backup finds the chunks that are already there and goes on from them.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from medloop import __version__
from medloop.contracts import AuditEvent, utc_now
from medloop.errors import ConfigError, IntegrityError
from medloop.settings import ASIDE, Settings
from medloop.store import audit
from medloop.store.backup.contracts import BackupDatabase, BackupFile, BackupManifest
from medloop.store.backup.databases import DUMP_NAME, dump, temporary
from medloop.store.backup.keys import keep_keys, require_owner, trees_of
from medloop.store.backup.repository import CHUNK_BYTES, Repository
from medloop.store.db import Store
from medloop.store.files.artifacts import MANIFEST, Manifest
from medloop.store.files.atomic import TEMP_MARK
from medloop.store.files.workspace_scan import files, sealed_above

MOST_TRIES = 3  # to copy a sealed folder that is replaced meanwhile
Progress = Callable[[int, int], None]  # bytes done, bytes in all as far as known


def create_backup(
    store: Store, repository: Repository, *, actor: str, progress: Progress = lambda done, total: None, take_over: bool = False
) -> BackupManifest:
    """Back up the workspace of an open store. Others may write to it all the time.

    `take_over`: this workspace takes the place of the one in another folder that made the backups before.
    """
    check_place(store.settings, repository.folder)
    now = utc_now()
    backup_id = f"bk_{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}Z_{secrets.token_hex(3)}"  # in the order of time
    with repository.locked():
        known = repository.newest()
        with store.write() as conn:  # before the snapshot: what is restored from it knows of its backup
            require_owner(repository, store, conn, take_over=take_over)
            keys = {"master_id": store.keys.master(conn).id, "trees": trees_of(store, conn)}
            audit.append(conn, AuditEvent(actor=actor, action="workspace.backup", subject=backup_id))
        copier = Copier(store.settings, repository, known, progress)
        manifest = _manifest(backup_id, now, store.settings, keys, _copy_database(store, copier), copier)
        with store.read() as conn:
            keep_keys(repository, store, conn)
        repository.write_manifest(manifest)
    return manifest


def check_place(settings: Settings, folder: Path) -> None:
    home, folder = settings.home.resolve(), folder.resolve()
    if folder.is_relative_to(home) or home.is_relative_to(folder):
        raise ConfigError(f"The backups cannot lie in {folder}: that is in the workspace", "Name a folder on another disk")


def _manifest(
    backup_id: str, now: datetime, settings: Settings, keys: dict[str, Any], database: BackupDatabase, copier: "Copier"
) -> BackupManifest:  # fmt: skip
    entries = copier.copy_files()
    return BackupManifest(
        backup_id=backup_id, created=now, version=__version__, workspace=str(settings.home), database=database, files=entries,
        left_out=tuple(copier.left_out), damaged=tuple(copier.damaged), new_bytes=copier.new_bytes, **keys,
    )  # fmt: skip


def _copy_database(store: Store, copier: "Copier") -> BackupDatabase:
    with temporary(store.settings.home / DUMP_NAME) as path:
        snapshot = dump(store, path)
        copier.total += path.stat().st_size
        return BackupDatabase.model_validate({**vars(snapshot), "dump": copier.copy(path, DUMP_NAME)})


class Copier:
    """Copies files into a repository, those that are there already only by name."""

    def __init__(self, settings: Settings, repository: Repository, known: BackupManifest | None, progress: Progress) -> None:
        self._settings, self._repository, self._progress = settings, repository, progress
        self._known = {file.path: file for file in known.files} if known else {}
        self.left_out, self.damaged = list[str](), list[str]()
        self.new_bytes, self.done, self.total = 0, 0, 0

    def copy_files(self) -> tuple[BackupFile, ...]:
        """Every file of the workspace, sealed folders as a whole."""
        home = self._settings.home
        groups: dict[Path, list[Path]] = {}
        for path in self._paths():
            with suppress(OSError):
                self.total += path.stat().st_size
            groups.setdefault(sealed_above(home, path) or path, []).append(path)
        entries: dict[str, BackupFile] = {}  # by path: a sealed folder may lie in another one
        for folder, paths in sorted(groups.items()):
            copied = self._copy_sealed(folder) if paths != [folder] else self._copy_all(paths)
            entries.update((file.path, file) for file in copied)
        return tuple(entries.values())

    def _paths(self) -> Iterator[Path]:
        home, settings = self._settings.home, self._settings
        for folder, names, file_names in os.walk(home, followlinks=False):
            names[:] = [name for name in names if not name.startswith(f".{ASIDE}-")]
            links = [name for name in (*names, *file_names) if (Path(folder) / name).is_symlink()]
            self.left_out += [(Path(folder) / name).relative_to(home).as_posix() for name in links]
        own = database_files(settings) | {settings.backup_key_file.absolute(), settings.master_key_file.absolute()}
        for path in files(home):
            if settings.workspace.keys in path.parents or path.relative_to(home).parts[0].startswith(f".{ASIDE}-"):
                continue  # keys.py keeps the keys, apart from the files; an old workspace is no part of this one
            if path.absolute() not in own and TEMP_MARK not in path.name and not _is_head(settings, path):
                yield path

    def _copy_sealed(self, folder: Path) -> list[BackupFile]:
        """A folder with a manifest: again if it was replaced while it was copied."""
        for _ in range(MOST_TRIES):
            entries = self._copy_all(files(folder))
            if self._fits(folder, entries):
                return entries
        self.damaged.append(folder.relative_to(self._settings.home).as_posix())
        return entries

    def _fits(self, folder: Path, entries: list[BackupFile]) -> bool:
        start = folder.relative_to(self._settings.home).as_posix() + "/"
        hashes = {file.path.removeprefix(start): file.sha256 for file in entries}
        try:
            text = (folder / MANIFEST).read_text(encoding="utf-8")
            if hashes.pop(MANIFEST, "") != "sha256:" + hashlib.sha256(text.encode()).hexdigest():
                return False
            return hashes == {file.path: file.sha256 for file in Manifest.from_json(text.partition("\n")[0]).files}
        except (OSError, ValueError, IntegrityError):
            return False

    def _copy_all(self, paths: Iterator[Path] | list[Path]) -> list[BackupFile]:
        entries = []
        for path in paths:
            with suppress(FileNotFoundError):  # removed since it was listed
                entries.append(self.copy(path, path.relative_to(self._settings.home).as_posix()))
        return entries

    def copy(self, path: Path, name: str) -> BackupFile:
        stat = path.stat()
        stamp = f"{stat.st_ino}-{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ctime_ns}"
        known = self._known.get(name)
        if known is not None and known.stamp == stamp and all(map(self._repository.has, known.chunks)):
            self._advance(known.size)
            return known
        digest, size, chunks = hashlib.sha256(), 0, []
        with path.open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                chunk_id, is_new = self._repository.put(data)
                chunks.append(chunk_id)
                digest.update(data)
                size += len(data)
                self.new_bytes += len(data) if is_new else 0
                self._advance(len(data))
        mode = stat.st_mode & 0o777
        return BackupFile(
            path=name, size=size, mode=mode, stamp=stamp, sha256=f"sha256:{digest.hexdigest()}", chunks=tuple(chunks)
        )

    def _advance(self, count: int) -> None:
        self.done += count
        self._progress(self.done, max(self.total, self.done))


def database_files(settings: Settings) -> set[Path]:
    """SQLite's files, which a backup holds as a snapshot instead."""
    url = make_url(settings.store_url)
    if url.get_backend_name() != "sqlite":
        return set()
    return {Path(f"{url.database}{ending}").absolute() for ending in ("", "-wal", "-shm", "-journal", ".lock")}


def _is_head(settings: Settings, path: Path) -> bool:
    """Heads of the audit log: they change with every write and are made anew after a restore."""
    return path.parent == settings.workspace.logs and path.suffix == ".head"
