"""Length penalty: 0 for an answer that is as long as what it says, rising to 1 for one that says nothing or is padded.

The unit is words; a Chinese character counts as 0.6. A complete answer may be long: what counts as padding are the words beyond
four for every new content word (`reward/points.py`), as repeated, empty or stretched text has them. Nobody reads 2,000 words,
padded or not. The chain of thought has its own upper end. Between two numbers the value rises linearly, so that training has a
gradient to follow:

    visible   0 words: 1     12: 0
    padding                 100: 0    400: 1
    visible                 800: 0  2,000: 1
    chain                   400: 0  1,000: 1

Hidden text does not help: it is not visible. "Call an ambulance now." is not too short: an answer that urges care now may have as
few words as it likes.
"""

from dataclasses import dataclass

from medloop.contracts import Score, Span
from medloop.reward.answer_text import AnswerParts, rule_score, split_answer, words
from medloop.reward.points import VERSION as POINTS_VERSION
from medloop.reward.points import read_points
from medloop.reward.rules.emergency import CONDITIONAL, VERSION, best_advice

CHARACTER = 0.6  # words per Chinese character, as translators count
PER_CONTENT = 4  # words of an answer for each new content word; usual text has two to three


@dataclass(frozen=True)
class Length:
    short: float = 12
    padding: float = 100
    padding_limit: float = 400
    long: float = 800
    limit: float = 2000
    chain_long: float = 400
    chain_limit: float = 1000
    name: str = "length"
    version: str = f"3/points-{POINTS_VERSION}/advice-{VERSION}"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        visible, chain = count(parts.visible), count(parts.chain or "")
        size = f"{visible:.0f} words"
        if visible < self.short and best_advice(answer).value <= CONDITIONAL:
            return rule_score(self, round(1 - visible / self.short, 4), f"The answer is too short: {size}.")
        spare = visible - PER_CONTENT * read_points(question, parts.visible).fresh if visible > self.padding else 0.0
        penalties = (
            (ramp(visible, self.long, self.limit), f"The answer is too long: {size}.", "long answer"),
            (
                ramp(spare, self.padding, self.padding_limit),
                f"The answer is padded: {spare:.0f} of {size} add nothing.",
                "padding",
            ),
            (
                ramp(chain, self.chain_long, self.chain_limit),
                f"The chain of thought is too long: {chain:.0f} words.",
                "long chain",
            ),
        )
        value, reason, label = max(penalties, key=lambda penalty: penalty[0])
        if not value:
            return rule_score(self, 0.0, f"The answer is as long as it needs to be: {size}.")
        return rule_score(self, round(value, 4), reason, (_span(parts, label),))


def _span(parts: AnswerParts, label: str) -> Span:
    if label == "long chain":
        return Span(where="answer", start=parts.chain_start, end=parts.chain_start + len(parts.chain or ""), label=label)
    start = len(parts.visible) - len(parts.visible.lstrip())
    return Span(where="answer", start=start, end=len(parts.visible.rstrip()), label=label)


def count(text: str) -> float:
    """Words in any language."""
    tokens = words(text)
    if text.isascii():
        return float(len(tokens))
    characters = len(tokens) - sum(map(str.isascii, tokens))
    return len(tokens) - (1 - CHARACTER) * characters


def ramp(value: float, start: float, end: float) -> float:
    """0 up to `start`, 1 from `end` on, linear between."""
    return min(1.0, max(0.0, (value - start) / (end - start)))
