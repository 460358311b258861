"""The data of a cycle: the dataset of the feedback, the mix that SFT learns from, and whether an erasure has touched them since.

    redo_number(store, "cycle1")                  # 0; 1 after an erasure that reached its data or its models
    make_data(settings, store, config)            # outputs of the step, or Ends where there is nothing to learn from

The mix (`data/mix/NAME/train.jsonl`) has the experts' answers beside the prepared data. In a round of online learning it is
small: the answers that no cycle has had before, and a replay of what was learnt before, so that the model does not forget it.
"""

import json
import random
from collections.abc import Iterable
from typing import Any

from medloop.contracts.dataset import SPLIT_FILES
from medloop.data.feedback.write import ANSWERS
from medloop.data.prompts import make_prompts
from medloop.errors import InputError
from medloop.feedback.insight.metrics import MetricsConfig
from medloop.loop.cycle_config import CycleConfig
from medloop.loop.experiment import stop
from medloop.loop.feedback import build_from_feedback, fill_queue, measure_feedback
from medloop.loop.workflow import Ends, Outputs
from medloop.registry.promote import holder
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.catalog import register
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, folder_sha256, new_artifact
from medloop.store.records import erasing, experiments, lineage
from medloop.store.records.cycles import cycle_events, cycle_names

DATA, MIX = "data", "data/mix"
TOUCHED = ("tainted", "erased")  # what an erasure writes on models that learnt from erased rows, and on data that held them
WAIT_S = 120.0  # for an erasure that is running when the mix is ready


def redo_number(store: Store, cycle: str) -> int:
    """How often the cycle has begun again because of an erasure; one more when an erasure has touched it since."""
    done = [event for event in cycle_events(store, cycle) if event.event == "done"]
    begun = max((at for at, event in enumerate(done) if event.step == DATA), default=None)
    if begun is None:
        return 0
    hashes = {str(value) for event in done[begun:] for name, value in event.outputs.items() if name.endswith("sha256")}
    touched = any(flag in TOUCHED for sha256 in hashes for flag, _ in lineage.flags_of(store, sha256))
    return int(done[begun].outputs.get("redo") or 0) + touched


def make_data(settings: Settings, store: Store, config: CycleConfig) -> Outputs | Ends:
    """The dataset, the mix and the prompts; a cycle that an erasure has touched builds them anew, without the erased rows."""
    redo = redo_number(store, config.name)
    if redo:
        _stop_experiments(store, config.name)
    feedback = measure_feedback(settings, store, MetricsConfig(seed=settings.seed))
    queued = fill_queue(settings, store, config=config.queue).added
    named = config.feedback.model_copy(update={"name": config.name})
    serving = config.serving or _champion(store)
    counts: Outputs = {"feedback": feedback.feedback, "preferences": feedback.preferences, "corrections": feedback.corrections}
    known = _learnt_before(store, config.name)
    try:
        folder = build_from_feedback(store, named, seed=settings.seed, actor=actor()).folder
    except InputError as error:
        if not redo:
            raise
        return Ends(f"Nothing is left to learn from after an erasure: {error.what}.", {"redo": redo})
    made: Outputs = {"dataset": folder.relative_to(settings.home).as_posix(), "sha256": folder_sha256(folder)}
    mix = _make_mix(store, config, known)
    if isinstance(mix, Ends):
        return Ends(mix.reason, {"redo": redo} if redo else {})
    if any(step.stage in ("PPO", "GRPO", "IRS") for step in config.trainings):
        make_prompts(settings.workspace, count=config.prompts, high_risk=config.high_risk, seed=settings.seed)
    return {**made, **mix, "queued": queued, **counts, "serving": serving, **({"redo": redo} if redo else {})}


def _champion(store: Store) -> str | None:
    """The adapter that serves when the cycle begins, by the registry; None: the base model."""
    champion = holder(store, "champion")
    return None if champion is None else champion.path


def _learnt_before(store: Store, cycle: str) -> set[str]:
    """The records in the datasets of other cycles."""
    shas = {
        str(event.outputs["sha256"])
        for name in cycle_names(store)
        if name != cycle
        for event in cycle_events(store, name)
        if event.step == DATA and event.event == "done" and "sha256" in event.outputs
    }
    return {record for sha256 in shas for record in lineage.records_of(store, sha256)}


def _make_mix(store: Store, config: CycleConfig, known: set[str]) -> Outputs | Ends:
    """`data/mix/NAME/train.jsonl`, sealed, with the lineage of its rows; nothing where no step learns from answers."""
    workspace, online = store.settings.workspace, config.online
    answers = workspace.home / "data/feedback" / config.name / ANSWERS["train"]
    prepared = workspace.processed / SPLIT_FILES["train"]
    if not any(step.stage == "SFT" for step in config.trainings):
        return {}
    with erasing.erasure_lock(store, wait_s=WAIT_S):
        rows = list(jsonl.read(answers)) if answers.is_file() else []
        base = list(jsonl.read(prepared)) if prepared.is_file() else []
        new = [row for row in rows if not set(_records(row)) <= known]
        if online is None:
            chosen, replayed = [*base, *rows], 0
        elif not new:
            return Ends("There are no new answers to learn from.")
        else:
            rng = random.Random(f"{store.settings.seed}/{config.name}")
            new = rng.sample(new, min(len(new), max(1, round(online.rows * (1 - online.replay)))))
            old = [row for row in rows if set(_records(row)) <= known]
            again = _replay(rng, old, base, round(len(new) * online.replay / (1 - online.replay)))
            chosen, replayed = [*new, *again], len(again)
            rng.shuffle(chosen)
        target = workspace.home / MIX / config.name
        target.parent.mkdir(parents=True, exist_ok=True)
        card = {"name": config.name, "rows": len(chosen), "answers": len(new if online else rows), "replayed": replayed}
        with new_artifact(target, replace=True) as folder:
            jsonl.write(folder / "train.jsonl", chosen)
            (folder / "card.json").write_text(json.dumps(card) + "\n", encoding="utf-8")
        sha256, records = folder_sha256(target), {name for row in chosen for name in _records(row)}
        with store.write() as conn:
            for dataset in (sha256, file_sha256(target / "train.jsonl")):
                lineage.add_records(conn, dataset, records)
        register(store, "mix", target, card, actor=actor())
    shown = (target / "train.jsonl").relative_to(workspace.home).as_posix()
    return {"mix": shown, "mix_sha256": sha256, "mixed": len(chosen), "new": len(new), "replayed": replayed}


def _replay(rng: random.Random, old: list[Any], base: list[Any], count: int) -> list[Any]:
    """Half of it answers of experts that were learnt before, as far as there are some; the rest prepared data."""
    experts = rng.sample(old, min(len(old), count // 2))
    return [*experts, *rng.sample(base, min(len(base), count - len(experts)))]


def _records(row: dict[str, Any]) -> Iterable[str]:
    return tuple((row.get("metadata") or row.get("meta") or {}).get("records", ()))


def experiment_name(cycle: str, version: int) -> str:
    return f"{cycle} version {version}"


def _stop_experiments(store: Store, cycle: str) -> None:
    """A version that learnt from erased rows is no longer tried on people."""
    for experiment in experiments.every(store):
        if experiment.state == "running" and experiment.plan.name.startswith(experiment_name(cycle, 0)[:-1]):
            stop(store, experiment.plan.experiment_id, by=actor(), reason="an erasure touched its data")
