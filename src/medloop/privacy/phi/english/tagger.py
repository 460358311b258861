"""Which words of an English text are names, places or organisations: a linear tagger over hand-made features, Viterbi.

Trained by tools/train_phi.py on sentences we generate ourselves; the weights are assets/phi/tagger.json. The scores of a word in
each place (the word itself, the one before, the one after) are summed once and cached, so a text costs a few additions a word.

The codes of `LetterCase`, `WordShape`, `lists.WordList` and the tiers are part of the feature names: to change one, train again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from typing import NamedTuple

from medloop.privacy.phi import lists
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import ORDINARY, WordList
from medloop.privacy.phi.normalize import MASK

TAGS = ("O", "NAME", "PLACE", "ORG")
_LETTER = r"[^\W\d_\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_MAX_DULL = 16  # of so many numbers and signs in a row the rest is left out: no address is like that, hostile text is
_SHORT = r"['’](?:[sdmt]|re|ve|ll|S)\b"  # "they're", "Anna's": two words
TOKEN = lazy_pattern(rf"{_LETTER}+(?:(?!{_SHORT})['’]{_LETTER}+)*|\d+|{_SHORT}|[^\w\s]|\n")
_ASCII_TOKEN = lazy_pattern(rf"[A-Za-z]+(?:(?!{_SHORT})'[A-Za-z]+)*|[0-9]+|{_SHORT}|[^\w\s]|\n")  # the same in ASCII, sooner
_DULL_RUN = lazy_pattern(rf"(?:[^\w\s]|[\d_]+|\s){{{_MAX_DULL + 1}}}")
_NO_LETTERS = lazy_pattern(rf"[^A-Za-z]{{{_MAX_DULL + 1}}}")  # every such run has one, and it is found sooner
_PERSON = frozenset("i my me we our he she his her you your they their him mr mrs ms dr".split())
_MEDICAL = lazy_pattern(
    r"(?:symptoms?|diseases?|syndromes?|disorders?|treatments?|treated|therap[a-z]{1,7}|diagnos[a-z]{1,6}|patients?|genes?|genetic|cancers?|tumou?rs?"
    r"|infections?|clinical|mutations?|mg|ml|blood|surg[a-z]{2,7}|chronic|acute|drugs?|medic[a-z]{2,7}|doctors?|pain|fever|inherited"
    r"|tests?|cells?|studies|study|hospital|dose|risk|health|care|vaccin[a-z]{1,5}|pregnan[a-z]{2}|prevalence|incidence|newborns?|deficiency"
    r"|individuals|bones?|muscles?|nerves?|skin|kidneys?|renal|cardiac|allerg[a-z]{1,4}|denies|exam[a-z]{0,7}|bilateral|cohort|trial|outcomes?"
    r"|mortality|morbidity|[a-z]{3,20}(?:itis|osis|emia|ectomy|pathy|algia|uria|plasty|oscopy|ology|plegia|trophy))"
)
# What may stand between two parts of one name, address or organisation.
JOINTS = frozenset(", . - ' ’ & / of de la le du des di da do del der den van von the and und y e al bin el".split())
EDGE = "<edge>"
_SPELLED_TIERS = frozenset("0125")  # a word of these is a feature by itself
_AFFIX_TIERS = frozenset("345o")  # of a word of these the first and last letters are features
_TELLING_LISTS = frozenset(WordList) - {WordList.FIRST_NAME, WordList.SURNAME, WordList.TOWN, WordList.STATE}
_LAND_LISTS = frozenset((WordList.COUNTRY, WordList.STATE, WordList.NATION))


class Token(NamedTuple):
    start: int
    end: int
    word: str


_new_token = partial(tuple.__new__, Token)  # half the time of Token(), which is a tenth of that of a short text


class LetterCase(StrEnum):
    """How a text uses capitals; they mean nothing in the last two."""

    MIXED = "a"
    LOWER = "l"
    UPPER = "u"


class WordShape(StrEnum):
    """How a word of a `MIXED` text is written; in other texts the case of the text stands instead."""

    ONE_CAPITAL = "X"
    CAPITALS = "W"
    CAPITALIZED = "C"
    CAPITAL_AND_MORE = "M"
    """McDonald"""
    SMALL = "x"
    SMALL_AND_MORE = "m"
    """eGFR"""


@dataclass(frozen=True, eq=False, slots=True)
class Outline:
    """What the tagger sees of a word that stands beside another: rare words in the same lists look alike.

    Compared by identity, as is `Word`: there is one object for what looks alike, which makes it a cheap key of the cached sums.
    """

    form: str
    """The word itself if it is a frequent or a telling one, else its tier."""
    key: str
    """Shape, tier and lists."""
    short_key: str
    """Shape and tier."""


_outline = lru_cache(maxsize=32_768)(Outline)


@dataclass(frozen=True, eq=False, slots=True)
class Word:
    """What the tagger sees of a word."""

    outline: Outline
    affixes: tuple[str, ...] = ()
    can_be_phi: bool = True
    """False: in a text with capitals this cannot be part of a name, place or organisation."""


def tokens(text: str, known: Sequence[tuple[int, int, str]] = ()) -> list[Token]:
    """Words, numbers, signs and line ends; what is already known to be an identifier is one token with its kind as word."""
    token = _ASCII_TOKEN if text.isascii() else TOKEN
    if not known and not (_NO_LETTERS.search(text) and _DULL_RUN.search(text)):
        return [_new_token((*match.span(), match[0])) for match in token.finditer(text)]
    result: list[Token] = []
    added, dull, spans = False, 0, iter([*known, (len(text) + 1, len(text) + 1, "")])
    start, end, kind = next(spans)
    for match in token.finditer(text):
        first, last = match.span()
        while first >= end:
            start, end, kind = next(spans)
            added = False
        if last <= start:
            word = match[0]
            dull = 0 if word[0].isalpha() else dull + 1
            if dull <= _MAX_DULL:
                result.append(_new_token((first, last, word)))
        elif not added:
            result.append(Token(start, end, f"<{kind}>"))
            added = True
    return result


def case_of(text: str) -> LetterCase:
    if MASK in text:
        return LetterCase.MIXED  # the capitals may have stood where a placeholder is now
    if text.islower():
        return LetterCase.LOWER
    return LetterCase.UPPER if text.isupper() else LetterCase.MIXED


def text_type(words: Iterable[str]) -> str:
    """Two digits: whether the text speaks of a person (0 or 1), and how medical it is (0 to 2).

    A country or a rare word means something else in an article on a disease.
    """
    person = medical = 0
    for word in words:
        hint = _hint(word)
        if hint == "person":
            person = 1
        elif hint == "medical" and medical < 2:
            medical += 1
        if person and medical == 2:
            break
    return f"{person}{medical}"


@lru_cache(maxsize=32_768)
def _hint(word: str) -> str | None:
    lower = word.lower()
    if lower in _PERSON:
        return "person"
    return "medical" if _MEDICAL.fullmatch(lower) else None


@lru_cache(maxsize=32_768)
def look(word: str, case: str) -> Word:
    """What the tagger sees of a word in a text of this case."""
    lower = word.lower()
    if word[0] == "<" and len(word) > 1:  # the kind of a known identifier
        return Word(_outline(word, word, word))
    if word.isdecimal():
        size = min(len(word), 6)
        return Word(_outline(f"#{size}", f"#{size}", "#"))
    if not word[0].isalpha():
        return Word(_outline(lower, lower, lower))
    shape = _shape(word, case)
    tier = lists.tier(lower) if len(word) > 1 else "1"
    listed = lists.lists_of(lower)
    is_spelled = tier in _SPELLED_TIERS or not _TELLING_LISTS.isdisjoint(listed) or len(lower) <= 2
    affixes: tuple[str, ...] = ()
    if tier in _AFFIX_TIERS:
        affixes = (f"-{lower[-2:]}{shape}", f"-{lower[-3:]}{shape}", f"-{lower[-4:]}{shape}{tier}", f"{lower[:3]}-{shape}")
    is_small = shape in (WordShape.SMALL, LetterCase.LOWER)
    can_be_phi = not is_small or tier not in ORDINARY or bool(listed) or lower in JOINTS
    outline = _outline(f"{lower if is_spelled else tier}/{shape}", f"{shape}{tier}{listed}", shape + tier)
    return Word(outline, affixes, can_be_phi)


def _shape(word: str, case: str) -> str:
    if case != LetterCase.MIXED:
        return case
    if word.isupper():
        return WordShape.ONE_CAPITAL if len(word) == 1 else WordShape.CAPITALS
    if word[0].isupper():
        return WordShape.CAPITALIZED if word[1:].islower() else WordShape.CAPITAL_AND_MORE
    return WordShape.SMALL if word.islower() else WordShape.SMALL_AND_MORE


_END = _outline(EDGE, EDGE, EDGE)


def own_features(word: Word, text_type: str) -> list[str]:
    """Features of the word itself."""
    outline = word.outline
    own = [f"0{outline.key}", f"0={outline.form}", f"0{outline.short_key}"]
    if not _LAND_LISTS.isdisjoint(outline.key):
        own.append(f"0p{text_type}{outline.key}")  # a country: where somebody lives, or where a disease occurs?
    return own + [f"0{affix}" for affix in word.affixes]


def neighbour_features(word: Outline, offset: str) -> list[str]:
    """Features of a word that stands so many words before ("-1") or behind ("+1") the one that is tagged."""
    return [f"{offset}{word.key}", f"{offset}={word.form}", f"{offset}{word.short_key}"]


def joint_features(before2: Outline, before: Outline, word: Outline, behind: Outline, behind2: Outline) -> list[str]:
    """Features of a word together with its neighbours."""
    return [
        f"{before.form}|{word.short_key}",
        f"{word.short_key}|{behind.form}",
        f"{before.form}|{word.short_key}|{behind.form}",
        f"{before2.form}|{before.form}|{word.short_key}",
        f"{word.short_key}|{behind.form}|{behind2.form}",
        f"{before.short_key}|{word.key}|{behind.short_key}",
    ]


def features(words: Sequence[Word], text_type: str) -> list[list[str]]:
    """All features of every word, for training. `Tagger` sums the same ones from its caches."""
    padded = [_END, _END, *(word.outline for word in words), _END, _END]
    result = []
    for i, own in enumerate(words, 2):
        before2, before, word, behind, behind2 = padded[i - 2 : i + 3]
        result.append(
            own_features(own, text_type)
            + neighbour_features(before, "-1")
            + neighbour_features(behind, "+1")
            + neighbour_features(before2, "-2")
            + neighbour_features(behind2, "+2")
            + joint_features(before2, before, word, behind, behind2)
        )
    return result


Scores = tuple[float, float, float]  # of NAME, PLACE and ORG, relative to "O"
_NEVER: Scores = (-1e6, -1e6, -1e6)


class Tagger:
    """`scores` of the words of a text, `path` the best tags for them, `margins` how close each came to a tag other than "O"."""

    def __init__(self, weights: dict[str, Scores], transitions: list[list[float]], bias: dict[str, float]) -> None:
        self.weights, self.transitions, self.bias = weights, transitions, bias
        flat = [transition for row in transitions for transition in row]
        self._transition_range = max(flat) - min(flat)
        self._own = lru_cache(maxsize=32_768)(self._sum_own)
        self._neighbour = lru_cache(maxsize=65_536)(self._sum_neighbour)
        self._around = lru_cache(maxsize=32_768)(self._sums_around)

    def _sum(self, features: Iterable[str]) -> Scores:
        name = place = org = 0.0
        for feature in features:
            weight = self.weights.get(feature)
            if weight is not None:
                name, place, org = name + weight[0], place + weight[1], org + weight[2]
        return name, place, org

    def _sum_own(self, word: Word, text_type: str) -> Scores:
        return self._sum(own_features(word, text_type))

    def _sum_neighbour(self, word: Outline, offset: str) -> Scores:
        return self._sum(neighbour_features(word, offset))

    def _sums_around(self, before2: Outline, before: Outline, word: Outline, behind: Outline, behind2: Outline) -> list[Scores]:
        """What the neighbours say, each by itself: added up in another order the sums would differ in the last digit."""
        return [
            self._neighbour(before, "-1"),
            self._neighbour(behind, "+1"),
            self._neighbour(before2, "-2"),
            self._neighbour(behind2, "+2"),
            self._sum(joint_features(before2, before, word, behind, behind2)),
        ]

    def emissions(self, words: Sequence[Word], text_type: str, can_be_phi: Sequence[bool] | None = None) -> list[Scores]:
        """What speaks for each tag of each word; a word that cannot be PHI is "O" for certain."""
        outlines = [_END, _END, *[word.outline for word in words], _END, _END]
        own, around = self._own, self._around
        result = [_NEVER] * len(words)
        for i, word in enumerate(words):
            if can_be_phi is None or can_be_phi[i]:
                a0, a1, a2 = own(word, text_type)
                (b0, b1, b2), (c0, c1, c2), (d0, d1, d2), (e0, e1, e2), (f0, f1, f2) = around(*outlines[i : i + 5])
                result[i] = (a0 + b0 + c0 + d0 + e0 + f0, a1 + b1 + c1 + d1 + e1 + f1, a2 + b2 + c2 + d2 + e2 + f2)
        return result

    def scores(self, text: str, tokens: Sequence[Token], text_type: str) -> list[Scores]:
        """In a text with capitals, small words are scored only if they can stand inside a name or address."""
        case = case_of(text)
        words = [look(token.word, case) for token in tokens]
        return self.emissions(words, text_type, [word.can_be_phi for word in words] if case == LetterCase.MIXED else None)

    def margins(self, scores: Sequence[Scores], tags: Sequence[int], bias: float) -> list[float]:
        """For each token tagged "O", how much is lost (zero or less) if it alone, or with the one before, is not."""
        steps, result, before = self.transitions, [-1e9] * len(scores), _NEVER
        stay = (steps[1][1], steps[2][2], steps[3][3])
        for index, score in enumerate(scores):
            if tags[index] or score is _NEVER:
                before = _NEVER
                continue
            (n, p, g), right = score, tags[index + 1] if index + 1 < len(tags) else 0
            outside, to_n, to_p, to_g = steps[tags[index - 1] if index else 0]
            from_n, from_p, from_g = steps[1][right], steps[2][right], steps[3][right]
            as_outside = outside + steps[0][right]
            best = max(n + to_n + from_n, p + to_p + from_p, g + to_g + from_g) + bias - as_outside
            if before is not _NEVER:
                (n2, p2, g2), (outside, to_n, to_p, to_g) = before, steps[tags[index - 2] if index > 1 else 0]
                pair = max(n + n2 + stay[0] + to_n + from_n, p + p2 + stay[1] + to_p + from_p, g + g2 + stay[2] + to_g + from_g)
                pair += 2 * bias - outside - steps[0][0] - steps[0][right]
                best = max(best, pair)
            result[index] = best
            before = score
        return result

    def path(self, scores: Sequence[Scores], bias: float) -> list[int]:
        """Same result as `viterbi`, but skips what can only be "O": no pair of transitions makes up for so low a score."""
        low = -2 * self._transition_range - bias
        tags, count = [0] * len(scores), len(scores)
        is_open = [score is not _NEVER and max(score) >= low for score in scores]
        is_open += [False, True]  # the search for a run, and for its end, always finds one
        first = is_open.index(True)
        while first < count:
            last = is_open.index(False, first)
            if last - first == 1:
                tags[first] = self._best_alone(scores[first], bias)
            else:
                tags[first:last] = self.viterbi(scores[first:last], bias)
            first = is_open.index(True, last)
        return tags

    def _best_alone(self, score: Scores, bias: float) -> int:
        """The best tag of one word between others that are "O"."""
        best, tag = 2 * self.transitions[0][0], 0
        for k in (0, 1, 2):
            total = self.transitions[0][k + 1] + score[k] + bias + self.transitions[k + 1][0]
            if total > best:
                best, tag = total, k + 1
        return tag

    def viterbi(self, scores: Sequence[Scores], bias: float = 0.0) -> list[int]:
        """The best tags from "O" to "O"; `bias` is added to all but "O", `transitions[a][b]` to each b after an a."""
        o, n, p, g = 0.0, -1e9, -1e9, -1e9
        back = list[tuple[int, int, int, int]]()
        (s00, s01, s02, s03), (s10, s11, s12, s13), (s20, s21, s22, s23), (s30, s31, s32, s33) = self.transitions
        for name, place, org in scores:
            # The best way to each tag, the first of several equal ones; written out, for this is a tenth of a long text's time.
            top0, from0 = o + s00, 0
            if (other := n + s10) > top0:
                top0, from0 = other, 1
            if (other := p + s20) > top0:
                top0, from0 = other, 2
            if (other := g + s30) > top0:
                top0, from0 = other, 3
            top1, from1 = o + s01, 0
            if (other := n + s11) > top1:
                top1, from1 = other, 1
            if (other := p + s21) > top1:
                top1, from1 = other, 2
            if (other := g + s31) > top1:
                top1, from1 = other, 3
            top2, from2 = o + s02, 0
            if (other := n + s12) > top2:
                top2, from2 = other, 1
            if (other := p + s22) > top2:
                top2, from2 = other, 2
            if (other := g + s32) > top2:
                top2, from2 = other, 3
            top3, from3 = o + s03, 0
            if (other := n + s13) > top3:
                top3, from3 = other, 1
            if (other := p + s23) > top3:
                top3, from3 = other, 2
            if (other := g + s33) > top3:
                top3, from3 = other, 3
            back.append((from0, from1, from2, from3))
            o, n, p, g = top0, top1 + name + bias, top2 + place + bias, top3 + org + bias
        best = (o, n, p, g)
        tag = max(range(4), key=lambda last: best[last] + self.transitions[last][0])
        tags = []
        for previous in reversed(back):
            tags.append(tag)
            tag = previous[tag]
        return tags[::-1]


@lru_cache(maxsize=1)
def load() -> Tagger:
    model = json.loads((lists.FOLDER / "tagger.json").read_text(encoding="utf-8"))
    weights = {name: (n / 100, p / 100, g / 100) for name, (n, p, g) in model["weights"].items()}
    return Tagger(weights, [[w / 100 for w in row] for row in model["steps"]], model["bias"])
