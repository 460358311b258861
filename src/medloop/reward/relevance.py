"""The three rewards of DW-GRPO: does the answer speak to the question, keep to the context, and keep it short?

    rel     sigmoid of a cross-encoder's logit for (question, answer); without a cross-encoder the cosine of their embeddings
    faith   embedding: each sentence's best cosine over the sentences of the context, averaged
            bertscore: F1 of greedy token matching between answer and context (arXiv 1904.09675, no idf, no rescaling)
    conc    1 - len(answer) / len(context), in characters, at least 0

What is read is what the patient sees: a chain of thought or hidden text counts in none of them. An answer of fewer than three
words says nothing and scores 0 in all three; otherwise silence would be the most concise answer. `rel` of an answer that gives
the question back falls to 0. Cosines below 0 are 0. Without a context `faith` and `conc` do not apply.

An encoder that does not read Chinese says nothing about a Chinese text. Such samples, and all of them when no encoder is at
hand, are scored by shared words (heuristic.py), and author, version and reason say so; with `strict` they are missing instead,
and a model that cannot be found is an error. An answer in a script that neither question nor context has is 0, not missing:
else a policy could earn by answering in another language.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from medloop.contracts import Component, Contract, Missing, Sample, Score
from medloop.contracts.base import Text
from medloop.errors import MissingExtraError, ModelError
from medloop.models import require_packages
from medloop.reward import word_overlap
from medloop.reward.answer_text import copied_share, split_answer
from medloop.reward.word_overlap import script, sentences
from medloop.settings import Settings

if TYPE_CHECKING:
    from medloop.models.encode import Array, CrossEncoder, Encoder

VERSION = "1"
AUTHOR = "reward:relevance"
COPIED_FROM, COPIED_WHOLE = 0.5, 0.8  # shares of the answer's four-word runs that stand in the question: from here less, here 0
SAYS = {
    "cross-encoder": "The cross-encoder says",
    "cosine": "Cosine of question and answer (no cross-encoder is configured):",
    "embedding": "Each sentence's best match in the context, on average:",
    "bertscore": "F1 of the tokens matched between answer and context:",
}

log = logging.getLogger(__name__)


class RelevanceConfig(Contract):
    """Which models judge relevance, and how."""

    scorer: Literal["model", "heuristic"] = "model"
    """`heuristic` compares words and loads nothing."""
    encoder: Text = "embedded:minilm"
    """Sentence encoder: embedded:minilm (English), a folder or a hub id such as BAAI/bge-m3."""
    cross_encoder: Text | None = None
    """Cross-encoder for `rel`, such as BAAI/bge-reranker-v2-m3; without one `rel` is a cosine of embeddings."""
    faith: Literal["embedding", "bertscore"] = "embedding"
    pooling: Literal["auto", "mean", "cls"] = "auto"
    """How the encoder makes one vector of many; auto: as its folder says."""
    reads_chinese: bool | None = None
    """Whether encoder and cross-encoder understand Chinese; null: as their tokenizers show."""
    strict: bool = False
    """No heuristic in the place of a model: samples that the model cannot read are missing."""
    max_tokens: int = Field(0, ge=0)
    """Tokens read of a text; 0: what the model can read (a pair of question and answer: 512)."""
    batch_tokens: int = Field(1024, gt=0)
    """Tokens in memory at once; on a GPU more is faster."""


class Models:
    """The encoders of a configuration, found when a version is asked for and loaded when first used."""

    def __init__(self, config: RelevanceConfig, settings: Settings) -> None:
        self.config, self.settings = config, settings

    @cached_property
    def encoder(self) -> Encoder:
        from medloop.models.encode import load_encoder

        config = self.config
        return load_encoder(
            config.encoder, self.settings, pooling=config.pooling, max_tokens=config.max_tokens, batch_tokens=config.batch_tokens
        )

    @cached_property
    def cross_encoder(self) -> CrossEncoder:
        from medloop.models.encode import load_cross_encoder

        assert self.config.cross_encoder is not None, "nobody asks for a cross-encoder that is not configured"
        config = self.config
        return load_cross_encoder(
            self.config.cross_encoder, self.settings, max_tokens=config.max_tokens, batch_tokens=config.batch_tokens
        )

    def find(self, name: str) -> str | None:
        """The first digits of a model's fingerprint; None where the heuristic must stand in."""
        if self.config.scorer == "heuristic":
            return None
        try:
            require_packages()
            from medloop.models.encode import find

            return find(name, self.settings)[7:15]
        except (MissingExtraError, ModelError) as error:
            if self.config.strict:
                raise
            log.warning("relevance is judged by shared words: %s", error)
            return None


