"""`medloop backup` and `medloop restore`: encrypted copies of a workspace, made while it is in use."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError, IntegrityError, ResultError
from medloop.jobs.affected import QueuedJobs
from medloop.loop.restore import restore_workspace
from medloop.settings import Settings
from medloop.store.anchors import is_configured, write_anchors
from medloop.store.audit_trail import actor
from medloop.store.backup.contracts import BackupManifest
from medloop.store.backup.create import check_place, create_backup
from medloop.store.backup.repository import Repository, damaged_files, is_repository, load_backup_key, open_repository, prune
from medloop.store.db import open_store
from medloop.store.records.access_after_restore import AccessChanges

backup_app = typer.Typer(
    no_args_is_help=True, help="Make encrypted backups of the workspace while it is in use; list, verify and delete them."
)

Folder = Annotated[
    Path | None, typer.Argument(metavar="FOLDER", help="Folder of the backups (default: the setting backup.folder).")
]
KeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Key file of the backups (default: backup.key_file).")]


def register(app: typer.Typer) -> None:
    app.add_typer(backup_app, name="backup")
    app.command("restore")(restore)


@backup_app.command("create")
def create(
    folder: Folder = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="This workspace takes the place of the one that made the backups in FOLDER.")
    ] = False,
    json_: ui.AsJson = False,
) -> None:
    """Make an encrypted backup of the database, models, data, reports and keys. Only what is new is copied.

    The server may run, and people may write meanwhile. After an interruption run the command again. The first backup makes the
    backup key: copy its file to a safe place, apart from the backups. Nobody can read the backups without it. Each workspace
    needs a FOLDER of its own; if this workspace was moved, or was restored in another place for good, use --take-over once.

    Example:  medloop backup create /mnt/backups/clinic

    Example:  medloop backup create /mnt/backups/clinic --take-over
    """
    settings = ui.settings()
    place = _folder(settings, folder)
    check_place(settings, place)
    with open_store(settings) as store:
        key, is_new = load_backup_key(settings, create=not is_repository(place))
        if is_new and not json_:
            ui.say(f"New backup key {key.id} in {ui.shown(settings.backup_key_file)}.")
            ui.say("Copy this file to a safe place now, apart from the backups: without it no backup can be restored.")
        repository = open_repository(place, key, create=True)
        with ui.progress("Backing up (bytes)") as bar:
            manifest = create_backup(store, repository, actor=actor(), progress=bar.update, take_over=take_over)
    if json_:
        new_key = {"new_key_file": str(settings.backup_key_file)} if is_new else {}
        ui.say_json({**_summary(manifest), **new_key})
        _anchor(settings)
        return
    ui.say(f"Backup {manifest.backup_id}: the database and {len(manifest.files):,} file(s), {_size(manifest.bytes)}.")
    ui.say(f"New in {ui.shown(place)}: {_size(manifest.new_bytes)}. The audit log had {manifest.database.audit_rows:,} rows.")
    if settings.backup.folder is None:
        ui.say(f"To let erasures reach these backups, add to medloop.yaml: backup: {{folder: {place.absolute()}}}")
    _say_gaps(manifest)
    _anchor(settings)


@backup_app.command("list")
def list_backups(folder: Folder = None, key_file: KeyFile = None, json_: ui.AsJson = False) -> None:
    """List the backups in a folder, oldest first: id, time, kind of database, size and workspace.

    A machine without the workspace needs the key file that you have put aside.

    Example:  medloop backup list /mnt/backups/clinic --key-file backup.key
    """
    repository = _open(folder, key_file)
    manifests = [repository.manifest(backup_id) for backup_id in repository.ids()]
    if json_:
        ui.say_json([_summary(manifest) for manifest in manifests])
        return
    rows = [
        (m.backup_id, f"{m.created:%Y-%m-%d %H:%M:%S}Z", m.database.kind, f"{m.database.audit_rows:,}", f"{len(m.files):,}",
         _size(m.bytes), _size(m.new_bytes), m.workspace)
        for m in manifests
    ]  # fmt: skip
    ui.table(("backup", "made", "database", "audit rows", "files", "size", "new", "workspace"), rows)


@backup_app.command("verify")
def verify(
    folder: Folder = None,
    backup: Annotated[str | None, typer.Option(metavar="ID", help="Only this backup (default: all).")] = None,
    key_file: KeyFile = None,
    json_: ui.AsJson = False,
) -> None:
    """Read every byte of the backups and compare it with what was backed up. Exit code 6 if anything is damaged.

    Run it now and then: damage that is found in time can still be mended with a new backup.

    Example:  medloop backup verify /mnt/backups/clinic
    """
    repository = _open(folder, key_file)
    damaged: dict[str, list[str]] = {}
    for backup_id in [backup] if backup else repository.ids():
        manifest = repository.manifest(backup_id)
        problems = damaged.setdefault(backup_id, [])
        with ui.progress(f"Reading {backup_id} (bytes)", manifest.bytes) as bar:
            for file, problem in damaged_files(repository, (manifest.database.dump, *manifest.files)):
                bar(file.size)
                if problem is not None:
                    problems.append(f"{file.path}: {problem}")
        if not json_:
            ui.say(f"{backup_id}: {'intact' if not problems else f'{len(problems):,} damaged file(s)'}, {_size(manifest.bytes)}")
            for problem in problems:
                ui.say(f"  {ui.printable(problem)}")
    if json_:
        ui.say_json(damaged)
    if count := sum(map(len, damaged.values())):
        raise IntegrityError(f"{count:,} file(s) of the backups are damaged", "Restore another backup, and make a new one")


@backup_app.command("prune")
def prune_backups(
    keep: Annotated[int, typer.Option(min=1, help="Number of newest backups that stay.")],
    folder: Folder = None,
    key_file: KeyFile = None,
) -> None:
    """Delete all but the newest backups, with everything in the folder that only they need. This cannot be undone.

    Old backups hold files with the text of people who were erased later, and whoever has the backup key can read it: delete old
    backups in time.

    Example:  medloop backup prune --keep 14 /mnt/backups/clinic
    """
    removed, freed = prune(_open(folder, key_file), keep)
    ui.say(f"Backups deleted: {len(removed):,}. Space freed: {_size(freed)}.")
    for backup_id in removed:
        ui.say(f"  {backup_id}")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the backups.")],
    target: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the workspace: new or empty, or with --replace the old one.")
    ],
    backup: Annotated[str | None, typer.Option(metavar="ID", help="Backup to restore (default: the newest).")] = None,
    key_file: KeyFile = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="First move aside what is in DIR and in the database. Nothing is deleted.")
    ] = False,
    revoke_access: Annotated[
        bool, typer.Option("--revoke-access", help="Revoke all API keys; each password must be changed at the next login.")
    ] = False,
) -> None:
    """Make a workspace from a backup. After an interruption, run the same command again: it goes on where it stopped.

    Stop the server of the old workspace first. Whoever was erased after the backup was made is erased again. Everybody has to log
    in again. With --replace, API keys that were revoked since the backup stay revoked, and users have their newest passwords and
    roles. On an empty machine nobody knows what was revoked since: use --revoke-access there.

    Example:  medloop restore /mnt/backups/clinic /srv/clinic --key-file backup.key --revoke-access

    Example:  medloop restore /mnt/backups/clinic /srv/clinic --replace --backup bk_20261116T111435204Z_c14e7f
    """
    repository = _open(folder, key_file)
    manifest = repository.manifest(backup) if backup else repository.newest()
    if manifest is None:
        raise ConfigError(f"There is no backup in {folder}", "Make one with: medloop backup create FOLDER")
    with ui.progress(f"Restoring {manifest.backup_id} (bytes)", manifest.bytes) as bar:
        result = restore_workspace(
            repository, manifest, target, flags=ui.given_flags(), replace=replace, actor=actor(), progress=bar,
            jobs=QueuedJobs, revoke_access=revoke_access,
        )  # fmt: skip
    made = f"{manifest.created:%Y-%m-%d %H:%M:%S}Z"
    ui.say(f"Workspace {ui.shown(target.absolute())} is restored from backup {manifest.backup_id} of {made}.")
    state = "is intact" if result.report.audit.ok else "is damaged"
    ui.say(f"The audit log {state}: {result.report.audit.rows:,} rows, one of which says that it was restored.")
    if result.report.audit.ok and not result.report.ok:
        ui.say("Rows or anchors do not fit it. To see which, run in the workspace: medloop audit verify")
    if result.erased:
        ui.say(f"Erasures since that backup that were repeated: {len(result.erased):,}. The proofs are in reports/erasure.")
    _say_access(result.access, revoke_access, made)
    for anchor in result.anchors:
        if anchor.problem is not None:
            ui.say(f"  {anchor.place} was not told of the restore: {anchor.problem}. Run: medloop audit verify --new-head")
    if result.aside:
        ui.say(
            f"What was there before is now in {ui.shown(result.aside)}, with its keys: delete it when nobody needs it any more."
        )
    if str(target.expanduser().absolute()) != manifest.workspace:
        ui.say(f"The backups in {ui.shown(folder)} are of {manifest.workspace}. If this workspace takes its place for good, make")
        home, backups = (shlex.quote(str(path.expanduser().absolute())) for path in (target, folder))
        ui.say(f"its first backup with: medloop --home {home} backup create {backups} --take-over")
    _say_gaps(manifest)
    if not all(proof.complete for proof in result.erased):
        raise ResultError("An erasure could not be repeated completely", "Run in the workspace: medloop erase --replay")


def _say_access(access: AccessChanges | None, revoked: bool, made: str) -> None:
    if access is None:
        ui.say(f"API keys, passwords and roles are as at {made}: what was revoked or changed since then works again.")
        ui.say("Revoke it again: medloop api keys revoke ID, users disable NAME, users password NAME.")
        ui.say(
            "Whoever was erased since, without a later backup or the setting backup.folder, is back: copy keys/erased.jsonl of"
        )
        ui.say("the old workspace into keys/ of this one, and run in it: medloop erase --replay")
    elif revoked:
        ui.say(f"API keys revoked: {access.keys:,}. Users who must change their password at the next login: {access.users:,}.")
    else:
        kept = f"users whose newer password, role or state was kept: {access.users:,}"
        ui.say(f"From the old database: API keys that stay revoked: {access.keys:,}, {kept}.")
        if access.unfit:
            ui.say(f"  {access.unfit:,} of its users and keys were changed without medloop; such users are disabled: check them")


def _anchor(settings: Settings) -> None:
    """If there are places for anchors of the audit log, a backup is a good moment for one."""
    if not is_configured(settings):
        return
    with open_store(settings) as store:
        results = write_anchors(store, actor=actor())
    if failed := [result.place for result in results if result.problem is not None]:
        raise ResultError(f"The backup is made, but {', '.join(failed)} did not get the anchor", "Run: medloop audit anchor")


def _folder(settings: Settings, given: Path | None) -> Path:
    folder = given or settings.backup.folder
    if folder is None:
        raise ConfigError("There is no folder for the backups", "Name one: medloop backup create FOLDER, or set backup.folder")
    return folder.expanduser().absolute()


def _open(folder: Path | None, key_file: Path | None) -> Repository:
    """The repository; also on a machine without a workspace."""
    settings = ui.resolved(must_exist=False).settings
    return open_repository(_folder(settings, folder), load_backup_key(settings, key_file=key_file)[0])


def _say_gaps(manifest: BackupManifest) -> None:
    for name in manifest.left_out:
        ui.say(f"  not included: {ui.printable(name)} is a link")
    for name in manifest.damaged:
        ui.say(f"  damaged in the workspace: {ui.printable(name)} does not fit its own manifest")


def _summary(manifest: BackupManifest) -> dict[str, object]:
    numbers = {"files": len(manifest.files), "bytes": manifest.bytes, "audit_rows": manifest.database.audit_rows}
    return {**manifest.model_dump(mode="json", exclude={"files", "database"}), "database": manifest.database.kind, **numbers}


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
