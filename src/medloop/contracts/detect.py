"""What detectors find in a question: how urgent it is, with the evidence. The reward decides what that is worth."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Text, Unit
from medloop.contracts.dataset import Language

UrgencyLevel = Literal["emergent", "urgent", "routine", "unknown"]


class Evidence(Contract):
    """Characters `start` to `end` spoke, `id` is what they said: a red flag, a measure, or the level that a model read there."""

    source: Literal["lexicon", "numbers", "model", "encoder", "teacher"]
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
