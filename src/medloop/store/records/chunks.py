"""Ids in chunks, for `IN (…)`: far below the number of variables that a database takes in one query."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
CHUNK = 500


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
