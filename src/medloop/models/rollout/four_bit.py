"""Weights in 4 bits (bitsandbytes: NF4 or FP4) as the fast decoder multiplies with them: made dense where they are used.

    if is_four_bit(layer): ...                  # without importing bitsandbytes
    matrix.dense()                              # (out + R, in), in memory that all layers share, until the next one is made

The dense matrix lives for one product, so a model stays at 4 bits and the largest of its matrices. On CUDA bitsandbytes' kernel
writes into memory that is there already: nothing is allocated and nothing waited for, so a CUDA graph can capture it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def is_four_bit(layer: Any) -> bool:
    """Whether it is bitsandbytes' linear layer in 4 bits."""
    return type(layer).__name__ == "Linear4bit" and type(layer).__module__.startswith("bitsandbytes.")


class Scratch:
    """Memory for one dense matrix at a time: as large as the largest one that was reserved."""

    def __init__(self, like: Tensor) -> None:
        self.memory = torch.empty(0, dtype=like.dtype, device=like.device)

    def reserve(self, size: int) -> None:
        """Before the first use: a captured graph knows where it lies."""
        if size > len(self.memory):
            self.memory = torch.empty(size, dtype=self.memory.dtype, device=self.memory.device)


@dataclass
class FourBitMatrix:
    """Layers with one input as one matrix in 4 bits, and the adapters' first matrices, which are not."""

    packed: Tensor  # (out * in / 2,) of bytes, two weights in each; the layers' own weights are views of it
    scales: Tensor  # (out * in / block,) in float32
    block: int  # weights with one scale
    kind: str  # nf4 or fp4
    shape: tuple[int, int]  # (out, in)
    lora_a: Tensor  # (R, in)
    scratch: Scratch

    def dense(self) -> Tensor:
        """(out + R, in): the weights and `lora_a` below them. The next matrix that is made dense takes the same memory."""
        outputs, inputs = self.shape
        whole = self.scratch.memory[: (outputs + len(self.lora_a)) * inputs].view(-1, inputs)
        weights, ops = whole[:outputs], torch.ops.bitsandbytes
        given = (self.packed, self.scales, self.block, self.kind, self.shape, whole.dtype)
        if whole.device.type == "cuda":
            ops.dequantize_4bit.out(*given, out=weights)
        else:  # the kernel for a CPU only makes a tensor of its own
            weights.copy_(ops.dequantize_4bit.default(*given))
        if len(self.lora_a):
            whole[outputs:] = self.lora_a
        return whole


def fuse_four_bit(layers: list[Any], below: int, scratch: Scratch) -> FourBitMatrix:
    """Linear layers in 4 bits as one, with room for `below` rows of adapters. Their weights become views of it: no second copy.

    ValueError where their blocks of weights cannot stand one after the other.
    """
    states = [layer.weight.quant_state for layer in layers]
    blocks, kinds = {state.blocksize for state in states}, {state.quant_type for state in states}
    if len(blocks) > 1 or len(kinds) > 1 or any(layer.weight.dtype != torch.uint8 for layer in layers):
        raise ValueError("its matrices in 4 bits differ in their blocks, their kind or how they are stored")
    if any(getattr(state, "packing_format_for_cpu", False) for state in states):
        raise ValueError("bitsandbytes has packed its matrices in another order")
    block, inputs = blocks.pop(), states[0].shape[1]
    if inputs % block:  # where a row ends within a block, bitsandbytes 0.50 takes wrong scales on a CPU with AVX-512
        raise ValueError(f"a row of {inputs} weights is no multiple of {block}, which share a scale")
    parts = [layer.weight.data.view(-1) for layer in layers]
    packed = parts[0]
    if len(parts) > 1:
        packed = torch.cat(parts)
        for layer, part in zip(layers, torch.split(packed, [len(part) for part in parts]), strict=True):
            layer.weight.data = part.view(layer.weight.shape)
    outputs = sum(state.shape[0] for state in states)
    scratch.reserve((outputs + below) * inputs)
    lora_a = torch.zeros(below, inputs, dtype=scratch.memory.dtype, device=scratch.memory.device)
    scales = torch.cat([_scales(state) for state in states])
    return FourBitMatrix(packed, scales, block, kinds.pop(), (outputs, inputs), lora_a, scratch)


def _scales(state: Any) -> Tensor:
    """Of each block, in float32: bitsandbytes may keep them in 8 bits, with scales of their own."""
    scales: Tensor = state.absmax
    if state.nested:
        from bitsandbytes.functional import dequantize_blockwise  # an optional extra; the model has it loaded

        scales = dequantize_blockwise(state.absmax, state.state2) + state.offset
    return scales.float()
