"""What is known of an RL run before its first step: where it lives, what it is made of, and the prompts it will use."""

import dataclasses
import importlib.util
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import Reward, Sample, Scorer
from medloop.errors import ConfigError, MissingExtraError
from medloop.models import runtime
from medloop.models.find import resolve
from medloop.models.load import load_tokenizer
from medloop.settings import Settings
from medloop.train.configs.rl_config import RLConfig
from medloop.train.rl.checks import Audit, NoAudit
from medloop.train.rl.experience import NO_CONTEXTS, ContextCounts, RLPrompt, read_prompts
from medloop.train.rl.memory import Sizing, model_facts, resume_sizing, size_run
from medloop.train.runs.estimate import free_memory
from medloop.train.runs.inputs import prompt_files
from medloop.train.runs.run import TrainingRun

log = logging.getLogger(__name__)
OnScored = Callable[[Sequence[Sample], Sequence[Reward]], None]  # each batch of answers with its rewards
WeightPlot = Callable[[dict[str, Any]], bytes]  # the history of dynamic weights -> a picture


def no_plot(history: dict[str, Any]) -> bytes:
    return b""


NO_AUDIT = NoAudit()


def ignore_scores(samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
    pass


@dataclass(frozen=True)
class RLPlan:
    """Everything that is known before the first step."""

    config: Any
    run: TrainingRun
    prompts: list[RLPrompt]
    held_out: list[RLPrompt]
    too_long: int
    scorer: Scorer
    steps_done: int | None
    restart: bool
    audit: Audit = NO_AUDIT
    contexts: ContextCounts = NO_CONTEXTS
    plot_weights: WeightPlot = no_plot
    trust: tuple[str, ...] = ()
    """How far the reward agrees with people, in sentences."""
    on_scored: OnScored = ignore_scores
    sizing: Sizing | None = None
    """The pieces that the run works in, where they were chosen by memory; `config` has them."""

    @property
    def steps(self) -> int:
        return int(self.config.steps)


def check_optimizer(config: RLConfig, settings: Settings) -> None:
    """Whether the optimizer can be made here: the one in 8 bits needs a package and a GPU."""
    if config.optimizer == "adamw":
        return
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingExtraError(
            f"optimizer={config.optimizer} needs bitsandbytes, which is not installed",
            "Install it with: pip install 'medloop[quant]', or set optimizer=adamw",
        )
    if (device := runtime.device_of(settings)).type != "cuda":
        raise ConfigError(
            f"optimizer={config.optimizer} needs a GPU, but this run would use the {device.type}", "Set optimizer=adamw"
        )


def make_plan(
    config: RLConfig,
    settings: Settings,
    run: TrainingRun,
    *,
    scorer: Scorer,
    replace: bool = False,
    audit: Audit = NO_AUDIT,
    plot_weights: WeightPlot = no_plot,
    trust: tuple[str, ...] = (),
    on_scored: OnScored = ignore_scores,
) -> RLPlan:
    """Read the prompts and see what is left of an earlier start; writes nothing and loads no weights."""
    runtime.keep_quiet()
    if not replace:
        run.check_unfinished()
    check_optimizer(config, settings)
    folder = resolve(config.ref, settings).folder
    tokenizer = load_tokenizer(folder)
    files = prompt_files(config, settings)
    limits = {"max_tokens": config.max_prompt, "top_k": config.top_k}
    train = read_prompts(files["prompts"], tokenizer, **limits)
    held_out: list[RLPrompt] = []
    if "held_out" in files:
        known = {prompt.question for prompt in train.prompts}  # with another context it is still the same question
        read = read_prompts(files["held_out"], tokenizer, **limits, limit=config.held_out_n)
        held_out = [prompt for prompt in read.prompts if prompt.question not in known]
    checkpoint = None if replace else run.resumable()
    # IRS numbers its checkpoints by saves, several in a round, and counts the rounds apart.
    steps_done = None if checkpoint is None else checkpoint.extra["saved"].get("done", checkpoint.step)
    plan = RLPlan(
        config, run, train.prompts, held_out, train.too_long, scorer, steps_done, replace, audit, train.contexts, plot_weights,
        trust, on_scored,
    )  # fmt: skip
    stored = None if checkpoint is None else checkpoint.extra.get("pieces")
    if stored is not None:
        _check_stored(config, stored, settings)
    sizing = _size(plan, stored, folder, settings)
    chosen = stored if sizing is None else sizing.settings
    return plan if chosen is None else dataclasses.replace(plan, config=config.model_copy(update=chosen), sizing=sizing)


def _check_stored(config: RLConfig, stored: dict[str, Any], settings: Settings) -> None:
    """A run that was begun in 4 or 8 bits goes on in them or not at all."""
    hint = "Resume it where it began, with bitsandbytes (pip install 'medloop[quant]'), or train from the start with --replace"
    try:
        check_optimizer(config.model_copy(update=stored), settings)
    except (ConfigError, MissingExtraError):
        raise ConfigError("This run was begun with moments in 8 bits, which cannot be had here", hint) from None
    if stored["load_in_4bit"] and importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError("This run was begun with its base in 4 bits, which cannot be had here", hint)


def _size(plan: RLPlan, stored: dict[str, Any] | None, folder: Path, settings: Settings) -> Sizing | None:
    """The pieces for the memory that was named, or that a GPU has free; None for a CPU without a limit.

    A run that goes on keeps the pieces that it began with (`stored`).
    """
    config, device = plan.config, runtime.device_of(settings)
    if config.memory_gb is None and device.type != "cuda":
        return None
    facts = model_facts(folder, runtime.number_type(device, trainable=False))
    longest = max(len(prompt.token_ids) for prompt in (*plan.prompts, *plan.held_out))
    budget = free_memory(device) if config.memory_gb is None else config.memory_gb * 1e9
    row = longest + config.max_new_tokens
    if stored is None:
        return size_run(config, facts, device=device.type, row=row, budget=budget)
    sizing = resume_sizing(config, stored, facts, device=device.type, row=row, budget=budget)
    if sizing.note:
        log.warning("%s", sizing.sentence())
    return sizing
