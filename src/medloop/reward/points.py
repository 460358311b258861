"""What an answer says about a question: its points, sentence by sentence, and how far it takes the question up.

    read_points("I have a cough and a fever.", "A cough with fever is mostly viral. Drink enough, and rest at home.")
    -> AnswerPoints(points=1.5, shared=2, ...)

A sentence is a point as far as it says something new: content words (pairs of characters in Chinese) that neither the question
nor an earlier sentence has, six for a whole point. It counts only where it is about health or takes up a word of the question.
Small talk, disclaimers, repeated sentences and the question copied are no points, nor is an answer in another language. Lay and
medical words for the same thing ("tummy", "abdominal") are shared.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from medloop.lexicon.health_topic import HAN_HEALTH, is_health_word
from medloop.lexicon.synonyms import STEM, concepts
from medloop.lexicon.words import Words
from medloop.reward import fluency as neighbours
from medloop.reward.answer_text import CACHE_SIZE, COMMON, content_pairs, words
from medloop.reward.detect.ngrams import Kind

VERSION: Final = f"4/fluency-{neighbours.VERSION}"
WHOLE: Final = 6  # new content words of a whole point
FOREIGN: Final = 0.7  # difference in the share of Chinese characters from which on an answer is in another language
_STOP: Final = re.compile(r"[。！？!?；;\n]+|\.(?=\s|$)")
_LATIN: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_EMPTY: Final = re.compile(
    r"\b(?:as an ai|i(?: am|'m) not a doctor|not medical advice|cannot diagnose|can't diagnose|(?:give|provide) medical advice"
    r"|i(?: am|'m) sorry|i (?:do not|don't) know|you(?:'re| are) welcome|feel free|hope (?:this|that|it) helps|let me know"
    r"|thank you for|thanks for|good question|get well|wish you|may or may not|might or might not"
    r"|or (?:it|you) (?:may|might|could) not|or it could be (?:nothing|harmless)|others should not|some \w+ and some \w+"
    r"|everyone is different|it (?:all )?depends on many)\b"
)
_EMPTY_ZH: Final = re.compile(
    r"我不是(?:一名|一个)?医生|作为(?:一个|一名)?(?:ai|人工智能|语言模型)|无法(?:提供|给出|作出|做出|进行)(?:医|诊|具体|准确)"
    r"|不能代替|不能替代|仅供参考|很抱歉|对不起|不客气|祝您|祝你|早日康复|随时(?:告诉|联系|提问|向我|咨询)"
    r"|希望(?:我的|以上|这些|能帮|对您|对你)|如(?:果您|果你|您|你)?(?:还)?有(?:任何|其他|别的)?(?:疑问|问题)|很高兴|感谢您|谢谢"
    r"|也可能(?:没|不)|也可以不|有的人?(?:需要|严重).{0,12}有的人?不|因人而异|具体情况具体分析|综合考虑"
)
_JOINING: Final = frozenset(
    """a an the and or but if of to in on at for with from by as is are was were be been it its this that these those you your he
    she they them his her their i we our my me not no do does did can could may might will would should have has had there than
    then so such when which who what how more most any some all also only very about into over up out after before between because
    while until other too just each both same""".split()
) | frozenset(
    "的了是我你您他她它这那有在和就不都一也很到说要去会着没请可以吗呢吧能因为所还如果或者与及等对把被让给从但而且并将其应该最多少后前时"
)
_JOINING_SHARE: Final[dict[Kind, float]] = {
    "en": 0.2,
    "zh": 0.06,
}  # of the words; real text has more
_FEWEST: Final = 10  # words from which on the share says something


class AnswerPoints(NamedTuple):
    """`points`: distinct points on the topic. `shared`: content of the question that the answer takes up, of `asked` in all.

    `words` are all words of the answer, a Chinese character as one; `fresh` is the number of its different content words.
    `fluency` is 1 for sentences and falls to 0 for keywords that nothing joins and for shuffled words (`fluency.py`).
    """

    points: float
    shared: int
    asked: int
    words: int
    fresh: int
    fluency: float


@lru_cache(maxsize=CACHE_SIZE)
def read_points(question: str, visible: str) -> AnswerPoints:
    asked, topic = _question(question)
    seen, subjects = set(asked), set[str]()
    points, fresh = 0.0, 0
    for sentence in _STOP.split(visible.lower()):
        latin, han = _LATIN.findall(sentence), "" if sentence.isascii() else sentence
        content = _content(latin, han)
        new = content - seen
        seen |= content
        subjects |= content
        fresh += len(new)
        if new and (content & topic or _is_about_health(latin, han)) and not _is_empty(sentence, han):
            points += min(len(new), WHOLE) / WHOLE
    shared = len(topic & (subjects | concepts(subjects)))
    tokens = words(visible)
    han_share = _han_share(tokens)
    if abs(han_share - _han_share(words(question))) > FOREIGN:
        points = 0.0
    return AnswerPoints(points, shared, len(topic), len(tokens), fresh, _fluency(tokens, han_share))


@lru_cache(maxsize=CACHE_SIZE)
def _question(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """The content of a question, and the same with the concepts that its words stand for."""
    lowered = question.lower()
    content = frozenset(_content(_LATIN.findall(lowered), lowered))
    return content, content | concepts(content)


def _content(latin: list[str], han: str) -> set[str]:
    content = {word[:STEM] for word in set(latin) - COMMON if len(word) > 2}
    return content | content_pairs(han) if han else content


def _is_about_health(latin: list[str], han: str) -> bool:
    return any(map(is_health_word, latin)) or bool(han and HAN_HEALTH.search(han))


def _is_empty(sentence: str, han: str) -> bool:
    """Whether a sentence is small talk or a disclaimer."""
    return (_EMPTY_ZH if han else _EMPTY).search(sentence) is not None


def _han_share(tokens: Words) -> float:
    """The share of Chinese characters among the words."""
    return 1 - sum(map(str.isascii, tokens)) / len(tokens) if tokens else 0.0


def _fluency(tokens: Words, han_share: float) -> float:
    if len(tokens) < _FEWEST:
        return 1.0
    joining = sum(map(_JOINING.__contains__, tokens))
    kind: Kind = "en" if han_share < 0.5 else "zh"
    return min(1.0, joining / len(tokens) / _JOINING_SHARE[kind]) * neighbours.fluency(tokens, kind)
