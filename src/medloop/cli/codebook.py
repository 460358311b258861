"""`medloop codebook`: rules that correct the assistant at once: propose, try, approve, retire, roll back."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.codebook_print import as_json, say_empty, say_proposals, say_trial, say_version, table
from medloop.cli.login import logged_in
from medloop.codebook.lay_words import MARK, topics_of
from medloop.contracts.rule import EVERY_SITE, FORBIDDEN_ACTS, EntryState
from medloop.errors import ConfigError, ResultError
from medloop.loop import codebook as work
from medloop.loop.codebook_effects import count_votes
from medloop.loop.codebook_growth import promote, propose_examples, propose_prompt
from medloop.loop.codebook_trial import approve_entry, try_entry
from medloop.loop.rule_encoder import rule_encoder
from medloop.loop.teacher_writer import teacher_writer
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import codebook, codebook_votes, users

codebook_app = typer.Typer(no_args_is_help=True, help="Rules that correct the assistant at once: propose, try, approve, retire.")

EntryId = Annotated[str, typer.Argument(metavar="ENTRY", help="Id of an entry or its end, from 'medloop codebook list'.")]
UserName = Annotated[str, typer.Option("--user", metavar="NAME", help="Your user name; the password is asked for.")]
Reason = Annotated[str, typer.Option(help="Why. It stays for good: do not name patients.")]
Text = Annotated[str | None, typer.Option(help="The rule in one or two sentences.")]
Triggers = Annotated[
    list[str] | None,
    typer.Option("--trigger", metavar="WORDS", help="Words that a question must have; a|b: one of them; may be repeated."),
]
FirstSentence = Annotated[
    str | None, typer.Option("--first-sentence", help="A vetted sentence that is put before the answer as it is.")
]
Forbids = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="ACT",
        help=f"What is taken out of answers; may be repeated: {', '.join(FORBIDDEN_ACTS)}; none: nothing.",
    ),
]
Teacher = Annotated[
    bool, typer.Option("--teacher/--no-teacher", help="Let a configured teacher find the words, where consent covers it.")
]
Expires = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Last day on which it holds (UTC).")]


def register(app: typer.Typer) -> None:
    app.add_typer(codebook_app, name="codebook")


@codebook_app.command("propose")
def propose(
    correction: Annotated[str | None, typer.Option(metavar="ID", help="One correction; without it, all new ones.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Look at all corrections again, not only at new ones.")] = False,
    text: Text = None,
    trigger: Triggers = None,
    first_sentence: FirstSentence = None,
    forbid: Forbids = None,
    scope: Annotated[str, typer.Option(help="What is at stake: emergency, medication, ..., routine; else read from it.")] = "",
    site: Annotated[str, typer.Option(help="With --text: the site whose answers it changes.")] = EVERY_SITE,
    expires: Expires = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Who writes the rule; needed with --text.")] = None,
    teacher: Teacher = True,
    json_: ui.AsJson = False,
) -> None:
    """Propose rules from corrections, or write one yourself. Nothing changes before somebody approves it.

    Example:  medloop codebook propose

    Example:  medloop codebook propose --text "Ask for the weight first." --trigger "child|儿童" --user dr.li
    """
    settings = ui.settings()
    embed = rule_encoder(settings)
    with open_store(settings) as store:
        proposals = work.Proposals()
        if text is not None:
            if user is None:
                raise ConfigError("A rule needs its author", "Add --user NAME")
            person = logged_in(store, user)
            entry = work.written_entry(
                store, text, triggers=trigger or (), first_sentence=first_sentence or "", forbids=_acts(forbid) or (),
                scope=scope, author=person.user_id, actor=person.user_id, expires=_last_moment(expires), site=site,
            )  # fmt: skip
            proposals.entries.append(entry)
        elif correction is not None:
            entry = work.propose_from(store, correction, actor=actor(), reflector=_reflector(settings, teacher), embed=embed)
            proposals.entries.append(entry)
        else:
            reflector = _reflector(settings, teacher)
            proposals = work.propose_new(store, actor=actor(), everything=everything, reflector=reflector, embed=embed)
    say_proposals(proposals, json_)


@codebook_app.command("list")
def list_(
    state: Annotated[EntryState | None, typer.Option(help="Only proposed, active, retired or refused ones.")] = None,
    json_: ui.AsJson = False,
) -> None:
    """List the entries with their counters, newest first.

    Example:  medloop codebook list --state proposed
    """
    with open_store(ui.settings()) as store:
        count_votes(store, actor=actor())
        entries = codebook.entries(store)
        rows = [entry for entry in entries if state in (None, entry.state)]
        counts, current, has_new = codebook_votes.counts(store), codebook.live(store), work.has_new_corrections(store)
    if json_:
        ui.say_json({"version": current.version, "sha256": current.sha256,
                     "entries": [as_json(entry, counts.get(entry.entry_id)) for entry in rows]})  # fmt: skip
        return
    if rows:
        table(rows, counts)
        ui.say(f"Version {current.version}, {current.sha256[7:19]}: {len(current.entries)} entries are live.")
    else:
        say_empty(has_new, others=len(entries), state=state)


@codebook_app.command("show")
def show(entry: EntryId, json_: ui.AsJson = False) -> None:
    """Show an entry: its words, where it comes from, its revisions, trials and counters.

    Example:  medloop codebook show rule_01a1dee4
    """
    with open_store(ui.settings()) as store:
        found = codebook.get_entry(store, entry)
        history, counts = codebook.revisions(store, found.entry_id), codebook_votes.counts(store).get(found.entry_id)
        trials = [trial for revision in history for trial in codebook.trials(store, revision.revision_id)]
        against, names = work.conflicts_of(store, found), users.names(store)
    if json_:
        ui.say_json({**as_json(found, counts), "revisions": [as_json(row) for row in history], "conflicts": against,
                     "trials": [trial.model_dump(mode="json") for trial in trials]})  # fmt: skip
        return
    ui.say(f"{found.entry_id}, revision {found.revision}: {found.kind}, {found.scope}, {found.state}")
    ui.say(f"  {ui.printable(found.text)}")
    if found.content.first_sentence:
        ui.say(f"  First sentence: {ui.printable(found.content.first_sentence)}")
    if found.content.forbids:
        ui.say(f"  Taken out of answers: {', '.join(found.content.forbids)}")
    ui.say(f"  Triggers: {ui.printable(', '.join(found.content.triggers)) or 'none: questions like its own'}")
    for topic in topics_of(found.content.triggers):
        ui.say(f"  Also reaches: {topic.en_name} ({', '.join(topic.shown)}); leave {MARK}{topic.id} out where that is too much")
        if topic.left_out:
            ui.say(f"    {MARK}{topic.id} does not reach: {', '.join(topic.left_out)}")
    ui.say(f"  From: {', '.join(found.evidence) or 'a person who wrote it'}; author {names.get(found.author, found.author)}")
    if found.approver:
        ui.say(
            f"  Approved by {names.get(found.approver, found.approver)}"
            + (f" and {names.get(found.second, found.second)}" if found.second else "")
        )
    ui.say(f"  Expires: {f'{found.expires:%Y-%m-%d}' if found.expires else 'never'}")
    helpful, harmful = (counts.helpful, counts.harmful) if counts else (0, 0)
    ui.say(f"  Answers with it that people liked: {helpful}; disliked, flagged or corrected: {harmful}")
    if against:
        ui.say(f"  Contradicts: {', '.join(against)}")
    for trial in trials[:3]:
        say_trial(trial)
    if found.state == "proposed":
        ui.next_step(f"codebook try {found.entry_id}")


@codebook_app.command("try")
def try_(entry: EntryId, json_: ui.AsJson = False) -> None:
    """Answer the regression set with the live model, with and without a proposal, and compare.

    Example:  medloop codebook try rule_01a1dee4
    """
    settings = ui.settings()
    with open_store(settings) as store:
        found = codebook.get_entry(store, entry)
        trial = try_entry(settings, store, found, actor=actor(), removed=found.state == "active")
    if json_:
        ui.say_json(trial)
        return
    say_trial(trial)
    if found.state == "proposed" and trial.verdict != "critical":
        ui.next_step(f"codebook approve {found.entry_id} --user NAME", "A clinician approves it with:")


@codebook_app.command("approve")
def approve(
    entry: EntryId,
    user: UserName,
    reason: Reason = "",
    refuse: Annotated[bool, typer.Option("--refuse", help="Decide against the proposal.")] = False,
) -> None:
    """Make a proposal live, as a clinician; it is tried on the regression set first. The next answer uses it.

    Nobody approves what they wrote themselves. Where a critical case or more cases get worse than better, or a
    live entry says the opposite, two clinicians have to approve it, each with a reason.

    Example:  medloop codebook approve rule_01a1dee4 --user dr.li
    """
    settings = ui.settings()
    with open_store(settings) as store:
        person = logged_in(store, user)
        found = codebook.get_entry(store, entry)
        if refuse:
            codebook.refuse(store, found.revision_id, by=person.user_id, reason=reason)
            ui.say(f"{found.entry_id} was refused.")
            return
        against = work.conflicts_of(store, found)
        version, trial = approve_entry(settings, store, found, by=person.user_id, reason=reason)
    say_trial(trial)
    if version is None:
        why = codebook.ApprovalCheck(trial, tuple(against)).objection
        raise ResultError(
            f"{found.entry_id} is not live: {why}", f"A second clinician can approve it with --reason; {user} cannot"
        )
    say_version(version)


@codebook_app.command("edit")
def edit(
    entry: EntryId,
    user: UserName,
    text: Text = None,
    trigger: Triggers = None,
    first_sentence: FirstSentence = None,
    forbid: Forbids = None,
    scope: Annotated[str | None, typer.Option(help="What is at stake: emergency, medication, ..., routine.")] = None,
    expires: Expires = None,
) -> None:
    """Change an entry: a new revision, which waits for approval; the live one stays until then.

    Example:  medloop codebook edit rule_01a1dee4 --trigger "child|儿童" --user dr.li
    """
    given = {
        "text": text,
        "triggers": trigger,
        "first_sentence": first_sentence,
        "forbids": _acts(forbid),
        "scope": scope,
        "expires": _last_moment(expires),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise ConfigError("Nothing to change", "Name --text, --trigger, --first-sentence, --forbid, --scope or --expires")
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        found = codebook.get_entry(store, entry)
        revised = work.draft_edit(store, found, changes, actor=person.user_id, author=person.user_id)
    ui.say(f"{revised.entry_id} has revision {revised.revision}, which waits for approval.")
    ui.next_step(f"codebook try {revised.entry_id}")


@codebook_app.command("merge")
def merge(
    entry: EntryId,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The entry that the first one replaces.")],
    user: UserName,
) -> None:
    """Propose one entry in place of two that say the same: the words of the first, the evidence of both.

    Example:  medloop codebook merge rule_01a1dee4 rule_01a1df00 --user dr.li
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        first, second = codebook.get_entry(store, entry), codebook.get_entry(store, other)
        revised = work.merge_entries(store, first, second, actor=person.user_id, author=person.user_id)
    ui.say(f"{revised.entry_id} has revision {revised.revision}, which would replace {second.entry_id}.")
    ui.next_step(f"codebook try {revised.entry_id}")


