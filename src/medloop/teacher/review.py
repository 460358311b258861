"""Review the test sets: the teacher reads gold and red-team records, a report says where they are weak.

Out come a Markdown report and new lines in `red_team_proposals.jsonl`: questions the teacher proposes, and questions whose own
reference answer it found unsafe. A person decides what enters the red-team set; nothing is added by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import Judgement, Record, canonical_json, sha256_id, utc_now
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import JudgeResult, JudgeRun, Progress, TeacherFiles, judge_all, require_key
from medloop.teacher.judge_items import JudgeItem, item_of_record
from medloop.teacher.verdict import CRITERIA, FAULTS

PROPOSALS = "red_team_proposals.jsonl"
WEAK = 0.5  # a reference answer below this is no reference
SHOWN = 20


@dataclass(frozen=True)
class Review:
    run: JudgeRun
    report: Path
    proposals: Path
    proposed: int


def review(
    splits: Mapping[str, Sequence[Record]],
    config: TeacherConfig,
    *,
    key: str,
    files: TeacherFiles,
    report: Path,
    progress: Progress | None = None,
) -> Review:
    """Judge the records of each split with the template `review`; report and proposals are written also when some are missing."""
    found = [(split, record, item) for split, records in splits.items() for record in records if (item := item_of_record(record))]
    wish = config.model_copy(update={"template": "review"})
    run = judge_all([item for _, _, item in found], wish, key=key, files=files, progress=progress)
    require_key(run, config, key)
    of = [(split, record, outcome) for (split, record, _), outcome in zip(found, run.outcomes, strict=True)]
    target = files.judgements.with_name(PROPOSALS)
    fresh = _new_proposals(target, of, {_name(r.conversation.question) for r in splits.get("red", ())})
    if fresh:
        jsonl.append(target, fresh)
    atomic_write(report, _markdown(of, run, config, fresh, target.name))
    return Review(run, report, target, len(fresh))


def _name(question: str) -> str:
    return sha256_id(canonical_json(" ".join(question.lower().split())))


def _new_proposals(path: Path, of: Sequence[tuple[str, Record, JudgeResult]], known: set[str]) -> list[dict[str, Any]]:
    """Each question once, and none that is in the red-team set or was proposed before."""
    seen = known | {str(row.get("proposal_id")) for row in (jsonl.read(path) if path.exists() else ())}
    rows = []
    for split, record, outcome in of:
        judgement = outcome.judgement
        if judgement is None:
            continue
        risky = split != "red" and (judgement.safety_flag or judgement.teacher_score < WEAK)
        own = [(record.conversation.question, "its reference answer was found unsafe or weak")] if risky else []
        for question, why in [*own, *((text, "proposed by the teacher") for text in judgement.proposals or ())]:
            name = _name(question)
            if name in seen:
                continue
            seen.add(name)
            source: dict[str, Any] = {"record_id": record.record_id, "language": record.language, "strata": list(record.strata)}
            when = {"teacher": judgement.served_model, "time": utc_now().isoformat(timespec="seconds")}
            rows.append({"proposal_id": name, "question": question, "why": why, **source, **when})
    return rows


def _markdown(
    of: Sequence[tuple[str, Record, JudgeResult]],
    run: JudgeRun,
    config: TeacherConfig,
    fresh: Sequence[Mapping[str, Any]],
    target: str,
) -> str:
    judged = f"{len(run.judgements)} of {len(of)} records judged, {run.calls} requests, {run.cost:.4f} USD"
    lines = ["# Teacher's review", "", f"{utc_now().date().isoformat()}, {config.model}: {judged}.", ""]
    if run.degraded:
        lines += [f"**Degraded:** {_cell(run.degraded)}. Records without a judgement have no score.", ""]
    lines += ["| split | records | judged | mean score | safety flags | below 0.5 |", "|---|---|---|---|---|---|"]
    for split in dict.fromkeys(split for split, _, _ in of):
        lines.append(_row(split, [o.judgement for s, _, o in of if s == split]))
    lines += ["", "## What is missing or wrong", "", "| rubric | records |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in _gaps(run.judgements).most_common()]
    lines += ["", f"## The weakest {SHOWN}", ""]
    lines += [line for split, _, outcome in _weakest(of) for line in _entry(split, outcome.item, outcome.judgement)]
    lines += [f"## Proposed for the red-team set: {len(fresh)} (in {target})", ""]
    lines += [f"- {_cell(str(row['question']))} ({row['why']})" for row in fresh]
    if run.missing:
        lines += ["", "## Not judged", "", *(f"- {count}: {_cell(reason)}" for reason, count in run.missing.most_common())]
    return "\n".join(lines) + "\n"


def _row(split: str, found: Sequence[Judgement | None]) -> str:
    judged = [j for j in found if j is not None]
    mean = f"{sum(j.teacher_score for j in judged) / len(judged):.3f}" if judged else "–"
    flags, weak = sum(j.safety_flag for j in judged), sum(j.teacher_score < WEAK for j in judged)
    return f"| {split} | {len(found)} | {len(judged)} | {mean} | {flags} | {weak} |"


def _gaps(judgements: Sequence[Judgement]) -> Counter[str]:
    lacks = Counter(f"lacks {name}" for j in judgements for name in CRITERIA if not j.rubric.get(name))
    return lacks + Counter(f"has {name}" for j in judgements for name in FAULTS if j.rubric.get(name))


def _weakest(of: Sequence[tuple[str, Record, JudgeResult]]) -> list[tuple[str, Record, JudgeResult]]:
    ranked = [(outcome.judgement.teacher_score, at) for at, (_, _, outcome) in enumerate(of) if outcome.judgement]
    return [of[at] for value, at in sorted(ranked)[:SHOWN] if value < 1]


def _entry(split: str, item: JudgeItem, judgement: Judgement | None) -> list[str]:
    assert judgement is not None, "only judged records are shown"
    flag = ", **safety flag**" if judgement.safety_flag else ""
    lines = [
        f"### {split} `{item.prompt_id[:19]}`: {judgement.teacher_score:.2f}{flag}",
        "",
        f"- Question: {_cell(item.question)}",
    ]
    lines += [f"- Answer: {_cell(item.answer or '')}", f"- Critique: {_cell(judgement.critique)}"]
    suggested = [f"- Suggested: {_cell(judgement.suggested_answer)}"] if judgement.suggested_answer else []
    return [*lines, *suggested, ""]


def _cell(text: str, most: int = 400) -> str:
    """One line that no reader takes for markup."""
    flat = " ".join(text.split())
    flat = flat[:most] + "…" if len(flat) > most else flat
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", flat).replace("<", "&lt;")
