"""Words of a text for the search: English by light stems, Chinese by pairs of characters, and concepts that both share.

search_words("发烧怎么办")       -> ["发烧", "烧怎", "怎么", "么办", "#fever"]
query_words("What is the dose?") -> words of a question without those that every question has
"""

import re
import unicodedata

from medloop.lexicon.synonyms import STEM, concepts
from medloop.patterns import lazy_pattern

_TOKEN = lazy_pattern(r"[a-z0-9]+(?:[.'’/-][a-z0-9]+)*|[\u3400-\u4dbf\u4e00-\u9fff]+|[\u0370-\u03ff]")
_PARTS = re.compile(r"[.'’/-]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_ASKED = frozenset(
    "a an and any are as at be been being but by can could did do doe does doing for from get give had has have how i if in into"
    " is it its me might much must my of on or our please should show so some tell than that the their them there these they"
    " thing this those to up use used using was we were what when where which who whom why will with would you your"
    " 请问 什么 怎么 怎样 如何 哪些 是否 可以 应该 多少 哪个 为什 为何 有哪 是什 么是 能不 不能 需要 的是 是多 会不 的".split()
)  # fmt: skip
_QUESTION_ZH = lazy_pattern(
    r"请问|请告诉我|为什么|怎么办|怎么样|怎么|怎样|如何|什么|哪些|哪个|哪种|哪里|哪儿|哪几|是否|能不能|可不可以|可以|应该|应当|需要"
    r"|多少|有没有|是不是|要不要|会不会|几个|多久|多大|吗|呢|了解|一下|时候|情况下"
)
_DOUBLED = re.compile(r"([bdfgklmnprt])\1$")


def stem(word: str) -> str:
    """A light stem: plural, -ing and -ed; a word with digits stays as it is."""
    if len(word) < 4 or any(char.isdigit() for char in word):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 4 and re.search("[aeiouy]", root):
            return _DOUBLED.sub(r"\1", root)
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def search_words(text: str) -> list[str]:
    """Every word of a text in order, and after them the concepts that its words stand for."""
    words: list[str] = []
    known: set[str] = set()
    for token in _TOKEN.findall(unicodedata.normalize("NFKC", text).lower()):
        if _HAN.match(token):
            pairs = [token[i : i + 2] for i in range(len(token) - 1)] or [token]
            words += pairs
            known.update(pairs)
            continue
        parts = [part for part in _PARTS.split(token) if part]
        words += [stem(part) for part in parts]
        if len(parts) > 1:
            words.append("".join(parts))
        known.update(part[:STEM] for part in parts)
    return words + sorted(concepts(known))


def query_words(text: str) -> list[str]:
    """The distinct words of a question that can tell one passage from another; all of them if none is left."""
    words = dict.fromkeys(search_words(_QUESTION_ZH.sub(" ", text)))
    kept = [word for word in words if word not in _ASKED and stem(word) not in _STOP_STEMS]
    return kept or list(dict.fromkeys(search_words(text)))


_STOP_STEMS = frozenset(stem(word) for word in _ASKED)
