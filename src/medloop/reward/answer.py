"""An answer as the rules read it: the chain of thought apart from what the patient sees, and checks against cheap tricks.

Text in `<think>` or in an HTML comment is hidden from the patient. `visible` keeps its length, hidden text blanked out,
so that a place in it is a place in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add

from medloop import lexicon
from medloop.contracts import Rule, Score, Span

KEPT = 64  # texts whose parts and words are remembered: several rules read the same answer, many answers the same question
_HIDDEN = re.compile(r"<think>.*?(?:</think>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_CHAIN = re.compile(r"\s*<think>(.*?)</think>", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[\u3400-\u9fff]")
_LATIN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_CJK = re.compile(r"[\u3400-\u9fff]+")
# Words that say nothing about what was asked.
_COMMON = frozenset(
    """a about after again all also am an and any are as at be been but by can could day days do does doctor for from get give had
    has have having he hello help her hi him his how i if in is it its just me more my need no not now of on or our please she
    should since so some take than thank thanks that the their them then there these they this to too two three very was we week
    weeks were what when which who why will with would year years you your old feel feeling hours morning yesterday today
    question dangerous medicine problem since ask""".split()
)
_COMMON_PAIRS = frozenset(
    "问题 症状 开始 咨询 处理 在家 主要 最近 一直 出现 担心 危险 今天 昨天 早上 小时 儿子 女儿 妈妈 父亲 突然 大概".split()
)
_COMMON_ZH = frozenset(
    "的了是我你他她它这那有在和就不人都一上也很到说要去会着没看好自己医生您请问什么怎怎么办天可以吗呢吧啊能现吃药来因为所以还"
)


@dataclass(frozen=True)
class Parts:
    """`chain` is the text of a leading, closed `<think>`; None when there is none."""

    chain: str | None
    chain_start: int
    visible: str

    @property
    def says_something(self) -> bool:
        return len(words(self.visible)) >= 3


@lru_cache(maxsize=KEPT)
def split_answer(answer: str) -> Parts:
    if "<" not in answer:
        return Parts(None, 0, answer)
    visible = _HIDDEN.sub(lambda found: " " * len(found[0]), answer)
    found = _CHAIN.match(answer)
    return Parts(found[1] if found else None, found.start(1) if found else 0, visible)


@lru_cache(maxsize=KEPT)
def words(text: str) -> tuple[str, ...]:
    """Latin words and single Chinese characters, lower case."""
    return tuple(_WORD.findall(text.lower().lstrip()))  # what is hidden leaves many blanks before the first word


def letters(text: str) -> int:
    """Letters of a fragment's words; not kept, fragments are many."""
    return len("".join(_WORD.findall(text.lower())))


@lru_cache(maxsize=KEPT)
def content(text: str) -> frozenset[str]:
    """What a text is about: Latin words and pairs of Chinese characters, without the common ones."""
    latin = {word for word in _LATIN.findall(text.lower()) if (len(word) > 2 or word.isdigit()) and word not in _COMMON}
    pairs = set() if text.isascii() else {pair for run in _CJK.findall(text) for pair in map(add, run, run[1:])}
    return frozenset(latin | {p for p in pairs if p[0] not in _COMMON_ZH and p[1] not in _COMMON_ZH and p not in _COMMON_PAIRS})


ON_TOPIC = 2  # content words shared with the question; one is enough for a very short question


def on_topic(question: str, text: str) -> bool:
    """Does a text share with the question what it is about?"""
    asked = content(question)
    return len(asked & content(text)) >= min(ON_TOPIC, max(1, len(asked) // 2))


@lru_cache(maxsize=KEPT)
def copied_share(text: str, source: str, size: int = 4) -> float:
    """How much of a text stands word for word in another: the share of its runs of `size` words, 0–1."""
    found = words(text)
    if len(found) < size:
        return 1.0 if found and " ".join(found) in " ".join(words(source)) else 0.0
    known, own, total = run_set(source, size), run_set(text, size), len(found) - size + 1
    common = own & known
    if not common or len(own) == total:  # nothing copied, or nothing said twice: no need to look up run by run
        return len(common) / total
    return sum(map(common.__contains__, runs(found, size))) / total


def is_repetitive(text: str) -> bool:
    """Does it say the same again and again? By runs of three words; short texts are never called repetitive."""
    found = words(text)
    count = len(found) - 2
    if count < 12 or len(set(found)) - 2 >= 0.5 * count:  # all but the last two words begin a run: at least so many differ
        return False
    return len(run_set(text, 3)) < 0.5 * count


@lru_cache(maxsize=KEPT)
def run_set(text: str, size: int) -> frozenset[tuple[str, ...]]:
    """The different runs of a text."""
    return frozenset(runs(words(text), size))


def runs(found: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """Every `size` words in a row."""
    return zip(*(found[at:] for at in range(size)), strict=False)


def verdict(rule: Rule, value: float, reason: str, spans: tuple[Span, ...] = (), *, applies: bool = True) -> Score:
    """The score of a rule under its name and version. One without spans says the same of many answers and is made once."""
    if not spans:
        return _general(rule.name, rule.version, value, reason, applies)
    return Score(
        name=rule.name, value=value, reason=reason, author=f"rule:{rule.name}", version=rule.version, applies=applies, spans=spans
    )


@lru_cache(maxsize=1024)
def _general(name: str, version: str, value: float, reason: str, applies: bool) -> Score:
    return Score(name=name, value=value, reason=reason, author=f"rule:{name}", version=version, applies=applies)


def question_spans(mentions: tuple[lexicon.Mention, ...]) -> tuple[Span, ...]:
    return tuple(Span(where="question", start=m.start, end=m.end, label=m.id) for m in mentions)


def answer_spans(mentions: tuple[lexicon.Mention, ...], offset: int = 0) -> tuple[Span, ...]:
    return tuple(Span(where="answer", start=m.start + offset, end=m.end + offset, label=m.id) for m in mentions)
