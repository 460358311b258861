"""What an answer says about a question: its points, sentence by sentence, and how far it takes the question up.

    read_points("I have a cough and a fever.", "A cough with fever is mostly viral. Drink enough, and rest at home.")
    -> AnswerPoints(points=1.5, shared=2, ...)

A sentence is a point as far as it says something new: content words (pairs of characters in Chinese) that neither the question
nor an earlier sentence has, six for a whole point. It counts only where it is about health or takes up a word of the question, or
as far as its words belong to those of the question (`relatedness.py`).
Small talk, disclaimers, repeated sentences and the question copied are no points, nor is an answer in another language. Lay and
medical words for the same thing ("tummy", "abdominal") are shared.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from medloop.lexicon.health_topic import HAN_HEALTH, is_health_word
from medloop.lexicon.synonyms import STEM, concepts, systems
from medloop.lexicon.words import Words
from medloop.patterns import lazy_pattern
from medloop.reward import fluency as neighbours
from medloop.reward import relatedness as nearness
from medloop.reward.answer_text import CACHE_SIZE, COMMON, content_pairs, words
from medloop.reward.detect.ngrams import Kind
from medloop.reward.keyword_list import JOINING, LISTED, listed_share

VERSION: Final = f"7/fluency-{neighbours.VERSION}/related-{nearness.VERSION}"
FITTING: Final = 0.12  # overlap of two texts from which on one answers the other: nine of ten right answers have more
RELATED: Final = 0.4  # fit of an answer about the same part of medicine: the disease instead of its signs
# Cosine of two texts that have hardly a word in common: a tenth of wrong answers have the first, half of right ones the second.
FAR, NEAR, BY_TOPIC = 0.3, 0.5, 0.7  # and what the second one is worth
ONE_WORD, SINGLE = 0.6, 4  # what one shared word is worth, for a question with at least so many
LONGEST: Final = 40  # content words of an answer that count for the overlap: a long answer is not a worse one
WHOLE: Final = 6  # new content words of a whole point
FOREIGN: Final = 0.7  # difference in the share of Chinese characters from which on an answer is in another language
_STOP: Final = lazy_pattern(r"[。！？!?；;\n]+|\.(?=\s|$)")
_COMMON: Final = COMMON | JOINING
# Words of nearly every medical text: they do not show what a question is about, unless it has no others.
_GENERIC: Final = frozenset(
    word[:STEM]
    for word in """abnormal advice affect age amount appear associated based become body care case certain change common complete
    condition daily develop diagnosis difficult disease disorder dosage dose doses drug drugs during early effect effects examine
    example follow form found frequent general happen health healthy high hospital however include increase individual
    information known level levels long low lower manage mean means medical medication miss normal number occur one part patient
    pill pills prescribe prescription provide recommend reduce result risk safe safely severe several short show side signs
    sometimes specific stop symptom syndrome tablet tablets test tests therapy treat treatment type usually various
    worried""".split()
) | frozenset(
    """治疗 检查 病情 疾病 及时 同时 意见 平时 对症 正常 引起 健康 控制 身体 积极 由于 指导 分析 效果 方法 日常 恢复 诊断 通过
    长期 时间 导致 慢性 适当 影响 容易 避免 异常 作用 定期 使用 确诊 增加 常见 服用 缓解 状况 明显 药物 患者 医院 如果 或者 用药
    副作 剂量 病人 体检 化验 结果 指标""".split()
)
_TIME: Final = frozenset("day days week weeks hour hours month months".split())  # beside a word about health, not instead of it
_LATIN: Final = lazy_pattern(r"[a-z0-9]+(?:'[a-z]+)?")
_EMPTY: Final = lazy_pattern(
    r"\b(?:as an ai|i(?: am|'m) not a doctor|not medical advice|cannot diagnose|can't diagnose|(?:give|provide) medical advice"
    r"|i(?: am|'m) sorry|i (?:do not|don't) know|you(?:'re| are) welcome|feel free|hope (?:this|that|it) helps|let me know"
    r"|thank you for|thanks for|good question|get well|wish you|may or may not|might or might not"
    r"|or (?:it|you) (?:may|might|could) not|or it could be (?:nothing|harmless)|others should not|some \w+ and some \w+"
    r"|everyone is different|it (?:all )?depends on many)\b"
)
_EMPTY_ZH: Final = lazy_pattern(
    r"我不是(?:一名|一个)?医生|作为(?:一个|一名)?(?:ai|人工智能|语言模型)|无法(?:提供|给出|作出|做出|进行)(?:医|诊|具体|准确)"
    r"|不能代替|不能替代|仅供参考|很抱歉|对不起|不客气|祝您|祝你|早日康复|随时(?:告诉|联系|提问|向我|咨询)"
    r"|希望(?:我的|以上|这些|能帮|对您|对你)|如(?:果您|果你|您|你)?(?:还)?有(?:任何|其他|别的)?(?:疑问|问题)|很高兴|感谢您|谢谢"
    r"|也可能(?:没|不)|也可以不|有的人?(?:需要|严重).{0,12}有的人?不|因人而异|具体情况具体分析|综合考虑"
)
_JOINING_SHARE: Final[dict[Kind, float]] = {
    "en": 0.2,
    "zh": 0.06,
}  # of the words; real text has more
_FEWEST: Final = 10  # words from which on the share says something
_SENTENCES: Final = 0.42  # share of joining words from which on an English text has no room for lists


class AnswerPoints(NamedTuple):
    """`points`: distinct points on the topic. `shared`: content of the question that the answer takes up, of `asked` in all.

    `fit` is how much the two overlap as a cosine of their content, 1 from `FITTING` on, less for one shared word, at least 0.4
    where both are about the same part of medicine, and up to 0.7 where other words of both belong together (`relatedness.py`).
    Shuffled answers and mixed sentences rarely have half of it (docs/log.md).
    `words` are all words of the answer, a Chinese character as one; `fresh` is the number of its different content words.
    `fluency` is 1 for sentences and falls to 0 for lists of keywords (`keyword_list.py`), for keywords that nothing joins and for
    shuffled words (`fluency.py`).
    """

    points: float
    shared: int
    asked: int
    fit: float
    words: int
    fresh: int
    fluency: float


@lru_cache(maxsize=CACHE_SIZE)
def read_points(question: str, visible: str) -> AnswerPoints:
    asked, topic = _question(question)
    seen, subjects = set(asked), set[str]()
    points, fresh = 0.0, 0
    for sentence in _STOP.split(visible.lower().lstrip()):
        latin, han = _LATIN.findall(sentence), "" if sentence.isascii() else sentence
        content = _content(latin, han)
        new = content - seen
        seen |= content
        subjects |= content
        fresh += len(new)
        if new and not _is_empty(sentence, han):
            about = 1.0 if content & topic or _is_about_health(latin, han) else _near(asked, content)
            points += about * min(len(new), WHOLE) / WHOLE
    named = concepts(subjects)
    shared = len(topic & (subjects | named))
    fit = _fit(shared, len(topic), len(subjects))
    if fit < RELATED and named and systems(named) & systems(topic):
        fit = RELATED
    if fit < BY_TOPIC:
        fit = max(fit, BY_TOPIC * _near(asked, subjects))
    tokens = words(visible)
    han_share = _han_share(tokens)
    if abs(han_share - _han_share(words(question))) > FOREIGN:
        points = 0.0
    return AnswerPoints(points, shared, len(topic), fit, len(tokens), fresh, _fluency(visible, tokens, han_share))


def _near(asked: frozenset[str], said: set[str]) -> float:
    """How far two texts are about the same, by other words than they share; 0 to 1."""
    return min(1.0, max(0.0, (nearness.relatedness(asked, said) - FAR) / (NEAR - FAR)))


def _fit(shared: int, asked: int, said: int) -> float:
    if shared == 0:
        return 0.0
    overlap = min(1.0, shared / math.sqrt(asked * min(said, LONGEST)) / FITTING)
    return overlap if shared > 1 or asked < SINGLE else overlap * ONE_WORD


@lru_cache(maxsize=CACHE_SIZE)
def _question(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """The content of a question, and its topic: the same without generic words, with the concepts that words stand for."""
    content = frozenset(content_of(question))
    topic = content - _GENERIC or content
    return content, topic | concepts(topic)


def content_of(text: str) -> set[str]:
    """The content words of a text: the beginnings of English ones, pairs of Chinese characters."""
    lowered = text.lower()
    return _content(_LATIN.findall(lowered), "" if lowered.isascii() else lowered)


def _content(latin: list[str], han: str) -> set[str]:
    content = {word[:STEM] for word in set(latin) - _COMMON if len(word) > 2} if latin else set[str]()
    return content | content_pairs(han) if han else content


def _is_about_health(latin: list[str], han: str) -> bool:
    for word in latin:
        if is_health_word(word) and word not in _TIME:
            return True
    return bool(han and HAN_HEALTH.search(han))


def _is_empty(sentence: str, han: str) -> bool:
    """Whether a sentence is small talk or a disclaimer."""
    return (_EMPTY_ZH if han else _EMPTY).search(sentence) is not None


def _han_share(tokens: Words) -> float:
    """The share of Chinese characters among the words."""
    return 1 - sum(map(str.isascii, tokens)) / len(tokens) if tokens else 0.0


def _fluency(visible: str, tokens: Words, han_share: float) -> float:
    if len(tokens) < _FEWEST:
        return 1.0
    share = sum(map(JOINING.__contains__, tokens)) / len(tokens)
    kind: Kind = "en" if han_share < 0.5 else "zh"
    value = min(1.0, share / _JOINING_SHARE[kind]) * neighbours.fluency(tokens, kind)
    if kind == "en" and share > _SENTENCES:
        return value
    return value * min(1.0, max(0.0, 2 - listed_share(visible) / LISTED))
