"""JSON: one object per line, or one array of objects (read piece by piece, never as a whole)."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from medloop.data.sources.text import BLOCK, MAX_LINE, SourceRow, bad_bytes, text_blocks, text_lines
from medloop.errors import InputError


def lines(path: Path, encoding: str) -> Iterator[SourceRow]:
    """One row per line; blank lines are skipped."""
    for number, text in text_lines(path, encoding):
        if text is None:
            yield SourceRow(number, problem=bad_bytes(encoding))
        elif text.strip():
            yield _row(number, text)


def array(path: Path, encoding: str) -> Iterator[SourceRow]:
    """One row per element; `line` is the element's number. A broken element ends the file."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    blocks = text_blocks(path, encoding)
    buffer = next(blocks).lstrip()[1:]
    number = 0
    while True:
        buffer = buffer.lstrip(" \t\r\n,")
        if buffer.startswith("]"):
            if buffer[1:].strip() or any(block.strip() for block in blocks):
                raise InputError(f"{path}: more text follows the end of its array", "Write one array, or one object per line")
            return
        try:
            value, end = decoder.raw_decode(buffer)
        except (ValueError, RecursionError):
            # Twice as much as there is, so that a long element costs no more than twice its length.
            more = "".join(itertools.islice(blocks, 1 + len(buffer) // BLOCK))
            if not more or len(buffer) > MAX_LINE:
                raise InputError(
                    f"{path}, element {number + 1}: not valid JSON", "Repair the file, or write one object per line"
                ) from None
            buffer += more
            continue
        number, buffer = number + 1, buffer[end:]
        yield SourceRow(number, value) if isinstance(value, dict) else SourceRow(number, problem=_not_object(value))


def _row(number: int, text: str) -> SourceRow:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return SourceRow(number, problem="is not valid JSON")
    return SourceRow(number, value) if isinstance(value, dict) else SourceRow(number, problem=_not_object(value))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _not_object(value: Any) -> str:
    kinds = {list: "an array", str: "a text", bool: "a truth value", int: "a number", float: "a number", type(None): "null"}
    return f"is {kinds[type(value)]}, expected an object"
