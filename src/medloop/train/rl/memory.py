"""How an RL run fits into the memory it is given: the pieces it works in, chosen before it starts.

    sizing = size_run(config, model_facts(folder, dtype), device="cuda", row=416, budget=8e9)
    config = config.model_copy(update=sizing.settings)

Bytes are counted, not timed: the base, the adapter with its moments and the copies of both, and the largest of three phases:
sampling, updating (what the way back needs) and the check of the fast forward pass against float32. The numbers
per token were measured on the shape of Qwen2.5-1.5B (docs/log.md, RL, Speed and memory). Free memory, installed packages and
these numbers may differ at the next start, so checkpoints store the pieces, and a resumed run goes on in them (`resume_sizing`).
"""

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from medloop.errors import ConfigError
from medloop.models.rollout.agreement import ROWS, STEPS, WIDTH
from medloop.models.rollout.build import SUPPORTED
from medloop.models.size import matrices, model_shapes
from medloop.train.configs.rl_config import RLConfig
from medloop.train.rl.logprobs import CHUNK_GPU

CUDA_ITSELF = 0.6e9  # bytes of a GPU that no tensor can have: the driver, its kernels and libraries
FRAGMENTS = 1.15  # what the allocator holds beyond what tensors need
FOUR_BITS = 0.58  # bytes of a weight in 4 bits: with the library's scales, and the fast decoder's, which are float32
LIBRARY = 1.8  # what the library keeps of a token, times what our own forward pass keeps
DENSE = 10  # bytes of a score of an attention that writes all of them down: as it came, capped, and as a share in float32
MIN_FAST, MIN_CHECKPOINTED = 4, 2  # smaller micro-batches are slower than the next way to save memory
MAX_MICRO_BATCH, MIN_ROLLOUT = 32, 16
# A small model waits for its kernels to be started, so larger pieces are faster: tried first on a GPU, while they are not much.
LARGE_MICRO_BATCHES, LARGE_ROLLOUTS, LARGE_BYTES = (128, 64, MAX_MICRO_BATCH), (256, 128), 24e9
SLOWER = "an update takes about 2 to 3 times as long, by the library's forward pass; not measured"  # with checkpointing
CHOOSABLE = ("micro_batch_size", "rollout_batch_size", "gradient_checkpointing", "load_in_4bit", "optimizer")


@dataclass(frozen=True)
class ModelFacts:
    """The sizes of a model that decide how much memory a run of it needs."""

    parameters: int
    multiplied: int  # weights of the linear layers, without embeddings and output layer
    per_rank: int  # weights of an adapter of rank 1
    layers: int
    width: int
    middle: int  # of the MLP
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    bytes_per_weight: int
    is_dense: bool  # the attention writes down all its scores: soft caps
    is_fast: bool  # of a family that the fast forward pass knows

    @property
    def largest(self) -> int:
        """Weights of the largest matrix that is multiplied at once: gate and up, or queries, keys and values."""
        return self.width * max(2 * self.middle, (self.heads + 2 * self.kv_heads) * self.head_dim)

    @property
    def kept_per_token(self) -> int:
        """By our forward pass, for the way back, in all layers: the residual twice in float32, the rest as the weights are."""
        outputs = (self.heads + 2 * self.kv_heads) * self.head_dim + self.width + 2 * self.middle
        return self.layers * (8 * self.width + self.bytes_per_weight * (2 * self.width + outputs))


