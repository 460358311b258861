"""Which words of an English text are names, places or organisations: a linear tagger over hand-made features, Viterbi.

Trained by tools/train_phi.py from sentences we generate ourselves; the weights are assets/phi/tagger.json. What a word is
worth in each place (itself, the one before, the one after) is summed once and kept, so a text costs a few additions a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from medloop.privacy.phi import lists
from medloop.privacy.phi.normalize import MASK

TAGS = ("O", "NAME", "PLACE", "ORG")
_LETTER = r"[^\W\d_\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_DULL = 16  # of so many numbers and signs in a row the rest is left out: no address is like that, hostile text is
_SHORT = r"['’](?:[sdmt]|re|ve|ll|S)\b"  # "they're", "Anna's": two words
TOKEN = re.compile(rf"{_LETTER}+(?:(?!{_SHORT})['’]{_LETTER}+)*|\d+|{_SHORT}|[^\w\s]|\n")
_PERSON = frozenset("i my me we our he she his her you your they their him mr mrs ms dr".split())
_MEDICAL = re.compile(
    r"(?:symptoms?|diseases?|syndromes?|disorders?|treatments?|treated|therap[a-z]{1,7}|diagnos[a-z]{1,6}|patients?|genes?|genetic|cancers?|tumou?rs?"
    r"|infections?|clinical|mutations?|mg|ml|blood|surg[a-z]{2,7}|chronic|acute|drugs?|medic[a-z]{2,7}|doctors?|pain|fever|inherited"
    r"|tests?|cells?|studies|study|hospital|dose|risk|health|care|vaccin[a-z]{1,5}|pregnan[a-z]{2}|prevalence|incidence|newborns?|deficiency"
    r"|individuals|bones?|muscles?|nerves?|skin|kidneys?|renal|cardiac|allerg[a-z]{1,4}|denies|exam[a-z]{0,7}|bilateral|cohort|trial|outcomes?"
    r"|mortality|morbidity|[a-z]{3,20}(?:itis|osis|emia|ectomy|pathy|algia|uria|plasty|oscopy|ology|plegia|trophy))"
)
_DULL_RUN = re.compile(rf"(?:[^\w\s]|[\d_]+|\s){{{_DULL + 1}}}")
# What may stand between two parts of one name, address or organisation.
JOINTS = frozenset(", . - ' ’ & / of de la le du des di da do del der den van von the and und y e al bin el".split())
EDGE = "<edge>"


class Token(NamedTuple):
    start: int
    end: int
    word: str


@dataclass(frozen=True, eq=False, slots=True)
class Word:
    """What the tagger sees of a word: itself if it is a frequent one, its shape, how common it is, the lists it is in.

    Compared by identity: `look` gives the same one for the same word, and sums are kept under it at little cost.
    """

    seen: str
    key: str
    short: str
    parts: tuple[str, ...]
    asked: bool = True
    """False: in a text that uses capitals this can be no part of a name, place or organisation."""


def tokens(text: str, known: Sequence[tuple[int, int, str]] = ()) -> list[Token]:
    """Words, numbers, signs and line ends; what is already known to be an identifier is one token with its kind as word."""
    if not known and not _DULL_RUN.search(text):
        return [Token(match.start(), match.end(), match[0]) for match in TOKEN.finditer(text)]
    out: list[Token] = []
    at, dull, spans = 0, 0, iter([*known, (len(text) + 1, len(text) + 1, "")])
    start, end, kind = next(spans)
    for match in TOKEN.finditer(text):
        while match.start() >= end:
            start, end, kind = next(spans)
            at = 0
        if match.end() <= start:
            dull = 0 if match[0][0].isalpha() else dull + 1
            if dull <= _DULL:
                out.append(Token(match.start(), match.end(), match[0]))
        elif not at:
            out.append(Token(start, end, f"<{kind}>"))
            at = 1
    return out


def case_of(text: str) -> str:
    """ "a" ordinary, "l" nothing but small letters, "u" nothing but capitals: capitals say nothing in the last two."""
    if MASK in text:
        return "a"  # the capitals may have stood where a placeholder is now
    if text.islower():
        return "l"
    return "u" if text.isupper() else "a"


def manner(words: Iterable[str]) -> str:
    """Is somebody spoken of, is it about medicine? A country or a rare word means another thing in an article on a disease."""
    person = medical = 0
    for word in words:
        sort = _sort(word)
        if sort == 1:
            person = 1
        elif sort == 2 and medical < 2:
            medical += 1
        if person and medical == 2:
            break
    return f"{person}{medical}"


@lru_cache(maxsize=32_768)
def _sort(word: str) -> int:
    low = word.lower()
    if low in _PERSON:
        return 1
    return 2 if _MEDICAL.fullmatch(low) else 0


@lru_cache(maxsize=32_768)
def look(word: str, case: str) -> Word:
    low = word.lower()
    if word[0] == "<" and len(word) > 1:
        return Word(word, word, word, ())
    if word.isdecimal():
        size = min(len(word), 6)
        return Word(f"#{size}", f"#{size}", "#", ())
    if not word[0].isalpha():
        return Word(low, low, low, ())
    shape = _shape(word, case)
    tier = lists.tiers().get(low, lists.OPEN) if len(word) > 1 else "1"
    mark = lists.marks().get(low, "")
    special = any(letter in "RBTMDKNQ" for letter in mark)
    seen = f"{low}/{shape[0]}" if tier in "0125" or special or len(low) <= 2 else f"{tier}/{shape[0]}"
    parts: tuple[str, ...] = ()
    if tier in "345o":
        parts = (f"-{low[-2:]}{shape}", f"-{low[-3:]}{shape}", f"-{low[-4:]}{shape}{tier}", f"{low[:3]}-{shape}")
    asked = shape not in "xl" or tier not in "01234" or bool(mark) or low in JOINTS
    return Word(seen, f"{shape}{tier}{mark}", shape + tier, parts, asked)


def _shape(word: str, case: str) -> str:
    if case != "a":
        return case
    if word.isupper():
        return "X" if len(word) == 1 else "W"
    if word[0].isupper():
        return "C" if word[1:].islower() else "M"
    return "x" if word.islower() else "m"


_END = Word(EDGE, EDGE, EDGE, ())


def own(word: Word, kind: str) -> list[str]:
    """Features of the word itself."""
    first = [f"0{word.key}", f"0={word.seen}", f"0{word.short}"]
    if "K" in word.key or "S" in word.key or "N" in word.key:
        first.append(f"0p{kind}{word.key}")  # a country: where somebody lives, or where a disease occurs?
    return first + [f"0{part}" for part in word.parts]


def beside(word: Word, where: str) -> list[str]:
    return [f"{where}{word.key}", f"{where}={word.seen}", f"{where}{word.short}"]


def joined(two: Word, one: Word, word: Word, after: Word, later: Word) -> list[str]:
    """Features of a word together with its neighbours."""
    k, a, b = word.short, one.seen, after.seen
    return [
        f"{a}|{k}",
        f"{k}|{b}",
        f"{a}|{k}|{b}",
        f"{two.seen}|{a}|{k}",
        f"{k}|{b}|{later.seen}",
        f"{one.short}|{word.key}|{after.short}",
    ]


def features(words: Sequence[Word], kind: str) -> list[list[str]]:
    """All features of every word; for training. `Tagger` sums the same ones, with what it has kept."""
    padded = [_END, _END, *words, _END, _END]
    out = []
    for i in range(2, len(padded) - 2):
        two, one, word, after, later = padded[i - 2 : i + 3]
        found = own(word, kind) + beside(one, "-1") + beside(after, "+1") + beside(two, "-2") + beside(later, "+2")
        out.append(found + joined(two, one, word, after, later))
    return out


Three = tuple[float, float, float]
_NEVER: Three = (-1e6, -1e6, -1e6)


class Tagger:
    """`scores` of the words of a text, `path` the best tags for them, `gaps` how close each came to another tag than "O"."""

    def __init__(self, weights: dict[str, Three], steps: list[list[float]], bias: dict[str, float]) -> None:
        self.weights, self.steps, self.bias = weights, steps, bias
        flat = [step for row in steps for step in row]
        self.reach = max(flat) - min(flat)
        self._own = lru_cache(maxsize=32_768)(self._sum_own)
        self._beside = lru_cache(maxsize=65_536)(self._sum_beside)
        self._joined = lru_cache(maxsize=16_384)(self._sum_joined)

    def _sum(self, found: Iterable[str]) -> Three:
        name = place = group = 0.0
        for feature in found:
            w = self.weights.get(feature)
            if w is not None:
                name, place, group = name + w[0], place + w[1], group + w[2]
        return name, place, group

    def _sum_own(self, word: Word, kind: str) -> Three:
        return self._sum(own(word, kind))

    def _sum_beside(self, word: Word, where: str) -> Three:
        return self._sum(beside(word, where))

    def _sum_joined(self, two: Word, one: Word, word: Word, after: Word, later: Word) -> Three:
        return self._sum(joined(two, one, word, after, later))

    def emissions(self, words: Sequence[Word], kind: str, asked: Sequence[bool] | None = None) -> list[Three]:
        """What speaks for each tag of each word; a word that is not `asked` about can only be "O"."""
        padded = [_END, _END, *words, _END, _END]
        own_, beside_, joined_ = self._own, self._beside, self._joined
        out = []
        for i in range(2, len(padded) - 2):
            if asked is not None and not asked[i - 2]:
                out.append(_NEVER)
                continue
            two, one, word, after, later = padded[i - 2 : i + 3]
            a, b, c = own_(word, kind), beside_(one, "-1"), beside_(after, "+1")
            d, e, f = beside_(two, "-2"), beside_(later, "+2"), joined_(two, one, word, after, later)
            out.append(
                (
                    a[0] + b[0] + c[0] + d[0] + e[0] + f[0],
                    a[1] + b[1] + c[1] + d[1] + e[1] + f[1],
                    a[2] + b[2] + c[2] + d[2] + e[2] + f[2],
                )
            )
        return out

    def scores(self, text: str, found: Sequence[Token], kind: str) -> list[Three]:
        """Where a text uses capitals, words in small letters are asked about only if they can be inside of a name or address."""
        case = case_of(text)
        words = [look(token.word, case) for token in found]
        return self.emissions(words, kind, [word.asked for word in words] if case == "a" else None)

    def gaps(self, scores: Sequence[Three], tags: Sequence[int], bias: float) -> list[float]:
        """For each token left as "O", how much is lost (zero or less) if it alone, or with the one before, is not."""
        steps, out, before = self.steps, [-1e9] * len(scores), _NEVER
        tops = (steps[1][1], steps[2][2], steps[3][3])
        for at, score in enumerate(scores):
            if tags[at] or score is _NEVER:
                before = _NEVER
                continue
            left, right = tags[at - 1] if at else 0, tags[at + 1] if at + 1 < len(tags) else 0
            stay = steps[left][0] + steps[0][right]
            best = max(score[k] + steps[left][k + 1] + steps[k + 1][right] for k in (0, 1, 2)) + bias - stay
            if before is not _NEVER:
                far = tags[at - 2] if at > 1 else 0
                both = max(score[k] + before[k] + tops[k] + steps[far][k + 1] + steps[k + 1][right] for k in (0, 1, 2))
                both += 2 * bias - steps[far][0] - steps[0][0] - steps[0][right]
                best = max(best, both)
            out[at] = best
            before = score
        return out

    def path(self, scores: Sequence[Three], bias: float) -> list[int]:
        """As `viterbi`, but what can only be "O" is left out: no pair of steps makes up for so low a score."""
        low = -2 * self.reach - bias
        tags, first, count = [0] * len(scores), 0, len(scores)
        while first < count:
            if scores[first] is _NEVER or max(scores[first]) < low:
                first += 1
                continue
            last = first
            while last < count and scores[last] is not _NEVER and max(scores[last]) >= low:
                last += 1
            if last - first == 1:
                tags[first] = self._alone(scores[first], bias)
            else:
                tags[first:last] = self.viterbi(scores[first:last], bias)
            first = last
        return tags

    def _alone(self, score: Three, bias: float) -> int:
        """The best tag of one word between others that are "O"."""
        best, tag = 2 * self.steps[0][0], 0
        for k in (0, 1, 2):
            here = self.steps[0][k + 1] + score[k] + bias + self.steps[k + 1][0]
            if here > best:
                best, tag = here, k + 1
        return tag

    def viterbi(self, scores: Sequence[Three], bias: float = 0.0) -> list[int]:
        """The best tags from "O" to "O"; `bias` is added to all but "O", `steps[a][b]` to each b after an a."""
        best, back = [0.0, -1e9, -1e9, -1e9], []
        (s00, s01, s02, s03), (s10, s11, s12, s13), (s20, s21, s22, s23), (s30, s31, s32, s33) = self.steps
        for name, place, group in scores:
            o, n, p, g = best
            ways = (
                (o + s00, n + s10, p + s20, g + s30),
                (o + s01, n + s11, p + s21, g + s31),
                (o + s02, n + s12, p + s22, g + s32),
                (o + s03, n + s13, p + s23, g + s33),
            )
            tops = [max(way) for way in ways]
            back.append([way.index(top) for way, top in zip(ways, tops, strict=True)])
            best = [tops[0], tops[1] + name + bias, tops[2] + place + bias, tops[3] + group + bias]
        tag = max(range(4), key=lambda last: best[last] + self.steps[last][0])
        tags = []
        for came in reversed(back):
            tags.append(tag)
            tag = came[tag]
        return tags[::-1]


@lru_cache(maxsize=1)
def load() -> Tagger:
    held = json.loads((lists.FOLDER / "tagger.json").read_text(encoding="utf-8"))
    weights = {name: (n / 100, p / 100, g / 100) for name, (n, p, g) in held["weights"].items()}
    return Tagger(weights, [[w / 100 for w in row] for row in held["steps"]], held["bias"])
