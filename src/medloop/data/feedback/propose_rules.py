"""Proposals for the codebook from corrections: what an expert changed, as a rule that can work at once, without training.

A proposal is a `CodebookDelta` that adds a rule in state `proposed`; a person or the codebook's curator decides. Three things
give one, all seen from the scrubbed texts:

    the expert's own reason                                               the rule is that sentence
    a red flag in the question, urgent advice only in the expert's answer    "send to emergency care"
    a drug that the expert removed from the answer                        "do not suggest it here"

Corrections that say the same in the same scope become one rule with all of them as evidence. No model is asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from medloop.contracts import CodebookDelta, CodebookRule, canonical_json, sha256_id
from medloop.data.feedback.rows import ExpertAnswer
from medloop.data.feedback.select import CachedScrubber
from medloop.data.text.risk import strata_of
from medloop.lexicon import describe, find_drugs, find_groups, find_red_flags, find_urgent_advice
from medloop.lexicon.language import detect_language
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable

MAX_RULE = 400  # characters; a longer reason is an essay


@dataclass(frozen=True)
class _ProposedRule:
    text: str
    scope: str
    triggers: tuple[str, ...]
    reason: str
    timestamp: datetime
    record_id: str

    @property
    def key(self) -> tuple[str, str]:
        return self.scope, " ".join(self.text.casefold().split())


@dataclass(frozen=True)
class _ScrubbedCorrection:
    question: str
    original: str
    golden: str
    reason: str | None


class RuleProposals:
    """Collects rules correction by correction; it keeps their words and the ids of the corrections, not the corrections."""

    def __init__(self, scrubber: CachedScrubber) -> None:
        self._scrubber = scrubber
        self._rules: dict[tuple[str, str], list[_ProposedRule]] = {}
        self.without_rule: list[str] = []  # ids of corrections

    def add(self, correction: ExpertAnswer) -> None:
        scrubbed = self._scrub(correction)
        if scrubbed is None:
            return  # counted with the row that has the same messages
        rules = [
            _ProposedRule(*parts, correction.timestamp, correction.record_id) for parts in _rules_from(scrubbed)
        ]  # fmt: skip
        if not rules:
            self.without_rule.append(correction.record_id)
        for rule in rules:
            self._rules.setdefault(rule.key, []).append(rule)

    def deltas(self) -> list[CodebookDelta]:
        return [_delta(key, rules) for key, rules in sorted(self._rules.items())]

    def _scrub(self, correction: ExpertAnswer) -> _ScrubbedCorrection | None:
        texts = (correction.prompt.user_text, correction.original, correction.golden, correction.reason)
        try:
            question, original, golden, *reason = self._scrubber.scrub((text for text in texts if text is not None), Scrubber())
        except Unscrubbable:
            return None
        return _ScrubbedCorrection(question, original, golden, reason[0] if reason else None)


def _delta(key: tuple[str, str], rules: Sequence[_ProposedRule]) -> CodebookDelta:
    """The id is a hash of scope and words, so that the same corrections propose the same rule again."""
    first = min(rules, key=lambda rule: (rule.timestamp, rule.record_id))
    rule = CodebookRule(
        rule_id=f"rule_{sha256_id(canonical_json(list(key)))[7:39]}", text=first.text, scope=first.scope,
        triggers=tuple(sorted({trigger for rule in rules for trigger in rule.triggers})),
        evidence=tuple(sorted({rule.record_id for rule in rules})), timestamp=max(rule.timestamp for rule in rules),
    )  # fmt: skip
    return CodebookDelta(action="add", rule=rule, reason=first.reason)


def _rules_from(correction: _ScrubbedCorrection) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Text, scope, triggers and reason of each rule."""
    question = correction.question
    chinese = detect_language(question) in ("zh", "mixed")
    comma = "、" if chinese else ", "
    scope, triggers = strata_of(question)[0], _triggers(question, chinese)
    if correction.reason and correction.reason.strip() and len(correction.reason) <= MAX_RULE:
        yield " ".join(correction.reason.split()), scope, triggers, "an expert gave it as the reason of a correction"
    flags = _names("red_flag", {mention.id for mention in find_red_flags(question) if not mention.negated}, chinese)
    if flags and _is_urgent(correction.golden) and not _is_urgent(correction.original):
        symptoms = comma.join(flags)
        text = (
            f"出现{symptoms}时，首先让患者立即就医或拨打急救电话。"
            if chinese
            else f"With {symptoms}: send to emergency care first."
        )
        yield text, scope, flags, "an expert added urgent advice to an answer about a red flag"
    for drug in sorted(_suggested_drugs(correction.original) - _suggested_drugs(correction.golden)):
        groups = comma.join(_names("group", {mention.id for mention in find_groups(question) if not mention.negated}, chinese))
        patients = "" if not groups else f"（{groups}）" if chinese else f" ({groups})"
        text = (
            f"此类问题{patients}不要建议使用{drug}。" if chinese else f"Do not suggest {drug} for questions like this{patients}."
        )
        yield text, scope, triggers or (drug,), "an expert removed a drug from the answer"


def _is_urgent(answer: str) -> bool:
    return any(not mention.negated for mention in find_urgent_advice(answer))


def _suggested_drugs(answer: str) -> set[str]:
    return {mention.id for mention in find_drugs(answer) if not mention.negated}


def _triggers(question: str, chinese: bool) -> tuple[str, ...]:
    flags = {mention.id for mention in find_red_flags(question) if not mention.negated}
    groups = {mention.id for mention in find_groups(question) if not mention.negated}
    drugs = {mention.id for mention in find_drugs(question)}
    return (*_names("red_flag", flags, chinese), *_names("group", groups, chinese), *sorted(drugs))


def _names(kind: str, ids: set[str], chinese: bool) -> tuple[str, ...]:
    entries = [describe(kind, name) for name in sorted(ids)]
    return tuple(entry.zh_name if chinese else entry.en_name for entry in entries)
