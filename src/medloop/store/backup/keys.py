"""The keys of a workspace in its folder of backups: only their newest state, one for all backups.

An erasure destroys keys, so that the text of erased people cannot be opened any more, not even in old backups. A backup of the
keys from before the erasure would undo that. So every backup and every erasure replaces the keys in the repository, and a restore
of any backup uses the newest. Old master keys are kept, because old backups of the database need them; they open no erased text.
"""

import base64
import shlex
from pathlib import Path

from sqlalchemy import Connection

from medloop.errors import ConfigError, KeyUnavailableError, MedloopError
from medloop.settings import Settings
from medloop.store.backup.contracts import BackupManifest, KeyBundle
from medloop.store.backup.repository import Repository, load_backup_key, open_repository
from medloop.store.crypto import encode_key
from medloop.store.db import Store
from medloop.store.files.atomic import TEMP_MARK, atomic_write
from medloop.store.files.workspace_scan import files

REGISTER = "erased.jsonl"  # what was erased (privacy/erasure); its lines are never lost
TREE = ".tree"  # ending of the file from which the keys of texts are made, and in which they are destroyed (key_tree.py)
REFRESH_WAIT_S = 60.0


def require_owner(repository: Repository, store: Store, conn: Connection, *, take_over: bool = False) -> None:
    """The backups of a folder are of one workspace: another one, or a copy of it, would replace the keys that they need."""
    bundle, home = _bundle(repository), str(store.settings.home)
    if bundle.store_id not in ("", store.keys.auditing(conn).key_id):
        raise ConfigError(
            f"The backups in {repository.folder} are of another workspace ({bundle.home}), whose keys would be replaced",
            "Name another folder; each workspace needs its own",
        )
    if bundle.home not in ("", home) and not take_over:
        raise ConfigError(
            f"The backups in {repository.folder} are of the workspace in {bundle.home}, and this one is in {home}",
            "If this one takes its place for good, run once: medloop backup create "
            f"{shlex.quote(str(repository.folder))} --take-over; if not, name another folder",
        )


def keep_keys(repository: Repository, store: Store, conn: Connection) -> None:
    """Put the keys of the workspace into the repository, in place of those that were there."""
    settings, before, master = store.settings, _bundle(repository), store.keys.master(conn)
    masters = dict(before.masters)
    if not settings.database.encryption_key.get_secret_value():
        masters[master.id] = base64.b64encode(master.raw).decode()
    contents = {path.name: path.read_bytes() for path in _key_files(settings)}
    if REGISTER in before.files:
        contents[REGISTER] = merge_lines(base64.b64decode(before.files[REGISTER]), contents.get(REGISTER, b""))
    encoded = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    bundle = KeyBundle(store_id=store.keys.auditing(conn).key_id, home=str(settings.home), masters=masters, files=encoded)
    repository.write_keys(bundle.canonical_json().encode())


def trees_of(store: Store, conn: Connection) -> tuple[str, ...]:
    """The files of the key tree that the texts of the store need; none if it holds no text yet."""
    if not store.keys.exists(conn, "texts"):
        return ()
    tree_file = store.keys.tree_file(conn)
    tree_file.tree()  # a backup without it could never be read
    return (tree_file.path.name,)


def refresh_keys(store: Store) -> str | None:
    """After an erasure, replace the keys in the folder of backups that the settings name; returns why it failed, if it did."""
    settings = store.settings
    folder = settings.backup.folder
    if folder is None:
        return None
    try:
        repository = open_repository(folder, load_backup_key(settings)[0])
        with repository.locked(wait_s=REFRESH_WAIT_S), store.read() as conn:
            require_owner(repository, store, conn)
            keep_keys(repository, store, conn)
    except MedloopError as error:
        return error.what
    return None


def keep_newer_keys(old_home: Path, home: Path) -> None:
    """Before a workspace is restored in place of another: what the other one destroyed and erased must stay so."""
    for path in sorted((old_home / "keys").glob("*")):
        if path.name == REGISTER or path.suffix == TREE:
            atomic_write(home / "keys" / path.name, path.read_bytes(), mode=0o600)


def require_trees(repository: Repository, manifest: BackupManifest, home: Path) -> None:
    """Before anything is touched: the key tree that the texts need must be in the repository or in the folder."""
    _require(manifest, {*_bundle(repository).files, *(path.name for path in (home / "keys").glob(f"*{TREE}"))})


def _require(manifest: BackupManifest, names: set[str]) -> None:
    if missing := [name for name in manifest.trees if name not in names]:
        raise KeyUnavailableError(
            f"The keys beside the backups lack {missing[0]}, without which no text of backup {manifest.backup_id} opens",
            "Put the file into the folder keys of DIR, from another copy of the workspace, and restore with --replace",
        )


def restore_keys(repository: Repository, settings: Settings, manifest: BackupManifest) -> None:
    """Write the newest keys, and the master key that opens this backup.

    A tree that is there is at least as new as the one in the repository, so it stays, and so do the lines of its register.
    Those of another workspace are of no use.
    """
    bundle, folder = _bundle(repository), settings.workspace.keys
    same_workspace = any((folder / name).exists() for name in bundle.files if name.endswith(TREE))
    for name, encoded in bundle.files.items():
        path, content = folder / Path(name).name, base64.b64decode(encoded)
        if name.endswith(TREE) and path.exists():
            continue
        if name == REGISTER and path.exists() and same_workspace:
            content = merge_lines(content, path.read_bytes())
        atomic_write(path, content, mode=0o600)
    _require(manifest, {path.name for path in folder.glob(f"*{TREE}")})
    if not same_workspace and REGISTER not in bundle.files:
        (folder / REGISTER).unlink(missing_ok=True)
    if settings.database.encryption_key.get_secret_value() or settings.master_key_file.exists():
        return
    if manifest.master_id not in bundle.masters:
        raise KeyUnavailableError(
            f"Backup {manifest.backup_id} needs the master key {manifest.master_id}, which came from the environment",
            "Set MEDLOOP_DATABASE__ENCRYPTION_KEY to it and run the restore again",
        )
    atomic_write(settings.master_key_file, encode_key(base64.b64decode(bundle.masters[manifest.master_id])), mode=0o600)


def merge_lines(first: bytes, second: bytes) -> bytes:
    """All lines of both, each once."""
    return b"".join(line + b"\n" for line in dict.fromkeys((*first.splitlines(), *second.splitlines())) if line)


def _bundle(repository: Repository) -> KeyBundle:
    plain = repository.read_keys()
    return KeyBundle(masters={}, files={}) if plain is None else KeyBundle.from_json(plain.decode())


def _key_files(settings: Settings) -> list[Path]:
    own = {settings.backup_key_file.absolute(), settings.master_key_file.absolute()}
    own.add(Path(f"{settings.master_key_file.absolute()}.next"))
    return [path for path in files(settings.workspace.keys) if path.absolute() not in own and _is_kept(path.name)]


def _is_kept(name: str) -> bool:
    return TEMP_MARK not in name and not name.endswith(".old")
