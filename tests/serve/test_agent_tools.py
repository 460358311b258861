"""Tools: typed, from tables, chosen by the user's own words; every call is a record."""

import pytest

from medloop.lexicon.load import load_lexicon
from medloop.reward.detect.urgency import urgency
from medloop.serve.agent.tools import Tool, ToolCall, _doses, call, call_wanted, clinical_tools, tool_lines, wanted, weight_kg

TOOLS = clinical_tools(urgency=urgency)


def test_schemas_name_every_argument() -> None:
    for tool in TOOLS.values():
        function = tool.schema["function"]
        assert function["parameters"]["additionalProperties"] is False
        assert all(value.get("description") for value in function["parameters"]["properties"].values()), tool.name


@pytest.mark.parametrize(
    ("weight", "one_dose", "daily"), [(10, [100, 150], 600), (12.5, [125, 187.5], 750), (90, [900, 1000], 4000)]
)
def test_paracetamol_by_hand(weight: float, one_dose: list[float], daily: float) -> None:
    # 10 to 15 mg/kg, at most 1,000 mg at once; 60 mg/kg a day, at most 4,000 mg
    done = call(TOOLS, "dose_by_weight", {"drug": "泰诺林", "weight_kg": weight, "age_months": 60})
    assert done.result is not None and done.result["drug"] == "paracetamol"
    (dose,) = done.result["doses"]
    assert (dose["one_dose"], dose["most_in_a_day"]) == (one_dose, daily) and dose["source"]


def test_no_dose_of_the_table_exceeds_what_the_lexicon_allows() -> None:
    drugs = load_lexicon().drugs
    for row in _doses():
        entry = drugs.get(row["drug"])
        if entry is not None:
            assert row["max_single"] <= (entry.max_single or 1e9) and row["max_daily"] <= (entry.max_daily or 1e9), row["drug"]
        assert row["max_single"] * row["per_day"] >= row["max_daily"] * 0.5 and row["source"]


def test_too_young_unknown_and_adrenaline() -> None:
    young = call(TOOLS, "dose_by_weight", {"drug": "ibuprofen", "weight_kg": 5, "age_months": 2})
    assert young.result is not None and "not below 3 months" in young.result["doses"][0]["refused"]
    unknown = call(TOOLS, "dose_by_weight", {"drug": "warfarin", "weight_kg": 70})
    assert unknown.result is not None and unknown.result["known"] is False
    jab = call(TOOLS, "dose_by_weight", {"drug": "adrenaline", "weight_kg": 20})
    assert jab.result is not None and jab.result["doses"][0]["one_dose"] == [0.2, 0.2]


def test_interactions_name_pairs_and_what_is_not_in_the_table() -> None:
    done = call(TOOLS, "drug_interactions", {"drugs": ["Advil", "华法林", "zorblax"]})
    assert done.result is not None
    assert done.result["avoid_together"] == [["ibuprofen", "warfarin"]] and done.result["not_in_the_table"] == ["zorblax"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("rm", {}, "unknown tool"),
        ("dose_by_weight", {"drug": "ibuprofen", "weight_kg": -3}, "wrong arguments: weight_kg"),
        ("dose_by_weight", {"drug": "ibuprofen", "weight_kg": 9, "path": "/etc"}, "wrong arguments: path"),
        ("breaks", {"text": "x"}, "ZeroDivisionError"),
    ],
)
def test_a_call_that_fails_is_a_record(name: str, arguments: dict, error: str) -> None:
    tools = {**TOOLS, "breaks": Tool("breaks", "", TOOLS["triage"].arguments, lambda arguments: {"x": 1 // 0})}
    done = call(tools, name, arguments)
    assert isinstance(done, ToolCall) and done.result is None and done.error == error


def test_calls_follow_the_words_of_the_user() -> None:
    names = lambda text: [name for name, _ in wanted(text)]  # noqa: E731
    assert names("My son is 4 years old and weighs 16 kg. How much ibuprofen?") == ["triage", "dose_by_weight"]
    assert names("能同时吃布洛芬和华法林吗？") == ["triage", "drug_interactions"]
    assert names("Hello") == ["triage"] and names("") == []
    (done,) = [done for done in call_wanted(TOOLS, "孩子5岁，体重36斤，布洛芬吃多少") if done.tool == "dose_by_weight"]
    assert done.arguments["weight_kg"] == 18 and done.arguments["age_months"] == 60
    assert any("每次 90-180 mg" in line for line in tool_lines([done], "zh"))


def test_weights() -> None:
    assert weight_kg("He weighs 22 lbs") == 10 and weight_kg("体重60公斤") == 60
    assert weight_kg("5 mg/kg") is None and weight_kg("10 kg or 12 kg") is None and weight_kg("900 kg") is None
