"""What every request must be before it reaches a route: for this host, from this origin, JSON, and small.

Plain ASGI and outermost, so that no route can forget it. The Host header is compared whole: pages of other sites that resolve to
127.0.0.1 (DNS rebinding), and hosts with a path or a query inside (CVE-2026-48710), are strangers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from medloop.api.errors import answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PORT = re.compile(r"(?::[0-9]{1,5})?")
BODY_LIMIT = 64 * 1024
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


class Guard:
    """`hosts` are the names this server answers to, without ports."""

    def __init__(self, app: Any, hosts: tuple[str, ...] = LOOPBACK, body_limit: int = BODY_LIMIT) -> None:
        self.app, self.hosts, self.body_limit = app, hosts, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self._refuse(scope)
        if refused is not None:
            await refused(scope, receive, _careful(send))
            return
        body = await self._read(receive)
        if body is None:
            await self._too_large()(scope, receive, _careful(send))
            return
        await self.app(scope, _replay(body, receive), _careful(send))

    def _refuse(self, scope: Scope) -> Any:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return answer(421, "This server does not answer to that host", f"It answers to {', '.join(self.hosts)}")
        origin = next((value for name, value in headers if name == b"origin"), None)
        if origin is not None and origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            return answer(403, "Pages of other origins may not call this server")
        sizes = [value for name, value in headers if name == b"content-length"]
        if sizes and (not sizes[0].isdigit() or int(sizes[0]) > self.body_limit):
            return self._too_large()
        kind = next((value for name, value in headers if name == b"content-type"), "")
        has_body = (sizes and sizes[0] != "0") or any(name == b"transfer-encoding" for name, _ in headers)
        if has_body and kind.split(";")[0].strip().lower() != "application/json":
            return answer(415, "The body must be JSON", "Send the header 'Content-Type: application/json'")
        return None

    def _is_ours(self, host: str) -> bool:
        return any(host.startswith(name) and PORT.fullmatch(host[len(name) :]) for name in self.hosts)

    def _too_large(self) -> Any:
        return answer(413, f"A body may have {self.body_limit // 1024} KiB", "Files are named, not sent")

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body; None when it is too large. A body without a length is counted as it comes."""
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return body
            body += bytes(message.get("body", b""))
            if len(body) > self.body_limit:
                return None
            if not message.get("more_body"):
                return body


def _replay(body: bytes, receive: Receive) -> Receive:
    handed = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal handed
        if not handed:
            handed = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def _careful(send: Send) -> Send:
    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *SAFE_HEADERS]
        await send(message)

    return with_headers
