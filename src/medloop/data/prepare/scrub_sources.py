"""Identifiers out of imported conversations, before anything is compared, split or stored for training.

One scrubber a conversation: the same person has the same placeholder in all its turns. A conversation that the scrubber does not
vouch for is left out (`phi`) and goes into a side file as it is, for a person to look at: mend the source and import it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import BinaryIO

from medloop.contracts import Conversation, canonical_json
from medloop.contracts.dataset import DropReason
from medloop.privacy.phi.scrub import Assessment, Scrubber


@dataclass
class Scrubbing:
    """Scrubs and counts; `aside` takes the rows in doubt."""

    aside: BinaryIO
    looked_at: int = 0
    changed: int = 0
    held: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def conversation(self, given: Conversation, source: str, line: int) -> Conversation | DropReason:
        scrubber = Scrubber()
        seen = [scrubber.assess(message.content) for message in given.messages]
        self.looked_at += 1
        if any(one.quarantined for one in seen):
            self._hold(given, source, line, seen)
            return "phi"
        self.kinds.update(found.kind for one in seen for found in one.spans)
        self.changed += any(one.spans for one in seen)
        messages = (
            message.model_copy(update={"content": one.cleaned}) for message, one in zip(given.messages, seen, strict=True)
        )
        return Conversation(messages=tuple(messages))

    def counts(self) -> dict[str, int]:
        """For the card: rows, then what was replaced by kind."""
        rows = {"rows": self.looked_at, "rows_changed": self.changed, "rows_held": self.held}
        return rows | {kind: self.kinds[kind] for kind in sorted(self.kinds)}

    def _hold(self, given: Conversation, source: str, line: int, seen: list[Assessment]) -> None:
        self.held += 1
        row = {
            "source": source,
            "line": line,
            "doubt": max(one.doubt for one in seen),
            "reasons": sorted({reason for one in seen for reason in one.reasons}),
            "conversation": given.model_dump(mode="json"),
        }
        self.aside.write(canonical_json(row).encode() + b"\n")
