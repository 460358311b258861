"""A load generator on bare sockets, in a process of its own: cheap enough that the server is what is measured.

    echo '{"port": 8000, "path": "/api/v1/rlhf/feedback", "bodies": "bodies.jsonl", …}' | python benchmarks/_load.py

Closed loop: each connection sends its next request when the answer to the one before is there. Open loop (`rate`): requests
are due at fixed times whatever the server does; one that finds no free connection waits in line, and its wait counts as latency.
With `resend` a request that gets no answer, 429 or 503 is sent again with the same idempotency key until it is acknowledged.
Prints one JSON object: answers by status, latency of the good ones, failures; `acked` is a file of key and answer, one per line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, TextIO


@dataclass
class Plan:
    port: int
    path: str
    bodies: str
    keys: list[str] = field(default_factory=list)  # one bearer key per connection, in turn
    connections: int = 16
    seconds: float = 5.0
    rate: float = 0.0
    prefix: str = ""  # of idempotency keys; none: no such header
    resend: bool = False
    most: int = 0  # end after so many acknowledged records
    kind: str = "application/json"
    acked: str = ""


@dataclass
class Seen:
    statuses: dict[int, int] = field(default_factory=dict)
    broken: int = 0
    seconds: list[float] = field(default_factory=list)
    no_retry_after: int = 0
    good: int = 0


@dataclass
class Ask:
    number: int
    due: float


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request at a time."""

    def __init__(self, load: Load, bearer: str) -> None:
        self.load, self.bearer = load, bearer
        self.ask: Ask | None = None
        self.transport: Any = None
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.load.free(self)

    def send(self, ask: Ask) -> None:
        self.ask, self.buffer = ask, b""
        self.transport.write(self.load.request(ask.number, self.bearer))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0 or self.ask is None:
            return
        headers = self.buffer[:head].lower()
        start = headers.find(b"content-length:")
        size = int(headers[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(self.buffer) < head + 4 + size:
            return
        ask, self.ask = self.ask, None
        self.load.answered(ask, int(self.buffer[9:12]), headers, self.buffer[head + 4 : head + 4 + size])
        if b"connection: close" in headers:
            self.transport.close()
        else:
            self.load.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        ask, self.ask = self.ask, None
        self.load.lost(self, ask)


class Load:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.seen = plan, Seen()
        with open(plan.bodies, encoding="utf-8") as file:
            self.bodies = [line.rstrip("\n").replace("\x1e", "\n") for line in file]  # a record separator stands for a line break
        self.number = self.records = 0
        self.again: deque[tuple[float, Ask]] = deque()
        self.line: deque[Ask] = deque()
        self.idle: deque[Connection] = deque()
        self.ended = False
        self.log: TextIO | None = None

    def request(self, number: int, bearer: str) -> bytes:
        body = self.bodies[number % len(self.bodies)].replace("@KEY@", f"{self.plan.prefix}{number}").encode()
        key = f"Idempotency-Key: {self.plan.prefix}{number}\r\n" if self.plan.prefix else ""
        auth = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
        head = f"POST {self.plan.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.plan.port}\r\nContent-Type: {self.plan.kind}\r\n"
        return f"{head}{auth}{key}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def next_ask(self) -> Ask | None:
        now = time.perf_counter()
        if self.again and self.again[0][0] <= now:
            return self.again.popleft()[1]
        if self.plan.rate:
            return self.line.popleft() if self.line else None
        if self.ended:
            return None
        self.number += 1
        return Ask(self.number, now)

    def free(self, connection: Connection) -> None:
        ask = self.next_ask()
        if ask is None:
            self.idle.append(connection)
        else:
            connection.send(ask)

    def answered(self, ask: Ask, status: int, headers: bytes, body: bytes) -> None:
        seen = self.seen
        seen.statuses[status] = seen.statuses.get(status, 0) + 1
        if 200 <= status < 300:
            seen.good += 1
            self.records += body.count(b'"feedback_id"')  # one, or those of an import
            seen.seconds.append(time.perf_counter() - ask.due)
            if self.log is not None:
                self.log.write(f"{self.plan.prefix}{ask.number} {body.decode()}\n")
            if self.plan.most and self.records >= self.plan.most:
                self.ended = True
            return
        if status in (429, 503):
            seen.no_retry_after += b"retry-after:" not in headers
            if self.plan.resend:
                self.again.append((time.perf_counter() + 0.2, ask))

    def lost(self, connection: Connection, ask: Ask | None) -> None:
        self.seen.broken += ask is not None
        with contextlib.suppress(ValueError):
            self.idle.remove(connection)
        if ask is not None and self.plan.resend:
            self.again.append((time.perf_counter() + 0.05, ask))
        asyncio.get_running_loop().create_task(self.connect(connection.bearer))

    async def connect(self, bearer: str) -> None:
        """Until it works, or until the run is over: the server may be on its way up."""
        while not (self.ended and not self.again):
            try:
                await asyncio.get_running_loop().create_connection(lambda: Connection(self, bearer), "127.0.0.1", self.plan.port)
                return
            except OSError:
                await asyncio.sleep(0.05)

    async def run(self) -> dict[str, Any]:
        plan, started = self.plan, time.perf_counter()
        keys = plan.keys or [""]
        with contextlib.ExitStack() as stack:
            if plan.acked:
                self.log = stack.enter_context(open(plan.acked, "w", encoding="utf-8", buffering=1))
            await asyncio.gather(*(self.connect(keys[n % len(keys)]) for n in range(plan.connections)))
            if plan.rate:
                await self._on_time(started)
            else:
                await self._until(started)
            took = time.perf_counter() - started
            self.ended = True
        return _report(self.seen, took)

    async def _until(self, started: float) -> None:
        while not self.ended and time.perf_counter() - started < self.plan.seconds:
            await asyncio.sleep(0.02)
            self._wake()
        self.ended = True
        deadline = time.perf_counter() + 15
        while self.plan.resend and self.again and time.perf_counter() < deadline:  # what was sent is brought to an end
            await asyncio.sleep(0.02)
            self._wake()

    async def _on_time(self, started: float) -> None:
        """Every 5 ms put what is due into the line."""
        sent = 0
        while (now := time.perf_counter()) - started < self.plan.seconds:
            due = int((now - started) * self.plan.rate) + 1  # the first one at once
            for number in range(sent, due):
                self.number += 1
                self.line.append(Ask(self.number, started + number / self.plan.rate))
            sent = due
            self._wake()
            await asyncio.sleep(0.005)

    def _wake(self) -> None:
        while self.idle and (ask := self.next_ask()) is not None:
            self.idle.popleft().send(ask)


def _report(seen: Seen, took: float) -> dict[str, Any]:
    times = sorted(seen.seconds)
    percentiles = (
        {f"p{p}_ms": round(times[min(len(times) - 1, len(times) * p // 100)] * 1000, 1) for p in (50, 99)} if times else {}
    )
    return {
        "seconds": round(took, 3), "good": seen.good, "per_s": round(seen.good / took, 1), "statuses": seen.statuses,
        "broken": seen.broken, "no_retry_after": seen.no_retry_after, **percentiles,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Load(Plan(**json.load(sys.stdin))).run())))
