"""Tokens to text while they come: no half characters, no stop string, nothing lost at the end.

The text of all tokens is not the sum of the texts of each: a character of several bytes may be several tokens, and some
tokenizers drop the space before the first token they are given. So a few earlier tokens are decoded again as context, and a last
character that may still be incomplete waits. A stop string may cross tokens: a suffix that could be its beginning waits, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

HALF = "\ufffd"  # what an incomplete character decodes to
RECHECK = 64  # tokens without a clean end after which another border is looked for

Decode = Callable[[Sequence[int]], str]


class TextStream:
    """The text of a growing list of tokens."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._context, self._read = 0, 0  # tokens before `_read` are written; those from `_context` on are decoded again
        self._given = 0  # characters after `_read` that were given already

    def add(self, token: int) -> str:
        """The text that is certain now."""
        self._tokens.append(token)
        before, text = self._texts()
        complete = not text.endswith(HALF)
        certain = text if complete else text[:-1]
        piece = certain[len(before) + self._given :]
        if complete and len(text) > len(before):
            self._context, self._read, self._given = self._read, len(self._tokens), 0
        else:
            self._given += len(piece)
            if len(self._tokens) - self._read > RECHECK:
                self._find_border(before, text)
        return piece

    def end(self) -> str:
        """What was waiting."""
        before, text = self._texts()
        return text[len(before) + self._given :]

    def _texts(self) -> tuple[str, str]:
        return self._decode(self._tokens[self._context : self._read]), self._decode(self._tokens[self._context :])

    def _find_border(self, before: str, text: str) -> None:
        """Bytes that never become characters: take a border at which both parts decode to the same text as the whole."""
        for border in range(len(self._tokens) - 1, self._read + RECHECK // 2, -1):
            left = self._decode(self._tokens[self._context : border])
            right = self._decode(self._tokens[self._read : border])
            joined = self._decode(self._tokens[self._read :])
            if right and joined.startswith(right) and len(left) - len(before) <= self._given and text.startswith(left):
                self._given -= len(left) - len(before)
                self._context, self._read = self._read, border
                return


class StopFilter:
    """Ends a text before the first stop string in it."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._waiting = tuple(stops), ""

    def add(self, piece: str) -> tuple[str, bool]:
        """(text that may be shown, whether a stop string came)."""
        if not self._stops:
            return piece, False
        text = self._waiting + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._waiting = ""
            return text[: min(places)], True
        hold = max(self._overlap(text, stop) for stop in self._stops)
        self._waiting = text[len(text) - hold :]
        return text[: len(text) - hold], False

    def end(self) -> str:
        waiting, self._waiting = self._waiting, ""
        return waiting

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """How many last characters of the text could begin the stop string."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
