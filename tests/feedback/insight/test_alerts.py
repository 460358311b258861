"""Alerts: every code has a sentence in both languages with the same numbers in it."""

from __future__ import annotations

import re
import string

import pytest

from medloop.feedback.insight import alerts

VALUES: dict[str, alerts.Value] = {
    "n": 1234, "share": 0.395, "most": 0.2, "fraction": 0.75, "kappa": 0.128, "alpha": 0.1, "high": 0.19, "what": "axis safety",
    "judge": "risk", "quantity": "recall", "before": 0.81, "after": 0.52, "reward": "2+abc",
}  # fmt: skip


@pytest.mark.parametrize("code", alerts.SENTENCES)
def test_a_sentence_has_the_same_numbers_in_both_languages(code: str) -> None:
    slots = [{name for _, name, _, _ in string.Formatter().parse(pattern) if name} for pattern in alerts.SENTENCES[code]]
    assert slots[0] == slots[1]
    alert = alerts.make_alert("kind", code, **{name: VALUES[name] for name in slots[0]})
    en, zh = alerts.sentence(alert), alerts.sentence(alert, "zh")
    assert alert.words == en and sorted(re.findall(r"[\d.,]*\d%?", en)) == sorted(re.findall(r"[\d.,]*\d%?", zh))
    assert re.search("[\u4e00-\u9fff]", zh) and not re.search("[\u4e00-\u9fff]", en)


def test_what_is_judged_is_said_in_the_readers_words() -> None:
    alert = alerts.make_alert("agreement", "low_alpha", what="axis safety", alpha=0.1, high=0.2)
    assert "安全性" in alerts.sentence(alert, "zh") and "axis safety" in alert.words
    own = alerts.make_alert("agreement", "low_alpha", what="choice bedside tone", alpha=0.1, high=0.2)
    assert "bedside tone" in alerts.sentence(own, "zh")


def test_an_alert_survives_its_json() -> None:
    alert = alerts.make_alert("share", "share_of_rater", "usr_1", share=0.395, most=0.2)
    again = alerts.Alert.model_validate_json(alert.model_dump_json())
    assert again == alert and again.words == "gave 39.5% of the preferences (more than 20%)"


def test_nothing_is_said_to_be_minus_zero() -> None:
    assert "kappa 0.00, n = 20" in alerts.make_alert("quarantine", "low_kappa", "usr_1", what="stars", kappa=-0.004, n=20).words
