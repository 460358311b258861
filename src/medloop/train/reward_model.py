"""The reward model: a classifier with one logit that learns from pairs which answer people like better.

    run_stage(STAGES["REWARD"], RewardModelConfig(name="first", model="embedded:minilm", full=True), settings)

In: `data/preferences/preferences.jsonl`, or any file of pairs (examples/pairs.py). Part of the prompts is held out.
Out: `models/reward/NAME`, whole or not at all: weights, `scoring.json` (how a logit becomes a score between 0 and 1), the
report, card. While it runs, checkpoints and metrics lie in `jobs/train_reward-NAME`; the same call
after a crash continues there and ends with the same weights. `reward/model.py` makes a scorer of the result.

It leaves out: several processes or GPUs, 4-bit bases, and margins by how strongly somebody preferred.
"""

from __future__ import annotations

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
from medloop.errors import ConfigError, InputError, ResultError
from medloop.models import runtime
from medloop.models.classify import SCORING, Classifier, new_classifier
from medloop.models.load import load_tokenizer, resolve
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256
from medloop.train.configs.reward_model_config import RewardModelConfig as RewardModelConfig
from medloop.train.examples.pairs import Pairs, contradictions, encode_pairs, read_pairs, split_by_prompt
from medloop.train.reports import reward_report
from medloop.train.reports.centre import centre, in_words, reference_of
from medloop.train.reports.reward_report import Judged
from medloop.train.runs import estimate
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.progress import OnProgress, ignore_progress
from medloop.train.runs.publish import publish, training_card
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.fit import count_steps, fitted, judged, numbers, ready
from medloop.train.trl.resumable import ByLength, Watch, arguments
from medloop.train.trl.reward_trainer import NAMES, ResumableReward

EVAL_PAIRS = 256  # held-out pairs that are scored while it trains; all of them at the end
TRAIN_PAIRS = 400  # training pairs that are scored at the end, for the accuracy on them and, without a reference, the centre


@dataclass(frozen=True)
class RewardPlan:
    """Everything that is known before the first step."""

    config: RewardModelConfig
    run: TrainingRun
    train: Pairs
    test: Pairs
    contradictions: int
    steps_per_epoch: int
    steps: int
    continues_at: int
    afresh: bool = False


def find_run(config: RewardModelConfig, settings: Settings, *, folder: Path | None = None) -> TrainingRun:
    """Where this run lives (`folder`, or by its name) and what it is made of; models are checked and hashed, the data hashed."""
    inputs = {"pairs": file_sha256(_file(config, settings))}
    base = resolve(ModelRef(base=config.model), settings)
    if config.reference is not None:
        reference = resolve(reference_of(config.reference), settings)
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
    if (limit := estimate.positions(base)) < config.max_length:
        raise ConfigError(f"max_length is {config.max_length}, but {config.model} reads {limit} tokens", "Lower max_length")
    path = _file(config, settings)
    pairs = read_pairs(path)
    sides = split_by_prompt(pairs, config.test_share, config.seed)
    tokenizer = load_tokenizer(base)
    train, test = (encode_pairs(tokenizer, side, max_length=config.max_length) for side in sides)
    if not train.pairs or not test.pairs:
        raise InputError(
            f"{path} leaves {len(train.pairs)} pairs to train on and {len(test.pairs)} held out"
            f" ({len(pairs)} in all, {train.too_long + test.too_long} too long)",
            "Both sides need pairs: add prompts, raise max_length or change test_share",
        )
    counts = count_steps(config, len(train.pairs), run, replace=replace)
    return RewardPlan(config, run, train, test, contradictions(pairs), *counts, replace)


def cost(plan: RewardPlan, settings: Settings) -> estimate.Cost:
    """Time and memory, from the model's shape and a matrix product timed on this machine; without the reference's answers."""
    config = plan.config
    shape, device = estimate.model_shape(config.model, settings, lora_r=None if config.full else config.lora_r)
    tokens = plan.train.tokens * (plan.steps - plan.continues_at) // plan.steps_per_epoch
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
    with plan.run.only_process():
        (trainer, fresh), began = _fit(plan, settings, Watch(plan.run.metrics, on_progress, should_stop, NAMES))
        trained = Classifier(trainer.model, fresh.tokenizer, fresh.name, fresh.sha256, fresh.device)
        train, test = _judge(trained, _sample(plan.train, plan.config.seed)), _judge(trained, plan.test)
        scoring = centre(
            trained,
            plan.config,
            settings,
            answers=np.concatenate([train.chosen, train.rejected]),
            prompts=[pair.prompt for pair in plan.test.pairs],
        )
        report = reward_report.measure(train, test, words_from=plan.train.pairs, seed=plan.config.seed)
        metrics = _summary(plan, trainer, report) | {"score_mean": scoring.mean, "score_std": scoring.std}
        card = training_card(plan.run, "reward", trainer.model, metrics=metrics, began=began)
        files = reward_report.files(report, name=card.name, base=card.base, reference=in_words(scoring))
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


