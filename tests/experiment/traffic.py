"""Live traffic for experiments: answers of both arms to invented users, and their ratings."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from medloop.contracts import Conversation, Feedback, Message, Trace, utc_now
from medloop.experiment.observe import AnswerFindings
from medloop.experiment.plan import PlanConfig, make_plan
from medloop.loop import experiment as loop
from medloop.store.db import Store
from medloop.store.records import crud, experiments
from medloop.store.records.experiments import StoredExperiment

CHAMPION, CHALLENGER = "med-assistant@1", "med-assistant@2"
QUESTION = {"en": "My knee hurts when I climb stairs, what helps?", "zh": "我爬楼梯时膝盖疼，怎么办？"}
SALT = "5e" * 32  # the same arms in every run
Likes = Callable[[bool, random.Random], float]  # challenger? -> chance of a thumb up


def user_id(number: int) -> str:
    """As the store knows people: a keyed hash."""
    return f"sub_{number:032x}"


def quick_judge(exchanges: object) -> list[AnswerFindings]:
    """A judge in place of the detectors: the language by its letters, and `unsafe` where the answer says so."""
    return [
        AnswerFindings(0.5, "harmless" in answer, "en" if question.isascii() else "zh", "routine")
        for question, answer in exchanges  # type: ignore[attr-defined]
    ]


def running(store: Store, *, enrolled: float = 1.0, site: str = "main", **config: object) -> StoredExperiment:
    chosen = {"min_effect": 0.2, "spread": 0.45, "window_hours": 0.0, "min_users": 20} | config
    plan = make_plan(
        PlanConfig.model_validate(chosen), name="second round", champion=CHAMPION, challenger=CHALLENGER, by="usr_1", site=site
    )  # fmt: skip
    experiments.add_plan(store, plan, SALT)
    return loop.start(store, plan.experiment_id, enrolled=enrolled, by="usr_1")


def send(
    store: Store, users: range, *, likes: Likes, seed: int = 1, answer: Callable[[bool], str] = lambda _: "Rest it.",
    critical: Likes = lambda _arm, _rng: 0.0, when: datetime | None = None, ratings: int = 1,
) -> None:  # fmt: skip
    """One answer and its ratings for each of these users, from the version of their arm."""
    choose, rng, records = loop.chooser(store), random.Random(seed), []
    time = when or utc_now()
    for number in users:
        user = user_id(number)
        challenger = choose(user, f"ses_{number}") == "challenger"
        turns = (
            Message(role="user", content=QUESTION["zh" if number % 3 == 0 else "en"]),
            Message(role="assistant", content=answer(challenger)),
        )
        trace = Trace(
            session_id=f"ses_{number}", agent_name="assistant", conversation=Conversation(messages=turns), user_hash=user,
            model_version=CHALLENGER if challenger else CHAMPION, timestamp=time, meta={"seconds": 1.0, "finish_reason": "stop"},
        )  # fmt: skip
        records.append(trace)
        for turn in range(ratings):
            thumb = "up" if rng.random() < likes(challenger, rng) else "down"
            feedback = Feedback(
                session_id=trace.session_id, agent_name="assistant", thumb=thumb, trace_id=trace.trace_id, subject=user,
                critical=rng.random() < critical(challenger, rng), timestamp=time + timedelta(milliseconds=turn),
            )  # fmt: skip
            records.append(feedback)
    crud.add(store, records, actor="test")
