"""`medloop erase`: a person's records out of everything, with proof."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ResultError
from medloop.jobs.affected import TrainingJobs
from medloop.loop.erasure import erase_records
from medloop.privacy.erasure.erase import Preview, Proof, Request, preview, proof_path
from medloop.store.audit_trail import actor
from medloop.store.db import open_store


def register(app: typer.Typer) -> None:
    app.command("erase")(erase)


def erase(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept for good, so name nobody here.")],
    subject: Annotated[str | None, typer.Option(metavar="ID", help="Whom: the id your own system uses, or sub_….")] = None,
    record: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Or which records, by their id; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Leave training jobs alone that learn from what goes; they are only named.")
    ] = False,
) -> None:
    """Remove a person's records, or single ones, and every copy of their text: rows, datasets, reports, caches. Cannot be undone.

    Leaves a tombstone per record and a proof under reports/erasure. Models that learnt from them are flagged, training jobs on
    changed data are cancelled (at a terminal you are asked first). Killed at any moment, the same command finishes it. The id of
    a trace takes everything that was said about that exchange.

    Example:  medloop erase --subject 4711 --reason "asked on 3 May" --dry-run
    """
    settings = ui.settings()
    request, jobs = Request(reason, subject, tuple(record or ()), keep_jobs), TrainingJobs(settings)
    with open_store(settings) as store:
        if dry_run:
            _print_preview(preview(store, request, actor=actor(), jobs=jobs))
            return
        if not keep_jobs and jobs.any() and _somebody_is_there():
            _ask(preview(store, request, actor=actor(), jobs=jobs).jobs)
        proof = erase_records(store, request, actor=actor(), jobs=jobs)
        path = proof_path(store, proof.erasure_id)
    _print_proof(proof)
    ui.say(f"Proof: {ui.shown(path)}, and as a page for people {path.with_suffix('.md').name}")
    if proof.alive and not proof.left:
        raise ResultError(
            f"Training jobs on erased data have not ended ({', '.join(proof.alive)}), so the erasure is not finished",
            "Run the same command again when they have ended",
        )
    if not proof.complete:
        raise ResultError(
            f"{len(proof.left)} files still hold erased text (named above), so the erasure is not finished",
            "Remove them or mend what is wrong with them, then run the same command again",
        )


def _somebody_is_there() -> bool:

    return sys.stdin.isatty()


def _ask(jobs: list[str]) -> None:
    if jobs and not typer.confirm(f"Training jobs learn from what goes ({', '.join(jobs)}). Cancel them?"):
        ui.say("Nothing was changed. To erase and leave them alone: --keep-jobs")
        raise typer.Exit(1)


def _print_preview(found: Preview) -> None:
    ui.say("Would go (nothing was changed):")
    for table, rows in found.rows.items():
        ui.say(f"{rows:>9,}  {table}")
    ui.say(f"{len(found.files):>9,}  files that hold their text or come from them")
    for name in found.files:
        ui.say(f"           {name}")
    ui.say(f"{found.datasets:>9,}  versions of datasets and their files with them, whose models would be flagged")
    for job in found.jobs:
        ui.say(f"           {job}: learns from them and would be cancelled")
    _print_rest(found.shared, found.unsearched)


def _print_proof(proof: Proof) -> None:
    ui.say(f"Erasure {proof.erasure_id}: {'complete' if proof.complete else 'NOT complete'}")
    for table, rows in proof.rows.items():
        ui.say(f"{rows:>9,}  {table}")
    for file in proof.files:
        hashes = f"{file['before'][7:19]} -> {file.get('after', 'gone')[-64:][:12]}"
        ui.say(f"{file['rows']:>9,}  rows or places in {file['path']}, {file['action']} ({hashes})")
    for model in proof.flagged:
        ui.say(f"flagged    {model['path']}: learnt from erased data ({model['sha256'][7:19]})")
    for job in proof.cancelled:
        ui.say(f"cancelled  {job['job']}: learnt from erased data; submit it again to learn from what is left")
    done = {f"jobs/{job['job']}" for job in proof.cancelled}
    for name in proof.jobs:
        if name not in done:
            ui.say(f"flagged    {name}: learns from erased data; cancel it, or start it again on the new data")
    for path in proof.elsewhere:
        ui.say(f"elsewhere  {path}: was made of these records and lies outside the workspace; see to it yourself")
    for name in proof.left:
        ui.say(f"LEFT       {name}")
    seen = proof.verified
    ui.say(f"Looked through {seen['files']:,} files ({seen['bytes']:,} bytes): {seen['hits']:,} hits. Store: {proof.store}.")
    _print_rest(proof.shared, list(proof.unsearched))


def _print_rest(shared: int, unsearched: list[str]) -> None:
    if shared:
        ui.say(f"{shared:,} other records hold some of the same text; they are somebody else's or were not asked for, and stay.")
    for name in unsearched:
        ui.say(f"not searched: {name}")