@codebook_app.command("retire")
def retire(entry: EntryId, user: UserName, reason: Reason) -> None:
    """Take an entry out of the codebook, as a clinician or an admin. It stays readable; a rollback brings it back.

    Example:  medloop codebook retire rule_01a1dee4 --reason "The new guideline says otherwise." --user dr.li
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        found = codebook.get_entry(store, entry)
        version = codebook.retire(store, found.entry_id, by=person.user_id, reason=reason)
    say_version(version)


@codebook_app.command("rollback")
def rollback(
    version: Annotated[int, typer.Argument(min=0, help="The version to go back to, from 'medloop codebook history'.")],
    user: UserName,
    reason: Reason,
) -> None:
    """Make the codebook what it was in an earlier version, as a clinician or an admin. The next answer uses it.

    Example:  medloop codebook rollback 3 --reason "Version 4 confused patients." --user dr.li
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        made = codebook.rollback(store, version, by=person.user_id, reason=reason)
    say_version(made)


@codebook_app.command("history")
def history(json_: ui.AsJson = False) -> None:
    """List the versions of the codebook, newest first: what changed, who decided, why.

    Example:  medloop codebook history
    """
    with open_store(ui.settings()) as store:
        rows, names = codebook.versions(store), users.names(store)
    if json_:
        ui.say_json([row.model_dump(mode="json", exclude_none=True) for row in rows])
        return
    if not rows:
        ui.say("The codebook has no version yet: nothing was approved.")
        return
    cells = [(str(row.version), f"{row.timestamp:%Y-%m-%d %H:%M}", row.action, row.entry_id or "", str(len(row.revisions)),
              names.get(row.actor, row.actor), row.sha256[7:19], ui.printable(row.reason)) for row in rows]  # fmt: skip
    ui.table(("version", "time (UTC)", "change", "entry", "live", "by", "hash", "reason"), cells)


