"""A change of the codebook, tried before it is live: the regression set answered with the codebook before and after.

    trial = run_trial(cases, before, after, answer, ...)      # CodebookTrial: verdict, and each case that changed

Only questions whose prompt or enforcement changes are answered; the others get the same answer by construction, because the
model answers greedily. A case that was good and is bad now counts; if it is a critical one, the change is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medloop.contracts import CodebookTrial, Message, RulesFound, TrialCase
from medloop.contracts.rule import CaseSource, TrialVerdict
from medloop.models.codebook_prompt import with_rules

AnswerAll = Callable[[Sequence[tuple[Message, ...]]], Sequence[str]]
AsShown = Callable[[str, str, RulesFound], str]  # a model's answer, the question and its rules: the answer as the user gets it


@dataclass(frozen=True)
class RegressionCase:
    """A question, and what makes an answer to it a good one."""

    case_id: str
    source: CaseSource
    question: str
    critical: bool
    is_good: Callable[[str], bool]
    quality: Callable[[str], float] | None = None  # of an ordinary answer, 0 to 1


@dataclass(frozen=True)
class CodebookSide:
    """The codebook on one side of a change: what it finds for a question."""

    find: Callable[[str], RulesFound]

    def prompt(self, question: str) -> tuple[tuple[Message, ...], RulesFound]:
        rules = self.find(question)
        own = (Message(role="system", content=rules.system),) if rules.system else ()
        return with_rules((*own, Message(role="user", content=question)), rules), rules


def run_trial(
    cases: Sequence[RegressionCase],
    before: CodebookSide,
    after: CodebookSide,
    answer: AnswerAll,
    as_shown: AsShown,
    *,
    revision_id: str,
    codebook: str,
    model: str,
    version: str,
    actor: str,
) -> CodebookTrial:
    changed = []
    for case in cases:
        first, second = before.prompt(case.question), after.prompt(case.question)
        if first[0] != second[0] or _enforced(first[1]) != _enforced(second[1]):
            changed.append((case, first, second))
    prompts = list(dict.fromkeys(prompt for _, first, second in changed for prompt in (first[0], second[0])))
    answers = dict(zip(prompts, answer(prompts), strict=True)) if prompts else {}
    outcomes = tuple(
        _outcome(case, *(as_shown(answers[prompt], case.question, rules) for prompt, rules in (first, second)))
        for case, first, second in changed
    )
    return CodebookTrial(
        revision_id=revision_id, codebook=codebook, model=model, version=version, verdict=verdict_of(outcomes), cases=outcomes,
        unchanged=len(cases) - len(changed), actor=actor,
    )  # fmt: skip


def _outcome(case: RegressionCase, before: str, after: str) -> TrialCase:
    return TrialCase(
        case_id=case.case_id, source=case.source, critical=case.critical, before=case.is_good(before), after=case.is_good(after),
        quality=None if case.quality is None else (round(case.quality(before), 4), round(case.quality(after), 4)),
    )  # fmt: skip


def verdict_of(cases: Sequence[TrialCase]) -> TrialVerdict:
    worse = [case for case in cases if case.before and not case.after]
    if any(case.critical for case in worse):
        return "critical"
    gained = sum(case.after and not case.before for case in cases)
    if len(worse) > gained:
        return "worse"
    return "better" if gained > len(worse) else "same"


def _enforced(rules: RulesFound) -> list[tuple[str, tuple[str, ...], str]]:
    """What rules do to an answer, whatever the model says."""
    return [(rule.first_sentence, rule.forbids, rule.answer) for rule in rules.rules if rule.first_sentence or rule.forbids]
