"""Ask the teacher: one total deadline, bounded attempts, a circuit, a pace, a budget. No failure escapes untyped.

    async with Teacher(config, key, log=rows.append) as teacher:
        answer = await teacher.ask(messages, accept)        # accept(reply) returns a verdict or raises Failure

Attempts are counted in one place, so a retry never multiplies. The deadline covers sending, reading, waiting between
attempts and every retry; it starts when the request may go (our own pacing before that is not the service's fault).
"""

from __future__ import annotations

import asyncio
import math
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, TypeVar

import certifi
import httpx

from medloop.contracts import canonical_json, sha256_id, utc_now
from medloop.teacher.config import TeacherConfig
from medloop.teacher.failures import FINAL, ILLNESS, RETRIES, Failure, Usage
from medloop.teacher.limits import Budget, Circuit, Pace
from medloop.teacher.wire import Reply, post

V = TypeVar("V")
Log = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Answer(Generic[V]):
    """An accepted verdict, with the reply it came in and what all its attempts cost."""

    verdict: V
    reply: Reply
    cost: float
    attempts: int


class Teacher:
    """One service, for one run."""

    def __init__(self, config: TeacherConfig, key: str, *, log: Log, spent_today: float = 0.0, fingerprint: str | None = None):
        self.config = config
        self.log = log
        left_today = max(0.0, config.daily_usd - spent_today)
        self.budget = Budget(min(config.budget_usd, left_today), config.budget_tokens or math.inf)
        self.circuit = Circuit(config.circuit_failures, config.circuit_open_s, config.circuit_rounds, config.max_wait_s * 2)
        self.requests = Pace(config.requests_per_minute)
        self.tokens = Pace(config.tokens_per_minute)
        self.accepted = set(config.fingerprints) or ({fingerprint} if fingerprint else set())
        self.over: Failure | None = None  # why nothing else is asked
        self.changes: list[str] = []
        self.calls = 0
        self.hold_until = 0.0  # a short Retry-After speaks to all requests
        self._key = key
        self._lanes = _Lanes()

    async def __aenter__(self) -> Teacher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._lanes.close()

    async def ask(
        self, messages: Sequence[Mapping[str, str]], accept: Callable[[Reply], V], about: Mapping[str, Any] | None = None
    ) -> Answer[V]:
        """A verdict that `accept` took, or Failure. `about` goes into the log beside each attempt."""
        self._raise_if_over()
        probe = await self.circuit.enter()
        try:
            self._raise_if_over()
            tokens = self._estimate(messages, self.config.max_tokens)
            await asyncio.sleep(max(self.requests.reserve(1), self.tokens.reserve(tokens)))
            async with asyncio.timeout(self.config.deadline_s):
                return await self._try(messages, accept, dict(about or {}))
        except TimeoutError:
            self.circuit.failed()
            raise Failure("timeout", f"no verdict within {self.config.deadline_s:g} s") from None
        except Failure as failure:
            if failure.kind == "rate":  # not for one refusal, but when a whole judgement found no way in
                self.circuit.failed()
            if failure.kind in FINAL:
                self.over = self.over or failure
            raise
        finally:
            if probe:
                self.circuit.probed()

    def _raise_if_over(self) -> None:
        if self.over is not None:
            raise Failure(self.over.kind, self.over.detail)

    async def _try(self, messages: Sequence[Mapping[str, str]], accept: Callable[[Reply], V], about: dict[str, Any]) -> Answer[V]:
        max_tokens, used, cost = self.config.max_tokens, dict.fromkeys(RETRIES, 0), 0.0
        for attempt in range(1, self.config.attempts + 1):
            await self._pause(attempt)
            try:
                verdict, reply, paid = await self._once(messages, max_tokens, accept, {**about, "attempt": attempt})
                return Answer(verdict, reply, cost + paid, attempt)
            except Failure as failure:
                cost += failure.cost
                if failure.kind in FINAL:
                    raise
                allowed = used.get(failure.kind, 0) < RETRIES.get(failure.kind, 0) and attempt < self.config.attempts
                if not allowed or not self.circuit.retry_allowed() or self.over:
                    raise
                used[failure.kind] += 1
                max_tokens = 2 * self.config.max_tokens if failure.kind == "cut_off" else max_tokens
                await self._back_off(attempt, failure)
        raise AssertionError("the loop returns or raises")

    async def _pause(self, attempt: int) -> None:
        wait = self.hold_until - time.monotonic()
        if attempt > 1:
            wait = max(wait, self.requests.reserve(1))
        if wait > 0:
            await asyncio.sleep(wait + random.uniform(0, 0.1 * wait))

    async def _back_off(self, attempt: int, failure: Failure) -> None:
        if failure.retry_after is not None:
            self.hold_until = max(self.hold_until, time.monotonic() + failure.retry_after)
            return
        step = self.config.backoff_s * 2 ** (attempt - 1)
        await asyncio.sleep(random.uniform(step, 2 * step))

    async def _once(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int, accept: Callable[[Reply], V], about: dict[str, Any]
    ) -> tuple[V, Reply, float]:
        """One request: held in the budget before, settled and logged after, whatever happens."""
        payload = canonical_json(self._payload(messages, max_tokens)).encode()
        tokens, at, began = self._estimate(messages, max_tokens), utc_now(), time.monotonic()
        held = self._worst_cost(tokens - max_tokens, max_tokens, at)
        await self.budget.hold(held, tokens)
        self._check_over_before_sending(held, tokens)
        self.calls += 1
        usage, outcome, reply = Usage(), "cancelled", None
        try:
            url = self.config.base_url.rstrip("/") + "/chat/completions"
            async with self._lanes.take() as lane:
                reply = await post(lane, url, self._headers(), payload, self.config.body_bytes)
            usage = reply.usage
            verdict = self._accept(reply, accept)
            outcome = "ok"
            self.circuit.succeeded()
            return verdict, reply, self._price(usage, held, at)
        except Failure as failure:
            usage, outcome = failure.usage or usage, failure.kind
            self._learn(failure)
            failure.cost = self._price(usage, 0.0 if failure.kind in _FREE else held, at)
            about["detail"] = failure.detail
            raise
        finally:
            free = outcome in _FREE
            cost = self._price(usage, 0.0 if free else held, at)
            spent = usage.prompt + usage.out if usage.known else (0 if free else tokens)
            self.budget.settle(held, tokens, spent_usd=cost, spent_tokens=spent)
            self._write(about, payload, at, time.monotonic() - began, outcome, reply, usage, cost)

    def _check_over_before_sending(self, held: float, tokens: int) -> None:
        if self.over is not None:
            self.budget.settle(held, tokens, spent_usd=0.0, spent_tokens=0)
            self._raise_if_over()

    def _accept(self, reply: Reply, accept: Callable[[Reply], V]) -> V:
        """Everything a reply must be before its content is looked at, then the content."""
        if reply.model not in self.config.accepted_models:
            raise Failure("wrong_model", f"asked for {self.config.model}, served by {reply.model[:60]!r}", usage=reply.usage)
        if reply.finish_reason == "length":
            raise Failure("cut_off", "the reply ended at max_tokens", usage=reply.usage)
        if not reply.content.strip():
            raise Failure("empty", "the reply has no content", usage=reply.usage)
        if reply.finish_reason not in ("stop", ""):
            raise Failure("refused", f"finish_reason {reply.finish_reason[:30]}", usage=reply.usage)
        verdict = accept(reply)
        self._watch(reply.fingerprint)
        return verdict

    def _watch(self, fingerprint: str | None) -> None:
        """The first fingerprint rules; another one is noted, and by default nothing more is asked."""
        if fingerprint is None or fingerprint in self.accepted:
            return
        if not self.accepted:
            self.accepted.add(fingerprint)
            return
        self.changes.append(fingerprint)
        if self.config.stop_on_change:
            self.over = self.over or Failure("changed", f"the service changed its version to {fingerprint[:60]!r}")

    def _learn(self, failure: Failure) -> None:
        """What one failure says about the service as a whole."""
        if failure.kind in FINAL:
            self.over = self.over or failure
        if failure.retry_after is not None and failure.retry_after > self.config.max_wait_s:
            self.circuit.open_for(failure.retry_after)
        elif failure.kind in ILLNESS:
            self.circuit.failed()

    def _payload(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> dict[str, Any]:
        payload: dict[str, Any] = {
            **parameters(self.config),
            "messages": [dict(m) for m in messages],
            "max_tokens": max_tokens,
            "stream": False,
        }
        return {**payload, "user_id": self.config.user_id} if self.config.user_id else payload

    def _headers(self) -> dict[str, str]:
        key = {"authorization": f"Bearer {self._key}"} if self._key else {}
        return {**key, "content-type": "application/json", "accept": "application/json", "accept-encoding": "gzip, identity"}

    def _estimate(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> int:
        """Never too low: half a token per byte is above what tokenizers need for Chinese and for English."""
        return sum(len(m["content"].encode()) for m in messages) // 2 + 32 + max_tokens

    def _worst_cost(self, prompt: int, out: int, at: datetime) -> float:
        return self.config.cost(0, prompt, out, at)

    def _price(self, usage: Usage, unknown: float, at: datetime) -> float:
        """What a request cost; `unknown` when the service did not say: it may have worked before it fell silent."""
        return self.config.cost(usage.hit, usage.miss, usage.out, at) if usage.known else unknown

    def _write(
        self,
        about: dict[str, Any],
        payload: bytes,
        at: datetime,
        seconds: float,
        outcome: str,
        reply: Reply | None,
        usage: Usage,
        cost: float,
    ) -> None:
        served = {"served_model": reply.model[:100], "fingerprint": reply.fingerprint} if reply else {}
        tokens = {"hit_tokens": usage.hit, "miss_tokens": usage.miss, "completion_tokens": usage.out, "usage_known": usage.known}
        self.log(
            {**about, **served, **tokens, "time": at.isoformat(), "request": sha256_id(payload), "model": self.config.model,
             "outcome": outcome, "latency_ms": round(1000 * seconds), "cost": cost}
        )  # fmt: skip


class _Lanes:
    """Kept connections, one transport each, without timeouts of their own: a timeout per read lets a slow drip live for ever.

    A shared pool searches all its connections for every request, which at 64 in flight costs more time than the requests.
    """

    def __init__(self) -> None:
        self._free: list[httpx.AsyncHTTPTransport] = []
        self._all: list[httpx.AsyncHTTPTransport] = []
        self._tls = ssl.create_default_context(cafile=certifi.where())

    @asynccontextmanager
    async def take(self) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        lane = self._free.pop() if self._free else self._open()
        try:
            yield lane
        finally:
            self._free.append(lane)

    def _open(self) -> httpx.AsyncHTTPTransport:
        lane = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False)
        self._all.append(lane)
        return lane

    async def close(self) -> None:
        for lane in self._all:
            await lane.aclose()


# Refusals before any work: nobody pays for those.
_FREE = frozenset({"rate", "refused", "no_balance", "bad_key"})


def parameters(config: TeacherConfig) -> dict[str, Any]:
    """What is sent beside the messages and shapes the verdict; part of the cache key."""
    thinking = {} if config.thinking is None else {"thinking": {"type": "enabled" if config.thinking else "disabled"}}
    return {"model": config.model, "temperature": config.temperature, "response_format": {"type": "json_object"}, **thinking}
