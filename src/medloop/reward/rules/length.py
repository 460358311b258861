"""Length penalty: 0 within the usual range, rising to 1 outside it. Too short says nothing, too long hides what matters.

The unit is words; a Chinese character counts as 0.6. The range is for the visible answer; the chain of thought has its own upper
end. Between an end of the range and its limit the value rises linearly, so that training has a gradient to follow:

    visible   0 words: 1     12: 0  ...  250: 0     600: 1
    chain                           ...  400: 0   1,000: 1

Repeated or hidden text does not help: repeated words are counted, hidden ones are not visible.
"""

from dataclasses import dataclass

from medloop.contracts import Score, Span
from medloop.reward.answer_text import rule_score, split_answer, words

CHARACTER = 0.6  # words per Chinese character, as translators count


@dataclass(frozen=True)
class Length:
    short: float = 12
    long: float = 250
    limit: float = 600
    chain_long: float = 400
    chain_limit: float = 1000
    name: str = "length"
    version: str = "1"
    penalty: bool = True

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        visible, chain = count(parts.visible), count(parts.chain or "")
        size = f"{visible:.0f} words"
        if visible < self.short:
            return rule_score(self, round(1 - visible / self.short, 4), f"The answer is too short: {size}.")
        answer_penalty = ramp(visible, self.long, self.limit)
        chain_penalty = ramp(chain, self.chain_long, self.chain_limit)
        if chain_penalty > answer_penalty:
            span = Span(
                where="answer", start=parts.chain_start, end=parts.chain_start + len(parts.chain or ""), label="long chain"
            )
            return rule_score(self, round(chain_penalty, 4), f"The chain of thought is too long: {chain:.0f} words.", (span,))
        if answer_penalty:
            start = len(parts.visible) - len(parts.visible.lstrip())
            span = Span(where="answer", start=start, end=len(parts.visible.rstrip()), label="long answer")
            return rule_score(self, round(answer_penalty, 4), f"The answer is too long: {size}.", (span,))
        return rule_score(self, 0.0, f"The answer has a usual length: {size}.")


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
