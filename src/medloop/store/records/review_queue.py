"""The review queue in the store: items, and the raters' turns at them. Each step is one write, so no seat is given twice.

An item has `raters` seats. A turn takes a seat until its lease ends; a finished turn keeps the seat. A rater who finished an
item never gets it again. A rater whose lease lapsed has not judged the item and may get it back, but only when no new item is
left and raters who are at work have had the time of a lease to take it. What a rater skipped comes back to them when no new item
is left and SKIP_REST has passed. `review_verdicts.py` ends turns.

No rater gets an item about a trace that is in quarantine or was refused. When the trace is released, the item is available again.

The next stratum is the one that is furthest behind its quota among the recent turns, so every stratum gets its share.
"""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, case, exists, func, insert, or_, select, update

from medloop.contracts import AuditEvent, canonical_json
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.errors import InputError, StoreError
from medloop.lexicon.language import detect_language
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.records.crud import decrypt_row
from medloop.store.records.quarantine import withheld
from medloop.store.records.site_items import mark_items, of_site
from medloop.store.tables import queue_items as items
from medloop.store.tables import queue_turns as turns
from medloop.store.tables import rlhf_corrections, rlhf_feedback, traces

SEARCHED = 1000  # items that a search for words reads, those of the highest priority
RECENT_TURNS = 200  # turns that count for the quotas
SKIP_REST = timedelta(hours=12)  # before a skipped item comes back to the rater who skipped it
AT_WORK = timedelta(hours=8)  # a rater whose last turn ended within this time counts as at work


class UnknownItemError(InputError):
    """The item does not exist or was not given to this rater; the error does not tell which."""


class LapsedError(StoreError):
    """The lease ended and somebody else has taken the seat, or the turn is over."""


@dataclass(frozen=True)
class LeasedItem:
    """An item that a rater has leased."""

    item_id: str
    kind: str
    content: QueueContent
    reasons: dict[str, float]
    stratum: str
    until: datetime
    trace_id: str | None = None
    shown_first: str | None = None
    adjudicates: bool = False


@dataclass(frozen=True)
class QueueStats:
    states: dict[str, int]
    open_by_stratum: dict[str, int]
    open_by_kind: dict[str, int]
    turns: dict[str, int]
    given_lately: dict[str, int]
    oldest_open: datetime | None


@dataclass(frozen=True)
class QueueItemSummary:
    """An item in the list, without its content."""

    item_id: str
    kind: str
    state: str
    stratum: str
    priority: float
    reasons: dict[str, float]
    done: int
    raters: int
    trace_id: str | None = None


@dataclass(frozen=True)
class LeaseRequest:
    """Who asks for an item and how it is chosen."""

    rater: str
    now: datetime
    lease: timedelta
    quotas: Mapping[str, float]
    senior: bool = False
    kinds: tuple[str, ...] = ("rate", "compare", "correct")
    language: str | None = None  # of the question
    words: tuple[str, ...] = ()  # all of them in the question
    without: tuple[str, ...] = ()  # items to leave out
    site: str = DEFAULT_SITE  # users of another one get items about answers given there
    only: tuple[str, ...] | None = None  # items with the words of the search; None before they are known, or without words


def add_items(store: Store, new_items: Iterable[QueueItem], *, actor: str) -> int:
    """Put items into the queue; those that are already there stay as they are. Returns how many are new."""
    with store.write() as conn:
        return len(add_items_in(store, conn, new_items, actor=actor))


def add_items_in(store: Store, conn: Connection, new_items: Iterable[QueueItem], *, actor: str) -> list[QueueItem]:
    """`add_items` as part of a larger `store.write()`; returns those that are new."""
    by_id = {item.item_id: item for item in new_items}
    for chunk in chunks(list(by_id)):
        for (known,) in conn.execute(select(items.c.item_id).where(items.c.item_id.in_(chunk))).all():
            del by_id[known]
    if by_id:
        keys = store.keys.writing(conn)
        sealed = ((item, keys.for_row(None, item.item_id)) for item in by_id.values())
        conn.execute(insert(items), [{**_row(item), **key.columns, "content": _seal(key, item)} for item, key in sealed])
        event = AuditEvent(actor=actor, action="queue_items.add", subject="queue_items", detail={"rows": len(by_id)})
        audit.append(conn, event)
        mark_items(store, conn, list(by_id.values()), actor=actor)
    return list(by_id.values())


