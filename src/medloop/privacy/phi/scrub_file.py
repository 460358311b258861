"""Scrub the rows of a file (JSON lines, or one plain text), with counts that hold no word of the rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from medloop.privacy.phi.scrub import Assessment, Scrubber

_BESIDE = 12  # characters to each side of an example


@dataclass(frozen=True)
class ScrubbedRow:
    """One row after scrubbing; in `cleaned`, each text that could not be scrubbed is empty."""

    cleaned: dict[str, Any]
    assessments: tuple[Assessment, ...]
    """One for each text of the row."""
    texts: tuple[str, ...]
    """The texts as they were given."""

    @property
    def doubt(self) -> float:
        return max((assessment.doubt for assessment in self.assessments), default=0.0)

    @property
    def quarantined(self) -> bool:
        return any(assessment.quarantined for assessment in self.assessments)

    @property
    def changed(self) -> bool:
        return any(assessment.spans for assessment in self.assessments)

    @property
    def reasons(self) -> list[str]:
        """Why its texts are in doubt, for a reviewer's list."""
        return sorted({"; ".join(assessment.reasons) for assessment in self.assessments if assessment.reasons})


@dataclass
class ScrubCounts:
    """Counts over all rows."""

    rows: int = 0
    changed: int = 0
    quarantined: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    doubts: list[float] = field(default_factory=list)

    def add(self, row: ScrubbedRow) -> None:
        self.rows += 1
        self.changed += row.changed
        self.quarantined += row.quarantined
        self.kinds.update(span.kind for assessment in row.assessments for span in assessment.spans)
        self.reasons.update(reason for assessment in row.assessments for reason in assessment.reasons)
        self.doubts.append(row.doubt)


def scrub_row(row: Mapping[str, Any], fields: Sequence[str] = ()) -> ScrubbedRow:
    """Every text of the row, or of these fields; a person has the same placeholder throughout the row."""
    scrubber, assessments, texts = Scrubber(), list[Assessment](), list[str]()

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            assessments.append(scrubber.assess(value))
            texts.append(value)
            return assessments[-1].cleaned
        if isinstance(value, Mapping):
            return {name: clean(part) for name, part in value.items()}
        return [clean(part) for part in value] if isinstance(value, list) else value

    cleaned = {name: clean(value) if not fields or name in fields else value for name, value in row.items()}
    return ScrubbedRow(cleaned, tuple(assessments), tuple(texts))


class Replacement(NamedTuple):
    """One thing that scrubbing replaces, wherever it stands in the rows."""

    kind: str
    text: str
    times: int
    example: str
    """With a few characters to both sides."""


def preview(rows: Iterable[Mapping[str, Any]], fields: Sequence[str] = ()) -> tuple[list[Replacement], ScrubCounts]:
    """What scrubbing would replace, the most frequent first. Unlike the counts, this shows text of the rows."""
    times, examples, counts = Counter[tuple[str, str]](), dict[tuple[str, str], str](), ScrubCounts()
    for row in rows:
        scrubbed = scrub_row(row, fields)
        counts.add(scrubbed)
        for assessment, text in zip(scrubbed.assessments, scrubbed.texts, strict=True):
            for span in assessment.spans:
                key = (span.kind, text[span.start : span.end])
                times[key] += 1
                examples.setdefault(key, text[max(0, span.start - _BESIDE) : span.end + _BESIDE])
    return [Replacement(*key, count, examples[key]) for key, count in times.most_common()], counts
