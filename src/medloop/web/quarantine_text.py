"""A record in quarantine as the page shows it: its texts in pieces, each plain, taken out, or doubted for a numbered reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medloop.feedback.review.quarantine_marks import UNSURE, Mark
from medloop.web.words import Words

# What the scan says in English, by the key of its words. A reason that is not here is shown as the scan says it.
DOUBTS = {
    "a word that may be a name, a place or an organisation": "doubt_word",
    "characters that may be a Chinese name": "doubt_hanzi",
    "words in a script the scrubber has not learned": "doubt_script",
    "a number or an address that could not be taken out": "doubt_number",
    "characters that are not Unicode text": "doubt_unicode",
    "a text that keeps changing while it is scrubbed": "doubt_changing",
    UNSURE: "doubt_unsure",
}


@dataclass(frozen=True)
class Piece:
    """A stretch of text. `label` says what was taken out, or why it is doubted; `number` leads to the list under the text."""

    text: str
    what: str = ""
    label: str = ""
    number: int = 0


@dataclass(frozen=True)
class Part:
    """One text of the record; `doubts` are the numbered reasons."""

    name: str
    pieces: tuple[Piece, ...]
    doubts: tuple[str, ...]


def parts(texts: Sequence[tuple[str, str]], marks: Sequence[Sequence[Mark]], t: Words) -> list[Part]:
    return [_part(name, text, found, t) for (name, text), found in zip(texts, marks, strict=True)]


def reasons(said: Sequence[str], t: Words) -> list[str]:
    return [t(DOUBTS[one]) if one in DOUBTS else one for one in said]


def _part(name: str, text: str, marks: Sequence[Mark], t: Words) -> Part:
    pieces: list[Piece] = []
    doubts: list[str] = []
    at = 0
    for mark in marks:
        pieces.append(Piece(text[at : mark.start]))
        inner, at = text[mark.start : mark.end], mark.end
        if mark.what == "doubt":
            (why,) = reasons([mark.why], t)
            doubts += [why] if why not in doubts else []
            pieces.append(Piece(inner, "doubt", why, doubts.index(why) + 1))
        else:
            pieces.append(Piece(inner, "out", t.or_plain(f"phi_{mark.why.lower()}", mark.why)))
    pieces.append(Piece(text[at:]))
    label = t.or_plain(f"part_{name}", name)
    return Part(label, tuple(piece for piece in pieces if piece.text), tuple(doubts))
