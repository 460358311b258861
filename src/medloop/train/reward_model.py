"""The reward model: a classifier with one logit that learns from pairs which answer people like better.

    run_stage(STAGES["REWARD"], RewardModelConfig(name="first", model="embedded:minilm", full=True), settings)

In: `data/preferences/preferences.jsonl`, or any file of pairs (examples/pairs.py). Part of the prompts is held out.
Out: `models/reward/NAME`, whole or not at all: weights, `scoring.json` (how a logit becomes a score between 0 and 1), the
report, card. While it runs, checkpoints and metrics lie in `jobs/train_reward-NAME`; the same call
after a crash continues there and ends with the same weights. `reward/model.py` makes a scorer of the result.

It leaves out: several processes or GPUs, 4-bit bases, and margins by how strongly somebody preferred.
"""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from peft import LoraConfig
from transformers.pytorch_utils import Conv1D
from trl import RewardConfig as TrlConfig

from medloop.contracts import ModelRef, TrainingCard
from medloop.errors import ResultError
from medloop.models import runtime
from medloop.models.classify import SCORING, Classifier, new_classifier
from medloop.models.find import parse_model, resolve
from medloop.models.load import load_tokenizer
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256
from medloop.train.configs.reward_model_config import RewardModelConfig as RewardModelConfig
from medloop.train.examples.batch_order import LengthGroupedSampler
from medloop.train.examples.encode_preferences import EncodedPreferences, check_both_sides, encode_reward_pairs
from medloop.train.examples.pairs import Pair, count_contradictions, read_pairs, split_by_prompt
from medloop.train.reports import reward_report
from medloop.train.reports.centre_scores import centre_scores, describe_scoring
from medloop.train.reports.reward_report import ScoredPairs
from medloop.train.runs import estimate
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.inputs import preference_file
from medloop.train.runs.progress import OnProgress, ignore_progress
from medloop.train.runs.publish import publish, training_card
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.fit import attach_metrics, card_metrics, count_steps, held_out_metrics, train_within_memory
from medloop.train.trl.resumable import MetricsCallback, training_arguments
from medloop.train.trl.reward_trainer import REWARD_METRICS, ResumableReward

EVAL_PAIRS = 256  # held-out pairs that are scored while it trains; all of them at the end
TRAIN_PAIRS = 400  # training pairs that are scored at the end, for the accuracy on them and, without a reference, the centre


@dataclass(frozen=True)
class RewardPlan:
    """Everything that is known before the first step."""

    config: RewardModelConfig
    run: TrainingRun
    train: EncodedPreferences[Pair]
    test: EncodedPreferences[Pair]
    contradictions: int
    steps_per_epoch: int
    steps: int
    steps_done: int | None
    restart: bool = False


def find_run(config: RewardModelConfig, settings: Settings, *, folder: Path | None = None) -> TrainingRun:
    """Where this run lives (`folder`, or by its name) and what it is made of; models are checked and hashed, the data hashed."""
    inputs = {"pairs": file_sha256(preference_file(config, settings))}
    base = resolve(ModelRef(base=config.model), settings)
    if config.reference is not None:
        reference = resolve(parse_model("reference", config.reference), settings)
        inputs["reference"] = reference.sha256
        if reference.adapter_sha256 is not None:
            inputs["reference adapter"] = reference.adapter_sha256
    identity = {"config": config.model_dump(), "base_sha256": base.sha256, "inputs": inputs}
    run_folder = folder or settings.workspace.jobs / f"train_reward-{config.name}"
    return TrainingRun(run_folder, settings.workspace.models / "reward" / config.name, identity)


def make_plan(config: RewardModelConfig, settings: Settings, run: TrainingRun, *, replace: bool = False) -> RewardPlan:
    """Read, split and encode the pairs, count the steps, see what is left of an earlier start; nothing is written."""
    runtime.keep_quiet()
    if not replace:
        run.check_unfinished()
    base = resolve(ModelRef(base=config.model), settings).folder
    estimate.check_length(base, config)
    path = preference_file(config, settings)
    pairs = read_pairs(path)
    sides = split_by_prompt(pairs, config.test_share, config.seed)
    tokenizer = load_tokenizer(base)
    train, test = (encode_reward_pairs(tokenizer, side, max_length=config.max_length) for side in sides)
    check_both_sides(path, train, test, "pairs")
    counts = count_steps(config, len(train.items), run, replace=replace)
    return RewardPlan(config, run, train, test, count_contradictions(pairs), *counts, replace)


def cost(plan: RewardPlan, settings: Settings) -> estimate.Cost:
    """Time and memory, from the model's shape and a matrix product timed on this machine; without the reference's answers."""
    config = plan.config
    shape, device = estimate.model_shape(config.model, settings, lora_r=None if config.full else config.lora_r)
    tokens = plan.train.tokens * (plan.steps - (plan.steps_done or 0)) // plan.steps_per_epoch
    tokens_at_once = 2 * max(plan.train.lengths) * (config.micro_batch_size or config.batch_size)
    without_embeddings = dataclasses.replace(
        shape, parameters=shape.matrices
    )  # embeddings are looked up, and there is no output layer
    seconds = estimate.seconds(without_embeddings, tokens, full=config.full, device=device)
    return estimate.cost(shape, seconds, estimate.memory(shape, tokens_at_once), device)


