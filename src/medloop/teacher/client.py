"""Requests to the teacher: one total deadline, bounded attempts, a circuit breaker, rate limits, a budget. Failures are typed.

    async with Teacher(config, key, log=rows.append) as teacher:
        accepted = await teacher.complete(messages, accept)        # accept(reply) returns a verdict or raises Failure

Attempts are counted in one place, so retries do not multiply. The deadline covers sending, reading, waiting between attempts and
every retry; it starts after our own rate limits have let the request through.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, TypeVar

import certifi
import httpx

from medloop.contracts import canonical_json, sha256_id, utc_now
from medloop.teacher.config import TeacherConfig
from medloop.teacher.failures import FINAL, RETRIES, SERVICE_FAILURES, Failure, Usage
from medloop.teacher.key_guard import KeyGuard
from medloop.teacher.limits import Budget, CircuitBreaker, RateLimit
from medloop.teacher.usage import current_job
from medloop.teacher.wire import Reply, is_name, post

V = TypeVar("V")
Log = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class AcceptedReply(Generic[V]):
    """An accepted verdict, the reply it came from, and the cost of all its attempts."""

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
        self.breaker = CircuitBreaker(
            config.circuit_failures, config.circuit_open_s, config.circuit_rounds, config.max_wait_s * 2
        )
        self.request_rate = RateLimit(config.requests_per_minute)
        self.token_rate = RateLimit(config.tokens_per_minute)
        self.accepted = set(config.fingerprints) or ({fingerprint} if fingerprint else set())
        self.stopped: Failure | None = None  # why no further request is sent
        self.new_fingerprints: list[str] = []
        self.calls = 0
        self.hold_until = 0.0  # a short Retry-After holds for all requests
        self._key = key
        self._guard = KeyGuard(key)
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            self.stopped = Failure("bad_key", "the key has a blank or a character that a header cannot carry")
        self._connections = _Connections()

    async def __aenter__(self) -> Teacher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._connections.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        accept: Callable[[Reply], V],
        about: Mapping[str, Any] | None = None,
        *,
        max_tokens: int = 0,
    ) -> AcceptedReply[V]:
        """A verdict that `accept` returned, or Failure. `about` is logged with each attempt; `max_tokens` 0: as configured."""
        limit = max_tokens or self.config.max_tokens
        self._raise_if_stopped()
        probe = await self.breaker.enter()
        try:
            self._raise_if_stopped()
            tokens = self._estimate(messages, limit)
            await asyncio.sleep(max(self.request_rate.reserve(1), self.token_rate.reserve(tokens)))
            deadline = time.monotonic() + self.config.deadline_s
            async with asyncio.timeout(self.config.deadline_s):
                return await self._complete_with_retries(messages, limit, accept, dict(about or {}), deadline)
        except TimeoutError:
            self.breaker.failed()
            raise Failure("timeout", f"no verdict within {self.config.deadline_s:g} s") from None
        except Failure as failure:
            if failure.kind == "rate":  # not for one refusal, but when all attempts of a judgement were refused
                self.breaker.failed()
            if failure.kind in FINAL:
                self.stopped = self.stopped or failure
            raise
        finally:
            if probe:
                self.breaker.probed()

    def _raise_if_stopped(self) -> None:
        if self.stopped is not None:
            raise Failure(self.stopped.kind, self.stopped.detail)

    async def _complete_with_retries(
        self,
        messages: Sequence[Mapping[str, str]],
        limit: int,
        accept: Callable[[Reply], V],
        about: dict[str, Any],
        deadline: float,
    ) -> AcceptedReply[V]:
        max_tokens, retries, cost = limit, dict.fromkeys(RETRIES, 0), 0.0
        for attempt in range(1, self.config.attempts + 1):
            await self._pause(attempt)
            try:
                numbered = {**about, "attempt": attempt}
                verdict, reply, attempt_cost = await self._attempt(messages, max_tokens, accept, numbered, deadline)
                return AcceptedReply(verdict, reply, cost + attempt_cost, attempt)
            except Failure as failure:
                cost += failure.cost
                if failure.kind in FINAL:
                    raise
                allowed = retries.get(failure.kind, 0) < RETRIES.get(failure.kind, 0) and attempt < self.config.attempts
                if not allowed or not self.breaker.retry_allowed() or self.stopped:
                    raise
                retries[failure.kind] += 1
                max_tokens = 2 * limit if failure.kind == "cut_off" else max_tokens
                await self._back_off(attempt, failure)
        raise AssertionError("the loop returns or raises")

    async def _pause(self, attempt: int) -> None:
        wait = self.hold_until - time.monotonic()
        if attempt > 1:
            wait = max(wait, self.request_rate.reserve(1))
        if wait > 0:
            await asyncio.sleep(wait + random.uniform(0, 0.1 * wait))

    async def _back_off(self, attempt: int, failure: Failure) -> None:
        if failure.retry_after is not None:
            self.hold_until = max(self.hold_until, time.monotonic() + failure.retry_after)
            return
        step = self.config.backoff_s * 2 ** (attempt - 1)
        await asyncio.sleep(random.uniform(step, 2 * step))

    async def _attempt(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        accept: Callable[[Reply], V],
        about: dict[str, Any],
        deadline: float,
    ) -> tuple[V, Reply, float]:
        """One request: its worst cost is reserved in the budget before, settled and logged after, whatever happens.

        A request that never left is logged, but costs nothing and does not count as a call.
        """
        payload = canonical_json(self._payload(messages, max_tokens)).encode()
        tokens, sent, began = self._estimate(messages, max_tokens), utc_now(), time.monotonic()
        reserved = self.config.cost(0, tokens - max_tokens, max_tokens, sent)
        await self.budget.reserve(reserved, tokens)
        if self.stopped is not None:
            self.budget.settle(reserved, tokens, spent_usd=0.0, spent_tokens=0)
            self._raise_if_stopped()
        usage, outcome, reply, is_sent = Usage(), "cancelled", None, False

        def on_sent() -> None:
            nonlocal is_sent
            self.calls += not is_sent
            is_sent = True

        def may_be_charged() -> bool:
            return is_sent and (reply is not None or outcome not in _FREE)

        def credible(usage: Usage) -> Usage:
            return _credible(usage, tokens - max_tokens, max_tokens, reply)

        try:
            url = self.config.base_url.rstrip("/") + "/chat/completions"
            async with self._connections.borrow() as connection:
                reply = await post(connection, url, self._headers(), payload, self.config.body_bytes, on_sent=on_sent)
            reply = replace(reply, usage=credible(reply.usage))
            usage = reply.usage
            verdict = self._accept(reply, accept)
            outcome = "ok"
            self.breaker.succeeded()
            return verdict, reply, self._cost(usage, reserved, sent)
        except Failure as failure:
            usage, outcome = credible(failure.usage or usage), failure.kind
            self._note_failure(failure)
            failure.cost = self._cost(usage, reserved if may_be_charged() else 0.0, sent)
            about["detail"] = failure.detail
            raise
        except asyncio.CancelledError:  # by the deadline, or by the person who runs it
            outcome = "timeout" if time.monotonic() >= deadline else outcome
            raise
        finally:
            cost = self._cost(usage, reserved if may_be_charged() else 0.0, sent)
            spent = usage.prompt + usage.out if usage.known else (tokens if may_be_charged() else 0)
            self.budget.settle(reserved, tokens, spent_usd=cost, spent_tokens=spent)
            self._log_attempt(about, payload, sent, time.monotonic() - began, outcome, reply, usage, cost)

    def _accept(self, reply: Reply, accept: Callable[[Reply], V]) -> V:
        """Check the reply, then let `accept` read its content."""
        if self._guard.is_repeated_in(reply.model, reply.fingerprint or "", reply.finish_reason, reply.content):
            raise Failure("key_echo", "the reply repeats the API key; nothing of it was stored", usage=reply.usage)
        if reply.model not in self.config.accepted_models:
            served = f"{reply.model[:60]!r}" if is_name(reply.model) else "something without a proper name"
            raise Failure("wrong_model", f"asked for {self.config.model}, served by {served}", usage=reply.usage)
        if reply.finish_reason == "length":
            raise Failure("cut_off", "the reply ended at max_tokens", usage=reply.usage)
        if not reply.content.strip():
            raise Failure("empty", "the reply has no content", usage=reply.usage)
        if reply.finish_reason not in ("stop", ""):
            reason = reply.finish_reason[:30] if is_name(reply.finish_reason) else "unknown"
            raise Failure("refused", f"finish_reason {reason}", usage=reply.usage)
        verdict = accept(reply)
        self._check_fingerprint(reply.fingerprint)
        return verdict

    def _check_fingerprint(self, fingerprint: str | None) -> None:
        """The first fingerprint is accepted; another one is noted, and by default no further request is sent."""
        if fingerprint is None or fingerprint in self.accepted:
            return
        if not self.accepted:
            self.accepted.add(fingerprint)
            return
        if fingerprint not in self.new_fingerprints:
            self.new_fingerprints.append(fingerprint)
        if self.config.stop_on_change:
            self.stopped = self.stopped or Failure("changed", f"the service changed its version to {fingerprint[:60]!r}")

    def _note_failure(self, failure: Failure) -> None:
        """Some failures concern all requests: they stop the run, or open the circuit."""
        if failure.kind in FINAL:
            self.stopped = self.stopped or failure
        if failure.retry_after is not None and failure.retry_after > self.config.max_wait_s:
            self.breaker.open_for(failure.retry_after)
        elif failure.kind in SERVICE_FAILURES:
            self.breaker.failed()

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
        """An upper bound: tokenizers need less than half a token per byte, for Chinese and for English."""
        return sum(len(m["content"].encode()) for m in messages) // 2 + 32 + max_tokens

    def _cost(self, usage: Usage, unknown: float, sent: datetime) -> float:
        """The cost of a request; `unknown` when the service did not report it: it may have worked before it failed."""
        return self.config.cost(usage.hit, usage.miss, usage.out, sent) if usage.known else unknown

    def _log_attempt(
        self,
        about: dict[str, Any],
        payload: bytes,
        sent: datetime,
        seconds: float,
        outcome: str,
        reply: Reply | None,
        usage: Usage,
        cost: float,
    ) -> None:
        is_safe = reply is not None and is_name(reply.model) and outcome != "key_echo"
        served = {"served_model": reply.model, "fingerprint": reply.fingerprint} if reply and is_safe else {}
        tokens = {"hit_tokens": usage.hit, "miss_tokens": usage.miss, "completion_tokens": usage.out, "usage_known": usage.known}
        self.log(
            {**about, **served, **tokens, **current_job(),
             "time": sent.isoformat(), "request": sha256_id(payload), "model": self.config.model,
             "outcome": outcome, "latency_ms": round(1000 * seconds), "cost": cost}
        )  # fmt: skip


class _Connections:
    """Kept-alive connections, one transport each, without their own timeouts: a timeout per read lets a slow drip run for ever.

    A shared pool searches all its connections for every request, which at 64 in flight costs more time than the requests.
    """

    def __init__(self) -> None:
        self._free: list[httpx.AsyncHTTPTransport] = []
        self._all: list[httpx.AsyncHTTPTransport] = []
        self._tls = ssl.create_default_context(cafile=certifi.where())

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        connection = self._free.pop() if self._free else self._open()
        try:
            yield connection
        finally:
            self._free.append(connection)

    def _open(self) -> httpx.AsyncHTTPTransport:
        connection = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False)
        self._all.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self._all:
            await connection.aclose()


_BYTES_PER_TOKEN = 16  # no tokenizer packs more into a token, so fewer tokens than this are not believed


def _credible(usage: Usage, prompt_limit: int, reply_limit: int, reply: Reply | None) -> Usage:
    """The service's count where it can be true. Otherwise unknown, so that what was reserved is booked.

    A count above the reservation would use up a day's budget with one reply; a count near 0 would make the budget void.
    """
    content = len(reply.content.encode()) if reply else 0
    prompt = 2 * prompt_limit // _BYTES_PER_TOKEN <= usage.prompt <= prompt_limit
    out = max(1, content // _BYTES_PER_TOKEN) <= usage.out <= reply_limit
    return usage if usage.known and prompt and out else Usage()


# Refused before any work was done, so they cost nothing.
_FREE = frozenset({"rate", "refused", "no_balance", "bad_key"})


def parameters(config: TeacherConfig) -> dict[str, Any]:
    """The request parameters that shape the verdict; part of the cache key."""
    thinking = {} if config.thinking is None else {"thinking": {"type": "enabled" if config.thinking else "disabled"}}
    return {"model": config.model, "temperature": config.temperature, "response_format": {"type": "json_object"}, **thinking}
