"""Who may call a route: `allow` is the only way to say it, and a test walks every route to see that it was said.

    @router.post("/api/v1/rlhf/feedback", status_code=201)
    def submit(body: ..., caller: Annotated[Caller, Depends(allow("clinician", "admin", scope="feedback:write"))]): ...

A key needs the scope and its user one of the roles; a browser session needs the role, and for anything but reading also its
CSRF token. `mine` is the rule for single records: clinicians and annotators see what they sent themselves, else a 404.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from fastapi import Request

from medloop.api.auth import Access
from medloop.errors import MedloopError
from medloop.store.records.users import ROLES, SCOPES, Credential

READING = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_ONLY = frozenset({"clinician", "annotator"})
PLAIN_COOKIE, SAFE_COOKIE = "medloop_session", "__Host-medloop_session"
MAX_FIELDS = 200  # of a form


class NotAllowedError(MedloopError):
    """401: no key and no session, or one that is not good."""


class ForbiddenError(MedloopError):
    """403: known, but this is not for them."""


class NothingHereError(MedloopError):
    """404: no such thing, or not theirs; the two look alike."""


@dataclass(frozen=True)
class Caller:
    """Whoever passed the policy of a route. `credential` names the key or the session, for limits and logs."""

    user_id: str
    name: str
    role: str
    scopes: frozenset[str]
    via: Literal["key", "session"]
    credential: str = ""
    csrf: str = field(default="", repr=False)

    def may_see(self, recorded_by: str | None) -> bool:
        return self.role not in OWN_ONLY or recorded_by == self.user_id


@dataclass(frozen=True)
class Policy:
    """What `allow` said, for the test that walks the routes."""

    roles: frozenset[str]
    scope: str | None


def allow(*roles: str, scope: str | None) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that lets these roles in, with keys only if they carry the scope (None: every good key will do)."""
    assert roles and set(roles) <= set(ROLES), f"unknown role among {roles}"
    assert scope is None or scope in SCOPES, f"unknown scope {scope}: name it in store/records/users.py"

    async def check(request: Request) -> Caller:
        found = await credential_of(request)
        if found is None:
            raise NotAllowedError("This needs a key", "Send 'Authorization: Bearer KEY'; make one: medloop api keys new NAME")
        if found.user.role not in roles:
            raise ForbiddenError(f"This is not for the role '{found.user.role}'", f"It is for {', '.join(sorted(roles))}")
        if scope is not None and scope not in found.scopes:
            raise ForbiddenError(f"This key has not the scope '{scope}'", f"Make one: medloop api keys new NAME --scope {scope}")
        if found.via == "session" and request.method not in READING:
            await _check_csrf(request, found.csrf)
        return _caller(found)

    check.policy = Policy(frozenset(roles), scope)  # type: ignore[attr-defined]
    return check


def mine(caller: Caller, record: Any, what: str = "record") -> Any:
    """The record, if it exists and this caller may see it."""
    if record is None or not caller.may_see(record.recorded_by):
        raise NothingHereError(f"There is no such {what}", "Check its id")
    return record


async def credential_of(request: Request) -> Credential | None:
    """The key in the header, else the session in the cookie. A wrong key is not made good by a cookie beside it."""
    access: Access = request.app.state.access
    header = request.headers.get("authorization")
    if header is None:
        token = session_token(request)
        return await access.look_up("session", token) if token else None
    scheme, _, text = header.partition(" ")
    return await access.look_up("key", text.strip()) if scheme.lower() == "bearer" else None


def session_token(request: Request) -> str:
    return request.cookies.get(cookie_name(request)) or ""


def cookie_name(request: Request) -> str:
    """Behind TLS the browser itself keeps the cookie to this one host; plain HTTP is for this machine only."""
    return SAFE_COOKIE if is_public(request) else PLAIN_COOKIE


def is_public(request: Request) -> bool:
    """Called under a name that is not this machine's: that is a TLS proxy in front of us, see guard.py."""
    return bool(request.scope.get("medloop.public"))


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of two with one name the last."""
    body = (await request.body()).decode("utf-8", errors="replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        return {}


async def _check_csrf(request: Request, wanted: str) -> None:
    given = request.headers.get("x-csrf-token")
    if given is None and request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        given = (await read_form(request)).get("csrf")
    if not hmac.compare_digest((given or "").encode(), wanted.encode()):
        raise ForbiddenError("This page is too old to be sent", "Load it again and send it once more")


def _caller(found: Credential) -> Caller:
    user = found.user
    return Caller(user.user_id, user.name, user.role, found.scopes, found.via, f"{found.via}:{found.id}", found.csrf)
