"""The register of erasures: which rows, keys and files each one removed, in places that a restored backup does not overwrite.

    keys/erased.jsonl                  in the workspace; `medloop backup` has its newest state only, `medloop restore` adds lines
    privacy.erased_file                a second place, if this setting names one: on another disk, or beside the master key's copy

Each line is signed with a key that only the master key opens: whoever could add a line could make a restore delete records. It
holds ids and hashes, and no text.
"""

import hmac
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from medloop.contracts import Contract
from medloop.contracts.base import Text, Timestamp, canonical_json
from medloop.errors import IntegrityError
from medloop.privacy.erasure.contracts import ErasurePlan
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import consents


class ErasedEntry(Contract):
    """One erasure, as far as a restored backup has to know about it."""

    erasure_id: Text
    subject: str | None = None
    asked: tuple[Text, ...] = ()
    reason: Text
    actor: Text
    approved_by: str | None = None
    started: Timestamp
    ids: dict[str, tuple[str, ...]]
    keys: tuple[str, ...]
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # hashes of files and folders before the erasure, by path


def places(store: Store) -> list[Path]:
    second = store.settings.privacy.erased_file
    return [store.settings.workspace.keys / "erased.jsonl", *([second] if second is not None else [])]


def add(store: Store, plan: ErasurePlan, changes: list[dict[str, Any]] | None = None) -> None:
    """Add an erasure to every place, or what it changed in files; a second line about one erasure replaces the first."""
    if plan.replays is not None:
        return
    files: dict[str, tuple[str, ...]] = {}
    for change in changes or []:
        files[change["path"]] = (*files.get(change["path"], ()), change["before"])
    case = {name: getattr(plan, name) for name in ("erasure_id", "subject", "asked", "reason", "actor", "approved_by", "started")}
    entry = ErasedEntry(**case, ids=plan.record_ids, keys=plan.keys, files=files).model_dump(mode="json")
    mac = _mac(store, entry)
    for path in places(store):
        is_new = not path.exists()
        if is_new or mac not in path.read_text(encoding="utf-8"):
            jsonl.append(path, {"erasure": entry, "mac": mac})
        if is_new:
            path.chmod(0o600)


def entries(store: Store) -> list[ErasedEntry]:
    """Every erasure that any place knows, oldest first; IntegrityError if a line was changed."""
    known: dict[str, ErasedEntry] = {}
    for path in places(store):
        for number, line in enumerate(jsonl.read(path) if path.exists() else (), start=1):
            try:
                genuine = hmac.compare_digest(str(line["mac"]), _mac(store, line["erasure"]))
                entry = ErasedEntry.model_validate(line["erasure"])
            except (KeyError, TypeError, ValidationError):
                genuine = False
            if not genuine:
                raise IntegrityError(f"{path}, line {number} was changed or belongs to another store", "Restore the file")
            known[entry.erasure_id] = entry
    return sorted(known.values(), key=lambda entry: entry.started)


def _mac(store: Store, entry: dict[str, Any]) -> str:
    key = hmac.digest(consents.hashing_key(store), b"medloop erasure register", "sha256")
    return hmac.new(key, canonical_json(entry).encode(), "sha256").hexdigest()
