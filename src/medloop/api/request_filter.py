"""Rejects requests by their headers before any route sees them: wrong host, foreign origin, wrong content type, body too large.

Plain ASGI middleware, so no route can forget it. The Host header is compared as a whole: pages of other sites that resolve to
127.0.0.1 (DNS rebinding), and hosts with a path or query inside (CVE-2026-48710), are foreign. Bodies are JSON; only the web
pages accept forms, because any site can send a form without a preflight request, but not JSON (CVE-2021-32677).

A host name that is not this machine's belongs to a TLS proxy in front of us; there, only https origins are our own.

The scope tells the next ones `medloop.public` (called under such a name), `medloop.address` (client_address.py) and
`medloop.has_body`.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from medloop.api.client_address import TrustedProxies
from medloop.api.errors import error_response, in_shape, is_page, page_of_error
from medloop.api.policy import READ_METHODS, ForeignOriginError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, list[str]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PORT = re.compile(r"(?::[0-9]{1,5})?")
KiB = 1024
BODY_LIMIT = 64 * KiB
SHOWN_AS_PAGE = (403, 413)
JSON, FORM, JSON_LINES = "application/json", "application/x-www-form-urlencoded", "application/x-ndjson"


@dataclass(frozen=True)
class BodyRule:
    """The bodies that addresses with this prefix accept."""

    prefix: str
    content_types: tuple[str, ...] = (JSON,)
    limit: int = BODY_LIMIT


# The first match applies.
BODY_RULES = (
    BodyRule("/web/", (FORM,), 512 * KiB),  # URL-encoded, a Chinese character takes nine bytes
    BodyRule("/api/v1/rlhf/import", (JSON, JSON_LINES), 8 * KiB * KiB),
    BodyRule("/api/v1/", limit=256 * KiB),
    BodyRule("/v1/", limit=512 * KiB),
    BodyRule("/"),
)
API_CSP = b"default-src 'none'; frame-ancestors 'none'"
PAGE_CSP = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
RESOURCES = b"cross-origin-resource-policy"
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers send the forms of our own pages with 'Origin: null'
    (b"cross-origin-opener-policy", b"same-origin"),
    (RESOURCES, b"same-origin"),
)
WIDGET, WIDGET_SCRIPT = "/api/v1/widget/feedback", "/widget.js"
PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "authorization, content-type, idempotency-key",
    "Access-Control-Max-Age": "600",
}  # fmt: skip
NOT_CACHED = ((b"cache-control", b"no-store"),)
TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")


class RequestFilter:
    """`hosts` are the names this server answers to, without ports."""

    def __init__(
        self, app: Any, hosts: tuple[str, ...] = LOOPBACK, proxies: TrustedProxies = TrustedProxies(),
        widget_origins: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.app, self.hosts, self.proxies, self.widget_origins = app, hosts, proxies, widget_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there are none here
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = _headers_by_name(scope)
        public = not _is_one_of(headers.get(b"host", [""])[0], LOOPBACK)
        scope["medloop.public"] = public
        scope["medloop.address"] = self.proxies.client((scope.get("client") or ("",))[0], headers.get(b"x-forwarded-for", []))
        scope["medloop.has_body"] = has_body = _has_body(headers)
        origin = self._widget_origin(scope, headers)
        send = _with_security_headers(send, scope["path"], public, origin)
        if origin and scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=PREFLIGHT)(scope, receive, send)
            return
        rejection = self._reject(scope, headers, has_body, public, bool(origin))
        if rejection is None:
            await self.app(scope, receive, send)
        else:
            await (await as_page(scope, rejection))(scope, receive, send)

    def _widget_origin(self, scope: Scope, headers: Headers) -> str:
        """The allowed origin of a page with the widget; empty for every other request. Its cookies are never asked for."""
        origins = headers.get(b"origin", [])
        named = len(origins) == 1 and origins[0] in self.widget_origins and b"cookie" not in headers
        return origins[0] if scope["path"] == WIDGET and named else ""

    def _reject(self, scope: Scope, headers: Headers, has_body: bool, public: bool, from_widget: bool) -> JSONResponse | None:
        """The error response for a request that no route may see; None if it is fine so far."""
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or not _is_one_of(hosts[0], self.hosts):
            return error_response(421, "This server does not serve that host name", f"Use {', '.join(self.hosts)}")
        site = headers.get(b"sec-fetch-site", ["same-origin"])[0]
        foreign = scope["method"] not in READ_METHODS and site in ("cross-site", "same-site")
        own = (f"https://{hosts[0]}",) if public else (f"https://{hosts[0]}", f"http://{hosts[0]}")
        if not from_widget and (foreign or any(origin not in own for origin in headers.get(b"origin", ()))):
            return error_response(403, "Pages of other origins cannot call this server")
        sizes, rule = headers.get(b"content-length", []), body_rule(scope["path"])
        if sizes and (not sizes[0].isdigit() or int(sizes[0]) > rule.limit):
            return too_large(rule)
        content_type = headers.get(b"content-type", [""])[0].split(";")[0].strip().lower()
        if has_body and content_type not in rule.content_types:
            expected = rule.content_types[0]
            return error_response(415, f"Unsupported Content-Type; send {expected}", f"Set the header 'Content-Type: {expected}'")
        return None


@lru_cache(maxsize=256)
def body_rule(path: str) -> BodyRule:
    return next(rule for rule in BODY_RULES if path.startswith(rule.prefix) or rule.prefix == "/")


def _has_body(headers: Headers) -> bool:
    return headers.get(b"content-length", ["0"])[0] != "0" or b"transfer-encoding" in headers


async def as_page(scope: Scope, response: JSONResponse) -> Response:
    """On the web pages a refusal is a page too. It is made without the body, which was not checked."""
    request = Request(scope, no_body())
    if response.status_code not in SHOWN_AS_PAGE or not is_page(request):
        return in_shape(scope["path"], response)
    error = ForeignOriginError("Pages of other origins cannot call this server") if response.status_code == 403 else None
    return await page_of_error(request, response.status_code, error)


def no_body() -> Receive:
    """A `receive` for a request whose body is not read."""
    return replay(b"", _nothing_more)


async def _nothing_more() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


@lru_cache(maxsize=256)
def _is_one_of(host: str, names: tuple[str, ...]) -> bool:
    return any(host.startswith(name) and PORT.fullmatch(host[len(name) :]) for name in names)


def _headers_by_name(scope: Scope) -> Headers:
    headers: Headers = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value.decode("latin-1"))
    return headers


def too_large(rule: BodyRule) -> JSONResponse:
    return error_response(413, f"The body is too large; the limit is {rule.limit // KiB} KiB", "Send it in parts")


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out the body that was already read, then whatever comes after it."""
    sent = False

    async def receive_again() -> MutableMapping[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receive_again


@cache
def _security_headers(is_page: bool, public: bool) -> tuple[tuple[bytes, bytes], ...]:
    csp = PAGE_CSP if is_page else API_CSP
    return (*SECURITY_HEADERS, (b"content-security-policy", csp), *([TLS_ONLY] if public else ()))


def _with_security_headers(send: Send, path: str, public: bool, widget_origin: str = "") -> Send:
    added = _security_headers(path.startswith("/web"), public)
    if path == WIDGET_SCRIPT or widget_origin:
        added = tuple((name, b"cross-origin" if name == RESOURCES else value) for name, value in added)
    if widget_origin:
        added += ((b"access-control-allow-origin", widget_origin.encode("latin-1")), (b"vary", b"Origin"))

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            cached = b"cache-control" in [name.lower() for name, _ in headers]
            message["headers"] = [*headers, *(() if cached else NOT_CACHED), *added]
        await send(message)

    return send_with_headers
