"""Bytes to lines of text, strictly: a byte that does not fit the encoding is a bad line, never a guess.

GB18030 accepts most byte strings, damaged UTF-8 included, and would turn it into nonsense without a word. So
`detect_encoding` looks at every piece of the file that is not plain ASCII: text in GB18030 hardly ever forms valid UTF-8,
while a damaged UTF-8 file is still valid nearly everywhere.
"""

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from medloop.errors import InputError
from medloop.store.files.jsonl import open_bytes

MAX_LINE = 64 * 2**20  # bytes; a longer line is no record but a file without line ends
BLOCK = 2**18  # bytes read at once where lines do not matter
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]+")
CODECS = {"utf-8": "utf-8-sig", "latin-1": "cp1252"}  # what is called Latin-1 nearly always has Windows' quotes and dashes
_CUT = re.compile(rb'[\n",]')


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One record of a file, or the reason (without content) why it cannot be read. `line` counts from 1."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def first_bytes(path: Path, count: int = 64) -> bytes:
    with open_bytes(path) as file:
        return file.read(count).lstrip(b" \r\n\t") or file.read(4096).lstrip(b" \r\n\t")


def detect_encoding(path: Path, requested: str = "auto") -> str:
    """`utf-8-sig` (UTF-8 with or without its mark), `utf-16` or `gb18030`; Western text is read only if it is requested."""
    with open_bytes(path) as file:
        head = file.read(2)
        if head in _UTF16:
            return "utf-16"
        if requested != "auto":
            return CODECS.get(requested, requested)
        fits, fails, single = 0, 0, 0
        for piece in _pieces(file, head):
            if not piece.isascii():
                ok = _decodes(piece)
                fits, fails, single = fits + ok, fails + (not ok), single + (not ok and _has_single_bytes(piece))
    if fails > fits and 2 * single > fails:
        raise InputError(
            f"{path} is not UTF-8; it looks like Latin-1 (Windows-1252)",
            "Save it as UTF-8, or have it read as it is: --encoding latin-1",
        )
    return "gb18030" if fails > fits else "utf-8-sig"


def _has_single_bytes(piece: bytes) -> bool:
    """Whether most characters beyond ASCII are single bytes, as in Latin-1; in GB18030 they come in pairs."""
    runs = [len(run) for run in _BEYOND_ASCII.findall(piece)]
    return 2 * sum(length % 2 for length in runs) > len(runs)


def text_lines(path: Path, encoding: str) -> Iterator[tuple[int, str | None]]:
    """Line number and text with its line end; None for a line whose bytes do not fit `encoding`."""
    with open_bytes(path) as file:
        if encoding == "utf-16":
            yield from _utf16_lines(path, file)
            return
        for number, raw in enumerate(_raw_lines(path, file), 1):
            try:
                yield number, raw.decode(encoding if number == 1 else encoding.removesuffix("-sig"))
            except UnicodeDecodeError:
                yield number, None


def bad_bytes(encoding: str) -> str:
    """The reason for a line that `text_lines` could not decode."""
    return f"has bytes that are not {encoding_name(encoding).upper()}"


def encoding_name(codec: str) -> str:
    """An encoding as `--encoding` names it."""
    return next((name for name, known in CODECS.items() if known == codec), codec)


def text_blocks(path: Path, encoding: str) -> Iterator[str]:
    """The file's text in blocks, for formats that do not go by lines; InputError names the line of a bad byte."""
    line = 1
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_bytes(path) as file:
        while True:
            raw = file.read(BLOCK)
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                line += bytes(error.object)[: error.start].count(b"\n")
                raise InputError.at(
                    path, line, bad_bytes(encoding), "Save the file again as UTF-8, or name its --encoding"
                ) from None
            line += text.count("\n")
            yield text
            if not raw:
                return


def _raw_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    number = 0
    while raw := file.readline(MAX_LINE):
        number += 1
        if len(raw) == MAX_LINE:
            raise InputError.at(path, number, f"the line is longer than {MAX_LINE // 2**20} MiB", "Write one record per line")
        yield raw


def _pieces(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    """The file cut at line ends, quotes and commas: bytes that are never part of a character, in UTF-8 and GB18030 alike."""
    rest = head
    while block := file.read(BLOCK):
        *pieces, rest = _CUT.split(rest + block)
        yield from pieces
    yield rest


def _decodes(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _utf16_lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, str | None]]:
    # Line ends are two bytes here, so Python's own decoder has to split; after a bad byte it cannot find the next line.
    number, text = 0, io.TextIOWrapper(file, encoding="utf-16", newline="")
    try:
        for number, line in enumerate(text, 1):
            yield number, line
    except UnicodeError:
        raise InputError.at(path, number + 1, "has bytes that are not UTF-16", "Save the file again as UTF-8") from None
    finally:
        text.detach()  # whoever opened the file closes it
