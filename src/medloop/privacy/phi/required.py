"""Which pieces of text a regular expression cannot do without, worked out from its syntax tree; for guards.py and noted_text.py.

    required("姓名[:：]|电话").pieces       # -> [{"姓名", "电话"}] or rarer pieces of them

A piece is up to four characters in a row, in lower case; one of each set is in every match. Beside them stand pieces of shapes,
for texts in ASCII: a capital is "A", a small letter "a", a digit "0".
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # the standard library's own names for the tree's nodes
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

SIZE = 4  # characters of a piece, at most
_MOST = 1500  # strings that a part of an expression may stand for
_LONG_SHAPE = 12  # characters of a piece of shapes, at most
_MOST_SHAPES = 8  # pieces of shapes that are looked for
_FREQUENT = 0.9  # pieces that so many texts have are not worth the look
_CLAUSES = 4  # sets of pieces for an expression, of letters and of shapes each

SHAPES = {code: chr(code) for code in range(128)}
SHAPES |= {code: " " for code in range(128) if chr(code).isspace() and code != ord("\n")}
SHAPES |= {code: "A" if code < ord("a") else "a" for code in range(128) if chr(code).isalpha()}
SHAPES |= {code: "0" for code in range(128) if chr(code).isdigit()}


class _Part(NamedTuple):
    """What is known of a part of an expression."""

    strings: frozenset[str] | None
    """All it can match, in lower case or in shapes; None where they are too many."""
    clauses: list[frozenset[str]]
    """Of each, one string is in every match."""
    edges: frozenset[str] | None = None
    """Of a part that is repeated: with one of them every match begins, and with one it ends."""


_NOTHING = _Part(frozenset(("",)), [])
_ANYTHING = _Part(None, [])


class Required(NamedTuple):
    """A text in which an expression matches has one piece of each of these."""

    pieces: list[frozenset[str]]
    shapes: list[tuple[str, ...]]


def required(pattern: str, flags: int = 0) -> Required:
    tree = parser.parse(pattern, flags)
    any_case = bool(tree.state.flags & re.IGNORECASE)
    strings = _ranked({frozenset(map(_rarest, clause)) for clause in _Letters().of_sequence(tree, any_case).clauses})
    shapes = {_shortest(clause) for clause in _Shapes().of_sequence(tree, any_case).clauses if len(clause) <= 8 * _MOST_SHAPES}
    return Required(strings, [tuple(clause) for clause in _ranked(shapes) if len(clause) <= _MOST_SHAPES])


def _ranked(clauses: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    ranked = sorted(clauses, key=lambda clause: (_share(clause), len(clause)))
    return [clause for clause in ranked[:_CLAUSES] if _share(clause) < _FREQUENT]


def _shortest(clause: frozenset[str]) -> frozenset[str]:
    """Without the strings that contain another."""
    short = {string[:_LONG_SHAPE] for string in clause}
    return frozenset(string for string in short if not any(other != string and other in string for other in short))


class _Letters:
    """Reads an expression as strings in lower case."""

    def of_sequence(self, items: Iterable[Any], any_case: bool) -> _Part:
        run, clauses, exact = frozenset(("",)), list[frozenset[str]](), True
        for code, value in items:
            part = self.of_item(code, value, any_case)
            clauses += part.clauses
            if part.strings is not None and len(run) * len(part.strings) <= _MOST:
                run = frozenset(before + behind for before in run for behind in part.strings)
                continue
            exact, edges = False, part.strings if part.strings is not None else part.edges
            if part.strings is None and edges is not None and len(run) * len(edges) <= _MOST:
                run = frozenset(before + behind for before in run for behind in edges)
            clauses.append(run)
            run = edges if edges is not None else frozenset(("",))
        clauses.append(run)
        return _Part(run if exact else None, [clause for clause in clauses if "" not in clause])

    def of_item(self, code: Any, value: Any, any_case: bool) -> _Part:
        if code is codes.LITERAL:
            return self.of_class([(code, value)], any_case)
        if code is codes.IN:
            return self.of_class(value, any_case)
        if code is codes.SUBPATTERN:
            _, more, less, items = value
            return self.of_sequence(items, bool(((any_case * re.IGNORECASE) | more) & ~less & re.IGNORECASE))
        if code is codes.ATOMIC_GROUP:
            return self.of_sequence(value, any_case)
        if code is codes.BRANCH:
            return _either([self.of_sequence(branch, any_case) for branch in value[1]])
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, repeated = value
            return self.of_repeat(least, most, repeated, any_case)
        if code is codes.ASSERT:
            return _Part(_NOTHING.strings, _with_strings(self.of_sequence(value[1], any_case)))
        return _NOTHING if code in (codes.AT, codes.ASSERT_NOT) else _ANYTHING

    def of_repeat(self, least: int, most: int, items: Iterable[Any], any_case: bool) -> _Part:
        part = self.of_sequence(items, any_case)
        if least == 0:
            return _Part(part.strings | {""}, []) if most == 1 and part.strings is not None else _ANYTHING
        if least == most and part.strings is not None and len(part.strings) ** least <= _MOST:
            strings = frozenset(("",))
            for _ in range(least):
                strings = frozenset(before + behind for before in strings for behind in part.strings)
            return _Part(strings, part.clauses)
        part = self.at_least(part, least)
        return _Part(None, _with_strings(part), part.strings)

    def at_least(self, part: _Part, least: int) -> _Part:
        """The part as often in a row as it is at least, as far as that can be said."""
        strings = part.strings
        while strings is not None and least > 1 and len(strings) * len(part.strings or ()) <= _MOST:
            strings, least = frozenset(before + behind for before in strings for behind in part.strings or ()), least - 1
        return _Part(strings, part.clauses)

    def of_class(self, members: Sequence[Any], any_case: bool) -> _Part:
        points = _points(members)
        if points is None or len(points) > _MOST:
            return _ANYTHING
        chars = list(map(chr, points))
        if not all(char.isascii() or char.lower() == char == char.upper() for char in chars):
            return _ANYTHING
        return _Part(frozenset(char.lower() for char in chars), [])


class _Shapes(_Letters):
    """Reads an expression as shapes of the ASCII characters that it can match."""

    def of_class(self, members: Sequence[Any], any_case: bool) -> _Part:
        shapes = _shapes_of(tuple(members), any_case)
        return _Part(shapes, []) if len(shapes) < _MOST_SHAPES else _ANYTHING


@lru_cache(maxsize=1024)
def _shapes_of(members: tuple[Any, ...], any_case: bool) -> frozenset[str]:
    return frozenset(SHAPES[point] for point in range(128) if is_member(point, members, any_case))


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    codes.CATEGORY_DIGIT: str.isdecimal,
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    codes.CATEGORY_NOT_DIGIT: lambda char: not char.isdecimal(),
    codes.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    codes.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


def is_member(point: int, members: Sequence[Any], any_case: bool) -> bool:
    """Whether a class of an expression has this ASCII character."""
    forms = {point, ord(chr(point).lower()), ord(chr(point).upper())} if any_case else {point}
    negated = members[0][0] is codes.NEGATE
    for code, value in members[negated:]:
        if code is codes.LITERAL and value in forms:
            return not negated
        if code is codes.RANGE and any(value[0] <= form <= value[1] for form in forms):
            return not negated
        if code is codes.CATEGORY and _CATEGORIES[value](chr(point)):
            return not negated
    return bool(negated)


def _points(members: Iterable[Any]) -> list[int] | None:
    """The codes of the characters of a class; None where they are too many."""
    points = list[int]()
    for code, value in members:
        if code is codes.LITERAL:
            points.append(value)
        elif code is codes.RANGE and value[1] - value[0] < 2 * _MOST:
            points += range(value[0], value[1] + 1)
        else:
            return None
    return points


def _with_strings(part: _Part) -> list[frozenset[str]]:
    return [*part.clauses, *([part.strings] if part.strings is not None and "" not in part.strings else [])]


def _either(parts: Sequence[_Part]) -> _Part:
    strings: frozenset[str] | None = None
    if all(part.strings is not None for part in parts):
        strings = frozenset[str]().union(*(part.strings or () for part in parts))
    each = [_best(_with_strings(part)) for part in parts]
    clauses = [] if None in each else [frozenset[str]().union(*(clause for clause in each if clause is not None))]
    return _Part(strings if strings is not None and len(strings) <= _MOST else None, clauses)


def _best(clauses: list[frozenset[str]]) -> frozenset[str] | None:
    """The clause that fewest texts fulfil."""
    return min(clauses, key=lambda clause: _share(frozenset(map(_rarest, clause))), default=None)


# How often a letter or a shape stands in a text of ours, in thousandths; a Chinese character or another sign is taken as rare.
_SHARES = dict(
    zip(
        " etaonirsldhcumpfgywbvkxjqz0123456789.,-\nA",
        (160, 95, 70, 65, 60, 58, 58, 50, 52, 34, 32, 36, 32, 24, 26, 22, 18, 17, 16, 14, 13, 9, 7, 2, 1, 1, 1,
         6, 6, 5, 4, 4, 5, 3, 3, 3, 3, 10, 10, 4, 5, 20), strict=True,
    )
)  # fmt: skip
_CHARACTERS = 150  # of a text
# Pieces that are frequent in medical questions and answers, by the least share of texts of 150 characters that have them.
_SEEN = {
    0.3: (
        " a| an| b| c| d| f| h| i| in| m| n| o| p| r| s| t| th| the| to| w|, |. |a |al|an|ar|as|at|ca|co|d |de|di|e |ea|ed|ed |"
        "en|er|er |es|fo|g |ha|he|he |ic|in|ing|io|is|is |it|l |le|ma|me|n |nd|nd |ne|ng|ng |nt|o |om|on|or|ou|r |re|ri|ro|s |s"
        "e|st|t |ta|te|th|the |ti|to|ve|y "
    ),
    0.12: (
        " a | and| be| ca| co| con| di| fo| for| ha| he| in | is| is | ma| me| no| of| of | on| pa| pr| re| se| st| tha| to | w"
        "h| wi| wit| yo| you|al |an |and|and |as |at |ate|atio|com|d t|e a|e c|e i|e p|e t|ear|en |ent |es |for|for |hat |her|i"
        "ng |ion |ith |le |men|n t|nt |of |on |or |re |s a|s i|s s|s t|se |st |t i|t t|th |tion|to |ts |with"
    ),
    0.05: (
        " ab| abo| ac| ad| al| ar| are| as| at| at | ba| be | bi| bo| br| by| by | can| ch| cl| com| da| de| do| dr| ex| fa| fe"
        "| fi| fr| fro| ge| go| hav| her| hi| ho| i | inf| it| it | la| le| li| lo| med| mi| mo| ne| on | or| or | pai| pat| pe"
        "| po| pre| rea| ri| sa| see| sh| si| so| sp| sta| su| sy| te| thi| tr| un| us| wa| was| we| wo| ye|'s |, a|, an|, i|, "
        "s|, t|, w|-ol|-old|-ye|-yea|. th|a c|a s|ad |age|age |ampl|ance|ant |ar |ar-o|are |atie|ave|ay |be |by |cal |can |ce |"
        "ch |comp|cont|ctor|d a|d b|d f|d i|d in|d m|d s|d th|d to|d w|dica|doct|e b|e d|e e|e f|e h|e ha|e in|e l|e m|e o|e pa"
        "|e r|e s|e th|e w|ear-|ease|ed b|ed i|ed t|edic|een |end|ents|es, |esen|ever|exam|f t|f th|form|from|g a|g t|ge |ght |"
        "h a|har|he c|he p|her |here|his|his |ht |ical|ide|ient|ight|in t|ine|ions|is a|is i|is s|ive|ive |l c|ll |ly |male|man"
        "|mati|me |med|medi|ment|mple|my |n a|n b|n f|n i|n is|n o|n s|n th|nce |ncer|nder|ne |ng a|ng t|nin|ns |nts |o a|o t|o"
        " th|oct|octo|of t|old|old |om |on i|one|or a|orma|ot |our|our |out |ow |pain|pati|per|port|pres|r a|r c|r d|r p|r s|r "
        "t|r th|r-ol|r. |ran|reat|rese|rom |rt |ry |s a |s an|s c|s in|s o|s of|s th|s to|s w|s. |see|sent|she|sin|son|ss |t a|"
        "t f|t h|t is|t s|t th|t to|t's |te |ted |ten|ter |that|ther|this|tien|ting|tive|tmen|to t|trea|was|was |y d|y o|y of|y"
        " s|y t|year|患者"
    ),
}
_SEEN_SHARES = {piece: share for share, pieces in _SEEN.items() for piece in pieces.split("|")}


@lru_cache(maxsize=65_536)
def _chance(piece: str) -> float:
    """How likely a piece is in a text; a rough guess."""
    if piece in _SEEN_SHARES:
        return 1.5 * _SEEN_SHARES[piece]
    chance = 1.0
    for char in piece:
        chance *= _SHARES.get(char, 3) / 1000
    return min(0.9, _CHARACTERS * chance)


@lru_cache(maxsize=65_536)
def _rarest(string: str) -> str:
    """A piece of the string that few texts have."""
    size = min(SIZE, len(string))
    return min((string[start : start + size] for start in range(len(string) - size + 1)), key=_chance)


def _share(clause: frozenset[str]) -> float:
    without = 1.0
    for piece in clause:
        without *= 1 - _chance(piece)
    return 1 - without