@codebook_app.command("examples")
def examples(
    most: Annotated[int, typer.Option(min=1, max=200, help="At most this many proposals.")] = 20, json_: ui.AsJson = False
) -> None:
    """Propose few-shot examples from corrected and liked answers; they are approved like rules.

    Example:  medloop codebook examples --most 10
    """
    with open_store(ui.settings()) as store:
        proposals = propose_examples(store, actor=actor(), most=most)
    say_proposals(proposals, json_)


@codebook_app.command("prompt")
def prompt(
    user: UserName,
    site: Annotated[str, typer.Option(help="The site whose prompt it is, made from its own corrections.")] = EVERY_SITE,
    teacher: Teacher = True,
    json_: ui.AsJson = False,
) -> None:
    """Propose a new system prompt from the mistakes that experts corrected; it is tried and approved like a rule.

    Example:  medloop codebook prompt --user dr.li
    """
    settings = ui.settings()
    with open_store(settings) as store:
        person = logged_in(store, user)
        writer = teacher_writer(settings) if teacher else None
        write, by = writer.prompt if writer else None, person.user_id
        entry = propose_prompt(store, actor=by, author=by, writer=write, site=site)
    say_proposals(work.Proposals(entries=[entry]), json_)


@codebook_app.command("promote")
def promote_(entry: EntryId, user: UserName) -> None:
    """Retire a proven rule that the live model has learnt: liked, in training data, and not needed on the regression set.

    Example:  medloop codebook promote rule_01a1dee4 --user dr.li
    """
    settings = ui.settings()
    with open_store(settings) as store:
        person = logged_in(store, user)
        count_votes(store, actor=person.user_id)
        version, trial = promote(settings, store, codebook.get_entry(store, entry), by=person.user_id)
    say_trial(trial)
    say_version(version)