def _row(item: QueueItem) -> dict[str, Any]:
    return {
        "item_id": item.item_id, "kind": item.kind, "trace_id": item.trace_id, "priority": item.priority, "reasons": item.reasons,
        "stratum": item.stratum, "raters": item.raters, "state": "open", "processed": False,
        "language": language_of(item.content), "expected": item.expected,
    }  # fmt: skip


def language_of(content: QueueContent) -> str:
    """zh, en or other: that of the questions. Chinese with much English in it is for people who read Chinese."""
    language = detect_language("\n".join(message.content for message in content.prompt if message.role == "user"))
    return "zh" if language == "mixed" else language


def _seal(key: Any, item: QueueItem) -> bytes:
    plain = canonical_json(item.content.model_dump(mode="json")).encode()
    return bytes(key.encrypt(plain, items.name, item.item_id, "content"))


def known_items(store: Store, item_ids: Sequence[str]) -> set[str]:
    query = select(items.c.item_id)
    with store.read() as conn:
        return {name for ids in chunks(list(item_ids)) for name in conn.execute(query.where(items.c.item_id.in_(ids))).scalars()}


def recent_contents(store: Store, most: int, *, actor: str, purpose: str) -> list[QueueContent]:
    """The contents of the newest items, open or not. One audit line covers the reading."""
    with store.read() as conn:
        rows = conn.execute(select(items).order_by(items.c.id.desc()).limit(most)).all()
        plain = [json.loads(decrypt_row(items, row, store.keys.reading(conn, row))["content"]) for row in rows]
    if rows:
        detail = {"purpose": purpose, "rows": len(rows)}
        with store.write() as conn:
            audit.append(conn, AuditEvent(actor=actor, action="queue_items.read", subject=items.name, detail=detail))
    return [QueueContent.model_validate(content) for content in plain]


def lease(store: Store, ask: LeaseRequest) -> LeasedItem | None:
    """The item that this rater holds, else the next one for them, else None. Taking or renewing its lease is audited."""
    with store.write() as conn:
        ask = _searched(store, conn, ask)
        while (item := _held(conn, ask) or _dispute(conn, ask) or _fresh(conn, ask) or _old(conn, ask)) is not None:
            content = open_content(store, conn, item)
            if not _withdrawn(conn, item, content):
                break
            ask = replace(ask, without=(*ask.without, item.item_id))
        if item is None:
            return None
        turn = _take_seat(conn, item, ask)
        if turn["until"] == ask.now + ask.lease:  # else the line of a moment ago covers this reading
            audit.append(conn, AuditEvent(actor=ask.rater, action="queue_items.read", subject=item.item_id))
    return _leased(item, content, **turn)


def _leased(item: Row[Any], content: QueueContent, **turn: Any) -> LeasedItem:
    """As its rater sees it. Why a comparison was chosen is not told: it would tell check items from others."""
    columns = ("item_id", "kind", "stratum", "trace_id")
    reasons = {} if item.kind == "compare" else item.reasons
    return LeasedItem(content=content, reasons=reasons, **{name: item._mapping[name] for name in columns}, **turn)


def _searched(store: Store, conn: Connection, ask: LeaseRequest) -> LeaseRequest:
    """The request with the items whose question has all words. The texts are encrypted, so the most important ones are read."""
    if not ask.words:
        return ask
    query = select(items).where(items.c.state != "done", *_fits(ask)).order_by(items.c.priority.desc(), items.c.id)
    rows = conn.execute(query.limit(SEARCHED)).all()
    matches = [row.item_id for row in rows if _has_words(open_content(store, conn, row), ask.words)]
    detail = {"rows": len(rows), "matches": len(matches)}  # never the words: they may name somebody
    audit.append(conn, AuditEvent(actor=ask.rater, action="queue_items.search", subject=items.name, detail=detail))
    return replace(ask, only=tuple(matches))


