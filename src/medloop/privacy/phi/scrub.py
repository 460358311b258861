"""Remove identifiers before a text is kept for training or leaves: the 18 of Safe Harbor and China's, in Chinese and English.

    scrubber = Scrubber()                    # one per record: the same number gets the same placeholder everywhere in it
    scrubber.scrub("患者王芳，手机13800138000")    # "患者[NAME_1]，手机[PHONE_1]"
    assess("患者王芳").doubt                  # how likely something was missed, 0 to 1, with reasons

It fails closed twice: a text that still looks like it holds an identifier, or takes too long, raises `Unscrubbable`, and one that
`assess` doubts belongs in quarantine (docs/stages/privacy.md has the numbers). Not removed on purpose: years, states and
countries in medical articles, weekdays, public bodies.
"""

import gc
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from medloop.privacy.phi import announced, disguised, mentions
from medloop.privacy.phi.chinese import placed_names as chinese_placed
from medloop.privacy.phi.chinese import slots, unusual
from medloop.privacy.phi.english import placed_names, tagged_spans
from medloop.privacy.phi.english import unusual as english_unusual
from medloop.privacy.phi.find import PLACEHOLDER, PreparedText, find_in
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.normalize import fold, remove_invisible
from medloop.privacy.phi.patterns.left_over import is_left_over
from medloop.privacy.phi.spans import PhiSpan

VERSION = "18"
QUARANTINE = 0.8  # doubt from which a text waits for a person; what it costs and catches: docs/stages/privacy.md

_CHINESE_WEIGHT = 1.7  # characters half as likely to be a name as those that are removed are reason enough for quarantine
_ROUNDS = 12
_SHORT = 20_000  # characters
_CHANGING = "a text that keeps changing while it is scrubbed"
_ENDLESS = lazy_pattern(r"(?<!\d)\d{500}")  # each round replaces 40 digits of one piece
MAX_CHARACTERS = 400_000  # of one text; a longer one is held without a scan
BUDGET_S = 5.0  # processor time for all texts of one record; what is not done by then is held
# Three letters in a row that are neither Latin, Greek (units, receptors) nor Chinese.
_OTHER_SCRIPT = lazy_pattern(
    "[\u0250-\u02af\u1d00-\u1dbf\u2800-\u28ff\u3100-\u312f\U0001f1e6-\U0001f1ff\u0400-\u1cff\u2c80-\u2dff\u3040-\u30ff\ua000-\ud7ff\ufb1d-\ufdff\ufe70-\ufefc]{3}"
)


