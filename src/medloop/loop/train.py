"""Training, composed: one table of stages and one runner for the command line, the jobs of the API and the tests.

    result = run_stage(STAGES["SFT"], SFTConfig(name="sft", epochs=2), settings)
    result.card.metrics, result.run.target

A finished run of the same config, models and data is returned as it is; one that was stopped or killed continues from its newest
checkpoint and ends with the same weights. No torch here: a stage imports its tensor modules when it is loaded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from medloop.contracts import ModelRef, Objective, TrainingCard
from medloop.contracts.job import StageName
from medloop.loop import trust
from medloop.loop.audit import rl_audit
from medloop.loop.replay_check import replay_check
from medloop.loop.rounds import check_replaceable
from medloop.loop.scoring import conflict_writer, reward_scorer
from medloop.models import quick_imports, require_packages
from medloop.models.find import resolve
from medloop.models.size import model_size, tensor_shapes
from medloop.reward.dynamic import DwState, DynamicScorer
from medloop.reward.dynamic_plot import draw_histories
from medloop.reward.mix import RewardMix
from medloop.settings import Settings
from medloop.store.audit_trail import open_audit_trail
from medloop.train.configs.preference_config import DPOConfig, KTOConfig
from medloop.train.configs.reward_model_config import RewardModelConfig
from medloop.train.configs.rl_config import GRPOConfig, IRSRunConfig, PPOConfig, RLConfig
from medloop.train.configs.run_config import RunConfig
from medloop.train.configs.sft_config import SFTConfig
from medloop.train.runs.find_run import find_run
from medloop.train.runs.inputs import check_inputs
from medloop.train.runs.progress import OnProgress, ignore_progress
from medloop.train.runs.trained_share import check_trained_share

if TYPE_CHECKING:
    from medloop.train.runs.estimate import Cost
    from medloop.train.runs.run import TrainingRun


RL = "rl"  # the folder under models/ where rounds and releases are


class TrainPlan(Protocol):
    """What the plans of all stages have in common: everything that is known before the first step."""

    @property
    def config(self) -> Any: ...
    @property
    def run(self) -> TrainingRun: ...
    @property
    def steps(self) -> int: ...
    @property
    def steps_done(self) -> int | None: ...  # by an earlier start; None without one


OnPlan = Callable[[Any, "Cost"], None]


@dataclass(frozen=True)
class Trainer:
    """The tensor side of a stage: plan the run, say what it costs, run it."""

    plan: Callable[..., TrainPlan]
    cost: Callable[[Any, Settings], Cost]
    run: Callable[..., TrainingCard]


@dataclass(frozen=True)
class TrustedReward:
    """What an RL run is rewarded by, and how far that agrees with people, in sentences."""

    scorer: RewardMix | DynamicScorer
    trust: tuple[str, ...]


@dataclass(frozen=True)
class StageData:
    """What a stage trains on: the first of `files` that exists, unless its config names another file in `setting`."""

    files: tuple[str, ...]
    setting: str
    command: str  # makes the last of the files
    reads: str  # an erasure that changes something there cancels jobs of this stage


@dataclass(frozen=True)
class Stage:
    """A training method. `load` imports torch and makes the trainer for a config and the reward of the run, if it has one."""

    name: StageName
    config: type[RunConfig]
    load: Callable[[Any, Settings, Any], Trainer]
    data: StageData
    models: str  # the result lies under models/<this>/NAME
    catalog_kind: str
    reward: Callable[[Any, Settings], TrustedReward | None] = lambda config, settings: None

    @property
    def packages(self) -> tuple[str, ...]:
        """What it imports beyond what runs a model; the RL methods have their own loops."""
        return ("matplotlib",) if self.models == RL else ("trl", "datasets", "matplotlib")

    @property
    def has_head(self) -> bool:
        """Whether a score or a value is trained beside the adapter: a linear layer with one output."""
        return self.name in ("PPO", "REWARD")

    def kind_of(self, config: RunConfig) -> str:
        """The catalog's word for the result: an adapter, unless all weights are trained."""
        return "model" if self.catalog_kind == "adapter" and getattr(config, "full", False) else self.catalog_kind


def _load_sft(config: SFTConfig, settings: Settings, reward: None) -> Trainer:
    from medloop.train import sft  # torch

    return Trainer(partial(sft.make_plan, check=replay_check(config)), sft.cost, sft.run)


