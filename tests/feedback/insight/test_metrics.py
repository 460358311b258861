"""The numbers about feedback: from the store, without opening texts, and with the odd raters found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from medloop.contracts import Conversation, Feedback, Message, Preference, Trace
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig, measure
from medloop.feedback.insight.metrics_report import markdown, page, pictures, write_report
from medloop.settings import Settings
from medloop.store.crypto import TextKey
from medloop.store.db import Store, open_store
from medloop.store.records import crud, users
from medloop.store.tables import audit_log

T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
def desk(sqlite_settings: Settings) -> Iterator[Store]:
    with open_store(sqlite_settings) as opened:
        yield opened


def rating(rater: str, unit: int | None, minutes: float = 0, **values: Any) -> Feedback:
    base = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "clinician_id": rater}
    trace = None if unit is None else f"t{unit}"
    return Feedback.model_validate({**base, "trace_id": trace, "timestamp": T0 + timedelta(minutes=minutes), **values})


def choice(rater: str, unit: int, preferred: str, shown_first: str = "a", **values: Any) -> Preference:
    base = {"prompt": "q", "response_a": "x", "response_b": "y", "clinician_id": rater, "trace_id": f"t{unit}"}
    return Preference.model_validate({**base, "preferred": preferred, "shown_first": shown_first, "timestamp": T0, **values})


def add(store: Store, *given: Feedback | Preference | Trace) -> None:
    crud.add(store, given, actor="test")


def about(metrics: FeedbackMetrics, kind: str) -> list[str | None]:
    return [alert.about for alert in metrics.alerts if alert.kind == kind]


def test_volume_stars_and_thumbs(store: Store) -> None:
    add(store, rating("ann", 1, 0, rating=5), rating("ben", 2, 1500, rating=2), rating("ben", None, 1500, thumb="up"))
    add(store, choice("ann", 3, "b"), rating("cid", 4, thumb="down", critical=True))
    metrics = measure(store)
    assert metrics.per_day == {"2026-03-01": {"feedback": 2, "preference": 1}, "2026-03-02": {"feedback": 2}}
    assert metrics.stars == {"1": 0, "2": 1, "3": 0, "4": 0, "5": 1} and metrics.mean_stars.mean == 3.5
    assert (metrics.thumbs_up.mean, metrics.thumbs_up.n, metrics.critical, metrics.without_unit) == (0.5, 2, 1, 1)
    assert (metrics.first_shown_preferred.mean, metrics.preferences, metrics.corrections) == (0.0, 1, 0)


def test_agreement_per_axis_counts_each_raters_last_word(store: Store) -> None:
    for unit in range(6):
        star = unit % 5 + 1
        add(
            store,
            rating("ann", unit, rating=star, axes={"safety": star}),
            rating("ben", unit, rating=star, axes={"safety": 6 - star}),
        )
    add(store, rating("ann", 0, rating=5), rating("ann", 0, rating=1))  # back to what it was
    agreement = {result.name: result for result in measure(store).agreement}
    assert agreement["stars"].alpha.mean == 1.0 and agreement["stars"].fleiss == 1.0 and agreement["stars"].units == 6
    assert agreement["axis safety"].alpha.mean is not None and agreement["axis safety"].alpha.mean < 0


def test_a_superseded_record_counts_nowhere(desk: Store) -> None:
    wrong = rating("ann", 1, rating=1)
    add(desk, wrong, rating("ben", 1, rating=5), rating("ann", 1, rating=5, supersedes=wrong.feedback_id))
    metrics = measure(desk)
    assert metrics.feedback == 2 and metrics.stars["1"] == 0


def test_since_leaves_older_records_out(desk: Store) -> None:
    add(desk, rating("ann", 1, 0, rating=1), rating("ann", 2, 60, rating=5))
    assert measure(desk, MetricsConfig(since=T0 + timedelta(minutes=30))).stars["1"] == 0


def test_choices_between_two_models_are_compared_whichever_stood_first(desk: Store) -> None:
    for unit in range(4):
        first, second = ("m1", "m2") if unit % 2 else ("m2", "m1")
        add(
            desk, choice("ann", unit, "a", model_a=first, model_b=second), choice("ben", unit, "b", model_a=second, model_b=first)
        )
    (result,) = measure(desk).agreement
    assert result.name == "choice" and result.alpha.mean == 1.0


def test_leniency_is_measured_on_shared_answers(desk: Store) -> None:
    for unit in range(10):
        add(desk, rating("ann", unit, rating=4), rating("ben", unit, rating=2 + unit % 2))
    add(desk, *(rating("ann", 100 + n, rating=1) for n in range(10)))  # hers alone: tells nothing about leniency
    profiles = {row.rater: row for row in measure(desk).raters}
    assert profiles["ann"].leniency.mean == pytest.approx(1.5) and profiles["ben"].leniency.mean == pytest.approx(-1.5)
    assert profiles["ann"].leniency.n == 10


def test_a_rater_who_chooses_at_random_is_suggested_for_quarantine(desk: Store) -> None:
    rng = random.Random(3)
    for unit in range(60):
        truth = rng.choice("ab")
        add(desk, *(choice(name, unit, truth) for name in ("ann", "ben", "cid")), choice("rob", unit, rng.choice("ab")))
    metrics = measure(desk)
    assert about(metrics, "quarantine") == ["rob"]
    assert about(metrics, "share") == ["ann", "ben", "cid", "rob"]  # a quarter each, more than a fifth


def test_one_sender_behind_many_names_is_found(desk: Store) -> None:
    add(desk, *(choice(f"fake{n}", n, "a", recorded_by="bot") for n in range(40)))
    add(desk, *(choice(f"real{n}", 100 + n, "a", recorded_by=f"u{n % 6}") for n in range(60)))
    assert about(measure(desk), "share") == ["bot"]


def test_drift_straight_lines_and_speed_are_found(desk: Store) -> None:
    rng, given = random.Random(5), []
    for n in range(400):
        given += [rating(name, n, n * 5, rating=rng.choice((2, 3, 4))) for name in ("ann", "ben")]
        given.append(rating("dan", n, n * 5, rating=rng.choice((2, 3, 4)) if n < 200 else rng.choice((4, 5))))
        given.append(rating("eve", n, n / 30, rating=3))
    add(desk, *given)
    metrics = measure(desk)
    assert (
        about(metrics, "drift") == ["dan"] and about(metrics, "straight line") == ["eve"] and about(metrics, "speed") == ["eve"]
    )
    profile = next(row for row in metrics.raters if row.rater == "dan")
    assert profile.drift == "up" and profile.drift_at is not None and T0 + timedelta(minutes=1000) <= profile.drift_at


def test_equal_and_both_bad_are_choices_that_agree_but_no_bias(desk: Store) -> None:
    for n in range(20):
        for rater in ("ann", "bob"):
            add(desk, choice(rater, n, ("tie", "both_bad", "a", "b")[n % 4], "a"))
    add(desk, choice("cid", 0, "a", "a"), choice("cid", 1, "a", "a"))  # neither equal nor both bad is the same as a
    metrics = measure(desk)
    (alpha,) = (row for row in metrics.agreement if row.name == "choice")
    assert metrics.first_shown_preferred.n == 22 and metrics.preferences == 42
    assert 0.8 < alpha.alpha.mean < 1.0 and alpha.units == 20


def test_a_bias_to_the_first_shown_is_found(desk: Store) -> None:
    add(desk, *(choice("ann", n, "a" if n % 10 < 8 else "b", "a") for n in range(100)))
    metrics = measure(desk)
    assert metrics.first_shown_preferred.mean == 0.8 and len(about(metrics, "position")) == 1


def trace(number: int, question: str) -> Trace:
    messages = (Message(role="user", content=question), Message(role="assistant", content="fine"))
    return Trace(
        trace_id=f"t{number}", session_id="s", agent_name="a", model_version="m", conversation=Conversation(messages=messages)
    )


def test_coverage_by_risk_reads_traces_with_an_audit_line(store: Store) -> None:
    add(
        store,
        *(trace(n, "chest pain" if n < 4 else "a cold") for n in range(10)),
        rating("ann", 0, rating=3),
        rating("ann", 7, rating=3),
    )
    metrics = measure(store, strata_of=lambda text: ("emergency",) if "chest" in text else ("routine",), actor="li")
    rows = {row.stratum: (row.traces, row.rated.mean) for row in metrics.coverage or ()}
    assert rows == {"emergency": (4, 0.25), "routine": (6, pytest.approx(1 / 6))}
    with store.read() as conn:
        reads = conn.execute(select(audit_log.c.actor).where(audit_log.c.action == "traces.read")).scalars().all()
    assert reads == ["li"]


def test_nothing_is_decrypted_without_coverage(desk: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add(desk, rating("ann", 1, rating=5), rating("ben", 1, rating=4))
    monkeypatch.setattr(TextKey, "decrypt", lambda *_: pytest.fail("a text was opened"))
    assert measure(desk).feedback == 2


def test_an_empty_store_has_numbers_without_values(desk: Store) -> None:
    metrics = measure(desk, strata_of=lambda text: ("routine",))
    assert metrics.mean_stars.mean is None and metrics.agreement == () and metrics.alerts == () and pictures(metrics) == {}
    assert "None." in markdown(metrics, Path("x.md"))


def test_the_report_has_pictures_and_no_markup_of_a_raters_name(desk: Store, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>|x"
    for unit in range(5):
        add(desk, rating(evil, unit, rating=unit + 1), rating("ben", unit, rating=5 - unit))
    metrics = measure(desk)
    names = {path.name for path in write_report(metrics, tmp_path / "week.md")}
    assert {"week.md", "week.html", "week.json", "week_stars.svg", "week_volume.svg", "week_agreement.svg"} <= names
    assert FeedbackMetrics.from_json((tmp_path / "week.json").read_text()) == metrics
    assert "<script>" not in page(metrics) and "<script>" not in "".join(pictures(metrics).values())
    assert "<script>" not in markdown(metrics, tmp_path / "week.md")
    assert "week_stars.svg" in (tmp_path / "week.md").read_text()


def test_raters_have_names_not_ids_in_reports(desk: Store, tmp_path: Path) -> None:
    user = users.add_user(desk, "li.wei", role="clinician", actor="test")
    for unit in range(40):
        add(desk, rating(user.user_id, unit, rating=5), rating("ben", unit, rating=unit % 5 + 1))
    paths = write_report(measure(desk), tmp_path / "week.md", users.names(desk))
    texts = {path.suffix: path.read_text(encoding="utf-8") for path in paths}
    assert all("li.wei" in texts[kind] and user.user_id not in texts[kind] for kind in (".md", ".html"))
    assert all(user.user_id not in path.read_text(encoding="utf-8") for path in paths if path.suffix == ".svg")
    assert user.user_id in texts[".json"]
