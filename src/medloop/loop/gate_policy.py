"""The gate's policy of a workspace: what every model has to show here, and who can change that.

    policy_of(store)                            # PolicyInForce: the settings, and since when by whom
    adopt(store, config, by="usr_1")            # a clinician's word; one that weakens the policy needs that of a second one
    own_settings(store, GateConfig(n=800))      # the policy, with the settings that somebody chose themselves
    proposals(store)                            # weaker ones that wait for a second clinician
    withdraw(store, by="usr_1")                 # … until who asked for them takes them back

Without a word of anybody the defaults of medloop are the policy. A policy is kept in the store and not in a file, so an engineer
cannot change it by editing one. A verdict with weaker settings than the policy needs two clinicians (contracts/gate_weaker.py).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from medloop.contracts.dataset import SPLIT_FILES, Language, Stratum
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_weaker import WeakerSetting, weaker
from medloop.errors import InputError
from medloop.loop.suites import SUITES
from medloop.reward.rules import RULES
from medloop.store.db import Store
from medloop.store.records import gate_policies
from medloop.store.records.gate_policies import policy_of as policy_of


@dataclass(frozen=True)
class Adopted:
    """`waits` is True where a second clinician has to run the same command."""

    waits: bool
    weaker: tuple[WeakerSetting, ...]


def adopt(store: Store, config: GateConfig, *, by: str) -> Adopted:
    """A clinician's word for a policy; GatePersonError for anybody else, InputError for names that nothing here has."""
    now = policy_of(store).config
    check_names(config, now)
    less = weaker(config, now)
    gate_policies.add_word(store, config.model_dump(mode="json"), by=by)
    return Adopted(policy_of(store).config != config, less)


def check_names(config: GateConfig, now: GateConfig) -> None:
    """Each new name in a list is that of a split, a suite, a rule or a group; `module:object` names something of one's own."""
    splits = tuple(name for name in SPLIT_FILES if name != "train")
    suites = tuple(name.partition("=")[0] for name in config.suites)
    own = tuple(name for name in suites if ":" in name)  # nobody knows what it calls itself
    strata = (*get_args(Stratum), *(f"language:{name}" for name in get_args(Language)))
    known: dict[str, tuple[str, ...]] = {
        "splits": splits, "suites": tuple(SUITES), "rules": tuple(RULES), "required_strata": strata,
        "required_suites": (*splits, *SUITES), "critical_by_chance": (*splits, *SUITES),
    }  # fmt: skip
    for setting, names in known.items():
        for name in set(getattr(config, setting)) - set(getattr(now, setting)):
            is_own = ":" in name if setting in ("suites", "rules") else bool(own) and setting not in ("splits", "required_strata")
            if not (is_own or (name.partition("=")[0] if setting == "suites" else name) in names):
                raise InputError(f"'{name}' is not known in {setting}", f"Choose from {', '.join(names)}")


@dataclass(frozen=True)
class Proposal:
    """A weaker policy that one clinician asked for; it holds once another one does, too."""

    policy: str
    config: GateConfig
    by: str
    timestamp: datetime
    weaker: tuple[WeakerSetting, ...]


def proposals(store: Store) -> list[Proposal]:
    """Each policy once, as it was asked for first."""
    now, first = policy_of(store).config, dict[str, Proposal]()
    for word in gate_policies.waiting_words(store):
        config = gate_policies.config_of(word.settings)
        proposal = Proposal(word.policy, config, word.person, word.timestamp, weaker(config, now))
        first.setdefault(word.policy, proposal)
    return list(first.values())


def adopt_proposal(store: Store, policy: str, *, by: str) -> Adopted:
    """The same settings that somebody else asked for; InputError where none with this hash waits."""
    proposal = next((row for row in proposals(store) if row.policy == policy), None)
    if proposal is None:
        raise InputError("No such settings wait for a second clinician", "Read the policy again")
    if proposal.by == by:
        raise InputError("You asked for these settings yourself", "They hold once another clinician adopts them")
    return adopt(store, proposal.config, by=by)


def withdraw(store: Store, policy: str | None = None, *, by: str) -> list[Proposal]:
    """Take back what this person asked for and what waits: these settings, or all of theirs. Returns what was taken back."""
    mine = {word.policy for word in gate_policies.waiting_words(store) if word.person == by}
    taken = [row for row in proposals(store) if row.policy in mine and policy in (None, row.policy)]
    if not taken:
        raise InputError("No settings that you asked for wait for a second clinician", "Read the policy again")
    for row in taken:
        gate_policies.withdraw_word(store, row.policy, by=by)
    return taken


def own_settings(store: Store, config: GateConfig) -> GateConfig:
    """The settings that somebody chose; all others are those of the policy."""
    chosen = {name: getattr(config, name) for name in config.model_fields_set}
    return policy_of(store).config.model_copy(update=chosen)
