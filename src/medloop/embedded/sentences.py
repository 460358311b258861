"""Sentences that a rule of the corpus asks to say. They are so varied that the model has to copy and cannot know them by heart.

    sentence(rng, "en", held_out=False)

Drawn are: sentences from templates, sentences of the table of conditions (of any condition, not the one asked about), words of
both in random order, and words made of random syllables or characters. A fifth of all is held out, by hash; for measuring there
are held-out sentences from templates, and the hand-written ones of `rules_LANGUAGE.yaml`.
"""

import hashlib
import random
import re
from functools import cache
from importlib import resources
from typing import Literal

import yaml

from medloop import lexicon
from medloop.contracts import Contract
from medloop.embedded.phrases import PHRASES
from medloop.embedded.table import Group, Language, conditions

RuleAct = Literal[
    "urges_care_now", "refuses", "warns_against", "sends_to_doctor", "asks_back", "home_care", "stops_medicine",
    "changes_medicine", "gives_dose", "starts_medicine", "reassures", "language",
]  # fmt: skip


class RulePhrases(Contract):
    """`rules_LANGUAGE.yaml`."""

    topics: tuple[str, ...]
    first: tuple[str, ...]
    last: tuple[str, ...]
    only: tuple[str, ...]
    followup: tuple[str, ...]
    followup_line: str
    other_language: tuple[str, ...]
    acts: dict[RuleAct, tuple[str, ...]]
    lines: dict[RuleAct, tuple[str, ...]]
    system_language: tuple[str, ...]
    groups: dict[Group, str]
    example: str
    shapes: tuple[str, ...]
    do: tuple[str, ...]
    what: tuple[str, ...]
    when: tuple[str, ...]
    who: tuple[str, ...]
    unseen: tuple[str, ...]


@cache
def rule_phrases(language: Language) -> RulePhrases:
    text = resources.files(__package__).joinpath(f"rules_{language}.yaml").read_text(encoding="utf-8")
    return RulePhrases(**yaml.safe_load(text))


def sentence(rng: random.Random, language: Language, *, held_out: bool) -> str:
    """A sentence to say; a fifth of all is held out, by hash."""
    kinds = {_shaped: 30, _of_the_table: 15, _salad: 25, _invented: 30}
    while True:
        write = _shaped if held_out else rng.choices(list(kinds), list(kinds.values()))[0]
        drawn = write(rng, language)
        if (hashlib.sha256(drawn.encode()).digest()[0] % 5 == 0) is held_out and drawn not in rule_phrases(language).unseen:
            return drawn


def _shaped(rng: random.Random, language: Language) -> str:
    p = rule_phrases(language)
    pools = {"do": p.do, "what": p.what, "when": p.when, "who": p.who, "drug": _drugs(language), "flag": _flags(language)}

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        word = rng.choice(pools.get(name.lower(), "123456789"))
        return word[:1].upper() + word[1:] if name[0].isupper() else word

    return re.sub(r"\{(\w+)\}", fill, rng.choice(p.shapes))


def _of_the_table(rng: random.Random, language: Language) -> str:
    return rng.choice(_table_sentences(language))


def _salad(rng: random.Random, language: Language) -> str:
    """Words in random order: what has to be copied cannot be guessed."""
    pool = _words(language)
    if language == "zh":
        return _punctuated(rng, [rng.choice(pool) for _ in range(rng.randint(3, 9))], language)
    return _punctuated(rng, [rng.choice(pool) for _ in range(rng.randint(4, 12))], language)


def _invented(rng: random.Random, language: Language) -> str:
    """Words that no language has, so that every token has to be copied."""
    if language == "zh":
        return _punctuated(
            rng, ["".join(rng.choices(_characters(), k=rng.randint(1, 3))) for _ in range(rng.randint(2, 5))], "zh"
        )
    words = ["".join(rng.choices(_syllables(), k=rng.randint(1, 3))) for _ in range(rng.randint(3, 7))]
    return _punctuated(rng, [rng.choice(_words("en")) if rng.random() < 0.3 else word for word in words], "en")


def _punctuated(rng: random.Random, words: list[str], language: Language) -> str:
    """One sentence with a comma here and there."""
    comma, space, stop = ("，", "", "。") if language == "zh" else (",", " ", ".")
    parts = [word + (comma if n + 1 < len(words) and rng.random() < 0.15 else "") for n, word in enumerate(words)]
    text = space.join(parts)
    return text[:1].upper() + text[1:] + stop


@cache
def _table_sentences(language: Language) -> tuple[str, ...]:
    """Safe sentences of all conditions; a rule may ask for one that is about something else."""
    found = [text for c in conditions(language) for text in (*c.advice, c.avoid, c.doctor, c.meanwhile, *c.groups.values())]
    found += [
        *PHRASES[language].safe_with_illness.values(),
        *(line for lines in rule_phrases(language).lines.values() for line in lines),
    ]
    return tuple(dict.fromkeys(found))


@cache
def _words(language: Language) -> tuple[str, ...]:
    p = rule_phrases(language)
    phrases = [*p.do, *p.what, *p.when, *p.who, *_drugs(language), *_flags(language), *_table_sentences(language)]
    if language == "en":
        return tuple(sorted({word for phrase in phrases for word in re.findall(r"[a-z]+", phrase.lower())}))
    runs = [run for phrase in phrases for run in re.findall(r"[\u4e00-\u9fff]+", phrase)]
    return tuple(sorted({run[start : start + 2] for run in runs for start in range(0, len(run), 2)}))


@cache
def _syllables() -> tuple[str, ...]:
    starts = ("", *"bdfhklmnprtvwz", "ch", "gr", "qu", "st")
    return tuple(start + vowel + end for start in starts for vowel in "aeiou" for end in ("", *"lnrstm", "ck"))


@cache
def _characters() -> tuple[str, ...]:
    """Chinese characters that the lexicon and the table have, and the common ones of the first level of GB 2312."""
    known = {character for word in (*_words("zh"), *_drugs("zh"), *_flags("zh")) for character in word}
    level = {bytes((high, low)).decode("gb2312") for high in range(0xB0, 0xD7) for low in range(0xA1, 0xFF)}
    return tuple(sorted((known | level) & {chr(code) for code in range(0x4E00, 0xA000)}))


@cache
def _drugs(language: Language) -> tuple[str, ...]:
    return tuple(name for drug in lexicon.drugs().values() for name in (drug.zh if language == "zh" else drug.en)[:2])


@cache
def _flags(language: Language) -> tuple[str, ...]:
    return tuple(flag.zh_name if language == "zh" else flag.en_name for flag in lexicon.red_flags())