def _load_reward_model(config: RewardModelConfig, settings: Settings, reward: None) -> Trainer:
    from medloop.train import reward_model  # torch

    return Trainer(reward_model.make_plan, reward_model.cost, reward_model.run)


def _load_preference(config: DPOConfig | KTOConfig, settings: Settings, reward: None) -> Trainer:
    from medloop.train import preference  # torch

    return Trainer(partial(preference.make_plan, check=replay_check(config)), preference.cost, preference.run)


def _trusted_reward(config: RLConfig, settings: Settings) -> TrustedReward:
    """ConfigError for a reward that people disagree with, and what is wrong with its files."""
    scorer = _scorer(config, settings, partial(_find_file, settings))
    objective = getattr(scorer, "objective", None)  # a scorer of one's own need not say what it rewards
    accept = config.accept_untrusted
    notes = (trust.NOTHING,) if objective is None else trust.check(settings, objective, accept_untrusted=accept)
    return TrustedReward(scorer, notes)


def _load_rl(config: RLConfig, settings: Settings, reward: TrustedReward) -> Trainer:
    """RL methods are handed their reward, and the panel that looks for a hacked one."""
    from medloop.train import grpo, irs, ppo  # torch
    from medloop.train.rl.cost import cost
    from medloop.train.rl.plan import make_plan

    scorer = reward.scorer
    judge = {name: _find_file(settings, source) if source else "" for name, source in config.second_judge.items()}
    audit = rl_audit(settings, scorer, seed=config.seed, second_judge=judge)
    plan = partial(make_plan, scorer=scorer, audit=audit, plot_weights=_plot_weights, trust=reward.trust)
    if isinstance(scorer, RewardMix) and "teacher" in scorer.given:
        plan = partial(plan, on_scored=conflict_writer(settings, scorer))
    return Trainer(plan, cost, {"ppo": ppo.run, "grpo": grpo.run, "irs": irs.run}[config.method])


def _plot_weights(history: dict[str, Any]) -> bytes:
    return draw_histories({"": DwState.model_validate(history)})


def objective_of(config: RLConfig, settings: Settings) -> Objective:
    """What a job with this config is rewarded for. Nothing is trained or loaded, and no torch is imported.

    Its files are those of the workspace, where the worker runs; where the server was started does not matter.
    """
    return _scorer(config, settings, lambda name: str(settings.home / name), load_models=False).objective


def _find_file(settings: Settings, name: str) -> str:
    """A file of the reward: looked up from here, then from the workspace, like all files of a run; else the name of a model."""
    return str(path) if (path := settings.find(name)).exists() else name


def _scorer(
    config: RLConfig, settings: Settings, find: Callable[[str], str], *, load_models: bool = True
) -> RewardMix | DynamicScorer:
    def locate(name: str | None) -> str | None:
        return find(name) if name else name

    scorer = reward_scorer(
        settings, reward=locate(config.reward), given={name: locate(source) or "" for name, source in config.given.items()},
        dw=locate(getattr(config, "dw", None)), dw_config=getattr(config, "dw_config", None),
        load_models=load_models,
    )  # fmt: skip
    if isinstance(config, IRSRunConfig) and isinstance(scorer, RewardMix) and config.reward is None:
        return dataclasses.replace(scorer, notes=(FIXED_WEIGHTS,))
    return scorer


FIXED_WEIGHTS = "IRS uses the default mix, whose weights do not change: neither dw nor dw_config names dynamic weights."
PAIRS = "data/preferences/preferences.jsonl"
RECORDS = StageData(("data/processed/train.jsonl",), "data", "medloop data prepare", reads="data/processed")
PREFERENCES = StageData((PAIRS,), "data", "medloop data build", reads=PAIRS)
THUMBS = StageData(("data/preferences/thumbs.jsonl", PAIRS), "data", "medloop data build", reads="data/preferences")
PROMPTS = StageData(("data/rl/training_prompts.jsonl",), "prompts", "medloop data prompts", "data/rl/training_prompts.jsonl")

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("SFT", SFTConfig, _load_sft, RECORDS, "lora", "adapter"),
        Stage("REWARD", RewardModelConfig, _load_reward_model, PREFERENCES, "reward", "reward model"),
        Stage("DPO", DPOConfig, _load_preference, PREFERENCES, "lora", "adapter"),
        Stage("KTO", KTOConfig, _load_preference, THUMBS, "lora", "adapter"),
        Stage("PPO", PPOConfig, _load_rl, PROMPTS, RL, "adapter", _trusted_reward),
        Stage("GRPO", GRPOConfig, _load_rl, PROMPTS, RL, "adapter", _trusted_reward),
        Stage("IRS", IRSRunConfig, _load_rl, PROMPTS, RL, "adapter", _trusted_reward),
    )
}


