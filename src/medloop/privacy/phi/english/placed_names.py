"""Names that only their place in the sentence gives away, by the network over words (network.py)."""

from collections.abc import Iterable
from functools import lru_cache

from medloop.patterns import lazy_pattern
from medloop.privacy.phi.allowed import is_added
from medloop.privacy.phi.english import network, tagger
from medloop.privacy.phi.english.candidates import is_plain
from medloop.privacy.phi.english.name_words import WORD_NAMES
from medloop.privacy.phi.english.tagged_spans import NOBODY, TaggedPart, is_medical_term
from medloop.privacy.phi.english.tagger import LetterCase
from medloop.privacy.phi.lists import FREQUENT, NAMES, is_listed, tier
from medloop.privacy.phi.spans import Span

SURE = 0.93  # from here a word is replaced
DOUBTFUL = 0.6  # from here a word that is left is a reason to doubt
_NOTE = 60  # words and signs; a text with more is no note, and an ordinary word in it is hardly a name
_REMARK = 5  # words and signs; what is left in a text with fewer is no reason to doubt it
_LATIN = lazy_pattern(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")  # of other scripts the network has seen nothing
_NOT = frozenset(("'t", "’t"))  # Don't
_ABBREVIATION = 6  # capitals alone, shorter than this: ROS, PRN


def find(tagged: Iterable[TaggedPart]) -> tuple[list[Span], float]:
    """The names, and how likely the best of the words that are left is one."""
    spans, best = list[Span](), 0.0
    for part, _, _ in tagged:
        chances = network.load().chances(part.tokens)
        if max(chances, default=0.0) < DOUBTFUL:
            continue
        is_mixed, is_long = tagger.case_of(part.text) == LetterCase.MIXED, len(part.tokens) > _NOTE
        last = -1
        for index, (token, chance) in enumerate(zip(part.tokens, chances, strict=True)):
            if index <= last or chance < DOUBTFUL or not _may_name(token.word, is_mixed, is_long):
                continue
            if part.text[token.end : token.end + 2] in _NOT:
                continue
            last = index
            while (
                last + 1 < len(chances)
                and chances[last + 1] >= DOUBTFUL
                and _may_name(part.tokens[last + 1].word, is_mixed, is_long)
            ):
                last += 1
            highest = max(chances[index : last + 1])
            if highest >= SURE:
                spans.append((part.start + token.start, part.start + part.tokens[last].end, "NAME"))
            elif len(chances) >= _REMARK:
                best = max(best, highest)
    return spans, best


@lru_cache(maxsize=32_768)
def _may_name(word: str, is_mixed: bool, is_long: bool) -> bool:
    """Not for signs, short words, abbreviations, terms, months and nations."""
    if len(word) < 3 or not _LATIN.match(word) or (is_mixed and word.isupper() and len(word) < _ABBREVIATION):
        return False
    lower = word.lower()
    if is_plain(lower) and (is_long or not is_listed(lower, NAMES)) and (is_long or word == lower or tier(lower) in FREQUENT):
        # "walls" in a text with capitals, "Wish" anywhere; in a long text also "Divorced"
        return (lower in WORD_NAMES and word != lower) or (lower in WORD_NAMES and not is_mixed)
    return not (is_medical_term(word) or is_listed(lower, NOBODY) or is_added(word))
