"""A scripted model server on the loopback interface that speaks OpenAI's chat completions, and can misbehave.

with ChatDouble(answer="Rest and drink. See a doctor.") as server:
    server.faults.append("dies_midway")             # of the next chat completion; see FAULTS
    server.url, server.requests                     # where it is, and the bodies that it got
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from medloop.testing.loopback import JsonHandler, ThreadedServer

# Of one completion: an error status; no answer within the client's patience; not JSON; not a completion; the connection is cut
# before the first byte or in the middle; a stream that ends without saying so; an error inside the stream; a redirect.
FAULTS = (
    "error_500", "error_400", "busy", "no_model", "slow", "garbage", "not_a_completion", "dies_first", "dies_midway",
    "ends_early", "error_event", "redirect",
)  # fmt: skip


class ChatDouble(ThreadedServer):
    def __init__(
        self, answer: str = "Rest and drink water. See a doctor if it gets worse.", models: tuple[str, ...] = ("base",)
    ) -> None:
        self.answer, self.models = answer, list(models)
        self.max_model_len: int | None = None  # what it says of its models, as vLLM does
        self.faults: list[str] = []
        self.tool_calls: list[list[tuple[str, str]]] = []  # (name, arguments) that it asks for first, one list a completion
        self.requests: list[dict[str, Any]] = []
        self.released = threading.Event()  # ends what a slow one waits for
        self.cancelled = threading.Event()  # a client left in the middle of a stream
        self.is_dead = False
        self.pause = threading.Event()  # while set, a stream waits after its first piece
        super().__init__(self._handler())

    def end(self) -> None:
        """As a killed replica: nobody listens any more."""
        self.is_dead = True
        self.released.set()
        self.pause.clear()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class ChatDoubleHandler(JsonHandler):
            def do_GET(self) -> None:
                if double.is_dead:  # a connection that was open before
                    self._cut()
                    return
                self._json(
                    200,
                    {
                        "object": "list",
                        "data": [
                            {"id": name, "object": "model", "max_model_len": double.max_model_len} for name in double.models
                        ],
                    },
                )

            def do_POST(self) -> None:
                body = self.body()
                if double.is_dead:
                    self._cut()
                    return
                double.requests.append(body)
                fault = double.faults.pop(0) if double.faults else ""
                if fault == "" and body["model"] not in double.models:
                    fault = "no_model"
                self._answer(body, fault)

            def _ask_for_tools(self, body: dict[str, Any]) -> None:
                asked = double.tool_calls.pop(0)
                calls: list[dict[str, Any]] = [
                    {"id": f"call-{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
                    for n, (name, arguments) in enumerate(asked)
                ]
                if not body.get("stream"):
                    message = {"role": "assistant", "content": None, "tool_calls": calls}
                    self._json(200, {"model": body["model"], "choices": [{"message": message, "finish_reason": "tool_calls"}]})
                    return
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})
                for index, call in enumerate(calls):
                    text = call["function"]["arguments"]
                    for part in (
                        {"index": index, "id": call["id"], "function": {"name": call["function"]["name"], "arguments": ""}},
                        {"index": index, "function": {"arguments": text[:5]}},
                        {"index": index, "function": {"arguments": text[5:]}},
                    ):
                        self._event({"choices": [{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}]})
                self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")

            def _answer(self, body: dict[str, Any], fault: str) -> None:
                if double.tool_calls and body.get("tools"):
                    self._ask_for_tools(body)
                    return
                statuses = {"error_500": 500, "error_400": 400, "busy": 429, "no_model": 404}
                if fault in statuses:
                    self._json(statuses[fault], {"error": {"message": "scripted", "type": "x", "code": statuses[fault]}})
                elif fault == "redirect":
                    self.send_response(307)
                    self.send_header("Location", "http://127.0.0.1:9/")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif fault == "dies_first":
                    self._cut()
                elif fault == "garbage":
                    self._bytes(200, b"<html>not JSON</html>")
                elif fault == "not_a_completion":
                    self._json(200, {"object": "list", "data": []})
                elif body.get("stream"):
                    self._stream(body, fault)
                else:
                    if fault == "slow":
                        double.released.wait(60)
                    message = {"role": "assistant", "content": double.answer}
                    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
                    self._json(200, {"object": "chat.completion", "model": body["model"], "choices": choices, "usage": usage})

            def _stream(self, body: dict[str, Any], fault: str) -> None:
                if fault == "slow":
                    double.released.wait(60)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                pieces = [double.answer[start : start + 4] for start in range(0, len(double.answer), 4)]
                for number, piece in enumerate(pieces):
                    if number == len(pieces) // 2:
                        if fault == "dies_midway":  # without a reset, which would take back what is on its way
                            self.close_connection = True
                            self.connection.shutdown(socket.SHUT_RDWR)
                            return
                        if fault == "error_event":
                            self._event({"error": {"message": "scripted"}})
                            self._chunk(b"")
                            return
                        if fault == "ends_early":
                            self._chunk(b"")
                            return
                    if not self._event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}):
                        double.cancelled.set()
                        return
                    while double.pause.is_set() and not double.released.wait(0.02):
                        if not self._event({"choices": []}):
                            double.cancelled.set()
                            return
                self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                if (body.get("stream_options") or {}).get("include_usage"):
                    self._event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}})
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")

            def _event(self, value: dict[str, Any]) -> bool:
                return self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

            def _chunk(self, data: bytes) -> bool:
                try:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
                except OSError:
                    self.close_connection = True
                    return False
                return True

            def _cut(self) -> None:
                """A reset, as from a process that was killed."""
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()

            def _json(self, status: int, value: dict[str, Any]) -> None:
                self._bytes(status, json.dumps(value).encode())

            def _bytes(self, status: int, data: bytes) -> None:
                try:
                    self.reply(status, data)
                except OSError:
                    self.close_connection = True

        return ChatDoubleHandler
