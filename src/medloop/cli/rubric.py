"""`medloop rubric`: criteria from corrections: draft, accept, edit, drop, export."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.login import logged_in
from medloop.contracts import CorrectionCriterion
from medloop.contracts.criterion import CriterionState
from medloop.errors import ConfigError, ResultError
from medloop.loop import rubrics as work
from medloop.loop.teacher_writer import teacher_writer
from medloop.store.audit_trail import AuditTrail, actor
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import criteria, users

rubric_app = typer.Typer(no_args_is_help=True, help="Criteria from corrections: draft, accept, edit, drop, export.")

CriterionId = Annotated[
    str, typer.Argument(metavar="CRITERION", help="Id of a criterion or its end, from 'medloop rubric list'.")
]
UserName = Annotated[str, typer.Option("--user", metavar="NAME", help="Your user name; the password is asked for.")]
Teacher = Annotated[
    bool,
    typer.Option("--teacher/--no-teacher", help="Let a configured teacher write criteria, too, where consent covers it."),
]


def register(app: typer.Typer) -> None:
    app.add_typer(rubric_app, name="rubric")


@rubric_app.command("draft")
def draft(
    correction: Annotated[str | None, typer.Option(metavar="ID", help="One correction; without it, all new ones.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Look at all corrections again, not only at new ones.")] = False,
    teacher: Teacher = True,
    json_: ui.AsJson = False,
) -> None:
    """Draft criteria from corrections: what the expert added, and what the expert took out. Nothing uses a draft.

    Example:  medloop rubric draft

    Example:  medloop rubric draft --correction cor_01a1dee4 --no-teacher
    """
    settings = ui.settings()
    writer = teacher_writer(settings) if teacher else None
    with open_store(settings) as store:
        drafts = work.Drafts()
        if correction is not None:
            drafts.criteria += work.draft_from(store, correction, actor=actor(), writer=writer)
        else:
            drafts = work.draft_new(store, actor=actor(), everything=everything, writer=writer)
    if json_:
        ui.say_json({"drafts": [row.model_dump(mode="json", exclude_none=True) for row in drafts.criteria],
                     "known": drafts.known, "unusable": drafts.unusable})  # fmt: skip
        return
    _table(drafts.criteria)
    ui.say(f"Drafts: {len(drafts.criteria)}. Corrections that have criteria already: {drafts.known}.")
    for why, count in sorted(drafts.unusable.items()):
        ui.say(f"Corrections without criteria because {why}: {count}.")
    if drafts.criteria:
        ui.next_step(f"rubric show {drafts.criteria[0].criterion_id}")


@rubric_app.command("list")
def list_(
    state: Annotated[CriterionState | None, typer.Option(help="Only draft, accepted, dropped or replaced ones.")] = None,
    correction: Annotated[str | None, typer.Option(metavar="ID", help="Only those of one correction.")] = None,
    json_: ui.AsJson = False,
) -> None:
    """List the criteria with their points and checks, newest first.

    Example:  medloop rubric list --state draft
    """
    with open_store(ui.settings()) as store:
        rows = criteria.list_criteria(store, state=state, correction_ids=None if correction is None else [correction])
    if json_:
        ui.say_json([row.model_dump(mode="json", exclude_none=True) for row in rows])
        return
    if not rows:
        ui.say("There are no such criteria. Corrections on the pages become drafts.")
        ui.next_step("rubric draft")
        return
    _table(rows)
    counts = {name: sum(row.state == name for row in rows) for name in ("draft", "accepted", "dropped", "replaced")}
    ui.say(", ".join(f"{name} {count}" for name, count in counts.items() if count) + ".")
    if drafts := [row for row in rows if row.state == "draft"]:
        ui.next_step(f"rubric show {drafts[0].criterion_id}")


@rubric_app.command("show")
def show(criterion: CriterionId, json_: ui.AsJson = False) -> None:
    """Show a criterion: its question, its words, how it is checked, where it comes from.

    Example:  medloop rubric show crit_01a1dee4
    """
    with open_store(ui.settings()) as store:
        found, names = criteria.get_criterion(store, criterion), users.names(store)
        decides = criteria.may_decide(store, found, found.author)
    if json_:
        ui.say_json(found.model_dump(mode="json", exclude_none=True))
        return
    author = names.get(found.author, found.author)
    ui.say(
        f"{found.criterion_id}: {found.state}, {found.points:+g} points{', critical' if found.critical else ''}, {found.scope}"
    )
    ui.say(f"  {ui.printable(found.text)}")
    ui.say(f"  Question: {ui.printable(found.content.question)}")
    ui.say(f"  Checked by: {ui.printable(found.content.detector or 'the teacher')}")
    ui.say(f"  From: {found.correction_id} by {author}; written by the {found.maker}")
    if found.reviewer:
        ui.say(f"  Decided by {names.get(found.reviewer, found.reviewer)}")
    if found.state == "draft" and decides:
        ui.next_step(f"rubric accept {found.criterion_id} --user {author}", "The author of the correction accepts it with:")
    elif found.state == "draft":
        ui.next_step(f"rubric accept {found.criterion_id} --user CLINICIAN", "Any clinician accepts it with:")


@rubric_app.command("accept")
def accept(
    criterion: Annotated[list[str], typer.Argument(metavar="CRITERION...", help="Ids of criteria, or the ends of them.")],
    user: UserName,
) -> None:
    """Accept drafts, as the author of the correction. Evaluation, gate and reward may use them from now on.

    Example:  medloop rubric accept crit_01a1dee4 --user dr.li
    """
    settings = ui.settings()
    with open_store(settings) as store:
        person = logged_in(store, user)
        rows = [criteria.accept(store, criteria.get_criterion(store, name).criterion_id, by=person.user_id) for name in criterion]
    ui.say(f"Accepted: {', '.join(row.criterion_id for row in rows)}.")
    ui.next_step(f"eval --model {settings.model} --suite rubric={work.NAME}")


@rubric_app.command("edit")
def edit(
    criterion: CriterionId,
    user: UserName,
    text: Annotated[str | None, typer.Option(help="The criterion in one sentence, about what an answer does.")] = None,
    points: Annotated[float | None, typer.Option(min=-10, max=10, help="1 to 10, or -1 to -10 for a fault.")] = None,
    check: Annotated[
        str | None,
        typer.Option(help="An act such as urges_care_now, same_language, or mentions:WORDS; empty: the teacher checks it."),
    ] = None,
    critical: Annotated[bool | None, typer.Option("--critical/--not-critical", help="Failing it could harm a patient.")] = None,
) -> None:
    """Put a criterion in your own words in place of this one, as the author of the correction. It is accepted.

    Example:  medloop rubric edit crit_01a1dee4 --text "Asks for the weight" --check "mentions:weight|体重" --user dr.li
    """
    given = {"criterion": text, "points": points, "detector": check, "critical": critical}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise ConfigError("Nothing to change", "Name --text, --points, --check or --critical")
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        made = work.edit_criterion(store, criterion, changes, by=person.user_id)
    ui.say(f"{made.criterion_id} takes the place of {made.supersedes} and is accepted.")
    ui.next_step(f"rubric show {made.criterion_id}")


@rubric_app.command("drop")
def drop(criterion: CriterionId, user: UserName) -> None:
    """Drop a criterion, as the author of the correction: nothing uses it. It stays readable.

    Example:  medloop rubric drop crit_01a1dee4 --user dr.li
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        found = criteria.drop(store, criteria.get_criterion(store, criterion).criterion_id, by=person.user_id)
    ui.say(f"{found.criterion_id} was dropped.")


@rubric_app.command("export")
def export(file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Where the cases are written.")]) -> None:
    """Write the accepted criteria as JSON lines in HealthBench's form, for 'medloop eval --suite rubric=FILE.jsonl'.

    Example:  medloop rubric export criteria.jsonl
    """
    settings = ui.settings()
    with open_store(settings) as store:
        lines = work.export_lines(store, actor=actor())
        if not lines:
            raise ResultError("No correction has accepted criteria", "See: medloop rubric list --state draft")
        jsonl.write(file, lines)
        AuditTrail(store).record("rubric.export", file, cases=len(lines))
    ui.say(f"{len(lines)} cases are in {ui.shown(file)}.")
    ui.next_step(f"eval --model {settings.model} --suite rubric={ui.shown(file)}")


def _table(rows: list[CorrectionCriterion]) -> None:
    cells = []
    for row in rows:
        text, check = ui.printable(row.text), ui.printable(row.content.detector or "teacher")
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        points = f"{row.points:+g}{'!' if row.critical else ''}"
        cells.append((row.criterion_id, row.correction_id[-12:], row.state, points, check[:40], shown))
    if cells:
        ui.table(("criterion", "correction", "state", "points", "check", "text"), cells)
