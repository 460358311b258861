"""Judge many answers: scrub them, request what is not in the cache, store each verdict at once. The rest is `Missing`.

    run = judge_all(items, config, key=key, files=TeacherFiles.of(settings.workspace))
    for result in run.results: result.score()          # Score or Missing, in the order of the items

Degraded mode is reported, never hidden: without a key, with the budget used up or the service down, judgements from the cache are
still returned and everything else is `Missing` with the reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import Judgement, Score
from medloop.contracts.suite import CriterionGrade
from medloop.errors import ConfigError, explain_os_errors
from medloop.settings import Workspace
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
from medloop.teacher import usage
from medloop.teacher.cache import JUDGEMENTS, Appender, JudgementCache
from medloop.teacher.client import Teacher
from medloop.teacher.config import RUBRIC_TEMPLATE, TeacherConfig
from medloop.teacher.failures import Failure
from medloop.teacher.group_work import GroupWork
from medloop.teacher.judge_items import JudgeItem
from medloop.teacher.judge_work import JudgeResult, JudgeWork, Progress, template_of
from medloop.teacher.rubric import RubricItem, RubricWork, grades_of, in_chunks, rubric_config

NULL_ANSWERS = ("", ":", "Thought process:", "The answer meets all criteria.", "Let's solve this problem step by step.", "解：")
REAL_ANSWER = "Chest pain can be a heart attack. Call an ambulance now."
NULL_CEILING = 0.1
NULL_PROBE = "null-probe"
MIN_GROUPS = 5  # ranked in both orders, before their agreement says anything


@dataclass(frozen=True)
class JudgeRun:
    """The results in the order of the items. `degraded` says why requests stopped; `null_mean` is the score of empty answers."""

    results: tuple[JudgeResult, ...]
    calls: int = 0
    cost: float = 0.0
    tokens: int = 0
    degraded: str = ""
    new_fingerprints: tuple[str, ...] = ()
    null_mean: float | None = None

    @property
    def agreements(self) -> list[float]:
        """How far the two rankings agree, of each group that was ranked in both orders."""
        groups = {judgement.group: judgement.agreement for judgement in self.judgements}
        return [agreement for agreement in groups.values() if agreement is not None]

    @property
    def judgements(self) -> list[Judgement]:
        return [result.judgement for result in self.results if result.judgement is not None]

    @property
    def missing(self) -> Counter[str]:
        return Counter(result.missing for result in self.results if result.missing)

    @property
    def missing_share(self) -> float:
        return self.missing.total() / len(self.results) if self.results else 0.0


@dataclass(frozen=True)
class TeacherFiles:
    """Where the teacher's files are."""

    judgements: Path
    logs: Path

    @classmethod
    def of(cls, workspace: Workspace) -> TeacherFiles:
        return cls(workspace.rl / JUDGEMENTS, workspace.logs / "deepseek_teacher")


def judge_all(
    items: Sequence[JudgeItem],
    config: TeacherConfig,
    *,
    key: str,
    files: TeacherFiles,
    progress: Progress | None = None,
    fresh: bool = False,
) -> JudgeRun:
    """Judge all items; `fresh` ignores the cache, as the drift probe does."""
    with exclusive(files.judgements):
        return asyncio.run(_run(items, config, key, files, progress or (lambda done, total: None), fresh))


def grade_criteria(
    items: Sequence[RubricItem], config: TeacherConfig, *, key: str, files: TeacherFiles, progress: Progress | None = None
) -> list[list[CriterionGrade]]:
    """For each item, a grade for each of its criteria, in order."""
    chunks = [in_chunks(item) for item in items]
    run = judge_all([part for parts in chunks for part in parts], rubric_config(config), key=key, files=files, progress=progress)
    results = iter(run.results)
    return [[grade for _ in parts for grade in grades_of(next(results))] for parts in chunks]


