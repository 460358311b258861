"""The three rewards of DW-GRPO: relevance to the question, faithfulness to the context, conciseness.

    rel     sigmoid of a cross-encoder's logit for (question, answer); without a cross-encoder the cosine of their embeddings
    faith   embedding: each sentence's best cosine over the sentences of the context, averaged
            bertscore: F1 of greedy token matching between answer and context (arXiv 1904.09675, no idf, no rescaling)
    conc    1 - len(answer) / len(context), in characters, at least 0

All three read only what the patient sees, without the chain of thought and hidden text. An answer of fewer than three words
scores 0 in all three; otherwise silence would be the most concise answer. `rel` of an answer that repeats the question falls to
0. Cosines below 0 are 0. Without a context `faith` and `conc` do not apply.

An encoder that does not read Chinese cannot judge a Chinese text. Such samples, and all samples when there is no encoder, are
scored by word overlap (`word_overlap.py`), and author, version and reason say so. With `strict` they are missing instead. A model
that was asked for by name and cannot be found is an error. An answer in a script that neither question nor context uses scores 0;
if it were missing, a policy could gain by answering in another language.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from medloop.contracts import Component, Contract, Missing, Sample, Score
from medloop.contracts.base import Text
from medloop.errors import MissingExtraError, ModelError
from medloop.models import require_packages
from medloop.models.installed import installed
from medloop.models.safety import fingerprint
from medloop.reward import word_overlap
from medloop.reward.answer_text import copied_share, split_answer
from medloop.reward.word_overlap import script, sentences
from medloop.settings import Settings

if TYPE_CHECKING:
    from medloop.models.encode import Array, CrossEncoder, Encoder

VERSION = "1"
AUTHOR = "reward:relevance"
AUTO = "auto"
BEST_ENCODER, BEST_CROSS_ENCODER, SMALL_ENCODER = "BAAI/bge-m3", "BAAI/bge-reranker-v2-m3", "embedded:minilm"
COPY_START, COPY_FULL = 0.5, 0.8  # share of the answer's 4-grams copied from the question: `rel` falls from here, 0 here
REASONS = {
    "cross-encoder": "Cross-encoder score:",
    "cosine": "Cosine of question and answer (no cross-encoder configured):",
    "embedding": "Mean of each sentence's best match in the context:",
    "bertscore": "F1 of matched tokens between answer and context:",
}

log = logging.getLogger(__name__)


class RelevanceConfig(Contract):
    """Which models judge relevance, and how."""

    scorer: Literal["model", "heuristic"] = "model"
    """`heuristic` compares words and loads nothing."""
    encoder: Text = AUTO
    """Sentence encoder: a folder, a hub id or embedded:minilm (English). auto: the setting reward.encoder, else BAAI/bge-m3 if it
    is installed, else embedded:minilm."""
    cross_encoder: Text | None = AUTO
    """Cross-encoder for `rel`; null: `rel` is a cosine of embeddings. auto: the setting reward.cross_encoder, else
    BAAI/bge-reranker-v2-m3 if it is installed, else none."""
    faith: Literal["embedding", "bertscore"] = "embedding"
    pooling: Literal["auto", "mean", "cls"] = "auto"
    """How the encoder pools token vectors; auto: as its folder says."""
    reads_chinese: bool | None = None
    """Whether encoder and cross-encoder understand Chinese; null: decided from their tokenizers."""
    strict: bool = False
    """No heuristic instead of a model: samples that the model cannot read are missing."""
    max_tokens: int = Field(0, ge=0)
    """Most tokens of a text; 0: as many as the model can read (512 for a pair of question and answer)."""
    batch_tokens: int = Field(1024, gt=0)
    """Tokens in one batch; on a GPU more is faster."""


class RelevanceModels:
    """The encoders of a configuration: chosen at once, located when a version is needed, loaded when first used.

    `notes` say which better model is not used, and what that costs.
    """

    def __init__(self, config: RelevanceConfig, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.notes: tuple[str, ...] = ()
        self.asked_for: set[str] = set()  # by name: these have no substitute
        if config.scorer == "heuristic":
            self.encoder_name, self.cross_encoder_name = SMALL_ENCODER, None
            self.notes = ("rel and faith compare shared words only (scorer: heuristic): they know no synonyms.",)
            return
        self.encoder_name = self._choose(config.encoder, settings.reward.encoder, BEST_ENCODER) or SMALL_ENCODER
        cross_encoder = config.cross_encoder and self._choose(
            config.cross_encoder, settings.reward.cross_encoder, BEST_CROSS_ENCODER
        )
        self.cross_encoder_name = cross_encoder or None
        self.notes = tuple(self._costs())

    def _choose(self, configured: str, in_settings: str, best: str) -> str | None:
        """The configured model, else that of the settings, else the best one if it is installed."""
        name = configured if configured != AUTO else in_settings
        if name:
            self.asked_for.add(name)
            return name
        place = installed(best, self.settings)
        return None if place is None else best

    def _costs(self) -> Iterator[str]:
        if self.encoder_name == SMALL_ENCODER and installed(SMALL_ENCODER, self.settings) is None:
            yield f"Neither {BEST_ENCODER} nor {SMALL_ENCODER} is installed: rel and faith compare shared words only."
        elif self.encoder_name == SMALL_ENCODER:
            yield (
                f"{SMALL_ENCODER} encodes sentences. It reads English only; Chinese texts are compared by shared words. "
                f"{BEST_ENCODER} reads both, where it is installed."
            )
        if self.cross_encoder_name is None:
            yield f"rel is a cosine, which is less exact than a cross-encoder ({BEST_CROSS_ENCODER}, where it is installed)."

    def _place(self, name: str) -> tuple[str, Settings]:
        """The name and the settings to load a model with; one in the hub's cache is read from there without asking the hub."""
        place = installed(name, self.settings)
        if place is None:
            return name, self.settings
        return place.name, self.settings.model_copy(update={"offline": True}) if place.in_cache else self.settings

    @cached_property
    def encoder(self) -> Encoder:
        from medloop.models.encode import load_encoder

        config, (name, settings) = self.config, self._place(self.encoder_name)
        return load_encoder(
            name, settings, pooling=config.pooling, max_tokens=config.max_tokens, batch_tokens=config.batch_tokens
        )

    @cached_property
    def cross_encoder(self) -> CrossEncoder:
        from medloop.models.encode import load_cross_encoder

        assert self.cross_encoder_name is not None, "only a chosen cross-encoder is loaded"
        config, (name, settings) = self.config, self._place(self.cross_encoder_name)
        return load_cross_encoder(name, settings, max_tokens=config.max_tokens, batch_tokens=config.batch_tokens)

    def find(self, name: str) -> str | None:
        """The first digits of a model's fingerprint; None where the heuristic is used instead."""
        if self.config.scorer == "heuristic":
            return None
        if (place := installed(name, self.settings)) is not None:  # without torch, which a server does not load
            return fingerprint(place.folder)[7:15]
        try:
            require_packages()
            from medloop.models.encode import find

            return find(name, self.settings)[7:15]
        except (MissingExtraError, ModelError) as error:
            if self.config.strict or name in self.asked_for:
                raise
            log.warning("relevance is scored by word overlap: %s", error)
            return None


