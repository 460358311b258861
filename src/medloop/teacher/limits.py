"""Limits of the teacher client: rate, circuit breaker, budget. They run in one event loop, without locks."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from medloop.teacher.failures import Failure

Clock = Callable[[], float]


@dataclass
class RateLimit:
    """At most `per_minute` units a minute, spread evenly, with a burst of one second; 0 means no limit."""

    per_minute: float
    clock: Clock = time.monotonic
    next_free: float = 0.0

    def reserve(self, amount: float) -> float:
        """Reserve `amount` units; returns the seconds to wait before using them."""
        if not self.per_minute:
            return 0.0
        now = self.clock()
        start = max(self.next_free, now - 1.0)
        self.next_free = start + amount * 60 / self.per_minute
        return max(0.0, start - now)


@dataclass
class CircuitBreaker:
    """Closed until `failures` in a row, then open for `open_s`, then one probe decides.

    After `rounds` openings without a success, or with a wait longer than `max_wait_s`, it refuses at once.
    """

    failures: int
    open_s: float
    rounds: int
    max_wait_s: float
    clock: Clock = time.monotonic
    in_a_row: int = 0
    opened: int = 0
    open_until: float = 0.0
    probing: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def enter(self) -> bool:
        """Wait while the circuit is open; Failure when waiting is pointless. True for the one probe of a half-open circuit."""
        while True:
            wait = self.open_until - self.clock()
            if self.opened > self.rounds - 1 and wait > 0:
                raise Failure("circuit", f"the service failed {self.in_a_row} times in a row; no further requests are sent")
            if wait > self.max_wait_s:
                raise Failure("circuit", f"the service asked to wait {wait:.0f} s")
            if wait <= 0 and not self.probing:
                self.probing = bool(self.opened)
                return self.probing
            self.changed.clear()
            try:
                async with asyncio.timeout(wait if wait > 0 else None):
                    await self.changed.wait()
            except TimeoutError:
                continue

    def retry_allowed(self) -> bool:
        """A retry within one judgement does not wait for an open circuit."""
        return self.open_until <= self.clock()

    def succeeded(self) -> None:
        self.in_a_row = self.opened = 0
        self.open_until = 0.0
        self.changed.set()

    def failed(self) -> None:
        self.in_a_row += 1
        if self.in_a_row >= self.failures:
            self.open_for(self.open_s)

    def probed(self) -> None:
        """The probe has ended, with or without success."""
        self.probing = False
        self.changed.set()

    def open_for(self, seconds: float) -> None:
        if self.open_until <= self.clock():
            self.opened += 1
        self.open_until = max(self.open_until, self.clock() + seconds)
        self.changed.set()


@dataclass
class Budget:
    """Money and tokens of a run: reserved before a request, settled after it."""

    usd: float
    tokens: float = math.inf
    spent_usd: float = 0.0
    spent_tokens: int = 0
    reserved_usd: float = 0.0
    reserved_tokens: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    async def reserve(self, usd: float, tokens: int) -> None:
        """Reserve the amount. Waits for others to settle where that may free enough; raises Failure where it cannot."""
        while not self._fits(self.reserved_usd + usd, self.reserved_tokens + tokens):
            if not self._fits(usd, tokens) or not self.reserved_tokens:
                raise Failure("budget", f"the budget is used up ({self.spent_usd:.4f} USD, {self.spent_tokens} tokens spent)")
            self.settled.clear()
            await self.settled.wait()
        self.reserved_usd += usd
        self.reserved_tokens += tokens

    def _fits(self, usd: float, tokens: int) -> bool:
        return self.spent_usd + usd <= self.usd + 1e-12 and self.spent_tokens + tokens <= self.tokens

    def settle(self, usd: float, tokens: int, *, spent_usd: float, spent_tokens: int) -> None:
        """Release what was reserved and record the actual cost."""
        self.reserved_usd = max(0.0, self.reserved_usd - usd)
        self.reserved_tokens -= tokens
        self.spent_usd += spent_usd
        self.spent_tokens += spent_tokens
        self.settled.set()
