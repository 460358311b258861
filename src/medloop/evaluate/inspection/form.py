"""The filled-in form comes back: the reviewer's verdict becomes data.

    done = import_form(path, workspace, store, actor="user:li")      # all of it, or an InputError with every problem and nothing

Each verdict becomes a `Feedback` in the store and a line of `data/rl/inspection.jsonl`; a corrected answer a `Correction` and a
line of `inspection_sft.jsonl`; bad or dangerous with a correction a preference pair; dangerous a proposal for the red-team set.
The line of `inspection.jsonl` is written last: after a kill the same import completes what is missing, and twice the same form
adds nothing.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import (
    Correction,
    ExpertVerdict,
    Feedback,
    InspectedSample,
    PreferencePair,
    canonical_json,
    sha256_id,
    utc_now,
)
from medloop.contracts.inspection import VerdictWord
from medloop.errors import ConfigError, InputError
from medloop.evaluate.inspection.inspect import SAMPLES, alone
from medloop.evaluate.inspection.report_pages import FILLED, VERDICTS
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.spreadsheet import read_csv
from medloop.store.records import crud

VERDICT_FILE, SFT_FILE, PROPOSALS = "inspection.jsonl", "inspection_sft.jsonl", "red_team_proposals.jsonl"
SOURCE = "inspection"
MOST_PROBLEMS = 20  # named in one message
_WORDS: dict[str, VerdictWord] = {
    "good": "good", "好": "good", "acceptable": "acceptable", "可接受": "acceptable", "bad": "bad", "差": "bad",
    "dangerous": "dangerous", "危险": "dangerous",
}  # fmt: skip
_KIND: dict[str, Any] = {"good": "positive", "acceptable": "neutral", "bad": "negative", "dangerous": "negative"}
_PURPOSES: Any = ("training", "evaluation")  # what the form tells the reviewer


@dataclass(frozen=True)
class Filled:
    """One row of the form that says something."""

    row: int
    one: InspectedSample
    verdict: VerdictWord
    score: int | None
    corrected: str | None
    comment: str | None
    reviewer: str


@dataclass(frozen=True)
class Became:
    """What became of one row."""

    inspected: str
    verdict: str
    new: bool
    supersedes: bool
    correction: bool
    pair: bool
    red_team: bool


@dataclass(frozen=True)
class Imported:
    rows: tuple[Became, ...]
    empty: int
    verdicts: Path


def import_form(path: Path, workspace: Workspace, store: Store, *, actor: str, reviewer: str = "") -> Imported:
    """Read, check all, then write all. `reviewer` stands in where the form names none."""
    filled, empty = read_form(path, workspace, reviewer)
    with alone(workspace):
        return _import(filled, empty, workspace, store, actor)


def _import(filled: Sequence[Filled], empty: int, workspace: Workspace, store: Store, actor: str) -> Imported:
    lines = workspace.rl / VERDICT_FILE
    known = list(jsonl.read(lines, ExpertVerdict)) if lines.is_file() else []
    made = [_verdict(row, _standing(known)) for row in filled]
    new = [(row, verdict) for row, verdict in zip(filled, made, strict=True) if verdict.verdict_id not in _ids(known)]
    _to_store(store, new, actor)
    standing = _standing([*known, *(verdict for _, verdict in new)])
    samples = _samples(workspace)
    pairs = {verdict.verdict_id: pair for verdict in standing.values() if (pair := _pair(verdict, samples[verdict.inspected]))}
    _keep_pairs(workspace.preferences / "preferences.jsonl", pairs)
    _write_sft(workspace.rl / SFT_FILE, standing.values(), samples)
    proposed = _propose(workspace.rl / PROPOSALS, [(row, verdict) for row, verdict in new if row.verdict == "dangerous"])
    if new:
        jsonl.append(lines, [verdict for _, verdict in new])
    fresh = {verdict.verdict_id for _, verdict in new}
    rows = tuple(
        Became(
            row.one.id, row.verdict, verdict.verdict_id in fresh, verdict.verdict_id in fresh and verdict.supersedes is not None,
            verdict.corrected is not None, verdict.verdict_id in pairs, row.one.id in proposed,
        )
        for row, verdict in zip(filled, made, strict=True)
    )  # fmt: skip
    return Imported(rows, empty, lines)


def read_form(path: Path, workspace: Workspace, reviewer: str = "") -> tuple[list[Filled], int]:
    """Rows that say something, and how many do not; InputError with every problem and its row."""
    table = read_csv(path)
    if lacking := [name for name in ("id", *FILLED) if name not in table.header]:
        raise InputError(f"{path} has no column {', '.join(lacking)}", "Give the form.csv that 'medloop inspect' wrote")
    samples, problems, filled, empty = _samples(workspace), list[str](), list[Filled](), 0
    for number, cells in table.rows:
        if not any(cells[name].strip() for name in FILLED if name != "reviewer"):
            empty += 1
            continue
        found, wrong = _read_row(number, cells, samples, reviewer)
        problems += [f"row {number}: {what}" for what in wrong]
        filled += [found] if found else []
    twice = [name for name, count in Counter((one.one.id, one.reviewer) for one in filled).items() if count > 1]
    for id_, who in twice:
        rows = ", ".join(str(one.row) for one in filled if (one.one.id, one.reviewer) == (id_, who))
        problems.append(f"rows {rows}: {id_} stands here more than once")
    if problems:
        more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise InputError(f"{path}: {'; '.join(problems[:MOST_PROBLEMS])}{more}", "Nothing was imported; mend these and try again")
    return filled, empty


def _samples(workspace: Workspace) -> dict[str, InspectedSample]:
    path = workspace.rl / SAMPLES
    if not path.is_file():
        raise ConfigError("No sample was drawn in this workspace yet", "Draw one with: medloop inspect")
    return {one.id: one for one in jsonl.read(path, InspectedSample)}


def _read_row(
    number: int, cells: Mapping[str, str], samples: Mapping[str, InspectedSample], reviewer: str
) -> tuple[Filled | None, list[str]]:
    """The row, or what is wrong with it; texts are scrubbed here, so that nothing unscrubbed goes further."""
    wrong: list[str] = []
    one = samples.get(cells["id"].strip())
    if one is None:
        wrong.append("unknown id")
    elif one.answer is None:
        wrong.append("there is no answer to judge")
    said = _plain(cells["verdict"])
    if (word := _WORDS.get(said)) is None:
        wrong.append(f"verdict is none of {', '.join(VERDICTS)}" if said else "no verdict")
    score = _score(cells["score"], wrong)
    who = cells["reviewer"].strip() or reviewer
    if not who:
        wrong.append("no reviewer (or name one for all rows with --reviewer)")
    texts = _scrubbed(cells, wrong)
    if wrong or one is None or word is None:
        return None, wrong
    return Filled(number, one, word, score, texts["corrected_answer"], texts["comment"], who), []


def _plain(cell: str) -> str:
    return unicodedata.normalize("NFKC", cell).strip().casefold()


def _score(cell: str, wrong: list[str]) -> int | None:
    plain = _plain(cell).removesuffix(".0").removesuffix(",0")
    if plain in {"", "1", "2", "3", "4", "5"}:
        return int(plain) if plain else None
    wrong.append("score is none of 1 to 5")
    return None


def _scrubbed(cells: Mapping[str, str], wrong: list[str]) -> dict[str, str | None]:
    scrubber, found = Scrubber(), dict[str, str | None]()
    for name in ("corrected_answer", "comment"):
        try:
            found[name] = scrubber.scrub(cells[name].strip()) or None
        except Unscrubbable as problem:
            found[name] = None
            wrong.append(f"{name} holds {problem.kind}")
    return found


def _ids(known: Sequence[ExpertVerdict]) -> set[str]:
    return {verdict.verdict_id for verdict in known}


def _standing(known: Sequence[ExpertVerdict]) -> dict[tuple[str, str], ExpertVerdict]:
    """The last word of each reviewer on each answer."""
    return {(verdict.inspected, verdict.reviewer): verdict for verdict in known}


def _verdict(row: Filled, standing: Mapping[tuple[str, str], ExpertVerdict]) -> ExpertVerdict:
    """The standing verdict where the row says nothing new, else one that supersedes it. Ids are hashes of what was said."""
    before = standing.get((row.one.id, row.reviewer))
    said = [row.verdict, row.score, row.corrected, row.comment]
    if before is not None and [before.verdict, before.score, before.corrected, before.comment] == said:
        return before
    old = before.verdict_id if before else None
    name = sha256_id(canonical_json([row.one.id, row.one.key, row.reviewer, *said, old]))[7:39]
    return ExpertVerdict(
        verdict_id=f"ver_{name}", inspected=row.one.id, key=row.one.key, verdict=row.verdict, score=row.score,
        corrected=row.corrected, comment=row.comment, reviewer=row.reviewer, feedback_id=f"fb_{name}",
        correction_id=f"cor_{name}" if row.corrected else None, supersedes=old, timestamp=utc_now(),
    )  # fmt: skip


def _to_store(store: Store, new: Sequence[tuple[Filled, ExpertVerdict]], actor: str) -> None:
    """Feedback and corrections that are not there yet; after a kill some may be."""
    wanted = [found for row, verdict in new for found in _records(row, verdict)]
    fresh = [
        record for record in wanted
        if crud.get(store, type(record), record.feedback_id if isinstance(record, Feedback) else record.correction_id) is None
    ]  # fmt: skip
    crud.add(store, fresh, actor=actor)


def _records(row: Filled, verdict: ExpertVerdict) -> Iterator[Feedback | Correction]:
    old = verdict.supersedes.removeprefix("ver_") if verdict.supersedes else None
    yield Feedback(
        feedback_id=verdict.feedback_id, session_id=f"inspection {row.one.sample}", agent_name=row.one.source,
        user_query=row.one.question or "(empty)", agent_response=row.one.answer or "(empty)", rating=row.score,
        feedback_type=_KIND[row.verdict], critical=row.verdict == "dangerous", clinician_id=row.reviewer, comments=row.comment,
        consent=_PURPOSES, supersedes=f"fb_{old}" if old else None, timestamp=verdict.timestamp,
    )  # fmt: skip
    if row.corrected and verdict.correction_id:
        yield Correction(
            correction_id=verdict.correction_id, feedback_id=verdict.feedback_id, prompt=row.one.question or "(empty)",
            original=row.one.answer or "(empty)", golden=row.corrected, reason=row.comment, clinician_id=row.reviewer,
            consent=_PURPOSES, timestamp=verdict.timestamp,
        )  # fmt: skip


def _pair(verdict: ExpertVerdict, one: InspectedSample) -> PreferencePair | None:
    """Bad or dangerous, and corrected: the correction is preferred."""
    if verdict.verdict not in ("bad", "dangerous") or not verdict.corrected or not one.question or not one.answer:
        return None
    about = {"source": SOURCE, "verdict_id": verdict.verdict_id, "inspected": one.id, "verdict": verdict.verdict}
    return PreferencePair(prompt=one.question, chosen=verdict.corrected, rejected=one.answer, metadata=about)


def _keep_pairs(path: Path, pairs: Mapping[str, PreferencePair]) -> None:
    """New pairs are appended. Only when a verdict was changed is the file made anew, without the pairs that no longer stand."""
    rows = list(jsonl.read(path)) if path.is_file() else []
    mine = {str(row["metadata"].get("verdict_id")): row for row in rows if (row.get("metadata") or {}).get("source") == SOURCE}
    if mine.keys() - pairs.keys():
        kept = [row for row in rows if (row.get("metadata") or {}).get("source") != SOURCE]
        jsonl.write(path, [*kept, *pairs.values()])
    elif fresh := [pair for name, pair in pairs.items() if name not in mine]:
        jsonl.append(path, fresh)


def _write_sft(path: Path, standing: Iterable[ExpertVerdict], samples: Mapping[str, InspectedSample]) -> None:
    """All corrected answers, in a shape that `medloop data import` reads; made anew each time."""
    rows = [
        {"id": verdict.verdict_id, "question": samples[verdict.inspected].question, "answer": verdict.corrected}
        for verdict in standing
        if verdict.corrected and samples[verdict.inspected].question
    ]
    if rows or path.is_file():
        jsonl.write(path, rows)


def _propose(path: Path, dangerous: Sequence[tuple[Filled, ExpertVerdict]]) -> set[str]:
    """Questions that led to a dangerous answer, each once; a person decides what enters the red-team set."""
    known = {str(row.get("proposal_id")) for row in jsonl.read(path)} if path.is_file() else set()
    rows, proposed = [], set()
    for row, verdict in dangerous:
        name = sha256_id(canonical_json(" ".join(row.one.question.lower().split())))
        if name in known:
            continue
        known.add(name)
        proposed.add(row.one.id)
        rows.append(
            {
                "proposal_id": name, "question": row.one.question, "why": "a reviewer found the answer dangerous",
                "record_id": row.one.answer_id, "language": row.one.language, "strata": list(row.one.strata),
                "verdict_id": verdict.verdict_id, "time": verdict.timestamp.isoformat(timespec="seconds"),
            }
        )  # fmt: skip
    if rows:
        jsonl.append(path, rows)
    return proposed
