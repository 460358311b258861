"""A folder of backups: chunks of files named by a keyed hash of their content, and one manifest for each backup.

    repository = open_repository(folder, key, create=True)
    chunk_id, is_new = repository.put(data)      # content that is there already is not written again
    repository.write_manifest(manifest)          # last: a backup without a manifest does not exist
    repository.newest()

    medloop-backups.json     the format and the id of the key, readable
    chunks/ab/ab12…          AES-256-GCM, bound to its name; the name is HMAC-SHA-256 of the content under the backup key
    manifests/bk_….backup    the same, bound to the id of the backup
    keys.sealed              the keys of the workspace, only their newest state (`keys.py`)

The backup key never lies in this folder. Without it nothing here can be read, and names reveal nothing about contents.
"""

import hashlib
import hmac
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError

from medloop.errors import ConfigError, InputError, IntegrityError, KeyUnavailableError, explain_os_errors
from medloop.settings import Settings
from medloop.store.backup.contracts import BackupFile, BackupManifest
from medloop.store.crypto import FORMAT, NONCE_BYTES, MasterKey, create_key_file, decode_key, read_key_file, seal, unseal
from medloop.store.files.atomic import atomic_write
from medloop.store.files.lock import locked_file
from medloop.store.files.wipe import replace_and_wipe

CHUNK_BYTES = 2**20
SEALED_BYTES = len(FORMAT) + NONCE_BYTES + 16  # what encryption adds to a chunk
ABOUT = "medloop-backups.json"
KEYS = "keys.sealed"
_ID = re.compile(r"bk_\d{8}T\d{9}Z_[0-9a-f]{6}")


class Repository:
    """An open folder of backups; made by `open_repository`."""

    def __init__(self, folder: Path, key: MasterKey) -> None:
        self.folder, self.key = folder, key
        self._names = hmac.digest(key.raw, b"medloop backup names", "sha256")
        self._cipher = AESGCM(hmac.digest(key.raw, b"medloop backup content", "sha256"))

    def put(self, data: bytes) -> tuple[str, bool]:
        """Store a chunk; returns its id, and whether it is new. A chunk that was cut short is written again."""
        chunk_id = hmac.digest(self._names, data, "sha256").hex()
        path = self._chunk_path(chunk_id)
        with explain_os_errors(path):
            if path.exists() and path.stat().st_size == len(data) + SEALED_BYTES:
                return chunk_id, False
        atomic_write(path, seal(self._cipher, data, f"chunk|{chunk_id}".encode()), mode=0o600)
        return chunk_id, True

    def has(self, chunk_id: str) -> bool:
        return self._chunk_path(chunk_id).exists()

    def get(self, chunk_id: str) -> bytes:
        path = self._chunk_path(chunk_id)
        try:
            with explain_os_errors(path):
                return unseal(self._cipher, path.read_bytes(), f"chunk|{chunk_id}".encode())
        except InputError:
            raise _damaged(path, "is missing or cannot be read") from None
        except InvalidTag:
            raise _damaged(path, "was changed") from None

    def read(self, file: BackupFile) -> Iterator[bytes]:
        """The content of a file, chunk by chunk; IntegrityError at the end if it is not what was backed up."""
        digest, size = hashlib.sha256(), 0
        for chunk_id in file.chunks:
            data = self.get(chunk_id)
            digest.update(data)
            size += len(data)
            yield data
        if size != file.size or f"sha256:{digest.hexdigest()}" != file.sha256:
            raise _damaged(self.folder / file.path, "does not have the content that was backed up")

    def ids(self) -> list[str]:
        """The ids of all backups, oldest first."""
        with explain_os_errors(self.folder):
            names = sorted(path.stem for path in (self.folder / "manifests").glob("*.backup"))
        return [name for name in names if _ID.fullmatch(name)]

    def manifest(self, backup_id: str) -> BackupManifest:
        path = self._manifest_path(backup_id)
        if not path.is_file():
            raise InputError(f"There is no backup '{backup_id[:64]}' in {self.folder}", "'medloop backup list' shows all backups")
        try:
            with explain_os_errors(path):
                plain = unseal(self._cipher, path.read_bytes(), f"manifest|{backup_id}".encode())
            return BackupManifest.from_json(plain.decode())
        except (InvalidTag, ValidationError):
            raise _damaged(path, "was changed") from None

    def newest(self) -> BackupManifest | None:
        ids = self.ids()
        return self.manifest(ids[-1]) if ids else None

    def write_manifest(self, manifest: BackupManifest) -> None:
        sealed = seal(self._cipher, manifest.canonical_json().encode(), f"manifest|{manifest.backup_id}".encode())
        atomic_write(self._manifest_path(manifest.backup_id), sealed, mode=0o600)

    def read_keys(self) -> bytes | None:
        """The sealed keys of the workspace; None if no backup was made yet."""
        path = self.folder / KEYS
        if not path.is_file():
            return None
        try:
            with explain_os_errors(path):
                return unseal(self._cipher, path.read_bytes(), KEYS.encode())
        except InvalidTag:
            raise _damaged(path, "was changed") from None

    def write_keys(self, plain: bytes) -> None:
        """Replace the keys, and overwrite the bytes of the old file: they may hold what an erasure destroyed."""
        replace_and_wipe(self.folder / KEYS, seal(self._cipher, plain, KEYS.encode()))

    @contextmanager
    def locked(self, wait_s: float = 0) -> Iterator[None]:
        """One backup at a time."""
        with locked_file(self.folder / ".lock", wait_s=wait_s, what=f"The folder of backups {self.folder}", mode=0o600):
            yield

    def _chunk_path(self, chunk_id: str) -> Path:
        return self.folder / "chunks" / chunk_id[:2] / chunk_id

    def _manifest_path(self, backup_id: str) -> Path:
        return self.folder / "manifests" / f"{backup_id}.backup"


