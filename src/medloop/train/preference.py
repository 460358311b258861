"""DPO and KTO: a model learns from what people preferred, without a reward model and without sampling.

    run_stage(STAGES["DPO"], DPOConfig(name="dpo", model="embedded:tiny", adapter="sft"), settings)
    run_stage(STAGES["KTO"], KTOConfig(name="kto", model="embedded:tiny", adapter="sft", data="thumbs.jsonl"), settings)

In: for DPO pairs (`data/preferences/preferences.jsonl`, examples/pairs.py), for KTO thumbs or pairs (examples/thumbs.py). Part
of the prompts is held out. With `adapter` training continues from that adapter, which is also the reference; else a fresh LoRA is
trained and the base is the reference. Out: `models/lora/NAME`, an adapter like any other, with `report.json`.
While it runs, checkpoints and metrics lie in `jobs/train_dpo-NAME`; the same call after a crash continues there and ends with
the same weights.

With `replay_data` the pairs are a few corrections: they are repeated, and rows that were learnt before join as pairs in which the
corrected sentence is out of place (examples/contrast.py).

It leaves out: several processes or GPUs, training all weights, and a reference that follows the policy.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from trl import DPOConfig as TrlDPO
from trl import KTOConfig as TrlKTO

from medloop.contracts import ModelRef, TrainingCard
from medloop.errors import InputError, ResultError
from medloop.models import runtime
from medloop.models.adapter import fresh_lora
from medloop.models.find import resolve
from medloop.models.load import Loaded, load, load_tokenizer
from medloop.settings import Settings
from medloop.train.configs.preference_config import DPOConfig, KTOConfig
from medloop.train.examples import thumbs
from medloop.train.examples.batch_order import LabelMixedSampler, LengthGroupedSampler
from medloop.train.examples.contrast import contrast_pairs
from medloop.train.examples.encode_preferences import (
    EncodedPreferences,
    encode_pairs,
    encode_thumbs,
    with_mismatched_answers,
)
from medloop.train.examples.pairs import check_both_sides, count_contradictions, read_pairs, split_by_prompt
from medloop.train.examples.replay import UNCHECKED, AnswerCheck, CheckedRows, draw_replay
from medloop.train.reports import preference_report
from medloop.train.reports.preference_report import AnswerLogprobs
from medloop.train.runs import estimate
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.inputs import pair_files
from medloop.train.runs.progress import OnProgress, ignore_progress
from medloop.train.runs.publish import publish, training_card
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.fit import attach_metrics, card_metrics, count_steps, held_out_metrics, train_within_memory
from medloop.train.trl.preference_trainer import PreferenceCallback, ResumableDPO, ResumableKTO
from medloop.train.trl.resumable import training_arguments

TRAIN_ROWS = 200  # training rows that are read at the end, for the accuracy on them
REPAIRED = 256  # with replay_data: pairs of corrections, again and again until there are so many
CONTRAST_TIMES = 1  # as many pairs in which the corrected sentence is out of place; other shares: docs/log.md#repair
RATIO = (1.0, 1.33)  # weight times count of liked over that of not liked; eq. 8 of the KTO paper (arXiv 2402.01306)


@dataclass(frozen=True)
class PreferencePlan:
    """Everything that is known before the first step. For KTO, `order` has the batches and `skipped` counts lines left out."""

    config: DPOConfig | KTOConfig
    run: TrainingRun
    train: EncodedPreferences[Any]
    test: EncodedPreferences[Any]
    order: LengthGroupedSampler
    contradictions: int
    skipped: Counter[str]
    contrast: int  # pairs of both sides that are made of the replay
    checked: CheckedRows
    steps_per_epoch: int
    steps: int
    steps_done: int | None
    restart: bool = False

    def table(self, side: EncodedPreferences[Any]) -> Dataset:
        """A side as TRL reads it."""
        if not isinstance(self.config, KTOConfig) or self.config.loss != "kto":
            return side.table
        size = self.config.batch_size
        batches: Sequence[Sequence[int]] = [
            range(start, min(start + size, len(side.items))) for start in range(0, len(side.items), size)
        ]
        if side is self.train and isinstance(self.order, LabelMixedSampler):
            batches = self.order.batches
        return with_mismatched_answers(side, batches, self.config.max_length)


def make_plan(
    config: DPOConfig | KTOConfig,
    settings: Settings,
    run: TrainingRun,
    *,
    replace: bool = False,
    check: AnswerCheck | None = None,
) -> PreferencePlan:
    """Read, split and encode the data, count the steps, see what is left of an earlier start; nothing is written."""
    runtime.keep_quiet()
    if not replace:
        run.check_unfinished()
    base = resolve(ModelRef(base=config.model), settings).folder
    estimate.check_length(base, config)
    rows = _read_rows(config, pair_files(config, settings), check)
    train, test = _sides(config, rows, load_tokenizer(base))
    if isinstance(config, KTOConfig):
        order: LengthGroupedSampler = LabelMixedSampler(train.lengths, list(train.table["label"]), config.batch_size, config.seed)
    else:
        order = LengthGroupedSampler(train.lengths, config.batch_size, config.seed)
    counts = count_steps(config, len(train.items), run, replace=replace)
    return PreferencePlan(
        config, run, train, test, order, rows.contradictions, rows.skipped, rows.contrast, rows.checked, *counts, replace
    )


def balance(plan: PreferencePlan) -> str | None:
    """For KTO: what to set when liked and not liked are out of proportion, by the rule of its paper; else nothing."""
    config = plan.config
    if not isinstance(config, KTOConfig):
        return None
    liked = sum(plan.train.table["label"])
    other = len(plan.train.items) - liked
    ratio = config.desirable_weight * liked / (config.undesirable_weight * other)
    if RATIO[0] - 0.005 <= ratio <= RATIO[1] + 0.005:
        return None
    if ratio > 1:
        name, low, high = "undesirable_weight", config.undesirable_weight * ratio / RATIO[1], config.undesirable_weight * ratio
    else:
        name, low, high = "desirable_weight", config.desirable_weight / ratio, config.desirable_weight / ratio * RATIO[1]
    return f"{liked:,} liked and {other:,} not: the KTO paper advises --set {name}={low:.2f} (to {high:.2f})."


def cost(plan: PreferencePlan, settings: Settings) -> estimate.Cost:
    """Time and memory, from the model's shape and a matrix product timed on this machine. Reading costs half of learning."""
    config = plan.config
    shape, device = estimate.model_shape(config.model, settings, lora_r=plan.run.identity["config"]["lora_r"])
    learnt = plan.train.tokens * (plan.steps - (plan.steps_done or 0)) // plan.steps_per_epoch
    read = plan.train.tokens + 2 * plan.test.tokens
    if config.smallest_batch > 1:  # KTO reads each answer behind another prompt as well
        read += plan.train.tokens + learnt
    answers = 1 if isinstance(config, KTOConfig) else 2
    tokens_at_once = answers * max(plan.train.lengths) * (config.micro_batch_size or config.batch_size)
    seconds = estimate.seconds(shape, learnt + read // 2, full=False, device=device)
    return estimate.cost(shape, seconds, estimate.memory(shape, tokens_at_once), device)


def run(
    plan: PreferencePlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end, measure and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.lock():
        trainer, started = _fit(plan, settings, PreferenceCallback(plan.run.metrics, on_progress, should_stop))
        report = _judge(plan, trainer)
        metrics, parent = _summary(plan, trainer, report), plan.run.identity["inputs"].get("adapter")
        assert trainer.path is not None
        card = training_card(
            plan.run, plan.config.method, trainer.model, metrics=metrics, started=started, parent=parent,
            update_backend=trainer.backend, update_note=trainer.path.sentence,
        )  # fmt: skip
        files, about = preference_report.files(report), readme(card, report)
        tokenizer = trainer.processing_class
        publish(plan.run.target, trainer.model, tokenizer, card, plan.run.metrics, files=files, about=about)
        plan.run.end()
    return card


def readme(card: TrainingCard, report: dict[str, Any]) -> list[str]:
    """What a person should know first, for README.md."""
    test = report["test"]
    start = card.config["adapter"]
    return [
        f"Reference: {f'the adapter `{start}`' if start else 'the base model'}. Implicit rewards put {test['value']:.1%} of "
        f"{test['n']:,} held-out rows right ({test['low']:.1%} to {test['high']:.1%}; 50 % before). report.json has everything.",
        "",
        *(f"- {line}" for line in preference_report.summary(report)),
        "",
    ]


def _start(config: DPOConfig | KTOConfig) -> ModelRef:
    return ModelRef(base=config.model, adapter=config.adapter)


@dataclass(frozen=True)
class _Rows:
    """What the files hold, split into train and held out."""

    path: Path
    train: Sequence[Any]
    test: Sequence[Any]
    contradictions: int
    skipped: Counter[str] = field(default_factory=Counter)
    contrast: int = 0
    checked: CheckedRows = UNCHECKED


def _read_rows(config: DPOConfig | KTOConfig, files: dict[str, Path], check: AnswerCheck | None) -> _Rows:
    path = files["preference"]
    if isinstance(config, KTOConfig):
        read = thumbs.read_thumbs(path)
        sides = split_by_prompt(read.thumbs, config.test_share, config.seed)
        return _Rows(path, *sides, thumbs.count_contradictions(read.thumbs), read.skipped)
    pairs = read_pairs(path)
    train, test = split_by_prompt(pairs, config.test_share, config.seed)
    contradictions = count_contradictions(pairs)
    if "replay" not in files:
        return _Rows(path, train, test, contradictions)
    train = train * -(-REPAIRED // len(train))
    count = CONTRAST_TIMES * len(train)
    corrected = ((pair.prompt, pair.chosen) for pair in pairs)
    drawn = draw_replay(files["replay"], corrected=corrected, count=count, seed=config.seed, check=check)
    contrast = contrast_pairs(drawn.lines, pairs, seed=config.seed)[:count]
    if not contrast:
        raise InputError(f"{files['replay']} has no row in the language of a correction", "Name a file with other rows")
    learnt, held_out = split_by_prompt(contrast, config.test_share, config.seed)
    return _Rows(path, [*train, *learnt], [*test, *held_out], contradictions, contrast=len(contrast), checked=drawn.checked)


def _sides(config: DPOConfig | KTOConfig, rows: _Rows, tokenizer: Any) -> tuple[EncodedPreferences[Any], EncodedPreferences[Any]]:
    """(train, held out)."""
    encode: Callable[..., EncodedPreferences[Any]] = encode_thumbs if isinstance(config, KTOConfig) else encode_pairs
    limits: dict[str, Any] = {"max_length": config.max_length, "context": config.context_limits}
    train, test = encode(tokenizer, rows.train, **limits), encode(tokenizer, rows.test, **limits)
    check_both_sides(rows.path, train.items, test.items, "rows", too_long=train.too_long + test.too_long)
    if isinstance(config, KTOConfig):
        thumbs.check_both_kinds(rows.path, train.items, test.items)
    return train, test


def _fit(plan: PreferencePlan, settings: Settings, callback: PreferenceCallback) -> tuple[ResumableDPO | ResumableKTO, datetime]:
    def make_trainer(checkpoint: Checkpoint | None, micro: int) -> ResumableDPO | ResumableKTO:
        loaded = load(_start(plan.config), settings, load_in_4bit=plan.config.load_in_4bit)
        return _trainer(plan, loaded, checkpoint, micro, callback)

    advice = "Lower max_length, or use a smaller model"
    return train_within_memory(plan, make_trainer, unit="row", advice=advice, least=plan.config.smallest_batch)


def _trainer(
    plan: PreferencePlan, loaded: Loaded, checkpoint: Checkpoint | None, micro: int, callback: PreferenceCallback
) -> ResumableDPO | ResumableKTO:
    config = plan.config
    fresh = fresh_lora(loaded.model, r=config.lora_r, lora_alpha=config.lora_alpha) if config.adapter is None else None
    kind = ResumableKTO if isinstance(config, KTOConfig) else ResumableDPO
    trainer = kind(
        loaded.model, args=_arguments(plan, loaded, micro), train_dataset=plan.table(plan.train),
        eval_dataset=plan.table(plan.test), processing_class=loaded.tokenizer, peft_config=fresh, callbacks=[callback],
        checkpoints=plan.run.checkpoints, checkpoint=checkpoint, order=plan.order,
    )  # fmt: skip
    return attach_metrics(trainer, callback)


def _arguments(plan: PreferencePlan, loaded: Loaded, micro: int) -> TrlDPO | TrlKTO:
    config = plan.config
    shared = training_arguments(
        config, plan.run.folder, steps=plan.steps, micro=micro,
        rate=config.rate_for(runtime.count_parameters(loaded.model)[1]), eval_every=plan.steps_per_epoch,
        cuda=loaded.device.type == "cuda",
    )  # fmt: skip
    shared |= {"beta": config.beta, "loss_type": config.loss, "precompute_ref_log_probs": True, "pad_to_multiple_of": None}
    if isinstance(config, KTOConfig):
        return TrlKTO(**shared, desirable_weight=config.desirable_weight, undesirable_weight=config.undesirable_weight)
    return TrlDPO(**shared, label_smoothing=config.label_smoothing)


def _judge(plan: PreferencePlan, trainer: ResumableDPO | ResumableKTO) -> dict[str, Any]:
    """What the trained policy makes of all held-out rows, and of some that it was trained on."""
    config = plan.config
    some = sorted(random.Random(config.seed).sample(range(len(plan.train.items)), min(TRAIN_ROWS, len(plan.train.items))))
    sides = {
        "test": (plan.test.items, trainer.eval_dataset),
        "train": ([plan.train.items[i] for i in some], trainer.train_dataset.select(some)),
    }
    reports = {}
    for side, (items, rows) in sides.items():
        logprobs = [_logprobs(trainer, rows, answers) for answers in trainer.columns if not answers.startswith("KL_")]
        if isinstance(config, KTOConfig):
            reports[side] = preference_report.report_thumbs(items, logprobs[0], config.beta, config.seed)
        else:
            reports[side] = preference_report.report_pairs(items, logprobs[0], logprobs[1], config.beta)
    return {**reports["test"], "train": reports["train"]["test"]}


def _logprobs(trainer: ResumableDPO | ResumableKTO, rows: Dataset, answers: str) -> AnswerLogprobs:
    logprobs = AnswerLogprobs(np.array(trainer.logprobs(rows, answers)), np.array(rows[trainer.columns[answers]]))
    if not np.isfinite(logprobs.policy).all():
        raise ResultError(
            "The trained model gives probabilities that are not finite", "Lower the learning rate and train again with --replace"
        )
    return logprobs


def _summary(plan: PreferencePlan, trainer: ResumableDPO | ResumableKTO, report: dict[str, Any]) -> dict[str, float]:
    """Numbers for the card, from the report and from metrics.jsonl."""
    more = {
        "rows": len(plan.train.items), "test_rows": report["test"]["n"], "test_margin": report["margin"]["mean"],
        "test_reward_chosen": report["rewards"]["chosen"], "test_reward_rejected": report["rewards"]["rejected"],
    }  # fmt: skip
    shares = {
        f"test_{name}": report[name]["value"]
        for name in ("likelier_before", "likelier_after", "auc_before", "auc")
        if name in report
    }
    if plan.contrast:
        more |= {"contrast_pairs": plan.contrast, **plan.checked.metrics()}
    return card_metrics(plan, trainer, **held_out_metrics(plan, report), **more, **shares)
