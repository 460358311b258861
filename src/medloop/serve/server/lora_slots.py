"""Several adapters in one batch: each row is multiplied with the LoRA matrices of its own slot.

The matrices of all slots in a batch stand below one another, (R, in) and (R, out); what belongs to another row's slot is set to 0
between the two products. A step therefore costs two products more per matrix, however many adapters it serves, and a batch in
which no row has an adapter costs nothing more.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from medloop.models.rollout.decode import FastDecoder, FusedLinear
from medloop.serve.server.adapter_file import AdapterWeights

MAX_STACKS = 8  # sets of adapters whose stacked matrices are kept


@dataclass(eq=False)
class AdapterSlot:
    """An adapter in memory. It is freed when it has been replaced or unloaded and no request uses it any more."""

    name: str
    root: str
    sha256: str
    rank: int = 0
    payload: Any = None  # what the forward pass needs of it
    references: int = 0
    retired: bool = False
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass
class SlotLinear(FusedLinear):
    """A fused matrix; the rows of a batch may have adapters of their own."""

    a: Tensor | None = None  # (R, in)
    b: Tensor | None = None  # (R, out)
    others: Tensor | None = None  # (B, 1, R): the rows of `a` that belong to another slot

    def with_lora_inputs(self, x: Tensor) -> Tensor:
        """As the plain matrix: it has no ranks of its own, so its outputs are complete."""
        return self(x)

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.extended(), self.bias)
        if self.a is None or self.b is None:
            return y
        inner = F.linear(x, self.a)
        if self.others is not None:  # one column of tokens may come without its dimension
            inner = inner.view(len(self.others), -1, inner.shape[-1]).masked_fill_(self.others, 0)
        flat = y.view(-1, y.shape[-1])
        return torch.addmm(flat, inner.view(-1, inner.shape[-1]), self.b, out=flat).view_as(y)


Part = tuple[Tensor, Tensor]  # A (R, in) and B (R, out) of one fused matrix
Stack = tuple[Tensor, Tensor, Tensor]  # the same of several adapters below one another, and whose each row is (R,)


class LoraSlots:
    """Puts the adapters of a batch's rows beside the matrices of a decoder."""

    def __init__(self, decoder: FastDecoder, model: Any) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        self.like = decoder.embedding
        self.linears: list[SlotLinear] = []
        for layer in decoder.layers:
            for field_name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"):
                plain: FusedLinear = getattr(layer, field_name)
                self.linears.append(SlotLinear(plain.layers, plain.stored, plain.bias, plain.sizes, plain.ranks))
                setattr(layer, field_name, self.linears[-1])
        self._stacks: OrderedDict[tuple[int, ...], list[Stack | None]] = OrderedDict()
        self._used: tuple[AdapterSlot | None, ...] | None = None
        self._masks: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # by owners and rows; a captured graph reads them
        self.stacks: list[Stack | None] = []  # of the adapters in use
        self.alone = False  # all rows have the same one

    def parts(self, weights: AdapterWeights) -> list[Part | None] | None:
        """The matrices in the layout of `linears`; None when the adapter changes a layer that is none of them."""
        known = {self.names[id(layer)] for linear in self.linears for layer in linear.layers}
        if not weights.loras or not set(weights.loras) <= known:
            return None
        return [self._part(linear, weights) for linear in self.linears]

    def _part(self, linear: SlotLinear, weights: AdapterWeights) -> Part | None:
        rows_a, rows_b, out = [], [], 0
        for layer, size in zip(linear.layers, linear.sizes, strict=True):
            if (lora := weights.loras.get(self.names[id(layer)])) is not None:
                a, b = lora
                block = torch.zeros(len(a), sum(linear.sizes))
                block[:, out : out + size] = b.T
                rows_a.append(a)
                rows_b.append(block)
            out += size
        if not rows_a:
            return None
        return torch.cat(rows_a).to(self.like), torch.cat(rows_b).to(self.like)

    def use(self, slots: Sequence[AdapterSlot | None]) -> None:
        """From now on row i of a batch has the adapter slots[i]."""
        rows = tuple(slots)
        if rows == self._used:
            return
        self._used = None  # until all of it is set: memory may run out in between
        distinct = sorted({id(slot): slot for slot in rows if slot is not None}.values(), key=id)
        stacks = self._stack(distinct)
        alone = len(distinct) == 1 and None not in rows
        index = {id(slot): place for place, slot in enumerate(distinct)}
        device = self.like.device
        owners = torch.tensor([-1 if slot is None else index[id(slot)] for slot in rows], device=device)[:, None, None]
        fresh: set[int] = set()
        for linear, stack in zip(self.linears, stacks, strict=True):
            linear.a = linear.b = linear.others = None
            if stack is not None:
                linear.a, linear.b, row_owners = stack
                if not alone:
                    linear.others = self._mask(row_owners, owners, fresh)
        self._used, self.stacks, self.alone = rows, stacks, alone

    def _mask(self, row_owners: Tensor, owners: Tensor, fresh: set[int]) -> Tensor:
        """In the memory that it had for as many rows before."""
        key = (id(row_owners), len(owners))
        if key not in self._masks:
            self._masks[key] = (row_owners, torch.empty(len(owners), 1, len(row_owners), dtype=torch.bool, device=owners.device))
        mask = self._masks[key][1]
        if key[0] not in fresh:
            torch.ne(row_owners, owners, out=mask)
            fresh.add(key[0])
        return mask

    def forget(self, slot: AdapterSlot) -> None:
        self._used = None
        for key in [key for key in self._stacks if id(slot) in key]:
            del self._stacks[key]
        self._drop_masks()
        for linear in self.linears:
            linear.a = linear.b = linear.others = None

    @property
    def kept_stacks(self) -> list[list[Stack | None]]:
        return list(self._stacks.values())

    def _drop_masks(self) -> None:
        kept = {id(stack[2]) for stacks in self._stacks.values() for stack in stacks if stack is not None}
        self._masks = {key: mask for key, mask in self._masks.items() if key[0] in kept}

    def _stack(self, distinct: list[AdapterSlot]) -> list[Stack | None]:
        key = tuple(id(slot) for slot in distinct)
        if key not in self._stacks:
            while len(self._stacks) >= MAX_STACKS:
                self._stacks.popitem(last=False)
            self._drop_masks()
            shared: dict[tuple[int, ...], Tensor] = {}
            self._stacks[key] = [self._stack_one(distinct, place, shared) for place in range(len(self.linears))]
        self._stacks.move_to_end(key)
        return self._stacks[key]

    def _stack_one(self, distinct: list[AdapterSlot], place: int, shared: dict[tuple[int, ...], Tensor]) -> Stack | None:
        parts = [(owner, slot.payload[place]) for owner, slot in enumerate(distinct) if slot.payload[place] is not None]
        if not parts:
            return None
        owners = tuple(owner for owner, (a, _) in parts for _ in range(len(a)))
        if owners not in shared:
            shared[owners] = torch.tensor(owners, device=parts[0][1][0].device)
        if len(parts) == 1:
            return *parts[0][1], shared[owners]
        return torch.cat([a for _, (a, _) in parts]), torch.cat([b for _, (_, b) in parts]), shared[owners]
