"""A fake vLLM server on the loopback interface: it really samples, and it can misbehave.

    with RolloutServer(ModelRef(base=...), settings) as server:
        server.faults.append("error_500")          # the next completion; see FAULTS
        ServedSampler(server.url, ...)

It answers as vLLM 0.32 does at /v1/models, /v1/load_lora_adapter, /v1/unload_lora_adapter and /v1/completions.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from medloop.contracts import ModelRef
from medloop.models.load import load
from medloop.models.rollout.sampler import Sampler, stop_ids
from medloop.settings import Settings
from medloop.testing.loopback import JsonHandler, ThreadedServer

# Faults of one completion: the server restarts and forgets its adapters; errors; answers that are not valid.
FAULTS = ("restart", "error_500", "rate", "reset", "no_tokens", "short_logprobs", "nan")


class RolloutServer(ThreadedServer):
    """`deaf` serves the base whatever adapter is named; `raw` returns log-probabilities without the temperature."""

    def __init__(
        self, ref: ModelRef, settings: Settings, *, deaf: bool = False, raw: bool = False, lora: bool = True,
        max_model_len: int = 4096, key: str = "",
    ) -> None:  # fmt: skip
        self.ref, self.settings, self.deaf, self.raw, self.lora = ref, settings, deaf, raw, lora
        self.max_model_len, self.key = max_model_len, key
        self.faults: list[str] = []
        self.adapters: dict[str, Sampler] = {}
        self.folders: dict[str, Path] = {}
        self.loaded: list[str] = []  # all names that were loaded so far
        self._lock = threading.Lock()
        self._base = self._sampler(None)
        super().__init__(self._handler())

    def _sampler(self, adapter: Path | None) -> Sampler:
        loaded = load(ModelRef(base=self.ref.base, adapter=None if adapter is None else str(adapter)), self.settings)
        pad = loaded.tokenizer.pad_token_id
        return Sampler(loaded.model, stop_ids=stop_ids(loaded.model, loaded.tokenizer), pad_id=pad)

    def models(self) -> dict[str, Any]:
        base = {"id": "base", "root": self.ref.base, "parent": None, "max_model_len": self.max_model_len}
        return {"data": [base, *({"id": name, "root": str(self.folders[name]), "parent": "base"} for name in self.adapters)]}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/completions":
            return self._complete(body)
        name = str(body.get("lora_name"))
        if not self.lora:
            return 404, {"detail": "Not Found"}
        if path == "/v1/load_lora_adapter" and name not in self.adapters:
            self.adapters[name], self.folders[name] = self._sampler(Path(body["lora_path"])), Path(body["lora_path"])
            self.loaded.append(name)
            return 200, f"Success: LoRA adapter '{name}' added successfully."
        if path == "/v1/unload_lora_adapter" and name in self.adapters:
            del self.adapters[name]
            return 200, f"Success: LoRA adapter '{name}' removed successfully."
        return 400, {"error": {"message": "no", "type": "InvalidUserInput", "code": 400}}

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "restart":
            self.adapters.clear()
        if fault in ("error_500", "rate", "reset"):
            return {"error_500": 500, "rate": 429, "reset": 0}[fault], {}
        if body["model"] not in self.adapters:
            return 404, {"error": {"message": "no such model", "type": "NotFoundError", "code": 404}}
        if not (self.folders[body["model"]] / "adapter_model.safetensors").is_file():
            return 500, {}  # vLLM reads it again when it has been evicted, and dies of it
        sampler = self._base if self.deaf else self.adapters[body["model"]]
        temperature = 1.0 if self.raw else body["temperature"]
        [rollout] = sampler([body["prompt"]], [str(body["seed"])], max_new_tokens=body["max_tokens"], temperature=temperature)
        logprobs: list[float] = list(rollout.logprobs)
        if fault == "nan":
            logprobs[0] = float("nan")
        choice = {
            "token_ids": None if fault == "no_tokens" else rollout.tokens,
            "logprobs": {"token_logprobs": logprobs[1:] if fault == "short_logprobs" else logprobs},
            "finish_reason": "stop" if rollout.ended else "length",
        }
        return 200, {"choices": [choice]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                self.reply(200, server.models())

            def do_POST(self) -> None:
                body = self.body()
                if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
                    return self.reply(401, {"error": "Unauthorized"})
                with server._lock:
                    status, content = server.answer(self.path, body)
                if not status:
                    self.close_connection = True
                    return None
                return self.reply(status, content)

        return Handler