@dataclass(frozen=True)
class Relevance:
    """`rel` or `faith`. `measure` is what the model does with the samples it can read, `by_words` what stands in for it."""

    name: str
    model_name: str
    how: str
    models: Models
    measure: Callable[[Sequence[Sample]], list[float]]
    by_words: Callable[[Sample], tuple[float, str] | None]
    reads_chinese: Callable[[], bool]
    needs_context: bool
    penalty: bool = field(default=False, init=False)

    @cached_property
    def version(self) -> str:
        """Names the model by the hash of its weights, or says that there is none."""
        found = self.models.find(self.model_name)
        return heuristic_version() if found is None else f"{VERSION}({self.how}:{self.model_name}@{found})"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        settled = {at: found for at, sample in enumerate(samples) if (found := self._without_model(sample)) is not None}
        left = [sample for at, sample in enumerate(samples) if at not in settled]
        values = iter(self.measure(left) if left else ())
        return [settled.get(at) or self._measured(sample, next(values)) for at, sample in enumerate(samples)]

    def _without_model(self, sample: Sample) -> Score | Missing | None:
        """What can be said without the model; None when it is the model's turn."""
        if sample.answer is None:
            return self._missing(sample.why_missing)
        if self.needs_context and not (sample.context or "").strip():
            return self._score(0.0, "There is no context to keep to.", applies=False)
        if not split_answer(sample.answer).says_something:
            return self._score(0.0, "The answer says nothing.")
        if self.version == heuristic_version():
            return self._by_words(sample, "no encoder is used")
        other = (sample.context if self.needs_context else sample.question) or ""
        if "other" in (script(seen(sample)), script(other)) and not self._understands_chinese:
            return self._by_words(sample, f"{self.model_name} does not read this script")
        return None

    @property
    def _understands_chinese(self) -> bool:
        said = self.models.config.reads_chinese
        return self.reads_chinese() if said is None else said

    def _by_words(self, sample: Sample, why: str) -> Score | Missing:
        if self.models.config.strict and self.models.config.scorer == "model":
            return self._missing(f"{why}, and strict allows no heuristic")
        found = self.by_words(sample)
        if found is None:
            return self._missing(f"{why}, and there are no words to compare")
        value, reason = found
        return self._score(value, f"Heuristic ({why}): {reason}", word_overlap.AUTHOR, heuristic_version())

    def _measured(self, sample: Sample, value: float) -> Score:
        kept = 1.0 if self.needs_context else kept_share(sample)
        worth = min(1.0, max(0.0, value)) * kept
        back = "" if kept == 1.0 else f", times {kept:.2f} for giving the question back"
        return self._score(worth, f"{SAYS[self.how]} {value:.3f}{back}.")

    def _score(self, value: float, reason: str, author: str = AUTHOR, version: str = "", *, applies: bool = True) -> Score:
        return Score(
            name=self.name, value=round(value, 6), reason=reason, author=author, version=version or self.version, applies=applies
        )

    def _missing(self, why: str) -> Missing:
        return Missing(name=self.name, reason=why, author=AUTHOR, version=self.version)


@dataclass(frozen=True)
class Conciseness:
    """`conc`: 1 - len(answer) / len(context), in characters; 0 for an answer that says nothing."""

    name: str = "conc"
    version: str = VERSION
    penalty: bool = field(default=False, init=False)

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [self._one(sample) for sample in samples]

    def _one(self, sample: Sample) -> Score | Missing:
        if sample.answer is None:
            return Missing(name=self.name, reason=sample.why_missing, author=AUTHOR, version=self.version)
        size, room = len(seen(sample)), len((sample.context or "").strip())
        if not room:
            return self._score(0.0, "There is no context to be shorter than.", applies=False)
        if not split_answer(sample.answer).says_something:
            return self._score(0.0, "The answer says nothing.")
        return self._score(max(0.0, 1 - size / room), f"{size} characters for a context of {room}.")

    def _score(self, value: float, reason: str, *, applies: bool = True) -> Score:
        return Score(name=self.name, value=round(value, 6), reason=reason, author=AUTHOR, version=self.version, applies=applies)


