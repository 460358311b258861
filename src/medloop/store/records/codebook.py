"""The codebook in the store: entries with all their revisions, and the versions that say which of them are live.

    entry = propose(store, CodebookEntry(content=EntryText(text="…"), author="usr_1"), actor="usr_1")    # changes no answer yet
    approve(store, entry.revision_id, by="usr_2", check=Check(trial=…))                                   # the next answer has it
    retire(store, entry.entry_id, by="usr_2", reason="…")
    rollback(store, 3, by="usr_2", reason="…")                                                            # as it was in version 3
    live(store)                                                                                           # what answers use now

Rows are added, never removed (an erasure removes the entries that came from an erased record). Every version is a list of
revisions; its hash is that of the words which can change an answer. Who may do what is checked here, in the transaction of the
change, so it holds for every door. The audit log has ids and counts, no words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from medloop.contracts import (
    AuditEvent,
    CodebookEntry,
    CodebookTrial,
    CodebookVersion,
    EntryText,
    canonical_json,
    sha256_id,
    utc_now,
)
from medloop.contracts.rule import EVERY_SITE, LAY_MARK, EntryKind, EntryState, VersionAction
from medloop.errors import InputError, ResultError
from medloop.lexicon.load import lay_words_sha256
from medloop.privacy.phi.reason import kept_text
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records.content_rows import open_rows
from medloop.store.records.crud import encrypt_columns
from medloop.store.records.gate_people import check_person
from medloop.store.tables import codebook_entries, codebook_trials, codebook_versions

PROPOSERS = ("clinician", "annotator", "engineer", "admin")
APPROVERS = ("clinician",)
RETIRERS = ("clinician", "admin")
UNCRITICAL_SCOPES = ("routine", "general")  # cases of any other are critical in a trial
MOST_REASON = 500  # characters
LIST = "'medloop codebook list' shows all"
_NOT_IN_ENTRY = {"id", "key_id", "text_key", "mac", "content"}


class NoSuchEntryError(InputError):
    """The codebook has no such entry, revision or version."""


class CodebookPersonError(InputError):
    """This person may not propose, approve or retire this."""


class CodebookRefusedError(ResultError):
    """A trial, a conflict or an earlier decision speaks against this change."""


@dataclass(frozen=True)
class LiveCodebook:
    """What answers use now."""

    version: int
    sha256: str
    entries: tuple[CodebookEntry, ...] = ()


@dataclass(frozen=True)
class ApprovalCheck:
    """What speaks for and against an approval: the trial on the regression set, and the entries that contradict it."""

    trial: CodebookTrial | None
    conflicts: tuple[str, ...] = ()

    @property
    def objection(self) -> str | None:
        if self.conflicts:
            return f"it contradicts {', '.join(self.conflicts)}"
        if self.trial is None:
            return "it was not tried on the regression set"
        worse = self.trial.count(before=True, after=False)
        if self.trial.verdict == "critical":
            return f"{worse} cases of the regression set get worse, critical ones among them"
        if self.trial.verdict == "worse":
            return f"{worse} cases of the regression set get worse, more than get better"
        return None

    @property
    def needs_reason(self) -> str | None:
        """What an approval has to answer for, though one person is enough."""
        if self.trial is None or not self.trial.lowers_quality:
            return None
        return f"ordinary answers get worse: {self.trial.quality_change:+.2f} on {self.trial.ordinary} questions that it reaches"


# Reading


def entries(store: Store, *, state: EntryState | None = None, kind: EntryKind | None = None) -> list[CodebookEntry]:
    """The newest revision of every entry, newest first; all revisions that wait where `state` is `proposed`."""
    rows = _read(store, select(codebook_entries).order_by(codebook_entries.c.id.desc()))
    shown: dict[str, CodebookEntry] = {}
    for entry in rows:
        key = entry.revision_id if entry.state == "proposed" else entry.entry_id
        shown.setdefault(key, entry)
    return [entry for entry in shown.values() if state in (None, entry.state) and kind in (None, entry.kind)]


def revisions(store: Store, entry_id: str) -> list[CodebookEntry]:
    """All revisions of one entry, newest first."""
    mine = codebook_entries.c.entry_id == entry_id
    return _read(store, select(codebook_entries).where(mine).order_by(codebook_entries.c.revision.desc()))


def get_entry(store: Store, name: str) -> CodebookEntry:
    """The newest revision of an entry, by the id of the entry or of a revision, or the end of one of at least 6 characters."""
    table = codebook_entries
    exact = (table.c.revision_id == name) | (table.c.entry_id == name)
    rows = _read(store, select(table).where(exact).order_by(table.c.id.desc()))
    if not rows and len(name) >= 6:
        alike = table.c.revision_id.endswith(name, autoescape=True) | table.c.entry_id.endswith(name, autoescape=True)
        rows = _read(store, select(table).where(alike).order_by(table.c.id.desc()))
    if len({entry.entry_id for entry in rows}) != 1:
        problem = "fits several entries" if rows else "is not the id of an entry"
        raise NoSuchEntryError(f"'{name[:80]}' {problem} of the codebook", LIST)
    return next((entry for entry in rows if entry.revision_id == name), rows[0])


def by_evidence(store: Store, record_ids: Iterable[str]) -> list[CodebookEntry]:
    """The revisions that came from one of these records, newest first."""
    wanted = set(record_ids)
    return [entry for entry in _read(store, select(codebook_entries).order_by(codebook_entries.c.id.desc()))
            if wanted & set(entry.evidence)]  # fmt: skip


def live(store: Store, *, now: datetime | None = None) -> LiveCodebook:
    """The newest version, without entries that have expired or were erased since."""
    newest = next(iter(versions(store, limit=1)), None)
    if newest is None:
        return LiveCodebook(0, sha256_of(()))
    now, kept = now or utc_now(), _by_id(store, newest.revisions)
    current = tuple(kept[name] for name in newest.revisions if name in kept and not kept[name].is_expired(now))
    return LiveCodebook(newest.version, sha256_of(current), current)


def at_site(current: Iterable[CodebookEntry], site: str) -> tuple[CodebookEntry, ...]:
    """The entries that change answers at a site: its own first, because its system prompt goes before that of all sites."""
    holds = [entry for entry in current if entry.site in (site, EVERY_SITE)]
    return tuple(sorted(holds, key=lambda entry: entry.site == EVERY_SITE))


def live_key(store: Store) -> tuple[int, int, int]:
    """Changes whenever the codebook may have changed; cheap enough to ask before every answer.

    Ids are never given twice, so an erasure and a new proposal between two looks do not cancel out.
    """
    with store.read() as conn:
        version = conn.execute(select(func.max(codebook_versions.c.id))).scalar()
        rows = select(func.count(), func.max(codebook_entries.c.id)).select_from(codebook_entries)
        count, newest = conn.execute(rows).one()
        return version or 0, count, newest or 0


def sha256_of(current: Sequence[CodebookEntry]) -> str:
    """Of the words that can change an answer, and of the lists that a trigger with `≈` stands for."""
    words = sorted(entry.words_sha256 for entry in current)
    is_lay = any(LAY_MARK in trigger for entry in current for trigger in entry.content.triggers)
    return sha256_id(canonical_json([*words, *((lay_words_sha256(),) if is_lay else ())]))


def versions(store: Store, *, limit: int = 100) -> list[CodebookVersion]:
    """Newest first."""
    query = select(codebook_versions).order_by(codebook_versions.c.version.desc()).limit(limit)
    return [_version(row) for row in genuine_rows(store, codebook_versions, query)]


def get_version(store: Store, number: int) -> CodebookVersion:
    query = select(codebook_versions).where(codebook_versions.c.version == number)
    rows = genuine_rows(store, codebook_versions, query)
    if not rows:
        raise NoSuchEntryError(f"The codebook has no version {number}", "'medloop codebook history' shows all")
    return _version(rows[0])


def trials(store: Store, revision_id: str) -> list[CodebookTrial]:
    """The trials of a revision, newest first."""
    mine = codebook_trials.c.revision_id == revision_id
    query = select(codebook_trials).where(mine).order_by(codebook_trials.c.id.desc())
    return [_trial(row) for row in genuine_rows(store, codebook_trials, query)]


# Changing


def propose(store: Store, entry: CodebookEntry, *, actor: str) -> CodebookEntry:
    """Add a proposal; the next revision of its entry if there is one already. No answer changes."""
    with store.write() as conn:
        mine = codebook_entries.c.entry_id == entry.entry_id
        last = conn.execute(select(func.max(codebook_entries.c.revision)).where(mine)).scalar() or 0
        entry = entry.model_copy(update={"revision": last + 1, "state": "proposed"})
        key = store.keys.writing(conn).for_row(None, entry.revision_id)
        values = entry.model_dump(exclude={"content"})
        sealed = encrypt_columns(
            codebook_entries, key, entry.revision_id, {"content": entry.content.model_dump(mode="json")}
        )  # fmt: skip
        conn.execute(insert(codebook_entries).values(**values, **key.columns, **sealed))
        detail: dict[str, str | int | float | bool] = {
            "entry": entry.entry_id, "revision": entry.revision, "kind": entry.kind, "scope": entry.scope,
            "evidence": len(entry.evidence),
        }  # fmt: skip
        audit.append(conn, AuditEvent(actor=actor, action="codebook.propose", subject=entry.revision_id, detail=detail))
    return entry


def approve(
    store: Store, revision_id: str, *, by: str, check: ApprovalCheck, reason: str = "", action: VersionAction = "approve"
) -> CodebookVersion | None:
    """Make a proposal live. Where something speaks against it, two people have to want it, each with a reason.

    None: the first of the two has asked, and the proposal waits for the second.
    """
    if check.needs_reason and not reason.strip():
        raise CodebookRefusedError(f"It is not live: {check.needs_reason}", "Narrow its triggers, or approve it with a reason")
    reason = checked_reason(reason, required=check.objection is not None)
    with store.write() as conn:
        entry = _proposal(store, revision_id)
        role = _check_person(conn, by, APPROVERS, "approve entries of the codebook")
        if by in authors(store, entry):  # of any revision: a merge or an edit gives an entry another author and keeps the words
            raise CodebookPersonError("You wrote this entry, or a part of it", "Another clinician has to approve it")
        if check.trial is not None and (check.trial.revision_id, check.trial.codebook) != (revision_id, live(store).sha256):
            raise CodebookRefusedError("The codebook has changed since the trial", f"Run: medloop codebook try {revision_id}")
        if check.objection is not None and (entry.approver is None or entry.approver == by):
            _set(conn, revision_id, approver=by, override=reason)
            _note(conn, by, "codebook.ask", revision_id, role=role)
            return None
        second = by if check.objection is not None else None
        first = entry.approver if second else by
        current = live(store)
        gone = {entry.entry_id, *entry.supersedes}
        if entry.kind == "prompt":
            gone |= {other.entry_id for other in current.entries if other.kind == "prompt" and other.site == entry.site}
        stays = [other for other in current.entries if other.entry_id not in gone]
        _retire_rows(conn, [other.revision_id for other in current.entries if other.entry_id in gone])
        _set(conn, revision_id, state="active", approver=first, second=second, approved=utc_now())
        trial_id = None if check.trial is None else check.trial.trial_id
        action = "merge" if action == "approve" and entry.supersedes else action
        return _add_version(conn, [*stays, entry], action, entry.entry_id, by, reason, trial_id)


def authors(store: Store, entry: CodebookEntry) -> frozenset[str]:
    """Everybody who wrote a revision of this entry, or of one that it replaces."""
    mine = codebook_entries.c.entry_id.in_([entry.entry_id, *entry.supersedes])
    return frozenset(one.author for one in _read(store, select(codebook_entries).where(mine)))


def refuse(store: Store, revision_id: str, *, by: str, reason: str = "") -> CodebookEntry:
    """Decide that a proposal does not become a part of the codebook."""
    with store.write() as conn:
        entry = _proposal(store, revision_id)
        _check_person(conn, by, APPROVERS, "refuse entries of the codebook")
        _set(conn, revision_id, state="refused", approver=by, override=checked_reason(reason), approved=utc_now())
        _note(conn, by, "codebook.refuse", revision_id, entry=entry.entry_id)
    return get_entry(store, revision_id)


def retire(
    store: Store, entry_id: str, *, by: str, reason: str, action: VersionAction = "retire", trial_id: str | None = None
) -> CodebookVersion:
    """Take a live entry out of the codebook; it stays readable, and a rollback brings it back."""
    reason = checked_reason(reason, required=True)
    with store.write() as conn:
        _check_person(conn, by, RETIRERS, "retire entries of the codebook")
        current = live(store)
        mine = [entry for entry in current.entries if entry.entry_id == entry_id]
        if not mine:
            raise NoSuchEntryError(f"{entry_id} is not live", "'medloop codebook list --state active' shows what is")
        _retire_rows(conn, [entry.revision_id for entry in mine])
        stays = [entry for entry in current.entries if entry.entry_id != entry_id]
        return _add_version(conn, stays, action, entry_id, by, reason, trial_id)


def rollback(store: Store, number: int, *, by: str, reason: str) -> CodebookVersion:
    """The codebook as it was in an earlier version, as a new version; what was erased since does not come back."""
    reason = checked_reason(reason, required=True)
    with store.write() as conn:
        _check_person(conn, by, RETIRERS, "roll back the codebook")
        earlier = _by_id(store, get_version(store, number).revisions) if number else {}
        _retire_rows(conn, [entry.revision_id for entry in live(store).entries if entry.revision_id not in earlier])
        for revision_id in earlier:
            _set(conn, revision_id, state="active")
        return _add_version(conn, list(earlier.values()), "rollback", None, by, reason, None)


def save_trial(store: Store, trial: CodebookTrial) -> CodebookTrial:
    cases = {"version": trial.version, "cases": [case.model_dump(mode="json") for case in trial.cases]}
    with store.write() as conn:
        conn.execute(insert(codebook_trials).values(**trial.model_dump(exclude={"cases", "version"}), cases=cases))
        detail: dict[str, str | int | float | bool] = {
            "revision": trial.revision_id, "verdict": trial.verdict, "cases": len(trial.cases),
        }  # fmt: skip
        audit.append(conn, AuditEvent(actor=trial.actor, action="codebook.try", subject=trial.trial_id, detail=detail))
    return trial


def checked_reason(text: str, *, required: bool = False) -> str:
    """A reason is kept for good and leaves with exports: it must not name a person."""
    text = " ".join(text.split())
    if required and not text:
        raise InputError("The reason is missing", "Write it, without names of patients")
    if len(text) > MOST_REASON:
        raise InputError(f"The reason has more than {MOST_REASON} characters", "Write it shorter")
    return kept_text(text)


def _proposal(store: Store, revision_id: str) -> CodebookEntry:
    entry = next(iter(_by_id(store, [revision_id]).values()), None)
    if entry is None:
        raise NoSuchEntryError(f"'{revision_id[:80]}' is not the id of a revision", LIST)
    if entry.state != "proposed":
        raise CodebookRefusedError(f"{revision_id} is {entry.state} already", LIST)
    return entry


def _add_version(
    conn: Connection,
    current: Sequence[CodebookEntry],
    action: VersionAction,
    entry_id: str | None,
    actor: str,
    reason: str,
    trial_id: str | None,
) -> CodebookVersion:
    number = (conn.execute(select(func.max(codebook_versions.c.version))).scalar() or 0) + 1
    version = CodebookVersion(
        version=number, sha256=sha256_of(current), revisions=tuple(entry.revision_id for entry in current), action=action,
        entry_id=entry_id, actor=actor, reason=reason, trial_id=trial_id,
    )  # fmt: skip
    name = f"codebook-{number}"
    conn.execute(insert(codebook_versions).values(version_id=name, **version.model_dump()))
    _note(conn, actor, f"codebook.{action}", name, entry=entry_id or "", sha256=version.sha256, entries=len(current))
    return version


def _note(conn: Connection, actor: str, action: str, subject: str, **detail: str | int | float | bool) -> None:
    audit.append(conn, AuditEvent(actor=actor, action=action, subject=subject, detail=detail))


def _set(conn: Connection, revision_id: str, **values: Any) -> None:
    conn.execute(update(codebook_entries).where(codebook_entries.c.revision_id == revision_id).values(**values))


def _retire_rows(conn: Connection, revision_ids: Sequence[str]) -> None:
    for revision_id in revision_ids:
        _set(conn, revision_id, state="retired")


def _check_person(conn: Connection, user_id: str, roles: tuple[str, ...], what: str) -> str:
    return check_person(conn, user_id, roles, what, CodebookPersonError)


def _by_id(store: Store, revision_ids: Sequence[str]) -> dict[str, CodebookEntry]:
    rows = _read(store, select(codebook_entries).where(codebook_entries.c.revision_id.in_(list(revision_ids))))
    return {entry.revision_id: entry for entry in rows}


def _read(store: Store, query: Select[Any]) -> list[CodebookEntry]:
    return [_entry(row, content) for row, content in open_rows(store, codebook_entries, query)]


def _entry(row: Row[Any], content: bytes) -> CodebookEntry:
    values = {name: value for name, value in row._mapping.items() if name not in _NOT_IN_ENTRY}
    return CodebookEntry.model_validate({**values, "content": EntryText.model_validate_json(content)})


def _version(row: Row[Any]) -> CodebookVersion:
    return CodebookVersion(**{name: row._mapping[name] for name in CodebookVersion.model_fields})


def _trial(row: Row[Any]) -> CodebookTrial:
    values = {name: row._mapping[name] for name in CodebookTrial.model_fields if name != "version"}
    stored = values["cases"]  # the cases alone in trials from before they had a version
    return CodebookTrial(**(values | (stored if isinstance(stored, dict) else {})))
