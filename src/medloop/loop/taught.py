"""You taught it this: what became of one correction, and what the live model answers to its question now.

    became = outcome_of(store, correction_id, sender="usr_1")  # its rule, criteria, datasets, adapters, versions
    now = answer_now(settings, store, correction)

The rule comes from the codebook with its votes and trial, the criteria from the store, everything else from the lineage of the
correction. The answer of now is that of the live model with the live codebook of the correction's site, greedy, on the scrubbed
question.
"""

from dataclasses import dataclass

from medloop.codebook.trial import CodebookSide
from medloop.contracts import Correction, CorrectionCriterion
from medloop.contracts.lineage import LineageNode, NodeKind
from medloop.contracts.suite import CriterionGrade
from medloop.errors import InputError
from medloop.loop.codebook import rules_for
from medloop.loop.codebook_effects import Taught, taught_by
from medloop.loop.codebook_trial import Answerer, live_answers
from medloop.loop.rule_guard import as_shown
from medloop.loop.safety_suites import detect
from medloop.privacy.phi.scrub import Scrubber
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.lineage_graph import lineage_graph
from medloop.store.records import criteria
from medloop.store.records.sites import record_site

MADE: tuple[NodeKind, ...] = ("dataset", "model", "version", "release")  # what training makes of a correction, in this order


@dataclass(frozen=True)
class CorrectionOutcome:
    """`made` are the datasets, adapters, registry versions and releases that contain the correction."""

    rule: Taught | None
    criteria: list[CorrectionCriterion]
    made: list[LineageNode]

    @property
    def is_case_good(self) -> tuple[bool, bool] | None:
        """Its own question in the newest trial of its rule: good before, good after; None where it was not tried."""
        if self.rule is None or self.rule.trial is None:
            return None
        own = [case for case in self.rule.trial.cases if case.case_id.startswith(f"{self.rule.entry.entry_id}/")]
        return (all(case.before for case in own), all(case.after for case in own)) if own else None


@dataclass(frozen=True)
class AnswerNow:
    """What the live model says to the corrected question, and which accepted or drafted criteria that meets."""

    model: str
    text: str
    rules: tuple[str, ...]
    grades: list[tuple[CorrectionCriterion, CriterionGrade]]

    @property
    def failed(self) -> int:
        return sum(grade.met is (criterion.points < 0) for criterion, grade in self.grades)


def outcome_of(store: Store, correction_id: str, *, sender: str) -> CorrectionOutcome:
    nodes = lineage_graph(store, correction_id, sender=sender).nodes
    now = {node.label for node in nodes if not node.replaced}  # a dataset that was built again is one thing
    kept = (node for node in nodes if node.kind in MADE and (not node.replaced or node.label not in now))
    made = sorted(kept, key=lambda node: MADE.index(node.kind))
    return CorrectionOutcome(taught_by(store, [correction_id]).get(correction_id), _shown(store, correction_id), made)


def answer_now(settings: Settings, store: Store, correction: Correction, *, answers: Answerer | None = None) -> AnswerNow:
    assessed = Scrubber().assess(correction.prompt)
    if assessed.quarantined:
        raise InputError("The question may name a person, so no model is asked", "Ask it on the page Chat without the name")
    question = " ".join(assessed.cleaned.split())
    site = record_site(store, correction.correction_id)
    model, answer = answers or live_answers(settings, store, site)
    prompt, rules = CodebookSide(rules_for(store, site=site)).prompt(question)
    [text] = answer([prompt])
    text = as_shown(text, question, rules)
    rows = [row for row in _shown(store, correction.correction_id) if row.content.detector]
    grades = [(row, detect(str(row.content.detector), question, text)) for row in rows]
    return AnswerNow(model, text, tuple(rule.rule_id for rule in rules.rules), grades)


def _shown(store: Store, correction_id: str) -> list[CorrectionCriterion]:
    rows = criteria.list_criteria(store, correction_ids=[correction_id])
    return [row for row in reversed(rows) if row.state in criteria.OPEN]
