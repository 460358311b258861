"""The structured table behind the embedded corpus: conditions with symptoms, red flags, first-line advice, groups.

Two YAML files, one per language, with the same conditions in the same order. `flags` are red flags, `risky` is
advice that an assistant must never give (wrong dose, contraindicated, prescription drug without a doctor).
"""

from functools import lru_cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import Field

from medloop.contracts.base import Contract, Text

Language = Literal["en", "zh"]
Group = Literal["pregnancy", "child", "elderly"]


class Condition(Contract):
    """One condition in one language; `symptoms`, `flags`, `danger` are noun phrases, the rest whole sentences."""

    id: Text
    name: Text
    symptoms: tuple[Text, ...] = Field(min_length=2)
    flags: tuple[Text, ...] = Field(min_length=1)
    danger: Text
    why: Text
    advice: tuple[Text, ...] = Field(min_length=2)
    medicine: Text
    avoid: Text
    doctor: Text
    meanwhile: Text
    groups: dict[Group, Text]
    risky: tuple[Text, ...] = Field(min_length=1)


@lru_cache
def conditions(language: Language) -> tuple[Condition, ...]:
    text = resources.files(__package__).joinpath(f"conditions_{language}.yaml").read_text(encoding="utf-8")
    return tuple(Condition(id=key, **fields) for key, fields in yaml.safe_load(text).items())