@dataclass(frozen=True)
class Relevance:
    """`rel` or `faith`. `measure` scores with the model, `by_words` scores the samples that the model cannot read."""

    name: str
    model_name: str
    method: str
    models: RelevanceModels
    measure: Callable[[Sequence[Sample]], list[float]]
    by_words: Callable[[Sample], tuple[float, str] | None]
    reads_chinese: Callable[[], bool]
    needs_context: bool
    penalty: bool = field(default=False, init=False)

    @cached_property
    def version(self) -> str:
        """Includes the hash of the model's weights, or says that the heuristic is used."""
        digest = self.models.find(self.model_name)
        return heuristic_version() if digest is None else f"{VERSION}({self.method}:{self.model_name}@{digest})"

    @property
    def notes(self) -> tuple[str, ...]:
        return self.models.notes

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        without_model = [self._without_model(sample) for sample in samples]
        left = [sample for sample, score in zip(samples, without_model, strict=True) if score is None]
        values = iter(self.measure(left) if left else ())
        return [score or self._measured(sample, next(values)) for sample, score in zip(samples, without_model, strict=True)]

    def _without_model(self, sample: Sample) -> Score | Missing | None:
        """The score of a sample that needs no model; None when the model must score it."""
        if sample.answer is None:
            return self._missing(sample.why_missing)
        if self.needs_context and not (sample.context or "").strip():
            return self._score(0.0, "There is no context.", applies=False)
        if not split_answer(sample.answer).has_content:
            return self._score(0.0, "The answer has no content.")
        if self.version == heuristic_version():
            return self._by_words(sample, "no encoder")
        other = (sample.context if self.needs_context else sample.question) or ""
        if "other" in (script(visible_text(sample)), script(other)) and not self._understands_chinese:
            return self._by_words(sample, f"{self.model_name} does not read this script")
        return None

    @property
    def _understands_chinese(self) -> bool:
        setting = self.models.config.reads_chinese
        return self.reads_chinese() if setting is None else setting

    def _by_words(self, sample: Sample, why: str) -> Score | Missing:
        if self.models.config.strict and self.models.config.scorer == "model":
            return self._missing(f"{why}, and `strict` allows no heuristic")
        result = self.by_words(sample)
        if result is None:
            return self._missing(f"{why}, and there are no words to compare")
        value, reason = result
        return self._score(value, f"Heuristic ({why}): {reason}", word_overlap.AUTHOR, heuristic_version())

    def _measured(self, sample: Sample, value: float) -> Score:
        factor = 1.0 if self.needs_context else originality(sample)
        repeats = "" if factor == 1.0 else f", times {factor:.2f} for repeating the question"
        return self._score(min(1.0, max(0.0, value)) * factor, f"{REASONS[self.method]} {value:.3f}{repeats}.")

    def _score(self, value: float, reason: str, author: str = AUTHOR, version: str = "", *, applies: bool = True) -> Score:
        return Score(
            name=self.name, value=round(value, 6), reason=reason, author=author, version=version or self.version, applies=applies
        )

    def _missing(self, why: str) -> Missing:
        return Missing(name=self.name, reason=why, author=AUTHOR, version=self.version)


