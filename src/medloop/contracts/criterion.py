"""Criteria from corrections: what an answer to a corrected question must do, or must not do, so that it can be checked.

A criterion is a draft until the author of its correction has read it. Then evaluation, gate and reward use it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Text, Timestamp, utc_now, uuid7

CriterionState = Literal["draft", "accepted", "dropped", "replaced"]
CriterionMaker = Literal["template", "teacher", "person"]
MOST_CRITERION = 300  # characters
MOST_CHECK = 400  # characters of a detector with its words


class CriterionText(Contract):
    """What is encrypted of a criterion. `question` is the corrected one, without identifiers.

    `detector` decides instead of the teacher: the name of an act (`urges_care_now`), `same_language`, `mentions:a|b` (one of
    these words), `says:SENTENCE` (nearly this sentence); `!` before it: the criterion is met where the detector finds nothing.
    `standard`: criterion and detector are medloop's own words, so they are no copy of what somebody wrote.
    """

    criterion: str = Field(min_length=1, max_length=MOST_CRITERION)
    question: Text
    detector: str | None = Field(None, min_length=1, max_length=MOST_CHECK)
    standard: bool = False


class CorrectionCriterion(Contract):
    """One criterion. `points` are negative for a fault; `critical`: to fail it could harm a patient."""

    criterion_id: Text = Field(default_factory=lambda: f"crit_{uuid7()}")
    correction_id: Text
    content: CriterionText
    points: float = Field(ge=-10, le=10)
    critical: bool = False
    scope: Text = "routine"
    language: Text = "en"
    state: CriterionState = "draft"
    maker: CriterionMaker = "template"
    author: Text = Field(description="Who wrote the correction; they decide about the criterion.")
    supersedes: Text | None = None
    reviewer: Text | None = None
    reviewed: Timestamp | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)

    @property
    def text(self) -> str:
        return self.content.criterion
