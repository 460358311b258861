"""Answers in the shapes of OpenAI's two doors, whole or as pieces of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from medloop.contracts import uuid7
from medloop.serve.server.draw import TokenLogprob
from medloop.serve.server.generation import Output

DONE = b"data: [DONE]\n\n"


class AnswerWriter:
    """Writes one answer. `token_text` decodes a single token, for log-probabilities."""

    def __init__(
        self, door: Literal["chat", "completion"], *, model: str, fingerprint: str, prompt_tokens: int,
        token_text: Callable[[int], str], token_ids: bool, logprobs: bool,
    ) -> None:  # fmt: skip
        self.door, self.model, self.fingerprint, self.prompt_tokens = door, model, fingerprint, prompt_tokens
        self.token_text, self.token_ids, self.logprobs = token_text, token_ids, logprobs
        self.id = ("chatcmpl-" if door == "chat" else "cmpl-") + uuid7().replace("-", "")
        self.created = int(time.time())
        self.answer_tokens = 0
        self._offset = 0

    def whole(self, output: Output) -> dict[str, Any]:
        self.answer_tokens = len(output.tokens)
        choice = self._choice(output)
        if self.door == "chat":
            choice["message"] = {"role": "assistant", "content": output.text, "refusal": None}
        else:
            choice["text"] = output.text
        kind = "chat.completion" if self.door == "chat" else "text_completion"
        return self._envelope(kind, [choice]) | {"usage": self.usage()}

    def opening(self, *, include_usage: bool) -> list[bytes]:
        """A chat stream begins with the role."""
        if self.door != "chat":
            return []
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return [self._event([choice], include_usage)]

    def piece(self, output: Output, *, include_usage: bool) -> bytes:
        self.answer_tokens += len(output.tokens)
        choice = self._choice(output)
        if self.door == "chat":
            choice["delta"] = {"content": output.text} if output.text or output.finish_reason is None else {}
        else:
            choice["text"] = output.text
        return self._event([choice], include_usage)

    def closing(self, *, include_usage: bool) -> list[bytes]:
        if not include_usage:
            return [DONE]
        return [sse(self._envelope(self._chunk_kind, []) | {"usage": self.usage()}), DONE]

    def usage(self) -> dict[str, Any]:
        total = self.prompt_tokens + self.answer_tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.answer_tokens, "total_tokens": total}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.door == "chat" else "text_completion"

    def _event(self, choices: list[dict[str, Any]], include_usage: bool) -> bytes:
        return sse(self._envelope(self._chunk_kind, choices) | ({"usage": None} if include_usage else {}))

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices,
            "system_fingerprint": self.fingerprint,
        }  # fmt: skip

    def _choice(self, output: Output) -> dict[str, Any]:
        logprobs = None
        if self.logprobs:
            logprobs = self._chat_logprobs(output.logprobs) if self.door == "chat" else self._text_logprobs(output.logprobs)
        choice: dict[str, Any] = {"index": 0, "logprobs": logprobs, "finish_reason": output.finish_reason}
        if output.finish_reason is not None:
            choice["stop_reason"] = output.stop_reason
        if self.token_ids:
            choice["token_ids"] = output.tokens
        return choice

    def _chat_logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        return {
            "content": [
                self._chat_entry(entry.token, entry.logprob)
                | {"top_logprobs": [self._chat_entry(token, value) for token, value in entry.top]}
                for entry in entries
            ],
            "refusal": None,
        }

    def _chat_entry(self, token: int, logprob: float) -> dict[str, Any]:
        text = self.token_text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", errors="replace"))}

    def _text_logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        texts = [self.token_text(entry.token) for entry in entries]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [
                {self.token_text(token): value for token, value in ((entry.token, entry.logprob), *entry.top)}
                for entry in entries
            ],
            "text_offset": offsets,
        }


def sse(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
