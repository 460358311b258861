"""Rules of the codebook that are enforced: sentences that do what a rule forbids are taken out of the answer.

    rule_guard(found, question)                    # the guard of one answer; None where no rule that fits forbids anything
    as_shown(answer, question, found)              # a whole answer as the user gets it, for trials, evaluation and pages
    EnforcedRules(find, sha256)                    # the same for a model under examination

The detectors read each sentence by itself, in streams too. Reasoning is not changed: only what the patient reads counts. Where
nothing is left, the vetted sentences of the rules stand alone, with the expert's answer where it is to nearly this question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medloop.codebook.reflect import forbidden_name
from medloop.contracts import Message
from medloop.contracts.assistant import GuardAct, RulesFound
from medloop.contracts.rule import ForbiddenAct
from medloop.models.codebook_prompt import first_sentences, with_rules
from medloop.reward.detect.acts import acts, is_about_medicine
from medloop.reward.unread import in_another_language
from medloop.serve.gateway.guards import GuardedAnswer, NamedOutputGuard
from medloop.serve.gateway.notices import notice, notices

GUARD = "rule"
OTHER_LANGUAGE: ForbiddenAct = "other_language"
_OPEN, _CLOSE = "<think>", "</think>"


class ForbiddenGuard:
    """OutputGuard of one answer. It remembers whether the model is still reasoning. `forbidden`: the rule that wants it, if one
    does, and the acts."""

    def __init__(self, name: str, forbidden: Sequence[tuple[str | None, tuple[ForbiddenAct, ...]]], question: str) -> None:
        self._name, self._forbidden = name, forbidden
        self._question, self._about, self._reasons = question, is_about_medicine(question), False

    def __call__(self, before: str, sentence: str, /) -> GuardAct | None:
        hidden = self._hidden(sentence)
        visible = sentence[hidden:]
        if not visible.strip():
            return None
        for rule, forbids in self._forbidden:
            if finding := forbidden_act(visible, self._question, forbids, self._about):
                return GuardAct(guard=self._name, finding=finding, drop=True, replacement=sentence[:hidden], rule=rule)
        return None

    def _hidden(self, sentence: str) -> int:
        """How many characters at the start of a sentence are reasoning."""
        opened, closed = sentence.rfind(_OPEN), sentence.rfind(_CLOSE)
        if max(opened, closed) < 0:
            return len(sentence) if self._reasons else 0
        self._reasons = opened > closed
        return len(sentence) if self._reasons else closed + len(_CLOSE)


def forbidden_act(
    text: str, question: str, forbids: tuple[ForbiddenAct, ...], about_medicine: bool = False
) -> ForbiddenAct | None:
    """The first of the forbidden acts that a text does."""
    if OTHER_LANGUAGE in forbids and in_another_language(question, text):
        return OTHER_LANGUAGE
    done = {forbidden_name(act) for act in acts(text, about_medicine)}
    return next((kind for kind in forbids if kind in done), None)


def rule_guard(found: RulesFound, question: str) -> NamedOutputGuard | None:
    forbidden = [(rule.rule_id, rule.forbids) for rule in found.rules if rule.forbids]
    if not forbidden:
        return None
    unchecked = "\n".join(notices()["unchecked"])
    guard = ForbiddenGuard(GUARD, forbidden, question)
    return NamedOutputGuard(GUARD, guard, on_crash=unchecked, instead=_instead(found, question))


def _instead(found: RulesFound, question: str) -> str:
    """What stands where nothing is left: the expert's answer without what stands first anyway; else a notice, unless a vetted
    sentence stands already."""
    sentences = first_sentences(found)
    answer = next((rule.answer for rule in found.rules if rule.answer), "")
    for sentence in sentences:
        answer = answer.replace(sentence, "")
    if answer.strip():
        return answer.strip()
    return "" if sentences else notice(GUARD, question)


@dataclass(frozen=True)
class EnforcedRules:
    """PromptRules of a codebook as the gateway uses it: the rules that fit a question, their sentences, and their guard."""

    find: Callable[[str], RulesFound]
    sha256: str

    def before(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        found = self.find(messages[-1].content)
        if found.system and messages[0].role != "system":
            messages = (Message(role="system", content=found.system), *messages)
        return with_rules(messages, found)

    def shown(self, answer: str, messages: tuple[Message, ...]) -> str:
        question = messages[-1].content
        return as_shown(answer, question, self.find(question))


def as_shown(answer: str, question: str, found: RulesFound) -> str:
    """An answer as the gateway shows it: the vetted sentences first, then what the rules leave of it."""
    guard = rule_guard(found, question)
    if guard is not None:
        checked = GuardedAnswer((guard,), question)
        answer = checked.feed(answer) + checked.finish()
    sentences = "\n\n".join(first_sentences(found))
    if not sentences:
        return answer
    reasoning, mark, visible = answer.rpartition(_CLOSE)
    return f"{reasoning}{mark}\n{sentences}\n{visible.strip()}".strip()
