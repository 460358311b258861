"""Supervised fine-tuning: teach a model to answer as the records do. LoRA by default, all weights with `full`.

    run_stage(STAGES["SFT"], SFTConfig(name="sft", model="embedded:tiny", epochs=2), settings)     # loop/train.py

In: `data/processed/train.jsonl` (and `dev.jsonl` for the dev loss), or any JSONL of conversations that end with an answer.
Out: `models/lora/NAME` (or `models/full/NAME`), whole or not at all. While it runs, checkpoints and metrics lie in
`jobs/train_sft-NAME`; the same call after a crash continues there and ends with the same weights.

With `replay_data` the file is a few corrections: they are repeated and mixed with rows that were learnt before, the run is as
long as so few rows need, and tokens that open a sentence count more (examples/openings.py). With `adapter` training goes on from
that adapter and keeps its shape.

It leaves out: several processes or GPUs, and choosing the best of several checkpoints (evaluation does that).
"""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import datetime
from functools import partial
from typing import Any

from trl import SFTConfig as TrlConfig

from medloop.contracts import ModelRef, TrainingCard
from medloop.models import runtime
from medloop.models.adapter import fresh_lora
from medloop.models.find import resolve
from medloop.models.load import Loaded, load, load_tokenizer
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import read_conversations
from medloop.train.configs.sft_config import SFTConfig as SFTConfig
from medloop.train.examples.batch_order import LengthGroupedSampler
from medloop.train.examples.openings import OpeningWeights
from medloop.train.examples.replay import UNCHECKED, AnswerCheck, CheckedRows, draw_replay
from medloop.train.examples.sft_examples import SFTExamples, encode_file, repeated, with_replay
from medloop.train.runs import estimate
from medloop.train.runs.checkpoint import Checkpoint
from medloop.train.runs.inputs import sft_files
from medloop.train.runs.progress import OnProgress, ignore_progress
from medloop.train.runs.publish import publish, training_card
from medloop.train.runs.run import TrainingRun
from medloop.train.trl.fit import attach_metrics, card_metrics, count_steps, train_within_memory
from medloop.train.trl.resumable import MetricsCallback, training_arguments
from medloop.train.trl.sft_trainer import ResumableSFT

MAX_CHECKS = 10  # of the dev loss in a run, also where an epoch is a step or two
REPAIRED = 256  # rows of corrections, again and again until there are so many; other mixes and rates: docs/log.md#repair
REPLAY_TIMES = 3  # as many rows of the replay; with one for one, the corrected sentence was said where it does not belong


@dataclass(frozen=True)
class SFTPlan:
    """Everything that is known before the first step."""

    config: SFTConfig
    run: TrainingRun
    train: SFTExamples
    dev: SFTExamples | None
    steps_per_epoch: int
    steps: int
    steps_done: int | None
    restart: bool = False
    checked: CheckedRows = UNCHECKED


def make_plan(
    config: SFTConfig, settings: Settings, run: TrainingRun, *, replace: bool = False, check: AnswerCheck | None = None
) -> SFTPlan:
    """Read and encode the data, count the steps, see what is left of an earlier start; nothing is written."""
    runtime.keep_quiet()
    if not replace:
        run.check_unfinished()
    files, tokenizer = sft_files(config, settings), load_tokenizer(resolve(ModelRef(base=config.model), settings).folder)
    encode = partial(encode_file, tokenizer, max_length=config.max_length, context=config.context_limits)
    train, score, checked = encode(files["train"]), "dev" in files and config.dev_rows > 0, UNCHECKED
    if "replay" in files:
        train = repeated(train, least=REPAIRED)
        count = REPLAY_TIMES * len(train.lengths)
        corrected = ((line.conversation.prompt, line.conversation.answer or "") for line in read_conversations(files["train"]))
        drawn = draw_replay(files["replay"], corrected=corrected, count=count, seed=config.seed, check=check)
        checked = drawn.checked
        replay = encode(files["replay"], lines=drawn.lines, limit=count)
        train = with_replay(train, replaced(replay, unanswered=drawn.unanswered, superseded=drawn.superseded))
    dev = encode(files["dev"], limit=config.dev_rows) if score else None
    counts = count_steps(config, len(train.lengths), run, replace=replace)
    return SFTPlan(config, run, train, dev, *counts, replace, checked)


