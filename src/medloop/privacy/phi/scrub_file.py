"""Scrub whole files: rows of JSON lines or one plain text, with counts that hold no word of what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from medloop.privacy.phi.scrub import Assessment, Scrubber


@dataclass
class Tally:
    """What was found over all rows."""

    rows: int = 0
    changed: int = 0
    quarantined: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    doubts: list[float] = field(default_factory=list)

    def add(self, done: Row) -> None:
        self.rows += 1
        self.changed += done.changed
        self.quarantined += done.quarantined
        self.kinds.update(found.kind for seen in done.seen for found in seen.spans)
        self.reasons.update(reason for seen in done.seen for reason in seen.reasons)
        self.doubts.append(done.doubt)


@dataclass(frozen=True)
class Row:
    """One row after scrubbing; in `cleaned` each text is empty that could not be scrubbed."""

    given: Mapping[str, Any]
    cleaned: dict[str, Any]
    seen: tuple[Assessment, ...]

    @property
    def doubt(self) -> float:
        return max((seen.doubt for seen in self.seen), default=0.0)

    @property
    def quarantined(self) -> bool:
        return any(seen.quarantined for seen in self.seen)

    @property
    def changed(self) -> bool:
        return any(seen.spans for seen in self.seen)


def scrub_row(row: Mapping[str, Any], fields: Sequence[str] = ()) -> Row:
    """Every text of the row, or of these fields; one person has one placeholder throughout the row."""
    scrubber, seen = Scrubber(), list[Assessment]()

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            seen.append(scrubber.assess(value))
            return seen[-1].cleaned
        if isinstance(value, Mapping):
            return {name: clean(part) for name, part in value.items()}
        return [clean(part) for part in value] if isinstance(value, list) else value

    cleaned = {name: clean(value) if not fields or name in fields else value for name, value in row.items()}
    return Row(row, cleaned, tuple(seen))


def without_text(done: Row) -> Iterator[tuple[float, str]]:
    """Doubt and reason of each text of a row, for a reviewer's list."""
    for seen in done.seen:
        yield seen.doubt, "; ".join(seen.reasons)