@dataclass(frozen=True)
class Conciseness:
    """`conc`: 1 - len(answer) / len(context), in characters; 0 for an answer without content."""

    name: str = "conc"
    version: str = VERSION
    penalty: bool = field(default=False, init=False)

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [self._score_sample(sample) for sample in samples]

    def _score_sample(self, sample: Sample) -> Score | Missing:
        if sample.answer is None:
            return Missing(name=self.name, reason=sample.why_missing, author=AUTHOR, version=self.version)
        size, context_size = len(visible_text(sample)), len((sample.context or "").strip())
        if not context_size:
            return self._score(0.0, "There is no context.", applies=False)
        if not split_answer(sample.answer).has_content:
            return self._score(0.0, "The answer has no content.")
        return self._score(max(0.0, 1 - size / context_size), f"{size} characters for a context of {context_size}.")

    def _score(self, value: float, reason: str, *, applies: bool = True) -> Score:
        return Score(name=self.name, value=round(value, 6), reason=reason, author=AUTHOR, version=self.version, applies=applies)


def load_relevance(config: RelevanceConfig, settings: Settings) -> dict[str, Component]:
    """`rel`, `faith` and `conc`; models are loaded later and shared."""
    models = RelevanceModels(config, settings)
    has_cross_encoder = models.cross_encoder_name is not None
    rel = Relevance(
        "rel", models.cross_encoder_name or models.encoder_name, "cross-encoder" if has_cross_encoder else "cosine", models,
        measure=lambda samples: _by_cross_encoder(models, samples) if has_cross_encoder else _by_cosine(models, samples),
        by_words=relevance_by_words,
        reads_chinese=lambda: (models.cross_encoder if has_cross_encoder else models.encoder).reads_chinese,
        needs_context=False,
    )  # fmt: skip
    faith = Relevance(
        "faith", models.encoder_name, config.faith, models,
        measure=lambda samples: _best_sentences(models, samples) if config.faith == "embedding" else _bertscore(models, samples),
        by_words=faithfulness_by_words,
        reads_chinese=lambda: models.encoder.reads_chinese,
        needs_context=True,
    )  # fmt: skip
    return {"rel": rel, "faith": faith, "conc": Conciseness()}


