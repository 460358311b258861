"""One request on its way through the engine: its prompt, its tokens so far, and what is told to whoever waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from medloop.serve.server.draw import Drawn, TokenLogprob
from medloop.serve.server.lora_slots import AdapterSlot
from medloop.serve.server.refusal import Refusal
from medloop.serve.server.text_stream import Decode, StopFilter, TextStream
from medloop.serve.server.wire import SamplingParams

FinishReason = Literal["stop", "length"]


@dataclass
class Output:
    """What is new since the last one: of a stream a piece, else everything. The last one has a finish reason."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


Event = Output | Refusal
Notify = Callable[[Event], None]


class Generation:
    def __init__(
        self, *, client: str, slot: AdapterSlot | None, prompt: Sequence[int], params: SamplingParams, stream: bool,
        notify: Notify,
    ) -> None:  # fmt: skip
        """`notify` is called in the thread of the event loop, with the pieces of a stream or with the one answer."""
        self.client, self.slot, self.prompt, self.params, self.stream, self.notify = client, slot, prompt, params, stream, notify
        self.random = random.Random(params.seed)  # of the system's randomness where no seed is given
        self.tokens = 0
        self.last_token = 0
        self.cancelled = False
        self.submitted, self.first_token_s = time.monotonic(), 0.0
        self._pending = Output()
        self._at_end = not stream and not params.stop  # nobody sees the text before its end, so it is decoded once, there
        self._text: TextStream | None = None
        self._stops = StopFilter(params.stop)

    @property
    def seconds(self) -> float:
        """Since the request came."""
        return time.monotonic() - self.submitted

    def accept(self, drawn: Drawn, decode: Decode, stop_ids: frozenset[int]) -> Event | None:
        """Take the next token. None while there is nothing to tell; a Refusal or an Output with a finish reason is the last."""
        if drawn.token is None:
            return Refusal(500, "The model's output is not finite; its weights are damaged")
        if self._text is None:
            self._text = TextStream(decode)
            self.first_token_s = time.monotonic() - self.submitted
        token, pending = drawn.token, self._pending
        self.tokens, self.last_token = self.tokens + 1, token
        pending.tokens.append(token)
        if drawn.logprob is not None:
            pending.logprobs.append(drawn.logprob)
        ended = token in self.params.stop_token_ids or (token in stop_ids and not self.params.ignore_eos)
        if self._at_end:
            if not ended and self.tokens < self.params.max_tokens:
                return None
            text = decode(pending.tokens[:-1] if ended else pending.tokens)
            return self._finish("stop" if ended else "length", text, self._stop_reason(ended, token))
        if ended:
            piece, _ = self._stops.add(self._text.end())
            return self._finish("stop", piece + self._stops.end(), self._stop_reason(ended, token))
        piece, stopped = self._stops.add(self._text.add(token))
        if stopped:
            return self._finish("stop", piece, None)
        if self.tokens >= self.params.max_tokens:
            rest, stopped = self._stops.add(self._text.end())
            return self._finish("stop" if stopped else "length", piece + rest + self._stops.end(), None)
        pending.text += piece
        if self.stream and (pending.text or pending.logprobs):
            return self._flush()
        return None

    def _stop_reason(self, ended: bool, token: int) -> int | None:
        """As vLLM: the token, where the caller asked for it; nothing for the model's own end."""
        return token if ended and token in self.params.stop_token_ids else None

    def _finish(self, reason: FinishReason, piece: str, stop_reason: str | int | None) -> Output:
        self._pending.text += piece
        self._pending.finish_reason, self._pending.stop_reason = reason, stop_reason
        return self._flush()

    def _flush(self) -> Output:
        output, self._pending = self._pending, Output()
        return output
