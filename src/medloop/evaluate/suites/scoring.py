"""Scores that name the suite which gave them."""

from dataclasses import dataclass

from medloop.contracts import Missing, Score


@dataclass(frozen=True)
class SuiteScorer:
    suite: str
    version: str

    def score(self, metric: str, value: float, reason: str) -> Score:
        return Score(name=metric, value=value, reason=reason, author=f"suite:{self.suite}", version=self.version)

    def missing(self, metric: str, reason: str) -> Missing:
        return Missing(name=metric, reason=reason, author=f"suite:{self.suite}", version=self.version)
