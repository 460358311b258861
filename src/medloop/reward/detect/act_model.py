"""The classifier behind `acts`: unusual ways to urge care now, to stop or to change a medicine, which no word list has.

A linear model over hashed n-grams (`ngrams.py`) with weights in assets/acts/, trained by tools/train_acts.py on sentences that we
wrote. It knows only these directives; everything else is "other". Reassurance is left to the word lists: on real text the model
took small talk for it.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np

from medloop.contracts.detect import ActKind
from medloop.patterns import lazy_pattern
from medloop.reward.detect.ngrams import Floats, Kind, NgramModel, buckets, column_sums, load_ngrams

ASSETS: Final = Path(str(files("medloop") / "assets" / "acts"))
BITS: Final = 16  # 2**16 buckets: the corpus is small, and the file has to be
CLASSES: Final = ("other", "N", "S", "C")
KINDS: Final[dict[str, ActKind]] = {"N": "urges_care_now", "S": "stops_medicine", "C": "changes_medicine"}
THRESHOLD: Final = 0.4  # probability
LONGEST: Final[dict[Kind, int]] = {"en": 240, "zh": 60}  # characters of a sentence; longer ones say too many things at once
# What every directive to stop, to change or to get help now has some of; the model is not asked about other sentences.
_MAY_DIRECT: Final[dict[Kind, re.Pattern[str]]] = {
    "en": lazy_pattern(
        r"(?i)\b(?:stop|off|out|away|leave|skip|bin|drop|quit|without|end|ditch|forget|miss|cut|halve|half|double|twice"
        r"|two|three|extra"
        r"|more|another|old|spare|your|own|no|not|never|don't|enough|need|back|break|rest|instead|every|all|whole"
        r"|hospital|ambulance"
        r"|emergency|er|a&e|casualty|now|tonight|drive|call|ring|go|get|take|use|swap|share|borrow)\b|\d"
    ),
    "zh": lazy_pattern("[停断扔丢撤戒别不省免歇搁撂加倍减半双多翻砍隔借剩送去叫打急赶快拨上奔换掰嚼]"),
}
_HAN: Final = lazy_pattern("[\u4e00-\u9fff]")


def kind_of(text: str) -> Kind:
    return "zh" if _HAN.search(text) else "en"


@lru_cache(maxsize=2)
def _model(kind: Kind) -> NgramModel:
    return load_ngrams(ASSETS / f"{kind}.npz")


@lru_cache(maxsize=64)  # an answer about medicine is read twice
def classify(sentence: str) -> tuple[str, float] | None:
    """The likeliest directive of a sentence with its probability, or None below the threshold."""
    kind = kind_of(sentence)
    if len(sentence) > LONGEST[kind] or _MAY_DIRECT[kind].search(sentence) is None:
        return None
    model = _model(kind)
    shares = probabilities(model, sentence)
    best = int(shares[1:].argmax()) + 1
    return (model.classes[best], float(shares[best])) if shares[best] >= THRESHOLD else None


def probabilities(model: NgramModel, sentence: str) -> Floats:
    """One number per class."""
    values = model.weights.take(buckets(sentence, model.kind) & (len(model.weights) - 1), 0).astype(np.float32)
    logits = column_sums(values) * model.scale / math.sqrt(max(len(values), 1)) + model.bias
    shares = np.exp(logits - logits.max())
    return np.asarray(shares / shares.sum(), np.float32)
