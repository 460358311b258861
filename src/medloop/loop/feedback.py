"""Feedback in the loop: build a dataset from it, fill the review queue, measure it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from medloop.contracts import Sample, Score
from medloop.contracts.queue import QueueItem
from medloop.data.feedback.build import BuiltDataset, FeedbackConfig, build
from medloop.data.feedback.rater_weights import RaterWeights
from medloop.data.progress import Progress, silent
from medloop.data.text.risk import strata_of
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig, measure
from medloop.feedback.insight.skill import UNKNOWN_WEIGHT, measure_skill
from medloop.feedback.review.check_items import check_items
from medloop.feedback.review.complaints import queue_complaints
from medloop.feedback.review.propose import QueueFill, Signals, answer_key, candidates_from_samples, propose
from medloop.feedback.review.queue import QueueConfig
from medloop.loop.scoring import load_reward_model_part
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.catalog import register
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import Questions, read_samples
from medloop.store.records import marks
from medloop.store.records.review_queue import add_items
from medloop.store.records.scores import rewards_of


def build_from_feedback(
    store: Store, config: FeedbackConfig, *, seed: int, actor: str, progress: Progress = silent
) -> BuiltDataset:  # fmt: skip
    """Feedback as a dataset with an entry in the catalog; the command and `/api/v1/data/build` both call this."""
    built = build(store, config, seed=seed, actor=actor, weights=rater_weights(store), progress=progress)
    register(store, "feedback", built.folder, built.card.model_dump(mode="json", exclude_none=True), actor=actor)
    return built


def rater_weights(store: Store) -> RaterWeights:
    """What each rater's judgement weighs when a dataset is built, from what is known about them today."""
    skills = measure_skill(store)
    not_raters = frozenset(name for name, skill in skills.items() if skill.only_against)
    return RaterWeights({name: skill.weight for name, skill in skills.items()}, UNKNOWN_WEIGHT, not_raters)


def fill_queue(
    settings: Settings,
    store: Store,
    *,
    config: QueueConfig,
    reward_model: str = "",
    answers: Path | None = None,
    questions: Sequence[Path] = (),
) -> QueueFill:
    """Top the review queue up from traces, from where teacher and rules disagreed, and from a file of answers.

    Complaints that wait to be queued come first, and count as added.
    """
    complaints = queue_new_complaints(store)
    path = settings.workspace.rl / "teacher_conflicts.jsonl"
    rows = list(jsonl.read(path))[-config.pool :] if path.is_file() else []
    gaps = {answer_key(row["question"], row["answer"]): float(row["gap"]) for row in rows}
    extra = candidates_from_samples(((row["question"], row["answer"], None, float(row["gap"])) for row in rows), pairs=False)
    if answers is not None:
        samples = read_samples(answers, Questions(questions))
        extra += candidates_from_samples(((s.question, s.answer, s.group, None) for s in samples if s.answer), pairs=True)
    values = _reward_model_values(settings, reward_model) if reward_model else None
    signals = Signals(strata_of, values, gaps, rewards_of(store, marks.newest_traces(store, config.pool)))
    filled = propose(store, signals, extra=extra, complaints=complaints, config=config, actor=actor())
    checks = check_items(store, strata_of, config, most=round(config.check * filled.added), actor=actor())
    return replace(filled, checks=add_items(store, checks, actor=actor()) if checks else 0)


def queue_new_complaints(store: Store) -> list[QueueItem]:
    """Everything that people complained about since the queue looked last is in it; commands call this before they read it."""
    items: list[QueueItem] = []
    while (queued := queue_complaints(store, strata_of, actor=actor())).looked:
        items += queued.items
    return items


def _reward_model_values(settings: Settings, name: str) -> Callable[[Sequence[Sample]], list[float | None]]:
    """Scores answers with a reward model; None where it could not."""
    model = load_reward_model_part(settings, name)
    return lambda samples: [part.value if isinstance(part, Score) else None for part in model.score(samples)]


def measure_feedback(settings: Settings, store: Store, config: MetricsConfig) -> FeedbackMetrics:
    """The numbers about the feedback, with the coverage of the risk strata."""
    return measure(store, config, strata_of=strata_of if config.traces else None, actor=actor())
