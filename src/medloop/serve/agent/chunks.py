"""Pieces of a page under their headings, each with the exact characters of the page that it holds.

    chunk_pages("doc_…", pages)     -> [Chunk(page=3, start=120, end=871, headings=("Anaphylaxis", "Critical Actions"), …)]

A piece ends where a main section ends or where it is long enough, at the end of a line or a sentence; short sections that follow
one another stand in one piece. `indexed_text` is what is searched: title and headings stand before the words of the piece.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from medloop.contracts.knowledge import Chunk, DocumentPage

VERSION = "1"  # of how documents are cut; another one rebuilds the index
TARGET = 800  # size of a piece; a Chinese character counts for three
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z(\d*])|(?<=[。！？；])")
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){1,3})\.?\s+\S")
_MAIN = 2  # a heading of this level or above always begins a new piece
_BARE, _BARE_INNER, _COLON, _BOLD = 8, 9, 11, 7


@dataclass
class _Section:
    """Lines under one heading path; `spans` are the characters of each line or sentence."""

    level: int
    headings: tuple[str, ...]
    spans: list[tuple[int, int]] = field(default_factory=list)


def chunk_pages(document: str, pages: Sequence[DocumentPage]) -> list[Chunk]:
    chunks: list[Chunk] = []
    path: list[tuple[int, str]] = []  # headings carry over from page to page
    for index, page in enumerate(pages):
        for start, end, headings in _pieces(page.text, path):
            text = page.text[start:end]
            chunks.append(
                Chunk(
                    document=document, page_index=index, page=page.number, start=start, end=end, headings=headings, text=text
                )
            )  # fmt: skip
    return chunks


def indexed_text(title: str, chunk: Chunk) -> str:
    """What is embedded and searched: a piece alone often does not say what it is about."""
    return f"{path_of(title, chunk)}\n{chunk.text}"


def path_of(title: str, chunk: Chunk) -> str:
    """`Anaphylaxis > Critical Actions`: where a piece stands."""
    return " > ".join([title, *(heading for heading in chunk.headings if heading != title)])


def _size(text: str) -> int:
    return len(text) + 2 * len(_HAN.findall(text))


def _pieces(text: str, path: list[tuple[int, str]]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Spans and headings: sections packed together while they are short and belong to the same main section."""
    spans: list[tuple[int, int]] = []
    headings: tuple[str, ...] = ()
    for section in _sections(text, path):
        size = sum(_size(text[start:end]) for start, end in section.spans)
        packed = sum(_size(text[start:end]) for start, end in spans)
        if spans and (section.level <= _MAIN or packed + size > TARGET):
            yield spans[0][0], spans[-1][1], headings
            spans = []
        headings = _common(headings, section.headings) if spans else section.headings
        for span in section.spans:
            if spans and sum(_size(text[start:end]) for start, end in [*spans, span]) > TARGET:
                yield spans[0][0], spans[-1][1], headings
                spans, headings = [], section.headings
            spans.append(span)
    if spans:
        yield spans[0][0], spans[-1][1], headings


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """The headings that both have; where two short sections share a piece, their own headings stand in its text."""
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    return first[:same]


def _sections(text: str, path: list[tuple[int, str]]) -> Iterator[_Section]:
    lines = list(_lines(text))
    current = _Section(99, tuple(name for _, name in path))
    for index, (start, end) in enumerate(lines):
        line = text[start:end]
        heading = _heading(line, text[slice(*lines[index + 1])] if index + 1 < len(lines) else "")
        if heading is None:
            current.spans += _sentences(text, start, end)
            continue
        level, name = heading
        if current.spans:
            yield current
        while path and path[-1][0] >= level:
            path.pop()
        path.append((level, name))
        current = _Section(level, tuple(name for _, name in path), [(start, end)])
    if current.spans:
        yield current


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Spans of the lines that hold something, without the blanks around it."""
    for match in re.finditer(r"[^\n]+", text):
        line = match[0]
        if stripped := line.strip():
            start = match.start() + line.index(stripped)
            yield start, start + len(stripped)


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A line as it is, or its sentences where it is longer than a piece."""
    if _size(text[start:end]) <= TARGET:
        return [(start, end)]
    spans, begin = [], start
    for match in _SENTENCE_END.finditer(text, start, end):
        if match.start() > begin:
            spans.append((begin, match.start()))
        begin = match.end()
    spans.append((begin, end))
    return [piece for first, last in spans for piece in _by_force(first, last)]


def _by_force(start: int, end: int) -> list[tuple[int, int]]:
    """A sentence without an end is cut where a piece is full."""
    return [(first, min(first + TARGET, end)) for first in range(start, end, TARGET) if first < end]


def _heading(line: str, following: str) -> tuple[int, str] | None:
    """(level, name) of a heading; None for an ordinary line."""
    if match := re.match(r"(#{1,6})\s+(.+)", line):
        return len(match[1]), _clean(match[2])
    if match := re.fullmatch(r"\*\*([^*]{2,80})\*\*:?|__([^_]{2,80})__:?", line):
        return _BOLD, _clean(match[1] or match[2])
    if len(line) > 80 or line.startswith(("|", "-", "*", "•", "·")):
        return None
    if _HAN.search(line):
        return _chinese_heading(line, following)
    if match := _NUMBERED.match(line):
        return (2 + match[1].count("."), _clean(line)) if not line.endswith((".", ";", ",")) else None
    if line.endswith(":") and len(line) <= 50:
        return _COLON, _clean(line)
    words = line.split()
    titled = sum(word[0].isupper() or not word[0].isalpha() for word in words) >= 0.6 * len(words)
    plain = not re.search(r"[.;,:!]$|^\d+[.)]", line) and len(words) <= 10 and len(line) >= 4
    return (_BARE, _clean(line)) if titled and plain and words[0][0].isupper() and len(following) > len(line) else None


def _chinese_heading(line: str, following: str) -> tuple[int, str] | None:
    if match := re.match(r"第[一二三四五六七八九十百\d]+([章编部节条])", line):
        return (1 if match[1] in "章编部" else 2 if match[1] == "节" else 4), _clean(line)
    bare = line.rstrip("。.：:")
    if re.match(r"[一二三四五六七八九十]+[、.]", line) and len(line) <= 40:
        return 2, _clean(bare)
    if re.match(r"[（(][一二三四五六七八九十]+[）)]", line) and len(line) <= 30:
        return 3, _clean(bare)
    if re.match(r"\d{1,2}[.、]\s*[^\d]", line) and len(line) <= 20 and not re.search(r"[。;；,，:：]", line):
        return 5, _clean(bare)
    if _is_bare(line):
        return (_BARE if _is_bare(following) else _BARE_INNER), line
    return (_COLON, _clean(bare)) if line.endswith(("：", ":")) and len(line) <= 20 else None


def _is_bare(line: str) -> bool:
    """A short Chinese line without any mark: a heading by its looks."""
    return bool(re.fullmatch(r"[\u4e00-\u9fffA-Za-z（）()]{2,15}", line)) and bool(_HAN.search(line))


def _clean(name: str) -> str:
    return re.sub(r"[*_`#]+", "", name).strip().rstrip(":：").strip()[:120]
