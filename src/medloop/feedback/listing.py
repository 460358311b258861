"""Records in pages and as files, filtered by choices only: no column name and no condition ever comes from a request.

    page = listed(store, Feedback, FeedbackFilter(thumb="down"), Reader("usr_1", own_only=True, texts=True))
    page.items, page.next                            # `next` is the `after` of the next page

A reader who may see texts gets them after an audit line says so (`reading`, stored before the page leaves); others get ids,
numbers and times. The rows of a page are read in one go, so that a page is one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from medloop.contracts import AuditEvent, Contract, Correction, Feedback, Preference, canonical_json
from medloop.contracts.feedback import FeedbackType
from medloop.feedback.submit.bodies import Id
from medloop.store.db import Store
from medloop.store.files import spreadsheet
from medloop.store.records import crud, record_pages
from medloop.store.tables import natural_id

Json = dict[str, Any]
KINDS: dict[str, type[Contract]] = {"feedback": Feedback, "preference": Preference, "correction": Correction}
EXPORT_PAGE = 500


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

    @property
    def sender(self) -> str | None:
        """Whose records they may see; None for everybody's."""
        return self.user_id if self.own_only else None


@dataclass(frozen=True)
class Page:
    items: list[Json]
    next: str | None


def listed(
    store: Store, kind: type[Contract], wanted: Filter, reader: Reader, *, after: str | None = None, limit: int = 50,
    newest: bool = True,
) -> Page:  # fmt: skip
    """Up to `limit` records after the one named `after`, newest first unless told otherwise."""
    items, more = record_pages.page(
        store, kind, wanted.model_dump(exclude_none=True), sender=reader.sender, texts=reader.texts, after=after, limit=limit,
        newest_first=newest,
    )  # fmt: skip
    return Page(items, items[-1][natural_id(crud.TABLES[kind])] if more else None)


def one(store: Store, kind: type[Contract], record_id: str, reader: Reader) -> Json | None:
    """One record as this reader may see it; None when there is none for them."""
    return record_pages.get(store, kind, record_id, sender=reader.sender, texts=reader.texts)


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
    header, after, first = record_pages.columns(kind, texts=reader.texts), None, True
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


def _flat(item: Mapping[str, Any]) -> Json:
    """A cell holds one value: lists and dicts as JSON."""
    return {name: canonical_json(value) if isinstance(value, dict | list) else value for name, value in item.items()}
