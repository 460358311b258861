"""`medloop erase`: remove a person's records and every copy of them, with proof."""

import sys
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ResultError
from medloop.jobs.affected import QueuedJobs
from medloop.loop.erasure import erase_records
from medloop.privacy.erasure.contracts import ErasurePreview, ErasureProof, ErasureRequest
from medloop.privacy.erasure.erase import preview, proof_path
from medloop.store.audit_trail import actor
from medloop.store.db import open_store


def register(app: typer.Typer) -> None:
    app.command("erase")(erase)


def erase(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is stored for good, so do not name the person.")],
    subject: Annotated[str | None, typer.Option(metavar="ID", help="The person: the id in your own system, or sub_…")] = None,
    record: Annotated[list[str] | None, typer.Option(metavar="ID", help="Or a record; may be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Do not cancel training jobs that use the erased data; only list them.")
    ] = False,
) -> None:
    """Remove a person's records, or single ones, and every copy of their text: rows, datasets, reports, caches. Cannot be undone.

    Each record leaves a tombstone, and reports/erasure holds the proof. Models that were trained on the records are flagged;
    training jobs that use them are cancelled (on a terminal you are asked first). If the command is interrupted, run it again
    to finish. The id of a trace also removes all feedback on that trace.

    Example:  medloop erase --subject 4711 --reason "asked on 3 May" --dry-run
    """
    settings = ui.settings()
    request, jobs = ErasureRequest(reason, subject, tuple(record or ()), keep_jobs), QueuedJobs(settings)
    with open_store(settings) as store:
        if dry_run:
            _print_preview(preview(store, request, actor=actor(), jobs=jobs))
            return
        if not keep_jobs and jobs.any() and _on_a_terminal():
            _ask(preview(store, request, actor=actor(), jobs=jobs).jobs)
        proof = erase_records(store, request, actor=actor(), jobs=jobs)
        path = proof_path(store, proof.erasure_id)
    _print_proof(proof)
    ui.say(f"Proof: {ui.shown(path)}; readable version: {path.with_suffix('.md').name}")
    if proof.alive and not proof.left:
        raise ResultError(
            f"Training jobs on erased data are still running ({', '.join(proof.alive)}), so the erasure is not finished",
            "Run the same command again when they have ended",
        )
    if not proof.complete:
        raise ResultError(
            f"{len(proof.left)} files still hold erased text (named above), so the erasure is not finished",
            "Remove or repair them, then run the same command again",
        )


def _on_a_terminal() -> bool:
    return sys.stdin.isatty()


def _ask(jobs: list[str]) -> None:
    if jobs and not typer.confirm(f"Training jobs use this data ({', '.join(jobs)}). Cancel them?"):
        ui.say("Nothing was changed. To erase without cancelling them, use --keep-jobs.")
        raise typer.Exit(1)


def _print_preview(plan: ErasurePreview) -> None:
    ui.say("Would be removed (nothing was changed):")
    for table, rows in plan.rows.items():
        ui.say(f"{rows:>9,}  {table}")
    ui.say(f"{len(plan.files):>9,}  files that contain their text or were made from them")
    for name in plan.files:
        ui.say(f"           {name}")
    ui.say(f"{plan.datasets:>9,}  dataset versions and files that contain them; models trained on these would be flagged")
    for job in plan.jobs:
        ui.say(f"           {job}: uses them and would be cancelled")
    _print_rest(plan.shared, plan.unsearched)


def _print_proof(proof: ErasureProof) -> None:
    ui.say(f"Erasure {proof.erasure_id}: {'complete' if proof.complete else 'NOT complete'}")
    for table, rows in proof.rows.items():
        ui.say(f"{rows:>9,}  {table}")
    for file in proof.files:
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
    check = proof.verified
    ui.say(f"Searched {check['files']:,} files ({check['bytes']:,} bytes): {check['hits']:,} hits. Store: {proof.store}.")
    _print_rest(proof.shared, list(proof.unsearched))


def _print_rest(shared: int, unsearched: list[str]) -> None:
    if shared:
        ui.say(f"{shared:,} other records contain some of the same text; they were not part of the request and stay.")
    for name in unsearched:
        ui.say(f"not searched: {name}")
