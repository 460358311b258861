"""What keeps the client polite and cheap: pace, circuit, budget. One event loop, no locks."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from medloop.teacher.failures import Failure

Clock = Callable[[], float]


@dataclass
class Pace:
    """So many units a minute, spread evenly, with a burst of a second's worth; 0 means no limit."""

    per_minute: float
    clock: Clock = time.monotonic
    free_at: float = 0.0

    def reserve(self, amount: float) -> float:
        """Take `amount` units; returns how many seconds to wait before using them."""
        if not self.per_minute:
            return 0.0
        now = self.clock()
        start = max(self.free_at, now - 1.0)
        self.free_at = start + amount * 60 / self.per_minute
        return max(0.0, start - now)


@dataclass
class Circuit:
    """Closed until `failures` in a row; then open for `open_s`; then one probe decides.

    After `rounds` openings without a success between, or a wait longer than `patience_s`, it refuses at once.
    """

    failures: int
    open_s: float
    rounds: int
    patience_s: float
    clock: Clock = time.monotonic
    in_a_row: int = 0
    opened: int = 0
    open_until: float = 0.0
    probing: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def enter(self) -> bool:
        """Wait while it is open; raises Failure when waiting is pointless. True for the one probe of a half-open circuit."""
        while True:
            wait = self.open_until - self.clock()
            if self.opened > self.rounds - 1 and wait > 0:
                raise Failure("circuit", f"the service failed {self.in_a_row} times in a row; it was given up")
            if wait > self.patience_s:
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
        """A second attempt inside one judgement does not wait for an open circuit."""
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
        """The probe is over, whatever it found."""
        self.probing = False
        self.changed.set()

    def open_for(self, seconds: float) -> None:
        if self.open_until <= self.clock():
            self.opened += 1
        self.open_until = max(self.open_until, self.clock() + seconds)
        self.changed.set()


@dataclass
class Budget:
    """Money and tokens of a run: taken before a request, settled after it."""

    usd: float
    tokens: float = math.inf
    spent_usd: float = 0.0
    spent_tokens: int = 0
    held_usd: float = 0.0
    held_tokens: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold(self, usd: float, tokens: int) -> None:
        """Reserve; waits for others to settle when that may make room, raises Failure when it cannot."""
        while not self._fits(self.held_usd + usd, self.held_tokens + tokens):
            if not self._fits(usd, tokens) or not self.held_tokens:
                raise Failure("budget", f"the budget is used up ({self.spent_usd:.4f} USD, {self.spent_tokens} tokens spent)")
            self.settled.clear()
            await self.settled.wait()
        self.held_usd += usd
        self.held_tokens += tokens

    def _fits(self, usd: float, tokens: int) -> bool:
        return self.spent_usd + usd <= self.usd + 1e-12 and self.spent_tokens + tokens <= self.tokens

    def settle(self, usd: float, tokens: int, *, spent_usd: float, spent_tokens: int) -> None:
        """Give back what was held and book what it really cost."""
        self.held_usd = max(0.0, self.held_usd - usd)
        self.held_tokens -= tokens
        self.spent_usd += spent_usd
        self.spent_tokens += spent_tokens
        self.settled.set()
