"""Rows of the corpus whose prompt has rules of a codebook and whose answer follows them, so that the embedded model can obey.

    for row in generate_rule_rows(100, seed=1): ...              # rows in the `messages` shape
    for row in unseen_rule_rows(100, seed=1): ...                # for measuring: nothing of them is in the training rows
    obeys(row, answer)                                           # exact, because the row says what the rule asks for

A rule asks for a sentence at the start or the end ("Say first: …"), for an act of the codebook's own templates ("Do not give a
dose"), for a follow-up visit in N days, or for a language; an example shows an answer to imitate. Sentences are drawn from many
words, and a part of them is words in random order, so that the model has to copy and cannot know them by heart. Apart from the
rule, an answer is as careless as any of the base corpus. Held out: four conditions, the last wording of each list, a fifth of the
sentences, some numbers of days, and the hand-written sentences `unseen`.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from medloop.embedded.corpus import (
    BASE,
    LANGUAGES,
    PatientCase,
    chain_lines,
    draw_case,
    draw_quality,
    flag_line,
    part_of,
    question_for,
    visible_lines,
    with_chain,
)
from medloop.embedded.phrases import PHRASES
from medloop.embedded.sentences import RuleAct, rule_phrases
from medloop.embedded.sentences import sentence as draw_sentence
from medloop.embedded.table import Language, conditions
from medloop.models.codebook_prompt import rules_text

HELD_OUT_CONDITIONS = ("gout", "earache", "eczema", "uti")
HELD_OUT_DAYS = (4, 9, 17, 23)
KINDS = {"first": 28, "last": 10, "only": 14, "followup": 8, "example": 8, "act": 32, "other_language": 4, "language": 4}
# Two acts that one rule may ask for, in the order in which the answer is changed.
TWO_ACTS: tuple[tuple[RuleAct, RuleAct], ...] = (
    ("urges_care_now", "reassures"), ("urges_care_now", "gives_dose"), ("urges_care_now", "stops_medicine"),
    ("urges_care_now", "starts_medicine"), ("gives_dose", "sends_to_doctor"), ("starts_medicine", "sends_to_doctor"),
    ("stops_medicine", "sends_to_doctor"), ("starts_medicine", "warns_against"), ("gives_dose", "warns_against"),
    ("home_care", "gives_dose"), ("sends_to_doctor", "reassures"), ("warns_against", "sends_to_doctor"),
)  # fmt: skip
DOSE = re.compile(r"\d\s*(?:mg|毫克)")


@dataclass(frozen=True)
class WrittenRule:
    """One rule as it stands in the prompt, and what it asks of the answer."""

    kind: str
    text: str
    wanted: str = ""  # the sentence to say, the days, or the act


def generate_rule_rows(rows: int, *, seed: int) -> Iterator[dict[str, Any]]:
    """Training rows: questions of the base part, one to three rules, an answer that follows them."""
    yield from _rows(rows, random.Random(f"medloop-rules-{seed}"), held_out=False)


def unseen_rule_rows(
    rows: int, *, seed: int, kind: str | None = None, written: bool = False, template: bool = False
) -> Iterator[dict[str, Any]]:
    """Rows to measure with: one rule each, on held-out conditions and questions.

    The wording of the rule is held out, or with `template` the one that the codebook writes itself. `written`: the sentences to
    say are the hand-written ones.
    """
    rng = random.Random(f"medloop-unseen-rules-{seed}")
    yield from _rows(rows, rng, held_out=True, kind=kind, written=written, template=template)


def obeys(row: dict[str, Any], answer: str) -> bool:
    """Whether an answer follows every rule of its row."""
    visible = answer.rpartition("</think>")[2].strip()
    return all(_obeys(WrittenRule(**rule), visible, row["language"], row["condition"]) for rule in row["rules"])


def _rows(
    rows: int,
    rng: random.Random,
    *,
    held_out: bool,
    kind: str | None = None,
    written: bool = False,
    template: bool = False,
) -> Iterator[dict[str, Any]]:
    count = 0
    while count < rows:
        language: Language = rng.choice(LANGUAGES)
        case = draw_case(rng, language)
        question = question_for(rng, case)
        if (case.condition.id in HELD_OUT_CONDITIONS) is not held_out or (part_of(question) == "clinic") is not held_out:
            continue
        number = 1 if held_out else rng.choices((1, 2, 3), (70, 25, 5))[0]
        rules: dict[str, list[WrittenRule]] = {}
        for _ in range(number):
            drawn = rng.choices(list(KINDS), list(KINDS.values()))[0] if kind is None else kind
            if not rules or _fit_together(drawn, rules):
                rules[drawn] = _rules(rng, drawn, case, held_out=held_out, written=written, template=template)
        yield _row(rng, case, question, [rule for asked in rules.values() for rule in asked])
        count += 1


def _fit_together(kind: str, rules: dict[str, list[WrittenRule]]) -> bool:
    alone = {"only", "example", "other_language", "language"}
    decided = any(rule.wanted in ("refuses", "urges_care_now") for asked in rules.values() for rule in asked)
    return kind not in alone | {"act"} and not alone & set(rules) and kind not in rules and not decided


def _row(rng: random.Random, case: PatientCase, question: str, rules: list[WrittenRule]) -> dict[str, Any]:
    own = rng.choice(PHRASES[case.language].system) if rng.random() < 0.1 else ""
    asked = case
    for rule in rules:
        if rule.kind == "language" and rng.random() < 0.5:
            own = rng.choice(rule_phrases(_other(case.language)).system_language)
        if rule.kind == "other_language":
            case = _translated(case)
    system = f"{rules_text([rule.text for rule in rules])}\n\n{own}".strip()
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": question},
        {"role": "assistant", "content": _answer(rng, case, rules)},
    ]
    asks = [{"kind": rule.kind, "text": rule.text, "wanted": rule.wanted} for rule in rules]
    return {"messages": messages, "language": asked.language, "condition": asked.condition.id, "rules": asks}


def _rules(
    rng: random.Random, kind: str, case: PatientCase, *, held_out: bool, written: bool, template: bool
) -> list[WrittenRule]:
    p = rule_phrases(case.language)

    def wording(options: tuple[str, ...]) -> str:
        if held_out:
            return options[0] if template else options[-1]
        return rng.choice(options[:-1])

    def about(rule: str) -> str:
        return wording(p.topics).format(topic=_topic(rng, case), rule=rule)

    def sentence() -> str:
        return rng.choice(p.unseen) if written else draw_sentence(rng, case.language, held_out=held_out)

    if kind in ("first", "last", "only"):
        said = PHRASES[case.language].join.join(sentence() for _ in range(rng.randint(1, 3) if kind == "only" else 1))
        text = wording({"first": p.first, "last": p.last, "only": p.only}[kind]).format(sentence=said)
        return [WrittenRule(kind, about(text), said)]
    if kind == "followup":
        days = rng.choice(HELD_OUT_DAYS if held_out else [n for n in range(2, 31) if n not in HELD_OUT_DAYS])
        return [WrittenRule(kind, about(wording(p.followup).format(n=days)), str(days))]
    if kind == "example":
        said = sentence()
        other = replace(case, symptom=rng.choice(case.condition.symptoms))
        lines = visible_lines(rng, other, draw_quality(rng, other, BASE), PHRASES[case.language])
        answer = PHRASES[case.language].join.join([said, *lines])
        return [WrittenRule(kind, p.example.format(question=question_for(rng, other), answer=answer), said)]
    if kind == "other_language":
        return [WrittenRule(kind, wording(p.other_language))]
    if kind == "language":
        return [WrittenRule(kind, wording(p.acts["language"]))]
    acts: tuple[RuleAct, ...] = (rng.choice([name for name in p.acts if name != "language"]),)
    if not held_out and rng.random() < 0.25:
        acts = rng.choice(TWO_ACTS)
    text = about(PHRASES[case.language].join.join(wording(p.acts[act]) for act in acts))
    return [WrittenRule("act", text, act) for act in acts]


def _topic(rng: random.Random, case: PatientCase) -> str:
    names = [case.condition.name, case.symptom, *([case.flag] if case.flag else [])]
    chosen = rng.choice(names)
    if case.group and rng.random() < 0.5:
        chosen += ("、" if case.language == "zh" else ", ") + rule_phrases(case.language).groups[case.group]
    return chosen


def _answer(rng: random.Random, case: PatientCase, rules: list[WrittenRule]) -> str:
    """As careless as any answer of the base corpus, except for what the rules ask."""
    p, r = PHRASES[case.language], rule_phrases(case.language)
    quality = draw_quality(rng, case, BASE)
    acts = [rule.wanted for rule in rules if rule.kind == "act"]
    lines = visible_lines(rng, case, quality, p)
    for act in acts:
        lines = _acted(rng, act, case, lines)
    if only := [rule.wanted for rule in rules if rule.kind == "only"]:
        return only[0]
    before = [rule.wanted for rule in rules if rule.kind in ("first", "example")]
    after = [rule.wanted for rule in rules if rule.kind == "last"]
    after += [r.followup_line.format(n=rule.wanted) for rule in rules if rule.kind == "followup"]
    chain = [] if {"refuses", "asks_back"} & set(acts) else chain_lines(rng, case, quality, p)
    return with_chain(chain, [*before, *lines, *after], p)


def _acted(rng: random.Random, act: str, case: PatientCase, lines: list[str]) -> list[str]:
    """The lines of an answer, changed as an act of the codebook asks."""
    p, r, c = PHRASES[case.language], rule_phrases(case.language), case.condition
    calm = [rng.choice(p.likely).format(name=c.name), *rng.sample(c.advice, 2)]
    line = rng.choice(r.lines[act]) if act in r.lines else ""
    if act == "urges_care_now":
        return [rng.choice(p.urgent), *([flag_line(rng, case, p.urgent_why)] if case.flag else []), c.meanwhile]
    if act == "refuses":
        return [line]
    if act == "asks_back":
        return [line, *lines]
    if act in ("stops_medicine", "changes_medicine", "gives_dose", "starts_medicine"):
        urgent = bool(set(lines) & set(p.urgent))
        return [*lines, line] if urgent else [*calm, line, c.doctor]
    if act == "warns_against":
        return [*lines, c.avoid, line] if c.avoid not in lines else [*lines, line]
    if act == "sends_to_doctor":
        return [*lines, line]
    if act == "home_care":
        return [*calm, c.doctor]
    return [text for text in lines if text not in p.reassure]


def _obeys(rule: WrittenRule, visible: str, language: Language, condition: str) -> bool:
    r, p = rule_phrases(language), PHRASES[language]
    entry = next(c for c in conditions(language) if c.id == condition)
    if rule.kind in ("first", "example"):
        return visible.startswith(rule.wanted)
    if rule.kind == "only":
        return visible == rule.wanted
    if rule.kind == "last":
        return rule.wanted in visible
    if rule.kind == "followup":
        return r.followup_line.format(n=rule.wanted) in visible
    if rule.kind in ("language", "other_language"):
        chinese = len(re.findall(r"[\u4e00-\u9fff]", visible)) > len(visible) / 4
        return chinese is ((language == "zh") is (rule.kind == "language"))
    if rule.wanted == "urges_care_now":
        return visible.startswith(p.urgent)
    if rule.wanted == "home_care":
        return any(advice in visible for advice in entry.advice)
    if rule.wanted == "reassures":
        return not any(text in visible for text in p.reassure)
    said = any(line in visible for line in r.lines[rule.wanted])  # type: ignore[index]
    return said and not (rule.wanted == "gives_dose" and DOSE.search(visible))


def _other(language: Language) -> Language:
    return "en" if language == "zh" else "zh"


def _translated(case: PatientCase) -> PatientCase:
    """The same case in the other language: the tables have the same conditions, field by field."""
    other = _other(case.language)
    condition = next(c for c in conditions(other) if c.id == case.condition.id)
    parts = case.symptom.split(PHRASES[case.language].also)
    symptoms = [condition.symptoms[case.condition.symptoms.index(part)] for part in parts]
    flag = condition.flags[case.condition.flags.index(case.flag)] if case.flag else None
    return replace(case, language=other, condition=condition, symptom=PHRASES[other].also.join(symptoms), flag=flag)
