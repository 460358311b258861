"""What the servers of the tests have in common: an address on the loopback interface, a thread of their own, an end.

`AsyncServer` reads connections in an event loop and can send bytes as slowly and as broken as it likes. `ThreadedServer` is
`http.server` with a handler (`JsonHandler` or another) that is made for this one server.
"""

from __future__ import annotations

import asyncio
import json
import threading
from abc import abstractmethod
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

START_S = 30.0


class AsyncServer:
    """Subclasses read and answer one connection in `connection`."""

    def __init__(self, port: int = 0, *, backlog: int = 128) -> None:
        self.port, self.backlog = port, backlog
        self.requests = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(START_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)

    def serve_forever(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self.connection, "127.0.0.1", self.port, backlog=self.backlog)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    @abstractmethod
    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


class ThreadedServer:
    """A thread for each connection. `end` is called before the listener closes."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], *, wait_for_threads: bool = False) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = not wait_for_threads  # else all have ended when the server is closed
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def end(self) -> None:
        """Lets go of what answers wait for."""

    def stop(self) -> None:
        self.end()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class JsonHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self) -> Any:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        return json.loads(raw) if raw.strip() else None

    def reply(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        """Bytes and strings as they are, None as an empty body, the rest as JSON."""
        raw = b"" if content is None else content if isinstance(content, bytes) else _encoded(content)
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal of a test, and no address with an id in it."""


def _encoded(content: Any) -> bytes:
    return (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode()
