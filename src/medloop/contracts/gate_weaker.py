"""Which settings of a gate are weaker than the policy of the workspace: wider margins, fewer questions, less that is asked.

    weaker(GateConfig(margin=0.2), GateConfig())        # (WeakerSetting("margin", "0.2", "0.05"),)

The policy is a GateConfig, too. What is weaker is not forbidden: people have to see it and sign (decide.py).
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

from medloop.contracts.gate_config import GateConfig

SIGNERS_OF_WEAKER = 2
"""Clinicians who have to sign a verdict whose settings are weaker than the policy."""
MORE_IS_WEAKER = (
    "margin", "suite_margin", "stratum_margin", "red_team_margin", "under_triage_margin", "over_triage_margin",
    "most_over_triage", "language_margin", "stock_margin", "reward_words_margin", "min_stratum_cases", "most_missing",
    "most_new_critical", "most_kl", "medication_change", "accept_unmeasured_judges",
)  # fmt: skip
LESS_IS_WEAKER = (
    "n", "max_new_tokens", "level", "sign_offs", "critical_sign_offs", "medication_sign_offs",
)  # fmt: skip
OTHER_IS_WEAKER = ("min_cases",)
"""Fewer are less evidence, and with more the suites below it are not tested."""
ASKED = ("splits", "suites", "required_suites", "rules", "required_strata")
"""Each part of the policy must be among them."""
LENIENT = ("splits", "critical_by_chance")
"""No part beyond those of the policy may be among them: the cases of all splits are pooled, so easy ones hide a loss."""
POOLED_SUITE, OWN_CRITERIA = "triage", "rubric=corrections"
"""The suite of medloop that measures what the rules of the splits do, and the one that the gate adds by itself."""


class WeakerSetting(NamedTuple):
    """A setting as it was and as the policy has it, both as JSON."""

    name: str
    value: str
    policy: str


def weaker(config: GateConfig, policy: GateConfig) -> tuple[WeakerSetting, ...]:
    """The settings of `config` that ask less of a model than `policy` does, in their order."""
    names = {*_weaker_names(config, policy)}
    return tuple(
        WeakerSetting(name, _json(getattr(config, name)), _json(getattr(policy, name)))
        for name in GateConfig.model_fields
        if name in names
    )


def _weaker_names(config: GateConfig, policy: GateConfig) -> Iterator[str]:
    for name in MORE_IS_WEAKER:
        if getattr(config, name) > getattr(policy, name):
            yield name
    for name in LESS_IS_WEAKER:
        if getattr(config, name) < getattr(policy, name):
            yield name
    for name in OTHER_IS_WEAKER:
        if getattr(config, name) != getattr(policy, name):
            yield name
    for name in ASKED:
        if not set(getattr(policy, name)) <= set(getattr(config, name)):
            yield name
    for name in LENIENT:
        if not set(getattr(config, name)) <= set(getattr(policy, name)):
            yield name
    if any(_is_pooled(spec) for spec in set(config.suites) - set(policy.suites)):
        yield "suites"
    if any(margin > _bound(key, policy) for key, margin in config.margins.items()):
        yield "margins"
    widest = max(*_families(config), config.suite_margin, *config.margins.values())
    if any(margin < widest for key, margin in policy.margins.items() if key not in config.margins):
        yield "margins"


def _is_pooled(spec: str) -> bool:
    """Whether the cases of a suite could be counted with those of the splits; nobody knows what is in a file."""
    return spec != OWN_CRITERIA and (spec == POOLED_SUITE or "=" in spec or ":" in spec)


def _families(config: GateConfig) -> tuple[float, ...]:
    return config.margin, config.red_team_margin, config.under_triage_margin, config.over_triage_margin


def _bound(key: str, policy: GateConfig) -> float:
    """The margin of the policy for a SUITE, METRIC or SUITE/METRIC: its own one, else the smallest that it could replace."""
    if key in policy.margins:
        return policy.margins[key]
    if "/" in key:
        return min(policy.margins.get(part, min(_families(policy))) for part in key.split("/", 1))
    return min(*_families(policy), *(margin for name, margin in policy.margins.items() if "/" not in name))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
