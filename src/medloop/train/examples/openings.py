"""Which tokens of an answer open a sentence: there it is decided what is said, the rest follows from it.

A correction adds a sentence or replaces one. Where to say it is one token of fifty or so, the first of that sentence, and so is
where not to say it: in the rows that join the corrections. With every token alike, 300 steps left that choice
half-learnt, and the sentence about a child's dose was said to the old (docs/log.md#repair).

A point ends a sentence only before a space or the end: in "38.5" and "e.g." it does not, nor behind the abbreviations below.
"""

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from medloop.train.examples.sft_examples import IGNORED


def _one_of(characters: str) -> str:
    """A pattern over bytes, as latin-1: a token may hold a part of a character only."""
    return f"(?:{'|'.join(re.escape(character.encode().decode('latin-1')) for character in characters)})"


_BREAK = b"\x00"  # in place of a token of the template
_ABBREVIATED = "".join(
    rf"(?<!\b{word})" for word in ("Dr", "Mr", "Mrs", "Ms", "Prof", "St", "vs", "cf", r"e\.g", r"i\.e", "approx")
)
_BEFORE_END = r"(?=[\s\x00]|$)"
_CLOSING = rf"{_one_of('”’」』）)】')}*(?:[\"'*_]+{_BEFORE_END})?"  # a plain quote in front of a word opens something itself
_END = re.compile(rf"(?:{_one_of('。！？!?')}+|{_ABBREVIATED}\.+(?={_CLOSING}{_BEFORE_END})){_CLOSING}|\n".encode("latin-1"))
_SPACE = re.compile(rb"\s*")
# Bytes as GPT-2 and its like write them.
_PLAIN = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = (byte for byte in range(256) if byte not in _PLAIN)
_BYTE_OF = {chr(byte): byte for byte in _PLAIN} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}


class OpeningWeights:
    """The weight of each token in the loss: `weight` where it opens a sentence or ends the answer in its place, else 1."""

    def __init__(self, tokenizer: Any, weight: float) -> None:
        self.weight = weight
        ids = range(len(tokenizer))
        texts = tokenizer.batch_decode([[token] for token in ids], clean_up_tokenization_spaces=False)
        pieces, added = tokenizer.convert_ids_to_tokens(list(ids)), tokenizer.added_tokens_decoder
        self.texts = [_BREAK if token in added else _bytes_of(texts[token], pieces[token]) for token in ids]

    def __call__(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """(..., T-1): weights of what the tokens but the last predict; tokens that are not trained on count as 1."""
        rows = input_ids.reshape(-1, input_ids.shape[-1]).tolist()
        opens = torch.tensor([self._opens(row)[1:] for row in rows], device=labels.device).reshape(labels[..., 1:].shape)
        first = labels[..., :-1] == IGNORED
        return torch.where((opens | first) & (labels[..., 1:] != IGNORED), self.weight, 1.0)

    def _opens(self, tokens: list[int]) -> list[bool]:
        """Which of the tokens stand behind the end of a sentence, or hold it and the next one's first character ("。多")."""
        texts = [self.texts[token] if token < len(self.texts) else b"" for token in tokens]  # a model may have rows for more
        text, ends, opens = b"".join(texts), list(accumulate(map(len, texts))), [False] * len(tokens)
        for match in _END.finditer(text):
            place = bisect_right(ends, match.end() - 1)  # the token that the end of the sentence is in
            space = _SPACE.match(text, match.end())
            assert space is not None
            place += ends[place] <= space.end()
            if place < len(opens):
                opens[place] = True
        return opens


def _bytes_of(text: str, piece: str | None) -> bytes:
    """What a token adds to a text; some tokenizers drop the space in front of a word that they decode alone."""
    if piece is None or "\ufffd" not in text:
        return (f" {text}" if piece is not None and piece.startswith("▁") and not text.startswith(" ") else text).encode()
    if found := re.fullmatch(r"<0x([0-9A-F]{2})>", piece):
        return bytes([int(found[1], 16)])
    return bytes(_BYTE_OF[character] for character in piece) if all(map(_BYTE_OF.__contains__, piece)) else text.encode()
