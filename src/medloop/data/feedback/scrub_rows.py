"""Identifiers out of rows made from feedback, each distinct text looked over once.

Most texts have nothing to take out, and the same text stands in many records and rows: a question is in every rating of its
answers. A text that was found clean is known again by a keyed hash, and is passed through as it is wherever no person has been
named before it in the same row. (Where one has, a bare surname may be that person: the text is looked over again.)
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from medloop.contracts import Message
from medloop.privacy.phi.scrub import Assessment, Scrubber


class Cleaner:
    """Remembers by hash which texts are clean, about 70 bytes each. The key is made anew: no text can be made to collide."""

    def __init__(self) -> None:
        self._key, self._clean = secrets.token_bytes(16), set[int]()

    def doubt(self, texts: Iterable[str], *, looked_at: bool) -> Assessment | None:
        """Why the scrubber does not vouch for one of a record's texts, or None.

        Of a record that a person looked at and released, only text that cannot be scrubbed at all is still doubted.
        """
        scrubber = Scrubber()
        for text in texts:
            if self._is_clean(text, scrubber):
                continue
            found = scrubber.assess(text)
            if found.quarantined and not (looked_at and found.cleaned):
                return found
            if not found.spans and not found.quarantined and not scrubber.persons and "[" not in text:
                self._clean.add(self._mark(text))
        return None

    def scrub(self, text: str, scrubber: Scrubber) -> str:
        """The text without identifiers, as one of a row that `scrubber` goes through; raises Unscrubbable."""
        return text if self._is_clean(text, scrubber) else scrubber.scrub(text)

    def messages(self, given: Iterable[Message], scrubber: Scrubber) -> tuple[Message, ...]:
        return tuple(message.model_copy(update={"content": self.scrub(message.content, scrubber)}) for message in given)

    def _is_clean(self, text: str, scrubber: Scrubber) -> bool:
        return not scrubber.persons and self._mark(text) in self._clean

    def _mark(self, text: str) -> int:
        said = text.encode("utf-8", errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(said, digest_size=8, key=self._key).digest(), "big")
