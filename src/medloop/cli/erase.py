"""`medloop erase`: remove a person's records and every copy of them, with proof."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.login import logged_in
from medloop.errors import InputError, ResultError
from medloop.jobs.affected import QueuedJobs
from medloop.loop.erasure import erase_records, replay_erasures
from medloop.privacy.erasure.approval import approve as approve_request
from medloop.privacy.erasure.approval import refuse as refuse_request
from medloop.privacy.erasure.approval import request_approval, requested
from medloop.privacy.erasure.contracts import ErasurePreview, ErasureProof, ErasureRequest
from medloop.privacy.erasure.erase import SecondPersonNeededError, preview, proof_path
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records.evidence import SOURCES, ForeignRecord

CACHES = "reports/eval/answers/"
CACHES_GO = (
    f"caches of models' answers in {CACHES}: nobody can tell which lines answer an erased question, so each erasure removes all"
)


def register(app: typer.Typer) -> None:
    app.command("erase")(erase)


def erase(
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why, also of a refusal; it is stored for good, so do not name the person.")
    ] = "",
    subject: Annotated[str | None, typer.Option(metavar="ID", help="The person: the id in your own system, or sub_…")] = None,
    record: Annotated[list[str] | None, typer.Option(metavar="ID", help="Or a record; may be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Do not cancel training jobs that use the erased data; only list them.")
    ] = False,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Your user name, where two people must agree; asks for the password.")
    ] = None,
    approve: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="Approve the request of somebody else, with --user, and carry it out.")
    ] = None,
    refuse: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="Refuse a request, or take back your own, with --user and --reason.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="After a backup was restored: erase again what was erased since.")
    ] = False,
) -> None:
    """Remove a person's records, or single ones, and every copy of their text: rows, datasets, reports, caches. Cannot be undone.

    Each record leaves a tombstone, and reports/erasure holds the proof. The keys of the texts are destroyed, so that copies in
    logs and backups of the database cannot be opened. Models that were trained on the records are flagged; training jobs that
    use them are cancelled (on a terminal you are asked first). If the command is interrupted, run it again to finish. The id of a
    trace also removes all feedback on that trace. If a critical flag or an incident would lose its text, two people must agree
    on the same set of records.

    Example:  medloop erase --subject 4711 --reason "asked on 3 May" --dry-run

    Example:  medloop erase --approve ereq_01a1e418-70a2-7d31-9c55-0f6b9d2c1a44 --user dr.li

    Example:  medloop erase --refuse ereq_01a1e418-70a2-7d31-9c55-0f6b9d2c1a44 --user dr.li --reason "It is another person."
    """
    settings = ui.settings()
    jobs = QueuedJobs(settings)
    if replay:
        _replay(settings, jobs)
        return
    _check_decision(approve, refuse, {"--subject": subject, "--record": record, "--dry-run": dry_run, "--keep-jobs": keep_jobs})
    with open_store(settings) as store:
        person = logged_in(store, user).user_id if user is not None else None
        requested_by = person or actor()
        if (approve or refuse) and person is None:
            raise InputError("A decision about a request needs your name", "Give --user NAME")
        if refuse is not None:
            refuse_request(store, refuse, by=requested_by, note=reason)
            ui.say("The request is closed. Nothing was removed.")
            return
        if approve is not None:
            request = requested(store, approve, by=requested_by)
        else:
            request = ErasureRequest(reason, subject, tuple(record or ()), keep_jobs)
        if dry_run:
            _print_preview(preview(store, request, actor=requested_by, jobs=jobs))
            return
        if not request.keep_jobs and jobs.any() and _on_a_terminal():
            _ask(preview(store, request, actor=requested_by, jobs=jobs).jobs)
        if approve is not None:
            request, requested_by = approve_request(store, approve, by=requested_by, note=reason)
        try:
            proof = erase_records(store, request, actor=requested_by, jobs=jobs)
        except SecondPersonNeededError as needed:
            if person is None:
                raise
            request_id = request_approval(store, request, needed, by=person)
            ui.say(f"{needed.what}. {needed.removed}; the request waits for a second person.")
            ui.say(f"It is for the set of records {needed.ids_sha256[:12]}, which --dry-run shows; if that changes, ask again.")
            ui.say(f"Another clinician or admin approves it: medloop erase --approve {request_id} --user NAME")
            return
        path = proof_path(store, proof.erasure_id)
    _print_proof(proof)
    ui.say(f"Proof: {ui.shown(path)}; readable version: {path.with_suffix('.md').name}")
    if settings.backup.folder is None and settings.backup_key_file.is_file():
        ui.say(
            "Backups from before still hold the person's text and its keys, because backup.folder is not set. Put this erasure"
        )
        ui.say("beside them now, or a restore brings the person back: medloop backup create FOLDER")
    _require_complete(proof)


def _check_decision(approve: str | None, refuse: str | None, others: dict[str, object]) -> None:
    """A request is decided as it was made: what it removes, and whether jobs end, is part of it."""
    if approve is not None and refuse is not None:
        raise InputError("--approve and --refuse do not go together", "Use one of them")
    if flag := next((name for name, value in others.items() if value and (approve or refuse)), None):
        decision = "--approve" if approve else "--refuse"
        raise InputError(f"{decision} and {flag} do not go together", "A request is decided as it was made; request another one")


def _replay(settings: Settings, jobs: QueuedJobs) -> None:
    proofs = replay_erasures(settings, actor=actor(), jobs=jobs)
    for proof in proofs:
        _print_proof(proof)
    ui.say(f"Erasures that were repeated: {len(proofs):,}." if proofs else "Nothing that was erased has come back.")
    for proof in proofs:
        _require_complete(proof)


def _require_complete(proof: ErasureProof) -> None:
    if proof.alive and not proof.left:
        raise ResultError(
            f"Training jobs on erased data are still running ({', '.join(proof.alive)}), so the erasure is not finished",
            "Run the same command again when they have ended",
        )
    if not proof.complete:
        raise ResultError(
            f"{len(proof.left)} files still hold erased text (named above), so the erasure is not finished", _advice(proof)
        )


def _advice(proof: ErasureProof) -> str:
    """What to do about what is left. The database is never to be removed: it holds the records of everybody."""
    steps = ["take the person's text out of the other files named above, or delete those that are only copies"]
    if proof.columns:
        steps.append("erase the records named after IN COLUMN as well (medloop erase --record ID), or rename what has that name")
    return f"Never remove or edit the database itself. Then {'; '.join(steps)}; and run the same command again"


def _on_a_terminal() -> bool:
    return sys.stdin.isatty()


def _ask(jobs: list[str]) -> None:
    if jobs and not typer.confirm(f"Training jobs use this data ({', '.join(jobs)}). Cancel them?"):
        ui.say("Nothing was changed. To erase without cancelling them, request the erasure with --keep-jobs.")
        raise typer.Exit(1)


def _print_preview(plan: ErasurePreview) -> None:
    ui.say("Would be removed (nothing was changed):")
    for table, rows in plan.rows.items():
        ui.say(f"{rows:>9,}  {table}")
    caches = [name for name in plan.files if name.startswith(CACHES)]
    ui.say(f"{len(plan.files) - len(caches):>9,}  files that contain their text or were made from them")
    for name in plan.files:
        if name not in caches:
            ui.say(f"           {name}")
    if caches:
        ui.say(f"{len(caches):>9,}  {CACHES_GO}")
    ui.say(f"{plan.datasets:>9,}  dataset versions and files that contain them; models trained on these would be flagged")
    for job in plan.jobs:
        ui.say(f"           {job}: uses them and would be cancelled")
    if plan.foreign:
        ui.say(f"{len(plan.foreign):>9,}  of these records were not named by the request:")
    for record in plan.foreign:
        why = "on a trace or record of theirs" if record.match is None else record.match
        flag = ", CRITICAL FLAG" if record.critical else ""
        ui.say(f"           {record.record_id}: {why}, {_origin(record)}{flag}")
    for name, count in plan.evidence.items():
        ui.say(f"{count:>9,}  {name} would lose their text; a second person must approve that")
    if plan.evidence:
        ui.say(f"Set of records: {plan.ids_sha256[:12]}. An approval is for this set only.")
    _print_by_hand(plan.by_hand)
    _print_rest(plan.shared, plan.unsearched)


def _origin(record: ForeignRecord) -> str:
    return f"sent by {record.recorded_by or 'an agent'}" if record.table in SOURCES else f"in {record.table}"


def _print_by_hand(places: Sequence[str]) -> None:
    for place in places:
        ui.say(f"BY HAND    {place}")


def _print_proof(proof: ErasureProof) -> None:
    ui.say(f"Erasure {proof.erasure_id}: {'complete' if proof.complete else 'NOT complete'}")
    for table, rows in proof.rows.items():
        ui.say(f"{rows:>9,}  {table}")
    caches = [file for file in proof.files if file["path"].startswith(CACHES)]
    if caches:
        ui.say(f"{len(caches):>9,}  {CACHES_GO}")
    for file in proof.files:
        if file in caches:
            continue
        hashes = f"{file['before'][7:19]} -> {file.get('after', 'gone')[-64:][:12]}"
        ui.say(f"{file['rows']:>9,}  rows or places in {file['path']}, {file['action']} ({hashes})")
    for model in proof.flagged:
        ui.say(f"flagged    {model['path']}: trained on erased data ({model['sha256'][7:19]})")
    for job in proof.cancelled:
        ui.say(f"cancelled  {job['job']}: used erased data; submit it again to train on what is left")
    done = {f"jobs/{job['job']}" for job in proof.cancelled}
    for name in proof.jobs:
        if name not in done:
            ui.say(f"flagged    {name}: uses erased data; cancel it, or start it again on the new data")
    for path in proof.elsewhere:
        ui.say(f"elsewhere  {path}: was made from these records and is outside the workspace; remove it yourself")
    for name in proof.left:
        ui.say(f"LEFT       {name}")
    for place in proof.columns:
        ui.say(f"IN COLUMN  {place}")
    _print_by_hand(proof.by_hand)
    check = proof.verified
    ui.say(f"{proof.keys_destroyed:>9,}  keys destroyed: copies of the encrypted text cannot be opened any more")
    for name, count in proof.evidence.items():
        ui.say(f"{count:>9,}  {name} are kept without text; approved by {proof.approved_by}")
    ui.say(f"Searched {check['files']:,} files ({check['bytes']:,} bytes): {check['hits']:,} hits. Store: {proof.store}.")
    _print_rest(proof.shared, list(proof.unsearched))


def _print_rest(shared: int, unsearched: list[str]) -> None:
    if shared:
        ui.say(f"{shared:,} other records contain some of the same text; they were not part of the request and stay.")
    for name in unsearched:
        ui.say(f"not searched: {name}")
