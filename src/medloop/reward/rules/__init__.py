"""The rules by name. A new one is a file here and a line in RULES; your own rule is named `module:object`."""

import importlib
from collections.abc import Iterable

from medloop.contracts import Rule
from medloop.errors import ConfigError
from medloop.reward.rules.chain import Chain
from medloop.reward.rules.emergency import Emergency
from medloop.reward.rules.false_reassurance import FalseReassurance
from medloop.reward.rules.format import Format
from medloop.reward.rules.helpfulness import Helpfulness
from medloop.reward.rules.length import Length
from medloop.reward.rules.off_topic import OffTopic
from medloop.reward.rules.overtriage import Overtriage
from medloop.reward.rules.repetition import Repetition
from medloop.reward.rules.risk import Risk
from medloop.reward.rules.safety_net import SafetyNet
from medloop.reward.rules.undertriage import Undertriage

RULES: dict[str, Rule] = {
    "chain": Chain(), "emergency": Emergency(), "risk": Risk(), "helpfulness": Helpfulness(), "undertriage": Undertriage(),
    "overtriage": Overtriage(), "safety_net": SafetyNet(), "off_topic": OffTopic(), "false_reassurance": FalseReassurance(),
    "length": Length(), "repetition": Repetition(), "format": Format(),
}  # fmt: skip


def load_rules(names: Iterable[str] = tuple(RULES)) -> tuple[Rule, ...]:
    """Rules by name or as `module:object`, for example `clinic.rules:Politeness`."""
    return tuple(_load(name) for name in names)


def _load(name: str) -> Rule:
    if name in RULES:
        return RULES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"There is no rule '{name}'", f"Rules are {', '.join(RULES)}, or your own as module:object")
    try:
        rule = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise ConfigError(f"The rule '{name}' cannot be imported", "Check the module and the name after the colon") from None
    if not all(hasattr(rule, attribute) for attribute in ("name", "version", "penalty", "score")):
        raise ConfigError(f"'{name}' is not a rule", "A rule has name, version, penalty and score(question, answer)")
    return rule() if isinstance(rule, type) else rule  # type: ignore[no-any-return]
