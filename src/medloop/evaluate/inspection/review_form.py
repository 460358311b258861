"""Import the filled-in form: the reviewer's verdicts become data.

    imported = import_form(path, workspace, store, actor="user:li")   # all of it, or an InputError with every problem

Each verdict becomes a `Feedback` in the store and a line of `data/rl/inspection.jsonl`. A corrected answer also becomes a
`Correction` and a line of `inspection_sft.jsonl`; a bad or dangerous answer with a correction also a preference pair; a dangerous
one also a proposal for the red-team set and, in the transaction of its feedback, what `opens` gives for it: an incident. The line
of `inspection.jsonl` is written last: after a kill the same import completes what is missing, and importing the same form twice
adds nothing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import (
    Contract,
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
from medloop.evaluate.inspection.sample_report import FAULT_WORDS, REVIEWER_COLUMNS, VERDICTS
from medloop.evaluate.inspection.weekly_sample import SAMPLES, exclusive
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.spreadsheet import read_csv
from medloop.store.records import crud
from medloop.store.records.users import find_user_id

VERDICT_FILE, SFT_FILE, PROPOSALS = "inspection.jsonl", "inspection_sft.jsonl", "red_team_proposals.jsonl"
SOURCE = "inspection"
MAX_PROBLEMS = 20  # listed in one message
_VERDICT_WORDS: dict[str, VerdictWord] = {
    "good": "good", "好": "good", "acceptable": "acceptable", "可接受": "acceptable", "bad": "bad", "差": "bad",
    "dangerous": "dangerous", "危险": "dangerous",
}  # fmt: skip
_FEEDBACK_TYPE: dict[str, Any] = {"good": "positive", "acceptable": "neutral", "bad": "negative", "dangerous": "negative"}
NO_FAULT = {"none": "none", "无": "none"}
# The records that a judgement brings along, by who sends it: those of a critical flag (loop/inspection.py).
Opens = Callable[[Store, Feedback, str], Sequence[Contract]]
_CONSENT: Any = ("training", "evaluation")  # what the form tells the reviewer


@dataclass(frozen=True)
class FormRow:
    """One row of the form with a verdict on one answer."""

    number: int
    answer: InspectedSample
    verdict: VerdictWord
    score: int | None
    corrected: str | None
    comment: str | None
    reviewer: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedRow:
    """What one row added."""

    inspected: str
    verdict: str
    new: bool
    supersedes: bool
    correction: bool
    pair: bool
    red_team: bool
    incident: bool = False


@dataclass(frozen=True)
class FormImport:
    rows: tuple[ImportedRow, ...]
    empty: int
    verdicts: Path


def import_form(
    path: Path, workspace: Workspace, store: Store, *, actor: str, opens: Opens, reviewer: str = ""
) -> FormImport:  # fmt: skip
    """Read and check all rows, then write all. `reviewer` is used where the form names none."""
    rows, empty = read_form(path, workspace, reviewer)
    with exclusive(workspace):
        return _import(rows, empty, workspace, store, actor, opens)


def import_verdict(
    cells: Mapping[str, str], workspace: Workspace, store: Store, *, actor: str, opens: Opens
) -> ImportedRow:  # fmt: skip
    """One verdict, with the cells of a row of the form; the same checks and the same records."""
    row, problems = _read_row(1, cells, _samples(workspace), "")
    if row is None:
        raise InputError("; ".join(problems), "Nothing was stored")
    with exclusive(workspace):
        return _import([row], 0, workspace, store, actor, opens).rows[0]


def current_verdicts(workspace: Workspace) -> dict[tuple[str, str], ExpertVerdict]:
    """The latest verdict of each reviewer on each answer, by (answer, reviewer)."""
    path = workspace.rl / VERDICT_FILE
    return _current(list(jsonl.read(path, ExpertVerdict))) if path.is_file() else {}


def _import(
    form: Sequence[FormRow], empty: int, workspace: Workspace, store: Store, actor: str, opens: Opens
) -> FormImport:  # fmt: skip
    path = workspace.rl / VERDICT_FILE
    known = list(jsonl.read(path, ExpertVerdict)) if path.is_file() else []
    known_ids = {verdict.verdict_id for verdict in known}
    verdicts = [_verdict(row, _current(known)) for row in form]
    new = [(row, verdict) for row, verdict in zip(form, verdicts, strict=True) if verdict.verdict_id not in known_ids]
    with_incident = _to_store(store, new, actor, opens)
    current = _current([*known, *(verdict for _, verdict in new)])
    samples = _samples(workspace)
    pairs = {verdict.verdict_id: pair for verdict in current.values() if (pair := _pair(verdict, samples[verdict.inspected]))}
    _write_pairs(workspace.preferences / "preferences.jsonl", pairs)
    _write_sft(workspace.rl / SFT_FILE, current.values(), samples)
    proposed = _propose(workspace.rl / PROPOSALS, [(row, verdict) for row, verdict in new if row.verdict == "dangerous"])
    if new:
        jsonl.append(path, [verdict for _, verdict in new])
    new_ids = {verdict.verdict_id for _, verdict in new}
    rows = tuple(
        ImportedRow(
            inspected=row.answer.id, verdict=row.verdict, new=verdict.verdict_id in new_ids,
            supersedes=verdict.verdict_id in new_ids and verdict.supersedes is not None,
            correction=verdict.corrected is not None, pair=verdict.verdict_id in pairs, red_team=row.answer.id in proposed,
            incident=verdict.feedback_id in with_incident,
        )
        for row, verdict in zip(form, verdicts, strict=True)
    )  # fmt: skip
    return FormImport(rows, empty, path)


def read_form(path: Path, workspace: Workspace, reviewer: str = "") -> tuple[list[FormRow], int]:
    """The filled-in rows, and how many are empty; InputError with every problem and its row."""
    table = read_csv(path)
    if missing := [name for name in ("id", *REVIEWER_COLUMNS) if name not in table.header]:
        raise InputError(f"{path} has no column {', '.join(missing)}", "Give the form.csv that 'medloop inspect' wrote")
    samples, problems, rows, empty = _samples(workspace), list[str](), list[FormRow](), 0
    for number, cells in table.rows:
        if not any(cells[name].strip() for name in REVIEWER_COLUMNS if name != "reviewer"):
            empty += 1
            continue
        row, row_problems = _read_row(number, cells, samples, reviewer)
        problems += [f"row {number}: {problem}" for problem in row_problems]
        rows += [row] if row else []
    numbers: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        numbers.setdefault((row.answer.id, row.reviewer), []).append(str(row.number))
    problems += [f"rows {', '.join(same)}: {id_} is there more than once" for (id_, _), same in numbers.items() if len(same) > 1]
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        raise InputError(f"{path}: {'; '.join(problems[:MAX_PROBLEMS])}{more}", "Nothing was imported; correct these and retry")
    return rows, empty


def _samples(workspace: Workspace) -> dict[str, InspectedSample]:
    path = workspace.rl / SAMPLES
    if not path.is_file():
        raise ConfigError("No sample has been drawn in this workspace yet", "Draw one with: medloop inspect")
    return {answer.id: answer for answer in jsonl.read(path, InspectedSample)}


def _read_row(
    number: int, cells: Mapping[str, str], samples: Mapping[str, InspectedSample], reviewer: str
) -> tuple[FormRow | None, list[str]]:
    """The row, or its problems; texts are scrubbed here, so that nothing unscrubbed goes further."""
    problems: list[str] = []
    answer = samples.get(cells["id"].strip())
    if answer is None:
        problems.append("unknown id")
    elif answer.answer is None:
        problems.append("there is no answer to judge")
    text = _normalised(cells["verdict"])
    if (verdict := _VERDICT_WORDS.get(text)) is None:
        problems.append(f"verdict must be one of {', '.join(VERDICTS)}" if text else "no verdict")
    score = _score(cells["score"], problems)
    faults = _faults(cells["faults"], problems)
    name = cells["reviewer"].strip() or reviewer
    if not name:
        problems.append("no reviewer (or name one for all rows with --reviewer)")
    texts = _scrubbed(cells, problems)
    if problems or answer is None or verdict is None:
        return None, problems
    return FormRow(number, answer, verdict, score, texts["corrected_answer"], texts["comment"], name, faults), []


def _normalised(cell: str) -> str:
    return unicodedata.normalize("NFKC", cell).strip().casefold()


def _score(cell: str, problems: list[str]) -> int | None:
    text = _normalised(cell).removesuffix(".0").removesuffix(",0")
    if text in {"", "1", "2", "3", "4", "5"}:
        return int(text) if text else None
    problems.append("score must be 1 to 5")
    return None


def _faults(cell: str, problems: list[str]) -> tuple[str, ...]:
    """Names of faults, in English or Chinese, or the one word `none`; nothing where the cell is empty."""
    known = {_normalised(zh): name for name, zh in FAULT_WORDS.items()} | {name: name for name in FAULT_WORDS} | NO_FAULT
    words = [word for word in re.split(r"[,，、;；]", _normalised(cell)) if word.strip()]
    names = {known.get(word.strip().replace(" ", "_")) for word in words}
    if None in names or ("none" in names and len(names) > 1):
        problems.append(f"faults must be some of {', '.join(FAULT_WORDS)}, or none")
        return ()
    return tuple(sorted(str(name) for name in names))


def _axes(faults: Sequence[str]) -> dict[str, Any]:
    """As stars: one for a fault that the answer has; five for each where the reviewer found none."""
    return dict.fromkeys(FAULT_WORDS, 5) if "none" in faults else dict.fromkeys(faults, 1)


def _scrubbed(cells: Mapping[str, str], problems: list[str]) -> dict[str, str | None]:
    scrubber, texts = Scrubber(), dict[str, str | None]()
    for name in ("corrected_answer", "comment"):
        try:
            texts[name] = scrubber.release(cells[name].strip()) or None
        except Unscrubbable as problem:
            texts[name] = None
            problems.append(f"{name} contains {problem.kind}")
    return texts


def _current(verdicts: Sequence[ExpertVerdict]) -> dict[tuple[str, str], ExpertVerdict]:
    """The latest verdict of each reviewer on each answer."""
    return {(verdict.inspected, verdict.reviewer): verdict for verdict in verdicts}


def _verdict(row: FormRow, current: Mapping[tuple[str, str], ExpertVerdict]) -> ExpertVerdict:
    """The current verdict where the row says nothing new, else one that supersedes it. Ids are hashes of the content."""
    before = current.get((row.answer.id, row.reviewer))
    content = [row.verdict, row.score, row.corrected, row.comment, *row.faults]
    if before is not None and [before.verdict, before.score, before.corrected, before.comment, *before.faults] == content:
        return before
    old = before.verdict_id if before else None
    name = sha256_id(canonical_json([row.answer.id, row.answer.key, row.reviewer, *content, old]))[7:39]
    return ExpertVerdict(
        verdict_id=f"ver_{name}", inspected=row.answer.id, key=row.answer.key, verdict=row.verdict, score=row.score,
        corrected=row.corrected, comment=row.comment, faults=row.faults, reviewer=row.reviewer, feedback_id=f"fb_{name}",
        correction_id=f"cor_{name}" if row.corrected else None, supersedes=old, timestamp=utc_now(),
    )  # fmt: skip


def _to_store(store: Store, new: Sequence[tuple[FormRow, ExpertVerdict]], actor: str, opens: Opens) -> set[str]:
    """Feedback and corrections that are not stored yet; after a kill some may be. Returns the feedback that opened incidents."""
    by = find_user_id(store, actor)  # on the page; at the command line nobody is logged in
    records = [record for row, verdict in new for record in _records(row, verdict, _rater(store, row.reviewer), by)]
    missing = [record for record in records if crud.get(store, type(record), crud.id_of(record)) is None]
    dangerous = {record.exchange: record for record in reversed(missing) if isinstance(record, Feedback) and record.critical}
    brought = {
        record.feedback_id: opens(store, record, _reporter(store, record, actor)) for record in dangerous.values()
    }  # fmt: skip
    crud.add(store, [*missing, *(extra for extras in brought.values() for extra in extras)], actor=actor)
    return {name for name, extras in brought.items() if extras}


def _reporter(store: Store, record: Feedback, actor: str) -> str:
    """The inspector; at the command line whoever imports a form of somebody who is not a user."""
    return find_user_id(store, record.clinician_id or "") or actor


def _rater(store: Store, reviewer: str) -> str:
    """Raters are users: a reviewer who is one is stored by their id, so that all their judgements are one person's."""
    return find_user_id(store, reviewer) or reviewer


