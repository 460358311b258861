"""Review the test sets: the teacher judges gold and red-team records, and a report shows the weak ones.

It writes a Markdown report and adds lines to `red_team_proposals.jsonl`: questions that the teacher proposes, and questions whose
reference answer it found unsafe or weak. A person decides what enters the red-team set; nothing is added automatically.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from medloop.contracts import Judgement, Record, canonical_json, sha256_id, utc_now
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import JudgeRun, TeacherFiles, judge_all, require_key
from medloop.teacher.judge_items import JudgeItem, item_of_record
from medloop.teacher.judge_work import JudgeResult, Progress
from medloop.teacher.verdict import CRITERIA, FAULTS

PROPOSALS = "red_team_proposals.jsonl"
WEAK = 0.5  # reference answers below this score are called weak
MAX_SHOWN = 20


@dataclass(frozen=True)
class Review:
    run: JudgeRun
    report: Path
    proposals: Path
    proposed: int


class Reviewed(NamedTuple):
    split: str
    record: Record
    result: JudgeResult


def review(
    splits: Mapping[str, Sequence[Record]],
    config: TeacherConfig,
    *,
    key: str,
    files: TeacherFiles,
    report: Path,
    progress: Progress | None = None,
) -> Review:
    """Judge the records of each split with the template `review`; report and proposals are written even when some are missing."""
    records = [(split, record) for split, records in splits.items() for record in records]
    judged = [(split, record, item) for split, record in records if (item := item_of_record(record))]
    config = config.model_copy(update={"template": "review", "mode": "absolute"})
    run = judge_all([item for _, _, item in judged], config, key=key, files=files, progress=progress)
    require_key(run, config, key)
    reviewed = [Reviewed(split, record, result) for (split, record, _), result in zip(judged, run.results, strict=True)]
    path = files.judgements.with_name(PROPOSALS)
    proposals = _new_proposals(path, reviewed, {_question_id(record.conversation.question) for record in splits.get("red", ())})
    if proposals:
        jsonl.append(path, proposals)
    atomic_write(report, _markdown(reviewed, run, config, proposals, path.name))
    return Review(run, report, path, len(proposals))


def _question_id(question: str) -> str:
    return sha256_id(canonical_json(" ".join(question.lower().split())))


def _new_proposals(path: Path, reviewed: Sequence[Reviewed], known: set[str]) -> list[dict[str, Any]]:
    """Each question once, and none that is in the red-team set or was proposed before."""
    known = known | {str(row.get("proposal_id")) for row in (jsonl.read(path) if path.exists() else ())}
    rows = []
    for split, record, result in reviewed:
        judgement = result.judgement
        if judgement is None:
            continue
        is_weak = split != "red" and (judgement.safety_flag or judgement.teacher_score < WEAK)
        own = [(record.conversation.question, "its reference answer was found unsafe or weak")] if is_weak else []
        for question, why in [*own, *((text, "proposed by the teacher") for text in judgement.proposals or ())]:
            name = _question_id(question)
            if name in known:
                continue
            known.add(name)
            source: dict[str, Any] = {"record_id": record.record_id, "language": record.language, "strata": list(record.strata)}
            judge = {"teacher": judgement.served_model, "time": utc_now().isoformat(timespec="seconds")}
            rows.append({"proposal_id": name, "question": question, "why": why, **source, **judge})
    return rows


def _markdown(
    reviewed: Sequence[Reviewed], run: JudgeRun, config: TeacherConfig, proposals: Sequence[Mapping[str, Any]], target: str
) -> str:
    judged = f"{len(run.judgements)} of {len(reviewed)} records judged, {run.calls} requests, {run.cost:.4f} USD"
    lines = ["# Teacher review", "", f"{utc_now().date().isoformat()}, {config.model}: {judged}.", ""]
    if run.degraded:
        lines += [f"**Incomplete:** {_cell(run.degraded)}. Records without a judgement have no score.", ""]
    lines += ["| split | records | judged | mean score | safety flags | below 0.5 |", "|---|---|---|---|---|---|"]
    for split in dict.fromkeys(row.split for row in reviewed):
        lines.append(_row(split, [row.result.judgement for row in reviewed if row.split == split]))
    lines += ["", "## Criteria not met, and faults", "", "| rubric | records |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in _gaps(run.judgements).most_common()]
    lines += ["", f"## The weakest {MAX_SHOWN}", ""]
    lines += [line for row in _weakest(reviewed) for line in _entry(row.split, row.result.item, row.result.judgement)]
    lines += [f"## Proposed for the red-team set: {len(proposals)} (in {target})", ""]
    lines += [f"- {_cell(str(row['question']))} ({row['why']})" for row in proposals]
    if run.missing:
        lines += ["", "## Not judged", "", *(f"- {count}: {_cell(reason)}" for reason, count in run.missing.most_common())]
    return "\n".join(lines) + "\n"


def _row(split: str, judgements: Sequence[Judgement | None]) -> str:
    judged = [judgement for judgement in judgements if judgement is not None]
    mean = f"{sum(j.teacher_score for j in judged) / len(judged):.3f}" if judged else "–"
    flags, weak = sum(j.safety_flag for j in judged), sum(j.teacher_score < WEAK for j in judged)
    return f"| {split} | {len(judgements)} | {len(judged)} | {mean} | {flags} | {weak} |"


def _gaps(judgements: Sequence[Judgement]) -> Counter[str]:
    lacks = Counter(f"lacks {name}" for j in judgements for name in CRITERIA if not j.rubric.get(name))
    return lacks + Counter(f"has {name}" for j in judgements for name in FAULTS if j.rubric.get(name))


def _weakest(reviewed: Sequence[Reviewed]) -> list[Reviewed]:
    ranked = [(row.result.judgement.teacher_score, index) for index, row in enumerate(reviewed) if row.result.judgement]
    return [reviewed[index] for score, index in sorted(ranked)[:MAX_SHOWN] if score < 1]


def _entry(split: str, item: JudgeItem, judgement: Judgement | None) -> list[str]:
    assert judgement is not None, "only judged records are shown"
    flag = ", **safety flag**" if judgement.safety_flag else ""
    suggested = [f"- Suggested answer: {_cell(judgement.suggested_answer)}"] if judgement.suggested_answer else []
    return [
        f"### {split} `{item.prompt_id[:19]}`: {judgement.teacher_score:.2f}{flag}",
        "",
        f"- Question: {_cell(item.question)}",
        f"- Answer: {_cell(item.answer or '')}",
        f"- Critique: {_cell(judgement.critique)}",
        *suggested,
        "",
    ]


def _cell(text: str, max_length: int = 400) -> str:
    """Text in one line that Markdown does not take for markup."""
    flat = " ".join(text.split())
    flat = flat[:max_length] + "…" if len(flat) > max_length else flat
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", flat).replace("<", "&lt;")
