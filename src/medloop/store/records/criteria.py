"""Criteria from corrections in the store: drafts, and what the authors of the corrections made of them.

    add_drafts(store, [CorrectionCriterion(...)], actor="usr_1")     # nothing uses a draft
    accept(store, "crit_…", by="usr_1")                              # evaluation, gate and reward use it
    edit(store, "crit_…", by="usr_1", points=5.0)                    # a new criterion in place of this one, accepted
    drop(store, "crit_…", by="usr_1")

The author of the correction decides; where nobody of this workspace wrote it, their account is closed, or their role is none of
REVIEWERS, any clinician. Rows are added and change their state, never their words. The audit log has ids and numbers, no words.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Select, insert, or_, select, update

from medloop.contracts import AuditEvent, CorrectionCriterion, CriterionText, utc_now, uuid7
from medloop.contracts.criterion import CriterionState
from medloop.errors import InputError, ResultError
from medloop.knobs import problem_text
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records.content_rows import open_rows
from medloop.store.records.crud import encrypt_columns
from medloop.store.tables import rubric_criteria, users

DRAFTERS = ("clinician", "annotator", "engineer", "admin")
REVIEWERS = ("clinician", "annotator")
STANDS_IN = "clinician"  # where the author cannot decide any more
OPEN = ("draft", "accepted")  # states in which a criterion can still be changed
LIST = "'medloop rubric list' shows all"
_NOT_IN_RECORD = {"id", "key_id", "text_key", "mac", "content"}


class NoSuchCriterionError(InputError):
    """There is no such criterion."""


class CriterionPersonError(InputError):
    """This person may not decide about this criterion."""


class CriterionDecidedError(ResultError):
    """The criterion was dropped or replaced before."""


def list_criteria(
    store: Store,
    *,
    state: CriterionState | None = None,
    correction_ids: Iterable[str] | None = None,
    author: str | None = None,
) -> list[CorrectionCriterion]:
    """Newest first."""
    query = select(rubric_criteria).order_by(rubric_criteria.c.id.desc())
    if state is not None:
        query = query.where(rubric_criteria.c.state == state)
    if author is not None:
        query = query.where(rubric_criteria.c.author == author)
    if correction_ids is not None:
        query = query.where(rubric_criteria.c.correction_id.in_(list(correction_ids)))
    return _read(store, query)


def known_corrections(store: Store) -> set[str]:
    """The corrections that have criteria, of whatever state."""
    with store.read() as conn:
        return set(conn.execute(select(rubric_criteria.c.correction_id).distinct()).scalars())


def untouched_corrections(store: Store) -> list[str]:
    """The corrections that have only drafts of the detectors, which nobody decided about; oldest first."""
    with store.read() as conn:
        touched = _touched(conn)
        every = conn.execute(select(rubric_criteria.c.correction_id).order_by(rubric_criteria.c.id)).scalars()
        return [name for name in dict.fromkeys(every) if name not in touched]


def _touched(conn: Connection) -> set[str]:
    by_hand = or_(rubric_criteria.c.state != "draft", rubric_criteria.c.maker != "template")
    return set(conn.execute(select(rubric_criteria.c.correction_id).where(by_hand)).scalars())


def has_accepted(store: Store) -> bool:
    with store.read() as conn:
        accepted = select(rubric_criteria.c.id).where(rubric_criteria.c.state == "accepted")
        return conn.execute(accepted.limit(1)).first() is not None


def get_criterion(store: Store, name: str) -> CorrectionCriterion:
    """By its id, or the end of it of at least 6 characters."""
    table = rubric_criteria
    rows = _read(store, select(table).where(table.c.criterion_id == name))
    if not rows and len(name) >= 6:
        rows = _read(store, select(table).where(table.c.criterion_id.endswith(name, autoescape=True)))
    if len(rows) != 1:
        problem = "fits several criteria" if rows else "is not the id of a criterion"
        raise NoSuchCriterionError(f"'{name[:80]}' {problem}", LIST)
    return rows[0]


def add_drafts(store: Store, drafts: Sequence[CorrectionCriterion], *, actor: str) -> list[CorrectionCriterion]:
    """Add drafts in one transaction; a correction that has criteria by now gets no second set.

    Only the teacher's may come later, beside drafts that nobody decided about.
    """
    with store.write() as conn:
        known, touched = set(conn.execute(select(rubric_criteria.c.correction_id).distinct()).scalars()), _touched(conn)
        late = {draft.correction_id for draft in drafts} - {draft.correction_id for draft in drafts if draft.maker == "template"}
        closed = touched | (known - late)
        new = [draft.model_copy(update={"state": "draft"}) for draft in drafts if draft.correction_id not in closed]
        for draft in new:
            _insert(store, conn, draft)
            _note(conn, actor, "rubric.draft", draft)
    return new


def accept(store: Store, criterion_id: str, *, by: str) -> CorrectionCriterion:
    """From now on evaluation, gate and reward use it."""
    return _decide(store, criterion_id, by, "accepted", "rubric.accept")


def drop(store: Store, criterion_id: str, *, by: str) -> CorrectionCriterion:
    """Nothing uses it; it stays readable."""
    return _decide(store, criterion_id, by, "dropped", "rubric.drop")


def edit(store: Store, criterion_id: str, *, by: str, content: CriterionText, **changes: Any) -> CorrectionCriterion:
    """A new criterion in place of this one. The person who may decide wrote it, so it is accepted."""
    with store.write() as conn:
        before = _open_one(store, criterion_id)
        _check_person(conn, by, before)
        values = before.model_dump(exclude={"content"}) | changes
        values |= {
            "criterion_id": f"crit_{uuid7()}", "content": content, "state": "accepted", "maker": "person",
            "supersedes": before.criterion_id, "reviewer": by, "reviewed": utc_now(), "timestamp": utc_now(),
        }  # fmt: skip
        try:
            made = CorrectionCriterion.model_validate(values)
        except ValidationError as error:
            raise InputError(f"Not a criterion: {problem_text(error.errors()[0])}", "Points go from -10 to 10") from None
        _set(conn, before.criterion_id, state="replaced", reviewer=by, reviewed=utc_now())
        _insert(store, conn, made)
        _note(conn, by, "rubric.edit", made, replaces=before.criterion_id)
    return made


def may_decide(store: Store, criterion: CorrectionCriterion, user_id: str) -> bool:
    with store.read() as conn:
        return _why_not(conn, user_id, criterion) is None


def _decide(store: Store, criterion_id: str, by: str, state: CriterionState, action: str) -> CorrectionCriterion:
    with store.write() as conn:
        criterion = _open_one(store, criterion_id)
        _check_person(conn, by, criterion)
        if criterion.state == state:
            raise CriterionDecidedError(f"{criterion.criterion_id} is {state} already", LIST)
        _set(conn, criterion.criterion_id, state=state, reviewer=by, reviewed=utc_now())
        _note(conn, by, action, criterion)
    return get_criterion(store, criterion_id)


def _open_one(store: Store, criterion_id: str) -> CorrectionCriterion:
    criterion = get_criterion(store, criterion_id)
    if criterion.state not in OPEN:
        raise CriterionDecidedError(f"{criterion.criterion_id} was {criterion.state} before", LIST)
    return criterion


def _check_person(conn: Connection, user_id: str, criterion: CorrectionCriterion) -> None:
    if why := _why_not(conn, user_id, criterion):
        raise CriterionPersonError(why, "Criteria are decided by the author of their correction")


def _why_not(conn: Connection, user_id: str, criterion: CorrectionCriterion) -> str | None:
    """Why this person may not decide about a criterion; None where they may."""
    people = {
        row.user_id: row
        for row in conn.execute(
            select(users.c.user_id, users.c.role, users.c.disabled, users.c.requested_by).where(
                users.c.user_id.in_([user_id, criterion.author])
            )
        )
    }
    active = {name: row.role for name, row in people.items() if not row.disabled and row.requested_by is None}
    if user_id not in active:
        return "Only an active user of this workspace can do this"
    if active.get(criterion.author) not in REVIEWERS:
        return None if active[user_id] == STANDS_IN else f"Your role ({active[user_id]}) cannot decide about criteria"
    return None if user_id == criterion.author else "Somebody else wrote this correction"


def _insert(store: Store, conn: Connection, criterion: CorrectionCriterion) -> None:
    key = store.keys.writing(conn).for_row(None, criterion.criterion_id)
    sealed = encrypt_columns(rubric_criteria, key, criterion.criterion_id, {"content": _sealed(criterion.content)})
    conn.execute(insert(rubric_criteria).values(**criterion.model_dump(exclude={"content"}), **key.columns, **sealed))


def _sealed(content: CriterionText) -> dict[str, Any]:
    """Medloop's own words lie under `standard`: an erasure does not look for copies of them."""
    words = content.model_dump(mode="json", exclude={"question", "standard"}, exclude_none=True)
    return {"question": content.question, **({"standard": words} if content.standard else words)}


def _opened(value: Mapping[str, Any]) -> CriterionText:
    words = value.get("standard")
    if words is not None:
        return CriterionText(question=value["question"], standard=True, **words)
    return CriterionText(**value)


def _set(conn: Connection, criterion_id: str, **values: Any) -> None:
    conn.execute(update(rubric_criteria).where(rubric_criteria.c.criterion_id == criterion_id).values(**values))


def _note(conn: Connection, actor: str, action: str, criterion: CorrectionCriterion, **more: str) -> None:
    detail: dict[str, str | int | float | bool] = {
        "correction": criterion.correction_id, "points": criterion.points, "critical": criterion.critical, **more,
    }  # fmt: skip
    audit.append(conn, AuditEvent(actor=actor, action=action, subject=criterion.criterion_id, detail=detail))


def _read(store: Store, query: Select[Any]) -> list[CorrectionCriterion]:
    return [_criterion(row, content) for row, content in open_rows(store, rubric_criteria, query)]


def _criterion(row: Row[Any], content: bytes) -> CorrectionCriterion:
    values = {name: value for name, value in row._mapping.items() if name not in _NOT_IN_RECORD}
    return CorrectionCriterion.model_validate({**values, "content": _opened(json.loads(content))})