class Unscrubbable(Exception):
    """The remaining text still looks like it holds an identifier; `kind` says of what sort and never quotes the text."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclass(frozen=True)
class Assessment:
    """A scrubbed text and how far to trust it. At `QUARANTINE` and above a person must see it before it is used."""

    cleaned: str
    """Empty where the text cannot be scrubbed."""
    spans: tuple[PhiSpan, ...]
    """The identifiers, in offsets of the given text."""
    doubt: float
    """0: nothing suggests that something was missed; 1: something is certainly left."""
    reasons: tuple[str, ...]
    """Why, without a word of the text."""

    @property
    def quarantined(self) -> bool:
        return self.doubt >= QUARANTINE


@dataclass
class Scrubber:
    """Placeholders of one record: the same identifier has the same placeholder in its question and its answer."""

    counts: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    persons: mentions.Persons = field(default_factory=mentions.Persons)
    budget_s: float = BUDGET_S
    _last: PreparedText = field(init=False, repr=False, compare=False)  # the cleaned text, for its doubts
    _hides: bool = field(default=False, init=False, repr=False, compare=False)  # the given text showed signs of a disguise
    _says_name: bool = field(default=False, init=False, repr=False, compare=False)  # the given text says that a word is a name

    def scrub(self, text: str) -> str:
        """The text with placeholders; raises Unscrubbable when something is left."""
        cleaned, _ = self._clean(text)
        return cleaned

    def release(self, text: str) -> str:
        """The text with placeholders, for a reader or a file outside; raises Unscrubbable when it is doubtful, too."""
        assessment = self.assess(text)
        if assessment.quarantined:
            raise Unscrubbable(assessment.reasons[0])
        return assessment.cleaned

    def assess(self, text: str) -> Assessment:
        """Like `scrub`, but never raises: says how likely something was missed instead."""
        try:
            cleaned, spans = self._clean(text)
        except Unscrubbable as problem:
            return Assessment("", (), 1.0, (problem.kind,))
        found = _doubts(self._last, self._hides, self._says_name)
        doubts = sorted(
            ((round(doubt, 3), reason) for doubt, reason in found), reverse=True
        )  # rounded once, for all that reads it
        strong = tuple(reason for doubt, reason in doubts if doubt >= QUARANTINE)
        return Assessment(cleaned, tuple(spans), doubts[0][0] if doubts else 0.0, strong)

    def _clean(self, text: str) -> tuple[str, list[PhiSpan]]:
        """Scrub until nothing more is found: a placeholder can reveal what stands beside it."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unscrubbable("characters that are not Unicode text") from None
        if len(text) > MAX_CHARACTERS:
            raise Unscrubbable("a text that is too long to scan")
        # A short text is done long before its budget; asking for the processor time would cost more than scanning it.
        clock = time.thread_time if len(text) > _SHORT else time.monotonic
        started = clock()
        # A long text makes many short-lived objects; looking for cycles among them and all lists would be a tenth of its time.
        pauses = len(text) > _SHORT and gc.isenabled()
        if pauses:
            gc.disable()
        try:
            return self._clean_until(text, clock, started + self.budget_s)
        finally:
            if pauses:
                gc.enable()
            self.budget_s -= clock() - started

    def _clean_until(self, text: str, clock: Callable[[], float], deadline: float) -> tuple[str, list[PhiSpan]]:
        """`deadline`: the time on this clock at which the text is given up, and so held."""

        def check() -> None:
            if clock() >= deadline:
                raise Unscrubbable("a text that takes too long to scan")

        self._reserve(text)
        first: list[PhiSpan] | None = None
        for _ in range(_ROUNDS):
            self._last = PreparedText(text, check)
            if first is None:
                if _ENDLESS.search(self._last.plain):
                    raise Unscrubbable(_CHANGING)
                self._hides = disguised.may_hide(self._last.without_formed())  # once parts are replaced, the rest looks harmless
                self._says_name = unusual.says_name(self._last.plain)
                if disguised.SPELLED_OUT.search(self._last.plain):
                    raise Unscrubbable("a number or an address that could not be removed")
            spans = find_in(self._last, self.persons.placeholders)
            check()
            first = spans if first is None else first
            if not spans:
                if is_left_over(self._last.plain):
                    raise Unscrubbable("a number or an address that could not be removed")
                return text, first
            text = self._replace(text, spans)
        raise Unscrubbable(_CHANGING)

    def _replace(self, text: str, spans: Sequence[PhiSpan]) -> str:
        pieces, position = [], 0
        for span in spans:
            pieces += [text[position : span.start], self._placeholder(span.kind, text[span.start : span.end])]
            position = span.end
        return "".join([*pieces, text[position:]])

    def _reserve(self, text: str) -> None:
        """Placeholders that are already in the text keep their numbers; new ones continue from there."""
        for kind, number in PLACEHOLDER.findall(text) if "[" in text else ():
            self.counts[kind] = max(self.counts.get(kind, 0), int(number))

    def _placeholder(self, kind: str, value: str) -> str:
        if kind == "NAME":
            return self._person(value)
        key = (kind, re.sub(r"[\s\-.()]", "", fold(remove_invisible(value)[0])).casefold())
        if key not in self.known:
            self.known[key] = self._next(kind)
        return self.known[key]

    def _person(self, value: str) -> str:
        """One person, one placeholder: also when only the surname comes back, as long as only one person has it."""
        name = mentions.plain(value if value.isascii() else fold(remove_invisible(value)[0]))
        if name not in self.persons.placeholders:
            self.persons.add(name, self.persons.same_person(name) or self._next("NAME"))
        return self.persons.placeholders[name]

    def _next(self, kind: str) -> str:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return f"[{kind}_{self.counts[kind]}]"


def assess(text: str) -> Assessment:
    """One text by itself, see `Scrubber.assess`."""
    return Scrubber().assess(text)


def _doubts(text: PreparedText, hides: bool, says_name: bool) -> Iterator[tuple[float, str]]:
    """Reasons to doubt a scrubbed text, each with its strength from 0 to 1.

    `hides` and `says_name`: what the text showed before anything was replaced.
    """
    word = max(0.0, min(1.0, 1 - tagged_spans.nearest(text.tagged[1]) / tagged_spans.DOUBTLESS))
    if text.masks and word < 0.9 and tagged_spans.capital_left(text.plain, any(part.is_medical for part, _, _ in text.tagged[1])):
        word = 0.9
    if text.placed[1] >= placed_names.DOUBTFUL:
        word = max(word, 0.85)
    yield word, "a word that may be a name, a place or an organisation"
    yield min(1.0, _CHINESE_WEIGHT * text.chinese[1]), "characters that may be a Chinese name"
    chinese_doubt = says_name or slots.doubtful(text.plain) or unusual.may_name_by_word(text.plain)
    chinese_doubt = chinese_doubt or (text.has_han and chinese_placed.may_name(text.plain))
    if chinese_doubt or tagged_spans.name_may_be_left(text.plain) or english_unusual.may_open_note(text.plain):
        yield 0.85, "an ordinary word where a name is expected"
    if announced.is_left(text.plain):
        yield 0.85, "an identifier that is announced and was not found"
    if hides or (text.masks and disguised.may_hide(text.plain)):  # without a placeholder it is the text as it was given
        yield 0.95, disguised.REASON
    if not text.plain.isascii() and _OTHER_SCRIPT.search(text.plain):
        yield 0.9, "words in a script that the scrubber does not know"
