"""What detectors find, with the evidence: how urgent a question is, what an answer tells the patient to do.

The reward decides what that is worth.
"""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Text, Unit
from medloop.contracts.dataset import Language

UrgencyLevel = Literal["emergent", "urgent", "routine", "unknown"]
EvidenceSource = Literal["lexicon", "numbers", "model", "encoder", "teacher"]
ActKind = Literal[
    "urges_care_now", "sends_to_doctor", "home_care", "reassures", "gives_dose", "starts_medicine", "stops_medicine",
    "changes_medicine", "warns_against", "asks_back", "refuses",
]  # fmt: skip
# directive: this patient should do it. conditional: only if something happens, or once a doctor agrees. negated: not to be done,
# or taken back. reported: history, quotation, general fact. question: it is only asked.
ActPolarity = Literal["directive", "conditional", "negated", "reported", "question"]
CareLevel = Literal["care_now", "doctor", "home", "nowhere", "unknown"]


class Evidence(Contract):
    """Characters `start` to `end` spoke, `id` is what they said: a red flag, a measure, an entry of a list, a model's class."""

    source: EvidenceSource
    id: Text
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class Urgency(Contract):
    """How soon care is needed. emergent: now. urgent: within a day or two. routine: can wait. unknown: not decided, never "safe".

    `confidence` orders answers of one version; it is not a probability that clinicians confirmed.
    """

    level: UrgencyLevel
    confidence: Unit
    evidence: tuple[Evidence, ...] = ()
    language: Language
    version: Text


class Act(Contract):
    """What an answer tells the patient to do at characters `start` to `end`.

    `drug` is an id of the lexicon's drugs, where the act names one; `amount`, `unit` and `per_day` are those of a dose; a
    unit that ends in "/day" measures the amount of a whole day.
    """

    kind: ActKind
    polarity: ActPolarity
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    drug: Text | None = None
    amount: float | None = None
    unit: Text | None = None
    per_day: float | None = None
    evidence: tuple[Evidence, ...] = ()


class Disposition(Contract):
    """Where an answer sends the patient. `nowhere`: it can be read and says nothing of the kind. `unknown`: it cannot be read.

    `if_worse`: urgent care is advised, but only under a condition. `comfort`: it calls something harmless, says that no doctor is
    needed, or lets time pass.
    """

    level: CareLevel
    reason: Text
    if_worse: bool = False
    comfort: bool = False
    version: Text