def _has_words(content: QueueContent, words: Sequence[str]) -> bool:
    text = "\n".join(message.content for message in content.prompt if message.role == "user").casefold()
    return all(word.casefold() in text for word in words)


def count_left(store: Store, ask: LeaseRequest) -> int:
    """How many items this rater can still be given, the one in their hands included."""
    with store.write() as conn:  # a write: searching leaves an audit line
        ask = _searched(store, conn, ask)
        held = _own(ask).where(turns.c.until > ask.now, items.c.state != "done")
        fresh = select(items).where(items.c.state == "open", *_fits(ask), _seat_free(ask), ~_met(ask))
        queries = (held, fresh, _skipped(ask), *([_disputes(ask)] if ask.senior else []))
        return sum(int(conn.execute(select(func.count()).select_from(query.subquery())).scalar_one()) for query in queries)


def open_content(store: Store, conn: Connection, item: Row[Any]) -> QueueContent:
    return QueueContent.model_validate_json(decrypt_row(items, item, store.keys.reading(conn, item))["content"])


def _withdrawn(conn: Connection, item: Row[Any], content: QueueContent) -> bool:
    """Whether raters may not see one of its traces; only the first trace of a comparison is in a column of the item."""
    named = traces.c.trace_id.in_([name for name in (item.trace_id, *content.traces) if name is not None])
    return conn.execute(select(traces.c.id).where(named, withheld(traces.c.trace_id)).limit(1)).first() is not None


def rewrite(store: Store, item_id: str, content: QueueContent, *, actor: str) -> None:
    """Replace the texts of an item that was added before texts were scrubbed; it keeps its id."""
    with store.write() as conn:
        key = store.keys.writing(conn).for_row(None, item_id)
        sealed = key.encrypt(canonical_json(content.model_dump(mode="json")).encode(), items.name, item_id, "content")
        conn.execute(update(items).where(items.c.item_id == item_id).values(**key.columns, content=bytes(sealed)))
        audit.append(conn, AuditEvent(actor=actor, action="queue_items.scrub", subject=item_id))


def leased_item(store: Store, item_id: str, rater: str, site: str = DEFAULT_SITE) -> LeasedItem:
    """The item as this rater saw it, for their verdict. The audit line about the reading was written with the lease. A rater who
    has moved to a site meanwhile gets only items of that site."""
    with store.read() as conn:
        item, turn = turn_of(conn, item_id, rater, site)
        content = open_content(store, conn, item)
        if _withdrawn(conn, item, content):
            raise UnknownItemError("This item is not assigned to you", "Ask for the next one")
    return _leased(item, content, until=turn.until, shown_first=turn.shown_first, adjudicates=turn.adjudicates)


def turns_of(store: Store, rater: str) -> dict[str, int]:
    """How many turns this rater has held, done and skipped."""
    query = select(turns.c.state, func.count()).where(turns.c.rater == rater).group_by(turns.c.state)
    with store.read() as conn:
        return {str(state): int(n) for state, n in conn.execute(query).all()}


def _held(conn: Connection, ask: LeaseRequest) -> Row[Any] | None:
    query = _own(ask).where(turns.c.until > ask.now, items.c.state != "done")
    return conn.execute(query.order_by(items.c.priority.desc()).limit(1)).first()


def _own(ask: LeaseRequest, state: str = "held") -> Any:
    """Items at which this rater has a turn in this state."""
    query = select(items).join(turns, turns.c.item_id == items.c.item_id)
    return query.where(turns.c.rater == ask.rater, turns.c.state == state, *_fits(ask))