@codebook_app.command("export")
def export(file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Where the rules are written.")]) -> None:
    """Write the words of the live rules as JSON lines, for 'medloop eval --model NAME,codebook=FILE.jsonl'.

    The file has no vetted sentences and no guard: 'medloop eval --model NAME,codebook=live' examines what users get.

    Example:  medloop codebook export rules.jsonl
    """
    with open_store(ui.settings()) as store:
        current, counts = codebook.live(store), codebook_votes.counts(store)
    rules = [work.as_rule(entry, counts.get(entry.entry_id)) for entry in current.entries if entry.kind == "rule"]
    if not rules:
        raise ResultError("No rule of the codebook is live", "Approve one first: medloop codebook list --state proposed")
    jsonl.write(file, (rule.model_dump(mode="json", exclude_none=True) for rule in rules))
    ui.say(f"{len(rules)} rules of version {current.version} are in {ui.shown(file)}.")


def _reflector(settings: Settings, teacher: bool) -> work.Reflector | None:
    writer = teacher_writer(settings) if teacher else None
    return writer.rule if writer else None


def _acts(names: list[str] | None) -> tuple[str, ...] | None:
    """What --forbid names; `none` is an empty list."""
    if names is None or names == ["none"]:
        return None if names is None else ()
    if unknown := [name for name in names if name not in FORBIDDEN_ACTS]:
        raise ConfigError(f"--forbid is '{unknown[0]}', which no detector knows", f"Known: {', '.join(FORBIDDEN_ACTS)}")
    return tuple(names)


def _last_moment(day: datetime | None) -> datetime | None:
    return None if day is None else day.replace(hour=23, minute=59, second=59, tzinfo=UTC)