def _file(config: RewardModelConfig, settings: Settings) -> Path:
    """The file of pairs; a name is looked up from here, then from the workspace."""
    if config.data is None:
        path = settings.workspace.preferences / "preferences.jsonl"
    else:
        path = settings.find(config.data)
    if not path.is_file():
        raise InputError(f"There is no file of pairs {path}", "Name one with --data, or make some: medloop embedded pairs")
    return path


def _fit(plan: RewardPlan, settings: Settings, watch: Watch) -> tuple[tuple[ResumableReward, Classifier], datetime]:
    used: list[Classifier] = []

    def attempt(checkpoint: Checkpoint | None, micro: int) -> ResumableReward:
        used[:] = [new_classifier(plan.config.model, settings, seed=plan.config.seed, trainable=plan.config.full)]
        return _trainer(plan, used[0], checkpoint, micro, watch)

    trainer, began = fitted(plan, attempt, unit="pair", advice="Lower max_length, or use a smaller model")
    return (trainer, used[0]), began


def _trainer(plan: RewardPlan, fresh: Classifier, checkpoint: Checkpoint | None, micro: int, watch: Watch) -> ResumableReward:
    config = plan.config
    trainer = ResumableReward(
        fresh.model,
        _arguments(plan, fresh, micro),
        train_dataset=plan.train.rows,
        eval_dataset=_eval_rows(plan.test),
        processing_class=fresh.tokenizer,
        peft_config=None if config.full else _lora(config, fresh),
        callbacks=[watch],
        checkpoints=plan.run.checkpoints,
        found=checkpoint,
        order=ByLength(plan.train.lengths, config.batch_size, config.seed),
    )
    return ready(trainer, watch)


def _eval_rows(test: Pairs) -> Dataset:
    """Some held-out pairs, like lengths together, so that they carry little padding."""
    some = range(min(EVAL_PAIRS, len(test.lengths)))
    return test.rows.select(sorted(some, key=test.lengths.__getitem__))


def _lora(config: RewardModelConfig, fresh: Classifier) -> LoraConfig:
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        target_modules="all-linear",
        exclude_modules=[f".*{name}.*" for name in fresh.fresh] or None,
        modules_to_save=list(fresh.fresh),
        task_type="SEQ_CLS",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in fresh.model.modules()),
    )


def _arguments(plan: RewardPlan, fresh: Classifier, micro: int) -> TrlConfig:
    config = plan.config
    shared = arguments(
        config,
        plan.run.folder,
        steps=plan.steps,
        micro=micro,
        rate=config.rate_for(runtime.count_parameters(fresh.model)[1]),
        eval_every=plan.steps_per_epoch,
        cuda=fresh.device.type == "cuda",
    )
    return TrlConfig(**shared, center_rewards_coefficient=config.centre or None, pad_to_multiple_of=None, disable_dropout=True)


def _sample(pairs: Pairs, seed: int) -> Pairs:
    """Some of the training pairs; their accuracy is shown beside that of the held-out ones, and is not worth more time."""
    if len(pairs.pairs) <= TRAIN_PAIRS:
        return pairs
    picked = sorted(random.Random(seed).sample(range(len(pairs.pairs)), TRAIN_PAIRS))
    return Pairs([pairs.pairs[i] for i in picked], pairs.rows.select(picked), [pairs.lengths[i] for i in picked], 0, 0, 0)


def _judge(trained: Classifier, side: Pairs) -> Judged:
    logits = np.array(trained.logits([*side.rows["chosen_ids"], *side.rows["rejected_ids"]]))
    if not np.isfinite(logits).all():
        raise ResultError(
            "The trained model gives logits that are not finite", "Lower the learning rate and train again with --replace"
        )
    return Judged(side.pairs, *np.split(logits, 2))


def _summary(plan: RewardPlan, trainer: ResumableReward, report: dict[str, Any]) -> dict[str, float]:
    """Numbers for the card, from the report and from metrics.jsonl."""
    more = {
        "pairs": len(plan.train.pairs),
        "test_pairs": report["test"]["n"],
        **{f"baseline_{name}": part["value"] for name, part in report["baselines"].items()},
        "calibration_error": report["calibration"]["ece"],
        "brier": report["calibration"]["brier"],
    }
    return numbers(plan, trainer, **judged(plan, report), **more)
