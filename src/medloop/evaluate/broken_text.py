"""Answers that are broken as text, whatever the rules say of them: truncated, empty, or in another language than the question."""

from collections.abc import Sequence

from medloop.evaluate.run import EvalAnswer
from medloop.lexicon.language import detect_language

MOST_TRUNCATED = 0.5
MOST_BROKEN = 0.2  # empty, or in another language


def broken_text(answers: Sequence[EvalAnswer]) -> list[str]:
    """What is wrong with too many of a model's answers, in sentences."""
    given = [answer for answer in answers if answer.sample.answer is not None]
    if not given:
        return []
    texts = [(answer.sample.question, (answer.sample.answer or "").strip()) for answer in given]
    asked = [(detect_language(question), text) for question, text in texts if text]
    known = [(language, text) for language, text in asked if language in ("zh", "en")]
    shares = {
        "are truncated": (sum(answer.truncated for answer in given) / len(given), MOST_TRUNCATED),
        "are empty": (sum(not text for _, text in texts) / len(given), MOST_BROKEN),
        "are not in the language of the question": (
            sum(detect_language(text) != language for language, text in known) / max(len(known), 1), MOST_BROKEN,
        ),
    }  # fmt: skip
    return [f"{share:.0%} of its answers {what}." for what, (share, bound) in shares.items() if share > bound]
