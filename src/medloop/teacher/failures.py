"""Why an attempt gave no verdict, and what the client does about it."""

from dataclasses import dataclass
from typing import Literal

FailureKind = Literal[
    "timeout", "unreachable", "connection", "rate", "server", "refused", "unreadable", "too_large", "empty", "cut_off", "verdict",
    "wrong_model", "changed", "no_balance", "bad_key", "no_key", "key_echo", "budget", "circuit",
]  # fmt: skip

# Retries of one judgement for each kind of failure, within `attempts` in all.
RETRIES: dict[str, int] = {
    "unreachable": 9, "connection": 9, "rate": 9, "server": 9, "unreadable": 2, "empty": 2, "verdict": 1, "cut_off": 1,
}  # fmt: skip
# Failures of the service itself; the others concern one request, or us.
SERVICE_FAILURES = frozenset({"timeout", "unreachable", "connection", "server", "unreadable", "too_large", "empty"})
# After these no further request is sent in this run.
FINAL = frozenset({"no_balance", "bad_key", "wrong_model", "budget"})


@dataclass
class Usage:
    """Tokens as the service counted them; `known` is False when it did not report them."""

    hit: int = 0
    miss: int = 0
    out: int = 0
    known: bool = False

    @property
    def prompt(self) -> int:
        return self.hit + self.miss


class Failure(Exception):
    """One failed attempt. `detail` never quotes a reply: it may repeat patient text."""

    def __init__(self, kind: FailureKind, detail: str, *, retry_after: float | None = None, usage: Usage | None = None) -> None:
        self.kind: FailureKind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.usage = usage
        self.cost = 0.0  # USD, set by the client, which knows the prices
        super().__init__(f"{kind}: {detail}")
