"""Feedback made on the spot: questions that are no near-copies of one another, and what people say about answers to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from medloop.contracts import Correction, Feedback, Preference
from medloop.contracts.feedback import Purpose

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
YES: tuple[Purpose, ...] = ("training",)
PARTS = ("knee", "elbow", "jaw", "ankle", "wrist", "heel", "rib", "shin", "scalp", "toe", "hip", "ear")
WORDS = ("throbs", "itches", "swells", "burns", "cracks", "stings", "tingles", "stiffens", "twitches", "aches", "bleeds", "locks")


def ask(n: int) -> str:
    return f"Since last spring my {PARTS[n % 12]} {WORDS[n * 5 % 12]} whenever I climb stairs number {n}, what helps against it?"


def thumb(n: int, answer: str, up: bool, **more: Any) -> Feedback:
    return Feedback(
        session_id="s", agent_name="a", user_query=more.pop("query", ask(n)), agent_response=answer, thumb="up" if up else "down",
        consent=more.pop("consent", YES), timestamp=NOON + timedelta(minutes=more.pop("minute", n)), **more,
    )  # fmt: skip


def vote(n: int, a: str, b: str, preferred: Any, **more: Any) -> Preference:
    when = NOON + timedelta(minutes=more.pop("minute", n))
    return Preference(prompt=ask(n), response_a=a, response_b=b, preferred=preferred, consent=YES, timestamp=when, **more)


def fix(n: int, original: str, golden: str, **more: Any) -> Correction:
    when = NOON + timedelta(minutes=n)
    return Correction(prompt=more.pop("prompt", ask(n)), original=original, golden=golden, consent=YES, timestamp=when, **more)
