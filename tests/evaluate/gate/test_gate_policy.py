"""The gate's policy: settings that ask less need two clinicians, and nobody weakens the policy alone."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.contracts import sha256_id
from medloop.contracts.evaluation import Difference
from medloop.contracts.gate import GateCheck, GateResult
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_reasons import reason
from medloop.contracts.gate_weaker import ASKED, LENIENT, LESS_IS_WEAKER, MORE_IS_WEAKER, OTHER_IS_WEAKER, weaker
from medloop.evaluate.gate.decide import settings_check
from medloop.evaluate.gate.report_checks import margin_of
from medloop.loop.gate_policy import adopt, own_settings, policy_of
from medloop.store.records import gate_policies, gates, users
from medloop.store.records.gates import GatePersonError


def names(**chosen: object) -> list[str]:
    return [row.name for row in weaker(GateConfig(**chosen), GateConfig())]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, []),
        ({"margin": 0.2}, ["margin"]),
        ({"margin": 0.01, "n": 800, "suites": ("triage", "ability"), "sign_offs": 3}, []),
        ({"suites": (), "required_suites": ("gold", "red")}, ["suites", "required_suites"]),
        ({"suites": ("triage=easy.jsonl",)}, ["suites"]),
        ({"n": 10, "sign_offs": 0, "accept_unmeasured_judges": True}, ["n", "accept_unmeasured_judges", "sign_offs"]),
        ({"critical_by_chance": ("triage", "corrections")}, ["critical_by_chance"]),
        ({"margins": {"gold/chain": 0.2}}, ["margins"]),
        ({"margins": {"gold/chain": 0.04}}, []),
        ({"min_cases": 300}, ["min_cases"]),
        ({"min_cases": 10}, ["min_cases"]),
        ({"splits": ("dev", "test", "gold", "red", "silver")}, ["splits"]),
        ({"suites": ("triage", "my.module:EasySuite")}, ["suites"]),
        ({"suites": ("triage", "rubric=corrections")}, []),
        ({"margins": {"mysuite": 0.06}}, ["margins"]),
    ],
)
def test_what_asks_less_of_a_model_is_weaker(chosen: dict[str, object], expected: list[str]) -> None:
    assert names(**chosen) == expected


def test_every_setting_has_a_direction_and_a_margin_of_the_policy_cannot_be_dropped() -> None:
    assert {*MORE_IS_WEAKER, *LESS_IS_WEAKER, *ASKED, *LENIENT, *OTHER_IS_WEAKER, "margins"} == set(GateConfig.model_fields)
    strict = GateConfig(margins={"gold/chain": 0.01})
    assert [row.name for row in weaker(GateConfig(), strict)] == ["margins"]
    assert weaker(strict, strict) == ()
    check = settings_check(weaker(GateConfig(margin=0.2), GateConfig()))
    assert "margin=0.2 (0.05)" in check.reason and check.outcome == "pass"


FAMILIES = ("margin", "red_team_margin", "under_triage_margin", "over_triage_margin", "suite_margin", "stratum_margin")
WIDTHS = st.sampled_from((0.01, 0.04, 0.05, 0.1, 0.2))
SETTINGS = st.builds(
    lambda families, margins: GateConfig(**families, margins=margins),
    st.fixed_dictionaries(dict.fromkeys(FAMILIES, WIDTHS)),
    st.dictionaries(
        st.sampled_from(("gold", "red", "chain", "undertriage", "gold/chain", "red/undertriage")), WIDTHS, max_size=3
    ),
)


@given(SETTINGS, SETTINGS)
@settings(max_examples=300, deadline=None)
def test_settings_that_are_not_weaker_widen_no_margin_anywhere(config: GateConfig, policy: GateConfig) -> None:
    assert weaker(config, config) == ()
    if weaker(config, policy):
        return
    for split, metric, stratum, alone in itertools.product(
        ("gold", "red", "dev"), ("chain", "undertriage", "overtriage"), (None, "language:zh"), (True, False)
    ):
        row = Difference.model_construct(split=split, metric=metric, stratum=stratum)
        assert margin_of(row, config, alone=alone) <= margin_of(row, policy, alone=alone), (split, metric)


def test_a_dropped_margin_and_one_of_a_suite_above_that_of_a_metric_are_weaker() -> None:
    policy = GateConfig(margins={"undertriage": 0.04})
    assert [row.name for row in weaker(GateConfig(margin=0.04), policy)] == ["margins"], "its family has 0.05"
    strict = GateConfig(margins={"score": 0.01})
    assert [row.name for row in weaker(GateConfig(margins={"score": 0.01, "mysuite": 0.05}), strict)] == ["margins"]
    with pytest.raises(ValueError, match="train"):
        GateConfig(splits=("gold", "train"))


@pytest.fixture
def people(store) -> dict[str, str]:
    roles = {"dr.li": "clinician", "dr.wu": "clinician", "sam": "engineer"}
    return {name: users.add_user(store, name, role, password=None, actor="test").user_id for name, role in roles.items()}


def test_a_weaker_policy_waits_for_a_second_clinician_and_a_stricter_one_does_not(store, people) -> None:
    strict, loose = GateConfig(margin=0.01), GateConfig(sign_offs=0)
    with pytest.raises(GatePersonError):
        adopt(store, strict, by=people["sam"])
    assert policy_of(store).config == GateConfig() and policy_of(store).since is None
    assert not adopt(store, strict, by=people["dr.li"]).waits and policy_of(store).config == strict
    assert adopt(store, loose, by=people["dr.li"]).waits and adopt(store, loose, by=people["dr.li"]).waits
    assert policy_of(store).config == strict, "one person twice is one person"
    assert not adopt(store, loose, by=people["dr.wu"]).waits and policy_of(store).config == loose
    assert policy_of(store).adopted_by == (people["dr.li"], people["dr.wu"])
    assert own_settings(store, GateConfig(n=7)) == loose.model_copy(update={"n": 7})


def verdict(chosen: GateConfig, **more: object) -> GateResult:
    fields = {"weights": sha256_id("w"), "base": sha256_id("b"), "baseline_artifact": sha256_id("b"), "report": sha256_id("r")}
    check = GateCheck.because("critical_failures", "pass", reason("critical_none"))
    known = {"config": chosen.settings_id(), "changed_settings": chosen.changed(), "needs_sign_offs": chosen.sign_offs}
    return GateResult(
        artifact=sha256_id("a"), label="tiny+a", baseline="tiny", outcome="pass", checks=(check,), **fields, **known | more
    )


def test_a_verdict_from_before_a_stricter_policy_needs_the_clinicians_of_a_weaker_one(store, people) -> None:
    usual = verdict(GateConfig())
    gate = gates.save_gate(store, usual, actor="test")
    gates.sign(store, gate, by=people["dr.li"], approved=True)
    assert gates.promotion_refusal(store, usual.artifact) is None
    adopt(store, GateConfig(margin=0.01), by=people["dr.li"])
    refusal = gates.promotion_refusal(store, usual.artifact)
    assert "1 of 2 sign-offs" in refusal and "margin=0.05 (0.01)" in refusal and "gate sign" in refusal
    gates.sign(store, gate, by=people["dr.wu"], approved=True)
    assert gates.promotion_refusal(store, usual.artifact) is None
    adopt(store, GateConfig(margin=0.01, sign_offs=3), by=people["dr.li"])
    assert "2 of 3 sign-offs" in gates.promotion_refusal(store, usual.artifact), "a weaker one never needs fewer than the policy"
    gates.save_gate(
        store, verdict(GateConfig(margin=0.01, sign_offs=3), config=sha256_id("old"), needs_sign_offs=0), actor="test"
    )
    assert "not known" in gates.promotion_refusal(store, usual.artifact), "the hash is of other settings"


def test_a_word_for_a_weaker_policy_ends_and_a_setting_of_the_past_stops_no_gate(store, people, monkeypatch) -> None:
    loose = GateConfig(sign_offs=0)
    assert adopt(store, loose, by=people["dr.li"]).waits
    later = gate_policies.utc_now() + gate_policies.WORD_LASTS + timedelta(days=1)
    monkeypatch.setattr(gate_policies, "utc_now", lambda: later)
    assert adopt(store, loose, by=people["dr.wu"]).waits, "the first word was given too long ago"
    assert not adopt(store, loose, by=people["dr.li"]).waits
    gate_policies.add_word(store, {"gone_since": 1, "margin": 0.01}, by=people["dr.li"])
    assert policy_of(store).config == GateConfig(margin=0.01)


def test_the_command_takes_back_what_one_asked_for(store, people, command_line, monkeypatch) -> None:
    monkeypatch.setattr("medloop.cli.gate_policy.logged_in", lambda store, name: users.get_user(store, name))
    adopt(store, GateConfig(sign_offs=0), by=people["dr.li"])
    home = ("--home", store.settings.home, "gate", "policy", "withdraw", "--user")
    refused = command_line(*home, "dr.wu")
    assert refused.code == 3 and "No settings that you asked for wait" in refused.err
    assert "Taken back: sign_offs = 0" in command_line(*home, "dr.li").out
    assert command_line(*home, "dr.li").code == 3 and gate_policies.waiting_words(store) == []
