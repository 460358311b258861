"""Before a job is queued: what cannot work is refused, what may go wrong is a warning. No torch: sizes come from file headers.

Rough on purpose. Memory: the weights, 12 bytes for each weight of the adapter, activations of one micro-batch. Disk: 1.2 times
three checkpoints (two are kept, one is being written) and the result. The worker adds the time when it has read the data.
"""

import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from medloop.contracts import Objective, TrainRequest
from medloop.errors import ConfigError
from medloop.jobs import requests
from medloop.jobs.job_row import StateError
from medloop.loop import trust
from medloop.loop.train import STAGES, Stage, objective_of
from medloop.models.size import ModelSize, model_size
from medloop.settings import Settings
from medloop.train.configs.rl_config import RLConfig
from medloop.train.runs.trained_share import check_trained_share

ROOM = 1.2  # times what the checkpoints need
SMALL_FILES = 20_000_000  # metrics, samples, curves, log
TOKENS = 256  # in memory per answer where the request does not say


@dataclass(frozen=True)
class Preflight:
    needs_bytes: int  # of disk
    memory_bytes: int | None  # None for a model that is not here yet
    warnings: tuple[str, ...]
    objective: Objective | None = None  # of an RL job


def check(request: TrainRequest, settings: Settings) -> Preflight:
    """Refuse (ConfigError, StateError) or say what to expect."""
    requests.check_fields(request)
    requests.check_config(request, settings)
    requests.check_closed(request, settings)
    _check_inputs(request, settings)
    _check_name(request, settings)
    size = size_of(request.model_id or settings.model, settings)
    needs = SMALL_FILES if size is None else disk_needed(size, request)
    free = shutil.disk_usage(settings.home).free
    if free < needs:
        raise StateError(
            f"The disk of the workspace has {free / 1e6:,.0f} MB free, and checkpoints of this job need {needs / 1e6:,.0f} MB",
            "Free some space, or lower lora_r",
        )
    memory = None if size is None else memory_needed(size, request)
    config = STAGES[request.stage].config.model_validate(requests.config_values(request, "job", settings))
    if size is not None:
        _check_trained_share(STAGES[request.stage], config, size)
    objective = objective_of(config, settings) if isinstance(config, RLConfig) else None
    return Preflight(needs, memory, (*_warnings(request, settings, size), *_notes(config, objective, settings)), objective)


def _notes(config: Any, objective: Objective | None, settings: Settings) -> tuple[str, ...]:
    """What to know about the reward of an RL job; an untrusted one is refused here, before anything waits for it."""
    if objective is None:
        return ()
    return (*trust.check(settings, objective, accept_untrusted=config.accept_untrusted), *objective.notes)


def _check_trained_share(stage: Stage, config: Any, size: ModelSize) -> None:
    """Of a fresh adapter; the worker opens the adapter to start from, and checks that one."""
    if getattr(config, "full", False) or getattr(config, "adapter", None):
        return
    head = size.width + 1 if stage.has_head else 0
    check_trained_share(config, config.lora_r, parameters=size.parameters, per_rank=size.adapter, head=head)


def disk_needed(size: ModelSize, request: TrainRequest) -> int:
    trained = size.parameters if request.config.get("full") else size.adapter * _number(request, "lora_r", 8)
    return int(ROOM * (3 * 12 * trained + 4 * trained)) + SMALL_FILES


def _check_inputs(request: TrainRequest, settings: Settings) -> None:
    """The files a stage reads are there; a missing one would end the job in its first second."""
    data = STAGES[request.stage].data
    field, named = f"config.{data.setting}", request.config.get(data.setting)
    paths = [named] if isinstance(named, str) else data.files
    if not any(requests.workspace_path(path, settings).is_file() for path in paths):
        missing = field if isinstance(named, str) else paths[-1]
        raise StateError(f"There is no file {missing} to train on", f"Make it with: {data.command}, or name one in {field}")


def _check_name(request: TrainRequest, settings: Settings) -> None:
    name = request.config.get("name")
    if (
        isinstance(name, str)
        and (settings.workspace.models / STAGES[request.stage].models / Path(name).name / "card.json").exists()
    ):
        raise StateError(f"There is already a result called {name}", "Choose another config.name, or leave it out")


def _warnings(request: TrainRequest, settings: Settings, size: ModelSize | None) -> list[str]:
    model = request.model_id or settings.model
    warnings = []
    if request.irs_config and request.irs_config.load_in_4bit and not requests.supports_4bit(settings):
        warnings.append("load_in_4bit needs a GPU and bitsandbytes; without them the job runs in full precision.")
    if size is None:
        return [*warnings, f"{model} is not on this machine: the worker will fetch it from the hub, unless offline is set."]
    if settings.device == "cuda":
        return warnings  # only the worker can see how much of the GPU is free
    needs, (total, free) = memory_needed(size, request), machine_memory()
    if needs > total:
        raise ConfigError(
            f"{model} would need about {needs / 1e9:.1f} GB, and this machine has {total / 1e9:.1f} GB",
            "Use a smaller model, or lower micro_batch_size and max_new_tokens",
        )
    if needs > free:
        warnings.append(
            f"About {needs / 1e9:.1f} GB of memory will be needed and {free / 1e9:.1f} GB are free: lower micro_batch_size"
            " or max_new_tokens, or end other programs."
        )
    return warnings


def memory_needed(size: ModelSize, request: TrainRequest) -> int:
    rows = _number(request, "micro_batch_size", 0) or 16
    tokens = rows * (TOKENS + _number(request, "max_new_tokens", TOKENS))
    trained = size.parameters if request.config.get("full") else size.adapter * _number(request, "lora_r", 8)
    needed = 4 * size.parameters + 12 * trained + 68 * tokens * size.width * size.layers
    limit = request.config.get("memory_gb")  # the worker chooses pieces that fit into it, or refuses
    if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0:
        return min(needed, int(limit * 1e9))
    return needed


def machine_memory() -> tuple[int, int]:
    """Bytes in total, and bytes that are available."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
    return sizes["MemTotal"], sizes["MemAvailable"]


def size_of(model: str, settings: Settings) -> ModelSize | None:
    """None when the model is not a folder here; the worker looks closer and says what is wrong with it."""
    folder = _folder_of(model, settings)
    return None if folder is None else model_size(folder)


def _folder_of(model: str, settings: Settings) -> Path | None:
    if model.startswith("embedded:"):
        folder = Path(str(files("medloop") / "assets" / model.removeprefix("embedded:")))
    else:
        folder = requests.workspace_path(model, settings)
    return folder if folder.is_dir() else None


def _number(request: TrainRequest, name: str, otherwise: int) -> int:
    value = request.config.get(name, getattr(request.irs_config, name, None))
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
