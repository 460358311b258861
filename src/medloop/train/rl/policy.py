"""The policy that RL trains: a LoRA adapter on a frozen base, its frozen reference, and for PPO a value head. One base in memory.

    policy = open_policy(ModelRef(base="embedded:tiny", adapter="sft"), settings, lora_r=8, with_values=True)
    batch = collate(rollouts, policy.pad_id, policy.device)
    output = policy.forward(batch, temperature=1.0)        # log-probabilities (B, C), entropy, values
    with policy.reference(): ...                           # the model as it was before RL

The reference of a policy that starts from an adapter is a frozen copy of that adapter; of a fresh policy, the base with the
adapter off. Either way no second model is held. Adapters and value head are float32: at RL's rates bfloat16 weights do not move.
Dropout is off everywhere, always: a rollout and its update must be of the same policy.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from peft import get_peft_model
from torch import Tensor, nn

from medloop.contracts import ModelRef
from medloop.models.adapter import fresh_lora
from medloop.models.load import Loaded, load
from medloop.models.packing import PackedRows, pack
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import Sampler, stop_ids
from medloop.models.template import control_ids
from medloop.settings import Settings
from medloop.train.rl.logprobs import EntropyMode, TokenLogprobs, logits_logprobs, token_logprobs

REFERENCE = "reference"
log = logging.getLogger(__name__)


class Batch(NamedTuple):
    """Answers side by side: prompts and answers padded on the right, answers as columns."""

    input_ids: Tensor  # (B, T): prompt, answer, padding
    attention_mask: Tensor  # (B, T)
    predictors: Tensor  # (B, C): the column of `input_ids` whose hidden state predicts each token of the answer
    targets: Tensor  # (B, C)
    mask: Tensor  # (B, C)
    places: Tensor  # (N,): where the flattened mask is True
    packed: PackedRows | None = None  # as the fast forward takes them
    packed_predictors: Tensor | None = None  # (B, C): the same as `predictors`, into the packed tokens


class PolicyOutput(NamedTuple):
    """All (B, C), 0 outside the mask; `hidden` (B, C, H) are the states that predict each token."""

    logprobs: Tensor
    entropy: Tensor | None
    values: Tensor | None
    hidden: Tensor | None = None


def collate(rollouts: Sequence[Rollout], pad_id: int, device: torch.device, *, packed: bool = False) -> Batch:
    """`packed` also gives the rows as the fast forward takes them."""
    longest = max(len(rollout.prompt) + len(rollout.tokens) for rollout in rollouts)
    columns = max(len(rollout.tokens) for rollout in rollouts)
    input_ids = torch.full((len(rollouts), longest), pad_id)
    targets = torch.full((len(rollouts), columns), pad_id)
    attention_mask, mask = torch.zeros_like(input_ids), torch.zeros_like(targets, dtype=torch.bool)
    starts = torch.tensor([len(rollout.prompt) for rollout in rollouts])
    for row, rollout in enumerate(rollouts):
        sequence = torch.tensor([*rollout.prompt, *rollout.tokens])
        input_ids[row, : len(sequence)], attention_mask[row, : len(sequence)] = sequence, 1
        targets[row, : len(rollout.tokens)], mask[row, : len(rollout.tokens)] = sequence[len(rollout.prompt) :], True
    predictors = (starts[:, None] - 1 + torch.arange(columns)).clamp(max=longest - 1)
    places = mask.flatten().nonzero()[:, 0]
    batch = Batch(
        input_ids.to(device), attention_mask.to(device), predictors.to(device), targets.to(device), mask.to(device),
        places.to(device),
    )  # fmt: skip
    if not packed:
        return batch
    rows, packed_predictors = pack([rollout.prompt for rollout in rollouts], [rollout.tokens for rollout in rollouts], device)
    return batch._replace(packed=rows, packed_predictors=packed_predictors)


@dataclass
class Policy:
    """What the trainers see of a model."""

    loaded: Loaded
    model: Any
    value_head: nn.Linear | None
    has_reference: bool  # a frozen adapter; else the adapter is switched off
    direct: bool = True  # the output layer may be applied to answer tokens alone
    fast: Any = None  # FastForward, where it fits the model
    beyond: bool = False  # whether a batch was too long for it
    _trained: dict[str, nn.Parameter] = field(default_factory=dict)

    @property
    def update_backend(self) -> str:
        """What computed the updates: the fast forward pass, the library's, or both."""
        return "library" if self.fast is None else "mixed" if self.beyond else "fast"

    @property
    def device(self) -> torch.device:
        return self.loaded.device

    @property
    def pad_id(self) -> int:
        return int(self.loaded.tokenizer.pad_token_id)

    def trained(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name, in a fixed order; found once, because a step asks for them several times."""
        if not self._trained:
            named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
            values = {} if self.value_head is None else dict(self.value_head.named_parameters(prefix="value_head"))
            self._trained = {**named, **values}
        return self._trained

    def reference_weights(self) -> dict[str, Tensor]:
        """Values of the trained adapter weights with which the policy is the reference: its copy, or an adapter that adds 0."""
        every = dict(self.model.named_parameters())
        trained = {name: p.detach() for name, p in every.items() if p.requires_grad}
        if self.has_reference:
            return {name: every[name.replace(".default.", f".{REFERENCE}.")].detach() for name in trained}
        return {name: torch.zeros_like(p) if "lora_B" in name else p.clone() for name, p in trained.items()}

    def sampler(self, products: torch.dtype | None = None) -> Sampler:
        """`products`: the type in which a float32 model on a CPU multiplies while it samples."""
        # On a CPU the sampler has its own copy, with the adapter merged: a token costs fewer products. Not of a base in 4 bits.
        shared = self.fast is not None and (self.device.type != "cpu" or self.fast.decoder.in_four_bits)
        decoder = self.fast.decoder if shared else None
        ends = stop_ids(self.model, self.loaded.tokenizer)
        return Sampler(self.model, stop_ids=ends, pad_id=self.pad_id, decoder=decoder, products=products)

    def collate(self, rollouts: Sequence[Rollout]) -> Batch:
        """Packed where the fast forward takes them: a row beyond its rotary tables is left to the library, as in sampling."""
        longest = max(len(rollout.prompt) + len(rollout.tokens) for rollout in rollouts)
        packed = self.fast is not None and longest <= self.fast.decoder.max_positions
        self.beyond = self.beyond or not packed
        return collate(rollouts, self.pad_id, self.device, packed=packed)

    def text(self, tokens: Sequence[int]) -> str:
        """An answer as people read it: without control tokens and ids that the tokenizer cannot write."""
        tokenizer = self.loaded.tokenizer
        hidden = control_ids(tokenizer)
        size = len(tokenizer)
        visible = [token for token in tokens if token not in hidden and token < size]
        return str(tokenizer.decode(visible, skip_special_tokens=False))

    def forward(self, batch: Batch, *, temperature: float, entropy: EntropyMode = "none", values: bool = False) -> PolicyOutput:
        """Under the active adapter; with gradients unless torch.no_grad is on."""
        model = self.model.get_base_model()
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "use_cache": False}
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            rows = torch.arange(len(batch.input_ids), device=self.device)[:, None]
            if batch.packed is not None:
                self.fast.decoder.refresh_if_changed()
                hidden = self.fast(batch.packed)[batch.packed_predictors]  # (B, C, H)
            else:
                hidden = model.get_decoder()(**inputs).last_hidden_state[rows, batch.predictors]
            head = model.get_output_embeddings()
            if self.direct:
                hidden = hidden.to(head.weight.dtype)
                tokens = token_logprobs(
                    hidden, head.weight, batch.targets, temperature=temperature, bias=head.bias, places=batch.places,
                    entropy=entropy, softcap=getattr(model.config.get_text_config(), "final_logit_softcapping", None),
                )  # fmt: skip
            else:
                logits = model(**inputs).logits[rows, batch.predictors]
                unmasked = logits_logprobs(logits, batch.targets, temperature=temperature, entropy=entropy)
                zeroed = [None if part is None else torch.where(batch.mask, part, 0.0) for part in unmasked]
                tokens = TokenLogprobs(zeroed[0], zeroed[1])  # type: ignore[arg-type]
        estimates = None
        if values:
            assert self.value_head is not None, "this policy was opened without a value head"
            # Detached: the critic reads the policy's features and moves none of its weights.
            estimates = torch.where(batch.mask, self.value_head(hidden.detach().float()).squeeze(-1), 0.0)
        return PolicyOutput(tokens.logprobs, tokens.entropy, estimates, hidden.detach())

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the model is what it was before RL, without gradients; the policy comes back afterwards, whatever happened."""
        if not self.has_reference:
            tuner = self.model.base_model  # the model's own disable_adapter first asks every layer for its state
            tuner.disable_adapter_layers()
            try:
                with torch.no_grad():
                    yield
            finally:
                tuner.enable_adapter_layers()
            return
        self.model.set_adapter(REFERENCE, inference_mode=True)
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.set_adapter("default")


def open_policy(
    ref: ModelRef,
    settings: Settings,
    *,
    lora_r: int = 16,
    lora_alpha: int = 32,
    with_values: bool = False,
    load_in_4bit: bool = False,
    gradient_checkpointing: bool = False,
) -> Policy:
    """A policy that starts as `ref`. An adapter keeps its shape; without one a fresh adapter of rank `lora_r` is added."""
    loaded = load(ref, settings, load_in_4bit=load_in_4bit)
    model = loaded.model
    if ref.adapter is None:
        model = get_peft_model(model, fresh_lora(model, r=lora_r, lora_alpha=lora_alpha))
    else:
        _copy_as_reference(model)
    _no_dropout(model)
    if gradient_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()  # transformers recomputes only in this mode; dropout is 0 all the same
    width = model.get_base_model().get_output_embeddings().weight.shape[1]
    value_head = _value_head(width, loaded.device) if with_values else None
    policy = Policy(loaded, model, value_head, ref.adapter is not None)
    policy.direct = _direct_agrees(policy)
    if policy.direct and not gradient_checkpointing and (loaded.device.type == "cuda" or model.dtype == torch.float32):
        policy.fast = _fast_forward(model)
    return policy


def _fast_forward(model: Any) -> Any:
    """The model's fast forward; None, with a warning, where it does not fit."""
    try:
        from medloop.models.fast_forward import open_fast_forward  # triton

        return open_fast_forward(model)
    except (ImportError, UnsupportedModelError) as error:
        log.warning(
            "Training uses the library's forward pass, 1.5 to 2.5 times slower, because the fast one does not fit: %s.",
            error,
        )
        return None


def _copy_as_reference(model: Any) -> None:
    model.add_adapter(REFERENCE, model.peft_config["default"])
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            if f".{REFERENCE}." in name:
                weight.copy_(weights[name.replace(f".{REFERENCE}.", ".default.")])
    model.set_adapter("default")


def _no_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def _value_head(width: int, device: torch.device) -> nn.Linear:
    """Zero at first: the critic starts by predicting 0 instead of noise."""
    head = nn.Linear(width, 1, device=device, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


@torch.no_grad()
def _direct_agrees(policy: Policy) -> bool:
    """Some architectures do more behind the output layer (scaling, soft caps): one row tells."""
    size = policy.model.get_base_model().get_input_embeddings().num_embeddings
    tokens = tuple((n * 7919 + 13) % size for n in range(8))
    batch = collate([Rollout(tokens[:4], tokens[4:], (0.0,) * 4, False, "")], policy.pad_id, policy.device)
    logprobs = []
    for policy.direct in (True, False):
        logprobs.append(policy.forward(batch, temperature=1.0).logprobs)
    return bool((logprobs[0] - logprobs[1]).abs().max() < (1e-3 if policy.device.type == "cpu" else 0.1))
