"""Off topic: 1 has nothing to do with the question. 0 takes it up in the answer's own words.

What counts are points about the question or about health (`reward/points.py`) in the visible answer, without passages that are
copied from the question. The share that is on topic is

    1.0   two or more content words of the question are taken up
    0.85  one is; a question that names only one thing needs no more. In Chinese, a shared character of the body or of an illness
    0.7   none is, but the answer takes up what the chain of thought says about it
    0.15  none is, but the answer is about health

less in proportion for a text that lacks the small words of sentences (a list of keywords), for less than a sentence, and where
most of the text is about something else. The value is half of what is missing, so that as a gate it lets that share of the reward
pass; it is 1 where nearly nothing is left: nonsense, small talk, a copied question, another language, instructions to a judge.
Urgent advice is on topic; whether it is needed is the question of `overtriage`. To a question in another language than English
and Chinese, only an English or Chinese answer is off topic.
"""

from dataclasses import dataclass
from functools import lru_cache

from medloop import lexicon
from medloop.contracts import Score
from medloop.lexicon.health_topic import is_about_health
from medloop.lexicon.language import detect_language
from medloop.reward.answer_text import (
    CACHE_SIZE,
    content_words,
    is_on_topic,
    is_repetitive,
    ngram_set,
    rule_score,
    split_answer,
    words,
)
from medloop.reward.points import VERSION as POINTS_VERSION
from medloop.reward.points import WHOLE, AnswerPoints, read_points
from medloop.reward.rules.emergency import VERSION, best_advice

UNRELATED, BY_CHAIN, ONE_WORD = 0.15, 0.7, 0.85
FOCUS = 0.25  # share of the new words that are in points, from which on an answer is about its topic
NOTHING = 0.05
A_POINT = 0.6  # of a point are four new content words: a short sentence
READS = ("en", "zh", "mixed")
STEM = 5  # letters by which two forms of a word are the same
URGENT_WORDS = 2  # content words of urgent advice ("call 911"), which are on topic though they name no part of the body
# Characters of the body and of illness by which a Chinese answer takes a question up in other words; pain is everywhere.
_BODY = frozenset("血肝肾肺胃肠脾胆脑骨腰腿膝颈胸腹肚眼睫耳鼻喉咽嗓牙舌嘴唇脚趾手指乳肿咳痰喘呕吐泻尿晕痒疹孕胎睡")
COPIED, COPIED_ZH = 5, 12  # words or characters in a row; fewer of a short question


@dataclass(frozen=True)
class OffTopic:
    name: str = "off_topic"
    version: str = f"1/points-{POINTS_VERSION}/advice-{VERSION}"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        if not (question.isascii() or detect_language(question) in READS):  # a terse note in ASCII looks like no language
            if detect_language(split_answer(answer).visible) in READS:
                return rule_score(self, 1.0, "The answer is in another language than the question.")
            return rule_score(self, 0.0, "The question is in a language that this rule does not read.")
        share, reason = on_topic_share(question, answer)
        if share < NOTHING:
            return rule_score(self, 1.0, f"The answer has nothing to do with the question: {reason}.")
        return rule_score(self, round(0.5 * (1 - share), 4), f"The answer has {reason}.")


@lru_cache(maxsize=CACHE_SIZE)
def on_topic_share(question: str, answer: str) -> tuple[float, str]:
    """How far the visible answer is about the question, 0–1, and what was counted."""
    parts = split_answer(answer)
    visible = parts.visible
    text = own_words(question, visible)
    read = read_points(question, text)
    share = (
        0.0
        if is_repetitive(visible)
        else _topic(question, parts.chain or "", text, read) * min(1.0, read.points / A_POINT) * _focus(read, 0)
    )
    if best_advice(answer).value:
        share = max(share, _focus(read, URGENT_WORDS))
    return share, f"{read.points:.1f} points in its own words and takes up {min(read.shared, 9)} content words of the question"


def _topic(question: str, chain: str, text: str, read: AnswerPoints) -> float:
    if read.shared >= min(2, read.asked):
        return 1.0
    if read.shared or (not question.isascii() and _BODY & set(question) & set(text)):
        return ONE_WORD
    return BY_CHAIN if _bridges(question, chain, text) else UNRELATED


def _bridges(question: str, chain: str, text: str) -> bool:
    """Whether the answer takes up what a chain about the question says: a word of health, or two others; none about thinking."""
    if not chain or not is_on_topic(question, chain):
        return False
    reasoning = [m for part in ("red_flags", "differential", "group", "plan") for m in lexicon.find_reasoning(chain, part)]
    for mention in reasoning:
        chain = chain[: mention.start] + " " * (mention.end - mention.start) + chain[mention.end :]
    common = (_stems(chain) & _stems(text)) - _stems(question)
    return len(common) > 1 or any(map(is_about_health, common))


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in content_words(text)}


def _focus(read: AnswerPoints, more: int) -> float:
    """How far the answer keeps to its topic, in sentences; `more` are words on topic that are no points."""
    sentences = max(0.0, 2 * read.fluency - 1)
    return sentences * min(1.0, (read.points * WHOLE + more) / max(1, read.fresh) / FOCUS)


def own_words(question: str, visible: str) -> str:
    """The visible answer without passages that are copied from the question."""
    size = min(COPIED if detect_language(question) == "en" else COPIED_ZH, max(4, round(0.9 * len(words(question)))))
    copied = ngram_set(question, size) & ngram_set(visible, size)
    if not copied:
        return visible
    tokens = words(visible)
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
