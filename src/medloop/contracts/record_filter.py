"""A filter over feedback as a small tree: conditions joined by all, any and none. Written as YAML or JSON.

    all:
      - {field: language, equals: zh}
      - any:
          - {field: stars, at_most: 2}
          - {field: kind, equals: correction}
      - none: [{field: rater, equals: dr.li}]

A number that a record does not have fits no condition; a record may have several values of a field (its strata, two versions),
and then one of them is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any, get_args

from pydantic import Field, model_validator

from medloop.contracts.base import Contract
from medloop.contracts.dataset import Language, Stratum
from medloop.contracts.feedback import Purpose

MOST_NODES, DEEPEST = 60, 6
FIELDS = "kind|stars|liked|critical|reward|stratum|language|rater|role|version|agent|day|consent"
YES_NO = ("yes", "no")
KNOWN_VALUES: dict[str, tuple[str, ...]] = {
    "kind": ("rating", "choice", "correction"), "liked": YES_NO, "critical": YES_NO, "stratum": get_args(Stratum),
    "language": get_args(Language), "consent": get_args(Purpose),
}  # fmt: skip
FilterField = Annotated[str, Field(pattern=rf"^({FIELDS}|axis\.[a-z][a-z0-9_]{{1,31}})$")]
Word = Annotated[str, Field(min_length=1, max_length=200)]
FactValue = frozenset[str] | float | None
Facts = Callable[[str], FactValue]  # by field: words, a number, or None where the record has none


class FilterTree(Contract):
    """One node: a group (`all`, `any` or `none` of its parts), or a condition on a field."""

    all: tuple[FilterTree, ...] | None = Field(None, min_length=1, max_length=20)
    any: tuple[FilterTree, ...] | None = Field(None, min_length=1, max_length=20)
    none: tuple[FilterTree, ...] | None = Field(None, min_length=1, max_length=20)
    field: FilterField | None = None
    equals: Word | float | None = None
    one_of: tuple[Word, ...] | None = Field(None, min_length=1, max_length=50)
    at_least: float | Word | None = None
    at_most: float | Word | None = None

    @model_validator(mode="before")
    @classmethod
    def _words_of_yaml(cls, values: Any) -> Any:
        """YAML reads yes, no and 2026-11-18 without quotes as truth values and a date; here they are words."""
        if not isinstance(values, Mapping):
            return values
        read = {name: _as_word(values[name]) for name in ("equals", "at_least", "at_most") if name in values}
        if isinstance(values.get("one_of"), list):
            read["one_of"] = [_as_word(value) for value in values["one_of"]]
        return {**values, **read}

    @model_validator(mode="after")
    def _is_one_thing(self) -> FilterTree:
        groups = [name for name in ("all", "any", "none") if getattr(self, name) is not None]
        tests = [name for name in ("equals", "one_of", "at_least", "at_most") if getattr(self, name) is not None]
        if len(groups) + (self.field is not None) != 1:
            raise ValueError("a part of a filter is one of: all, any, none, field")
        if groups and tests:
            raise ValueError("a group has parts; a test such as equals belongs to a field")
        if self.field is not None:
            self._check_tests(tests)
        if self.size > MOST_NODES or self.depth > DEEPEST:
            raise ValueError(f"a filter has at most {MOST_NODES} parts, {DEEPEST} deep")
        return self

    def _check_tests(self, tests: list[str]) -> None:
        if not tests or ("equals" in tests and len(tests) > 1) or ("one_of" in tests and len(tests) > 1):
            raise ValueError("a field needs equals, one_of, or at_least and at_most")
        ordered = is_number(self.field or "") or self.field == "day"
        if not ordered and {"at_least", "at_most"} & set(tests):
            raise ValueError("only stars, reward, axes and day are ordered: use equals or one_of")
        values = [value for name in tests if name != "one_of" and (value := getattr(self, name)) is not None]
        if is_number(self.field or "") and ("one_of" in tests or not all(isinstance(value, float | int) for value in values)):
            wrong = next((value for value in values if not isinstance(value, float | int)), "a list")
            raise ValueError(f"'{wrong}' is not a number; {self.field} needs one")
        if not is_number(self.field or "") and not all(isinstance(value, str) for value in values):
            raise ValueError("this field is a word: compare it with a word")
        for value in (*map(str, values), *(self.one_of or ())):
            self._check_word(self.field or "", value)

    def _check_word(self, field: str, value: str) -> None:
        if field in KNOWN_VALUES and value not in KNOWN_VALUES[field]:
            raise ValueError(f"'{value}' is not a value of {field}; choose {', '.join(KNOWN_VALUES[field])}")
        if field == "day" and not _is_day(value):
            raise ValueError(f"'{value}' is not a date; write it as 2026-11-18")

    @property
    def parts(self) -> tuple[FilterTree, ...]:
        return self.all or self.any or self.none or ()

    @property
    def size(self) -> int:
        return 1 + sum(part.size for part in self.parts)

    @property
    def depth(self) -> int:
        return 1 + max((part.depth for part in self.parts), default=0)

    def matches(self, facts: Facts) -> bool:
        if self.all is not None:
            return all(part.matches(facts) for part in self.all)
        if self.any is not None:
            return any(part.matches(facts) for part in self.any)
        if self.none is not None:
            return not any(part.matches(facts) for part in self.none)
        return self._fits(facts(self.field or ""))

    def _fits(self, value: FactValue) -> bool:
        if value is None:
            return False
        if isinstance(value, frozenset):
            if self.one_of is not None:
                return bool(value & set(self.one_of))
            return any(self._in_range(word) for word in value)
        return self._in_range(value)

    def _in_range(self, value: str | float) -> bool:
        if self.equals is not None:
            return value == self.equals
        above = self.at_least is None or value >= self.at_least  # type: ignore[operator]
        return above and (self.at_most is None or value <= self.at_most)  # type: ignore[operator]


def _as_word(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value.isoformat() if type(value) is date else value


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text  # also 20261118 is a date, and equals no day
    except ValueError:
        return False


def is_number(field: str) -> bool:
    return field in ("stars", "reward") or field.startswith("axis.")
