"""Batches of training answers that look worse than the first one bring the next held-out check forward."""

from types import SimpleNamespace
from typing import Any

import pytest

from medloop.train.rl import audit
from medloop.train.rl.checks import AuditResult
from medloop.train.rl.step import set_learning_rate


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
    screen = {"first": {"overtriage": (0.03, 0.0)}, "now": {"overtriage": (0.09, 0.0)}, "watched": ["overtriage"], "due": False}
    state: Any = SimpleNamespace(saved={"screen": screen}, plan=SimpleNamespace(audit=judge))
    audit.keep_watch(state, AuditResult(measures={"overtriage": 0.07, "copied": 0.5}, before={"overtriage": 0.03, "copied": 0.0}))
    assert not screen["due"] and screen["first"] == {"overtriage": (0.03, 0.0)}  # a little worse: no verdict yet
    audit.keep_watch(state, AuditResult(measures={"overtriage": 0.1}, before={"overtriage": 0.03}))
    assert screen["due"]


def test_a_check_that_shows_nothing_says_that_the_first_batch_was_an_easy_one():
    judge = SimpleNamespace(bounds=lambda: {"undertriage": 0.1})
    screen = {"first": {"undertriage": (0.1, 0.0)}, "now": {"undertriage": (0.3, 0.0)}, "watched": ["undertriage"], "due": False}
    state: Any = SimpleNamespace(saved={"screen": screen}, plan=SimpleNamespace(audit=judge))
    audit.keep_watch(state, AuditResult(measures={"undertriage": 0.31}, before={"undertriage": 0.3}))
    assert not screen["due"] and screen["first"] == {"undertriage": (0.3, 0.0)}


def test_at_most_ten_checks_are_brought_forward_where_fewer_are_planned(monkeypatch):
    assert sum(checks(monkeypatch, "undertriage", [0.1, *[0.5] * 14])) == audit.MIN_EARLY == 10


def test_updates_are_small_as_long_as_triage_looks_worse(monkeypatch):
    measures = iter([{"overtriage": (rate, 0.0), "copied": (rate, 0.0)} for rate in (0.0, 0.01, 0.04, 0.08, 0.0)])
    judge = SimpleNamespace(screen=lambda _: next(measures), bounds=lambda: {"overtriage": 0.1, "copied": 0.1})
    optimizer = SimpleNamespace(param_groups=[{}])
    state: Any = SimpleNamespace(saved={}, plan=SimpleNamespace(audit=judge), learning_rate=1.0, optimizer=optimizer)
    monkeypatch.setattr(audit, "checked_answers", lambda _: [])
    rates = []
    for _ in range(5):
        audit.screen_batch(state, experience=None)  # type: ignore[arg-type]
        rates.append(set_learning_rate(state, 0.0))
    assert rates == [1.0, 1.0, 0.25, 0.25, 1.0]