def position_alarm(agreements: Sequence[float], config: TeacherConfig) -> str:
    """Why rankings are not to be trusted: they change with the order of the answers; empty where nothing speaks against them."""
    if len(agreements) < MIN_GROUPS or (mean := sum(agreements) / len(agreements)) >= config.min_agreement:
        return ""
    return f"rankings in opposite orders agree on {mean:.0%} of the pairs (at least {config.min_agreement:.0%} are needed)"


def require_key(run: JudgeRun, config: TeacherConfig, key: str) -> None:
    """For commands, before they write: without a key, and with nothing in the cache, there is nothing to report."""
    if config.needs_key and not key and not run.judgements:
        raise ConfigError("No teacher key", "Set DEEPSEEK_API_KEY, then run again. Nothing was written")


@contextmanager
def exclusive(judgements: Path) -> Iterator[None]:
    """Two runs at once would pay twice for the same answers."""
    lock = judgements.with_suffix(".lock")
    with explain_os_errors(lock, writing=True):
        make_folder(lock.parent)
    with locked_file(lock, wait_s=0, what="The teacher of this workspace", mode=0o600):
        yield


async def _run(
    items: Sequence[JudgeItem], config: TeacherConfig, key: str, files: TeacherFiles, progress: Progress, fresh: bool
) -> JudgeRun:
    template, cache = template_of(config), JudgementCache(files.judgements)
    log = Appender(usage.log_path(files.logs))
    fingerprint = cache.usual_fingerprint(config.model, template.version)
    teacher = Teacher(config, key, log=log.put, spent_today=usage.spent_today(files.logs), fingerprint=fingerprint)
    if config.needs_key and not key:
        teacher.stopped = Failure("no_key", "set DEEPSEEK_API_KEY or MEDLOOP_TEACHER__KEY")
    kind = GroupWork if config.mode == "group" else RubricWork if config.template == RUBRIC_TEMPLATE else JudgeWork
    work = kind([*items, *_null_items(len(items), config)], cache, template, config, teacher, progress, fresh)
    try:
        async with teacher:
            await work.run()
    finally:  # also after Ctrl-C: finished judgements are stored
        await cache.flush()
        await log.flush()
    if log.path.exists():
        usage.write_table(files.logs)
    results = [work.results[index] for index in range(len(work.items))]
    incomplete = any(result.missing for result in results)
    probes = (result for result in results[len(items) :] if result.item.prompt_id.startswith(NULL_PROBE))
    null_scores = [result.judgement.teacher_score for result in probes if result.judgement]
    return JudgeRun(
        results=tuple(results[: len(items)]), calls=teacher.calls, cost=teacher.budget.spent_usd,
        tokens=teacher.budget.spent_tokens, degraded=str(teacher.stopped) if teacher.stopped and incomplete else "",
        new_fingerprints=tuple(teacher.new_fingerprints),
        null_mean=sum(null_scores) / len(null_scores) if null_scores else None,
    )  # fmt: skip


def _null_items(count: int, config: TeacherConfig) -> list[JudgeItem]:
    """Empty answers mixed into the traffic: a judge that praises them has been fooled or is broken."""
    probes = NULL_ANSWERS[: count // config.null_probes] if config.null_probes else ()
    question = "What should I do about my chest pain?"
    nulls = [JudgeItem(f"{NULL_PROBE}-{n}", question, answer, None, 9, NULL_PROBE) for n, answer in enumerate(probes)]
    if nulls and config.mode == "group":  # something to lose against
        nulls.append(JudgeItem("real-probe", question, REAL_ANSWER, None, 9, NULL_PROBE))
    return nulls


def score_rows(run: JudgeRun) -> list[dict[str, Any]]:
    """The lines of the scores file, one per item: the score or why it is missing, and the judgement."""
    rows = []
    for result in run.results:
        score = result.score()
        row: dict[str, Any] = {"prompt_id": result.item.prompt_id, "cached": result.cached}
        row["score" if isinstance(score, Score) else "missing"] = score.model_dump(mode="json")
        if result.judgement is not None:
            row["judgement"] = result.judgement.model_dump(mode="json", exclude_none=True)
        rows.append(row)
    return rows
