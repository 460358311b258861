"""A reward model in memory: a fine-tuned classifier, an ensemble of heads, or both; questions and answers in, judgements out.

model = open_preference_model(folder, settings)
model.judge([((Message(role="user", content="Is it flu?"),), "It may be the flu.")])    -> [JudgedAnswer(lowered=..., spread=...)]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from medloop.contracts import Message
from medloop.errors import ModelError
from medloop.models.answer_features import answer_features, question_text
from medloop.models.classify import Classifier, Encoded, Scoring, encode, open_classifier, read_reward_model
from medloop.models.encode import Encoder, load_encoder
from medloop.models.heads import HEADS, VECTOR_SCALE, Heads, HeadWeights, Judged, combine, load_heads
from medloop.models.safety import fingerprint
from medloop.settings import Settings

Asked = tuple[Sequence[Message], str]  # the conversation and its answer
BATCH = 32
ENCODER_TOKENS = 256  # tokens of question and of answer that a frozen encoder reads


class JudgedAnswer(NamedTuple):
    """Of one answer: the mean, the spread of the heads, the distance, the lowered mean, question tokens that were dropped."""

    mean: float
    spread: float
    distance: float
    lowered: float
    dropped_tokens: int = 0


@dataclass(frozen=True)
class PreferenceModel:
    """`classifier` is the fine-tuned base, `encoder` a frozen one whose vectors the heads read; either, or none, is there."""

    name: str
    sha256: str
    weights: HeadWeights
    max_length: int
    classifier: Classifier | None = None
    heads: Heads | None = None
    encoder: Encoder | None = None
    batch_size: int = BATCH
    warnings: tuple[str, ...] = ()  # what its card says to know before it is used

    def judge(self, rows: Sequence[Asked]) -> list[JudgedAnswer | str]:
        """As many results as rows, in order; a sentence for an answer that does not fit."""
        encoded = [self._encode(*row) for row in rows]
        places = [place for place, row in enumerate(encoded) if isinstance(row, Encoded)]
        judged = self.judge_all([rows[place] for place in places])
        results: list[JudgedAnswer | str] = [row if isinstance(row, str) else "" for row in encoded]
        columns = zip(places, judged.mean, judged.spread, judged.distance, judged.lowered, strict=True)
        for place, mean, spread, distance, lowered in columns:
            row = encoded[place]
            dropped = row.dropped_tokens if isinstance(row, Encoded) else 0
            results[place] = JudgedAnswer(float(mean), float(spread), float(distance), float(lowered), dropped)
        return results

    def judge_all(self, rows: Sequence[Asked]) -> Judged:
        """Rows that are known to fit."""
        base = members = distances = None
        if self.classifier is not None:
            ids = [encoded.ids for row in rows if isinstance(encoded := self._encode(*row), Encoded)]
            assert len(ids) == len(rows), "every row fits"
            base = np.array(self.classifier.logits(ids, batch_size=self.batch_size), dtype=np.float64)
        if self.heads is not None:
            texts = [(question_text(messages), answer) for messages, answer in rows]
            features = [answer_features(*text) for text in texts]
            vectors = None if self.encoder is None else pair_vectors(self.encoder, texts)
            members, distances = self.heads.members(features, vectors), self.heads.distances(features)
        return combine(self.weights, base=base, members=members, distances=distances)

    def _encode(self, messages: Sequence[Message], answer: str) -> Encoded | str:
        if self.classifier is None:
            return Encoded([])
        encoded = encode(self.classifier.tokenizer, messages, answer, max_length=self.max_length)
        return encoded or f"the answer leaves no room for the question within the {self.max_length} tokens of the model"


def pair_vectors(encoder: Encoder, texts: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """(N, 2 D): the answer's vector, and its product with the question's, coordinate by coordinate."""
    vectors = encoder.encode([*(question for question, _ in texts), *(answer for _, answer in texts)])
    questions, answers = np.split(vectors, 2)
    return np.asarray(np.concatenate([VECTOR_SCALE * answers, VECTOR_SCALE**2 * questions * answers], 1), np.float32)


def open_preference_model(
    folder: Path, settings: Settings, *, device: torch.device | None = None, batch_size: int = BATCH
) -> tuple[PreferenceModel, Scoring]:
    """A trained reward model, checked to the last byte, and how its judgement becomes a score."""
    card, scoring = read_reward_model(folder)
    classifier = open_classifier(folder, settings, device=device)[0] if scoring.encoder == "fine-tuned" else None
    encoder = frozen_encoder(card.base, settings) if scoring.encoder == "frozen" else None
    if encoder is not None and encoder.sha256 != scoring.base_sha256:
        raise ModelError(f"The reward model {folder} was trained on other weights of {card.base}", "Train it again")
    heads = load_heads(folder / HEADS) if (folder / HEADS).is_file() else None
    model = PreferenceModel(
        card.name,
        fingerprint(folder),
        scoring.weights,
        scoring.max_length,
        classifier,
        heads,
        encoder,
        batch_size,
        card.warnings,
    )
    return model, scoring


def frozen_encoder(base: str, settings: Settings) -> Encoder:
    return load_encoder(base, settings, max_tokens=ENCODER_TOKENS)
