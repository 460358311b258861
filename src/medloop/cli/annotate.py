"""`medloop annotate`: answers for annotators in Label Studio, and their annotations back."""

from typing import Annotated, cast, get_args

import typer

from medloop.cli import ui
from medloop.contracts.feedback import Purpose
from medloop.errors import ConfigError
from medloop.loop.annotate_pull import PullCounts, pull_annotations
from medloop.loop.annotate_push import push_negatives
from medloop.loop.annotate_status import annotation_status
from medloop.store.audit_trail import actor, open_audit_trail
from medloop.store.db import open_store
from medloop.store.records.workspace_settings import consent_default

annotate_app = typer.Typer(no_args_is_help=True, help="Send answers to annotators in Label Studio, and read their annotations.")

PURPOSES: tuple[str, ...] = get_args(Purpose)
# What a problem with an annotation means; docs/stages/annotation.md has the same list.
PROBLEMS = {
    "unknown_control": "name a control that the form does not have",
    "control_twice": "fill in one control twice",
    "wrong_type": "give a control another type than it has",
    "wrong_target": "are about another part of the task",
    "wrong_value": "have a value that the control cannot have",
    "too_long": "have a text of more than 20,000 characters",
    "contradiction": "choose two things that exclude each other",
    "says_nothing": "say nothing that the form asks for",
    "not_a_result": "are no annotations in the form of Label Studio",
    "not_our_task": "belong to tasks that medloop did not send, or whose item is gone here",
    "task_was_changed": "belong to tasks whose texts were changed there",
    "not_accepted": "cannot be stored as feedback",
}


def register(app: typer.Typer) -> None:
    app.add_typer(annotate_app, name="annotate")


@annotate_app.command("push")
def push(
    most: Annotated[int, typer.Option("--n", min=1, max=10_000, help="Most answers to send.")] = 200, json_: ui.AsJson = False
) -> None:
    """Send answers that people complained about to Label Studio: thumbs down, critical flags, disagreement.

    No identifier leaves: a text that may still name a person stays here. What was sent is not sent again.

    Example:  LABEL_STUDIO_URL=https://labels.example.org LABEL_STUDIO_API_KEY=... medloop annotate push --n 20
    """
    settings = ui.settings()
    with open_audit_trail(settings) as trail, ui.progress("Label Studio") as bar:
        counts = push_negatives(settings, trail.store, most=most, actor=actor(), on_rows=bar)
    if json_:
        ui.say_json(counts.as_json())
        return
    ui.say(f"{counts.pushed:,} answers sent to Label Studio.")
    for project_id in counts.projects:
        ui.say(f"  {ui.printable(settings.label_studio.url.rstrip('/'))}/projects/{project_id}/data")
    _say_counts(
        (counts.found_there, "were there already, from a push that was interrupted"),
        (counts.held, "may still name a person and stay here"),
        (counts.refused_consent, "are about people who have withdrawn a consent and stay here"),
        (counts.deleted, "tasks deleted there, because they were erased here"),
        (counts.not_deleted, "tasks of erased records could not be deleted there: delete them by hand"),
    )
    ui.next_step("annotate pull", "When they are annotated:")


@annotate_app.command("pull")
def pull(
    consent: Annotated[
        list[str] | None,
        typer.Option(metavar="USE", help=f"What may be done with the annotations: {', '.join(PURPOSES)}; may be repeated. "
                     "Default: what the forms of this workspace tick."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Read every task again, not only those that changed since the last pull.")
    ] = False,
    json_: ui.AsJson = False,
) -> None:  # fmt: skip
    """Read the annotations from Label Studio; they become ratings, corrections and choices of the users who gave them.

    An annotation that does not fit the form is reported and not taken. label_studio.raters says who is who.

    Example:  medloop annotate pull --consent training --consent evaluation
    """
    settings = ui.settings()
    with open_audit_trail(settings) as trail, ui.progress("Label Studio") as bar:
        purposes = _purposes(consent) if consent else consent_default(trail.store)
        counts = pull_annotations(settings, trail.store, consent=purposes, everything=everything, actor=actor(), on_rows=bar)
    if json_:
        ui.say_json(counts.as_json())
    else:
        _say_pulled(counts, purposes)


def _purposes(given: list[str]) -> tuple[Purpose, ...]:
    if unknown := sorted(set(given) - set(PURPOSES)):
        raise ConfigError(f"--consent: '{unknown[0]}' is unknown", f"Use {', '.join(PURPOSES)}")
    return cast(tuple[Purpose, ...], tuple(name for name in PURPOSES if name in given))


def _say_pulled(counts: PullCounts, consent: tuple[Purpose, ...]) -> None:
    kinds = {"ratings": counts.ratings, "corrections": counts.corrections, "choices": counts.choices}
    said = ", ".join(f"{name} {n:,}" for name, n in kinds.items() if n)
    ui.say(f"{counts.annotations:,} annotations read: {counts.new:,} new records{f' ({said})' if said else ''}.")
    refused = counts.problems.total()
    _say_counts(
        (counts.known, "were known"),
        (counts.changed, "of the records supersede what was annotated before"),
        (counts.skipped, "were skipped by their annotator"),
        (counts.held, "records may name a person and wait in quarantine"),
        (counts.hidden, "are about answers that wait in quarantine, and are read when those are released"),
        (counts.unsettled, "are stored, but others had settled their item before"),
        (counts.deleted, "tasks deleted there, because they were erased here"),
        (counts.not_deleted, "tasks of erased records could not be deleted there: delete them by hand"),
    )
    if refused:
        ui.say(f"{refused:,} annotations were not taken:")
        _say_counts(*((n, PROBLEMS[problem]) for problem, n in counts.problems.most_common()))
        ui.next_step("annotate status", "Which ones:")
    for who, n in sorted(counts.unknown.items()):
        ui.say(f"{n:>9,}  wait: nobody here is {ui.printable(who)} (set label_studio.raters to EMAIL=USER)")
    if counts.held:
        ui.next_step("quarantine list", "Review what is held:")
    if counts.new and not consent:
        ui.say("Nothing may be done with them: no use was allowed. Say which with --consent at the next pull of new annotations.")
    elif counts.new:
        ui.next_step("data build")


@annotate_app.command("status")
def status(json_: ui.AsJson = False) -> None:
    """Show what Label Studio has, and which annotations were not taken. Asks the database alone.

    Example:  medloop annotate status
    """
    settings = ui.settings()
    with open_store(settings) as store:
        found = annotation_status(settings, store)
    if json_:
        ui.say_json(found.as_json())
        return
    if not found.projects:
        ui.say(f"Nothing was pushed to Label Studio; {found.waiting:,} answers wait in the review queue.")
        ui.next_step("annotate push")
        return
    rows = [
        (p.name, f"{ui.printable(p.address)}", f"{p.sent:,}", f"{p.records:,}", f"{p.to_delete:,}", p.pulled or "never")
        for p in found.projects
    ]  # fmt: skip
    ui.table(("project", "address", "tasks", "records from it", "to delete", "last pull"), rows)
    ui.say(f"{found.waiting:,} answers wait in the review queue and were not sent.")
    for project in found.projects:
        for name, problem in project.problems.items():
            ui.say(f"  {project.name}, {name}: not taken, {problem} ({PROBLEMS.get(problem, problem)})")
    ui.next_step("annotate push" if found.waiting else "annotate pull")


def _say_counts(*lines: tuple[int, str]) -> None:
    for number, words in lines:
        if number:
            ui.say(f"{number:>9,}  {words}")
