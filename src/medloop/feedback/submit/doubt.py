"""How far the scrubber doubts the texts of one record."""

from collections.abc import Sequence
from dataclasses import dataclass

from medloop.privacy.phi.find import look_ahead
from medloop.privacy.phi.scrub import Scrubber


@dataclass(frozen=True)
class Doubt:
    """How likely a text still names somebody after scrubbing, and why; never with a word of it."""

    value: float
    reasons: tuple[str, ...]


def doubt_about(texts: Sequence[str]) -> Doubt | None:
    """The strongest doubt about the texts of one record; None when there is none worth a person's time."""
    return doubts_about([texts])[0]


def doubts_about(records: Sequence[Sequence[str]]) -> list[Doubt | None]:
    """As `doubt_about`, for several records; the networks read the texts of all of them together."""
    look_ahead(text for texts in records for text in texts)
    return [_doubt_about(texts) for texts in records]


def _doubt_about(texts: Sequence[str]) -> Doubt | None:
    scrubber = Scrubber()
    doubtful = [result for text in texts if (result := scrubber.assess(text)).quarantined]
    if not doubtful:
        return None
    reasons = dict.fromkeys(reason for result in doubtful for reason in result.reasons)
    return Doubt(max(result.doubt for result in doubtful), tuple(reasons))
