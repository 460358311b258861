"""The gate's policy: settings that ask less need two clinicians, and nobody weakens the policy alone."""

from __future__ import annotations

import pytest

from medloop.evaluate.gate.config import GateConfig
from medloop.evaluate.gate.decide import settings_check
from medloop.evaluate.gate.policy import ASKED, LENIENT, LESS_IS_WEAKER, MORE_IS_WEAKER, weaker
from medloop.loop.gate_policy import adopt, own_settings, policy_of
from medloop.store.records import users
from medloop.store.records.gates import GatePersonError


def names(**settings: object) -> list[str]:
    return [row.name for row in weaker(GateConfig(**settings), GateConfig())]


@pytest.mark.parametrize(
    ("settings", "expected"),
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
    ],
)
def test_what_asks_less_of_a_model_is_weaker(settings: dict[str, object], expected: list[str]) -> None:
    assert names(**settings) == expected


def test_every_setting_has_a_direction_and_a_margin_of_the_policy_cannot_be_dropped() -> None:
    assert {*MORE_IS_WEAKER, *LESS_IS_WEAKER, *ASKED, *LENIENT, "margins"} == set(GateConfig.model_fields)
    strict = GateConfig(margins={"gold/chain": 0.01})
    assert [row.name for row in weaker(GateConfig(), strict)] == ["margins"]
    assert weaker(strict, strict) == ()
    check = settings_check(weaker(GateConfig(margin=0.2), GateConfig()))
    assert "margin=0.2 (0.05)" in check.reason and check.outcome == "pass"


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
