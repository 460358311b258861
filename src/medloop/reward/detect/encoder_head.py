"""The optional tier of `urgency`: a small head on the vectors of a sentence encoder.

    head = load_head(settings)      # None where the setting reward.urgency_encoder is empty
    head.logits(["..."])            -> (N, 3), in the order of urgency.CLASSES

A head belongs to the encoder it was trained on, by the hash of its weights; another one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from medloop.errors import ConfigError, ModelError
from medloop.models import require_packages
from medloop.reward.detect.ngrams import Floats
from medloop.reward.detect.urgency import ASSETS, UrgencyDetector, detector
from medloop.settings import Settings

if TYPE_CHECKING:
    from medloop.models.encode import Encoder

ENCODER = "embedded:minilm"
SCALE = 8.0  # vectors have length 1; their coordinates are brought near 1
MAX_TOKENS = 256
MEMBERS = 3


@dataclass(frozen=True)
class EncoderHead:
    """Three small networks with one hidden layer, averaged."""

    encoder: Encoder
    layers: tuple[Floats, ...]  # (members, D, H), (members, H), (members, H, 3), (members, 3)

    def logits(self, texts: Sequence[str]) -> Floats:
        return apply(self.layers, self.encoder.encode(texts))


def apply(layers: Sequence[Floats], vectors: Floats) -> Floats:
    """The averaged logits of vectors of length 1."""
    first, first_bias, second, second_bias = layers
    hidden = np.maximum(np.einsum("nd,mdh->mnh", vectors * SCALE, first) + first_bias[:, None], 0)
    return np.asarray((np.einsum("mnh,mhc->mnc", hidden, second) + second_bias[:, None]).mean(0), np.float32)


def load_detector(settings: Settings) -> UrgencyDetector:
    """The detector that the settings ask for: with the encoder where reward.urgency_encoder names one."""
    name = settings.reward.urgency_encoder
    if not name:
        return detector()
    if name != ENCODER:
        raise ConfigError(
            f"reward.urgency_encoder is '{name}', but only {ENCODER} has a head for urgency", "Name that one, or leave it empty"
        )
    require_packages()
    # Loads torch, which only this tier needs.
    from medloop.models.encode import load_encoder

    encoder = load_encoder(name, settings, max_tokens=MAX_TOKENS)
    head = EncoderHead(encoder, load_layers(ASSETS / "minilm.npz", encoder.sha256))
    return replace(detector(), head=head, version=f"{detector().version}+{name}@{encoder.sha256[7:15]}")


def load_layers(path: Path, sha256: str) -> tuple[Floats, ...]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            trained_on = str(arrays["encoder"])
            layers = tuple(arrays[f"layer{k}"].astype(np.float32) for k in range(4))
    except (OSError, KeyError, ValueError) as error:
        raise ModelError(f"{path.name} is not a head for urgency", "Install medloop again") from error
    if trained_on != sha256:
        raise ModelError(
            f"The weights of {ENCODER} are not those that the head for urgency was trained on",
            "Install the package of the locked version, or leave reward.urgency_encoder empty",
        )
    return layers
