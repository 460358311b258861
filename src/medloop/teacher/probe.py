"""Is the teacher still the same? Pinned answers are judged anew and compared with the accepted probe.

`pinned.jsonl` has a good and a bad answer to 22 questions, zh and en, and six answers that say nothing. A service that
re-points its model name moves these scores although nothing here has changed. Every probe is a line of `teacher_probes.jsonl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from medloop.contracts import sha256_id, utc_now
from medloop.store.files import jsonl
from medloop.teacher import prompt_templates
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import NULL_CEILING, JudgeRun, Progress, TeacherFiles, judge_all, require_key
from medloop.teacher.judge_items import JudgeItem, read_judge_items

PROBES = "teacher_probes.jsonl"
MAX_SHIFT = 0.05


@dataclass(frozen=True)
class Probe:
    """What a probe found; `shift` is the change of the mean against `baseline` on the items both have."""

    run: JudgeRun
    mean: float | None
    null_mean: float | None
    pairs: int
    pairs_right: int
    shift: float | None
    baseline: str | None

    @property
    def alarms(self) -> list[str]:
        found = []
        if self.shift is not None and abs(self.shift) > MAX_SHIFT:
            found.append(f"the mean moved by {self.shift:+.3f} since {self.baseline} (at most {MAX_SHIFT} is sound)")
        if self.null_mean is not None and self.null_mean > NULL_CEILING:
            found.append(f"answers that say nothing score {self.null_mean:.2f} (at most {NULL_CEILING} is sound)")
        return found


def pinned() -> list[JudgeItem]:
    with resources.as_file(resources.files("medloop.teacher") / "pinned.jsonl") as path:
        return read_judge_items(path)


def probe(
    config: TeacherConfig, *, key: str, files: TeacherFiles, accept: bool = False, progress: Progress | None = None
) -> Probe:
    """Judge the pinned answers, compare, and keep the result; `accept` makes it the one that later probes are compared with."""
    wish = config.model_copy(update={"stop_on_change": False, "null_probes": 0})
    run = judge_all(pinned(), wish, key=key, files=files, progress=progress, fresh=True)
    require_key(run, config, key)
    scores = {o.item.prompt_id: o.judgement.teacher_score for o in run.outcomes if o.judgement}
    path = files.judgements.with_name(PROBES)
    same = {
        "pinned": sha256_id(_pinned_bytes()),
        "template": f"{config.template} {prompt_templates.load(config.template).version}",
    }
    before = _baseline(path, same)
    graded, nulls = _split(scores)
    decided = [right for name in scores if (right := _pair(scores, name)) is not None]
    found = Probe(
        run=run,
        mean=_mean(graded),
        null_mean=_mean(nulls),
        pairs=len(decided),
        pairs_right=sum(decided),
        shift=_shift(before, scores),
        baseline=before["time"] if before else None,
    )
    if run.missing_share <= config.max_missing:
        served = sorted({f"{j.served_model} {j.fingerprint or ''}".strip() for j in run.judgements})
        row = {**same, "time": utc_now().isoformat(timespec="seconds"), "model": config.model, "served": served, "scores": scores}
        jsonl.append(path, {**row, "mean": found.mean, "null_mean": found.null_mean, "baseline": accept or before is None})
    return found


def _pinned_bytes() -> bytes:
    return (resources.files("medloop.teacher") / "pinned.jsonl").read_bytes()


def _baseline(path: Path, same: dict[str, str]) -> dict[str, Any] | None:
    """The last accepted probe of the same items with the same prompt; the first one is accepted by itself."""
    rows = jsonl.read(path) if path.exists() else iter(())
    fitting = [row for row in rows if row.get("baseline") and all(row.get(name) == value for name, value in same.items())]
    return fitting[-1] if fitting else None


def _shift(before: dict[str, Any] | None, scores: dict[str, float]) -> float | None:
    common = [name for name in _split(scores)[0] if before and name in before["scores"]]
    if not before or not common:
        return None
    return sum(scores[name] - float(before["scores"][name]) for name in common) / len(common)


def _split(scores: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    nulls = {name: value for name, value in scores.items() if name.startswith("null-")}
    return {name: value for name, value in scores.items() if name not in nulls}, nulls


def _mean(scores: dict[str, float]) -> float | None:
    return sum(scores.values()) / len(scores) if scores else None


def _pair(scores: dict[str, float], name: str) -> bool | None:
    """Whether the good answer beats the bad one; None when `name` is no good answer or its partner is missing."""
    other = name.removesuffix("-good") + "-bad"
    return scores[name] > scores[other] if name.endswith("-good") and other in scores else None
