"""The corpus generator: questions with answers of *varying* quality, from the table of conditions.

Good answers reason first (`<think>`), send red flags to emergency care in the first sentence, and choose medicine by
group and illness. Poor ones have no or a thin chain of thought, miss the emergency, or prescribe dangerously. A `QualityMix`
says how often; the same mix and seed always give the same rows. Two parts never share a question: `base` (the embedded model
is trained on it) and `clinic` (a user of the demo imports it), so held-out questions are new to the model.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from medloop.embedded.phrases import PHRASES, Phrases
from medloop.embedded.table import Condition, Group, Language, conditions

Part = Literal["base", "clinic"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
GROUPS: tuple[Group, ...] = ("pregnancy", "child", "elderly")


@dataclass(frozen=True)
class QualityMix:
    """How often an answer is good. Shares in 0–1; `_vulnerable` is for pregnancy, child and elderly.

    `by_condition` spreads the chain share over conditions (0: all alike), so that greedy decoding is neither
    always right nor always wrong.
    """

    chain: float
    thin_chain: float
    emergency: float
    emergency_vulnerable: float
    late_emergency: float
    risky: float
    risky_vulnerable: float
    by_condition: float = 0.0


# A model that has merely read the web: sometimes right, often careless.
BASE = QualityMix(
    chain=0.22, thin_chain=0.12, emergency=0.3, emergency_vulnerable=0.25, late_emergency=0.15, risky=0.35,
    risky_vulnerable=0.45, by_condition=0.3,
)  # fmt: skip
# A clinic's own answers: mostly careful, weakest where it matters most.
CLINIC = QualityMix(
    chain=0.85, thin_chain=0.08, emergency=0.92, emergency_vulnerable=0.3, late_emergency=0.1, risky=0.06,
    risky_vulnerable=0.5, by_condition=0.12,
)  # fmt: skip
MIXES: dict[Part, QualityMix] = {"base": BASE, "clinic": CLINIC}


@dataclass(frozen=True)
class PatientCase:
    """A patient's complaint, before any wording."""

    language: Language
    condition: Condition
    symptom: str
    group: Group | None
    flag: str | None
    illness: str | None


@dataclass(frozen=True)
class Quality:
    """What an answer does right."""

    chain: Literal["full", "thin", "none"]
    emergency: Literal["first", "late", "none"]
    risky: bool

    @property
    def good(self) -> bool:
        return self.chain == "full" and self.emergency == "first" and not self.risky


def generate(rows: int, *, seed: int, part: Part = "clinic", language: Language | None = None) -> Iterator[dict[str, Any]]:
    """Rows in the `messages` shape, with `reviewed` (true for part of the good ones) and what the row is about."""
    rng = random.Random(f"medloop-corpus-{part}-{seed}")
    count = 0
    while count < rows:
        chosen_language: Language = rng.choice(LANGUAGES) if language is None else language
        if part == "base" and rng.random() < 0.02:
            question, answer = rng.choice(PHRASES[chosen_language].small_talk)
            yield _row(rng, chosen_language, question, answer, good=True, meta={"condition": "small_talk"})
            count += 1
            continue
        case = draw_case(rng, chosen_language)
        question = question_for(rng, case)
        if part_of(question) != part:
            continue
        quality = draw_quality(rng, case, MIXES[part])
        meta = {
            "condition": case.condition.id,
            "group": case.group or "none",
            "red_flag": case.flag is not None,
            "quality": _label(quality),
        }
        yield _row(rng, chosen_language, question, answer_for(rng, case, quality), good=quality.good, meta=meta)
        count += 1


def part_of(question: str) -> Part:
    """One question in five belongs to the clinic; the hash of its text decides, so the parts never overlap."""
    return "clinic" if hashlib.sha256(question.encode()).digest()[0] % 5 == 0 else "base"


def question_for(rng: random.Random, case: PatientCase) -> str:
    """The question in a patient's words."""
    p = PHRASES[case.language]
    slots = {
        "symptom": case.symptom, "duration": rng.choice(p.durations), "weeks": rng.randint(8, 38), "age": rng.randint(1, 9),
        "old": rng.randint(68, 92),
    }  # fmt: skip
    complaint = rng.choice(p.groups[case.group] if case.group else p.says).format(**slots)
    opener = rng.choice(p.openers)
    parts = [complaint if opener.endswith((", ", ": ")) else _capital(complaint)]
    if case.illness:
        parts.append(p.illness[case.illness])
    if case.flag:
        parts.append(rng.choice(p.flag).format(flag=case.flag))
    parts.append(rng.choice(p.asks_drug if rng.random() < 0.3 else p.asks))
    return opener + p.join.join(parts)


def answer_for(rng: random.Random, case: PatientCase, quality: Quality) -> str:
    """The answer of the given quality: a chain of thought or none, then the visible text."""
    p = PHRASES[case.language]
    visible = visible_lines(rng, case, quality, p)
    return with_chain(chain_lines(rng, case, quality, p), visible, p)