def load_relevance(config: RelevanceConfig, settings: Settings) -> dict[str, Component]:
    """`rel`, `faith` and `conc`; nothing is loaded yet, and both models are shared."""
    models = Models(config, settings)
    crossed = config.cross_encoder is not None
    rel = Relevance(
        "rel", config.cross_encoder or config.encoder, "cross-encoder" if crossed else "cosine", models,
        measure=lambda samples: _by_cross_encoder(models, samples) if crossed else _by_cosine(models, samples),
        by_words=relevant_by_words,
        reads_chinese=lambda: (models.cross_encoder if crossed else models.encoder).reads_chinese,
        needs_context=False,
    )  # fmt: skip
    faith = Relevance(
        "faith", config.encoder, config.faith, models,
        measure=lambda samples: _best_sentences(models, samples) if config.faith == "embedding" else _bertscore(models, samples),
        by_words=faithful_by_words,
        reads_chinese=lambda: models.encoder.reads_chinese,
        needs_context=True,
    )  # fmt: skip
    return {"rel": rel, "faith": faith, "conc": Conciseness()}


def heuristic_version() -> str:
    return f"{VERSION}(heuristic-{word_overlap.VERSION})"


def seen(sample: Sample) -> str:
    """What the patient sees of an answer."""
    return split_answer(sample.answer or "").visible.strip()


def kept_share(sample: Sample) -> float:
    """1 for an answer in its own words, 0 for one that is the question."""
    copied = copied_share(seen(sample), f"{sample.question} {sample.question}")  # twice: it may be given back again and again
    return min(1.0, max(0.0, (COPIED_WHOLE - copied) / (COPIED_WHOLE - COPIED_FROM)))


def relevant_by_words(sample: Sample) -> tuple[float, str] | None:
    """`rel` by shared words; None for a question without any ("what now?"). An answer in another script is 0."""
    answer = seen(sample)
    if not word_overlap.pieces(sample.question):
        return None
    if script(answer) != script(sample.question):
        return 0.0, "the answer is in another script than the question."
    shared = word_overlap.shared_with(sample.question, answer)
    return shared * kept_share(sample), f"the answer shares {shared:.0%} of the question's words."


def faithful_by_words(sample: Sample) -> tuple[float, str] | None:
    """`faith` by shared words; None for a context in another script than question and answer (say, an English paper)."""
    answer, context = seen(sample), sample.context or ""
    if script(answer) != script(context):
        foreign = script(answer) == script(sample.question)
        return None if foreign else (0.0, "the answer is in another script than question and context.")
    shared = word_overlap.supported(answer, context)
    return shared, f"the context has {shared:.0%} of the answer's words."


def _by_cross_encoder(models: Models, samples: Sequence[Sample]) -> list[float]:
    return models.cross_encoder.score([(sample.question, seen(sample)) for sample in samples])


def _by_cosine(models: Models, samples: Sequence[Sample]) -> list[float]:
    vectors = models.encoder.encode([*(sample.question for sample in samples), *(seen(sample) for sample in samples)])
    questions, answers = np.split(vectors, 2)
    return [float(value) for value in (questions * answers).sum(axis=1)]


def _best_sentences(models: Models, samples: Sequence[Sample]) -> list[float]:
    """Each sentence of an answer against all sentences of its context; all samples' sentences are encoded at once."""
    said, given = _split(samples)
    texts = list(dict.fromkeys(text for row in (*said, *given) for text in row))
    vectors = dict(zip(texts, models.encoder.encode(texts), strict=True))
    return [
        float(np.mean((_stack(vectors, answer) @ _stack(vectors, context).T).max(axis=1)))
        for answer, context in zip(said, given, strict=True)
    ]


def _bertscore(models: Models, samples: Sequence[Sample]) -> list[float]:
    """Sentences are encoded one by one, so that a long context is never cut."""
    said, given = _split(samples)
    texts = list(dict.fromkeys(text for row in (*said, *given) for text in row))
    vectors = dict(zip(texts, models.encoder.tokens(texts), strict=True))
    pairs = ([np.concatenate([vectors[text] for text in row]) for row in pair] for pair in zip(said, given, strict=True))
    return [greedy_f1(answer, context) for answer, context in pairs]


def greedy_f1(answer: Array, context: Array) -> float:
    """Mean best match of each answer token (precision) and of each context token (recall), (T, D) unit rows each; their F1."""
    if not len(answer) or not len(context):
        return 0.0
    cosines = answer @ context.T
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    return 2 * precision * recall / (precision + recall) if precision > 0 and recall > 0 else 0.0


def _split(samples: Sequence[Sample]) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences of answers and contexts; a text that is all marks counts as one."""
    said = [sentences(seen(sample)) or [seen(sample)] for sample in samples]
    return said, [sentences(sample.context or "") or [sample.context or ""] for sample in samples]


def _stack(vectors: dict[str, Array], texts: Sequence[str]) -> Array:
    return np.stack([vectors[text] for text in texts])
