"""Who may send a body, and how many at once: the caller is known before a slot is taken, and has a slot before a byte is kept.

Middleware between request_filter.py and the routes; what has no body passes. The body of a stranger is never read: the route sees
an empty one and answers 401. Forms of the web pages are the exception, because the login is one, and what somebody typed before
their session ended must not be lost: `GuestForms` reads a few of them at a time, and a new one takes the place of the oldest.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Request

from medloop.api.errors import error_response, in_shape, is_page, page_of_error
from medloop.api.limits import RequestSlots, send_overloaded, slots_of
from medloop.api.policy import STRANGER, credential_of
from medloop.api.request_filter import Receive, Scope, Send, as_page, body_rule, no_body, replay, too_large
from medloop.store.records.users import Credential
from medloop.store.records.write_request import OverloadedError

BODY_S = 30.0  # a client that takes longer to send its body is only holding the connection open
GUESTS, GUEST_S = 64, 10.0


class GuestForms:
    """The forms of people without a session that are being read. When all places are taken, the address with most of them
    loses its oldest."""

    def __init__(self, limit: int = GUESTS) -> None:
        self.limit = limit
        self._reading: dict[asyncio.Timeout, str] = {}  # oldest first; the address of each

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """TimeoutError when it takes too long, or when somebody else gets the place."""
        if len(self._reading) >= self.limit:
            crowded = Counter(self._reading.values()).most_common(1)[0][0]
            oldest = next(timeout for timeout, sender in self._reading.items() if sender == crowded)
            del self._reading[oldest]
            if not oldest.expired():
                oldest.reschedule(0)
        async with asyncio.timeout(GUEST_S) as timeout:
            self._reading[timeout] = address
            try:
                yield
            finally:
                self._reading.pop(timeout, None)


class Admission:
    def __init__(self, app: Any, slots: RequestSlots) -> None:
        self.app, self.slots, self.guests = app, slots, GuestForms()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["medloop.has_body"]:
            await self.app(scope, receive, send)
            return
        request = Request(scope, no_body())
        credential = await credential_of(request)
        if credential is None and not is_page(request):
            scope[STRANGER] = True
            await self.app(scope, replay(b"", receive), send)
        elif credential is None:
            await self._with_body(scope, receive, send, self.guests.place(scope["medloop.address"]))
        else:
            await self._with_slots(request, receive, send, credential)

    async def _with_slots(self, request: Request, receive: Receive, send: Send, credential: Credential) -> None:
        slots = slots_of(request.headers.get("content-length"), body_rule(request.scope["path"]).limit)
        holders = holders_of(credential, request.scope["medloop.address"])
        if self.slots.has_room(holders, slots):
            with self.slots.holding(holders, slots):
                await self._with_body(request.scope, receive, send, asyncio.timeout(BODY_S))
        elif is_page(request):
            busy = OverloadedError("The server is overloaded", "Send it again in a moment")
            await (await page_of_error(request, 503, busy))(request.scope, receive, send)
        else:
            await send_overloaded(send)

    async def _with_body(self, scope: Scope, receive: Receive, send: Send, limits: Any) -> None:
        """Read the body within `limits`, then call the route."""
        rule = body_rule(scope["path"])
        try:
            async with limits:
                body = await _read(receive, rule.limit)
        except TimeoutError:
            slow = error_response(408, "The body took too long to arrive, or the server needed the place", "Send it again")
            await in_shape(scope["path"], slow)(scope, receive, send)
            return
        if body is None:
            await (await as_page(scope, too_large(rule)))(scope, receive, send)
            return
        await self.app(scope, replay(body, receive), send)


def holders_of(credential: Credential, address: str) -> tuple[str, ...]:
    """Whose shares a request uses: the user's, whatever key or session it has, and the address's, if it is known."""
    return (f"user {credential.user.user_id}", f"address {address}") if address else (f"user {credential.user.user_id}",)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None when it is too large. A body without a length is counted as it arrives."""
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
