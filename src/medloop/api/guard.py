"""What every request must be before it reaches a route: for this host, from this origin, of a known kind, and small.

Plain ASGI and outermost, so that no route can forget it. The Host header is compared whole: pages of other sites that resolve to
127.0.0.1 (DNS rebinding), and hosts with a path or a query inside (CVE-2026-48710), are strangers. Bodies are JSON, forms only
where the web pages are: a form can be sent by any site without the browser asking, JSON cannot (CVE-2021-32677).

A host name that is not this machine's is that of a TLS proxy in front: there only https origins are ours.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from medloop.api.errors import answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, list[str]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PORT = re.compile(r"(?::[0-9]{1,5})?")
BODY_S = 30.0  # a body that takes longer is somebody holding the door open
KiB = 1024
BODY_LIMIT = 64 * KiB
JSON, FORM, LINES = "application/json", "application/x-www-form-urlencoded", "application/x-ndjson"
READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Body:
    """What one part of the addresses takes."""

    prefix: str
    kinds: tuple[str, ...] = (JSON,)
    limit: int = BODY_LIMIT


# The first that fits.
BODIES = (
    Body("/web/", (FORM,), 512 * KiB),  # a long answer in Chinese has nine bytes per character there
    Body("/api/v1/rlhf/import", (JSON, LINES), 8 * KiB * KiB),
    Body("/api/v1/", limit=256 * KiB),
    Body("/"),
)
API_CSP = b"default-src 'none'; frame-ancestors 'none'"
PAGE_CSP = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers send the forms of our own pages with 'Origin: null'
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")


class Guard:
    """`hosts` are the names this server answers to, without ports."""

    def __init__(self, app: Any, hosts: tuple[str, ...] = LOOPBACK) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there are none here; nobody gets further by asking
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = _by_name(scope)
        public = not _is_one_of(headers.get(b"host", [""])[0], LOOPBACK)
        scope["medloop.public"] = public
        careful = _careful(send, scope["path"], public)
        taken = next(body for body in BODIES if scope["path"].startswith(body.prefix) or body.prefix == "/")
        refused = self._refuse(scope, headers, taken, public)
        if refused is not None:
            await refused(scope, receive, careful)
            return
        try:
            async with asyncio.timeout(BODY_S):
                body = await _read(receive, taken.limit)
        except TimeoutError:
            await answer(408, "The body came too slowly", "Send it again")(scope, receive, careful)
            return
        if body is None:
            await _too_large(taken)(scope, receive, careful)
            return
        await self.app(scope, _replay(body, receive), careful)

    def _refuse(self, scope: Scope, headers: Headers, taken: Body, public: bool) -> Any:
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or not _is_one_of(hosts[0], self.hosts):
            return answer(421, "This server does not answer to that host", f"It answers to {', '.join(self.hosts)}")
        ours = {f"https://{hosts[0]}"} | (set() if public else {f"http://{hosts[0]}"})
        site = headers.get(b"sec-fetch-site", ["same-origin"])[0]
        foreign = scope["method"] not in READING and site in ("cross-site", "same-site")
        if foreign or not set(headers.get(b"origin", [])) <= ours:
            return answer(403, "Pages of other origins may not call this server")
        sizes = headers.get(b"content-length", [])
        if sizes and (not sizes[0].isdigit() or int(sizes[0]) > taken.limit):
            return _too_large(taken)
        kind = headers.get(b"content-type", [""])[0].split(";")[0].strip().lower()
        has_body = (sizes and sizes[0] != "0") or b"transfer-encoding" in headers
        if has_body and kind not in taken.kinds:
            return answer(415, "The body is of another kind", f"Send it with 'Content-Type: {taken.kinds[0]}'")
        return None


@lru_cache(maxsize=256)
def _is_one_of(host: str, names: tuple[str, ...]) -> bool:
    return any(host.startswith(name) and PORT.fullmatch(host[len(name) :]) for name in names)


def _by_name(scope: Scope) -> Headers:
    found: Headers = {}
    for name, value in scope["headers"]:
        found.setdefault(name.lower(), []).append(value.decode("latin-1"))
    return found


def _too_large(taken: Body) -> Any:
    return answer(413, f"A body may have {taken.limit // KiB} KiB", "Send it in parts")


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None when it is too large. A body without a length is counted as it comes."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    handed = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal handed
        if not handed:
            handed = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def _careful(send: Send, path: str, public: bool) -> Send:
    csp = PAGE_CSP if path.startswith("/web") else API_CSP
    added = [*SAFE_HEADERS, (b"content-security-policy", csp), *([TLS_ONLY] if public else [])]

    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", []))
            kept = [] if any(name.lower() == b"cache-control" for name, _ in given) else [(b"cache-control", b"no-store")]
            message["headers"] = [*given, *added, *kept]
        await send(message)

    return with_headers
