"""Is the fast decoder as good as the library's own forward pass? Both are compared with the library in float32.

In bfloat16 two correct forward passes differ by their rounding, and the more layers and the larger the vocabulary, the larger the
largest difference: a fixed bound refuses good decoders of real models. Float32 is the truth that both approximate, so ours is
accepted when it is at most `MARGIN` times as far from it as the library is. The distance is the median over positions, because a
few of them are many times farther than the others: on SmolLM2-135M, 20 random probes gave ratios of 0.83 to 1.16.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from medloop.models.rollout.cuda_graph import fused_kernels
from medloop.models.rollout.decode import FastDecoder, UnsupportedModelError, position_ids
from medloop.models.rollout.four_bit import is_four_bit

MARGIN = 1.25
FLOOR = 2e-4  # nats: in float32 the library itself is the truth
ROWS, WIDTH, STEPS = 16, 16, 8  # prompts of the probe, their length, and the tokens decoded after them


Logprobs = Callable[[Tensor, Tensor], Tensor]  # input_ids and attention_mask of the probe -> (ROWS, STEPS + 1, V)


def check_agreement(decoder: FastDecoder, model: Any, *, autocast: bool = False) -> None:
    """UnsupportedModelError unless the decoder's log-probabilities are as good as the model's own, or as those of bfloat16."""
    compare_with_library(lambda ids, mask: decoder_logprobs(decoder, ids, mask), model, autocast=autocast)


@torch.no_grad()
def compare_with_library(fast_logprobs: Logprobs, model: Any, *, autocast: bool = False) -> None:
    """UnsupportedModelError unless these log-probabilities are as near to float32 as the library's.

    `autocast` lets the library compute in bfloat16 as it does in training on a GPU, where the adapter's products are in it, too.
    """
    embedding = model.get_input_embeddings().weight
    input_ids, attention_mask = probe(len(embedding), embedding.device)
    was_training = model.training
    model.eval()
    with torch.autocast(embedding.device.type, dtype=torch.bfloat16, enabled=autocast):
        library = library_logprobs(model, input_ids, attention_mask)
    with in_float32(model):
        truth = library_logprobs(model, input_ids, attention_mask)
    model.train(was_training)
    try:
        fast = fast_logprobs(input_ids, attention_mask)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever Triton or a driver raises: no compiler, an old card, a size of heads
        raise UnsupportedModelError(f"its kernels do not run here ({type(error).__name__})") from error
    for rows in (slice(0, None, 2), slice(1, None, 2)):  # whole prompts, and padded ones
        ours, theirs = _distance(fast[rows], truth[rows]), _distance(library[rows], truth[rows])
        if not ours <= max(MARGIN * theirs, FLOOR):  # also when it is not a number
            raise UnsupportedModelError(f"its log-probabilities are {ours:.2g} nats from float32, the library's {theirs:.2g}")


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Let the model compute in float32: each layer's weights are cast while it runs, so only one layer is in memory twice.

    Weights in 4 bits are what they stand for, exactly: bitsandbytes makes them dense in the type that it computes in.
    """
    originals: dict[Tensor, Tensor] = {}
    handles = []

    def cast(module: nn.Module, _: Any) -> None:
        for parameter in module.parameters(recurse=hasattr(module, "lora_A")):  # its input takes the dtype of its adapter
            if parameter.dtype in (torch.bfloat16, torch.float16):
                originals[parameter], parameter.data = parameter.data, parameter.data.float()

    def restore(module: nn.Module, *_: Any) -> None:
        for parameter in module.parameters(recurse=False):
            if parameter in originals:
                parameter.data = originals.pop(parameter)

    four_bit: dict[Any, torch.dtype] = {module: module.compute_dtype for module in model.modules() if is_four_bit(module)}  # type: ignore[misc]
    for module in four_bit:
        module.compute_dtype = torch.float32
    for module in model.modules():
        if hasattr(module, "lora_A") or next(module.parameters(recurse=False), None) is not None:
            handles += [module.register_forward_pre_hook(cast), module.register_forward_hook(restore, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, dtype in four_bit.items():
            module.compute_dtype = dtype


def probe(vocabulary: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, (ROWS, WIDTH + STEPS); every second prompt is padded on the left."""
    ids = (torch.arange(ROWS * (WIDTH + STEPS), device=device) * 7919 + 13) % vocabulary
    attention_mask = torch.ones(ROWS, WIDTH + STEPS, dtype=torch.bool, device=device)
    attention_mask[1::2, : WIDTH // 3] = False
    return ids.view(ROWS, -1), attention_mask


def library_logprobs(model: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    logits = model(
        input_ids=input_ids, attention_mask=attention_mask.long(), position_ids=position_ids(attention_mask), use_cache=False
    ).logits
    logprobs: Tensor = logits[:, WIDTH - 1 :].float().log_softmax(-1)  # (ROWS, STEPS + 1, V)
    return logprobs


def decoder_logprobs(decoder: FastDecoder, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """By the same step that samples: the kernels where they are used."""
    positions, cache = position_ids(attention_mask), decoder.new_cache(*input_ids.shape)
    hidden = [decoder.prefill(input_ids[:, :WIDTH], positions[:, :WIDTH], attention_mask[:, :WIDTH], cache)]
    fused = fused_kernels(decoder, len(input_ids), input_ids[0, :1], None)
    first = (~attention_mask).sum(-1)
    for column in range(WIDTH, WIDTH + STEPS):
        tokens = input_ids[:, column]
        if fused is None:
            hidden.append(decoder.step(tokens, positions[:, column], attention_mask, cache, column))
        else:
            hidden.append(fused.step(tokens.contiguous(), first, torch.tensor([column], device=first.device), cache).clone())
    return decoder.logits(torch.stack(hidden, dim=1)).float().log_softmax(-1)


def _distance(logprobs: Tensor, truth: Tensor) -> float:
    """Root mean square over the vocabulary, median over positions, in nats."""
    return float((logprobs - truth).square().mean(-1).sqrt().median())
