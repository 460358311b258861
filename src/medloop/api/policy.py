"""Who may call a route. Every route declares it with `allow`, and a test walks all routes to check that it did.

    @router.post("/api/v1/rlhf/feedback", status_code=201)
    def submit(body: ..., caller: Annotated[Caller, Depends(allow("clinician", "admin", scope="feedback:write"))]): ...

An API key needs the scope, and its user one of the roles. A browser session needs the role, and its CSRF token for anything but
reading. Clinicians and annotators see only the records they sent themselves; any other record is a 404 for them. A user of a
site other than `main` gets only the routes that say `sites=True`: those that show nothing which another site wrote.
"""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl

from fastapi import Request

from medloop.api.auth import Authenticator
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.errors import MedloopError
from medloop.store.records.users import RATERS, ROLES, SCOPES, Credential

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_ONLY = frozenset(RATERS)
PLAIN_COOKIE, HOST_COOKIE = "medloop_session", "__Host-medloop_session"
MAX_FIELDS, FORM = 200, "medloop.form"  # of a form; where a request's scope has it
NEW_KEY = "medloop api keys new NAME"
STRANGER = "medloop.stranger"  # in the scope: admission.py has found neither a key nor a session
WITHOUT_OWN_PASSWORD = frozenset({"/web/account", "/web/logout", "/web/alive"})  # for a session with a temporary password


class UnauthenticatedError(MedloopError):
    """401: no key and no session, or an invalid one."""


class ForbiddenError(MedloopError):
    """403: the caller is known, but may not do this."""


class WrongRoleError(ForbiddenError):
    """403: the route is for other roles."""

    def __init__(self, role: str, allowed: frozenset[str]) -> None:
        self.role, self.allowed = role, sorted(allowed)
        super().__init__(f"Access denied: your role ({role}) cannot do this", f"Allowed roles: {', '.join(sorted(allowed))}")


class OtherSitesError(ForbiddenError):
    """403: the route is for the central staff, and the caller belongs to a site."""

    def __init__(self, site: str) -> None:
        self.site = site
        super().__init__(
            f"Only users of the site main can do this, and your account belongs to the site {site}",
            "Ask the assistant and send feedback; for anything else, an admin can move you: medloop site assign NAME main",
        )


class FormExpiredError(ForbiddenError):
    """403: the form's CSRF token does not belong to this session."""


class ForeignOriginError(ForbiddenError):
    """403: a page of another origin sent the request (request_filter.py)."""


class PasswordChangeError(ForbiddenError):
    """403: the password of this session was set by an admin, and its user has not chosen their own yet."""


class NotFoundError(MedloopError):
    """404: it does not exist, or it is not the caller's; the response does not tell which."""


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
    speaks_for: frozenset[str] = frozenset()  # ids of the clinicians whom the key of a program may name
    site: str = DEFAULT_SITE


@dataclass(frozen=True)
class RoutePolicy:
    """The roles and the scope of a route, for the test that walks the routes."""

    roles: frozenset[str]
    scope: str | None
    sites: bool = False


def allow(*roles: str, scope: str | None, sites: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that admits these roles; API keys also need the scope (None: any valid key will do).

    `sites`: users of a site other than `main` may call it, too, because it shows no record of another site.
    """
    assert roles and set(roles) <= set(ROLES), f"unknown role among {roles}"
    assert scope is None or scope in SCOPES, f"unknown scope {scope}: name it in store/records/users.py"
    policy = RoutePolicy(frozenset(roles), scope, sites)

    async def check(request: Request) -> Caller:
        credential = await credential_of(request)
        if credential is None:
            raise _unauthenticated(request)
        if credential.via == "session" and credential.user.must_change and request.url.path not in WITHOUT_OWN_PASSWORD:
            raise PasswordChangeError("Choose your own password first", "Open /web/account")
        if credential.user.role not in policy.roles:
            raise WrongRoleError(credential.user.role, policy.roles)
        if credential.user.site != DEFAULT_SITE and not sites:
            raise OtherSitesError(credential.user.site)
        if scope is not None and scope not in credential.scopes:
            raise ForbiddenError(f"Your key lacks the scope '{scope}'", f"Create one that has it: {NEW_KEY} --scope {scope}")
        if credential.via == "session" and request.method not in READ_METHODS:
            await _check_csrf(request, credential.csrf)
        return caller_of(credential)

    check.policy = policy  # type: ignore[attr-defined]
    return check


async def credential_of(request: Request) -> Credential | None:
    """The key in the header, else the session in the cookie. A valid cookie does not excuse an invalid key."""
    if STRANGER in request.scope:
        return None
    authenticator: Authenticator = request.app.state.authenticator
    header = request.headers.get("authorization")
    if header is None:
        token = session_token(request)
        return await authenticator.look_up("session", token) if token else None
    key = bearer_key(header)
    return await authenticator.look_up("key", key) if key else None


def bearer_key(header: str) -> str:
    """The key in an Authorization header; empty if there is none."""
    scheme, _, text = header.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def _unauthenticated(request: Request) -> UnauthenticatedError:
    """Only whether a key was sent is told apart, which the caller knows; never why a key is refused."""
    if "authorization" in request.headers:
        return UnauthenticatedError("Invalid or expired API key", f"Create a new one: {NEW_KEY}")
    return UnauthenticatedError("An API key is required", f"Send 'Authorization: Bearer KEY'. Create a key: {NEW_KEY}")


def session_token(request: Request) -> str:
    return request.cookies.get(cookie_name(request)) or ""


def cookie_name(request: Request) -> str:
    """Behind TLS the browser binds the cookie to this one host; plain HTTP is for this machine only."""
    return HOST_COOKIE if is_public(request) else PLAIN_COOKIE


def is_public(request: Request) -> bool:
    """Called under a public host name, so there is a TLS proxy in front of us (see request_filter.py)."""
    return bool(request.scope.get("medloop.public"))


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of two fields with one name, the last. They stay with the request: its body arrives only once."""
    if FORM not in request.scope:
        body = (await request.body()).decode("utf-8", errors="replace")
        try:
            request.scope[FORM] = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            request.scope[FORM] = {}
    return dict(request.scope[FORM])


async def _check_csrf(request: Request, expected: str) -> None:
    token = request.headers.get("x-csrf-token")
    if token is None and request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        token = (await read_form(request)).get("csrf")
    if not hmac.compare_digest((token or "").encode(), expected.encode()):
        raise FormExpiredError("This form has expired", "Reload the page and send it again")


def caller_of(credential: Credential) -> Caller:
    user = credential.user
    name = f"{credential.via}:{credential.id}"
    return Caller(
        user.user_id,
        user.name,
        user.role,
        credential.scopes,
        credential.via,
        name,
        credential.csrf,
        credential.speaks_for,
        user.site,
    )
