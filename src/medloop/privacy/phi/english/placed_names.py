"""Names that only their place in the sentence gives away, by the network over words (network.py)."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from medloop.privacy.phi.allowed import is_added
from medloop.privacy.phi.english import network, tagger
from medloop.privacy.phi.english.name_words import WORD_NAMES, is_plain
from medloop.privacy.phi.english.tagged_spans import NOBODY, LatinPart, TaggedPart, is_medical_term
from medloop.privacy.phi.english.tagger import LetterCase, Token
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import ALSO_NAME, FREQUENT, NAMES, is_listed, tier
from medloop.privacy.phi.spans import Span

SURE = 0.93  # from here a word is replaced
DOUBTFUL = 0.6  # from here a word that is left is a reason to doubt
_GOES_ON = 0.45  # from here a word goes on the name beside it
_NOTE = 60  # words and signs; a text with more is no note, and an ordinary word in it is hardly a name
_REMARK = 5  # words and signs; what is left in a text with fewer is no reason to doubt it
_LATIN = lazy_pattern(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")  # of other scripts the network has seen nothing
_NOT = frozenset(("'t", "’t"))  # Don't
_ABBREVIATION = 6  # capitals alone, shorter than this: ROS, PRN
_UNITS = frozenset("mcg mcl mcmol mmol mol mosm meq kcal mmhg cmh2o ppm bpm rpm litre litres liter liters".split())
_BEFORE_WORD = frozenset("to will would can could should may might must shall not a an the this that each every no".split())
_FOREIGN = 0.5  # share of unlisted words from which a sentence is in another language, of which the network has seen nothing
_SENTENCE = 8  # words from which a sentence can be said to be in another language
_CODE = frozenset("\\_`{}")  # beside a word: it belongs to a program or a setting
_LONGEST = 4  # words; in a text with capitals, more of them with small letters are no name
_ENDS = frozenset(".!?\n")
_OPENS = _ENDS | frozenset(':;("“')  # behind these an ordinary word may have a capital


def find(tagged: Iterable[TaggedPart]) -> tuple[list[Span], float]:
    """The names, and how likely the best of the words that are left is one."""
    spans, best = list[Span](), 0.0
    for part, _, _ in tagged:
        is_mixed, is_long = tagger.case_of(part.text) == LetterCase.MIXED, len(part.tokens) > _NOTE
        wanted = [index for index, token in enumerate(part.tokens) if _may_name(token.word, is_mixed, is_long)]
        if not wanted:
            continue
        chances = network.load().chances_of(part.tokens, wanted)
        if max(chances, default=0.0) < DOUBTFUL:
            continue
        chances = _without_foreign(part.tokens, chances)
        last = -1
        for index in [
            index for index, chance in enumerate(chances) if chance >= DOUBTFUL
        ]:  # only what may be a name has a chance
            if index <= last:
                continue
            token, chance = part.tokens[index], chances[index]
            beside = part.text[max(0, token.start - 1) : token.start] + part.text[token.end : token.end + 1]
            if part.text[token.end : token.end + 2] in _NOT or not _CODE.isdisjoint(beside):
                continue
            last = index
            while chance >= _GOES_ON and last + 1 < len(chances) and chances[last + 1] >= _GOES_ON:
                last += 1
            if is_mixed and last - index >= _LONGEST and any(part.tokens[n].word.islower() for n in range(index, last + 1)):
                continue
            highest = max(chances[index : last + 1])
            is_word = index == last and _is_word(part, index, is_mixed)
            if is_word and index and part.tokens[index - 1].word.lower() in _BEFORE_WORD:
                continue  # "will mark it"
            if highest >= SURE:
                spans.append((part.start + token.start, part.start + part.tokens[last].end, "NAME"))
            elif len(chances) >= _REMARK and not is_word:
                best = max(best, highest)
    return spans, best


def _without_foreign(tokens: Sequence[Token], chances: list[float]) -> list[float]:
    """No chance for the words of a sentence in another language: one with many words in small letters that no list holds."""
    left, start = list[float](), 0
    while start < len(tokens):
        end = next((n + 1 for n in range(start, len(tokens)) if tokens[n].word in _ENDS), len(tokens))
        words = [token.word for token in tokens[start:end] if len(token.word) > 1 and token.word.islower()]
        is_foreign = len(words) >= _SENTENCE and sum(map(_is_unlisted, words)) >= _FOREIGN * len(words)
        left += [0.0] * (end - start) if is_foreign else chances[start:end]
        start = end
    return left


@lru_cache(maxsize=32_768)
def _is_unlisted(word: str) -> bool:
    return not (is_plain(word) or is_listed(word, NAMES) or is_medical_term(word))


def _is_word(part: LatinPart, index: int, is_mixed: bool) -> bool:
    """An ordinary word that is written as such: in small letters in a text with capitals, or at the beginning of a sentence."""
    word = part.tokens[index].word
    if word.islower():
        return is_mixed and (is_plain(word) or tier(word) == ALSO_NAME)
    opens = index == 0 or part.tokens[index - 1].word[-1] in _OPENS
    return opens and is_plain(word) and word.lower() not in WORD_NAMES


@lru_cache(maxsize=32_768)
def _may_name(word: str, is_mixed: bool, is_long: bool) -> bool:
    """Not for signs, short words, abbreviations, terms, months and nations."""
    if len(word) < 3 or not _LATIN.match(word) or (is_mixed and word.isupper() and len(word) < _ABBREVIATION):
        return False
    lower = word.lower()
    if lower in _UNITS:
        return False
    if is_plain(lower) and (is_long or not is_listed(lower, NAMES)) and (is_long or word == lower or tier(lower) in FREQUENT):
        # "walls" in a text with capitals, "Wish" anywhere; in a long text also "Divorced"
        return (lower in WORD_NAMES and word != lower) or (lower in WORD_NAMES and not is_mixed)
    return not (is_medical_term(word) or is_listed(lower, NOBODY) or is_added(word))
