"""Proposals for the codebook from corrections: what an expert changed, as a rule that can work at once, without training.

A proposal is a `CodebookDelta` that adds a rule in state `proposed`; a person or the codebook's curator decides. Three things
give one, all seen from the scrubbed texts:

    the expert's own reason                                        the rule is that sentence
    a red flag asked about, urgent advice only in the expert's answer    "send to emergency care"
    a drug that the expert took out of the answer                  "do not suggest it here"

Corrections that say the same in the same scope become one rule with all of them as evidence. No model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from medloop.contracts import CodebookDelta, CodebookRule, canonical_json, sha256_id
from medloop.data.feedback.select import Fix
from medloop.data.text.language import detect_language
from medloop.data.text.risk import strata_of
from medloop.lexicon import describe, find_drugs, find_groups, find_red_flags, find_urgent_advice

LONGEST = 400  # characters of a rule; a longer reason is an essay


@dataclass(frozen=True)
class _Idea:
    text: str
    scope: str
    triggers: tuple[str, ...]
    reason: str


class Proposals:
    """Rules as they come up; in memory are their words and the ids of the corrections, not the corrections."""

    def __init__(self) -> None:
        self._ideas: dict[tuple[str, str], list[tuple[_Idea, datetime, str]]] = {}
        self.silent: list[str] = []  # corrections that gave none

    def add(self, one: Fix) -> None:
        """A correction, scrubbed."""
        ideas = list(_ideas(one))
        if not ideas:
            self.silent.append(one.record_id)
        for idea in ideas:
            same = self._ideas.setdefault((idea.scope, " ".join(idea.text.casefold().split())), [])
            same.append((idea, one.when, one.record_id))

    def rules(self) -> list[CodebookDelta]:
        return [_delta(group) for _, group in sorted(self._ideas.items())]


def _delta(group: Sequence[tuple[_Idea, datetime, str]]) -> CodebookDelta:
    """The id is a hash of scope and words, so that the same corrections propose the same rule again."""
    ideas = sorted(group, key=lambda one: one[1:])
    idea = ideas[0][0]
    name = sha256_id(canonical_json([idea.scope, " ".join(idea.text.casefold().split())]))[7:39]
    rule = CodebookRule(
        rule_id=f"rule_{name}",
        text=idea.text,
        scope=idea.scope,
        triggers=tuple(sorted({trigger for one, _, _ in ideas for trigger in one.triggers})),
        evidence=tuple(sorted({record_id for _, _, record_id in ideas})),
        timestamp=max(when for _, when, _ in ideas),
    )
    return CodebookDelta(action="add", rule=rule, reason=idea.reason)


def _ideas(one: Fix) -> Iterator[_Idea]:
    question = one.question.asked
    chinese = detect_language(question) in ("zh", "mixed")
    scope, triggers = strata_of(question)[0], _triggers(question, chinese)
    if one.reason and one.reason.strip() and len(one.reason) <= LONGEST:
        yield _Idea(" ".join(one.reason.split()), scope, triggers, "an expert gave it as the reason of a correction")
    flags = _named("red_flag", {m.id for m in find_red_flags(question) if not m.negated}, chinese)
    if flags and _urgent(one.golden) and not _urgent(one.original):
        listed = ("、" if chinese else ", ").join(flags)
        text = (
            f"出现{listed}时，首先让患者立即就医或拨打急救电话。" if chinese else f"With {listed}: send to emergency care first."
        )
        yield _Idea(text, scope, flags, "an expert added urgent advice to an answer about a red flag")
    gone = _suggested(one.original) - _suggested(one.golden)
    for drug in sorted(gone):
        groups = _named("group", {m.id for m in find_groups(question) if not m.negated}, chinese)
        whom = ("、" if chinese else ", ").join(groups)
        said = f"（{whom}）" if chinese and whom else f" ({whom})" if whom else ""
        text = f"此类问题{said}不要建议使用{drug}。" if chinese else f"Do not suggest {drug} for questions like this{said}."
        yield _Idea(text, scope, triggers or (drug,), "an expert took a drug out of the answer")


def _urgent(answer: str) -> bool:
    return any(not mention.negated for mention in find_urgent_advice(answer))


def _suggested(answer: str) -> set[str]:
    return {mention.id for mention in find_drugs(answer) if not mention.negated}


def _triggers(question: str, chinese: bool) -> tuple[str, ...]:
    flags = {mention.id for mention in find_red_flags(question) if not mention.negated}
    groups = {mention.id for mention in find_groups(question) if not mention.negated}
    drugs = {mention.id for mention in find_drugs(question)}
    return (*_named("red_flag", flags, chinese), *_named("group", groups, chinese), *sorted(drugs))


def _named(kind: str, ids: set[str], chinese: bool) -> tuple[str, ...]:
    entries = [describe(kind, name) for name in sorted(ids)]
    return tuple(entry.zh_name if chinese else entry.en_name for entry in entries)
