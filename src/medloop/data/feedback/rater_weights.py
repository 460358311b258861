"""What the judgement of each rater weighs when feedback becomes data; feedback/insight/skill.py estimates it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RaterWeights:
    """What the judgement of each rater weighs; somebody unknown, and nobody in particular, weighs `unknown`.

    Users in `not_raters` (engineers, admins, programs) may speak against an answer, but nothing is learnt because they like it.
    """

    by_rater: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 1.0
    not_raters: frozenset[str] = frozenset()

    def against(self, rater: str | None) -> float:
        """The weight of a dislike."""
        return self.by_rater.get(rater or "", self.unknown)

    def behind(self, rater: str | None) -> float:
        """The weight of a like, a choice or a correction: a clinician or an annotator stands behind what a model imitates."""
        return 0.0 if rater in self.not_raters else self.against(rater)


EQUAL = RaterWeights()
