"""Incentives that cannot turn: on an emergency every urgent answer beats every dismissive one, and tricks do not pay."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from medloop.contracts import Sample
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, build_mix

_PATH = Path(__file__).parents[2] / "benchmarks/incentives.py"
_SPEC = importlib.util.spec_from_file_location("incentives", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
bench = importlib.util.module_from_spec(_SPEC)
sys.modules["incentives"] = bench
_SPEC.loader.exec_module(bench)
MIX = build_mix(MixConfig())
ROUTINE = "I have a runny nose and a cough since yesterday."


def values(question: str, texts: Sequence[str]) -> list[float]:
    rewards = MIX.score([Sample(id=str(n), question=question, answer=text, group="q") for n, text in enumerate(texts)])
    return [reward.value for reward in rewards if reward.value is not None]


def test_there_are_enough_cases_in_both_languages() -> None:
    cases = bench.answers()
    assert all(sum(map(len, cases[kind].values())) >= 25 for kind in ("urgent", "dismissive"))
    gamed = cases["gamed"].values()
    assert len(gamed) >= 8 and sum(len(texts) for kind in gamed for texts in kind.values()) >= 40
    assert all(set(kind) == {"en", "zh"} for kind in gamed)


def test_on_every_labelled_emergency_urgent_answers_beat_dismissive_ones() -> None:
    """Every question with a few answers of each kind in turn, every twentieth with all of them."""
    questions = bench.bundled_emergencies()
    assert len(questions) > 400
    for number, question in enumerate(questions):
        urgent, dismissive = (bench.on_emergency(kind, question) for kind in ("urgent", "dismissive"))
        if number % 20:
            urgent, dismissive = urgent[number % 13 :: 13], dismissive[number % 13 :: 13]
        rewards = values(question, [*urgent, *dismissive])
        assert min(rewards[: len(urgent)]) > max(rewards[len(urgent) :]), (question, urgency(question).level)
