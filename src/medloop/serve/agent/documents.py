"""Read a document into pages: PDF by pypdf, text and Markdown as one page, JSON lines as one document a line.

    for document in read_file(Path("guideline.pdf")): document.title, document.pages

Nothing in a file is run and no link of it is followed. A PDF that is encrypted, scanned (pictures without text), broken or too
large is refused with the reason; the original is not kept, only its text and its hash.
"""

import hashlib
import io
import json
import logging
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts.knowledge import DocumentKind, DocumentPage
from medloop.errors import InputError, MissingExtraError, explain_os_errors

MOST_BYTES = 100 * 2**20  # of one file
MOST_PAGES = 3000
MOST_PAGE_CHARACTERS = 200_000  # of a page of a PDF: a bomb of text, not a page
MOST_CHARACTERS = 20_000_000  # of all pages of a file
FEWEST_PAGE_CHARACTERS = 20  # a page with less is a picture
MOST_SCANNED = 0.5  # share of the pages of a PDF that may be pictures
KINDS: dict[str, DocumentKind] = {".pdf": "pdf", ".txt": "txt", ".md": "md", ".markdown": "md", ".jsonl": "jsonl"}
OnPage = Callable[[int, int], None]  # pages read, pages in all


@dataclass(frozen=True)
class ReadDocument:
    """What was read of one document; `empty_pages` of a PDF hold no text."""

    title: str
    kind: DocumentKind
    source: str
    source_sha256: str
    pages: tuple[DocumentPage, ...]
    empty_pages: int = 0


def read_file(path: Path, on_page: OnPage = lambda done, total: None) -> Iterator[ReadDocument]:
    """The documents of a file; InputError says why one cannot be read."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path.name}: '{path.suffix or 'no ending'}' cannot be read", f"Documents are {', '.join(KINDS)}")
    with explain_os_errors(path):
        if not path.is_file():
            raise InputError(f"{path} is not a file", "Name files, not folders")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InputError(f"{path.name} has {size:,} bytes; at most {MOST_BYTES:,} are read", "Split it")
        content = path.read_bytes()
    if kind == "jsonl":
        yield from _lines(path.name, content)
        return
    sha256 = _sha256(content)
    if kind == "pdf":
        title, pages = _pdf(path, content, on_page)
        empty = sum(len(page.text.strip()) < FEWEST_PAGE_CHARACTERS for page in pages)
        if empty > MOST_SCANNED * len(pages):
            raise InputError(
                f"{path.name}: {empty} of {len(pages)} pages hold no text, as in a scan", "Run text recognition (OCR) on it first"
            )
        yield ReadDocument(title or path.stem, kind, path.name, sha256, pages, empty)
        return
    text = tidy(_decode(path.name, content))
    if not text.strip():
        raise InputError(f"{path.name} is empty", "Name a file with text")
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"{path.name} has more than {MOST_CHARACTERS:,} characters", "Split it")
    yield ReadDocument(_first_heading(text) or path.stem, kind, path.name, sha256, (DocumentPage(text=text),))


def tidy(text: str) -> str:
    """Line ends as \\n, no control characters, no invisible ones."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char)[0] != "C")


def _pdf(path: Path, content: bytes, on_page: OnPage) -> tuple[str, tuple[DocumentPage, ...]]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        raise MissingExtraError("PDF needs pypdf", "Install it with: pip install 'medloop[knowledge]'") from error
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it reports every oddity of a file, with pieces of it
    try:
        reader = PdfReader(io.BytesIO(content), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{path.name} is encrypted", "Save a copy without a password first")
        total = len(reader.pages)
        if total == 0:
            raise InputError(f"{path.name} has no pages", "Name another file")
        if total > MOST_PAGES:
            raise InputError(f"{path.name} has {total:,} pages; at most {MOST_PAGES:,} are read", "Split it")
        pages, characters = [], 0
        for number, page in enumerate(reader.pages, start=1):
            text = tidy(page.extract_text() or "")
            characters += len(text)
            if len(text) > MOST_PAGE_CHARACTERS or characters > MOST_CHARACTERS:
                raise InputError(f"{path.name}, page {number}: more text than a page can hold", "Split it")
            pages.append(DocumentPage(number=number, text=text))
            on_page(number, total)
        title = reader.metadata.title if reader.metadata else None
    except DependencyError:
        raise InputError(f"{path.name} is encrypted by a method that cannot be read", "Save a copy without a password") from None
    except InputError:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError) as error:
        # pypdf meets broken objects with the exception of whatever it tried to do with them.
        raise InputError(f"{path.name} is not a PDF that can be read ({type(error).__name__})", "Save it again as PDF") from None
    return tidy(title).strip()[:200] if isinstance(title, str) else "", tuple(pages)


def _lines(name: str, content: bytes) -> Iterator[ReadDocument]:
    """One document a line: `text`, and where there are any `title` and `id`."""
    characters = 0
    for number, line in enumerate(_decode(name, content).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise InputError.at(name, number, "is not JSON", "Write one object a line: {'title': ..., 'text': ...}") from None
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise InputError.at(name, number, "has no 'text'", "Write one object a line: {'title': ..., 'text': ...}")
        text = tidy(row["text"])
        if not text.strip():
            continue
        characters += len(text)
        if characters > MOST_CHARACTERS:
            raise InputError(f"{name} has more than {MOST_CHARACTERS:,} characters", "Split it")
        row_id = str(row.get("id") or f"line {number}")
        title = tidy(str(row.get("title") or "")).strip()[:200] or _first_heading(text) or row_id
        sha256 = _sha256(f"{title}\n{text}".encode(errors="replace"))
        yield ReadDocument(title, "jsonl", f"{name}, {row_id}"[:200], sha256, (DocumentPage(text=text),))


def _decode(name: str, content: bytes) -> str:
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise InputError(f"{name} is neither UTF-8 nor GB18030 text", "Save it as UTF-8")


def _first_heading(text: str) -> str:
    """The title of a Markdown file, where its first line is one."""
    first = text.lstrip().partition("\n")[0]
    return first.lstrip("#").strip()[:200] if first.startswith("# ") else ""


def _sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
