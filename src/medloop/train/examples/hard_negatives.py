"""Synthetic worse answers: they teach a reward model that an answer has to fit its question and has to be whole.

    hard_negatives(pairs, 0.25, seed=42)          -> [("other question", Pair(...)), ...]

The chosen answer of a pair stays the better one. The worse one is the chosen answer to another question, or this one
truncated, with its words shuffled, or with its first sentence repeated. No text is invented.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from medloop.train.examples.pairs import Pair

KINDS = ("other question", "truncated", "shuffled", "repeated")
KEPT = 0.35  # share of a truncated answer that stays
_PIECES = re.compile(r"[\u3400-\u9fff]{1,2}|[^\s\u3400-\u9fff]+")
_FIRST_SENTENCE = re.compile(r"[^。！？.!?\n]*[。！？.!?\n]?")


def hard_negatives(pairs: Sequence[Pair], share: float, seed: int) -> list[tuple[str, Pair]]:
    """About `share` times as many as there are pairs, the kinds in turn; a kind that cannot worsen an answer is left out."""
    rng = random.Random(f"hard negatives {seed}")
    negatives: list[tuple[str, Pair]] = []
    for number in range(round(share * len(pairs))):
        pair, kind = rng.choice(pairs), KINDS[number % len(KINDS)]
        worse = _worse(kind, pair, rng.choice(pairs), rng)
        if worse.strip() and worse.strip() != pair.chosen.strip():
            negatives.append((kind, replace(pair, rejected=worse)))
    return negatives


def _worse(kind: str, pair: Pair, other: Pair, rng: random.Random) -> str:
    answer = pair.chosen
    if kind == "other question":
        return other.chosen if other.first_question != pair.first_question else ""
    if kind == "truncated":
        return answer[: int(KEPT * len(answer))]
    if kind == "shuffled":
        pieces = _PIECES.findall(answer)
        rng.shuffle(pieces)
        return ("" if re.search(r"[\u3400-\u9fff]", answer) else " ").join(pieces)
    first = _FIRST_SENTENCE.match(answer.strip())
    sentence = first.group() if first and first.group().strip() else answer[:30]
    return (sentence + " ") * max(2, len(answer) // max(len(sentence), 1))
