"""Length penalty: 0 within the usual band, rising to 1 outside of it. Too short says nothing, too long hides what matters.

Counted are words; a Chinese character is 0.6 of one. The band is for the visible answer, with an own upper end for the chain
of thought. Between an end of the band and its limit the value rises in a straight line, so training feels the way back:

    visible   0 words: 1     12: 0  ...  250: 0     600: 1
    chain                           ...  400: 0   1,000: 1

Repeated or hidden text buys nothing: the first is counted word for word, the second is not visible.
"""

from __future__ import annotations

from dataclasses import dataclass

from medloop.contracts import Score, Span
from medloop.reward.answer_text import split_answer, verdict, words

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
        said = f"{visible:.0f} words"
        if visible < self.short:
            return verdict(self, round(1 - visible / self.short, 4), f"The answer is too short: {said}.")
        too_long = _rise(visible, self.long, self.limit)
        too_much = _rise(chain, self.chain_long, self.chain_limit)
        if too_much > too_long:
            here = Span(
                where="answer", start=parts.chain_start, end=parts.chain_start + len(parts.chain or ""), label="long chain"
            )
            return verdict(self, round(too_much, 4), f"The chain of thought is too long: {chain:.0f} words.", (here,))
        if too_long:
            start = len(parts.visible) - len(parts.visible.lstrip())
            here = Span(where="answer", start=start, end=len(parts.visible.rstrip()), label="long answer")
            return verdict(self, round(too_long, 4), f"The answer is too long: {said}.", (here,))
        return verdict(self, 0.0, f"The answer has a usual length: {said}.")


def count(text: str) -> float:
    """Words in any language."""
    found = words(text)
    if text.isascii():
        return float(len(found))
    characters = len(found) - sum(map(str.isascii, found))
    return len(found) - (1 - CHARACTER) * characters


def _rise(value: float, start: float, end: float) -> float:
    return min(1.0, max(0.0, (value - start) / (end - start)))
