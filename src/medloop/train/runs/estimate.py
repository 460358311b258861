"""A rough estimate of what a run will cost, before it starts.

Time: 4 floating-point operations per weight and token with LoRA (forward, and backward to the activations), 6 with all
weights, at the speed of a matrix product of the model's own shape, timed here and now. Memory: weights, gradients and
AdamW's two moments in float32, and about 34 half-precision values per token, layer and unit of width for activations.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
from transformers import AutoConfig

from medloop.contracts import ModelRef
from medloop.errors import ConfigError
from medloop.models import runtime
from medloop.models.find import resolve
from medloop.models.size import matrices, model_shapes
from medloop.settings import Settings
from medloop.train.configs.run_config import EpochConfig

EFFICIENCY = 0.35  # share of the bare matrix speed that a training step reached (docs/stages/train.md)
CHECKPOINTS, MARGIN = 3, 1.2  # on the disk at once: two complete ones and one being written; with some margin
SAMPLING, SCORING = 0.15, 0.7  # the same for sampling token by token, and for an RL update (docs/stages/jobs.md)


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that decide the cost."""

    parameters: int
    trainable: int
    layers: int
    width: int
    bytes_per_weight: int
    matrices: int  # weights that every token is multiplied with: without embeddings and output layer


@dataclass(frozen=True)
class Cost:
    """What a run will roughly take, in seconds and bytes."""

    device: str
    seconds: float
    memory: int
    free: int
    disk: int
    rate: float | None = None  # the learning rate, by the model's size where none is set

    @property
    def duration(self) -> str:
        return f"{self.seconds / 60:.0f} min" if self.seconds > 90 else f"{self.seconds:.0f} s"

    def sentence(self) -> str:
        disk = f"{self.disk / 1e6:,.0f} MB of disk"
        text = f"Roughly {self.duration}, {self.memory / 1e9:.1f} GB of memory and {disk} on {self.device}."
        if self.memory > self.free:
            text += f" Only {self.free / 1e9:.1f} GB are free: lower micro_batch_size or max_new_tokens."
        return text if self.rate is None else f"{text} Learning rate {self.rate:.2g}."


def cost(shape: ModelShape, seconds: float, memory: int, device: torch.device) -> Cost:
    """With the memory that is free, and the disk that checkpoints and result need."""
    return Cost(device.type, seconds, memory, free_memory(device), int(MARGIN * (CHECKPOINTS * 12 + 4) * shape.trainable))


def shape_of(folder: Path, dtype: torch.dtype, lora_r: int | None) -> ModelShape:
    """From the configuration and the headers of the weight files, without reading weights."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False).get_text_config()
    shapes = model_shapes(folder)
    multiplied = matrices(shapes)
    parameters = sum(math.prod(size) for _, size in shapes)
    trainable = parameters if lora_r is None else sum(lora_r * sum(size) for size in multiplied)
    shape = (config.num_hidden_layers, config.hidden_size, dtype.itemsize, sum(math.prod(size) for size in multiplied))
    return ModelShape(parameters, trainable, *shape)


def model_shape(base: str, settings: Settings, *, lora_r: int | None) -> tuple[ModelShape, torch.device]:
    """The shape of a base model as it would be trained on this machine, with LoRA of that rank or with all its weights."""
    device = runtime.device_of(settings)
    runtime.set_threads(settings)
    folder = resolve(ModelRef(base=base), settings).folder
    return shape_of(folder, runtime.number_type(device, trainable=lora_r is None), lora_r), device


def positions(folder: Path) -> int:
    """How many tokens a model can read at once, by its configuration; practically unlimited when it does not say."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False).get_text_config()
    return int(getattr(config, "max_position_embeddings", None) or 1 << 20)


def check_length(folder: Path, config: EpochConfig) -> None:
    """Whether a model can read as many tokens at once as a run wants to give it."""
    if (limit := positions(folder)) < config.max_length:
        raise ConfigError(f"max_length is {config.max_length}, but {config.model} reads {limit} tokens", "Lower max_length")


def seconds(shape: ModelShape, tokens: int, *, full: bool, device: torch.device) -> float:
    """For training on `tokens` tokens."""
    return (6 if full else 4) * shape.parameters * tokens / (_matrix_speed(shape.width, device) * EFFICIENCY)


def memory(shape: ModelShape, tokens_at_once: int) -> int:
    """In bytes, at the peak of a step."""
    activations = 34 * shape.bytes_per_weight * tokens_at_once * shape.width * shape.layers // 2
    return shape.parameters * shape.bytes_per_weight + shape.trainable * 12 + activations


@dataclass(frozen=True)
class RLWork:
    """The tokens of an RL run, by what is done with them."""

    sampled: int  # one at a time
    scored: int  # forward only: prompts, and answers under the policy and the reference
    trained: int  # forward and backward
    per_micro_batch: int  # in memory in an update
    cached: int  # in memory while sampling: answers at once, times tokens of prompt and answer


def rl(shape: ModelShape, work: RLWork, *, device: torch.device) -> tuple[float, int]:
    """Seconds and bytes of an RL run. 2 operations per weight and token to sample or to score, 4 to train with LoRA.

    Answers are counted at their full length, so a run whose answers end early is faster than this. Sampling keeps a key and a
    value per layer and token; the larger of sampling and updating decides the memory.
    """
    speed = max(_matrix_speed(shape.width, device) for _ in range(5))  # the best of five: the machine may be busy
    passes = 2 * shape.parameters * (work.sampled / SAMPLING + (work.scored + 2 * work.trained) / SCORING)
    cache = 2 * shape.bytes_per_weight * shape.layers * shape.width * work.cached
    weights = shape.parameters * shape.bytes_per_weight + shape.trainable * 12
    return passes / speed, max(memory(shape, work.per_micro_batch), weights + cache)


def free_memory(device: torch.device) -> int:
    """In bytes: of the GPU, or of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _matrix_speed(width: int, device: torch.device) -> float:
    """Floating-point operations per second of a (1024, width) x (width, 4 width) product; some milliseconds."""
    a, b = torch.randn(1024, width, device=device), torch.randn(width, 4 * width, device=device)
    if device.type == "cuda":
        a, b = a.bfloat16(), b.bfloat16()
    a @ b  # the first product loads libraries
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 0.02:
        a @ b
        count += 1
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return max(count, 1) * 2 * 1024 * width * 4 * width / elapsed
