"""Ids in chunks for `IN (…)`, because databases limit the number of variables in a query."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
CHUNK = 500


def chunks(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
