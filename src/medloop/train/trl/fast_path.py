"""Our own forward pass (models/fast_forward.py) in TRL's trainers: opened where it agrees with the library, else a reason said.

path = open_fast_path(model, args, "DPO", open_fast_forward, updates)    # counts batches that are learnt from, of the whole run
path.backend                                # fast, library, or mixed: some batches had rows beyond the rotary tables
path.sentence                               # why the library computed, and what it costs; None where it did not
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import PeftModel

from medloop.models.rollout.decode import UnsupportedModelError

SLOWER = "1.7 to 3 times slower (measured on a CPU)"  # docs/log.md#dpo-and-kto
log = logging.getLogger(__name__)


@dataclass
class FastPath:
    """`forward` is None where the library computes, for the `reason`."""

    stage: str
    forward: Any = None
    reason: str | None = None
    updates: Counter[str] = field(default_factory=Counter)  # batches that were learnt from: fast, library
    told: bool = False

    @property
    def backend(self) -> str | None:
        """What computed the updates; None where none was counted, as after a checkpoint of an older version."""
        if not self.updates:
            return "library" if self.forward is None else None
        return "mixed" if len(self.updates) > 1 else next(iter(self.updates))

    @property
    def sentence(self) -> str | None:
        if self.forward is None:
            return f"{self.stage} used the library's forward pass, {SLOWER}, because the fast one does not fit: {self.reason}."
        return self._beyond if self.updates["library"] else None

    @property
    def _beyond(self) -> str:
        return (
            f"{self.stage} used the library's forward pass, {SLOWER}, for batches with a row of more than "
            f"{self.forward.decoder.max_positions:,} tokens."
        )

    def takes(self, lengths: Sequence[int]) -> bool:
        """Whether rows of these lengths are computed by the fast forward. Counted where they are learnt from, not where they are
        only read, as for the reference and for evaluations; the first refusal is said."""
        fits = self.forward is not None and max(lengths) <= self.forward.decoder.max_positions
        if torch.is_grad_enabled():
            self.updates["fast" if fits else "library"] += 1
        if not fits and self.forward is not None and not self.told:
            self.told = True
            log.warning("%s", self._beyond)
        return fits

    def read_adapter(self) -> None:
        """Whichever adapter is active now, or none."""
        if self.forward is not None:
            self.forward.decoder.refresh()

    def read_values(self) -> None:
        """The same adapter, which the optimizer may have written since: few kernels."""
        if self.forward is not None:
            self.forward.decoder.refresh_values()


def has_dropout(module: torch.nn.Module) -> bool:
    """A layer of dropout, or attention that drops weights itself (`attention_dropout` of its model's configuration)."""
    inside = getattr(module, "attention_dropout", 0.0)
    return (isinstance(module, torch.nn.Dropout) and module.p > 0) or (isinstance(inside, float) and inside > 0)


def open_fast_path(
    model: Any, args: Any, stage: str, open_forward: Callable[[Any], Any], updates: Counter[str]
) -> FastPath:  # fmt: skip
    """The fast forward pass of a LoRA without dropout whose activations may be kept; else the reason, with a warning."""
    path = FastPath(stage, reason=_refused(model, args), updates=updates)
    if path.reason is None:
        try:
            path.forward = open_forward(model)
        except (ImportError, UnsupportedModelError) as error:
            path.reason = str(error)
    if path.sentence is not None and isinstance(model, PeftModel):  # who trains all weights has chosen so
        log.warning("%s", path.sentence)
    return path


def _refused(model: Any, args: Any) -> str | None:
    if not isinstance(model, PeftModel):
        return "all weights are trained"
    if args.gradient_checkpointing:
        return "gradient_checkpointing computes activations again"
    if any(has_dropout(module) for module in model.modules()):
        return "the model has dropout"
    if args.use_cpu and model.dtype != torch.float32:
        return f"its weights are {model.dtype} on a CPU"
    return None
