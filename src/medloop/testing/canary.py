"""A canary: words that nobody else says, planted in records, and a search for them in every byte of a folder."""

import gzip
import json
from contextlib import suppress
from pathlib import Path

CANARY = "canary with a purple trumpet under the seventh moon"
CODE = "Zq81347xk"  # what a scrubber takes out of datasets; elsewhere it must go, too


def told(where: str) -> str:
    """A text that a person might have written, with the canary in it; longer than the least that is searched for."""
    return f"I am the {CANARY}, code {CODE}, and what I said about my {where} must be gone one day, please doctor."


def traces_of(home: Path, *words: str) -> list[str]:
    """Files that hold the canary in any of the ways in which text is written down, also inside gzip."""
    forms = {form for word in words or (CANARY, CODE) for form in _written(word)}
    files = []
    for path in sorted(path for path in home.rglob("*") if path.is_file()):
        data = path.read_bytes()
        with suppress(OSError, EOFError):
            data += gzip.decompress(data)
        if any(form in data for form in forms):
            files.append(path.relative_to(home).as_posix())
    return files


def _written(word: str) -> set[bytes]:
    encoded = {word.encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be", "gb18030")}
    escaped = "".join(f"\\u{ord(char):04x}" for char in word)
    return encoded | {json.dumps(word)[1:-1].encode(), escaped.encode(), escaped.upper().replace("\\U", "\\u").encode()}
