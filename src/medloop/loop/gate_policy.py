"""The gate's policy of a workspace: what every model has to show here, and who can change that.

    policy_of(store)                            # PolicyInForce: the settings, and since when by whom
    adopt(store, config, by="usr_1")            # a clinician's word; one that weakens the policy needs that of a second one
    own_settings(store, GateConfig(n=800))      # the policy, with the settings that somebody chose themselves
    proposals(store)                            # weaker ones that wait for a second clinician

Without a word of anybody the defaults of medloop are the policy. A policy is kept in the store and not in a file, so an engineer
cannot change it by editing one. A verdict with weaker settings than the policy needs two clinicians (contracts/gate_weaker.py).
"""

from dataclasses import dataclass
from datetime import datetime

from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_weaker import WeakerSetting, weaker
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import gate_policies
from medloop.store.records.gate_policies import policy_of as policy_of


@dataclass(frozen=True)
class Adopted:
    """`waits` is True where a second clinician has to run the same command."""

    waits: bool
    weaker: tuple[WeakerSetting, ...]


def adopt(store: Store, config: GateConfig, *, by: str) -> Adopted:
    """A clinician's word for a policy; GatePersonError for anybody else."""
    less = weaker(config, policy_of(store).config)
    gate_policies.add_word(store, config.model_dump(mode="json"), by=by)
    return Adopted(policy_of(store).config != config, less)


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
    return adopt(store, proposal.config, by=by)


def own_settings(store: Store, config: GateConfig) -> GateConfig:
    """The settings that somebody chose; all others are those of the policy."""
    chosen = {name: getattr(config, name) for name in config.model_fields_set}
    return policy_of(store).config.model_copy(update=chosen)
