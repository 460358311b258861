"""Which artifacts there are, by kind and hash. A row is added after the folder or file is durable, never before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select

from medloop.contracts import AuditEvent, utc_now
from medloop.models.safety import fingerprint_of
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import artifact_flags, artifacts


@dataclass(frozen=True)
class CatalogRow:
    """An entry with its row number, by which a list goes on."""

    row: int
    entry: "CatalogEntry"


@dataclass(frozen=True)
class CatalogEntry:
    kind: str
    path: Path
    sha256: str
    card: dict[str, Any]
    created: datetime
    flags: tuple[str, ...] = ()
    """Flags set by an erasure: `tainted` for a model trained on erased data, `erased` for data as it was before."""
    fingerprint: str | None = None
    """Of a model: the hash by which cards of later models and evaluations name it."""


def register(store: Store, kind: str, path: Path, card: dict[str, Any], *, actor: str) -> CatalogEntry:
    """Verify the folder and enter it; entering the same content at the same path again changes nothing."""
    manifest = verify_artifact(path)
    is_model = bool(manifest.hashes.keys() & {"adapter_config.json", "config.json", "scoring.json"})
    return _enter(store, kind, path, manifest.sha256, card, fingerprint_of(manifest.hashes) if is_model else None, actor)


def register_file(store: Store, kind: str, path: Path, sha256: str, card: dict[str, Any], *, actor: str) -> CatalogEntry:
    """Enter a single file under the hash by which others name it, such as a report under its content id."""
    return _enter(store, kind, path, sha256, card, None, actor)


def _enter(
    store: Store, kind: str, path: Path, sha256: str, card: dict[str, Any], fingerprint: str | None, actor: str
) -> CatalogEntry:
    shown = _shown(store, path)
    same = select(artifacts).where(artifacts.c.kind == kind, artifacts.c.path == shown, artifacts.c.sha256 == sha256)
    with store.write() as conn:
        if conn.execute(same).first() is None:
            values = {"kind": kind, "path": shown, "sha256": sha256, "card": card, "fingerprint": fingerprint}
            conn.execute(insert(artifacts).values(**values, created=utc_now()))
            audit.append(
                conn, AuditEvent(actor=actor, action="artifacts.add", subject=shown, detail={"kind": kind, "sha256": sha256})
            )
        return _entry(store, conn, conn.execute(same).one())


def _shown(store: Store, path: Path) -> str:
    """A path as the catalog has it: from the workspace, if it lies inside."""
    home = store.settings.workspace.home
    return path.absolute().relative_to(home).as_posix() if path.absolute().is_relative_to(home) else str(path.absolute())


def newest(store: Store, kind: str) -> CatalogEntry | None:
    """The last entry of a kind."""
    return _first(store, select(artifacts).where(artifacts.c.kind == kind).order_by(artifacts.c.id.desc()).limit(1))


def newest_of(store: Store, kinds: Sequence[str]) -> CatalogEntry | None:
    """The last entry of these kinds."""
    return _first(store, select(artifacts).where(artifacts.c.kind.in_(kinds)).order_by(artifacts.c.id.desc()).limit(1))


def count(store: Store, kinds: Sequence[str]) -> int:
    with store.read() as conn:
        return int(conn.execute(select(func.count()).select_from(artifacts).where(artifacts.c.kind.in_(kinds))).scalar_one())


def page(
    store: Store, kinds: Sequence[str], *, find: str = "", beyond: int | None = None, limit: int, oldest_first: bool = False
) -> list[CatalogRow]:
    """Entries of these kinds whose path contains `find` or whose hash begins with it; `beyond` is the last row seen."""
    query = select(artifacts).where(artifacts.c.kind.in_(kinds)).limit(limit)
    query = query.order_by(artifacts.c.id if oldest_first else artifacts.c.id.desc())
    if find:
        has_hash = artifacts.c.sha256.startswith(f"sha256:{find.removeprefix('sha256:')}", autoescape=True)
        query = query.where(artifacts.c.path.icontains(find, autoescape=True) | has_hash)
    if beyond is not None:
        query = query.where(artifacts.c.id > beyond if oldest_first else artifacts.c.id < beyond)
    with store.read() as conn:
        return [CatalogRow(row.id, _entry(store, conn, row)) for row in conn.execute(query).all()]


def newest_first(store: Store, kinds: Sequence[str]) -> Iterator[CatalogEntry]:
    """All entries of these kinds, the last one first."""
    with store.read() as conn:
        for row in conn.execute(select(artifacts).where(artifacts.c.kind.in_(kinds)).order_by(artifacts.c.id.desc())).all():
            yield _entry(store, conn, row)


def find(store: Store, sha256: str) -> CatalogEntry | None:
    """The last entry with this content."""
    return _first(store, select(artifacts).where(artifacts.c.sha256 == sha256).order_by(artifacts.c.id.desc()).limit(1))


def genuine_entries(store: Store, sha256: str) -> list[CatalogEntry]:
    """The entries with this content, oldest first; IntegrityError if medloop did not write one of them."""
    return _genuine(store, artifacts.c.sha256 == sha256)


def genuine_entries_at(store: Store, kind: str, path: Path) -> list[CatalogEntry]:
    """Everything of this kind that has been at a path, oldest first; IntegrityError if medloop did not write an entry."""
    return _genuine(store, artifacts.c.kind == kind, artifacts.c.path == _shown(store, path))


def _genuine(store: Store, *conditions: ColumnElement[bool]) -> list[CatalogEntry]:
    rows = genuine_rows(store, artifacts, select(artifacts).where(*conditions).order_by(artifacts.c.id))
    with store.read() as conn:
        return [_entry(store, conn, row) for row in rows]


def _first(store: Store, query: Any) -> CatalogEntry | None:
    with store.read() as conn:
        row = conn.execute(query).first()
        return None if row is None else _entry(store, conn, row)


def _entry(store: Store, conn: Connection, row: Row[Any]) -> CatalogEntry:
    flags = conn.execute(select(artifact_flags.c.flag).where(artifact_flags.c.sha256 == row.sha256).distinct()).scalars()
    path = store.settings.workspace.home / row.path
    return CatalogEntry(row.kind, path, row.sha256, row.card, row.created, tuple(sorted(flags)), row.fingerprint)
