"""Detect drift of the teacher: pinned answers are judged again and compared with the accepted probe.

`pinned.jsonl` has a good and a bad answer to 22 questions, zh and en, and six null answers. A service that points its model name
to another model changes these scores although nothing here has changed. Every probe is a line of `teacher_probes.jsonl`.
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from medloop.contracts import sha256_id, utc_now
from medloop.store.files import jsonl
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import NULL_CEILING, JudgeRun, TeacherFiles, judge_all, require_key
from medloop.teacher.judge_items import JudgeItem, read_judge_items
from medloop.teacher.judge_work import Progress, template_of

PROBES = "teacher_probes.jsonl"
MAX_SHIFT = 0.05


@dataclass(frozen=True)
class Probe:
    """The result of a probe; `shift` is the change of the mean since `baseline`, over the items in both."""

    run: JudgeRun
    mean: float | None
    null_mean: float | None
    pairs: int
    pairs_right: int
    shift: float | None
    baseline: str | None

    @property
    def alarms(self) -> list[str]:
        alarms = []
        if self.shift is not None and abs(self.shift) > MAX_SHIFT:
            alarms.append(f"the mean moved by {self.shift:+.3f} since {self.baseline} (at most {MAX_SHIFT} is acceptable)")
        if self.null_mean is not None and self.null_mean > NULL_CEILING:
            alarms.append(f"null answers score {self.null_mean:.2f} (at most {NULL_CEILING} is acceptable)")
        return alarms


def pinned() -> list[JudgeItem]:
    with resources.as_file(resources.files("medloop.teacher") / "pinned.jsonl") as path:
        return read_judge_items(path)


def probe(
    config: TeacherConfig, *, key: str, files: TeacherFiles, accept: bool = False, progress: Progress | None = None
) -> Probe:
    """Judge the pinned answers, compare, and record the result; with `accept`, later probes are compared with this one."""
    config = config.model_copy(update={"stop_on_change": False, "null_probes": 0, "mode": "absolute"})
    run = judge_all(pinned(), config, key=key, files=files, progress=progress, fresh=True)
    require_key(run, config, key)
    scores = {result.item.prompt_id: result.judgement.teacher_score for result in run.results if result.judgement}
    path = files.judgements.with_name(PROBES)
    identity = {
        "pinned": sha256_id(_pinned_bytes()),
        "template": f"{config.used_template} {template_of(config).version}",
    }
    before = _baseline(path, identity)
    graded, nulls = _split(scores)
    pairs = [right for name in scores if (right := _pair_is_right(scores, name)) is not None]
    result = Probe(
        run=run, mean=_mean(graded), null_mean=_mean(nulls), pairs=len(pairs), pairs_right=sum(pairs),
        shift=_shift(before, scores), baseline=before["time"] if before else None,
    )  # fmt: skip
    if run.missing_share <= config.max_missing:
        served = sorted({f"{j.served_model} {j.fingerprint or ''}".strip() for j in run.judgements})
        row = {
            **identity, "time": utc_now().isoformat(timespec="seconds"), "model": config.model, "served": served,
            "scores": scores, "mean": result.mean, "null_mean": result.null_mean, "baseline": accept or before is None,
        }  # fmt: skip
        jsonl.append(path, row)
    return result


def _pinned_bytes() -> bytes:
    return (resources.files("medloop.teacher") / "pinned.jsonl").read_bytes()


def _baseline(path: Path, identity: dict[str, str]) -> dict[str, Any] | None:
    """The last accepted probe of the same items with the same prompt; the first one is accepted automatically."""
    rows = jsonl.read(path) if path.exists() else iter(())
    accepted = [row for row in rows if row.get("baseline") and all(row.get(name) == value for name, value in identity.items())]
    return accepted[-1] if accepted else None


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


def _pair_is_right(scores: dict[str, float], name: str) -> bool | None:
    """Whether the good answer beats the bad one; None when `name` is not a good answer or its partner is missing."""
    other = name.removesuffix("-good") + "-bad"
    return scores[name] > scores[other] if name.endswith("-good") and other in scores else None
