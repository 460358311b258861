"""The classifier behind `acts`: unusual ways to urge care now, to stop or to change a medicine, which no word list has.

A linear model over hashed n-grams (`ngrams.py`) with weights in assets/acts/, trained by tools/train_acts.py on sentences that we
wrote. It knows only these directives; everything else is "other". Reassurance is left to the word lists: on real text the model
took small talk for it.
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
CLASSES: Final = ("other", "N", "S", "C")
KINDS: Final[dict[str, ActKind]] = {"N": "urges_care_now", "S": "stops_medicine", "C": "changes_medicine"}
THRESHOLD: Final = 0.75  # probability
LONGEST: Final[dict[Kind, int]] = {"en": 240, "zh": 60}  # characters of a sentence; longer ones say too many things at once
_HAN: Final = re.compile("[\u4e00-\u9fff]")


def kind_of(text: str) -> Kind:
    return "zh" if _HAN.search(text) else "en"


@lru_cache(maxsize=2)
def _model(kind: Kind) -> NgramModel:
    return load_ngrams(ASSETS / f"{kind}.npz")


def classify(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, float] | None]:
    """The likeliest directive of each span with its probability, or None below its threshold."""
    if not spans:
        return []
    kind = kind_of(text)
    shares = probabilities(_model(kind), text, spans)
    best = shares[:, 1:].argmax(1) + 1
    sure = ((CLASSES[index], float(shares[row, index])) for row, index in enumerate(best))
    short = [end - start <= LONGEST[kind] for start, end in spans]
    return [(name, share) if fits and share >= THRESHOLD else None for (name, share), fits in zip(sure, short, strict=True)]


def probabilities(model: NgramModel, text: str, spans: Sequence[tuple[int, int]]) -> Floats:
    """One row per span, one column per class."""
    pieces = [text[start:end] for start, end in spans]
    bucket, place = buckets("".join(pieces), model.kind)
    ends = np.cumsum([len(piece) for piece in pieces])
    owner = np.searchsorted(ends[:-1], place, "right")
    weights = model.weights[bucket & (len(model.weights) - 1)]
    sums = np.empty((len(pieces), len(model.classes)), np.float32)
    for column in range(len(model.classes)):
        sums[:, column] = np.bincount(owner, weights[:, column], len(pieces))
    counts = np.bincount(owner, minlength=len(pieces))
    logits = sums * model.scale / np.sqrt(np.maximum(counts, 1))[:, None] + model.bias
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)  # type: ignore[no-any-return]
