"""The classifier behind `acts`: which directive act a sentence is, where the word lists know none of its words.

A linear model over hashed n-grams (`ngrams.py`) with weights in assets/acts/, trained by tools/train_acts.py on sentences that we
wrote. It knows only directives; what it is unsure about is "other".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from medloop.contracts.detect import ActKind
from medloop.reward.detect.ngrams import Floats, Kind, NgramModel, buckets, load_ngrams

ASSETS: Final = Path(str(files("medloop") / "assets" / "acts"))
BITS: Final = 16  # 2**16 buckets: the corpus is small, and the file has to be
CLASSES: Final = ("other", "N", "D", "H", "A", "S", "C", "F")
KINDS: Final[dict[str, ActKind]] = {
    "N": "urges_care_now", "D": "sends_to_doctor", "H": "home_care", "A": "reassures", "S": "stops_medicine",
    "C": "changes_medicine", "F": "refuses",
}  # fmt: skip
THRESHOLDS: Final[dict[Kind, dict[str, float]]] = {
    "en": {"N": 0.6, "D": 0.6, "H": 0.6, "A": 0.6, "S": 0.7, "C": 0.7, "F": 0.6},
    "zh": {"N": 0.6, "D": 0.6, "H": 0.6, "A": 0.6, "S": 0.7, "C": 0.7, "F": 0.6},
}
_HAN: Final = re.compile("[\u4e00-\u9fff]")


def kind_of(text: str) -> Kind:
    return "zh" if _HAN.search(text) else "en"


@lru_cache(maxsize=2)
def _model(kind: Kind) -> NgramModel:
    return load_ngrams(ASSETS / f"{kind}.npz")


def classify(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, float] | None]:
    """The likeliest directive of each span with its probability, or None below its threshold."""
    kind = kind_of(text)
    shares = probabilities(_model(kind), text, spans)
    best = shares[:, 1:].argmax(1) + 1
    limits = THRESHOLDS[kind]
    sure = ((CLASSES[index], float(shares[row, index])) for row, index in enumerate(best))
    return [(name, share) if share >= limits[name] else None for name, share in sure]


def probabilities(model: NgramModel, text: str, spans: Sequence[tuple[int, int]]) -> Floats:
    """One row per span, one column per class."""
    bucket, place = buckets(text, model.kind)
    starts = np.array([start for start, _ in spans])
    owner = np.searchsorted(starts, place, "right") - 1
    weights = model.weights[bucket & (len(model.weights) - 1)].astype(np.float32)
    members = (owner == np.arange(len(spans))[:, None]).astype(np.float32)
    counts = np.maximum(members.sum(1), 1)
    logits = (members @ weights) * model.scale / np.sqrt(counts)[:, None] + model.bias
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)  # type: ignore[no-any-return]
