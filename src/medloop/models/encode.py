"""Models that read text and do not write it: sentence encoders (text -> unit vector), cross-encoders (two texts -> 0 to 1).

    encoder = load_encoder("embedded:minilm", settings)
    encoder.encode(["Is it flu?", "It may be the flu."])       -> (2, D), rows of length 1, so products are cosines
    encoder.tokens(["Is it flu?"])                             -> one (T, D) array per text, special tokens left out
    load_cross_encoder("BAAI/bge-reranker-v2-m3", settings).score([("Is it flu?", "It may be the flu.")])      -> [0.98]

Plain transformers, the folder checks of load.py, safetensors only. They run on `settings.reward.device`, in float32 there too:
a score must not depend on its neighbours in the batch, and in bfloat16 a cosine did by 0.001. Texts are sorted by length and
packed into batches of `batch_tokens`; a text that comes twice is read once. Texts longer than the model can read are truncated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoModelForSequenceClassification

from medloop.contracts import ModelRef
from medloop.errors import ModelError
from medloop.models import runtime
from medloop.models.find import ResolvedModel, resolve
from medloop.models.load import load_tokenizer, load_weights
from medloop.models.safety import POOLING, read_json
from medloop.settings import Settings

Array = NDArray[np.float32]
Pooling = Literal["mean", "cls"]
BATCH_TOKENS = 1024  # tokens in memory at once, padding included; on a CPU 4096 is a quarter slower, on a GPU more is better
PAIR_TOKENS = 512  # what a cross-encoder reads of question and answer together, unless told otherwise
# Common words of a consultation. A tokenizer made for Chinese spends about one token on a character; others know few of the
# characters (unknown tokens) or spell each one in bytes (three tokens).
CHINESE = "患者头痛发热三天，建议去医院检查血压和血糖，按时服药，注意休息，如果症状加重请立即就诊。"
TOKENS_A_CHARACTER = 1.3


@dataclass(frozen=True)
class Encoder:
    """A sentence encoder in memory. `sha256` names its weights, `reads_chinese` is what its tokenizer shows."""

    model: Any
    tokenizer: Any
    name: str
    sha256: str
    device: torch.device
    pooling: Pooling
    max_tokens: int
    batch_tokens: int
    reads_chinese: bool

    def encode(self, texts: Sequence[str]) -> Array:
        """(N, D), in the order of the texts; rows of length 1, or 0 for a text without a token."""

        def pool(hidden: torch.Tensor, inputs: Any) -> list[Array]:
            return list(_unit(_pool(hidden, inputs["attention_mask"], self.pooling)).cpu().numpy())

        vectors = self._run(texts, pool, np.zeros(self.width, np.float32))
        return np.stack(vectors) if vectors else np.zeros((0, self.width), np.float32)

    def tokens(self, texts: Sequence[str]) -> list[Array]:
        """The vectors of each text's tokens, (T, D) with rows of length 1; T may be 0."""
        special = torch.tensor(_special(self.tokenizer), device=self.device)

        def words_only(hidden: torch.Tensor, inputs: Any) -> list[Array]:
            masks = inputs["attention_mask"].bool() & ~torch.isin(inputs["input_ids"], special)
            return [row[mask].cpu().numpy() for row, mask in zip(_unit(hidden), masks, strict=True)]

        return self._run(texts, words_only, np.zeros((0, self.width), np.float32))

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    def _run(self, texts: Sequence[str], reduce: Callable[[torch.Tensor, Any], list[Array]], empty: Array) -> list[Array]:
        """`reduce` of the last hidden states (B, T, D) of each text; `empty` for a text without a token."""
        encoded = {text: self.tokenizer(text, truncation=True, max_length=self.max_tokens) for text in dict.fromkeys(texts)}
        distinct = [text for text, encoding in encoded.items() if encoding["input_ids"]]
        arrays: dict[str, Array] = {}
        for batch in _batches([len(encoded[text]["input_ids"]) for text in distinct], self.batch_tokens):
            inputs = _pad(self.tokenizer, [encoded[distinct[i]] for i in batch], self.device)
            with torch.inference_mode():
                rows = reduce(self.model(**inputs).last_hidden_state, inputs)
            arrays.update({distinct[i]: row for i, row in zip(batch, rows, strict=True)})
        return [arrays.get(text, empty) for text in texts]


