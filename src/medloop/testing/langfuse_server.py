"""A Langfuse on the loopback interface that keeps its contract and can misbehave as the real one has been seen to.

    with LangfuseServer() as server:
        server.project.add_trace("a" * 32, "I cough.", "Do you have a fever?", start)
        Settings(home=..., langfuse=server.settings())
    with LangfuseServer(fault=lambda number, target: "rate" if number == 2 else "ok"): ...

Faults: rate (429 with Retry-After), rate_long, error_500, html (a proxy's 502), truncated (half the JSON with a correct length),
reset (half the body, then a closed connection), repeated (the page before, with the same cursor), expired (400: no cursor is
valid any more), hang. `requests` counts what arrived. The real SDK 5 talks to it (tests/telemetry/test_real_clients.py).
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import SecretStr

from medloop.sections import LangfuseSettings
from medloop.testing.langfuse_project import BadRequest, LangfuseProject
from medloop.testing.loopback import AsyncServer

PUBLIC_KEY, SECRET_KEY = "pk-lf-t", "sk-lf-t"
API = "/api/public"
VERSION = "4.59.0"

Fault = Callable[[int, str], str]  # (number of the request, path and query) -> name


class LangfuseServer(AsyncServer):
    """Runs in a thread of its own."""

    def __init__(self, *, fault: Fault = lambda number, target: "ok", port: int = 0) -> None:
        super().__init__(port)
        self.fault = fault
        self.project = LangfuseProject()
        self.paths: list[str] = []
        self.bodies: list[bytes] = []  # of what was posted, decompressed
        self._last_page: dict[str, bytes] = {}  # by path

    def settings(self, **more: Any) -> LangfuseSettings:
        return LangfuseSettings(url=self.url, public_key=PUBLIC_KEY, secret_key=SecretStr(SECRET_KEY), **more)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"^content-length: (\d+)", head, re.IGNORECASE | re.MULTILINE)
                body = await reader.readexactly(int(length[1])) if length else b""
                if re.search(r"^content-encoding: gzip", head, re.IGNORECASE | re.MULTILINE):
                    body = gzip.decompress(body)
                await self._answer(head, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # cancelled when the server stops
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        parts = urlsplit(target)
        number, self.requests = self.requests, self.requests + 1
        self.paths.append(f"{method} {parts.path}")
        fault = self.fault(number, target)
        if fault in STATUS:
            status, extra = STATUS[fault]
            return await _send(writer, status, b"<html>Bad gateway</html>" if fault == "html" else b'{"message":"no"}', extra)
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "expired":
            self.project.epoch += 1
        if fault == "repeated" and parts.path in self._last_page:
            return await _send(writer, 200, self._last_page[parts.path])
        try:
            status, answer = self._route(method, parts.path, parse_qs(parts.query), head, body)
        except BadRequest as problem:
            status, answer = 400, {"message": str(problem)}
        raw = json.dumps(answer, ensure_ascii=False).encode()
        if fault == "truncated":
            return await _send(writer, status, raw[: len(raw) // 2])
        if fault == "reset":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(raw) + raw[: len(raw) // 2])
            await writer.drain()
            writer.transport.abort()
            raise ConnectionError
        if method == "GET" and status == 200:
            self._last_page[parts.path] = raw
        await _send(writer, status, raw)

    def _route(self, method: str, path: str, query: dict[str, list[str]], head: str, body: bytes) -> tuple[int, Any]:
        if path == f"{API}/health":
            return 200, {"status": "OK", "version": VERSION}
        given = re.search(r"^authorization: Basic (\S+)", head, re.IGNORECASE | re.MULTILINE)
        if given is None or base64.b64decode(given[1]).decode() != f"{PUBLIC_KEY}:{SECRET_KEY}":
            return 401, {"message": "Invalid credentials"}
        if method == "GET":
            reads: dict[str, Callable[[dict[str, list[str]]], Any]] = {
                f"{API}/projects": lambda _: {"data": [_project(self.project.project_id)]},
                f"{API}/v2/observations": self.project.read_observations,
                f"{API}/v3/scores": self.project.read_scores,
            }
            return (200, reads[path](query)) if path in reads else (404, {"message": "Not found"})
        if method == "DELETE" and path.startswith(f"{API}/scores/"):
            gone = self.project.scores.pop(unquote(path.rpartition("/")[2]), None)
            return (200, {"message": "Score deleted"}) if gone else (404, {"message": "Score not found"})
        if method == "DELETE":
            ids = json.loads(body)["traceIds"] if path == f"{API}/traces" else [unquote(path.rpartition("/")[2])]
            self.project.delete_traces(ids)
            return 200, {"message": "Traces deleted"}
        self.bodies.append(body)
        if path == f"{API}/scores":
            return self.project.write_scores(json.loads(body))
        if path == f"{API}/otel/v1/traces":
            is_json = re.search(r"^content-type: application/json", head, re.IGNORECASE | re.MULTILINE)
            self.project.write_spans(json.loads(body) if is_json else _from_protobuf(body))
            return 200, {}
        return 404, {"message": "Not found"}


STATUS = {
    "rate": (429, "retry-after: 0\r\n"),
    "rate_long": (429, "retry-after: 3600\r\n"),
    "error_500": (500, ""),
    "html": (502, "content-type: text/html\r\n"),
}


def _project(project_id: str) -> dict[str, Any]:
    return {"id": project_id, "name": "clinic", "organization": {"id": "org-1", "name": "clinic"}, "metadata": {}}


def _from_protobuf(body: bytes) -> dict[str, Any]:
    """An OTLP request in the JSON form that OTLP defines: ids are hexadecimal there, not base64."""
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request: dict[str, Any] = MessageToDict(ExportTraceServiceRequest.FromString(body))
    for resource in request.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64decode(span[name]).hex()
    return request


async def _send(writer: asyncio.StreamWriter, status: int, raw: bytes, extra: str = "") -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(raw)}\r\n"
    kind = "" if "content-type" in extra else "content-type: application/json\r\n"
    writer.write(f"{head}{kind}{extra}\r\n".encode() + raw)
    await writer.drain()
