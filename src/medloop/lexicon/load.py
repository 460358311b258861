"""The word lists as compiled objects, read once from the YAML files beside this module."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from medloop.contracts.base import sha256_id
from medloop.lexicon.match import Matcher, Pattern, parse_pattern
from medloop.lexicon.negation import Negation, compile_negation

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where it is installed, is nine times faster
FILES = (
    "red_flags.yaml", "urgent_advice.yaml", "groups.yaml", "drugs.yaml", "reasoning.yaml", "advice.yaml", "negation.yaml",
    "reassurance.yaml", "acts.yaml", "hazards.yaml",
)  # fmt: skip
LAY_WORDS = "lay_words.yaml"  # of the codebook's triggers; no part of the lexicon's matcher


@dataclass(frozen=True)
class Drug:
    """One drug. Doses are in mg, None where a single number would mislead. `family_word`: the entry names a family of drugs."""

    id: str
    family: str
    access: str
    en: tuple[str, ...]
    zh: tuple[str, ...]
    usual: float | None
    max_single: float | None
    max_daily: float | None
    child_single: float | None
    avoid: frozenset[str]
    family_word: bool


@dataclass(frozen=True)
class LexiconEntry:
    """A red flag, group or condition with its names."""

    kind: str
    id: str
    en_name: str
    zh_name: str


@dataclass(frozen=True)
class Lexicon:
    matcher: Matcher  # of all lists
    negations: Mapping[str, Negation]
    drugs: Mapping[str, Drug]
    settings: frozenset[str]  # classes of hazards that have a setting
    entries: Mapping[tuple[str, str], LexiconEntry]
    child_below: float
    elderly_from: float


@lru_cache(maxsize=1)
def load_lexicon() -> Lexicon:
    """The lists, compiled. The garbage collector rests meanwhile: hardly any of this becomes garbage."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _compile_lists()
    finally:
        if collecting:
            gc.enable()


def _compile_lists() -> Lexicon:
    flags, urgent, groups, drugs, reasoning, advice, negation, reassurance, acts, hazards = (read_list(name) for name in FILES)
    sections = [
        ("red_flag", flags, flags["entries"]),
        ("urgent", urgent, urgent["entries"]),
        ("group", groups, groups["groups"]),
        ("condition", groups, groups["conditions"]),
        ("drug", drugs, (*drugs["drugs"], *drugs["families"])),
        *((f"reasoning_{part}", reasoning, entries) for part, entries in reasoning["parts"].items()),
        *((f"advice_{part}", advice, entries) for part, entries in advice["parts"].items()),
        *((f"reassurance_{part}", reassurance, entries) for part, entries in reassurance["parts"].items()),
        *((f"act_{part}", acts, entries) for part, entries in acts["parts"].items()),
        *((f"hazard_{entry['id']}", hazards, [{"id": entry["id"], **entry["advice"]}]) for entry in hazards["classes"]),
        *((f"setting_{entry['id']}", hazards, [{"id": entry["id"], **entry.get("setting", {})}]) for entry in hazards["classes"]),
    ]
    patterns = [pattern for kind, file, entries in sections for pattern in _patterns(kind, entries, file.get("words", {}))]
    cue_sets: list[frozenset[str]] = []
    negations = {name: compile_negation(negation[name], cue_sets) for name in ("finding", "drug", "urgent")}
    return Lexicon(
        matcher=Matcher(patterns, cue_sets),
        negations=negations,
        drugs=MappingProxyType(
            {entry["id"]: _drug(entry, key == "families") for key in ("drugs", "families") for entry in drugs[key]}
        ),
        settings=frozenset(entry["id"] for entry in hazards["classes"] if "setting" in entry),
        entries={(kind, entry["id"]): _entry(kind, entry) for kind, _, entries in sections for entry in entries},
        child_below=float(groups["child_below_years"]),
        elderly_from=float(groups["elderly_from_years"]),
    )


def read_list(name: str, package: str = "medloop.lexicon") -> Any:
    loader = _SafeLoader((files(package) / name).read_text(encoding="utf-8"))
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


@lru_cache(maxsize=1)
def lay_words_sha256() -> str:
    """The hash of the everyday words: what a trigger with `≈` reaches changes with them."""
    return sha256_id((files("medloop.lexicon") / LAY_WORDS).read_bytes())


def _patterns(kind: str, entries: Any, words: Mapping[str, str]) -> Iterator[Pattern]:
    """Patterns of all entries; what an entry excludes gets the kind `-kind` and is removed from its matches later."""
    for entry in entries:
        for language in ("en", "zh"):
            for source in entry.get(language, ()):
                yield parse_pattern(kind, entry["id"], source, words)
        for source in entry.get("exclude", ()):
            yield parse_pattern(f"-{kind}", entry["id"], source, words)


def _drug(entry: Mapping[str, Any], is_family: bool) -> Drug:
    return Drug(
        id=entry["id"], family=entry["family"], access=entry["access"], en=tuple(entry["en"]), zh=tuple(entry["zh"]),
        usual=entry.get("usual"), max_single=entry.get("max_single"), max_daily=entry.get("max_daily"),
        child_single=entry.get("child_single"), avoid=frozenset(entry.get("avoid", ())), family_word=is_family,
    )  # fmt: skip


def _entry(kind: str, entry: Mapping[str, Any]) -> LexiconEntry:
    name = entry["id"].replace("_", " ")
    return LexiconEntry(kind, entry["id"], entry.get("en_name", name), entry.get("zh_name", entry.get("en_name", name)))