@dataclass(frozen=True)
class CrossEncoder:
    """A sequence classifier with one logit, in memory."""

    model: Any
    tokenizer: Any
    name: str
    sha256: str
    device: torch.device
    max_tokens: int
    batch_tokens: int
    reads_chinese: bool

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Sigmoid of the logit of each pair, in order; the longer text of a pair is truncated first."""
        distinct = list(dict.fromkeys(pairs))
        encoded = [self.tokenizer(*pair, truncation="longest_first", max_length=self.max_tokens) for pair in distinct]
        scores: dict[tuple[str, str], float] = {}
        for batch in _batches([len(encoding["input_ids"]) for encoding in encoded], self.batch_tokens):
            with torch.inference_mode():
                logits = self.model(**_pad(self.tokenizer, [encoded[i] for i in batch], self.device)).logits  # (B, 1)
            values = torch.sigmoid(logits[:, 0]).tolist()
            scores.update({distinct[i]: value for i, value in zip(batch, values, strict=True)})
        return [scores[pair] for pair in pairs]


def load_encoder(
    name: str,
    settings: Settings,
    *,
    pooling: Literal["auto", "mean", "cls"] = "auto",
    max_tokens: int = 0,
    batch_tokens: int = BATCH_TOKENS,
) -> Encoder:
    """A sentence encoder by name, folder or hub id; `pooling` and `max_tokens` are its own unless told otherwise."""
    resolved, tokenizer, device = _prepare(name, settings)
    model = load_weights(AutoModel, resolved.folder, dtype=torch.float32, may_lack=("pooler.",)).to(device).eval()
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(f"{name} has a decoder", "Name a sentence encoder, such as embedded:minilm")
    longest = _longest(model, tokenizer, resolved.folder)
    return Encoder(
        model, tokenizer, resolved.name, resolved.sha256, device, _pooling(resolved.folder) if pooling == "auto" else pooling,
        min(max_tokens or longest, longest), batch_tokens, _reads_chinese(tokenizer),
    )  # fmt: skip


def load_cross_encoder(name: str, settings: Settings, *, max_tokens: int = 0, batch_tokens: int = BATCH_TOKENS) -> CrossEncoder:
    """A cross-encoder by name, folder or hub id; its head must be in the weights and have one output."""
    resolved, tokenizer, device = _prepare(name, settings)
    model = load_weights(AutoModelForSequenceClassification, resolved.folder, dtype=torch.float32).to(device).eval()
    if model.config.num_labels != 1:
        raise ModelError(
            f"{name} sorts texts into {model.config.num_labels} classes, but a cross-encoder gives one score",
            "Name one with a single label, such as BAAI/bge-reranker-v2-m3",
        )
    longest = _longest(model, tokenizer, resolved.folder)
    limit = min(max_tokens or PAIR_TOKENS, longest)
    return CrossEncoder(model, tokenizer, resolved.name, resolved.sha256, device, limit, batch_tokens, _reads_chinese(tokenizer))


def find(name: str, settings: Settings) -> str:
    """The fingerprint of a model that could be loaded, without loading it."""
    return resolve(ModelRef(base=name), settings).sha256


def _prepare(name: str, settings: Settings) -> tuple[ResolvedModel, Any, torch.device]:
    runtime.keep_quiet()
    runtime.set_threads(settings)
    resolved = resolve(ModelRef(base=name), settings)
    tokenizer = load_tokenizer(resolved.folder)
    tokenizer.padding_side = "right"  # encoders count positions from the left
    return resolved, tokenizer, runtime.device_of(settings, "reward.device")


def _pooling(folder: Path) -> Pooling:
    """What the sentence-transformers layout says; mean where the folder says nothing (a plain encoder)."""
    path = folder / POOLING
    if not path.is_file():
        if (folder / "modules.json").is_file():
            raise ModelError(f"{folder} names a pooling and lacks {POOLING}", "Set pooling: cls or pooling: mean")
        return "mean"
    config = read_json(path)
    modes = {
        key.removeprefix("pooling_mode_") for key, value in config.items() if key.startswith("pooling_mode_") and value is True
    }
    if isinstance(mode := config.get("pooling_mode"), str):  # newer layout: one name instead of switches
        modes = {mode}
    known: dict[str, Pooling] = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}
    if len(modes) != 1 or not modes <= set(known):
        raise ModelError(
            f"{folder} pools by {', '.join(sorted(modes)) or 'nothing'}", "Supported are mean and cls; choose another encoder"
        )
    return known[modes.pop()]


def _longest(model: Any, tokenizer: Any, folder: Path) -> int:
    """Tokens that a model can read: the least of what its files say."""
    limits = [tokenizer.model_max_length]
    if positions := getattr(model.config, "max_position_embeddings", None):
        # RoBERTa's positions start behind the padding token.
        limits.append(positions - (model.config.pad_token_id + 1 if "roberta" in model.config.model_type else 0))
    path = folder / "sentence_bert_config.json"
    if path.is_file() and isinstance(limit := read_json(path).get("max_seq_length"), int):
        limits.append(limit)
    return int(min(limits))


def _reads_chinese(tokenizer: Any) -> bool:
    ids = tokenizer(CHINESE, add_special_tokens=False)["input_ids"]
    return tokenizer.unk_token_id not in ids and len(ids) <= TOKENS_A_CHARACTER * len(CHINESE)


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of texts of like length, longest first, as many as fit into the budget with their padding; at least one."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def _pad(tokenizer: Any, encoded: Sequence[Any], device: torch.device) -> Any:
    return tokenizer.pad([dict(encoding) for encoding in encoded], padding=True, return_tensors="pt").to(device)


def _special(tokenizer: Any) -> list[int]:
    """The tokenizer's own tokens ([CLS], [SEP], padding); an unknown word is still a word."""
    return [token for token in tokenizer.all_special_ids if token != tokenizer.unk_token_id]


def _pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """(B, T, D), (B, T) -> (B, D)"""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)
