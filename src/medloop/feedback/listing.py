"""Records in pages and as files, filtered by choices only: no column name and no condition ever comes from a request.

    page = listed(store, Feedback, FeedbackFilter(thumb="down"), Reader("usr_1", own_only=True, texts=True))
    page.items, page.next                            # `next` is the `after` of the next page

A reader who may see texts gets them after an audit line says so (`reading`, stored before the page leaves); others get ids,
numbers and times. The rows of a page are read in one go, so that a page is one moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from sqlalchemy import Select, Table, select

from medloop.contracts import AuditEvent, Contract, Correction, Feedback, Preference, canonical_json
from medloop.contracts.feedback import FeedbackType
from medloop.errors import InputError
from medloop.feedback.submit.bodies import Id
from medloop.store.db import Store
from medloop.store.files import spreadsheet
from medloop.store.records import crud
from medloop.store.tables import encrypted_columns, natural_id, tombstones

Json = dict[str, Any]
KINDS: dict[str, type[Contract]] = {"feedback": Feedback, "preference": Preference, "correction": Correction}
EXPORT_PAGE = 500
_HIDDEN = {"id", "key_id", "subject"}


class Filter(BaseModel):
    """What every kind can be filtered by; all given conditions hold together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime | None = Field(None, description="Recorded at or after this time.")
    until: AwareDatetime | None = Field(None, description="Recorded before this time.")
    processed: bool | None = Field(None, description="Whether a training set has taken it.")
    trace_id: Id | None = None


class FeedbackFilter(Filter):
    rating: Annotated[int, Field(ge=1, le=5)] | None = None
    thumb: Literal["up", "down"] | None = None
    feedback_type: FeedbackType | None = None
    critical: bool | None = None


class PreferenceFilter(Filter):
    preferred: Literal["a", "b"] | None = None
    shown_first: Literal["a", "b"] | None = None


class CorrectionFilter(Filter):
    feedback_id: Id | None = None


@dataclass(frozen=True)
class Reader:
    """Who looks: only at their own records or at all, with the texts or without."""

    user_id: str
    own_only: bool
    texts: bool


@dataclass(frozen=True)
class Page:
    items: list[Json]
    next: str | None


def listed(
    store: Store, kind: type[Contract], wanted: Filter, reader: Reader, *, after: str | None = None, limit: int = 50,
    newest: bool = True,
) -> Page:  # fmt: skip
    """Up to `limit` records after the one named `after`, newest first unless told otherwise."""
    table = crud.TABLES[kind]
    query = _query(table, wanted, reader)
    name = table.c[natural_id(table)]
    with store.read() as conn:
        if after is not None:
            at = conn.execute(_query(table, Filter(), reader, table.c.id).where(name == after)).scalar()
            if at is None:
                raise InputError("'after' names no record", "Send the 'next' of the page before")
            query = query.where(table.c.id < at if newest else table.c.id > at)
        order = table.c.id.desc() if newest else table.c.id
        rows = conn.execute(query.order_by(order).limit(limit + 1)).all()
        items = [_shown(store, conn, table, row, reader) for row in rows[:limit]]
    return Page(items, items[-1][name.name] if len(rows) > limit else None)


def one(store: Store, kind: type[Contract], record_id: str, reader: Reader) -> Json | None:
    """One record as this reader may see it; None when there is none for them."""
    table = crud.TABLES[kind]
    with store.read() as conn:
        row = conn.execute(_query(table, Filter(), reader).where(table.c[natural_id(table)] == record_id)).first()
        return None if row is None else _shown(store, conn, table, row, reader)


def reading(kind: type[Contract], reader: Reader, items: list[Json], purpose: str) -> AuditEvent | None:
    """The line to be written before these texts are handed out; None when there are none."""
    if not reader.texts or not items:
        return None
    table = crud.TABLES[kind]
    subject = items[0][natural_id(table)] if len(items) == 1 else table.name
    return AuditEvent(
        actor=reader.user_id, action=f"{table.name}.read", subject=subject, detail={"purpose": purpose, "rows": len(items)}
    )


def export(
    store: Store, kind: type[Contract], wanted: Filter, reader: Reader, *, form: Literal["jsonl", "csv"],
    note: Callable[[AuditEvent], object],
) -> Iterator[str]:  # fmt: skip
    """The whole list as a file, oldest first, page by page; `note` is called with the audit line of a page before it leaves."""
    header, after, first = columns(kind, reader), None, True
    while first or after is not None:
        page = listed(store, kind, wanted, reader, after=after, limit=EXPORT_PAGE, newest=False)
        event = reading(kind, reader, page.items, "export")
        if event is not None:
            note(event)
        if form == "csv":
            yield spreadsheet.to_csv(header, (_flat(item) for item in page.items), headed=first)
        else:
            yield "".join(canonical_json(item) + "\n" for item in page.items)
        after, first = page.next, False


def columns(kind: type[Contract], reader: Reader) -> list[str]:
    """What a row of the list has, in the table's order."""
    table = crud.TABLES[kind]
    hidden = _HIDDEN if reader.texts else _HIDDEN | set(encrypted_columns(table))
    return [name for name in table.columns.keys() if name not in hidden]


def _query(table: Table, wanted: Filter, reader: Reader, *what: Any) -> Select[Any]:
    alive = table.c[natural_id(table)].not_in(select(tombstones.c.record_id))  # an erased record that came back is not shown
    query = (select(*what) if what else select(table)).where(alive)
    if reader.own_only:
        query = query.where(table.c.recorded_by == reader.user_id)
    for name, value in wanted.model_dump(exclude_none=True).items():  # names are fields of our own models
        if name == "since":
            query = query.where(table.c.timestamp >= value)
        elif name == "until":
            query = query.where(table.c.timestamp < value)
        else:
            query = query.where(table.c[name] == value)
    return query


def _shown(store: Store, conn: Any, table: Table, row: Any, reader: Reader) -> Json:
    said = {name: value for name, value in row._mapping.items() if name not in _HIDDEN}
    for name in encrypted_columns(table):
        said.pop(name)
    if reader.texts:
        opened = crud.open_row(table, row, store.keys.reading(conn, row.key_id))
        said |= dict.fromkeys(encrypted_columns(table)) | {name: json.loads(text) for name, text in opened.items()}
    return {name: _plain(said[name]) for name in table.columns.keys() if name in said}


def _plain(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _flat(item: Mapping[str, Any]) -> Json:
    """A cell holds one value: lists and dicts as JSON."""
    return {name: canonical_json(value) if isinstance(value, dict | list) else value for name, value in item.items()}