def cost(plan: SFTPlan, settings: Settings) -> estimate.Cost:
    """Time and memory, from the model's shape and a matrix product timed on this machine."""
    config = plan.config
    shape, device = estimate.model_shape(config.model, settings, lora_r=None if config.full else config.lora_r)
    tokens = plan.train.tokens * (plan.steps - (plan.steps_done or 0)) // plan.steps_per_epoch
    tokens_at_once = max(plan.train.lengths) * (config.micro_batch_size or config.batch_size)
    seconds = estimate.seconds(shape, tokens, full=config.full, device=device)
    return estimate.cost(shape, seconds, estimate.memory(shape, tokens_at_once), device)


def run(
    plan: SFTPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.lock():
        trainer, started = _fit(plan, settings, MetricsCallback(plan.run.metrics, on_progress, should_stop))
        metrics, parent = _summary(plan, trainer), plan.run.identity["inputs"].get("adapter")
        card = training_card(
            plan.run, "sft", trainer.model, metrics=metrics, started=started, parent=parent, update_backend=trainer.update_backend
        )
        publish(plan.run.target, trainer.model, trainer.processing_class, card, plan.run.metrics)
        plan.run.end()
    return card


def _fit(plan: SFTPlan, settings: Settings, callback: MetricsCallback) -> tuple[ResumableSFT, datetime]:
    config, start = plan.config, ModelRef(base=plan.config.model, adapter=plan.config.adapter)

    def make_trainer(checkpoint: Checkpoint | None, micro: int) -> ResumableSFT:
        loaded = load(start, settings, trainable=config.full, load_in_4bit=config.load_in_4bit)
        return _trainer(plan, loaded, checkpoint, micro, callback)

    return train_within_memory(
        plan, make_trainer, unit="example", advice="Lower max_length, or use load_in_4bit or a smaller model"
    )


def _trainer(plan: SFTPlan, loaded: Loaded, checkpoint: Checkpoint | None, micro: int, callback: MetricsCallback) -> ResumableSFT:
    config = plan.config
    lora = None
    if not config.full and config.adapter is None:
        lora = fresh_lora(loaded.model, r=config.lora_r, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout)
    trainer = ResumableSFT(
        loaded.model, _arguments(plan, loaded, micro), train_dataset=plan.train.rows,
        eval_dataset=None if plan.dev is None else plan.dev.rows, processing_class=loaded.tokenizer,
        peft_config=lora, callbacks=[callback], checkpoints=plan.run.checkpoints,
        checkpoint=checkpoint, order=LengthGroupedSampler(plan.train.lengths, config.batch_size, config.seed),
        openings=OpeningWeights(loaded.tokenizer, plan.run.identity["config"]["opening_weight"]) if config.replay_data else None,
    )  # fmt: skip
    return attach_metrics(trainer, callback, widen=False)


def _arguments(plan: SFTPlan, loaded: Loaded, micro: int) -> TrlConfig:
    config = plan.config
    shared = training_arguments(
        config, plan.run.folder, steps=plan.steps, micro=micro,
        rate=config.rate_for(runtime.count_parameters(loaded.model)[1]),
        eval_every=0 if plan.dev is None else max(plan.steps_per_epoch, plan.steps // MAX_CHECKS),
        cuda=loaded.device.type == "cuda",
    )  # fmt: skip
    return TrlConfig(**shared, dataset_kwargs={"skip_prepare_dataset": True})


def _summary(plan: SFTPlan, trainer: ResumableSFT) -> dict[str, float]:
    """Numbers for the card, from metrics.jsonl: the loss is the mean over the first and over the last tenth of the steps."""
    rows: list[dict[str, Any]] = list(jsonl.read(plan.run.metrics))
    losses = [row["loss"] for row in rows if row["phase"] == "TRAINING"]
    dev = [row["extra"]["dev_loss"] for row in rows if row["phase"] == "METRICS"]
    tenth = max(1, len(losses) // 10)
    summary = {
        "examples": len(plan.train.lengths),
        "examples_with_context": plan.train.with_context,
        "train_loss_first": sum(losses[:tenth]) / tenth,
        "train_loss_last": sum(losses[-tenth:]) / tenth,
        **plan.checked.metrics(),
    }
    return card_metrics(plan, trainer, **summary, **({"dev_loss_before": dev[0], "dev_loss_after": dev[-1]} if dev else {}))
