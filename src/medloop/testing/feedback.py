"""Feedback for tests: questions that are not near-copies of one another, and ratings of answers to them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from medloop.contracts import Correction, Feedback, Preference
from medloop.contracts.feedback import Purpose

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
CONSENT: tuple[Purpose, ...] = ("training",)
PARTS = ("knee", "elbow", "jaw", "ankle", "wrist", "heel", "rib", "shin", "scalp", "toe", "hip", "ear")
VERBS = ("throbs", "itches", "swells", "burns", "cracks", "stings", "tingles", "stiffens", "twitches", "aches", "bleeds", "locks")


def make_question(n: int) -> str:
    return f"Since last spring my {PARTS[n % 12]} {VERBS[n * 5 % 12]} whenever I climb stairs number {n}, what helps against it?"


def make_thumb(n: int, answer: str, up: bool, **more: Any) -> Feedback:
    query, when = more.pop("query", make_question(n)), NOON + timedelta(minutes=more.pop("minute", n))
    return Feedback(
        session_id="s", agent_name="a", user_query=query, agent_response=answer, thumb="up" if up else "down",
        consent=more.pop("consent", CONSENT), timestamp=when, **more,
    )  # fmt: skip


def make_preference(n: int, a: str, b: str, preferred: Any, **more: Any) -> Preference:
    when = NOON + timedelta(minutes=more.pop("minute", n))
    return Preference(
        prompt=make_question(n), response_a=a, response_b=b, preferred=preferred, consent=CONSENT, timestamp=when, **more
    )


def make_correction(n: int, original: str, golden: str, **more: Any) -> Correction:
    when = NOON + timedelta(minutes=n)
    return Correction(
        prompt=more.pop("prompt", make_question(n)), original=original, golden=golden, consent=CONSENT, timestamp=when, **more
    )
