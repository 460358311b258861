"""Whether the texts that somebody sent may name a person. What is doubtful is stored, and waits in quarantine for a reviewer.

Scanning a long text takes seconds, which the one writer cannot spare: `prepare` does it on another thread before the submission
waits for the writer. Short texts are scanned when the rows are built.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medloop.privacy.phi.scrub import Scrubber

LONG = 2000  # characters of one record


@dataclass(frozen=True)
class Doubt:
    """How likely a text still names somebody after scrubbing, and why; never with a word of it."""

    value: float
    reasons: tuple[str, ...]


def doubt_about(texts: Sequence[str]) -> Doubt | None:
    """The strongest doubt about the texts of one record; None when there is none worth a person's time."""
    scrubber = Scrubber()
    doubtful = [result for text in texts if (result := scrubber.assess(text)).quarantined]
    if not doubtful:
        return None
    reasons = dict.fromkeys(reason for result in doubtful for reason in result.reasons)
    return Doubt(max(result.doubt for result in doubtful), tuple(reasons))


class PhiScan:
    """The doubts about one submission; `records` are the texts it brings along, record by record."""

    def __init__(self, records: Sequence[tuple[str, ...]]) -> None:
        self._long = [texts for texts in records if sum(map(len, texts)) > LONG]
        self._known: dict[tuple[str, ...], Doubt | None] = {}
        self.prepare: Callable[[], None] | None = self._scan_long if self._long else None

    def _scan_long(self) -> None:
        self._known = {texts: doubt_about(texts) for texts in self._long}

    def doubts(self, records: Sequence[tuple[str, ...]]) -> list[Doubt | None]:
        """The doubt about each record's texts."""
        return [self._known[texts] if texts in self._known else doubt_about(texts) for texts in records]
