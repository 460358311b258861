"""An answer as the rules read it: the chain of thought apart from the visible text, and checks against cheap tricks.

Text in `<think>` or in an HTML comment is hidden from the patient. `visible` keeps the length of the answer, with hidden text
blanked out, so that a position in it is a position in the answer.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import add

from medloop import lexicon
from medloop.contracts import Rule, Score, Span
from medloop.contracts.detect import Act
from medloop.lexicon.language import detect_language
from medloop.lexicon.words import ngrams, split_words
from medloop.patterns import lazy_pattern

CACHE_SIZE = 16  # texts whose parts and words are cached: several rules read the same answer, many answers have one question
_HIDDEN = lazy_pattern(r"<think>.*?(?:</think>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_CHAIN = lazy_pattern(r"\s*<think>(.*?)</think>", re.IGNORECASE | re.DOTALL)
_NO_LETTER = lazy_pattern(r"[^A-Za-z0-9\u3400-\u9fff]")
_CJK = lazy_pattern(r"[\u3400-\u9fff]+")
# Words that do not show what a question is about.
COMMON = frozenset(
    """a about after again all also am an and any are as at be been but by can could day days do does doctor for from get
    give had has have having he hello help her hi him his how i if in is it its just me more my need no not now of on or our
    please she should since so some take than thank thanks that the their them then there these they this to too two three
    very was we week weeks were what when which who why will with would year years you your old feel feeling hours morning
    yesterday today question dangerous medicine problem ask time times next month months people make try keep good bad well
    still always never often something anything nothing everything many much use used know think want going got thing things
    way sure different everyone someone person lot great important best better first second same other others
    another anyone each every being doing done made makes taken taking tell told said say says asked start started wants
    needs needed look looking looks seems seem thought believe guess maybe probably actually really quite possible possibly
    cause causes caused factors depends course""".split()
)
COMMON_PAIRS = frozenset(
    """问题 症状 开始 咨询 处理 在家 主要 最近 一直 出现 担心 危险 今天 昨天 早上 小时 儿子 女儿 妈妈 父亲 突然 大概 个月
    星期 时候 没有 左右 情况 可能 应该 需要 觉得 感觉 之后 之前 有点 一般 多久 怎样 如何 注意 建议 已经 持续 发现 进行 以前
    以及 其他 比较 非常 希望 帮助 能够 得到 方面 程度 经常 偶尔 目前 期间 每次 多次 几天 半年 半个 两个 三个 家人 患者 描述
    提供 根据 原因 考虑 仔细 进一 一步 严重""".split()
)
COMMON_ZH = frozenset(
    "的了是我你他她它这那有在和就不人都一上也很到说要去会着没看好自己医生您请问什么怎怎么办天可以吗呢吧啊能现吃药来因为所以还"
)
_EDGES = [0x33FF, *sorted(map(ord, COMMON_ZH)), 0xA000]
_CONTENT_CLASS = "".join(f"{chr(a + 1)}-{chr(b - 1)}" for a, b in pairwise(_EDGES) if b - a > 1)
_CONTENT_RUN = lazy_pattern(f"[{_CONTENT_CLASS}]{{2,}}")  # Chinese characters without the common ones


class AnswerParts:
    """`chain` is the text of a leading, closed `<think>`; None when there is none."""

    __slots__ = ("chain", "chain_start", "visible")

    def __init__(self, chain: str | None, chain_start: int, visible: str) -> None:
        self.chain = chain
        self.chain_start = chain_start
        self.visible = visible

    @property
    def has_content(self) -> bool:
        return len(words(self.visible)) >= 3


@lru_cache(maxsize=CACHE_SIZE)
def split_answer(answer: str) -> AnswerParts:
    if "<" not in answer:
        return AnswerParts(None, 0, answer)
    start, close = answer.find("<think>"), answer.find("</think>")
    if 0 <= start < close and answer.count("<") == 2:  # nearly every answer; a shortcut for the expressions below
        begin, end = start + len("<think>"), close + len("</think>")
        leads = not answer[:start].strip()
        visible = answer[:start] + " " * (end - start) + answer[end:]
        return AnswerParts(answer[begin:close] if leads else None, begin if leads else 0, visible)
    visible = _HIDDEN.sub(lambda match: " " * len(match[0]), answer)
    chain = _CHAIN.match(answer)
    return AnswerParts(chain[1] if chain else None, chain.start(1) if chain else 0, visible)


words = lru_cache(maxsize=CACHE_SIZE)(split_words)


def min_letter_count(text: str) -> int:
    """A quick lower bound of `letter_count`."""
    return len(text) - len(_NO_LETTER.findall(text))


def letter_count(text: str) -> int:
    """Letters in the words of a fragment; not cached, because there are many fragments."""
    return len("".join(split_words(text)))


@lru_cache(maxsize=CACHE_SIZE)
def word_set(text: str) -> frozenset[str]:
    """The different words of a text."""
    return frozenset(words(text))


@lru_cache(maxsize=CACHE_SIZE)
def content_words(text: str) -> frozenset[str]:
    """What a text is about: Latin words and pairs of Chinese characters, without the common ones."""
    return frozenset(_content_of(word_set(text)) | content_pairs(text))


def content_pairs(text: str) -> set[str]:
    """Pairs of Chinese characters, without the common ones."""
    pairs: set[str] = set()
    for run in _CONTENT_RUN.findall(text):
        pairs.update(map(add, run, run[1:]))
    pairs -= COMMON_PAIRS
    return pairs


def _content_of(words: frozenset[str]) -> set[str]:
    """The Latin words of a set, without the common ones."""
    return {word for word in words - COMMON if word.isascii() and (len(word) > 2 or word.isdigit())}


def _is_content_pair(pair: str) -> bool:
    return pair[0] not in COMMON_ZH and pair[1] not in COMMON_ZH and pair not in COMMON_PAIRS


COPIED_NGRAM = 4  # words
COPIED_RUN, COPIED_RUN_ZH = 5, 12  # words or characters in a row that are a copied passage; fewer of a short question
ON_TOPIC = 2  # content words shared with the question; one is enough for a very short question


@lru_cache(maxsize=CACHE_SIZE)
def is_on_topic(question: str, text: str) -> bool:
    """Whether a text shares content words with the question."""
    shared = _content_of(word_set(question) & word_set(text))
    if len(shared) < ON_TOPIC and not text.isascii():
        for run in _CJK.findall(question):
            for pair in map(add, run, run[1:]):
                if pair in text and _is_content_pair(pair):
                    shared.add(pair)
                    if len(shared) >= ON_TOPIC:
                        return True
    return len(shared) >= ON_TOPIC or len(shared) >= min(ON_TOPIC, max(1, len(content_words(question)) // 2))


def is_copied(text: str, source: str, share: float) -> bool:
    """Whether at least this share of a text is copied word for word from another; see `copied_share`."""
    return may_be_copied(text, source, share) and copied_share(text, source) >= share


def may_be_copied(text: str, source: str, share: float) -> bool:
    """Whether `copied_share` can be this high: each word that the source lacks rules out at least one n-gram of the text."""
    own, total = word_set(text), len(words(text)) - COPIED_NGRAM + 1
    missing = len(own) - len(own & word_set(source))
    return total < 1 or total - missing >= share * total


@lru_cache(maxsize=CACHE_SIZE)
def copied_share(text: str, source: str, size: int = COPIED_NGRAM) -> float:
    """How much of a text is copied word for word from another: the share of its n-grams, 0–1."""
    tokens = words(text)
    if len(tokens) < size:
        return 1.0 if tokens and " ".join(tokens) in " ".join(words(source)) else 0.0
    own, total = ngram_set(text, size), len(tokens) - size + 1
    common = own & ngram_set(source, size)
    if not common or len(own) == total:  # nothing copied, or no n-gram repeated: no need to count them one by one
        return len(common) / total
    return sum(map(common.__contains__, ngrams(tokens, size))) / total


def is_repetitive(text: str) -> bool:
    """Whether fewer than half of its 3-grams are different; short texts are never called repetitive."""
    count = len(words(text)) - 2
    if count < 12 or len(word_set(text)) - 2 >= 0.5 * count:  # all but the last two words begin a 3-gram: at least as many differ
        return False
    return len(ngram_set(text, 3)) < 0.5 * count


@lru_cache(maxsize=CACHE_SIZE)
def ngram_set(text: str, size: int) -> frozenset[tuple[str, ...]]:
    """The different n-grams of a text."""
    return frozenset(ngrams(words(text), size))


@lru_cache(maxsize=CACHE_SIZE)
def own_words(question: str, visible: str) -> str:
    """The visible answer without passages that are copied from the question."""
    run = COPIED_RUN if question.isascii() or detect_language(question) == "en" else COPIED_RUN_ZH
    size = min(run, max(4, round(0.9 * len(words(question)))))
    tokens, asked = words(visible), word_set(question)
    if bytes([True]) * size not in bytes(map(asked.__contains__, tokens)):  # nearly always, and quicker than n-grams
        return visible
    copied = ngram_set(question, size) & ngram_set(visible, size)
    if not copied:
        return visible
    keep = [True] * len(tokens)
    for start in range(len(tokens) - size + 1):
        if tokens[start : start + size] in copied:
            keep[start : start + size] = [False] * size
    return _without(visible, tokens, keep)


def _without(visible: str, tokens: tuple[str, ...], keep: list[bool]) -> str:
    """The text with tokens blanked out; the marks between them stay, because they end sentences."""
    lowered, position, pieces = visible.lower(), 0, []
    for token, kept in zip(tokens, keep, strict=True):
        start = lowered.find(token, position)
        if start < 0:
            continue
        pieces += [visible[position:start], visible[start : start + len(token)] if kept else " "]
        position = start + len(token)
    return "".join([*pieces, visible[position:]])


def rule_score(
    rule: Rule, value: float, reason: str, spans: Sequence[Span] = (), *, applies: bool = True, unsure: bool = False
) -> Score:
    """The score of a rule under its name and version. Scores without spans are the same for many answers, so they are cached."""
    if not spans:
        return _cached_score(rule.name, rule.version, value, reason, applies, unsure)
    return _score(rule.name, rule.version, value, reason, applies, unsure, tuple(spans))


@lru_cache(maxsize=1024)
def _cached_score(name: str, version: str, value: float, reason: str, applies: bool, unsure: bool) -> Score:
    return _score(name, version, value, reason, applies, unsure, ())


def _score(
    name: str, version: str, value: float, reason: str, applies: bool, unsure: bool, spans: tuple[Span, ...]
) -> Score:  # fmt: skip
    assert 0.0 <= value <= 1.0, f"{name} gave {value}"
    return Score.trusted(
        name=name, value=value, reason=reason, author=f"rule:{name}", version=version, applies=applies, unsure=unsure,
        spans=spans, suggested_answer=None,
    )  # fmt: skip


def question_spans(mentions: Sequence[lexicon.Mention]) -> list[Span]:
    return [Span.trusted(where="question", start=m.start, end=m.end, label=m.id) for m in mentions]


def answer_spans(mentions: Sequence[lexicon.Mention], offset: int = 0) -> list[Span]:
    return [Span.trusted(where="answer", start=m.start + offset, end=m.end + offset, label=m.id) for m in mentions]


def act_spans(acts: Sequence[Act]) -> list[Span]:
    """The words of acts; the label is the drug, or the entry of a list, or the model's class with its probability."""
    return [Span.trusted(where="answer", start=act.start, end=act.end, label=act.drug or act.evidence[0].id) for act in acts]
