"""Lines of "my history": what somebody said in a few words, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from medloop.contracts import Correction, Feedback, Preference
from medloop.store.records.history import Kind, Own
from medloop.web.words import Words

PAGES: dict[Kind, str] = {"feedback": "rate", "preference": "compare", "correction": "correct"}


@dataclass(frozen=True)
class Line:
    kind: str
    page: str
    record_id: str
    timestamp: datetime
    question: str
    said: list[str]
    fate: str
    became: str
    incident: str | None


def lines(own: list[Own], t: Words) -> list[Line]:
    return [
        Line(
            one.kind, PAGES[one.kind], one.record_id, one.timestamp, _question(one.record), _said(one.record, t), one.fate,
            _became(one, t), one.incident,
        )
        for one in own
    ]  # fmt: skip


def _question(record: Feedback | Preference | Correction) -> str:
    return record.user_query if isinstance(record, Feedback) else record.prompt


def _said(record: Feedback | Preference | Correction, t: Words) -> list[str]:
    if isinstance(record, Correction):
        return [t("said_corrected")]
    if isinstance(record, Preference):
        said = [t("said_first" if record.preferred == (record.shown_first or "a") else "said_second")]
    else:
        said = [t(f"said_thumb_{record.thumb}")] if record.thumb else []
        said += [t("said_stars", n=record.rating)] if record.rating else []
        said += [f"{t.or_plain(f'axis_{name}', name)} {stars}" for name, stars in record.axes.items()]
        said += [t("said_critical")] if record.critical else []
    return said + ([t("said_comment")] if record.comments else [])


def _became(one: Own, t: Words) -> str:
    return t("fate_dataset", name=", ".join(one.datasets)) if one.fate == "dataset" else t(f"fate_{one.fate}")
