"""`medloop restore`: make a workspace from a backup, on an empty machine or in place of another one.

The order survives a kill at any moment. A marker in the folder keeps every command away until the end; the same restore again
goes on where it stopped. Files come first, then the database, then a look at the audit log, which must be the one that was
backed up, then the audit line about the restore, and then the erasures: whoever was erased after the backup is erased again.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import AuditEvent, utc_now
from medloop.errors import ConfigError, IntegrityError, StoreError, explain_os_errors
from medloop.loop.erasure import replay_erasures
from medloop.privacy.erasure.contracts import ErasureProof, TrainingJobs
from medloop.settings import RESTORING, Settings, Workspace, resolve
from medloop.store import audit
from medloop.store.anchors import AnchorResult, is_configured, write_anchors
from medloop.store.backup.contracts import BackupManifest
from medloop.store.backup.databases import finish_database, restore_database
from medloop.store.backup.extract import extract_into
from medloop.store.backup.keys import keep_newer_keys, restore_keys
from medloop.store.backup.repository import Repository
from medloop.store.crypto import encode_key
from medloop.store.db import Store, open_store
from medloop.store.files.atomic import atomic_write, fsync_folder, make_folder
from medloop.store.integrity import RESTORED, IntegrityReport, verify_store

Progress = Callable[[int], None]  # bytes written
IGNORED = {RESTORING, "lost+found"}  # what a folder that counts as empty may hold


@dataclass(frozen=True)
class RestoreResult:
    report: IntegrityReport
    aside: Path | None  # where the workspace that was there before is now
    anchors: list[AnchorResult]  # the places outside that were told of the restore
    erased: list[ErasureProof]  # erasures since the backup, repeated


def restore_workspace(
    repository: Repository, manifest: BackupManifest, target: Path, *, flags: Mapping[str, Any] | None = None,
    replace: bool = False, actor: str, progress: Progress = lambda count: None,
    jobs: Callable[[Settings], TrainingJobs] | None = None,
) -> RestoreResult:  # fmt: skip
    """Restore a backup into a folder; the same call again after an interruption finishes it."""
    home = target.expanduser().absolute()
    mark = f"before-restore-{utc_now():%Y%m%dT%H%M%SZ}"
    aside = _claim(home, manifest, mark if replace else None)
    extract_into(repository, manifest.files, home, progress)
    settings = resolve({**(flags or {}), "home": home}, must_exist=False).settings
    restore_keys(repository, settings, manifest)
    restore_database(settings, repository, manifest.database, replace=mark if replace else None)
    progress(manifest.database.dump.size)
    with open_store(settings) as store:
        _accept(store, manifest, actor)
    proofs = replay_erasures(settings, actor=actor, jobs=jobs(settings) if jobs else None)
    with open_store(settings) as store:
        own = str(home) == manifest.workspace  # a drill elsewhere tells the places outside nothing
        anchors = write_anchors(store, actor=actor, accepted=True) if own and is_configured(settings) else []
        report = verify_store(store)
    if not settings.backup.key.get_secret_value() and not settings.backup_key_file.exists():
        atomic_write(settings.backup_key_file, encode_key(repository.key.raw), mode=0o600)  # the next backup needs it
    finish_database(settings)
    (home / RESTORING).unlink()
    fsync_folder(home)
    return RestoreResult(report, aside, anchors, proofs)


def _claim(home: Path, manifest: BackupManifest, mark: str | None) -> Path | None:
    """Mark an empty folder as being restored; what is in the way is moved aside if that was asked for, never deleted."""
    if home.exists() and not home.is_dir():
        raise ConfigError(f"{home} is a file", "Name a folder that does not exist yet, or an empty one")
    marker, aside = home / RESTORING, None
    with explain_os_errors(home, writing=True):
        make_folder(home)
        if marker.exists():
            if json.loads(marker.read_text(encoding="utf-8")) != manifest.backup_id:
                raise StoreError(f"{home} holds a part of another backup", "Finish that restore, or name an empty folder")
        elif any(path.name not in IGNORED for path in home.iterdir()):
            if mark is None:
                raise StoreError(
                    f"{home} is not empty; nothing was changed", "Name an empty folder, or keep the old one with --replace"
                )
            aside = _move_aside(home, mark)
        atomic_write(marker, json.dumps(manifest.backup_id), mode=0o600)
        home.chmod(0o700)
        for path in Workspace(home).folders():
            make_folder(path)
        Workspace(home).keys.chmod(0o700)
    return aside


def _move_aside(home: Path, mark: str) -> Path:
    aside = home.with_name(f"{home.name}.{mark}")
    aside.mkdir(mode=0o700)
    for path in sorted(home.iterdir()):
        if path.name not in IGNORED:
            os.rename(path, aside / path.name)
    keep_newer_keys(aside, home)
    return aside


def _accept(store: Store, manifest: BackupManifest, actor: str) -> None:
    """The log must be the one that was backed up; then it says that it was restored, and from what."""
    database, report = manifest.database, audit.verify(store)
    if not report.chain_ok or audit.hash_at(store, database.audit_rows) != database.audit_hash:
        raise IntegrityError(
            f"The audit log of backup {manifest.backup_id} is damaged: {report.problem or 'its last hash differs'}",
            "Restore another backup; 'medloop backup list' shows all of them",
        )
    detail: dict[str, str | int | float | bool] = {
        "backup": manifest.backup_id, "rows": database.audit_rows, "hash": database.audit_hash,
        "workspace": manifest.workspace,
    }  # fmt: skip
    audit.append_with_head(store, AuditEvent(actor=actor, action=RESTORED, subject=manifest.backup_id, detail=detail))
