"""Sequence classifiers with one logit: how a reward model is built on a base, opened again, and scores answers.

    fresh = new_classifier("embedded:minilm", settings, seed=42)          # any base, with a new head, to be trained
    model = open_classifier(Path("models/reward/first"), settings)        # a trained one: base and adapter, or all weights
    model.logits([encode(model.tokenizer, messages, answer, max_length=256).ids, ...])

There are two kinds of base. A *causal* one (Llama, Qwen, GPT-2) reads prompt and answer through its own chat template; its logit
is taken at the last token that is not padding, under right padding. An *encoder* (BERT, MiniLM; its tokenizer has a cls and a sep
token) reads the prompt as plain text and the answer as the second part; its logit is taken at the pooled output. Training and
scoring use the same `encode`, dropout is off in both, and padding changes nothing.

An input that is too long loses its oldest messages, then the beginning of the question. The answer is never truncated: when it
leaves no room for the question, the result is `None`, for the caller to count. Like load.py: safetensors only, no code from a
model folder, and incomplete weights are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from transformers import AutoModelForSequenceClassification

from medloop.contracts import Contract, Message, ModelRef, TrainingCard
from medloop.contracts.base import Hash, Text
from medloop.errors import ModelError
from medloop.models import runtime
from medloop.models.find import SCORING, check_reward_model, resolve
from medloop.models.heads import HeadWeights
from medloop.models.load import load_tokenizer
from medloop.models.safety import fingerprint, read_json
from medloop.models.template import end_ids, neutralise, render_prompt, shorter, tokenise
from medloop.settings import Settings

HEADS = ("score", "classifier", "pre_classifier", "pooler")  # modules that a base may lack: they are initialised and trained
EncoderUse = Literal["fine-tuned", "frozen", "none"]  # what a reward model does with its base
QUESTION_TOKENS = 16  # at least so many tokens of the question stay


class Scoring(Contract):
    """How answers become scores: sigmoid((lowered logit - mean) / std), centred on the answers of a reference policy.

    The base is named by hash here too, so that the fingerprint of a folder with an adapter covers what the adapter lies on.
    """

    base_sha256: Hash
    max_length: int = Field(ge=8)
    mean: float
    std: float = Field(gt=0)
    samples: int = Field(ge=1)
    reference: Text
    encoder: EncoderUse = "fine-tuned"
    weights: HeadWeights = HeadWeights()
    spread: float = Field(0.0, ge=0)
    """The mean standard deviation of the heads on the reference answers."""


class Encoded(NamedTuple):
    """Token ids of prompt and answer; how many messages and question tokens were dropped."""

    ids: list[int]
    dropped_messages: int = 0
    dropped_tokens: int = 0


@dataclass(frozen=True)
class Classifier:
    """A model that gives one logit. `fresh` are the newly initialised modules; `sha256` is of base or result."""

    model: Any
    tokenizer: Any
    name: str
    sha256: str
    device: torch.device
    fresh: tuple[str, ...] = ()

    def logits(self, rows: Sequence[list[int]], *, batch_size: int = 32) -> list[float]:
        """One logit per row, in order, whatever it is batched with."""
        self.model.eval()
        advice = "Use a smaller reward model, or device cpu"
        return runtime.compute_in_batches(
            rows, self._forward, lambda row: -len(row), batch_size=batch_size, unit="answer", advice=advice
        )

    @torch.inference_mode()
    def _forward(self, rows: Sequence[list[int]]) -> list[float]:
        width, pad = max(map(len, rows)), int(self.tokenizer.pad_token_id)
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=self.device)  # (B, T)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self.device)
        # On a GPU the base may be bfloat16 under a float32 head, as in training.
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model(input_ids=ids, attention_mask=mask).logits  # (B, 1)
        return [float(logit) for logit in logits[:, 0].float()]


def encode(tokenizer: Any, messages: Sequence[Message], answer: str, *, max_length: int) -> Encoded | None:
    """Prompt and answer as the classifier reads them; None when the answer leaves no room for the question."""
    build = _encoder_ids if is_encoder(tokenizer) else _causal_ids
    for remaining, dropped_messages in shorter(messages):
        ids = build(tokenizer, remaining, answer)
        if len(ids) <= max_length:
            return Encoded(ids, dropped_messages)
    dropped = 0
    question = remaining[-1].content
    spans = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    while len(ids) > max_length:
        dropped += len(ids) - max_length
        if dropped > len(spans) - QUESTION_TOKENS:
            return None
        rest = question[spans[dropped][0] :].lstrip()
        ids = build(tokenizer, [*remaining[:-1], remaining[-1].model_copy(update={"content": rest})], answer)
    return Encoded(ids, dropped_messages, dropped)


def is_encoder(tokenizer: Any) -> bool:
    return tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None


def _causal_ids(tokenizer: Any, messages: Sequence[Message], answer: str) -> list[int]:
    """The answer after the rendered prompt, with its end token. An empty answer is the end token alone."""
    prompt = tokenise(tokenizer, render_prompt(tokenizer, messages))
    return prompt + tokenise(tokenizer, neutralise(tokenizer, answer)) + end_ids(tokenizer)


def _encoder_ids(tokenizer: Any, messages: Sequence[Message], answer: str) -> list[int]:
    """[CLS] messages [SEP] answer [SEP], as the tokenizer joins two texts; text never becomes a control token."""
    last = len(messages) - 1
    prompt = "\n".join(m.content if place == last else f"{m.role}: {m.content}" for place, m in enumerate(messages))
    return list(tokenizer(prompt, answer, split_special_tokens=True, truncation=False, verbose=False)["input_ids"])


def new_classifier(base: str, settings: Settings, *, seed: int, trainable: bool) -> Classifier:
    """A base with a new head, initialised from the seed; float32 on a CPU or when all weights are trained, else bfloat16."""
    runtime.keep_quiet()
    runtime.set_threads(settings)
    resolved, device = resolve(ModelRef(base=base), settings), runtime.device_of(settings)
    tokenizer = load_tokenizer(resolved.folder)
    model, gaps = _load(resolved.folder, runtime.number_type(device, trainable=trainable), tokenizer, seed)
    fresh = tuple(sorted({part for key in gaps for part in HEADS if part in key.split(".")}))
    if missing := [key for key in gaps if not set(HEADS) & set(key.split("."))]:
        raise ModelError(
            f"The weights in {resolved.folder} lack {len(missing)} tensors, for example {missing[0]}", "Fetch the model again"
        )
    return Classifier(model.to(device).eval(), tokenizer, base, resolved.sha256, device, fresh)


def open_classifier(folder: Path, settings: Settings, *, device: torch.device | None = None) -> tuple[Classifier, Scoring]:
    """A trained reward model, checked to the last byte, and how its logit becomes a score."""
    runtime.keep_quiet()
    runtime.set_threads(settings)
    card, scoring = read_reward_model(folder)
    device = device or runtime.device_of(settings)
    dtype, tokenizer = runtime.number_type(device, trainable=False), load_tokenizer(folder)
    if card.config.get("full"):
        model, gaps = _load(folder, dtype, tokenizer, 0)
        if gaps:
            raise ModelError(f"The weights in {folder} lack {len(gaps)} tensors, for example {gaps[0]}", "Train it again")
    else:
        from medloop.models.adapter import put_adapter

        base = resolve(ModelRef(base=card.base), settings)
        model, _ = _load(base.folder, dtype, tokenizer, 0)
        model = put_adapter(model, folder, base=card.base, base_sha256=base.sha256, task_type="SEQ_CLS")
        if device.type == "cpu":
            model = model.merge_and_unload()
    return Classifier(model.to(device).eval(), tokenizer, card.name, fingerprint(folder), device), scoring


def read_reward_model(folder: Path) -> tuple[TrainingCard, Scoring]:
    """Card and scoring of a folder that medloop wrote and nobody changed."""
    check_reward_model(folder)
    try:
        card = TrainingCard.model_validate(read_json(folder / "card.json"))
        scoring = Scoring.model_validate(read_json(folder / SCORING))
    except ValidationError:
        raise ModelError(f"card.json or {SCORING} in {folder} is not valid", "Train it again") from None
    return card, scoring


def _load(folder: Path, dtype: torch.dtype, tokenizer: Any, seed: int) -> tuple[Any, list[str]]:
    """The model, and the names of weights that its folder lacks; those are initialised from the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            model, info = AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=1, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True,
                output_loading_info=True,
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, AttributeError, SafetensorError) as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"{folder} cannot be loaded as a classifier ({type(error).__name__}: {line[:160]})",
                "Use a base that transformers supports for sequence classification",
            ) from error
    # The classifier finds the last token by the padding id. Without one it could only read rows one at a time.
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    return model, sorted({*info["missing_keys"], *(str(key[0]) for key in info["mismatched_keys"])})
