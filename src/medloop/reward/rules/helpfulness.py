"""Helpfulness: does the visible answer say something about this question, and how much?

    points   distinct points about the question or about health (`reward/points.py`), saturating: 1 gives 0.14, 6 give 0.5,
             18 give 0.75. Repeated or copied sentences, small talk, disclaimers and other topics are no points.
    topic    what the question asks about must be taken up: from 0.3 where the answer shares nothing with the question to 1 where
             it fits as right answers do (`fit`); lay and medical words for the same thing are shared.
    fluency  times less, down to 0, for keywords without the small words that join them, and for words in no order
             (`reward/fluency.py`).

Length as such earns nothing: a point needs new words about the topic. For an emergency, an answer that urges care now has at
least 0.62, 0.8 where it takes up the question, and any other at most 0.3. Where it is not certain that the question can wait
(urgent, unknown), urging care now has at least 0.01 and more only as far as it takes up the question; an answer that names a
doctor only under a condition counts 0.6 times, one that names none 0.3 times. An answer of fewer than three words earns 0. To a
question in a language that the word lists do not read, the answer is compared with it word by word (`reward/unread.py`) and has
at most 0.5.
"""

from dataclasses import dataclass

from medloop.contracts import Score
from medloop.lexicon.language import is_read
from medloop.reward.answer_text import rule_score, split_answer
from medloop.reward.detect import acts as act_detector
from medloop.reward.detect.urgency import VERSION as URGENCY_VERSION
from medloop.reward.detect.urgency import urgency
from medloop.reward.points import VERSION as POINTS_VERSION
from medloop.reward.points import AnswerPoints, read_points
from medloop.reward.unread import read_words

HALF = 6.0  # points that are half of what can be earned
UNRELATED = 0.3  # of an answer that shares nothing with the question
SHARED = 2  # content words of the question that an answer has to take up
URGENT_FLOOR, BARE_FLOOR = 0.8, 0.62  # of an answer to an emergency that urges care now: about the question, about nothing of it
CAUTION_FLOOR = 0.01  # of one that urges care now where it may be an emergency
UNREAD = 0.5  # most that an answer can have in a language that the word lists do not read
CONDITIONAL, NO_DOCTOR = 0.6, 0.3  # share of the value that counts


@dataclass(frozen=True)
class Helpfulness:
    name: str = "helpfulness"
    version: str = f"2/points-{POINTS_VERSION}/acts-{act_detector.VERSION}/urgency-{URGENCY_VERSION}"
    penalty: bool = False

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        if not is_read(question):
            return self._score_unread(question, parts.visible)
        if not parts.has_content:
            return rule_score(self, 0.0, "There is no answer.")
        read = read_points(question, parts.visible)
        value = read.points / (read.points + HALF) * _topic(read) * read.fluency
        reason = f"{read.points:.1f} points, {read.shared} content words shared with the question"
        if read.fluency < 1:
            reason += f", fluency {read.fluency:.2f}"
        value, condition = _with_care(question, answer, value, read.fit)
        return rule_score(self, round(value, 4), f"{reason}{condition}.")

    def _score_unread(self, question: str, visible: str) -> Score:
        read = read_words(question, visible)
        topic = UNRELATED + (1 - UNRELATED) * min(SHARED, read.shared) / SHARED
        value = 0.0 if read.copied else UNREAD * topic * read.points / (read.points + HALF)
        reason = f"{read.points:.1f} points, {read.shared} words shared with the question, in a language read only word by word."
        return rule_score(self, round(value, 4), reason)


def _topic(read: AnswerPoints) -> float:
    return UNRELATED + (1 - UNRELATED) * read.fit


def _with_care(question: str, answer: str, value: float, fit: float) -> tuple[float, str]:
    """The value, given how urgent the question is and where the answer sends the patient, and what to say about it."""
    level = urgency(question).level
    if level == "routine":
        return value, ""
    care = {(act.kind, act.polarity) for act in act_detector.acts(answer) if act.kind in ("urges_care_now", "sends_to_doctor")}
    if ("urges_care_now", "directive") in care:
        if level != "emergent":
            return max(CAUTION_FLOOR, value * fit), "; it urges care now"
        floor = BARE_FLOOR + (URGENT_FLOOR - BARE_FLOOR) * fit
        return floor + (1 - floor) * value, "; it urges care now"
    if level == "emergent":
        return NO_DOCTOR * value, "; but it does not urge care now"
    if ("sends_to_doctor", "directive") in care:
        return value, ""
    if any(polarity == "conditional" for _, polarity in care):
        return CONDITIONAL * value, "; it names a doctor only under a condition"
    return NO_DOCTOR * value, "; it names no doctor"
