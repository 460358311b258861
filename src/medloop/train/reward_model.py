"""The reward model: it learns from pairs which answer people like better, and lowers its score where it does not know.

    run_stage(STAGES["REWARD"], RewardModelConfig(name="first", model="embedded:minilm", full=True), settings)

In: `data/preferences/preferences.jsonl`, or any file of pairs (examples/pairs.py). Part of the prompts is held out.
It is an ensemble of small heads over words and shape (heads.py: seconds), by default beside a fine-tuned base with one logit. A
tenth of the training questions is kept from the base, and says how much each of the two counts.
Out: `models/reward/NAME`, whole or not at all: weights, heads, `scoring.json` (how a logit becomes a score between 0 and 1), the
report, card. While it runs, checkpoints and metrics lie in `jobs/train_reward-NAME`; the same call
after a crash continues there and ends with the same weights. `reward/model.py` makes a scorer of the result.

It leaves out: several processes or GPUs, 4-bit bases, and margins by how strongly somebody preferred.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from datasets import Dataset
from peft import LoraConfig
from transformers.pytorch_utils import Conv1D
from trl import RewardConfig as TrlConfig

from medloop.contracts import MetricLine, ModelRef, TrainingCard, utc_now
from medloop.errors import ResultError
from medloop.models import runtime
from medloop.models.classify import Classifier, new_classifier
from medloop.models.find import SCORING, resolve
from medloop.models.heads import HEADS, HeadWeights, Judged
from medloop.models.load import load_tokenizer
from medloop.models.preference_model import JudgedAnswer, PreferenceModel, frozen_encoder, pair_vectors
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.configs.reward_model_config import RewardModelConfig as RewardModelConfig
from medloop.train.examples.batch_order import LengthGroupedSampler
from medloop.train.examples.encode_preferences import EncodedPreferences, as_text, encode_reward_pairs
from medloop.train.examples.hard_negatives import hard_negatives
from medloop.train.examples.pairs import Pair, check_both_sides, count_contradictions, read_pairs, split_by_prompt
from medloop.train.heads import FittedHeads, HeadSettings, fit_heads, fit_scales
from medloop.train.reports import reward_report
from medloop.train.reports.centre_scores import centre_scores, describe_scoring
from medloop.train.reports.reward_report import NegativePairs, ScoredPairs
from medloop.train.runs import estimate
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.inputs import preference_files
from medloop.train.runs.progress import OnProgress, Progress, ignore_progress
from medloop.train.runs.publish import publish, training_card
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.fit import accuracies, attach_metrics, card_metrics, count_steps, held_out_metrics, train_within_memory
from medloop.train.trl.resumable import MetricsCallback, training_arguments
from medloop.train.trl.reward_trainer import REWARD_METRICS, ResumableReward

EVAL_PAIRS = 256  # held-out pairs that are scored while it trains; all of them at the end
TRAIN_PAIRS = 400  # training pairs that are scored at the end, for the accuracy on them and, without a reference, the centre
TUNE_SHARE, TUNE_LEAST = 0.1, 400  # of the questions, kept from the base where there are at least so many training pairs
PAIRS_A_SECOND = 2_000  # that one head is fitted on, all passes and penalties together


@dataclass(frozen=True)
class RewardPlan:
    """Everything that is known before the first step."""

    config: RewardModelConfig
    run: TrainingRun
    train: EncodedPreferences[Pair]
    test: EncodedPreferences[Pair]
    tune: EncodedPreferences[Pair]  # kept from the base; empty where there are few pairs, or no base to fine-tune
    negatives: list[tuple[str, Pair]]
    test_negatives: list[tuple[str, Pair]]
    sources: dict[str, int]
    contradictions: int
    steps_per_epoch: int
    steps: int
    steps_done: int | None
    restart: bool = False


def make_plan(config: RewardModelConfig, settings: Settings, run: TrainingRun, *, replace: bool = False) -> RewardPlan:
    """Read, split and encode the pairs, count the steps, see what is left of an earlier start; nothing is written."""
    runtime.keep_quiet()
    if not replace:
        run.check_unfinished()
    by_file = {path: read_pairs(path) for path in preference_files(config, settings)}
    path, pairs = next(iter(by_file)), [pair for part in by_file.values() for pair in part]
    train, test = split_by_prompt(pairs, config.test_share, config.seed)
    tune: list[Pair] = []
    encode: Callable[[Sequence[Pair]], EncodedPreferences[Pair]] = as_text
    if config.encoder == "fine-tuned":
        base = resolve(ModelRef(base=config.model), settings).folder
        estimate.check_length(base, config)
        tokenizer = load_tokenizer(base)
        if config.ensemble and len(train) >= TUNE_LEAST:
            train, tune = split_by_prompt(train, TUNE_SHARE, config.seed, as_marked=False)

        def encode(side: Sequence[Pair]) -> EncodedPreferences[Pair]:
            return encode_reward_pairs(tokenizer, side, max_length=config.max_length)

    encoded = encode(train), encode(test), encode(tune)
    check_both_sides(path, encoded[0].items, encoded[1].items, "pairs", too_long=encoded[0].too_long + encoded[1].too_long)
    counts = count_steps(config, len(encoded[0].items), run, replace=replace)
    if config.encoder != "fine-tuned":
        counts = (1, 1, None)
    share = config.hard_negatives if config.ensemble else 0.0
    negatives = hard_negatives([*encoded[0].items, *encoded[2].items], share, config.seed)
    test_negatives = hard_negatives(encoded[1].items, 1.0 if config.ensemble else 0.0, config.seed)
    sources = {file.name: len(part) for file, part in by_file.items()}
    return RewardPlan(config, run, *encoded, negatives, test_negatives, sources, count_contradictions(pairs), *counts, replace)


def cost(plan: RewardPlan, settings: Settings) -> estimate.Cost:
    """Time and memory, from the model's shape and a matrix product timed on this machine; without the reference's answers."""
    config = plan.config
    shape, device = estimate.model_shape(config.model, settings, lora_r=None if config.full else config.lora_r)
    head_seconds = config.ensemble * len(plan.train.items) / PAIRS_A_SECOND
    if config.encoder == "none":
        return estimate.cost(dataclasses.replace(shape, trainable=0), head_seconds, 0, device)
    tokens = plan.train.tokens * (plan.steps - (plan.steps_done or 0)) // plan.steps_per_epoch
    tokens_at_once = 2 * max(plan.train.lengths) * (config.micro_batch_size or config.batch_size)
    without_embeddings = dataclasses.replace(
        shape, parameters=shape.matrices
    )  # embeddings are looked up, and there is no output layer
    seconds = estimate.seconds(without_embeddings, tokens, full=config.full, device=device) + head_seconds
    return estimate.cost(shape, seconds, estimate.memory(shape, tokens_at_once), device)


def run(
    plan: RewardPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end, judge, centre and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    config = plan.config
    with plan.run.lock():
        trainer, classifier, started = None, None, None
        if config.encoder == "fine-tuned":
            callback = MetricsCallback(plan.run.metrics, on_progress, should_stop, REWARD_METRICS)
            (trainer, fresh), started = _fit(plan, settings, callback)
            classifier = Classifier(trainer.model, fresh.tokenizer, fresh.name, fresh.sha256, fresh.device)
        else:
            started, _ = plan.run.start(restart=plan.restart)
        model = _with_heads(plan, settings, classifier)
        train, test = _score(model, _sample(plan.train.items, config.seed)), _score(model, plan.test.items)
        scoring = centre_scores(model, plan.run.identity["base_sha256"], config, settings, answers=train, prompts=plan.test.items)
        report = reward_report.measure(
            train, test, words_from=[*plan.train.items, *plan.tune.items], seed=config.seed, scoring=scoring,
            negatives=_negatives(model, plan), sources=plan.sources,
        )  # fmt: skip
        if trainer is None:
            _log_heads(plan, report, on_progress)
        metrics = _summary(plan, trainer, report) | {"score_mean": scoring.mean, "score_std": scoring.std}
        beside = 0 if model.heads is None else int(np.count_nonzero(model.heads.words)) + model.heads.shape.size
        published = None if trainer is None else trainer.model
        card = training_card(
            plan.run,
            "reward",
            published,
            metrics=metrics,
            started=started,
            beside=beside,
            warnings=reward_report.warnings(report),
            update_backend=None if trainer is None else trainer.backend,
            update_note=None if trainer is None else trainer.path.sentence,
        )
        files = reward_report.files(report, name=card.name, base=card.base, reference=describe_scoring(scoring))
        files[SCORING] = (scoring.canonical_json() + "\n").encode()
        if model.heads is not None:
            files[HEADS] = model.heads.to_bytes()
        tokenizer = None if classifier is None else classifier.tokenizer
        publish(plan.run.target, published, tokenizer, card, plan.run.metrics, files=files, about=readme(report))
        plan.run.end()
    return card


def _with_heads(plan: RewardPlan, settings: Settings, classifier: Classifier | None) -> PreferenceModel:
    """The fine-tuned base, if any, and the heads, if any, with the weights that fit the pairs which the base did not see."""
    config = plan.config
    encoder = frozen_encoder(config.model, settings) if config.encoder == "frozen" else None
    model = PreferenceModel(config.name, "", HeadWeights(), config.max_length, classifier, None, encoder)
    if not config.ensemble:
        return model
    vectors = None if encoder is None else lambda texts: pair_vectors(encoder, texts)
    head_settings = HeadSettings(config.ensemble, config.seed, config.length_free, vectors)
    pairs = [*plan.train.items, *plan.tune.items]
    held = {pair.first_question for pair in plan.tune.items} or None
    fitted = fit_heads(pairs, [pair for _, pair in plan.negatives], head_settings, held)
    model = dataclasses.replace(model, heads=fitted.heads)
    head_weight, base_weight = _weigh(model, fitted, plan.tune.items)
    weights = HeadWeights(head_weight=head_weight, base_weight=base_weight)
    judged = dataclasses.replace(model, weights=weights).judge_all(_answers(_sample(pairs, config.seed)))
    unit = max(float(judged.mean.std()), 1e-6)
    return dataclasses.replace(model, weights=weights.model_copy(update={"caution": config.caution, "unit": unit}))


def _weigh(model: PreferenceModel, fitted: FittedHeads, tune: Sequence[Pair]) -> tuple[float, float]:
    """How much the heads and how much the base count. Without pairs that the base did not see, it counts as it is."""
    if model.classifier is None or not tune:
        return fitted.head_weight, 1.0
    logits = model.judge_all(_answers(tune)).from_base
    head_weight, base_weight = fit_scales([fitted.margins, logits[0::2] - logits[1::2]])
    return head_weight, base_weight


def _answers(pairs: Sequence[Pair]) -> list[Any]:
    """Chosen and rejected answers in turn, each with its conversation."""
    return [(pair.prompt, answer) for pair in pairs for answer in (pair.chosen, pair.rejected)]


def _negatives(model: PreferenceModel, plan: RewardPlan) -> NegativePairs:
    """How many synthetic negatives the heads were trained on, and the margins of held-out ones that the model can read."""
    results = model.judge(_answers([pair for _, pair in plan.test_negatives]))
    margins = [
        (kind, chosen.lowered - rejected.lowered)
        for (kind, _), chosen, rejected in zip(plan.test_negatives, results[0::2], results[1::2], strict=True)
        if isinstance(chosen, JudgedAnswer) and isinstance(rejected, JudgedAnswer)
    ]
    return NegativePairs(len(plan.negatives), plan.config.hard_negatives, margins)


def _log_heads(plan: RewardPlan, report: dict[str, Any], on_progress: OnProgress) -> None:
    extra = {"test_accuracy": report["test"]["value"]}
    jsonl.append(plan.run.metrics, MetricLine(ts=utc_now(), iter=1, phase="METRICS", extra=extra))
    on_progress(Progress(1, 1, "TRAINING", 1, 1, 1, extra))


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


def _sample(pairs: Sequence[Pair], seed: int) -> Sequence[Pair]:
    """Some of the training pairs; their accuracy is shown beside that of the held-out ones, and is not worth more time."""
    if len(pairs) <= TRAIN_PAIRS:
        return pairs
    return [pairs[row] for row in sorted(random.Random(seed).sample(range(len(pairs)), TRAIN_PAIRS))]


def _score(model: PreferenceModel, pairs: Sequence[Pair]) -> ScoredPairs:
    judged = model.judge_all(_answers(pairs))
    if not np.isfinite(judged.lowered).all():
        raise ResultError(
            "The trained model gives logits that are not finite", "Lower the learning rate and train again with --replace"
        )
    columns = [getattr(judged, field.name) for field in dataclasses.fields(Judged)]
    return ScoredPairs(pairs, Judged(*(column[0::2] for column in columns)), Judged(*(column[1::2] for column in columns)))


def _summary(plan: RewardPlan, trainer: ResumableReward | None, report: dict[str, Any]) -> dict[str, float]:
    """Numbers for the card, from the report and from metrics.jsonl."""
    more = {
        "pairs": len(plan.train.items) + len(plan.tune.items),
        "test_pairs": report["test"]["n"],
        **{f"baseline_{name}": part["value"] for name, part in report["baselines"].items()},
        "calibration_error": report["calibration"]["ece"],
        "brier": report["calibration"]["brier"],
        "spread": report["uncertainty"]["spread"],
    }
    if trainer is None:
        return {name: float(value) for name, value in {**accuracies(report), **more}.items()}
    return card_metrics(plan, trainer, **held_out_metrics(plan, report), **more)