def model_facts(folder: Path, dtype: torch.dtype) -> ModelFacts:
    """From the configuration and the headers of the weight files, without reading weights."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False).get_text_config()
    shapes = model_shapes(folder)
    multiplied = matrices(shapes)
    heads = config.num_attention_heads
    return ModelFacts(
        parameters=sum(math.prod(shape) for _, shape in shapes), multiplied=sum(math.prod(shape) for shape in multiplied),
        per_rank=sum(sum(shape) for shape in multiplied), layers=config.num_hidden_layers, width=config.hidden_size,
        middle=getattr(config, "intermediate_size", None) or 4 * config.hidden_size, heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads, vocabulary=config.vocab_size,
        bytes_per_weight=dtype.itemsize, is_dense=bool(getattr(config, "attn_logit_softcapping", None)),
        is_fast=config.model_type in SUPPORTED,
    )  # fmt: skip


@dataclass(frozen=True)
class Pieces:
    """How a run works: the settings that decide its memory and not what it learns, 4 bits and 8 bits apart."""

    micro_batch_size: int
    rollout_batch_size: int
    gradient_checkpointing: bool = False
    load_in_4bit: bool = False
    optimizer: str = "adamw"


@dataclass(frozen=True)
class Sizing:
    """What was chosen, and the memory that it will roughly take."""

    pieces: Pieces
    estimate: int  # bytes
    budget: int | None  # bytes that were given; None: nobody named a limit
    note: str = ""  # of a resumed run that goes on in smaller pieces

    @property
    def settings(self) -> dict[str, Any]:
        return vars(self.pieces)

    def sentence(self) -> str:
        pieces = self.pieces
        more = [
            *([f"activations computed again ({SLOWER})"] if pieces.gradient_checkpointing else []),
            *(["the base in 4 bits"] if pieces.load_in_4bit else []),
            *(["moments in 8 bits"] if pieces.optimizer != "adamw" else []),
        ]
        given = "" if self.budget is None else f" of {self.budget / 1e9:g}"
        return (
            f"Memory: about {self.estimate / 1e9:.1f}{given} GB, with {pieces.micro_batch_size} answers at once in an update and "
            f"{pieces.rollout_batch_size} in sampling{''.join(f', {text}' for text in more)}."
            f"{self.note and ' '}{self.note}"
        )


def size_run(config: RLConfig, facts: ModelFacts, *, device: str, row: int, budget: float) -> Sizing:
    """The fastest pieces that fit into `budget` bytes. `row` is the longest prompt with the longest answer, in tokens.

    What the user set is kept, also at its default. ConfigError when `memory_gb` was named and nothing fits.
    """
    room, given = _room(budget, device), _given(config)
    for pieces in _large_pieces(config, device):
        if (needed := needed_bytes(config, facts, pieces, row, device=device)) <= min(room, LARGE_BYTES):
            return Sizing(pieces, needed, given)
    candidates = list(_candidates(config, device))
    for pieces in candidates:
        if (needed := needed_bytes(config, facts, pieces, row, device=device)) <= room:
            return Sizing(pieces, needed, given)
    if given is None:
        return Sizing(candidates[-1], needed, None)  # what is free may be more than it seems: try
    least = math.ceil((needed + budget - room) / 1e8) / 10  # rounded up: this much is enough
    install = " or install bitsandbytes (pip install 'medloop[quant]')," if device == "cuda" and not _has_bitsandbytes() else ""
    kept = ", ".join(f"{name}={getattr(config, name)}" for name in CHOOSABLE if _is_kept(config, name))
    free = f" leave out what was set and is kept ({kept})," if kept else ""
    raise ConfigError(
        f"memory_gb is {config.memory_gb:g}, but {config.model} needs about {least:.1f} GB at least",
        f"Raise memory_gb,{install}{free} lower max_prompt or max_new_tokens, or use a smaller model",
    )


def resume_sizing(config: RLConfig, stored: dict[str, Any], facts: ModelFacts, *, device: str, row: int, budget: float) -> Sizing:
    """The pieces that a run began with. Where they no longer fit, batches are halved; precision and optimizer stay."""
    pieces = began = Pieces(**stored)
    while (needed := needed_bytes(config, facts, pieces, row, device=device)) > _room(budget, device):
        if (smaller := _halved(config, pieces)) is None:
            break  # what is free may be more than it seems: try
        pieces = smaller
    note = (
        f"The run began with {began.micro_batch_size} and {began.rollout_batch_size}, which no longer fit."
        if pieces != began
        else ""
    )
    return Sizing(pieces, needed, _given(config), note)


def _halved(config: RLConfig, pieces: Pieces) -> Pieces | None:
    if pieces.micro_batch_size > 1 and not _is_kept(config, "micro_batch_size"):
        return replace(pieces, micro_batch_size=pieces.micro_batch_size // 2)
    if pieces.rollout_batch_size >= 2 * MIN_ROLLOUT and not _is_kept(config, "rollout_batch_size"):
        return replace(pieces, rollout_batch_size=pieces.rollout_batch_size // 2)
    return None


def _room(budget: float, device: str) -> float:
    return budget - (CUDA_ITSELF if device == "cuda" else 0)


def _given(config: RLConfig) -> int | None:
    return None if config.memory_gb is None else int(config.memory_gb * 1e9)


def _is_kept(config: RLConfig, name: str) -> bool:
    """Whether the user set it; a micro-batch of 0 leaves the choice to the run."""
    return name in config.model_fields_set and not (name == "micro_batch_size" and config.micro_batch_size == 0)


def needed_bytes(config: RLConfig, facts: ModelFacts, pieces: Pieces, row: int, *, device: str) -> int:
    """At the peak of a step."""
    in_four_bits = facts.multiplied if pieces.load_in_4bit else 0
    base = (facts.parameters - in_four_bits) * facts.bytes_per_weight + in_four_bits * FOUR_BITS
    fast = _is_fast(facts, pieces, device)
    # A captured graph keeps its keys and values; the library's grow by copying, and go with the batch.
    captured = device == "cuda" and facts.is_fast
    cache = _cache(facts, pieces, row)
    phases = [
        _update(facts, pieces, row, fast=fast, device=device),
        _sampling(facts, pieces, row, fast=fast) + (0 if captured else 2 * cache),
        _agreement(facts) if device == "cuda" else 0,
    ]  # fmt: skip
    if pieces.load_in_4bit:
        base += facts.largest * facts.bytes_per_weight  # dense, while it is multiplied
    elif device == "cpu" and facts.is_fast and not config.rollout_url:
        # The sampler's own copy, with the adapter merged; in bfloat16 the output layer too.
        low = config.rollout_dtype == "bfloat16"
        base += 2 * (facts.multiplied + facts.vocabulary * facts.width) if low else 4 * facts.multiplied
    return int(base + _adapter(config, facts, pieces) + FRAGMENTS * ((cache if captured else 0) + max(phases)))


def _adapter(config: RLConfig, facts: ModelFacts, pieces: Pieces) -> int:
    """Weights, gradients and two moments; what a step needs to be undone; and the reference where it is a copy."""
    moments = 8 if pieces.optimizer == "adamw" else 2
    each = 4 + 4 + moments + (4 + moments) + (4 if config.adapter else 0)
    return facts.per_rank * config.lora_r * each


def _update(facts: ModelFacts, pieces: Pieces, row: int, *, fast: bool, device: str) -> float:
    tokens = pieces.micro_batch_size * row
    library = facts.kept_per_token * LIBRARY
    kept: float = facts.kept_per_token if fast else library
    if pieces.gradient_checkpointing:
        kept = facts.layers * facts.width * facts.bytes_per_weight + 2 * library / facts.layers
    scores = facts.heads * row * row * pieces.micro_batch_size * DENSE if facts.is_dense else 0
    layers_at_once = 1 if fast or pieces.gradient_checkpointing else facts.layers
    logits = min(CHUNK_GPU, tokens * facts.vocabulary) * 8 if device == "cuda" else 2**23 * 12
    return tokens * (kept + 6 * facts.width * 4) + scores * layers_at_once + logits


def _cache(facts: ModelFacts, pieces: Pieces, row: int) -> int:
    """Keys and values of all answers that are sampled at once."""
    return 2 * facts.bytes_per_weight * facts.layers * facts.kv_heads * facts.head_dim * pieces.rollout_batch_size * row


def _sampling(facts: ModelFacts, pieces: Pieces, row: int, *, fast: bool) -> float:
    """Beside the cache: the logits of a step, and the prompts, which are read at once."""
    logits = pieces.rollout_batch_size * facts.vocabulary * 16
    scores = facts.heads * row * row * pieces.rollout_batch_size * DENSE if facts.is_dense and not fast else 0
    prompts = pieces.rollout_batch_size * row * facts.bytes_per_weight * (4 * facts.width + 3 * facts.middle)
    return logits + prompts + scores


def _agreement(facts: ModelFacts) -> float:
    """The check before the first step casts the largest matrix to float32, and holds the logits of its probe some times."""
    return facts.vocabulary * facts.width * 4 + 6 * 4 * ROWS * (WIDTH + STEPS) * facts.vocabulary


def _is_fast(facts: ModelFacts, pieces: Pieces, device: str) -> bool:
    fits = device == "cuda" or facts.bytes_per_weight == 4  # on a CPU in float32 only
    return fits and facts.is_fast and not pieces.gradient_checkpointing


def _large_pieces(config: RLConfig, device: str) -> Iterator[Pieces]:
    """Pieces above the usual ones, up to all answers that a step samples at once, the largest micro-batch first."""
    if device != "cuda" or config.gradient_checkpointing:
        return
    questions = getattr(config, "prompts_per_step", 0) or getattr(config, "n_questions", 0)
    answers = questions * getattr(config, "samples", 1)
    rows = [size for size in LARGE_ROLLOUTS if size // 2 < answers]
    sizes = [config.rollout_batch_size] if _is_kept(config, "rollout_batch_size") else [*rows, config.rollout_batch_size]
    micros = [size for size in LARGE_MICRO_BATCHES if size // 2 < answers]
    for micro in [config.micro_batch_size] if config.micro_batch_size else micros:
        yield from (Pieces(micro, size, False, config.load_in_4bit, config.optimizer) for size in sizes)


def _candidates(config: RLConfig, device: str) -> Iterator[Pieces]:
    """From the fastest to the smallest. All that computes the same step comes first; four and eight bits change what is learnt,
    so they are tried last, and only for a limit that somebody named."""
    four, optimizer = config.load_in_4bit, str(config.optimizer)
    may_checkpoint = not config.gradient_checkpointing and not _is_kept(config, "gradient_checkpointing")
    checkpointing = config.gradient_checkpointing or may_checkpoint

    def precision(four_bit: bool) -> list[tuple[int, bool, bool, str]]:
        plain = [] if config.gradient_checkpointing else [(MIN_FAST if may_checkpoint else 1, False, four_bit, optimizer)]
        again = [(MIN_CHECKPOINTED, True, four_bit, optimizer), (1, True, four_bit, optimizer)] if checkpointing else []
        return plain + again

    ways = precision(four)  # the least micro-batch, checkpointing, 4 bits, optimizer
    if config.memory_gb and device == "cuda" and _has_bitsandbytes():
        if not four and not _is_kept(config, "load_in_4bit"):
            four = True
            ways += precision(four)
        if optimizer == "adamw" and not _is_kept(config, "optimizer"):
            ways += [(1, checkpointing, four, "paged_adamw_8bit")]
    size = config.rollout_batch_size
    for least, again, four_bit, kind in ways:
        for rows in [size] if _is_kept(config, "rollout_batch_size") else _halves(size, MIN_ROLLOUT):
            for micro in [config.micro_batch_size] if config.micro_batch_size else _halves(MAX_MICRO_BATCH, least):
                yield Pieces(micro, rows, again, four_bit, kind)


def _halves(largest: int, least: int) -> Iterator[int]:
    yield largest
    while (largest := largest // 2) >= least:
        yield largest


def _has_bitsandbytes() -> bool:
    return importlib.util.find_spec("bitsandbytes") is not None