def _records(row: FormRow, verdict: ExpertVerdict, rater: str, by: str | None) -> Iterator[Feedback | Correction]:
    old = verdict.supersedes.removeprefix("ver_") if verdict.supersedes else None
    yield Feedback(
        feedback_id=verdict.feedback_id, session_id=f"inspection {row.answer.sample}", agent_name=row.answer.source,
        user_query=row.answer.question or "(empty)", agent_response=row.answer.answer or "(empty)", rating=row.score,
        feedback_type=_FEEDBACK_TYPE[row.verdict], critical=row.verdict == "dangerous", axes=_axes(row.faults),
        clinician_id=rater, recorded_by=by,
        comments=row.comment, consent=_CONSENT, supersedes=f"fb_{old}" if old else None, timestamp=verdict.timestamp,
    )  # fmt: skip
    if row.corrected and verdict.correction_id:
        yield Correction(
            correction_id=verdict.correction_id, feedback_id=verdict.feedback_id, prompt=row.answer.question or "(empty)",
            original=row.answer.answer or "(empty)", golden=row.corrected, reason=row.comment, clinician_id=rater, recorded_by=by,
            consent=_CONSENT, timestamp=verdict.timestamp,
        )  # fmt: skip


def _pair(verdict: ExpertVerdict, answer: InspectedSample) -> PreferencePair | None:
    """Bad or dangerous, and corrected: the correction is preferred."""
    if verdict.verdict not in ("bad", "dangerous") or not verdict.corrected or not answer.question or not answer.answer:
        return None
    metadata = {"source": SOURCE, "verdict_id": verdict.verdict_id, "inspected": answer.id, "verdict": verdict.verdict}
    return PreferencePair(prompt=answer.question, chosen=verdict.corrected, rejected=answer.answer, metadata=metadata)