def heuristic_version() -> str:
    return f"{VERSION}(heuristic-{word_overlap.VERSION})"


def visible_text(sample: Sample) -> str:
    """The part of an answer that the patient sees."""
    return split_answer(sample.answer or "").visible.strip()


def originality(sample: Sample) -> float:
    """1 for an answer in its own words, 0 for one that repeats the question."""
    twice = f"{sample.question} {sample.question}"  # the answer may repeat it several times
    copied = copied_share(visible_text(sample), twice)
    return min(1.0, max(0.0, (COPY_FULL - copied) / (COPY_FULL - COPY_START)))


def relevance_by_words(sample: Sample) -> tuple[float, str] | None:
    """`rel` by word overlap; None for a question without content words ("what now?"). An answer in another script scores 0."""
    answer = visible_text(sample)
    if not word_overlap.word_pieces(sample.question):
        return None
    if script(answer) != script(sample.question):
        return 0.0, "the answer is in another script than the question."
    overlap = word_overlap.overlap_with(sample.question, answer)
    return overlap * originality(sample), f"the answer has {overlap:.0%} of the question's words."


def faithfulness_by_words(sample: Sample) -> tuple[float, str] | None:
    """`faith` by word overlap; None for a context in another script than question and answer (say, an English paper)."""
    answer, context = visible_text(sample), sample.context or ""
    if script(answer) != script(context):
        foreign_context = script(answer) == script(sample.question)
        return None if foreign_context else (0.0, "the answer is in another script than question and context.")
    overlap = word_overlap.sentence_overlap(answer, context)
    return overlap, f"the context has {overlap:.0%} of the answer's words."


def _by_cross_encoder(models: RelevanceModels, samples: Sequence[Sample]) -> list[float]:
    return models.cross_encoder.score([(sample.question, visible_text(sample)) for sample in samples])


def _by_cosine(models: RelevanceModels, samples: Sequence[Sample]) -> list[float]:
    vectors = models.encoder.encode([*(sample.question for sample in samples), *(visible_text(sample) for sample in samples)])
    questions, answers = np.split(vectors, 2)
    return [float(value) for value in (questions * answers).sum(axis=1)]


def _best_sentences(models: RelevanceModels, samples: Sequence[Sample]) -> list[float]:
    """Each sentence of an answer against all sentences of its context; all samples' sentences are encoded at once."""
    answers, contexts = _sentences(samples)
    texts = list(dict.fromkeys(text for row in (*answers, *contexts) for text in row))
    vectors = dict(zip(texts, models.encoder.encode(texts), strict=True))
    return [
        float(np.mean((_stack(vectors, answer) @ _stack(vectors, context).T).max(axis=1)))
        for answer, context in zip(answers, contexts, strict=True)
    ]


def _bertscore(models: RelevanceModels, samples: Sequence[Sample]) -> list[float]:
    """Sentences are encoded one by one, so that a long context is never truncated."""
    answers, contexts = _sentences(samples)
    texts = list(dict.fromkeys(text for row in (*answers, *contexts) for text in row))
    vectors = dict(zip(texts, models.encoder.tokens(texts), strict=True))
    pairs = ([np.concatenate([vectors[text] for text in row]) for row in pair] for pair in zip(answers, contexts, strict=True))
    return [greedy_f1(answer, context) for answer, context in pairs]


def greedy_f1(answer: Array, context: Array) -> float:
    """Mean best match of each answer token (precision) and of each context token (recall), (T, D) unit rows each; their F1."""
    if not len(answer) or not len(context):
        return 0.0
    cosines = answer @ context.T
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    return 2 * precision * recall / (precision + recall) if precision > 0 and recall > 0 else 0.0


def _sentences(samples: Sequence[Sample]) -> tuple[list[list[str]], list[list[str]]]:
    """The sentences of answers and of contexts; a text of punctuation alone counts as one."""
    answers = [sentences(visible_text(sample)) or [visible_text(sample)] for sample in samples]
    return answers, [sentences(sample.context or "") or [sample.context or ""] for sample in samples]


def _stack(vectors: dict[str, Array], texts: Sequence[str]) -> Array:
    return np.stack([vectors[text] for text in texts])