def _fits(ask: LeaseRequest) -> tuple[Any, ...]:
    fits = [items.c.kind.in_(ask.kinds), items.c.item_id.not_in(ask.without), ~withheld(items.c.trace_id)]
    fits.append(of_site(items.c.item_id, ask.site))
    fits += [items.c.language == ask.language] if ask.language else []
    return (*fits, *([items.c.item_id.in_(ask.only)] if ask.only is not None else []))


def _dispute(conn: Connection, ask: LeaseRequest) -> Row[Any] | None:
    """For seniors: the disputed item with the highest priority that they have not seen and nobody else is settling."""
    if not ask.senior:
        return None
    return conn.execute(_disputes(ask).order_by(items.c.priority.desc(), items.c.id).limit(1)).first()


def _disputes(ask: LeaseRequest) -> Any:
    here = turns.c.item_id == items.c.item_id
    at_work = exists().where(here, turns.c.adjudicates, turns.c.state == "held", turns.c.until > ask.now)
    return select(items).where(items.c.state == "disputed", ~_met(ask), ~at_work, *_fits(ask))


def _fresh(conn: Connection, ask: LeaseRequest) -> Row[Any] | None:
    for stratum in _furthest_behind(conn, ask.quotas):
        here = (items.c.state == "open", items.c.stratum == stratum)
        query = select(items).where(*here, *_fits(ask), _seat_free(ask), ~_met(ask))
        if item := conn.execute(query.order_by(items.c.priority.desc(), items.c.id).limit(1)).first():
            return item
    return None


def _met(ask: LeaseRequest) -> Any:
    """Items at which this rater had a turn, whose answer they rated outside the queue, or whose better answer is theirs."""
    turn = exists().where(turns.c.item_id == items.c.item_id, turns.c.rater == ask.rater)
    rated = exists().where(rlhf_feedback.c.trace_id == items.c.trace_id, rlhf_feedback.c.recorded_by == ask.rater)
    wrote = exists().where(rlhf_corrections.c.trace_id == items.c.trace_id, rlhf_corrections.c.recorded_by == ask.rater)
    return or_(turn, and_(items.c.kind == "rate", rated), and_(items.c.expected.is_not(None), wrote))


def _old(conn: Connection, ask: LeaseRequest) -> Row[Any] | None:
    """An item that this rater had and did not judge: its lease lapsed (others who are at work come first), or they skipped it."""
    rested = turns.c.until <= ask.now - (ask.lease if _others_at_work(conn, ask) else timedelta())
    lapsed = _own(ask).where(items.c.state == "open", rested, _seat_free(ask))
    first, second = (query.order_by(items.c.priority.desc(), items.c.id).limit(1) for query in (lapsed, _skipped(ask)))
    return conn.execute(first).first() or conn.execute(second).first()


def _skipped(ask: LeaseRequest) -> Any:
    """Items that this rater skipped long enough ago and that still wait for a verdict."""
    waits = and_(items.c.state == case((turns.c.adjudicates, "disputed"), else_="open"), _seat_free(ask) | turns.c.adjudicates)
    return _own(ask, "skipped").where(turns.c.until <= ask.now - SKIP_REST, waits)


def _others_at_work(conn: Connection, ask: LeaseRequest) -> bool:
    last = select(turns.c.rater, turns.c.until).order_by(turns.c.id.desc()).limit(RECENT_TURNS).subquery()
    query = select(last.c.rater).where(last.c.rater != ask.rater, last.c.until > ask.now - AT_WORK)
    return conn.execute(query.limit(1)).first() is not None


def _seat_free(ask: LeaseRequest) -> Any:
    any_turn = turns.alias()  # the outer query may be limited to the rater's own turns; seats count everybody's
    has_seat = or_(any_turn.c.state == "done", and_(any_turn.c.state == "held", any_turn.c.until > ask.now))
    seats = select(func.count()).select_from(any_turn).where(any_turn.c.item_id == items.c.item_id, has_seat)
    return seats.scalar_subquery() < items.c.raters


