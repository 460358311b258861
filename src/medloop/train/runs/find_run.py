"""Where a run lives and what it is made of: its config, its models and its data, by hash.

No torch: that a run is finished, or that a name is taken, is known in a second.

    run = find_run(SFTConfig(name="sft"), settings)
    run.finished(), run.check_unfinished()
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from medloop.contracts import ModelRef, Objective, Scorer
from medloop.errors import ConfigError
from medloop.models.find import ResolvedModel, parse_model, resolve
from medloop.models.safety import read_json
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256
from medloop.train.configs.preference_config import DPOConfig, KTOConfig
from medloop.train.configs.reward_model_config import RewardModelConfig
from medloop.train.configs.rl_config import RLConfig
from medloop.train.configs.run_config import RunConfig
from medloop.train.configs.sft_config import OPENING_WEIGHT, SFTConfig
from medloop.train.runs.inputs import pair_files, preference_files, prompt_files, sft_files
from medloop.train.runs.run import TrainingRun, without_later


def find_run(
    config: RunConfig,
    settings: Settings,
    *,
    scorer: Scorer | None = None,
    check_version: str | None = None,
    folder: Path | None = None,
) -> TrainingRun:
    """The run of a config; models are checked and hashed, the data hashed. `scorer` is the reward of an RL run.

    `check_version` is that of the rules which leave rows of the replay out.
    `folder` is that of a submitted job; without it the run's folder is named by method and name.
    """
    match config:
        case SFTConfig():
            name, models, identity = "sft", "full" if config.full else "lora", _sft(config, settings, check_version)
        case RewardModelConfig():
            name, models, identity = "reward", "reward", _reward_model(config, settings)
        case DPOConfig() | KTOConfig():
            name, models, identity = config.method, "lora", _preference(config, settings, check_version)
        case RLConfig():
            assert scorer is not None, "an RL run has a reward"
            name, models, identity = config.method, "rl", _rl(config, settings, scorer)
        case _:
            raise AssertionError(f"no run is known for {type(config).__name__}")
    run_folder = folder or settings.workspace.jobs / f"train_{name}-{config.name}"
    return TrainingRun(run_folder, settings.workspace.models / models / config.name, identity)


def objective_of(scorer: Scorer) -> Objective | None:
    """What the scorer rewards; None for one that does not say."""
    objective = getattr(scorer, "objective", None)
    return objective if isinstance(objective, Objective) else None


def _identity(values: dict[str, Any], base: ResolvedModel, inputs: Iterable[tuple[str, Path]], **more: str) -> dict[str, Any]:
    hashes = {role: file_sha256(path) for role, path in inputs}
    return {"config": without_later(values), "base_sha256": base.sha256, "inputs": hashes | more}


def _sft(config: SFTConfig, settings: Settings, check_version: str | None) -> dict[str, Any]:
    models = resolve(ModelRef(base=config.model, adapter=config.adapter), settings)
    values, hashes = _continued(config, models, settings)
    if config.adapter is None:
        del values["adapter"]  # runs from before it was a setting keep their identity
    if config.replay_data:
        values["opening_weight"] = OPENING_WEIGHT  # no setting, but it decides what is learnt
    return _identity(_with_check(values, check_version), models, sft_files(config, settings).items(), **hashes)


def _continued(
    config: SFTConfig | DPOConfig | KTOConfig, models: ResolvedModel, settings: Settings
) -> tuple[dict[str, Any], dict[str, str]]:
    """(settings, hashes) of a run that may start from an adapter, which keeps its shape, whatever the settings say."""
    values: dict[str, Any] = config.model_dump()
    if models.adapter is None or models.adapter_sha256 is None:
        return values, {}
    shape = read_json(models.adapter / "adapter_config.json")
    values |= {"lora_r": shape.get("r"), "lora_alpha": shape.get("lora_alpha")}
    if models.adapter.resolve() == (settings.workspace.models / "lora" / config.name).resolve():
        raise ConfigError(f"{config.name} is the adapter to start from, and would be overwritten", "Use another --name")
    return values, {"adapter": models.adapter_sha256}


def _reward_model(config: RewardModelConfig, settings: Settings) -> dict[str, Any]:
    files = preference_files(config, settings)
    roles = (f"pairs {number}" if number > 1 else "pairs" for number in range(1, len(files) + 1))
    hashes: dict[str, str] = {}
    if config.reference is not None:
        reference = resolve(parse_model("reference", config.reference), settings)
        hashes["reference"] = reference.sha256
        if reference.adapter_sha256 is not None:
            hashes["reference adapter"] = reference.adapter_sha256
    base = resolve(ModelRef(base=config.model), settings)
    return _identity(config.model_dump(), base, zip(roles, files, strict=True), **hashes)


def _with_check(values: dict[str, Any], version: str | None) -> dict[str, Any]:
    """The rules that left rows out, in place of the wish for them; runs from before there were any keep their identity."""
    values.pop("replay_check", None)
    return values if version is None else values | {"replay_check": version}


def _preference(config: DPOConfig | KTOConfig, settings: Settings, check_version: str | None) -> dict[str, Any]:
    models = resolve(ModelRef(base=config.model, adapter=config.adapter), settings)
    values, hashes = _continued(config, models, settings)
    return _identity(_with_check(values, check_version), models, pair_files(config, settings).items(), **hashes)


def _rl(config: RLConfig, settings: Settings, scorer: Scorer) -> dict[str, Any]:
    model = resolve(config.ref, settings)
    hashes = {} if model.adapter_sha256 is None else {"adapter": model.adapter_sha256}
    # That a server samples decides what is learnt; its address does not, and it is nobody's business.
    values = {**config.model_dump(exclude={"rollout_url"}), "method": config.method, "reward_version": scorer.version}
    values["rollouts"] = "vllm" if config.rollout_url else "torch"
    if (objective := objective_of(scorer)) is not None:
        values["objective"] = objective.model_dump(mode="json")
    return _identity(values, model, prompt_files(config, settings).items(), **hashes)
