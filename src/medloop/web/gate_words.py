"""What the gate says of a model, in the language of the reader. Verdicts keep keys and values (contracts/gate_reasons.yaml)."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from medloop.contracts.gate import GateCheck
from medloop.contracts.gate_reasons import ReasonPart, said
from medloop.store.records.gates import reason_parts
from medloop.web.measures import split_name
from medloop.web.words import Translator, table


class GateWords(NamedTuple):
    text: str
    language: str


def in_words(parts: Sequence[ReasonPart], t: Translator) -> GateWords:
    """A verdict from before reasons had keys is in English, and says so. Alarms of the panel stand in slots as sentences."""
    alarms = [key for key in table() if key.startswith("run_alarm_")]
    language = "en" if any(part.key == "text" for part in parts) else t.language
    if language == "en":
        return GateWords(said(parts), language)
    return GateWords(said(parts, language, lambda value: t.sentence(value, alarms) or value), language)


def check_words(check: GateCheck, t: Translator) -> GateWords:
    return in_words(reason_parts(check), t)


def setting_words(value: object, t: Translator) -> str:
    """The value of a setting as people write it: a list with commas, yes or no; what came as JSON text is read first."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, bool):
        return t("gate_yes") if value else t("gate_no")
    if isinstance(value, dict):
        return t("list_comma").join(f"{name} {setting_words(inner, t)}" for name, inner in value.items()) or t("gate_nothing")
    if isinstance(value, list | tuple):
        return t("list_comma").join(split_name(str(inner), t) for inner in value) or t("gate_nothing")
    return t("gate_nothing") if value is None else str(value)
