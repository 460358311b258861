"""A new system prompt from what went wrong: the mistakes that experts corrected most often, as instructions.

    draft = optimised_prompt(current, corrections)       # EntryText, to be tried and approved like a rule; or None

The template keeps the prompt as it is and adds one sentence for each kind of mistake, in both languages, the most frequent first.
With a teacher, the words are the teacher's (`prompt_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from medloop.codebook.reflect import WORDS, CorrectedAnswer, gives_orders
from medloop.contracts import EntryText

PLAIN = "You are a careful medical assistant. Answer in the language of the question. 你是谨慎的医疗助手，用提问的语言回答。"
HEADING = "Mistakes to avoid 常见错误："
MOST_SENTENCES = 5
MOST_PROMPT = 2000  # characters


def mistakes(corrections: Sequence[CorrectedAnswer]) -> Counter[str]:
    """How often experts added or removed each kind of act, or changed the language."""
    counts: Counter[str] = Counter()
    for correction in corrections:
        counts.update([*correction.added(), *correction.removed(), *(["language"] if correction.changes_language() else [])])
    return counts


def optimised_prompt(current: str, corrections: Sequence[CorrectedAnswer]) -> EntryText | None:
    counts = mistakes(corrections)
    kinds = [kind for kind, _ in counts.most_common(MOST_SENTENCES)]
    base = (current or PLAIN).partition(HEADING)[0].strip()
    lines = [f"- {WORDS[kind][1]} {WORDS[kind][0]}" for kind in kinds if WORDS[kind][1] not in base]
    if not lines:
        return None
    text = "\n".join([base, HEADING, *lines])
    if text == current or len(text) > MOST_PROMPT:
        return None
    return EntryText(text=text, reason=f"{len(corrections)} corrections")


def prompt_of(text: str) -> EntryText | None:
    """A teacher's words as a system prompt; None where they are none."""
    text = text.strip()
    if not 20 <= len(text) <= MOST_PROMPT or gives_orders(text):
        return None
    return EntryText(text=text, reason="a teacher's words")
