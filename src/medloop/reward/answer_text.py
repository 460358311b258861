"""An answer as the rules read it: the chain of thought apart from what the patient sees, and checks against cheap tricks.

Text in `<think>` or in an HTML comment is hidden from the patient. `visible` keeps its length, hidden text blanked out,
so that a place in it is a place in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import add

from medloop import lexicon
from medloop.contracts import Rule, Score, Span

KEPT = 16  # texts whose parts and words are remembered: several rules read the same answer, many answers the same question
_HIDDEN = re.compile(r"<think>.*?(?:</think>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_CHAIN = re.compile(r"\s*<think>(.*?)</think>", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[\u3400-\u9fff]")
_NO_LETTER = re.compile(r"[^A-Za-z0-9\u3400-\u9fff]")
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


class Parts:
    """`chain` is the text of a leading, closed `<think>`; None when there is none."""

    __slots__ = ("chain", "chain_start", "visible")

    def __init__(self, chain: str | None, chain_start: int, visible: str) -> None:
        self.chain = chain
        self.chain_start = chain_start
        self.visible = visible

    @property
    def says_something(self) -> bool:
        return len(words(self.visible)) >= 3


@lru_cache(maxsize=KEPT)
def split_answer(answer: str) -> Parts:
    if "<" not in answer:
        return Parts(None, 0, answer)
    start, close = answer.find("<think>"), answer.find("</think>")
    if 0 <= start < close and answer.count("<") == 2:  # nearly every answer; the expressions below say the same of it
        begin, end = start + len("<think>"), close + len("</think>")
        leads = not answer[:start].strip()
        visible = answer[:start] + " " * (end - start) + answer[end:]
        return Parts(answer[begin:close] if leads else None, begin if leads else 0, visible)
    visible = _HIDDEN.sub(lambda found: " " * len(found[0]), answer)
    found = _CHAIN.match(answer)
    return Parts(found[1] if found else None, found.start(1) if found else 0, visible)


@lru_cache(maxsize=KEPT)
def words(text: str) -> tuple[str, ...]:
    """Latin words and single Chinese characters, lower case."""
    return tuple(_WORD.findall(text.lower().lstrip()))  # what is hidden leaves many blanks before the first word


def letters_at_least(text: str) -> int:
    """A quick lower bound of `letters`."""
    return len(text) - len(_NO_LETTER.findall(text))


def letters(text: str) -> int:
    """Letters of a fragment's words; not kept, fragments are many."""
    return len("".join(_WORD.findall(text.lower())))


@lru_cache(maxsize=KEPT)
def word_set(text: str) -> frozenset[str]:
    """The different words of a text."""
    return frozenset(words(text))


@lru_cache(maxsize=KEPT)
def content(text: str) -> frozenset[str]:
    """What a text is about: Latin words and pairs of Chinese characters, without the common ones."""
    latin = {word for word in word_set(text) if _says_latin(word)}
    pairs = {pair for run in _CJK.findall(text) for pair in map(add, run, run[1:]) if _says_pair(pair)}
    return frozenset(latin | pairs)


def _says_latin(word: str) -> bool:
    return (len(word) > 2 or word.isdigit()) and word not in _COMMON and word.isascii()


def _says_pair(pair: str) -> bool:
    return pair[0] not in _COMMON_ZH and pair[1] not in _COMMON_ZH and pair not in _COMMON_PAIRS


COPIED_RUN = 4  # words
ON_TOPIC = 2  # content words shared with the question; one is enough for a very short question


@lru_cache(maxsize=KEPT)
def on_topic(question: str, text: str) -> bool:
    """Does a text share with the question what it is about?"""
    shared = {word for word in word_set(question) & word_set(text) if _says_latin(word)}
    if len(shared) < ON_TOPIC and not text.isascii():
        for run in _CJK.findall(question):
            for pair in map(add, run, run[1:]):
                if pair in text and _says_pair(pair):
                    shared.add(pair)
                    if len(shared) >= ON_TOPIC:
                        return True
    return len(shared) >= ON_TOPIC or len(shared) >= min(ON_TOPIC, max(1, len(content(question)) // 2))


def copies(text: str, source: str, share: float) -> bool:
    """Does at least this share of a text stand word for word in another? See `copied_share`."""
    return may_copy(text, source, share) and copied_share(text, source) >= share


def may_copy(text: str, source: str, share: float) -> bool:
    """Can `copied_share` be so much? Each word that the source lacks spoils one run of the text at least."""
    own, total = word_set(text), len(words(text)) - COPIED_RUN + 1
    lacking = len(own) - len(own & word_set(source))
    return total < 1 or total - lacking >= share * total


@lru_cache(maxsize=KEPT)
def copied_share(text: str, source: str, size: int = COPIED_RUN) -> float:
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
    if count < 12 or len(word_set(text)) - 2 >= 0.5 * count:  # all but the last two words begin a run: at least so many differ
        return False
    return len(run_set(text, 3)) < 0.5 * count


@lru_cache(maxsize=KEPT)
def run_set(text: str, size: int) -> frozenset[tuple[str, ...]]:
    """The different runs of a text."""
    return frozenset(runs(words(text), size))


def runs(found: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """Every `size` words in a row."""
    return zip(*[found[at:] for at in range(size)], strict=False)


Mark = dict[str, str | int]  # a Span that is checked together with its score, which is quicker than one by one


def verdict(rule: Rule, value: float, reason: str, spans: Sequence[Span | Mark] = (), *, applies: bool = True) -> Score:
    """The score of a rule under its name and version. One without spans says the same of many answers and is made once."""
    if not spans:
        return _general(rule.name, rule.version, value, reason, applies)
    return _score(rule.name, rule.version, value, reason, applies, spans)


@lru_cache(maxsize=1024)
def _general(name: str, version: str, value: float, reason: str, applies: bool) -> Score:
    return _score(name, version, value, reason, applies, ())


def _score(name: str, version: str, value: float, reason: str, applies: bool, spans: Sequence[Span | Mark]) -> Score:
    author = f"rule:{name}"
    return Score.model_validate(
        {"name": name, "value": value, "reason": reason, "author": author, "version": version, "applies": applies, "spans": spans}
    )


def question_spans(mentions: Sequence[lexicon.Mention]) -> list[Mark]:
    return [{"where": "question", "start": m.start, "end": m.end, "label": m.id} for m in mentions]


def answer_spans(mentions: Sequence[lexicon.Mention], offset: int = 0) -> list[Mark]:
    return [{"where": "answer", "start": m.start + offset, "end": m.end + offset, "label": m.id} for m in mentions]
