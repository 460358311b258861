"""A rule whose scores are kept on the disk, by its version and by content: the same question and answer are not scored twice.

    rules = [CachedRule(rule, folder) for rule in load_rules(names)]      # then score as usual
    save_scores(rules)

Only for rules whose version says everything about them: those of medloop, which a test holds to that.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from medloop.contracts import Contract, Missing, Rule, Score, canonical_json, sha256_id
from medloop.store.files import jsonl


class CachedScore(Contract):
    key: str
    score: Score


class CachedRule:
    """Answers like the rule itself; what it did not know is stored by `save`."""

    def __init__(self, rule: Rule, folder: Path) -> None:
        self.rule, self.name, self.version, self.penalty = rule, rule.name, rule.version, rule.penalty
        self._path = folder / f"scores_{rule.name}_{sha256_id(rule.version).removeprefix('sha256:')[:12]}.jsonl"
        self._new: dict[str, Score] = {}

    @cached_property
    def _known(self) -> dict[str, Score]:
        return {line.key: line.score for line in jsonl.read(self._path, CachedScore)} if self._path.is_file() else {}

    def score(self, question: str, answer: str) -> Score | Missing:
        key = sha256_id(canonical_json([question, answer]))
        known = self._known.get(key) or self._new.get(key)
        if known is not None:
            return known
        score = self.rule.score(question, answer)
        if isinstance(score, Score):
            self._new[key] = score
        return score

    def save(self) -> None:
        if self._new:
            jsonl.append(self._path, [CachedScore(key=key, score=score) for key, score in self._new.items()])
        self._known.update(self._new)
        self._new = {}


def save_scores(rules: Sequence[Rule]) -> None:
    for rule in rules:
        if isinstance(rule, CachedRule):
            rule.save()
