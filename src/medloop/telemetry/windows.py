"""Reading a stream of another system by time windows and cursors, so that a stop at any moment loses nothing.

    read_stream(fetch, handle, position=saved, save=keep, start=..., now=..., overlap=...)

Rows of a page are stored before the position behind it is saved; so after a crash at most one page is read twice, and storing by
id makes that harmless. The next run begins `overlap` before the end of the last one, because rows appear late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from medloop.contracts.base import iso_utc
from medloop.service import ServiceError
from medloop.telemetry.langfuse_api import ExpiredCursorError, LangfusePage

WINDOW = timedelta(days=7)
REPEATS = 5  # of one page, or of one window whose cursor expired

Fetch = Callable[[datetime, datetime, str | None], LangfusePage]
Handle = Callable[[tuple[dict[str, Any], ...]], datetime | None]
"""Stores a page; returns the time of its oldest row that is not ready yet, for the next run."""


@dataclass(frozen=True)
class StreamPosition:
    """Everything before `start` is read; the window to `end` is read up to `cursor`."""

    start: datetime
    end: datetime | None = None
    cursor: str | None = None
    waiting: datetime | None = None  # the oldest row that was not ready

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> StreamPosition:
        times = {name: datetime.fromisoformat(saved[name]) for name in ("start", "end", "waiting") if saved.get(name)}
        return cls(times["start"], times.get("end"), saved.get("cursor"), times.get("waiting"))

    def as_json(self) -> dict[str, str | None]:
        times = {"start": self.start, "end": self.end, "waiting": self.waiting}
        return {**{name: iso_utc(time) if time else None for name, time in times.items()}, "cursor": self.cursor}


def read_stream(
    fetch: Fetch, handle: Handle, *, begin: StreamPosition, save: Callable[[StreamPosition], object], now: datetime,
    window: timedelta = WINDOW, oldest_waiting: timedelta = timedelta(days=1),
) -> StreamPosition:  # fmt: skip
    """Read from `begin` to `now`; returns the position at which the next run begins, before its overlap."""
    position = begin
    while position.start < now:
        end = position.end or min(position.start + window, now)
        position = _read_window(fetch, handle, StreamPosition(position.start, end, position.cursor, position.waiting), save)
        position = StreamPosition(end, waiting=position.waiting)
        save(position)
    waiting = position.waiting if position.waiting and position.waiting > now - oldest_waiting else None
    position = StreamPosition(min(position.start, waiting or position.start))
    save(position)
    return position


def _read_window(
    fetch: Fetch, handle: Handle, position: StreamPosition, save: Callable[[StreamPosition], object]
) -> StreamPosition:  # fmt: skip
    assert position.end is not None
    start, end, cursor, waiting = position.start, position.end, position.cursor, position.waiting
    expired = repeated = 0
    while True:
        try:
            page = fetch(start, end, cursor)
        except ExpiredCursorError:
            expired += 1
            if expired > REPEATS:
                raise
            cursor = None
            continue
        late = handle(page.rows)
        waiting = min(filter(None, (waiting, late)), default=None)
        if page.cursor is None:
            return StreamPosition(start, end, None, waiting)
        repeated = repeated + 1 if page.cursor == cursor else 0
        if repeated > REPEATS:
            raise ServiceError("Langfuse sends one page again and again", "Run it again later")
        cursor = page.cursor
        save(StreamPosition(start, end, cursor, waiting))