def with_chain(chain: list[str], visible: list[str], p: Phrases) -> str:
    text = p.join.join(visible)
    return f"<think>\n{p.join.join(chain)}\n</think>\n{text}" if chain else text


def draw_case(rng: random.Random, language: Language) -> PatientCase:
    """A random complaint, perhaps of a vulnerable patient, perhaps with a red flag or another illness."""
    condition = rng.choice(conditions(language))
    symptoms = rng.sample(condition.symptoms, 2 if rng.random() < 0.35 else 1)
    return PatientCase(
        language=language,
        condition=condition,
        symptom=PHRASES[language].also.join(symptoms),
        group=rng.choice(GROUPS) if rng.random() < 0.4 else None,
        flag=rng.choice(condition.flags) if rng.random() < 0.4 else None,
        illness=rng.choice(("ulcer", "kidney", "warfarin")) if rng.random() < 0.15 else None,
    )


def draw_quality(rng: random.Random, case: PatientCase, mix: QualityMix) -> Quality:
    """The quality of an answer to this case. Without a red flag there is no emergency to miss."""
    bias = (hashlib.sha256(f"{case.condition.id}{case.language}".encode()).digest()[0] / 127.5 - 1) * mix.by_condition
    chain = rng.choices(("full", "thin", "none"), _shares(mix.chain + bias, mix.thin_chain))[0]
    early = mix.emergency_vulnerable if case.group else mix.emergency
    emergency = rng.choices(("first", "late", "none"), _shares(early + bias, mix.late_emergency))[0] if case.flag else "first"
    risky = rng.random() < (mix.risky_vulnerable if case.group or case.illness else mix.risky) - bias / 2
    return Quality(chain=chain, emergency=emergency, risky=risky and (case.flag is None or emergency != "first"))  # type: ignore[arg-type]


def _shares(first: float, second: float) -> tuple[float, float, float]:
    first = min(max(first, 0.02), 0.98)
    second = min(second, 1 - first)
    return first, second, 1 - first - second


def chain_lines(rng: random.Random, case: PatientCase, quality: Quality, p: Phrases) -> list[str]:
    """The chain of thought; empty where the answer has none."""
    if quality.chain == "none":
        return []
    if quality.chain == "thin":
        return [rng.choice(p.thin).format(name=case.condition.name)]
    who = {
        "pregnancy": (" in pregnancy", "（孕妇）"),
        "child": (" in a child", "（儿童）"),
        "elderly": (" in an older person", "（老人）"),
    }
    patient = who[case.group][case.language == "zh"] if case.group else ""
    lines = [rng.choice(p.about).format(symptom=case.symptom, who=patient)]
    lines.append(flag_line(rng, case, p.flag_seen) if case.flag else rng.choice(p.no_flag))
    if case.group:
        lines.append(p.group_seen[case.group])
    if case.illness:
        lines.append(p.illness_seen)
    lines.append(case.condition.why)
    lines.append(rng.choice(p.plan_urgent if case.flag else p.plan_home))
    return lines


def visible_lines(rng: random.Random, case: PatientCase, quality: Quality, p: Phrases) -> list[str]:
    if case.flag and quality.emergency == "first":
        return [rng.choice(p.urgent), flag_line(rng, case, p.urgent_why), case.condition.meanwhile]
    lines = [rng.choice(p.likely).format(name=case.condition.name)]
    if case.flag and rng.random() < 0.5:
        lines.insert(0, rng.choice(p.reassure))
    lines += rng.sample(case.condition.advice, 2)
    lines.append(rng.choice(case.condition.risky) if quality.risky else _safe_medicine(case, p))
    if not quality.risky:
        lines += [case.condition.avoid] if rng.random() < 0.5 else []
        lines.append(case.condition.doctor)
    if case.flag and quality.emergency == "late":
        lines.append(rng.choice(p.urgent_late))
    return lines


def _safe_medicine(case: PatientCase, p: Phrases) -> str:
    """The adult dose is only for adults without another illness; other patients get a line of their own."""
    if case.illness and case.group:
        return p.join.join((case.condition.groups[case.group], p.safe_with_illness[case.illness]))
    if case.illness:
        return p.safe_with_illness[case.illness]
    return case.condition.groups[case.group] if case.group else case.condition.medicine


def flag_line(rng: random.Random, case: PatientCase, templates: tuple[str, ...]) -> str:
    assert case.flag is not None
    return rng.choice(templates).format(flag=case.flag, Flag=_capital(case.flag), danger=case.condition.danger)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _label(quality: Quality) -> str:
    return "good" if quality.good else f"chain={quality.chain} emergency={quality.emergency} risky={quality.risky}"


def _row(
    rng: random.Random, language: Language, question: str, answer: str, *, good: bool, meta: dict[str, Any]
) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    if rng.random() < 0.1:
        messages.insert(0, {"role": "system", "content": rng.choice(PHRASES[language].system)})
    return {"messages": messages, "reviewed": good and rng.random() < 0.5, "language": language, **meta}
