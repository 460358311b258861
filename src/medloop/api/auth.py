"""Who may come in: keys that are generated, shown once, and kept only as hashes.

`keys/api_keys.json` (mode 0600) has a line per key: its id, the SHA-256 of the whole key, when it was made. A key is
`mlk_<id>_<secret>`; the secret has 256 random bits, so a plain hash is as good as a slow one. There is no default key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import stat
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Header, Request

from medloop.contracts import utc_now
from medloop.contracts.base import Contract, Text, Timestamp
from medloop.errors import IntegrityError, KeyUnavailableError, MedloopError
from medloop.settings import Settings
from medloop.store.files import atomic_write

KEY = re.compile(r"mlk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")


class ApiKey(Contract):
    id: Text
    sha256: Text
    created: Timestamp


class NotAllowedError(MedloopError):
    """401: no key, or one that is not ours."""


def key_file(settings: Settings) -> Path:
    return settings.workspace.keys / "api_keys.json"


def new_key(settings: Settings, *, only: bool = False) -> str:
    """Make a key, keep its hash, and hand the key out for the one time it can be seen. `only` drops all others."""
    name = secrets.token_hex(6)
    text = f"mlk_{name}_{secrets.token_urlsafe(32)}"
    known = [] if only else read_keys(settings)
    keys = [*known, ApiKey(id=name, sha256=_digest(text), created=utc_now())]
    content = json.dumps([key.model_dump(mode="json") for key in keys], indent=2) + "\n"
    atomic_write(key_file(settings), content, mode=0o600)
    return text


def read_keys(settings: Settings) -> list[ApiKey]:
    """The hashes on file; refused when others could have read or changed them."""
    path = key_file(settings)
    if not path.exists():
        return []
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyUnavailableError(f"{path} can be read by other users", f"Run: chmod 600 {path}")
    try:
        return [ApiKey.model_validate(row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except ValueError:
        raise IntegrityError(f"{path} cannot be read", "Remove it and start again: a new key is made") from None


def who(text: str, keys: list[ApiKey]) -> str | None:
    """The id of the key, or None. Every hash is compared in constant time, whichever fits, so time tells nothing."""
    digest, found = _digest(text), None
    for key in keys:
        if hmac.compare_digest(digest, key.sha256):
            found = key.id
    return found if KEY.fullmatch(text) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


async def require_key(request: Request, authorization: Annotated[str | None, Header()] = None) -> str:
    """A dependency of every route but the open ones: `Authorization: Bearer mlk_...`."""
    scheme, _, text = (authorization or "").partition(" ")
    keys = read_keys(request.app.state.settings)  # read each time, so that a withdrawn key ends at once
    found = who(text.strip(), keys) if scheme.lower() == "bearer" else None
    if found is None:
        raise NotAllowedError("This needs a key", "Send the header 'Authorization: Bearer KEY'; make one with: medloop api key")
    return found


Caller = Annotated[str, Depends(require_key)]
