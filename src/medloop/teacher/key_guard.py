"""Whether a text repeats the API key: as it is, url-encoded, escaped, in base64, base32 or hex, as numbers, backwards, in pieces.

A service, or a proxy before it, may echo the request. What repeats twelve characters of the key in any of these forms is refused
before it is stored or logged.
"""

import base64
import html
import re
import unicodedata
from urllib.parse import unquote

PIECE = 12  # characters of the key that give it away; shorter keys are looked for as a whole
_SHORTEST = 8  # a shorter key occurs in ordinary words
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")


class KeyGuard:
    def __init__(self, key: str) -> None:
        letters = _letters(key)
        known = len(letters) >= _SHORTEST
        self._plain = {*_pieces(letters, PIECE), *_pieces(letters[::-1], PIECE)} if known else set()
        codes = {key.encode().hex(), base64.b32encode(key.encode()).decode().rstrip("=")[:-1].lower()}
        codes.add("".join(str(ord(letter)) for letter in key))
        self._coded = {piece for code in codes for piece in _pieces(code, 2 * PIECE)} if known else set()
        self._base64 = {piece for shift in range(3) for piece in _pieces(_base64(key, shift), 16)} if known else set()

    def is_repeated_in(self, *texts: str) -> bool:
        """Also when the pieces of the key are spread over several of the texts."""
        if not self._plain:
            return False
        text = html.unescape(unquote(unquote(_ESCAPE.sub(lambda code: chr(int(code[1] or code[2], 16)), "".join(texts)))))
        text = unicodedata.normalize("NFKC", text)
        letters, codes = _letters(text), re.sub(r"[^A-Za-z0-9+/]", "", text.replace("-", "+").replace("_", "/"))
        in_plain = any(piece in letters for piece in (*self._plain, *self._coded))
        return in_plain or any(piece in codes for piece in self._base64)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _pieces(text: str, size: int) -> set[str]:
    return {text[start : start + size] for start in range(max(1, len(text) - size + 1))}


def _base64(key: str, shift: int) -> str:
    """The key in base64 after `shift` other bytes: without the letters that depend on what stands before and after it."""
    coded = base64.b64encode(b"\0" * shift + key.encode()).decode().rstrip("=")
    return coded[shift + 1 if shift else 0 : -1]
