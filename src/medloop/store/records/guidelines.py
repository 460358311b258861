"""The guidelines for raters: Markdown that an admin writes on a page. Every version stays, and every change is in the audit log.

newest(store, "en")                                                 # None until somebody writes them
save(store, "en", "# How we rate …", was=0, actor="usr_1")          # version 1; `was` is the version that was edited
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, select

from medloop.contracts import AuditEvent, utc_now
from medloop.errors import InputError, StoreError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.tables import guidelines

MAX_TEXT = 64 * 1024  # characters of a text that is on every page


class NewerVersionError(StoreError):
    """Somebody else has saved a version meanwhile."""


@dataclass(frozen=True)
class GuidelinesVersion:
    """An empty text means the built-in one."""

    version: int
    text: str
    edited_by: str
    timestamp: datetime


def versions(store: Store, language: str, *, limit: int = 50) -> list[GuidelinesVersion]:
    """Newest first."""
    query = select(guidelines).where(guidelines.c.language == language).order_by(guidelines.c.version.desc()).limit(limit)
    with store.read() as conn:
        return [_version(row) for row in conn.execute(query).all()]


def newest(store: Store, language: str) -> GuidelinesVersion | None:
    return next(iter(versions(store, language, limit=1)), None)


def save(store: Store, language: str, text: str, *, was: int, actor: str) -> int:
    """A new version; the number of the newest one. The same text again changes nothing."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise InputError(f"The guidelines are longer than {MAX_TEXT:,} characters", "Shorten them")
    with store.write() as conn:
        last = conn.execute(select(func.max(guidelines.c.version)).where(guidelines.c.language == language)).scalar() or 0
        if last != was:
            raise NewerVersionError(f"Version {last} was saved meanwhile", "Read it, and save again")
        before = newest(store, language)
        if text == (before.text if before else ""):
            return last
        name = f"{language}-{last + 1}"
        row = {"language": language, "version": last + 1, "text": text, "edited_by": actor, "timestamp": utc_now()}
        conn.execute(insert(guidelines).values(guidelines_id=name, **row))
        detail: dict[str, str | int | float | bool] = {"id": name, "version": last + 1, "characters": len(text)}
        audit.append(conn, AuditEvent(actor=actor, action="guidelines.change", subject=f"guidelines.{language}", detail=detail))
    return last + 1


def _version(row: Row[Any]) -> GuidelinesVersion:
    return GuidelinesVersion(row.version, row.text, row.edited_by, row.timestamp)
