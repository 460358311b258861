"""Sentences that cycles and experiments wrote in English, for the reader of a page; the forms are in words/told.yaml."""

from medloop.web.gate_words import GateWords
from medloop.web.words import Translator, table


def told(text: str, t: Translator) -> GateWords:
    """The sentence in the language of the page; one without a known form stays English, and says so."""
    if t.language == "en" or not text:
        return GateWords(text, "en")
    translated = t.sentence(text, (key for key in table() if key.startswith("told_")))
    return GateWords(text, "en") if translated is None else GateWords(translated, t.language)