@dataclass(frozen=True)
class PreparedRun:
    """A run before its first step: `card` says that it was finished before, else `plan` what `trainer` will do."""

    run: TrainingRun
    card: TrainingCard | None = None
    plan: TrainPlan | None = None
    trainer: Trainer | None = None


@dataclass(frozen=True)
class TrainingResult:
    """`plan` is None for a run that was finished before."""

    card: TrainingCard
    run: TrainingRun
    plan: Any


def prepare_stage(
    stage: Stage, config: RunConfig, settings: Settings, *, folder: Path | None = None, replace: bool = False,
    guard: Callable[[], object] = lambda: None,
) -> PreparedRun:  # fmt: skip
    """Check models and data and plan the run; nothing is written. `folder` is that of a job; without it the run has its own.

    `replace` trains again over a finished or an unfinished run of the same name. `guard` raises when another process has taken
    the run over; it is asked before every write.
    """
    require_packages(*stage.packages)
    check_inputs(config, settings)
    reward = stage.reward(config, settings)
    scorer = None if reward is None else reward.scorer
    check = replay_check(config)
    found = find_run(config, settings, scorer=scorer, check_version=None if check is None else check.version, folder=folder)
    run = dataclasses.replace(found, guard=guard)
    if not replace and (card := run.finished()) is not None:
        return PreparedRun(run, card)
    if not replace:
        run.check_unfinished()
    run.check_writable()
    if not getattr(config, "full", False) and getattr(config, "encoder", "fine-tuned") == "fine-tuned":
        _check_trained_share(stage, config, settings)
    with quick_imports():
        trainer = stage.load(config, settings, reward)
    return PreparedRun(run, plan=trainer.plan(config, settings, run, replace=replace), trainer=trainer)


def _check_trained_share(stage: Stage, config: Any, settings: Settings) -> None:
    model = resolve(ModelRef(base=config.model, adapter=getattr(config, "adapter", None)), settings)
    size = model_size(model.folder)
    if size is None:
        return  # whoever loads it says what is wrong with it
    shapes = None if model.adapter is None else tensor_shapes(model.adapter / "adapter_model.safetensors")
    check_trained_share(
        config, config.lora_r, parameters=size.parameters, per_rank=size.adapter, head=size.width + 1 if stage.has_head else 0,
        adapter=None if shapes is None else sum(math.prod(shape) for _, shape in shapes),
    )  # fmt: skip


def run_stage(
    stage: Stage, config: RunConfig, settings: Settings, *, folder: Path | None = None, replace: bool = False,
    guard: Callable[[], object] = lambda: None, on_plan: OnPlan = lambda plan, cost: None,
    on_progress: OnProgress = ignore_progress, should_stop: Callable[[], bool] = lambda: False,
) -> TrainingResult:  # fmt: skip
    """Train to the end, publish, and enter the result into the catalog; `on_plan` gets the plan and its cost first.

    When `should_stop` says so, the run writes a checkpoint and raises KeyboardInterrupt; the same call continues from there.
    """
    with open_audit_trail(settings) as trail:  # a database that cannot be opened stops the run now, not at its end
        if replace and stage.models == RL:
            check_replaceable(trail.store, config.name)
    prepared = prepare_stage(stage, config, settings, folder=folder, replace=replace, guard=guard)
    card, trainer = prepared.card, prepared.trainer
    if card is None:
        assert trainer is not None, "a run that is not finished has a trainer"
        on_plan(prepared.plan, trainer.cost(prepared.plan, settings))
        card = trainer.run(prepared.plan, settings, on_progress=on_progress, should_stop=should_stop)
    enter_result(stage.kind_of(config), prepared.run, card, settings)
    return TrainingResult(card, prepared.run, prepared.plan)


def enter_result(kind: str, run: TrainingRun, card: TrainingCard, settings: Settings) -> None:
    """The catalog and the audit trail know the result; entered once more after a kill, it stays one entry."""
    with open_audit_trail(settings) as trail:
        trail.register(kind, run.target, card)
    if card.stopped is None:  # a run that was stopped keeps its last checkpoint
        run.end()
