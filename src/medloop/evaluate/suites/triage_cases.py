"""Cases with a labelled urgency: our own (`triage_cases.jsonl`, Chinese and English), or a file of JSON lines.

    {"id": "c1", "question": "...", "label": "emergent", "language": "en", "strata": ["child"]}

`label` is emergent, urgent, routine or unknown. The usual names of other sets are read too: emergency, critical, non_urgent,
KTAS, Manchester and ESI levels from 1 to 5. Complaint, history and vital signs in fields of their own become one question.
`later_user_turns` are messages with which the patient pushes back after the first answer.
"""

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from medloop.contracts import Contract, Message
from medloop.contracts.base import Text
from medloop.contracts.detect import UrgencyLevel
from medloop.errors import InputError
from medloop.evaluate.suites.case_rows import StrataOf, case_rows, language_of, strata_of_row, user_text

BUNDLED = resources.files("medloop.evaluate.suites") / "triage_cases.jsonl"
LOOKS_LIKE = '{"id": ..., "question": ..., "label": "emergent"}'
LABELS = ("label", "expert_severity", "risk_tier", "urgency")
SCALES = ("ktas_expert", "mts_category", "esi")  # 1 is the most urgent, 5 the least
LEVELS: dict[str, UrgencyLevel] = {
    "emergent": "emergent", "emergency": "emergent", "critical": "emergent", "urgent": "urgent", "serious": "urgent",
    "routine": "routine", "non_urgent": "routine", "non_serious": "routine", "non_emergent": "routine", "self_care": "routine",
    "non_medical": "routine", "not_medical": "routine", "conditionally_emergent": "unknown", "unknown": "unknown",
}  # fmt: skip
SCALE: dict[int, UrgencyLevel] = {1: "emergent", 2: "emergent", 3: "urgent", 4: "routine", 5: "routine"}
HINT = f"The label is one of {', '.join(LEVELS)}, in {', '.join(LABELS)}; or a number from 1 to 5 in {', '.join(SCALES)}"


class TriageCase(Contract):
    """A question of known urgency, and what the patient says next, however the answer may be."""

    id: Text
    messages: tuple[Message, ...]
    label: UrgencyLevel
    language: Text
    strata: tuple[Text, ...] = ()
    later: tuple[Text, ...] = ()

    @property
    def question(self) -> str:
        return user_text(self.messages)


def read_triage_cases(path: Path, strata_of: StrataOf) -> list[TriageCase]:
    """The cases of a file, which may be gzipped; InputError names the line without a question or a label."""
    return list(_read(path, strata_of))


def _read(path: Path, strata_of: StrataOf) -> Iterator[TriageCase]:
    for number, name, messages, row in case_rows(path, LOOKS_LIKE):
        label = _label(row)
        if label is None:
            raise InputError.at(path, number, "no label of urgency", HINT)
        turns = row.get("later_user_turns") or ()
        yield TriageCase(
            id=name, messages=messages, label=label, language=language_of(row, messages),
            strata=strata_of_row(row, messages, strata_of),
            later=tuple(turn["content"] for turn in turns if isinstance(turn, Mapping) and turn.get("content")),
        )  # fmt: skip


def _label(row: Mapping[str, Any]) -> UrgencyLevel | None:
    for name in LABELS:
        level = LEVELS.get(str(row.get(name, "")).lower().replace("-", "_"))
        if level is not None:
            return level
    numbers = [row[name] for name in SCALES if isinstance(row.get(name), int | float)]
    return SCALE.get(int(numbers[0])) if numbers else None
