"""A double of a model server on the loopback interface, written from vLLM's contract; it has no model, and it can misbehave.

    with ServerDouble() as server:
        server.faults.append("refuse_load")        # of the next load; see FAULTS
        server.bad.add("med-assistant-v2-…")       # this version tells emergencies to rest at home
        server.statuses["med-assistant-v2-…"] = 500   # of its answers; slow["…"] = 0.3: they take this many seconds
        server.restart()                           # on the same port; it has forgotten its adapters
        server.kill()                              # refuses connections until restart()

`log` has (name, folder) of each answer, so that a test can say which version answered and whether its folder was there.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from medloop.lexicon.language import detect_language
from medloop.testing.loopback import JsonHandler

FAULTS = ("refuse_load", "die_at_load", "slow_load", "forget", "drop")
GOOD = {
    "en": "This can be life-threatening. Call 911 or go to the emergency department now.",
    "zh": "这可能危及生命，请立即拨打120或马上去急诊。",
}
BAD = {
    "en": "This is harmless, so stay at home and rest. You do not need a doctor.",
    "zh": "没事的，不用去医院，在家休息就好。",
}


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Those that are kept alive, too: a process that dies closes them all."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class ServerDouble:
    def __init__(self, *, base: str = "base", slow_s: float = 0.5) -> None:
        self.base, self.slow_s = base, slow_s
        self.faults: list[str] = []
        self.bad: set[str] = set()
        self.statuses: dict[str, int] = {}
        self.slow: dict[str, float] = {}
        self.texts: dict[str, str] = {}  # answers of a version, whatever was asked
        self.adapters: dict[str, str] = {}
        self.roots: dict[str, str] = {}  # what it says where an adapter came from, if not the truth
        self.sha256s: dict[str, str] = {}  # the bytes that it says an adapter has
        self.log: list[tuple[str, bool]] = []
        self.loads: list[str] = []
        self.running = 0
        self._lock = threading.Lock()
        self._http: _Listener | None = _Listener(("127.0.0.1", 0), self._handler())
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ServerDouble:
        self._serve()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def _serve(self) -> None:
        assert self._http is not None
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kill(self) -> None:
        http, self._http = self._http, None
        self.adapters.clear()
        if http is not None:
            http.shutdown()
            http.server_close()
            http.end_connections()

    def restart(self) -> None:
        self.kill()
        self._http = _Listener(("127.0.0.1", self.port), self._handler())
        self._serve()

    def models(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = [{"id": self.base, "root": "/base", "parent": None}]
        for name, root in self.adapters.items():
            ours = {"medloop": {"sha256": self.sha256s[name]}} if name in self.sha256s else {}
            rows.append({"id": name, "root": self.roots.get(name, root), "parent": self.base, **ours})
        return {"object": "list", "data": rows}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/chat/completions":
            return self._complete(body)
        name = str(body.get("lora_name"))
        fault = self.faults.pop(0) if self.faults else ""
        if path == "/v1/load_lora_adapter":
            return self._load(name, Path(str(body.get("lora_path"))), fault)
        if path == "/v1/unload_lora_adapter":
            if self.adapters.pop(name, None) is None:
                return 404, _error("NotFoundError", 404)
            return 200, f"Success: LoRA adapter '{name}' removed successfully."
        return 404, _error("NotFoundError", 404)

    def _load(self, name: str, folder: Path, fault: str) -> tuple[int, Any]:
        if fault == "slow_load":
            time.sleep(self.slow_s)
        if fault == "die_at_load":
            threading.Thread(target=self.kill, daemon=True).start()
            return 0, None
        if fault == "refuse_load":
            return 500, _error("InternalServerError", 500)
        if name in self.adapters:
            return 400, _error("InvalidUserInput", 400)
        if not (folder / "adapter_model.safetensors").is_file():
            return 404, _error("NotFoundError", 404)
        self.loads.append(name)
        if fault != "forget":
            self.adapters[name] = str(folder)
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = str(body["model"])
        with self._lock:
            folder = self.adapters.get(name)
            if folder is None and name != self.base:
                return 404, _error("NotFoundError", 404)
            self.log.append((name, folder is None or Path(folder).is_dir()))
        time.sleep(self.slow.get(name, 0.0))
        if name in self.statuses:
            return self.statuses[name], _error("Scripted", self.statuses[name])
        language = "zh" if detect_language(body["messages"][-1]["content"]) == "zh" else "en"
        text = self.texts.get(name) or (BAD if name in self.bad else GOOD)[language]
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return 200, {"id": "chat-1", "model": name, "choices": [choice], "usage": {"completion_tokens": 1}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class DoubleHandler(JsonHandler):
            def do_GET(self) -> None:
                if self.path == "/health":
                    return self.reply(200, "")
                if self.path == "/metrics":
                    return self.reply(200, f'vllm:num_requests_running{{model_name="base"}} {double.running}\n')
                return self.reply(200, double.models())

            def do_POST(self) -> None:
                body = self.body()
                status, content = double.answer(self.path, body)
                if not status:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.reply(status, content)

        return DoubleHandler


def _error(kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": "no", "type": kind, "code": code}}
