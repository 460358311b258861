"""Numbers about one exchange or one rating, for the arm of its user.

    of_trace(experiment, trace, judged)        # exposed, completion, quality, and the guards' events: 0 or 1
    of_rating(experiment, row, exposed)        # satisfaction, and the guards that ratings speak to

What cannot be measured has the value None and counts as missing. A trace may say in its `meta`: `seconds`, `error`,
`finish_reason`, and `completed` (whether the user got done what they came for).
"""

from dataclasses import dataclass
from datetime import datetime

from medloop.contracts import Trace
from medloop.contracts.assistant import Champion
from medloop.contracts.experiment import EXPOSED, GUARDS, Observation, version_name
from medloop.contracts.polarity import polarity
from medloop.experiment.assign import arm_of, unit_of
from medloop.store.records.experiments import ExposedTrace, RatingRow, StoredExperiment

BY_POLARITY = {"positive": 1.0, "neutral": 0.5, "mixed": 0.5, "negative": 0.0}
OTHER_MODEL = "other_model"  # an answer of another version than the arm's, such as a fallback


@dataclass(frozen=True)
class AnswerFindings:
    """What the detectors and the judge said about an answer; None where they could not say."""

    quality: float | None
    unsafe: bool | None
    language: str
    stratum: str


def assigned(experiment: StoredExperiment, user: str, episode: str, time: datetime) -> Champion | None:
    """The arm at that time; None for a user who did not take part then, or after the end."""
    started, ended = experiment.started, experiment.ended
    if started is None or time < started or (ended is not None and time > ended):
        return None
    share = experiment.enrolled_at(time)
    return arm_of(experiment.salt, user=user, episode=episode, split=experiment.plan.split, enrolled=share)


def of_trace(experiment: StoredExperiment, trace: Trace, judged: AnswerFindings) -> list[Observation]:
    """All that one exchange says; nothing for somebody who does not take part."""
    plan, user = experiment.plan, trace.user_hash or ""
    arm = assigned(experiment, user, trace.session_id, trace.timestamp)
    if arm is None:
        return []
    meta = trace.meta
    failed = bool(meta.get("error")) or meta.get("finish_reason") == "error"
    seconds = meta.get("seconds")
    values: dict[str, float | None] = {
        EXPOSED: 1.0,
        "completion": _completion(trace, failed),
        "quality": None if failed else judged.quality,
        "unsafe": None if judged.unsafe is None else float(judged.unsafe),
        "error": float(failed),
        "slow": float(seconds * 1000 > plan.slow_ms) if isinstance(seconds, int | float) else None,
    }
    if version_name(trace.model_version) != (plan.challenger if arm == "challenger" else plan.champion):
        values[OTHER_MODEL] = 1.0
    unit = unit_of(user, trace.session_id)
    values = _telling(values)
    return [
        Observation(
            experiment_id=plan.experiment_id, site=plan.site, unit=unit, arm=arm, metric=metric, value=value,
            record_id=trace.trace_id, language=judged.language, stratum=judged.stratum, timestamp=trace.timestamp,
        )
        for metric, value in values.items()
    ]  # fmt: skip


def _telling(values: dict[str, float | None]) -> dict[str, float | None]:
    """Without what a guard did not see: it counts events, and the users come from `exposed`."""
    return {name: value for name, value in values.items() if name not in GUARDS or value}


def _completion(trace: Trace, failed: bool) -> float:
    """Whether the user got what they came for, if the trace says it; else whether they got a whole answer."""
    done = trace.meta.get("completed")
    if isinstance(done, bool):
        return float(done)
    return float(not failed and bool(trace.conversation.answer) and trace.meta.get("finish_reason") != "length")


def of_rating(experiment: StoredExperiment, row: RatingRow, about: ExposedTrace) -> list[Observation]:
    """Satisfaction between 0 and 1, and whether the rating is a critical flag or a complaint; for the arm of the rated answer."""
    plan = experiment.plan
    said = polarity(thumb=row.thumb, stars=row.rating, feedback_type=row.feedback_type, critical=row.critical)
    satisfaction = None if said is None else BY_POLARITY[said]
    if row.rating is not None and not row.critical and row.thumb is None:
        satisfaction = (row.rating - 1) / 4
    values: dict[str, float | None] = {
        "satisfaction": satisfaction,
        "critical": float(row.critical),
        "dissatisfied": None if said is None else float(said == "negative"),
    }
    values = _telling(values)
    return [
        Observation(
            experiment_id=plan.experiment_id, site=plan.site, unit=about.unit, arm=about.arm, metric=metric, value=value,
            record_id=row.record_id, language=about.language, stratum=about.stratum, timestamp=row.timestamp,
        )
        for metric, value in values.items()
    ]  # fmt: skip