def is_repository(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def open_repository(folder: Path, key: MasterKey, *, create: bool = False) -> Repository:
    """Open a folder of backups, and check that the key is the one it was made with."""
    about = folder / ABOUT
    with explain_os_errors(folder):
        if not is_repository(folder):
            if not create:
                raise InputError(f"{folder} is not a folder of backups", "Make a backup with: medloop backup create FOLDER")
            if folder.is_dir() and any(folder.iterdir()):
                raise ConfigError(f"{folder} holds other files", "Name an empty or a new folder for the backups")
            atomic_write(about, json.dumps({"scheme": "medloop-backup-1", "key": key.id}) + "\n", mode=0o600)
            folder.chmod(0o700)
        try:
            key_id = json.loads(about.read_text(encoding="utf-8"))["key"]
        except (ValueError, KeyError, TypeError):
            raise _damaged(about, "cannot be read") from None
    if not hmac.compare_digest(str(key_id), key.id):
        raise KeyUnavailableError(
            f"The backups in {folder} need the key {key_id}, but the key from {key.origin} is {key.id}",
            "Name the right key file with --key-file, or set MEDLOOP_BACKUP__KEY",
        )
    return Repository(folder, key)


def load_backup_key(settings: Settings, *, key_file: Path | None = None, create: bool = False) -> tuple[MasterKey, bool]:
    """The backup key, and whether it was made just now: from --key-file, the environment, or the key file of the workspace."""
    given = settings.backup.key.get_secret_value()
    if given and key_file is None:
        return MasterKey(decode_key(given, "MEDLOOP_BACKUP__KEY"), "environment MEDLOOP_BACKUP__KEY"), False
    path = key_file or settings.backup_key_file
    if path.exists():
        return read_key_file(path), False
    if not create:
        raise KeyUnavailableError(
            f"There is no backup key: {path} does not exist and MEDLOOP_BACKUP__KEY is not set",
            "Copy the key from where you put it aside and name it with --key-file; without it the backups cannot be read",
        )
    return create_key_file(path), True


def prune(repository: Repository, keep: int) -> tuple[list[str], int]:
    """Remove all but the newest backups, then the chunks that no backup needs; returns their ids and how many bytes are free.

    After a kill, chunks that nobody needs are left; the next call removes them.
    """
    with repository.locked():
        ids = repository.ids()
        old, needed = ids[:-keep], set[str]()
        for backup_id in ids[-keep:]:  # reads all that stay before the first is removed: damage stops it
            manifest = repository.manifest(backup_id)
            needed.update(chunk for file in (manifest.database.dump, *manifest.files) for chunk in file.chunks)
        freed = 0
        with explain_os_errors(repository.folder, writing=True):
            for backup_id in old:
                (repository.folder / "manifests" / f"{backup_id}.backup").unlink()
            for path in (repository.folder / "chunks").glob("*/*"):
                if path.name not in needed:
                    freed += path.stat().st_size
                    path.unlink()
    return old, freed


def damaged_files(repository: Repository, files: Sequence[BackupFile]) -> Iterator[tuple[BackupFile, str | None]]:
    """Each file with what is wrong with it in the repository, or None."""
    for file in files:
        try:
            for _ in repository.read(file):
                pass
            yield file, None
        except IntegrityError as error:
            yield file, error.what


def _damaged(path: Path, what: str) -> IntegrityError:
    return IntegrityError(f"{os.fspath(path)} {what}", "Use another backup; 'medloop backup verify' lists what is damaged")
