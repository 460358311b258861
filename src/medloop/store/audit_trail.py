"""The catalog and the audit log, open while a command works: every result and every action leaves a line."""

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import AuditEvent, Contract
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.catalog import register, register_file
from medloop.store.db import Store, open_store


def actor() -> str:
    """Who is at the keyboard, for the audit log."""
    try:
        return f"user:{getpass.getuser()}"
    except (KeyError, OSError):  # a container may run under a number without a name
        return f"uid:{os.getuid()}"


@dataclass(frozen=True)
class AuditTrail:
    """The catalog and the audit log, open while a stage works."""

    store: Store

    def register(self, kind: str, path: Path, card: Contract) -> None:
        """Enter a finished folder with its card; the same content twice makes one entry."""
        register(self.store, kind, path, card.model_dump(mode="json", exclude_none=True), actor=actor())

    def register_file(self, kind: str, path: Path, sha256: str, card: dict[str, Any]) -> None:
        """Enter a single file that others name by this hash."""
        register_file(self.store, kind, path, sha256, card, actor=actor())

    def record(self, action: str, path: Path, **detail: str | int | float | bool) -> None:
        """Log an action that leaves no sealed folder."""
        home = self.store.settings.home
        subject = path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)
        with self.store.write() as conn:
            audit.append(conn, AuditEvent(actor=actor(), action=action, subject=subject, detail=detail))


@contextmanager
def open_audit_trail(settings: Settings) -> Iterator[AuditTrail]:
    """Open the store before the work, so that a missing key or an unreachable database stops it at the start, not at the end."""
    with open_store(settings) as store:
        yield AuditTrail(store)
