"""Batches of training answers that look worse than the first one bring the next held-out check forward."""

from types import SimpleNamespace
from typing import Any

import pytest

from medloop.train.rl import audit


def checks(monkeypatch: pytest.MonkeyPatch, name: str, values: list[float]) -> list[bool]:
    """Whether a check is due after each batch, whose measure `name` has these means and no error."""
    batches = iter(values)
    judge = SimpleNamespace(screen=lambda _: {name: (next(batches), 0.0)}, bounds=lambda: {name: 0.1})
    config = SimpleNamespace(steps=40, eval_every=10, prompts_per_step=4)
    state: Any = SimpleNamespace(saved={}, plan=SimpleNamespace(audit=judge, held_out=[1], config=config))
    monkeypatch.setattr(audit, "checked_answers", lambda _: [])
    due = []
    for _ in values:
        audit.screen_batch(state, experience=None)  # type: ignore[arg-type]
        due.append(audit.check_is_due(state))
    return due


def test_wrong_triage_is_checked_at_every_step_and_other_measures_when_they_get_worse_still(monkeypatch):
    values = [0.03, 0.04, 0.12, 0.12, 0.11, 0.03, 0.25]
    assert checks(monkeypatch, "overtriage", values) == [False, False, True, True, True, False, True]
    assert checks(monkeypatch, "copied", values) == [False, False, True, False, False, False, True]


def test_after_a_check_with_worse_triage_the_next_step_is_checked_too():
    judge = SimpleNamespace(bounds=lambda: {"overtriage": 0.1, "copied": 0.1})
    screen = {"first": {"overtriage": (0.03, 0.0), "copied": (0.0, 0.0)}, "last": {}, "early": 0, "due": False}
    state: Any = SimpleNamespace(saved={"screen": screen}, plan=SimpleNamespace(audit=judge))
    audit.keep_watch(state, {"overtriage": 0.07, "copied": 0.5})
    assert not screen["due"]
    audit.keep_watch(state, {"overtriage": 0.1})
    assert screen["due"]


def test_checks_that_are_brought_forward_are_as_many_as_planned_ones(monkeypatch):
    assert sum(checks(monkeypatch, "undertriage", [0.1, *[0.5] * 9])) == 4
