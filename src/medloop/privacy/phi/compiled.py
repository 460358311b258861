r"""Regular expressions compiled so that a search passes quickly over text in which no match begins; for guards.py.

    compiled(r"\b(?i:granny|gran|my aunt)")     # finds what re.compile finds

`re` tries an expression at every character unless it begins with a letter or a class of letters. Ours begin with a word boundary,
a look behind or many words. So the syntax tree is changed, but never what it matches:

1. "a" without regard to case becomes [aA]: `re` passes over an alternative that begins with a class without trying it.
2. Alternatives that begin alike are joined: granny|gran|my becomes gran(?:ny|)|my.
3. The search is told with which characters a match can begin, and tries no others.

This uses parts of `re` without a public name, so it is done only in the versions of Python in which a test has compared all
expressions of the scrubber with `re.compile`; in others they are compiled by `re.compile`, slower and with the same matches.
"""

import _sre  # type: ignore[import-not-found]
import re
import sys
from functools import lru_cache
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as codes  # type: ignore[attr-defined]  # the standard library's own names for the tree's nodes
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from medloop.privacy.phi.required import is_member

COMPARED = ((3, 11), (3, 12), (3, 13))
Members = frozenset[Any]  # of a class, as the tree of an expression has them
_IGNORECASE = re.IGNORECASE.value
_ASCII = range(128)
_BEYOND_ASCII = (codes.RANGE, (128, 0x10FFFF))
_MOST_STARTS = 100  # ASCII characters; with more of them the look costs more than it saves
_FEW = 6  # members that are looked at one after the other; more of them become a table
_OTHER_FORMS = "\u0130\u0131\u017f\u212a"  # not ASCII, and equal to i, s or k without regard to case
_WITHOUT_CASE = range(0x2E80, 0xA4D0)  # Chinese, Japanese and their signs
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    if sys.version_info[:2] not in COMPARED:
        return re.compile(pattern, flags)
    tree = parser.parse(pattern, flags)
    state, any_case = tree.state, bool(tree.state.flags & _IGNORECASE)
    state.flags &= ~_IGNORECASE
    tree = _rewritten(tree, any_case)
    starts = _starts_of(tree).members
    _optimize_classes(tree)
    code = compiler._code(tree, state.flags)
    has_own = code[2]  # `re` knows already how a match begins
    if not has_own and starts is not None and tree.getwidth()[0] and (charset := _charset(starts)):
        info = [codes.INFO, 0, codes.SRE_INFO_CHARSET, *code[3:5]]
        compiler._compile_charset(charset, state.flags, info)
        info[1] = len(info) - 1
        code = [*info, *code[1 + code[1] :]]
    names = {index: name for name, index in state.groupdict.items()}
    by_index = tuple(names.get(index) for index in range(state.groups))
    result: re.Pattern[str] = _sre.compile(pattern, state.flags, code, state.groups - 1, state.groupdict, by_index)
    return result


@lru_cache(maxsize=1024)
def _charset(starts: Members) -> list[Any]:
    """A class of these members that is quickly looked up; empty where it is not worth it."""
    near = [(codes.LITERAL, point) for point in sorted(frozenset().union(*map(_ascii_points, starts)))]
    if len(near) > _MOST_STARTS:
        return []
    far = [(codes.RANGE, (max(value[0], 128), value[1])) for code, value in starts if code is codes.RANGE and value[1] > 127]
    far += [(code, value) for code, value in starts if code is codes.CATEGORY or (code is codes.LITERAL and value > 127)]
    if len(far) > _FEW:
        return list(compiler._optimize_charset([*near, *sorted(far, key=repr)])[0])
    return [*(compiler._optimize_charset(near)[0] if near else ()), *sorted(far, key=repr)]


@lru_cache(maxsize=4096)
def _ascii_points(member: Any) -> frozenset[int]:
    code, value = member
    if code is codes.CATEGORY:
        return frozenset(point for point in _ASCII if is_member(point, (member,), False))
    first, last = (value, value) if code is codes.LITERAL else value
    return frozenset(range(first, min(last, 127) + 1))


def _optimize_classes(items: Any) -> None:
    """Give `re` the form of each class that it would work out by itself, for every expression anew: a fifth of compiling."""
    for index, (code, value) in enumerate(items.data):
        if code is codes.IN:
            items[index] = code, _optimized(tuple(value))
        elif code is codes.SUBPATTERN and not value[1] & _IGNORECASE:
            _optimize_classes(value[3])
        elif code is codes.BRANCH:
            for branch in value[1]:
                _optimize_classes(branch)
        elif code in _REPEATS:
            _optimize_classes(value[2])
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            _optimize_classes(value[1])


@lru_cache(maxsize=1024)
def _optimized(members: tuple[Any, ...]) -> list[Any]:
    return list(compiler._optimize_charset(list(members))[0])


def _rewritten(items: Any, any_case: bool) -> Any:
    return parser.SubPattern(items.state, [_item(items.state, code, value, any_case) for code, value in items.data])


