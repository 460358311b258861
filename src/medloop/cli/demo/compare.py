"""The part of `medloop demo` that compares two versions on traffic: SFT is the champion, the RL model the challenger.

The users are invented, and that is said. Their questions are the held-out ones, and their answers are those that the two versions
really gave in training (`held_out.jsonl` of the RL model: before and after); each user gets an answer of the arm that the
experiment draws for them. The rules judge the answers, as in any experiment on quality.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from medloop.cli import ui
from medloop.cli.demo.clinicians import MODEL, demo_store
from medloop.cli.demo.run import run_step
from medloop.contracts import Conversation, Message, Trace
from medloop.loop.experiment import chooser, default_judge, refresh, verdict_of
from medloop.registry.promote import holder
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import crud, experiments
from medloop.store.records.experiments import StoredExperiment

NAME = "SFT against RL"
PLAN = f'experiment plan "{NAME}" --primary quality --effect 0.05 --spread 0.26 --window-hours 0 --min-users 100'
BATCH, MOST = 100, 3000  # users between two looks, and at most
Answers = dict[str, list[tuple[str, str]]]  # by arm: question and answer


def compare_versions(folder: Path) -> str | None:
    """Plan, start, traffic until the verdict, decision; returns the verdict, None where there is nothing to compare."""
    with demo_store(folder) as store:
        known = experiments.every(store)
        ready = holder(store, "champion") is not None and holder(store, "challenger") is not None
    if not known and not ready:
        return None
    if not known:
        run_step(PLAN, folder, "Compare the two versions on traffic: how many users does that need?")
    with demo_store(folder) as store:
        experiment = experiments.every(store)[0]
    name = experiment.plan.experiment_id
    if experiment.state == "planned":
        run_step(f"experiment start {name} --share 1", folder, "Start it: each user keeps the arm that is drawn for them")
    if experiment.state in ("planned", "running"):
        simulate(folder, name)
    run_step(f"experiment report {name}", folder, "The verdict, with an interval that holds for every look")
    with demo_store(folder) as store:
        experiment = experiments.get(store, name)
    verdict = verdict_of(experiment)
    outcome = "none" if verdict is None else verdict.outcome
    if experiment.state == "stopped":
        choice = "--adopt" if outcome == "better" else "--keep"
        run_step(f'experiment verdict {name} {choice} --reason "as the verdict says"', folder, "A person decides (invented)")
    return outcome


def simulate(folder: Path, name: str) -> None:
    """Invented users in batches, with a look after each, until the experiment has its verdict."""
    answers, judge, rng, users = read_answers(folder), default_judge(), random.Random(7), 0
    with demo_store(folder) as store:
        while users < MOST and (experiment := experiments.get(store, name)).state == "running":
            crud.add(store, list(traffic(store, experiment, answers, range(users, users + BATCH), rng)), actor="demo")
            users += BATCH
            refresh(store, name, judge=judge)
    ui.say(f"{users:,} invented users asked held-out questions and got the answers that the version of their arm really gave.")


def read_answers(folder: Path) -> Answers:
    """What SFT (before the first iteration) and the RL model (after the last) answered to the held-out questions."""
    rows = list(jsonl.read(folder / MODEL / "held_out.jsonl"))
    last = max(row["iter"] for row in rows)
    by_arm = {"champion": 0, "challenger": last}
    return {arm: [(row["question"], row["answer"]) for row in rows if row["iter"] == number] for arm, number in by_arm.items()}


def traffic(
    store: Store, experiment: StoredExperiment, answers: Answers, users: range, rng: random.Random
) -> Iterator[Trace]:  # fmt: skip
    """One answer for each user, of the version of their arm."""
    choose, plan = chooser(store), experiment.plan
    for number in users:
        user, session = f"sub_{number:032x}", f"{plan.experiment_id}-{number}"
        arm = choose(user, session)
        question, answer = rng.choice(answers[arm])
        turns = (Message(role="user", content=question), Message(role="assistant", content=answer))
        yield Trace(
            session_id=session, agent_name="demo: invented user", conversation=Conversation(messages=turns), user_hash=user,
            model_version=plan.challenger if arm == "challenger" else plan.champion,
            meta={"seconds": 1.0, "finish_reason": "stop", "simulated": True},
        )  # fmt: skip
