"""Every identifier of a text: what patterns, check digits, the English tagger, the Chinese network and titles give away."""

from collections.abc import Callable, Collection, Iterable

from medloop.privacy.phi import foreign_ids, mentions, term_names
from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese import names as chinese_names
from medloop.privacy.phi.chinese import places as chinese_places
from medloop.privacy.phi.chinese import products, second_opinion
from medloop.privacy.phi.chinese import titled_names as chinese_titles
from medloop.privacy.phi.english import placed_names, tagged_spans
from medloop.privacy.phi.english import places as english_places
from medloop.privacy.phi.english import titled_names as english_titles
from medloop.privacy.phi.english import unusual as english_unusual
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.normalize import MASK, fold, remove_invisible
from medloop.privacy.phi.noted_text import note
from medloop.privacy.phi.numbers import MIN_DIGITS, find_numbers
from medloop.privacy.phi.patterns import find_patterns
from medloop.privacy.phi.spans import PhiSpan, Span, merge, outside

PLACEHOLDER = lazy_pattern(r"\[([A-Z]+)_(\d{1,9})\]")
_DIGIT = lazy_pattern(r"\d")
_HAN = lazy_pattern(r"[\u3400-\u9fff]")
_LATIN = lazy_pattern(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_LOOKED_AHEAD, _MOST_AHEAD = 1000, 8000  # characters of a text and of all
_LONG = 20_000  # characters; in a shorter text a placeholder is as long as it is written
_PERSONAL = frozenset(("ID", "CARD", "PHONE", "RECORD", "EMAIL", "PLATE", "ADDRESS", "SSN"))  # beside these a name is likely


class PreparedText:
    """A text as the finders read it: folded, without invisible characters, placeholders masked."""

    def __init__(self, text: str, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called between the steps and may raise to give the text up."""
        visible, self._offsets = remove_invisible(text)
        folded = fold(visible)
        self.masks = [(m.start(), m.end(), m[1]) for m in PLACEHOLDER.finditer(folded)] if "[" in folded else []
        self.plain = PLACEHOLDER.sub(lambda m: MASK * len(m[0]), folded) if self.masks else folded
        if self.masks and len(folded) > _LONG:
            self._shorten_masks()
        note(self.plain)
        check()
        self.formed = _find_forms(self.plain)
        check()
        known = merge([*(span for span in self.formed if span[2] != "ADDRESS"), *self.masks])
        about_person = bool(self.masks) or any(kind in _PERSONAL for _, _, kind in self.formed)
        about_person = about_person or tagged_spans.is_about_person(self.plain)
        self.tagged = tagged_spans.find(tagged_spans.parts_of(self.plain, known), about_person)
        self.has_han = _HAN.search(self.plain) is not None
        self.placed = ([], 0.0) if self.has_han else placed_names.find(self.tagged[1])
        check()
        self.chinese = ([], 0.0, None) if self.plain.isascii() else second_opinion.find(self.plain, about_person)

    def _shorten_masks(self) -> None:
        """Two signs for each placeholder: a long text of names would be read at more than twice its length."""
        pieces, offsets, masks, position = list[str](), list[int](), list[Span](), 0
        for start, end, kind in self.masks:
            pieces += [self.plain[position:start], MASK * 2]
            offsets += [*range(position, start), start, end - 1]
            masks.append((len(offsets) - 2, len(offsets), kind))
            position = end
        pieces.append(self.plain[position:])
        offsets += range(position, len(self.plain))
        before = self._offsets
        self._offsets = offsets if before is None else [before[offset] for offset in offsets]
        self.plain, self.masks = "".join(pieces), masks

    def without_formed(self) -> str:
        """The plain text with a mask over everything that its form gives away."""
        pieces, position = [], 0
        for start, end, _ in merge(self.formed):
            pieces += [self.plain[position:start], MASK * (end - start)]
            position = end
        return "".join([*pieces, self.plain[position:]])

    def original(self, span: Span) -> PhiSpan:
        """The span of the plain text in offsets of the given text."""
        start, end, kind = span
        return (
            PhiSpan(start, end, kind)
            if self._offsets is None
            else PhiSpan(self._offsets[start], self._offsets[end - 1] + 1, kind)
        )


def look_ahead(texts: Iterable[str]) -> None:
    """Do at once for all of these texts what costs less together; the short ones only, and not too many."""
    folded, size = dict[str, None](), 0
    for text in texts:
        if len(text) <= _LOOKED_AHEAD and (size := size + len(text)) <= _MOST_AHEAD:
            folded[fold(remove_invisible(text)[0])] = None
    note(*folded)
    second_opinion.look_ahead(list(folded))


def find(text: str, persons: Collection[str] = ()) -> list[PhiSpan]:
    """Every identifier, in order and without overlap; `persons` are names already known from the same record."""
    return find_in(PreparedText(text), persons)


def find_in(text: PreparedText, persons: Collection[str]) -> list[PhiSpan]:
    plain = text.plain
    guessed = {*text.tagged[0], *text.placed[0]}
    has_latin = _LATIN.search(plain) is not None
    if has_latin:
        guessed.update(english_titles.find(plain))
        guessed.update(english_unusual.find(plain))
    if text.has_han:
        guessed.update(chinese_titles.find(plain, text.chinese[2]))
        guessed.update((start, _known_end(plain, start, end, persons), "NAME") for start, end in text.chinese[0])
    guessed = {_with_hyphens(plain, span) for span in guessed} if "-" in plain else guessed
    guessed = {_with_initials(plain, span) for span in guessed} if _INITIAL.search(plain) else guessed
    guessed = {span for span in guessed if not is_term(plain, span) or chinese_names.is_titled(plain, span[1])}
    if text.has_han:
        guessed = {span for span in guessed if span[2] != "NAME" or not products.is_product(plain, span[0], span[1])}
    spans = [*text.formed, *sorted(guessed, reverse=True)]  # a set has no order; of two equal spans ORG comes before NAME
    spans += term_names.find(plain, text.has_han, has_latin)
    if has_latin:
        spans += english_places.find(plain)
    if text.has_han:
        spans += chinese_places.find(plain)
    if not spans and not persons:
        return []
    spans += mentions.find(plain, [*persons, *(plain[start:end] for start, end, kind in spans if kind == "NAME")])
    return [text.original(span) for span in outside(merge(spans), text.masks)]


_PART_BEFORE, _PART_BEHIND = lazy_pattern(r"\b[A-Z][a-z]{2,20}-$"), lazy_pattern(r"-[A-Z][a-z]{2,20}\b")


def _with_hyphens(plain: str, span: Span) -> Span:
    """A name with what a hyphen joins to it, an eponym too: Hodgkin-(Ames)."""
    start, end, kind = span
    if kind != "NAME" or not (
        "-" in plain[max(0, start - 2) : start] or plain.startswith("-", end)
    ):  # "-", or "-" and a line end
        return span
    before, behind = _PART_BEFORE.search(plain, max(0, start - 22), start), _PART_BEHIND.match(plain, end)
    return before.start() if before else start, behind.end() if behind else end, kind


_INITIAL = lazy_pattern(r"(?<![A-Za-z.])(?:[A-Z]\. ?){1,3}(?=[A-Z][a-z])")


def _with_initials(plain: str, span: Span) -> Span:
    """A name with the initials before it: (B. W. )Carver."""
    start, end, kind = span
    if kind != "NAME":
        return span
    return next((m.start() for m in _INITIAL.finditer(plain, max(0, start - 10), end) if m.end() == start), start), end, kind


def _known_end(folded: str, start: int, end: int, persons: Collection[str]) -> int:
    """A name already known from the record ends where it did: "王芳好转" after "王芳"."""
    return next((last for last in range(start + 2, end) if folded[start:last] in persons), end) if persons else end


def find_structured(text: str) -> list[Span]:
    """What its form alone gives away (numbers, network addresses, dates), in order and without overlap; no postal addresses."""
    return merge([span for span in _find_forms(fold(text)) if span[2] != "ADDRESS"])


def _find_forms(folded: str) -> list[Span]:
    digits = len(_DIGIT.findall(folded))
    numbers = find_numbers(folded) if digits >= MIN_DIGITS else ()
    return [*numbers, *foreign_ids.find(folded, digits), *find_patterns(folded, digits)]
