"""`medloop restore`: make a workspace from a backup, on an empty machine or in place of another one.

The order survives a kill at any moment. A mark in the folder keeps every command away until the end; the same restore again
goes on where it stopped (store/backup/claim.py). Files come first, then the database, then a look at the audit log, which must be
the one that was backed up, then the audit line about the restore, then access (what was revoked since the backup stays revoked),
and then the erasures: whoever was erased after the backup is erased again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import AuditEvent
from medloop.errors import IntegrityError
from medloop.loop.erasure import replay_erasures
from medloop.privacy.erasure.contracts import ErasureProof, TrainingJobs
from medloop.settings import RESTORING, Settings, resolve
from medloop.store import audit
from medloop.store.anchors import AnchorResult, is_configured, write_anchors
from medloop.store.backup.claim import claim_folder, release
from medloop.store.backup.contracts import BackupManifest
from medloop.store.backup.databases import finish_database, old_database, restore_database
from medloop.store.backup.extract import extract_into
from medloop.store.backup.keys import require_trees, restore_keys
from medloop.store.backup.repository import Repository
from medloop.store.crypto import encode_key
from medloop.store.db import Store, open_store
from medloop.store.files.atomic import atomic_write
from medloop.store.integrity import RESTORED, IntegrityReport, verify_store
from medloop.store.records.access_after_restore import AccessChanges, carry_access, end_sessions, read_access, revoke_all

Progress = Callable[[int], None]  # bytes written


@dataclass(frozen=True)
class RestoreResult:
    report: IntegrityReport
    aside: Path | None  # where the workspace that was there before is now
    anchors: list[AnchorResult]  # the places outside that were told of the restore
    erased: list[ErasureProof]  # erasures since the backup, repeated
    access: AccessChanges | None  # what was revoked or changed; None: all access is as it was when the backup was made


def restore_workspace(
    repository: Repository, manifest: BackupManifest, target: Path, *, flags: Mapping[str, Any] | None = None,
    replace: bool = False, actor: str, progress: Progress = lambda count: None,
    jobs: Callable[[Settings], TrainingJobs] | None = None, revoke_access: bool = False,
) -> RestoreResult:  # fmt: skip
    """Restore a backup into a folder; the same call again after an interruption finishes it."""
    home = target.expanduser().absolute()
    if not (home / RESTORING).exists():
        require_trees(repository, manifest, home)
    mark = claim_folder(home, manifest, replace=replace)
    extract_into(repository, manifest.files, home, progress)
    settings = resolve({**(flags or {}), "home": home}, must_exist=False).settings
    restore_keys(repository, settings, manifest)
    restore_database(settings, repository, manifest.database, mark.name, replace=mark.replace)
    progress(manifest.database.dump.size)
    aside = None if mark.aside is None else Path(mark.aside)
    with open_store(settings) as store:
        _accept(store, manifest, actor)
        access = _access(store, mark.name, aside, actor, revoke_access)
    own = str(home) == manifest.workspace  # a drill elsewhere changes nothing outside its folder
    proofs = replay_erasures(settings, actor=actor, jobs=jobs(settings) if jobs else None, refresh_backups=own)
    with open_store(settings) as store:
        anchors = write_anchors(store, actor=actor, accepted=True) if own and is_configured(settings) else []
        report = verify_store(store)
    if not settings.backup.key.get_secret_value() and not settings.backup_key_file.exists():
        atomic_write(settings.backup_key_file, encode_key(repository.key.raw), mode=0o600)  # the next backup needs it
    release(home)
    finish_database(settings)
    return RestoreResult(report, aside, anchors, proofs, access)


def _access(store: Store, name: str, aside: Path | None, actor: str, revoke: bool) -> AccessChanges | None:
    """Nobody gets in with what was revoked since the backup, as far as the database that was set aside can tell."""
    end_sessions(store)
    if revoke:
        return revoke_all(store, actor=actor)
    with old_database(store.settings, name, aside, store) as old:
        access = None if old is None else read_access(old)
        return None if access is None else carry_access(store, access, actor=actor)


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