def run(
    plan: RewardPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end, judge, centre and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.lock():
        callback = MetricsCallback(plan.run.metrics, on_progress, should_stop, REWARD_METRICS)
        (trainer, fresh), started = _fit(plan, settings, callback)
        trained = Classifier(trainer.model, fresh.tokenizer, fresh.name, fresh.sha256, fresh.device)
        train, test = _score(trained, _sample(plan.train, plan.config.seed)), _score(trained, plan.test)
        scoring = centre_scores(
            trained, plan.config, settings, answers=np.concatenate([train.chosen, train.rejected]),
            prompts=[pair.prompt for pair in plan.test.items],
        )  # fmt: skip
        report = reward_report.measure(train, test, words_from=plan.train.items, seed=plan.config.seed)
        metrics = _summary(plan, trainer, report) | {"score_mean": scoring.mean, "score_std": scoring.std}
        card = training_card(plan.run, "reward", trainer.model, metrics=metrics, started=started)
        files = reward_report.files(report, name=card.name, base=card.base, reference=describe_scoring(scoring))
        files[SCORING] = (scoring.canonical_json() + "\n").encode()
        publish(plan.run.target, trainer.model, fresh.tokenizer, card, plan.run.metrics, files=files, about=readme(report))
        plan.run.end()
    return card


def readme(report: dict[str, Any]) -> list[str]:
    """What a person should know first, for README.md."""
    test = report["test"]
    return [
        "`reward.yaml` names the part with its weight, for example `model: {weight: 0.3, given: true}`; see configs/reward.yaml.",
        "",
        f"Held-out accuracy {test['value']:.1%} ({test['low']:.1%} to {test['high']:.1%}, {test['n']:,} pairs). "
        f"{reward_report.verdict(report)} [report.md](report.md) has everything else.",
        "",
    ]


def _fit(plan: RewardPlan, settings: Settings, callback: MetricsCallback) -> tuple[tuple[ResumableReward, Classifier], datetime]:
    used: list[Classifier] = []

    def make_trainer(checkpoint: Checkpoint | None, micro: int) -> ResumableReward:
        used[:] = [new_classifier(plan.config.model, settings, seed=plan.config.seed, trainable=plan.config.full)]
        return _trainer(plan, used[0], checkpoint, micro, callback)

    trainer, started = train_within_memory(plan, make_trainer, unit="pair", advice="Lower max_length, or use a smaller model")
    return (trainer, used[0]), started


def _trainer(
    plan: RewardPlan, fresh: Classifier, checkpoint: Checkpoint | None, micro: int, callback: MetricsCallback
) -> ResumableReward:
    config = plan.config
    trainer = ResumableReward(
        fresh.model, _arguments(plan, fresh, micro), train_dataset=plan.train.table, eval_dataset=_eval_rows(plan.test),
        processing_class=fresh.tokenizer, peft_config=None if config.full else _lora(config, fresh), callbacks=[callback],
        checkpoints=plan.run.checkpoints, checkpoint=checkpoint,
        order=LengthGroupedSampler(plan.train.lengths, config.batch_size, config.seed),
    )  # fmt: skip
    return attach_metrics(trainer, callback)


def _eval_rows(test: EncodedPreferences[Pair]) -> Dataset:
    """Some held-out pairs, like lengths together, so that they carry little padding."""
    some = range(min(EVAL_PAIRS, len(test.lengths)))
    return test.table.select(sorted(some, key=test.lengths.__getitem__))


def _lora(config: RewardModelConfig, fresh: Classifier) -> LoraConfig:
    return LoraConfig(
        r=config.lora_r, lora_alpha=config.lora_alpha, target_modules="all-linear",
        exclude_modules=[f".*{name}.*" for name in fresh.fresh] or None, modules_to_save=list(fresh.fresh),
        task_type="SEQ_CLS", fan_in_fan_out=any(isinstance(module, Conv1D) for module in fresh.model.modules()),
    )  # fmt: skip


def _arguments(plan: RewardPlan, fresh: Classifier, micro: int) -> TrlConfig:
    config = plan.config
    shared = training_arguments(
        config, plan.run.folder, steps=plan.steps, micro=micro, rate=config.rate_for(runtime.count_parameters(fresh.model)[1]),
        eval_every=plan.steps_per_epoch, cuda=fresh.device.type == "cuda",
    )  # fmt: skip
    return TrlConfig(**shared, center_rewards_coefficient=config.centre or None, pad_to_multiple_of=None, disable_dropout=True)


def _sample(pairs: EncodedPreferences[Pair], seed: int) -> EncodedPreferences[Pair]:
    """Some of the training pairs; their accuracy is shown beside that of the held-out ones, and is not worth more time."""
    if len(pairs.items) <= TRAIN_PAIRS:
        return pairs
    return pairs.select(sorted(random.Random(seed).sample(range(len(pairs.items)), TRAIN_PAIRS)))


def _score(trained: Classifier, side: EncodedPreferences[Pair]) -> ScoredPairs:
    logits = np.array(trained.logits([*side.table["chosen_ids"], *side.table["rejected_ids"]]))
    if not np.isfinite(logits).all():
        raise ResultError(
            "The trained model gives logits that are not finite", "Lower the learning rate and train again with --replace"
        )
    return ScoredPairs(side.items, *np.split(logits, 2))


def _summary(plan: RewardPlan, trainer: ResumableReward, report: dict[str, Any]) -> dict[str, float]:
    """Numbers for the card, from the report and from metrics.jsonl."""
    more = {
        "pairs": len(plan.train.items),
        "test_pairs": report["test"]["n"],
        **{f"baseline_{name}": part["value"] for name, part in report["baselines"].items()},
        "calibration_error": report["calibration"]["ece"],
        "brier": report["calibration"]["brier"],
    }
    return card_metrics(plan, trainer, **held_out_metrics(plan, report), **more)
