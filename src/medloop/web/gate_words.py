"""What the gate says of a model, in the language of the reader. Verdicts keep keys and values (contracts/gate_reasons.yaml)."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from medloop.contracts.gate import GateCheck
from medloop.contracts.gate_reasons import ReasonPart, said
from medloop.contracts.validity import QUANTITY_NAMES
from medloop.store.records.gates import reason_parts
from medloop.web.measures import check_name, metric_name, part_name, slice_part, split_name, stratum_name
from medloop.web.words import Translator, table

NAMES = (split_name, stratum_name, metric_name)
NAMED = ("names", "suites", "split", "name")  # slots of gate_reasons.yaml that have names of sets, groups or rules
SAID = ("told_data_erased", "told_is_tainted", "told_is_erased")  # what an erasure says of a model, in slots, too
BOUNDS = ("told_bound_above", "told_bound_below")


class GateWords(NamedTuple):
    text: str
    language: str


def in_words(parts: Sequence[ReasonPart], t: Translator) -> GateWords:
    """A verdict from before reasons had keys is in English, and says so. Alarms of the panel stand in slots as sentences."""
    alarms = [*SAID, *(key for key in table() if key.startswith("run_alarm_"))]
    language = "en" if any(part.key == "text" for part in parts) else t.language
    english = Translator("en")
    slice_ = partial(_each, t=t, kinds=(slice_part, stratum_name, part_name))
    named = [_named(part, t if language == t.language else english) for part in parts]
    if language == "en":
        return GateWords(said(named), language)
    return GateWords(said(named, language, lambda value: t.sentence(value, alarms, slice_) or value), language)


def _named(part: ReasonPart, t: Translator) -> ReasonPart:
    """The checks in words; for Chinese readers also question sets, groups, languages and rules."""
    if part.key == "refused_checks":
        return part.model_copy(update={"values": part.values | {"checks": _each(part.values["checks"], t, (check_name,))}})
    if t.language == "en" or part.key == "text":
        return part
    if part.key == "judges_untrusted":
        judges = (_judge(row, t) for row in part.values["names"].split("; "))
        return part.model_copy(update={"values": {"names": t("list_semicolon").join(judges)}})
    slots = {slot: _each(value, t, NAMES) for slot, value in part.values.items() if slot in NAMED}
    return part.model_copy(update={"values": part.values | slots})


def _judge(text: str, t: Translator) -> str:
    """A rule, and in brackets what was measured of it: "risk (recall 0.61 [0.40, 0.80] of 40 may be below 0.7)"."""
    name, _, why = text.removesuffix(")").partition(" (")
    measured = next((names for names in QUANTITY_NAMES.values() if why.startswith(f"{names[0]} ")), None)
    if measured is not None and (bound := t.sentence(why.removeprefix(f"{measured[0]} "), BOUNDS)):
        why = f"{measured[1]} {bound}"
    return f"{metric_name(name, t)}（{why}）"


def _each(names: str, t: Translator, kinds: Sequence[Callable[[str, Translator], str]]) -> str:
    """Names with commas between them, each by the first kind that knows it; what none knows stays."""
    found = (next((known for kind in kinds if (known := kind(name, t)) != name), name) for name in names.split(", "))
    return t("list_comma").join(found)


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