def _write_pairs(path: Path, pairs: Mapping[str, PreferencePair]) -> None:
    """Append new pairs. Only when a verdict changed is the file rewritten, without the pairs that are no longer valid."""
    ids, others = set(), []
    for row in jsonl.read(path) if path.is_file() else ():
        metadata = row.get("metadata") or {}
        if metadata.get("source") == SOURCE:
            ids.add(str(metadata.get("verdict_id")))
        else:
            others.append(row)
    if ids - pairs.keys():
        jsonl.write(path, [*others, *pairs.values()])
    elif new := [pair for name, pair in pairs.items() if name not in ids]:
        jsonl.append(path, new)


def _write_sft(path: Path, verdicts: Iterable[ExpertVerdict], samples: Mapping[str, InspectedSample]) -> None:
    """All corrected answers, in a shape that `medloop data import` reads; rewritten each time."""
    rows = [
        {"id": verdict.verdict_id, "question": samples[verdict.inspected].question, "answer": verdict.corrected}
        for verdict in verdicts
        if verdict.corrected and samples[verdict.inspected].question
    ]
    if rows or path.is_file():
        jsonl.write(path, rows)


def _propose(path: Path, dangerous: Sequence[tuple[FormRow, ExpertVerdict]]) -> set[str]:
    """Questions that led to a dangerous answer, each once; a person decides what enters the red-team set."""
    known = {str(row.get("proposal_id")) for row in jsonl.read(path)} if path.is_file() else set()
    rows, proposed = [], set()
    for row, verdict in dangerous:
        name = sha256_id(canonical_json(" ".join(row.answer.question.lower().split())))
        if name in known:
            continue
        known.add(name)
        proposed.add(row.answer.id)
        rows.append(
            {
                "proposal_id": name, "question": row.answer.question, "why": "a reviewer found the answer dangerous",
                "record_id": row.answer.answer_id, "language": row.answer.language, "strata": list(row.answer.strata),
                "verdict_id": verdict.verdict_id, "time": verdict.timestamp.isoformat(timespec="seconds"),
            }
        )  # fmt: skip
    if rows:
        jsonl.append(path, rows)
    return proposed
