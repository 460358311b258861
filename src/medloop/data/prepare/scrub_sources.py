"""Remove identifiers from imported conversations before they are compared, split or stored for training.

Each conversation has its own scrubber, so a person has the same placeholder in all its messages. A doubtful conversation is left
out (`phi`) and goes unchanged into a quarantine file for review: mend the source and import it again.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import BinaryIO

from medloop.contracts import Conversation, canonical_json
from medloop.contracts.dataset import DropReason
from medloop.privacy.phi.scrub import Assessment, Scrubber


@dataclass
class SourceScrubber:
    """Scrubs conversations and counts; `aside` receives the doubtful ones."""

    aside: BinaryIO
    looked_at: int = 0
    changed: int = 0
    held: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def conversation(
        self, conversation: Conversation, passages: tuple[str, ...], source: str, line: int
    ) -> tuple[Conversation | DropReason, tuple[str, ...]]:
        """The conversation and its context passages without identifiers; the passages are scanned like the messages."""
        scrubber, count = Scrubber(), len(conversation.messages)
        assessments = [scrubber.assess(text) for text in (*(m.content for m in conversation.messages), *passages)]
        self.looked_at += 1
        if any(assessment.quarantined for assessment in assessments):
            self._hold(conversation, source, line, assessments)
            return "phi", ()
        self.kinds.update(span.kind for assessment in assessments for span in assessment.spans)
        self.changed += any(assessment.spans for assessment in assessments)
        messages = (
            message.model_copy(update={"content": assessment.cleaned})
            for message, assessment in zip(conversation.messages, assessments[:count], strict=True)
        )
        return Conversation(messages=tuple(messages)), tuple(assessment.cleaned for assessment in assessments[count:])

    def counts(self) -> dict[str, int]:
        """For the card: rows, then what was replaced by kind."""
        rows = {"rows": self.looked_at, "rows_changed": self.changed, "rows_held": self.held}
        return rows | {kind: self.kinds[kind] for kind in sorted(self.kinds)}

    def _hold(self, conversation: Conversation, source: str, line: int, assessments: list[Assessment]) -> None:
        self.held += 1
        row = {
            "source": source,
            "line": line,
            "doubt": max(assessment.doubt for assessment in assessments),
            "reasons": sorted({reason for assessment in assessments for reason in assessment.reasons}),
            "conversation": conversation.model_dump(mode="json"),
        }
        self.aside.write(canonical_json(row).encode() + b"\n")
