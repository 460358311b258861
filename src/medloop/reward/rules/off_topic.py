"""Off topic: 1 has nothing to do with the question. 0 takes it up in the answer's own words.

What counts are points about the question or about health (`reward/points.py`) in the visible answer, without passages that are
copied from the question. The share that is on topic is

    1.0   the answer fits: it overlaps with the content of the question as right answers do (`fit` in `reward/points.py`)
    0.85  in Chinese, a shared character of the body or of an illness
    0.75  at most, where it shares no words but its words belong to those of the question (`reward/relatedness.py`)
    0.7   it takes up what the chain of thought says about the question
    0.15  it takes nothing up, but is about health; in between as far as it fits

less in proportion for a text that lacks the small words of sentences (a list of keywords), for less than a sentence, and where
most of the text is about something else. The value is half of what is missing, so that as a gate it lets that share of the reward
pass; it is 1 where nearly nothing is left: nonsense, small talk, a copied question, instructions to a judge.
Urgent advice is on topic; whether it is needed is the question of `overtriage`. To a routine or urgent question it counts 0.7
where the answer takes up nothing of it: "call 911" fits every question. Unknown urgency costs nothing.

An answer in another language than the question earns nothing: 0.5 where it is about health at least, up to 1 where it is not. Two
texts are in different languages where their scripts or small words say so. A question in a language that the word lists do not
read is compared word by word: an answer in that language that copies it is off topic, any other has the benefit of the doubt, and
`helpfulness` asks whether it takes up words of the question.

Words shared with the question are evidence for a lean, not for a verdict: of 36 real answers that share few, a reader found none
off topic. Only another language and a copied question are verdicts, all else is `unsure`; so are these two where code, data, a
phrase or the question's own words may have been asked for (`reward/detect/asked_form.py`).
"""

from dataclasses import dataclass
from functools import lru_cache

from medloop import lexicon
from medloop.contracts import Score
from medloop.lexicon.health_topic import is_about_health
from medloop.lexicon.language import is_read
from medloop.reward.answer_text import (
    CACHE_SIZE,
    content_words,
    is_on_topic,
    is_repetitive,
    own_words,
    rule_score,
    split_answer,
)
from medloop.reward.detect.asked_form import is_echo, is_plainly_foreign
from medloop.reward.detect.urgency import VERSION as URGENCY_VERSION
from medloop.reward.detect.urgency import urgency
from medloop.reward.points import VERSION as POINTS_VERSION
from medloop.reward.points import WHOLE, AnswerPoints, read_points
from medloop.reward.rules.emergency import VERSION, advice_for
from medloop.reward.unread import in_another_language, read_words

UNRELATED, BY_CHAIN, ONE_WORD = 0.15, 0.7, 0.85
FOCUS = 0.25  # share of the new words that are in points, from which on an answer is about its topic
NOTHING = 0.05
A_POINT = 0.6  # of a point are four new content words: a short sentence
UNREAD = "The question is in a language that this rule reads only word by word"
STEM = 5  # letters by which two forms of a word are the same
BARE = 0.7  # share on topic of urgent advice that takes up nothing of a routine or urgent question
URGENT_WORDS = 2  # content words of urgent advice ("call 911"), which are on topic though they name no part of the body
# Characters of the body and of illness by which a Chinese answer takes a question up in other words; pain is everywhere.
_BODY = frozenset("血肝肾肺胃肠脾胆脑骨腰腿膝颈胸腹肚眼睫耳鼻喉咽嗓牙舌嘴唇脚趾手指乳肿咳痰喘呕吐泻尿晕痒疹孕胎睡")


@dataclass(frozen=True)
class OffTopic:
    name: str = "off_topic"
    version: str = f"8/points-{POINTS_VERSION}/advice-{VERSION}/urgency-{URGENCY_VERSION}"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        visible = split_answer(answer).visible
        if in_another_language(question, visible):
            value = round(1 - 0.5 * _share_alone(question, visible), 4)
            unsure = not is_plainly_foreign(question, visible)
            return rule_score(self, value, "The answer is in another language than the question.", unsure=unsure)
        if not is_read(question):
            return self._score_unread(question, visible)
        share, reason = on_topic_share(question, answer)
        if share < NOTHING:
            return rule_score(self, 1.0, f"The answer has nothing to do with the question: {reason}.", unsure=True)
        return rule_score(self, round(0.5 * (1 - share), 4), f"The answer has {reason}.", unsure=share < 1)

    def _score_unread(self, question: str, visible: str) -> Score:
        """Of a question in a language that the word lists do not read: a copy is off topic, anything else cannot be told."""
        read = read_words(question, visible)
        if read.copied:
            return rule_score(self, 1.0, "The answer repeats the question.", unsure=not is_echo(question, visible))
        return rule_score(self, 0.0, f"{UNREAD}. The answer takes up {min(read.shared, 9)} words of it.")


def _share_alone(question: str, visible: str) -> float:
    """How far a text is about health and in sentences, whatever the question was."""
    text = own_words(question, visible)
    if not is_read(text) or is_repetitive(text):
        return 0.0
    read = read_points("", text)
    return read.points / (read.points + 1) * _focus(read, 0)


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
    if advice_for(question, answer).value:
        bare = not read.fit and urgency(question).level in ("routine", "urgent")
        share = max(share, _focus(read, URGENT_WORDS) * (BARE if bare else 1.0))
    return share, f"{read.points:.1f} points in its own words and takes up {min(read.shared, 9)} content words of the question"


def _topic(question: str, chain: str, text: str, read: AnswerPoints) -> float:
    share = UNRELATED + (1 - UNRELATED) * read.fit
    if share < ONE_WORD and not question.isascii() and _BODY & set(question) & set(text):
        return ONE_WORD
    return BY_CHAIN if share < BY_CHAIN and _bridges(question, chain, text) else share


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
