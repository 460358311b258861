"""What people asked the gate to demand in this workspace: each row is one person's word for a policy, added and never changed.

    add_word(store, settings={…}, by="usr_1")       # a clinician stands for these settings
    policy_of(store)                                # PolicyInForce: the settings, and since when by whom
    waiting_words(store)                            # words for a weaker policy that wait for a second person
    withdraw_word(store, policy, by="usr_1")        # the same person takes one of these back
    signers_asked(store, result)                    # how many must sign a verdict, by the policy of now

Without a word of anybody the defaults of medloop are the policy.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import insert, select

from medloop.contracts import AuditEvent, canonical_json, sha256_id, utc_now, uuid7
from medloop.contracts.gate import GateResult
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_weaker import SIGNERS_OF_WEAKER, weaker
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records.gate_people import SIGNERS, check_person
from medloop.store.tables import gate_policies

WORD_LASTS = timedelta(days=30)
"""For so long a word for a weaker policy waits for the second one."""


WITHDRAWN = "withdrawn"
"""Instead of settings, in a row that takes back the same person's word for the same policy."""


class PolicyWord(NamedTuple):
    """One clinician's word for a policy; `policy` is the hash of its settings."""

    policy: str
    settings: dict[str, Any]
    person: str
    timestamp: datetime


@dataclass(frozen=True)
class PolicyInForce:
    """`adopted_by` is empty for the defaults of medloop."""

    config: GateConfig
    adopted_by: tuple[str, ...] = ()
    since: datetime | None = None


class SignersAsked(NamedTuple):
    """How many have to sign by the policy of now, at least, and the settings that ask less than it; none are named where the
    settings of the verdict are not known."""

    signers: int
    named: str = ""


def add_word(store: Store, settings: dict[str, Any], *, by: str) -> PolicyWord:
    """A clinician stands for these settings of the gate; GatePersonError for anybody else."""
    word_id, policy, now = f"pol_{uuid7()}", sha256_id(canonical_json(settings)), utc_now()
    with store.write() as conn:
        check_person(conn, by, SIGNERS, "decide what the gate demands")
        values = {"word_id": word_id, "policy": policy, "settings": settings, "person": by, "timestamp": now}
        conn.execute(insert(gate_policies).values(**values))
        audit.append(conn, AuditEvent(actor=by, action="gate.policy", subject=word_id, detail={"policy": policy}))
    return PolicyWord(policy, settings, by, now)


def withdraw_word(store: Store, policy: str, *, by: str) -> None:
    """Take back one's own word that waits; the caller has looked whether it does. A row of its own: words are never removed."""
    word_id = f"pol_{uuid7()}"
    with store.write() as conn:
        check_person(conn, by, SIGNERS, "decide what the gate demands")
        values = {"word_id": word_id, "policy": policy, "settings": {WITHDRAWN: True}, "person": by, "timestamp": utc_now()}
        conn.execute(insert(gate_policies).values(**values))
        audit.append(conn, AuditEvent(actor=by, action="gate.withdraw_policy", subject=word_id, detail={"policy": policy}))


def words(store: Store) -> list[PolicyWord]:
    """Every word that was given, oldest first."""
    rows = genuine_rows(store, gate_policies, select(gate_policies).order_by(gate_policies.c.id))
    return [PolicyWord(row.policy, row.settings, row.person, row.timestamp) for row in rows]


def policy_of(store: Store) -> PolicyInForce:
    """The policy in force: words are read in their order, and one that weakens it counts with that of a second person."""
    return _read_words(store)[0]


def waiting_words(store: Store) -> list[PolicyWord]:
    """Words that count once a second clinician gives the same, oldest first, without those whose time is over."""
    now = utc_now()
    return [word for word in _read_words(store)[1] if now - word.timestamp <= WORD_LASTS]


def config_of(settings: dict[str, Any]) -> GateConfig:
    """The settings of a word; those that medloop no longer has are left out."""
    return GateConfig.model_validate({name: value for name, value in settings.items() if name in GateConfig.model_fields})


def _read_words(store: Store) -> tuple[PolicyInForce, list[PolicyWord]]:
    now, waiting = PolicyInForce(GateConfig()), list[PolicyWord]()
    for word in words(store):
        if WITHDRAWN in word.settings:
            waiting = [row for row in waiting if (row.policy, row.person) != (word.policy, word.person)]
            continue
        config = config_of(word.settings)
        waiting = [row for row in waiting if word.timestamp - row.timestamp <= WORD_LASTS] + [word]
        people = tuple(dict.fromkeys(row.person for row in waiting if row.policy == word.policy))
        if len(people) >= SIGNERS_OF_WEAKER or not weaker(config, now.config):
            now, waiting = PolicyInForce(config, people, word.timestamp), []
    return now, waiting


def signers_asked(store: Store, result: GateResult) -> SignersAsked:
    """The policy binds at the promotion, too: a verdict from before it, or with settings that are not known, is a weaker one."""
    policy = policy_of(store)
    config = _settings_of(result)
    if config is None:
        return SignersAsked(0) if policy.since is None else _asked(policy, "")
    less = weaker(config, policy.config)
    return _asked(policy, ", ".join(f"{row.name}={row.value} ({row.policy})" for row in less)) if less else SignersAsked(0)


def _asked(policy: PolicyInForce, named: str) -> SignersAsked:
    return SignersAsked(max(SIGNERS_OF_WEAKER, policy.config.sign_offs), named)


def _settings_of(result: GateResult) -> GateConfig | None:
    """The settings of a verdict, if they are those whose hash it has: the defaults of medloop may have changed since."""
    try:
        config = GateConfig.model_validate({name: json.loads(value) for name, value in result.changed_settings.items()})
    except ValueError:
        return None
    return config if config.settings_id() == result.config else None