def _item(state: Any, code: Any, value: Any, any_case: bool) -> tuple[Any, Any]:
    if code is codes.SUBPATTERN:
        group, more, less, items = value
        in_any_case = bool(((any_case * _IGNORECASE) | more) & ~less & _IGNORECASE)
        return code, (group, more & ~_IGNORECASE, less & ~_IGNORECASE, _rewritten(items, in_any_case))
    if code is codes.ATOMIC_GROUP:
        return code, _rewritten(value, any_case)
    if code is codes.BRANCH:
        return code, (None, _joined(state, [_rewritten(branch, any_case).data for branch in value[1]]))
    if code in _REPEATS:
        return code, (*value[:2], _rewritten(value[2], any_case))
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return code, (value[0], _rewritten(value[1], any_case))
    if not any_case or code in (codes.AT, codes.ANY):
        return code, value
    members = [(code, value)] if code is codes.LITERAL else value if code is codes.IN else None
    forms = _with_other_case(tuple(members)) if members is not None else None
    if forms is None:  # stays as it is, in a group without regard to case
        return codes.SUBPATTERN, (None, _IGNORECASE, 0, parser.SubPattern(state, [(code, value)]))
    return forms[0] if code is codes.LITERAL and len(forms) == 1 else (codes.IN, list(forms))


@lru_cache(maxsize=4096)
def _with_other_case(members: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A class that needs no look at the case; None where it has letters that are not ASCII."""
    forms = dict.fromkeys(members)
    for code, value in members:
        if code is codes.LITERAL or code is codes.RANGE:
            first, last = (value, value) if code is codes.LITERAL else value
            if last > 127 and not (first in _WITHOUT_CASE and last in _WITHOUT_CASE) and (first != last or _has_case(chr(first))):
                return None
            forms |= dict.fromkeys(
                (codes.LITERAL, ord(form)) for point in range(first, min(last, 127) + 1) for form in _other_forms(chr(point))
            )
    return tuple(forms)


def _has_case(char: str) -> bool:
    return not char.lower() == char == char.upper()


@lru_cache(maxsize=128)
def _other_forms(char: str) -> str:
    """What is equal to this ASCII character without regard to case."""
    equal = re.compile(re.escape(char), re.IGNORECASE)
    return "".join(form for form in (char.lower(), char.upper(), *_OTHER_FORMS) if form != char and equal.fullmatch(form))


def _joined(state: Any, branches: list[list[Any]]) -> list[Any]:
    """The alternatives, those that begin alike as one. No other that can match in the same place is passed."""
    groups, of_first, last_with = list[list[list[Any]]](), dict[tuple[Any, ...], int](), dict[int, int]()
    after = 0  # the first group that others may join: those before stand before an alternative that may begin with anything
    for branch in branches:
        first = _first_of(branch)
        group = of_first.get(first, -1) if first is not None else -1
        if first is None or group < after or any(last_with[point] > group for _, point in first):
            group = len(groups)
            groups.append([])
        groups[group].append(branch)
        if first is None:
            after = len(groups)
        else:
            of_first[first] = group
            last_with |= dict.fromkeys((point for _, point in first), group)
    return [_join(state, alike) for alike in groups]


def _join(state: Any, alike: list[list[Any]]) -> Any:
    if len(alike) == 1:
        return parser.SubPattern(state, alike[0])
    rests = _joined(state, [branch[1:] for branch in alike])
    return parser.SubPattern(state, [alike[0][0], *(rests[0] if len(rests) == 1 else [(codes.BRANCH, (None, rests))])])


def _first_of(branch: list[Any]) -> tuple[Any, ...] | None:
    """The character or the small class with which an alternative begins."""
    if not branch or branch[0][0] not in (codes.LITERAL, codes.IN):
        return None
    members = (branch[0],) if branch[0][0] is codes.LITERAL else tuple(branch[0][1])
    return members if all(code is codes.LITERAL for code, _ in members) else None


class _Starts(NamedTuple):
    members: Members | None
    """The class of the characters with which a match begins; None: any."""
    empty: bool
    """Whether it can be empty, so that what follows begins the match."""


def _starts_of(items: Any) -> _Starts:
    members = Members()
    for code, value in items.data:
        part = _starts_of_item(code, value)
        if part.members is None:
            return part
        members |= part.members
        if not part.empty:
            return _Starts(members, False)
    return _Starts(members, True)


def _starts_of_item(code: Any, value: Any) -> _Starts:
    if code is codes.LITERAL:
        return _Starts(Members(((code, value),)), False)
    if code is codes.IN:
        return _Starts(_without_negation(tuple(value)), False)
    if code in (codes.AT, codes.ASSERT, codes.ASSERT_NOT):
        return _Starts(Members(), True)
    if code is codes.SUBPATTERN and not value[1] & _IGNORECASE:
        return _starts_of(value[3])
    if code is codes.ATOMIC_GROUP:
        return _starts_of(value)
    if code in _REPEATS:
        part = _starts_of(value[2])
        return _Starts(part.members, part.empty or value[0] == 0)
    if code is codes.BRANCH:
        parts = [_starts_of(branch) for branch in value[1]]
        members = [part.members for part in parts if part.members is not None]
        return _Starts(Members().union(*members) if len(members) == len(parts) else None, any(part.empty for part in parts))
    return _Starts(None, True)


@lru_cache(maxsize=4096)
def _without_negation(members: tuple[Any, ...]) -> Members:
    """The members of a class; of one that says what is not in it, perhaps more of those that are not ASCII."""
    if members[0][0] is not codes.NEGATE:
        return Members(members)
    return Members([*((codes.LITERAL, point) for point in _ASCII if is_member(point, members, False)), _BEYOND_ASCII])
