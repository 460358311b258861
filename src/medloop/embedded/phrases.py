"""How the corpus speaks, in both languages (`phrases_LANGUAGE.yaml`): openers, durations, ways to ask, ways to answer."""

from importlib import resources
from typing import get_args

import yaml

from medloop.contracts import Contract
from medloop.embedded.table import Group, Language


class Phrases(Contract):
    """Templates of one language. `{symptom}`, `{flag}`, … are filled from the table."""

    openers: tuple[str, ...]
    durations: tuple[str, ...]
    says: tuple[str, ...]  # the patient speaks
    groups: dict[Group, tuple[str, ...]]  # somebody vulnerable is ill
    flag: tuple[str, ...]
    illness: dict[str, str]  # other illness -> what the patient says
    asks: tuple[str, ...]
    asks_drug: tuple[str, ...]
    system: tuple[str, ...]
    # the chain
    about: tuple[str, ...]
    flag_seen: tuple[str, ...]
    no_flag: tuple[str, ...]
    group_seen: dict[Group, str]
    illness_seen: str
    plan_urgent: tuple[str, ...]
    plan_home: tuple[str, ...]
    thin: tuple[str, ...]
    # the answer
    urgent: tuple[str, ...]
    urgent_why: tuple[str, ...]
    urgent_late: tuple[str, ...]
    likely: tuple[str, ...]
    safe_with_illness: dict[str, str]
    reassure: tuple[str, ...]
    small_talk: tuple[tuple[str, str], ...]
    also: str  # between two symptoms
    join: str  # between sentences


def _load(language: Language) -> Phrases:
    text = resources.files(__package__).joinpath(f"phrases_{language}.yaml").read_text(encoding="utf-8")
    return Phrases(**yaml.safe_load(text))


PHRASES: dict[Language, Phrases] = {language: _load(language) for language in get_args(Language)}
