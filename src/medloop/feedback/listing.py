"""Records in pages and as files, filtered by fixed fields only: no column name and no condition ever comes from a request.

    page = list_records(store, Feedback, FeedbackFilter(thumb="down"), Reader("usr_1", own_only=True, texts=True))
    page.items, page.next                            # `next` is the `after` of the next page

A reader who may see texts gets them after an audit line is stored (`read_event`); others get ids, numbers and times. The rows of
a page are read at once, so that a page shows one moment.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import AuditEvent, Contract, Correction, Feedback, Preference, canonical_json
from medloop.contracts.base import Timestamp
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.feedback import ChoiceOutcome, FeedbackType, Side
from medloop.feedback.submit.bodies import Id
from medloop.store.db import Store
from medloop.store.files import spreadsheet
from medloop.store.records import crud, record_pages
from medloop.store.tables import natural_id

Json = dict[str, Any]
KINDS: dict[str, type[Contract]] = {"feedback": Feedback, "preference": Preference, "correction": Correction}
EXPORT_PAGE = 500


class RecordFilter(BaseModel):
    """Filters of every kind of record; all given conditions must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: Timestamp | None = Field(None, description="Said at or after this time.")
    until: Timestamp | None = Field(None, description="Said before this time.")
    processed: bool | None = Field(None, description="Whether a training set has used it.")
    trace_id: Id | None = None


class FeedbackFilter(RecordFilter):
    rating: Annotated[int, Field(ge=1, le=5)] | None = None
    thumb: Literal["up", "down"] | None = None
    feedback_type: FeedbackType | None = None
    critical: bool | None = None


class PreferenceFilter(RecordFilter):
    preferred: ChoiceOutcome | None = None
    shown_first: Side | None = None


class CorrectionFilter(RecordFilter):
    feedback_id: Id | None = None


@dataclass(frozen=True)
class Reader:
    """Who reads: only their own records or all, with the texts or without; of another site than main, only what came from it."""

    user_id: str
    own_only: bool
    texts: bool
    site: str = DEFAULT_SITE

    @property
    def sender(self) -> str | None:
        """Whose records they may see; None for everybody's."""
        return self.user_id if self.own_only else None


@dataclass(frozen=True)
class RecordPage:
    items: list[Json]
    next: str | None


def list_records(
    store: Store, kind: type[Contract], filters: RecordFilter, reader: Reader, *, after: str | None = None, limit: int = 50,
    newest: bool = True,
) -> RecordPage:  # fmt: skip
    """Up to `limit` records after the one named `after`, newest first by default."""
    items, more = record_pages.page(
        store, kind, filters.model_dump(exclude_none=True), sender=reader.sender, texts=reader.texts, after=after, limit=limit,
        newest_first=newest, site=reader.site,
    )  # fmt: skip
    return RecordPage(items, items[-1][natural_id(crud.TABLES[kind])] if more else None)


def get_record(store: Store, kind: type[Contract], record_id: str, reader: Reader) -> Json | None:
    """A record as this reader may see it; None when there is none for them."""
    return record_pages.get(store, kind, record_id, sender=reader.sender, texts=reader.texts, site=reader.site)


def read_event(kind: type[Contract], reader: Reader, items: list[Json], purpose: str) -> AuditEvent | None:
    """The audit line to store before these texts are handed out; None without texts."""
    if not reader.texts or not items:
        return None
    table = crud.TABLES[kind]
    subject = items[0][natural_id(table)] if len(items) == 1 else table.name
    return AuditEvent(
        actor=reader.user_id, action=f"{table.name}.read", subject=subject, detail={"purpose": purpose, "rows": len(items)}
    )


def export(
    store: Store, kind: type[Contract], filters: RecordFilter, reader: Reader, *, form: Literal["jsonl", "csv"],
    note: Callable[[AuditEvent], object],
) -> Iterator[str]:  # fmt: skip
    """The whole list as a file, oldest first, page by page; `note` gets the audit line of a page before the page is yielded."""
    header, after, first = record_pages.columns(kind, texts=reader.texts), None, True
    while first or after is not None:
        page = list_records(store, kind, filters, reader, after=after, limit=EXPORT_PAGE, newest=False)
        event = read_event(kind, reader, page.items, "export")
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
