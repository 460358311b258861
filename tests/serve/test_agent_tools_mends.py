"""Weights with decimals and ages that are not known: a table of doses gives none rather than a wrong one."""

import pytest

from medloop.serve.agent.tools import DoseArguments, dose_by_weight, wanted, weight_kg


@pytest.mark.parametrize(
    "text, kilos", [("3.25 kg", 3.2), ("12.55kg", 12.6), ("体重12,5公斤", 12.5), ("0.85 kg", None), ("25 kg", 25.0)]
)
def test_a_weight_is_read_whole(text: str, kilos: float | None) -> None:
    assert weight_kg(f"My baby weighs {text}.") == pytest.approx(kilos, abs=0.06) if kilos else weight_kg(text) is None


def test_a_dose_with_a_lowest_age_needs_the_age() -> None:
    [dose] = dose_by_weight(DoseArguments(drug="ibuprofen", weight_kg=3.0))["doses"]
    assert "the age must be known" in dose["refused"] and "one_dose" not in dose


def test_of_several_ages_the_youngest_decides() -> None:
    calls = dict(wanted("My 2-month-old, 5 kg, and his 3 year old brother: ibuprofen?"))
    assert calls["dose_by_weight"]["age_months"] == pytest.approx(2, abs=0.1)