def _furthest_behind(conn: Connection, quotas: Mapping[str, float]) -> list[str]:
    """Strata, the one furthest behind its share of the recent turns first; those without a quota come last."""
    given = recent_turns_by_stratum(conn)
    there = set(conn.execute(select(items.c.stratum).where(items.c.state == "open").distinct()).scalars())
    n, total = sum(given.values()) + 1, sum(quotas.values()) or 1.0
    behind = {name: quotas.get(name, 0.0) / total * n - given.get(name, 0) for name in there}
    return sorted(there, key=lambda name: (-behind[name], name))


def recent_turns_by_stratum(conn: Connection) -> dict[str, int]:
    last = select(turns.c.item_id).order_by(turns.c.id.desc()).limit(RECENT_TURNS).subquery()
    query = select(items.c.stratum, func.count()).join(last, last.c.item_id == items.c.item_id).group_by(items.c.stratum)
    return {name: int(n) for name, n in conn.execute(query).all()}


def _take_seat(conn: Connection, item: Row[Any], ask: LeaseRequest) -> dict[str, Any]:
    """Start this rater's turn at this item, or continue it with the order of answers that was shown before."""
    until, own = ask.now + ask.lease, and_(turns.c.item_id == item.item_id, turns.c.rater == ask.rater)
    if (before := conn.execute(select(turns).where(own)).first()) is not None:
        recent = before.state == "held" and before.until > until - ask.lease / 6  # so recent that it is not renewed yet
        until = before.until if recent else until
        conn.execute(update(turns).where(own).values(until=until, state="held"))
        return {"until": until, "shown_first": before.shown_first, "adjudicates": before.adjudicates}
    first = secrets.choice("ab") if item.kind == "compare" else None
    turn = {"until": until, "shown_first": first, "adjudicates": item.state == "disputed"}
    row = {"item_id": item.item_id, "rater": ask.rater, "state": "held", "timestamp": ask.now}
    conn.execute(insert(turns).values(**row, **turn))
    return turn


def turn_of(conn: Connection, item_id: str, rater: str, site: str = DEFAULT_SITE) -> tuple[Row[Any], Row[Any]]:
    """An item that this site may review and this rater's turn at it; UnknownItemError unless both exist."""
    item = conn.execute(select(items).where(items.c.item_id == item_id, of_site(items.c.item_id, site))).first()
    turn = conn.execute(select(turns).where(turns.c.item_id == item_id, turns.c.rater == rater)).first()
    if item is None or turn is None:
        raise UnknownItemError("This item is not assigned to you", "Ask for the next one")
    return item, turn


def list_items(store: Store, *, state: str | None = None, limit: int = 20) -> list[QueueItemSummary]:
    """Items by priority, without their texts."""
    done = select(func.count()).where(turns.c.item_id == items.c.item_id, turns.c.state == "done").scalar_subquery()
    names = ("item_id", "kind", "state", "stratum", "priority", "reasons", "raters", "trace_id")
    query = select(*(items.c[name] for name in names), done.label("done")).order_by(items.c.priority.desc(), items.c.id)
    query = query if state is None else query.where(items.c.state == state)
    with store.read() as conn:
        return [QueueItemSummary(**row._mapping) for row in conn.execute(query.limit(limit)).all()]


def stats(store: Store) -> QueueStats:
    def tally(conn: Connection, column: Any, *where: Any) -> dict[str, int]:
        query = select(column, func.count()).where(*where).group_by(column)
        return {str(name): int(n) for name, n in sorted(conn.execute(query).all())}

    is_open = and_(items.c.state == "open", ~withheld(items.c.trace_id))
    with store.read() as conn:
        return QueueStats(
            states=tally(conn, items.c.state),
            open_by_stratum=tally(conn, items.c.stratum, is_open),
            open_by_kind=tally(conn, items.c.kind, is_open),
            turns=tally(conn, turns.c.state),
            given_lately=recent_turns_by_stratum(conn),
            oldest_open=conn.execute(select(func.min(items.c.timestamp)).where(is_open)).scalar_one(),
        )
