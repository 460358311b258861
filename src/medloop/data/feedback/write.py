"""The files of a dataset made from feedback, line by line out of the pool; what the card counts is counted on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medloop.contracts import Contract, Conversation, FileEntry, Message, Origin, PreferencePair, Record
from medloop.data.feedback.pool import Row
from medloop.data.feedback.rows import RowKind
from medloop.data.progress import Progress, Step
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256

if TYPE_CHECKING:
    from medloop.data.feedback.build import Made

SOURCE = "feedback"
PAIRS, THUMBS, RULES, RED, DROPPED = "preferences.jsonl", "thumbs.jsonl", "rules.jsonl", "red_team.jsonl", "dropped.jsonl"
ANSWERS = {"train": "sft_train.jsonl", "test": "sft_test.jsonl"}


@dataclass
class Written:
    """What the card counts, known when the files are there."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    languages: Counter[str] = field(default_factory=Counter)
    strata: Counter[str] = field(default_factory=Counter)

    def count(self, row: Row, side: str) -> None:
        self.rows.setdefault(row.kind, Counter())[side] += 1
        self.languages[row.about["language"]] += 1
        self.strata[row.about["strata"][0]] += 1


def write(folder: Path, made: Made, progress: Progress) -> Written:
    written, dropped = Written(), sorted(made.dropped)
    with progress("Writing", int(made.kept.sum())) as step:
        for name, rows in _content(made, written, step).items():
            count = jsonl.write(folder / name, rows)
            written.files[name] = FileEntry(path=name, rows=count, sha256=file_sha256(folder / name))
    lines = ({"kind": kind, "reason": reason, "records": list(ids)} for kind, reason, ids in dropped)
    jsonl.write(folder / DROPPED, lines)
    written.files[DROPPED] = FileEntry(path=DROPPED, rows=len(dropped), sha256=file_sha256(folder / DROPPED))
    return written


def _content(made: Made, written: Written, step: Step) -> dict[str, Iterable[Contract | dict[str, Any]]]:
    """Per file its lines, made as they are written."""

    def lines(kind: RowKind, only: str | None = None) -> Iterator[tuple[int, Row, str]]:
        for number, at in enumerate(made.pool.of_kind(kind, made.kept).tolist(), 1):
            if only in (None, made.side(at)):
                row = made.pool.row(at)
                written.count(row, made.side(at))
                step(1)
                yield number, row, made.side(at)

    return {
        PAIRS: (pair(row, side) for _, row, side in lines("pairs")),
        THUMBS: (_thumb(row, side) for _, row, side in lines("thumbs")),
        **{name: (_record(row, at, side) for at, row, side in lines("answers", only)) for only, name in ANSWERS.items()},
        RULES: made.rules,
        RED: (_record(row, at, side) for at, row, side in lines("red")),
    }


def _metadata(row: Row, side: str) -> dict[str, Any]:
    return {"source": SOURCE, "split": side, **row.about, "records": list(row.records)}


def pair(row: Row, side: str) -> PreferencePair:
    return PreferencePair(prompt=row.prompt, chosen=row.texts[0], rejected=row.texts[1], metadata=_metadata(row, side))


def _thumb(row: Row, side: str) -> dict[str, Any]:
    prompt = row.prompt if isinstance(row.prompt, str) else [message.model_dump() for message in row.prompt]
    about = _metadata(row, side)
    return {"prompt": prompt, "completion": row.texts[0], "label": about.pop("liked"), "metadata": about}


def _record(row: Row, line: int, side: str) -> Record:
    """A line as the data engine writes it: with the answer for SFT, the question alone for the red team."""
    answers = (Message(role="assistant", content=text) for text in row.texts)
    talk, about = Conversation(messages=(*row.question, *answers)), _metadata(row, side)
    return Record(
        record_id=talk.content_id(),
        conversation=talk,
        language=about["language"],
        strata=tuple(about.pop("strata")),
        origin=Origin(source=SOURCE, line=line),
        reviewed=row.kind == "answers" and about["from"] == "correction",
        meta=about,
    )
