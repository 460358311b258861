"""A judge for RAGAS on the loopback interface: chat completions and embeddings as OpenAI has them, and it can misbehave.

    with RagasJudgeServer(fault=lambda n: "error_500" if n == 0 else "ok") as server:      # request number (from 0) -> fault
        RagasJudge(python, server.url, model="judge", embedding_model="words")

It judges by words, so that every score can be worked out by hand: a statement is supported where the context has all its longer
words, a passage is useful where it supports a sentence of the answer, and the question made from an answer is the answer itself.
A vector counts words, each in a place of its own.
"""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from typing import Any

from medloop.testing.loopback import JsonHandler, ThreadedServer

FAULTS = ("ok", "error_500", "rate", "hang", "reset", "html", "bad_json", "empty", "wrong_form", "infinite_vector")
DIMENSIONS = 512
_INPUT = re.compile(r"Now perform the same with the following input\ninput: (.*)\nOutput:", re.DOTALL)


def words_of(text: str) -> set[str]:
    han = re.findall(r"[\u3400-\u9fff]", text)
    return {word.lower() for word in re.findall(r"[A-Za-z]{4,}", text)} | {a + b for a, b in pairwise(han)}


def statements_of(text: str) -> list[str]:
    return [piece.strip() for piece in re.split(r"(?<=[.。!！?？])", text) if re.search(r"\w", piece)]


def is_supported(statement: str, context: str) -> bool:
    return words_of(statement) <= words_of(context)


def vector_of(text: str) -> list[float]:
    vector = [0.0] * DIMENSIONS
    for word in words_of(text):
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
    return vector


def judge(prompt: str) -> dict[str, Any]:
    """The reply to one of RAGAS' prompts, by the input at its end."""
    found = _INPUT.search(prompt)
    data = json.loads(found[1]) if found else {}
    if "statements" in data:
        verdicts = [(text, is_supported(text, data["context"])) for text in data["statements"]]
        return {"statements": [{"statement": text, "reason": "By its words.", "verdict": int(yes)} for text, yes in verdicts]}
    if "response" in data:
        return {"question": data["response"], "noncommittal": int("I don't know" in data["response"])}
    if "context" not in data:
        return {"statements": statements_of(data.get("answer", ""))}
    verdicts = [(text, is_supported(text, data["context"])) for text in statements_of(data["answer"])]
    if '"classifications"' in prompt:
        entries = [{"statement": text, "reason": "By its words.", "attributed": int(yes)} for text, yes in verdicts]
        return {"classifications": entries}
    return {"reason": "By its words.", "verdict": int(any(yes for _, yes in verdicts))}


class RagasJudgeServer(ThreadedServer):
    """`seen` keeps the parsed bodies; a fault of request `n` is one of FAULTS."""

    def __init__(self, *, fault: Callable[[int], str] = lambda n: "ok", hang_s: float = 30.0) -> None:
        self.fault, self.hang_s = fault, hang_s
        self.seen: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        super().__init__(self._handler())
        self.url += "/v1"

    def end(self) -> None:
        self._stopped.set()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        with self._lock:
            number = len(self.seen)
            self.seen.append(body)
        fault = self.fault(number)
        assert fault in FAULTS, fault
        if fault == "reset":
            raise ConnectionError
        if fault == "hang":
            self._stopped.wait(self.hang_s)
        if fault in ("error_500", "rate"):
            return 500 if fault == "error_500" else 429, b'{"error": {"message": "no", "type": "x", "code": null}}'
        if fault == "html":
            return 200, b"<html><body>Bad gateway</body></html>"
        if path.endswith("/embeddings"):
            return 200, json.dumps(self._embeddings(body, fault)).encode()
        return 200, json.dumps(self._completion(body, fault)).encode()

    def _embeddings(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        vectors = [[1e400] if fault == "infinite_vector" else vector_of(text) for text in texts]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return {"object": "list", "model": body["model"], "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}

    def _completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        content = json.dumps(judge(prompt), ensure_ascii=False)
        content = {"bad_json": content[:-3], "empty": "", "wrong_form": '{"verdict": "maybe"}'}.get(fault, content)
        message = {"role": "assistant", "content": content}
        return {
            "id": "x", "object": "chat.completion", "created": int(time.time()), "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class JudgeHandler(JsonHandler):
            protocol_version = "HTTP/1.0"  # one request a connection

            def do_POST(self) -> None:
                try:
                    status, raw = server.answer(self.path, self.body())
                except ConnectionError:
                    self.close_connection = True
                    return
                self.reply(status, raw)

        return JudgeHandler
