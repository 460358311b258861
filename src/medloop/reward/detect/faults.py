"""How probable it is that an answer gives this patient risky advice or false reassurance: a learnt judge beside the word lists.

    judged = faults(question, answer, "urgent")
    judged.risky, judged.reassuring    -> probabilities
    judged.speaks                      -> whether the answer is long enough to be judged
    judged.blamed("risky")             -> start and end of the sentence that speaks most for it

Two steps. Linear models over hashed n-grams (`ngrams.py`) read the answer (is it faulty, risky, calming, falsely calming?) and
the question (would calm be wrong here?). A second linear model joins their numbers with the urgency of the question and the acts
of the answer; its weights stand by name in assets/faults/*.json. tools/train_faults.py trains both on answers that we wrote,
right and wrong ones to the same question, and on real consultations, which are almost all sound: without those the judge took
ordinary medical prose for a fault.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from medloop import lexicon
from medloop.contracts.detect import Act, ActKind, UrgencyLevel
from medloop.reward.answer_text import CACHE_SIZE, split_answer
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.acts import acts
from medloop.reward.detect.ngrams import Floats, Kind, NgramModel, buckets, column_sums, load_ngrams

VERSION: Final = "3"
ASSETS: Final = Path(str(files("medloop") / "assets" / "faults"))
Fault = Literal["risky", "reassuring"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
HEADS: Final = ("faulty", "risky", "calming", "reassuring")  # what the n-grams of the answer speak for
BITS: Final = {"answer": 17, "question": 16}  # 2**BITS buckets
SHORTEST: Final[dict[Kind, int]] = {"en": 40, "zh": 15}  # characters; what is shorter has too few n-grams for a verdict
LONGEST: Final = {"answer": 1500, "question": 500}  # characters that are read: an answer's first, a question's last
_LEVELS: Final[tuple[UrgencyLevel, ...]] = get_args(UrgencyLevel)
_KINDS: Final[tuple[ActKind, ...]] = get_args(ActKind)
_HELP: Final = ("urges_care_now", "sends_to_doctor")


@dataclass(frozen=True)
class Faults:
    """Probabilities, and the text and language that they are about."""

    visible: str
    kind: Kind
    risky: float
    reassuring: float

    @property
    def speaks(self) -> bool:
        """Whether the answer is long enough to be judged."""
        return len(self.visible.strip()) >= SHORTEST[self.kind]

    def blamed(self, fault: Fault) -> tuple[int, int]:
        """The sentence that speaks most for a fault."""
        column = HEADS.index(fault)
        spans = lexicon.sentences(self.visible) or ((0, len(self.visible)),)
        return max(spans, key=lambda span: float(_logits(answer_model(self.kind), self.visible[slice(*span)])[column]))


@lru_cache(maxsize=CACHE_SIZE)
def faults(question: str, answer: str, level: UrgencyLevel) -> Faults:
    """Of the visible answer; the chain of thought tells nobody what to do."""
    visible = split_answer(answer).visible
    kind = kind_of(visible)
    row = describe(logits_of(question, visible, kind), level, acts(answer), len(visible.strip()))
    risky, reassuring = (_probability(math.fsum(weight * row[name] for name, weight in table)) for table in _second(kind))
    return Faults(visible, kind, risky, reassuring)


def logits_of(question: str, visible: str, kind: Kind) -> dict[str, float]:
    """What the n-grams of the answer and of the question speak for."""
    heads = _logits(answer_model(kind), read_part(visible, "answer"))
    danger = _logits(_question_model(kind), read_part(question, "question"))
    return dict(zip((*HEADS, "danger"), [*heads.tolist(), *danger.tolist()], strict=True))


def read_part(text: str, part: Literal["answer", "question"]) -> str:
    """What is read of a text."""
    return text.strip()[: LONGEST[part]] if part == "answer" else text.strip()[-LONGEST[part] :]


def describe(logits: dict[str, float], level: UrgencyLevel, advice: Sequence[Act], length: int) -> dict[str, float]:
    """The inputs of the second model by name."""
    row = dict(logits)
    row["1"] = 1.0
    row["length"] = math.log(max(length, 1))
    row["calming and danger"] = max(logits["calming"], 0.0) * max(logits["danger"], 0.0)
    for name in _LEVELS:
        here = float(level == name)
        row[name], row[f"{name}, calming"], row[f"{name}, faulty"] = here, here * logits["calming"], here * logits["faulty"]
    told = {(act.kind, act.polarity) for act in advice}
    for kind in _KINDS:
        row[kind], row[f"{kind}, negated"] = float((kind, "directive") in told), float((kind, "negated") in told)
    row["help, conditional"] = float(any((kind, "conditional") in told for kind in _HELP))
    return row


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -30.0), 30.0)))


def _logits(model: NgramModel, text: str) -> Floats:
    """One number per class."""
    values = model.weights.take(buckets(text, model.kind) & (len(model.weights) - 1), 0).astype(np.float32)
    return np.asarray(column_sums(values) * model.scale / math.sqrt(max(len(values), 1)) + model.bias, np.float32)


@lru_cache(maxsize=2)
def answer_model(kind: Kind) -> NgramModel:
    return load_ngrams(ASSETS / f"answer_{kind}.npz")


@lru_cache(maxsize=2)
def _question_model(kind: Kind) -> NgramModel:
    return load_ngrams(ASSETS / f"question_{kind}.npz")


@lru_cache(maxsize=2)
def _second(kind: Kind) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Weights by name, for each fault."""
    table = json.loads((ASSETS / f"{kind}.json").read_text(encoding="utf-8"))
    return tuple(tuple(table[fault].items()) for fault in FAULTS)
