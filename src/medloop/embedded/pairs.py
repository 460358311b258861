"""Preference pairs from the corpus generator: two answers to one question, of which the better one is known.

    for pair in generate_pairs(2000, seed=1): ...       # lines of preferences.jsonl

An answer is better when it is safer (red flag sent to emergency care first, nothing dangerous prescribed), then when it reasons
more fully. Besides such pairs there are three kinds that only the question decides, since the words alone are fine: an *alarm*
(emergency care for somebody without a red flag), *another illness* (a good answer to a question that was not asked) and *another
patient* (the adult's medicine for a child, in pregnancy, or with an illness that forbids it). In every second pair the longer
answer is the better one, so length is no clue.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from medloop.embedded.corpus import (
    LANGUAGES,
    PatientCase,
    Quality,
    QualityMix,
    answer_for,
    draw_case,
    draw_quality,
    part_of,
    question_for,
)
from medloop.embedded.table import Language, conditions

Kind = Literal["quality", "alarm", "another illness", "another patient"]
KINDS: dict[Kind, int] = {"quality": 60, "alarm": 15, "another illness": 5, "another patient": 20}
# Both answers come from an assistant that is right about half of the time, in everything.
MIX = QualityMix(
    chain=0.4, thin_chain=0.3, emergency=0.45, emergency_vulnerable=0.45, late_emergency=0.25, risky=0.4, risky_vulnerable=0.4,
)  # fmt: skip
GOOD = Quality(chain="full", emergency="first", risky=False)
EMERGENCY = {"first": 2, "late": 1, "none": 0}
CHAIN = {"full": 2, "thin": 1, "none": 0}
TRIES = 40  # for the length to fit; then another case is drawn


def generate_pairs(count: int, *, seed: int, language: Language | None = None, noise: float = 0.0) -> Iterator[dict[str, Any]]:
    """Rows with prompt, chosen, rejected and metadata; `noise` is the share of pairs in which the rater chose wrongly."""
    rng = random.Random(f"medloop-pairs-{seed}")
    number = 0
    while number < count:
        chosen_language: Language = rng.choice(LANGUAGES) if language is None else language
        case = draw_case(rng, chosen_language)
        question = question_for(rng, case)
        if part_of(question) != "clinic":
            continue
        kind: Kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        answers = _answers(rng, case, kind, longer=number % 2 == 0)
        if answers is None:
            continue
        wrong = rng.random() < noise
        better, worse = answers[::-1] if wrong else answers
        meta = {"condition": case.condition.id, "language": chosen_language, "kind": kind, "mislabelled": wrong}
        yield {"prompt": question, "chosen": better, "rejected": worse, "metadata": meta}
        number += 1


def _answers(rng: random.Random, case: PatientCase, kind: Kind, *, longer: bool) -> tuple[str, str] | None:
    """A better and a worse answer with the better one longer, or shorter; None where the kind does not fit the case."""
    for _ in range(TRIES):
        drawn = _draw(rng, case, kind)
        if drawn is None:
            return None
        better, worse = drawn
        if better != worse and (len(better) > len(worse)) == longer and len(better) != len(worse):
            return better, worse
    return None


def _draw(rng: random.Random, case: PatientCase, kind: Kind) -> tuple[str, str] | None:
    if kind == "quality":
        first, second = draw_quality(rng, case, MIX), draw_quality(rng, case, MIX)
        if _rank(first) == _rank(second):
            return "", ""
        best, worst = sorted((first, second), key=_rank, reverse=True)
        return answer_for(rng, case, best), answer_for(rng, case, worst)
    chain = replace(GOOD, chain=rng.choice(("full", "thin", "none")))
    other = replace(GOOD, chain=rng.choice(("full", "thin", "none")))
    if kind == "alarm":
        if case.flag is not None:
            return None
        return answer_for(rng, case, chain), answer_for(rng, replace(case, flag=rng.choice(case.condition.flags)), other)
    if kind == "another illness":
        condition = rng.choice([c for c in conditions(case.language) if c.id != case.condition.id])
        flag = None if case.flag is None else rng.choice(condition.flags)
        elsewhere = replace(case, condition=condition, symptom=rng.choice(condition.symptoms), flag=flag)
        return answer_for(rng, case, chain), answer_for(rng, elsewhere, other)
    if case.flag is not None or (case.group is None and case.illness is None):
        return None
    return answer_for(rng, case, chain), answer_for(rng, replace(case, group=None, illness=None), other)


def _rank(quality: Quality) -> tuple[int, int]:
    """Safety first, then reasoning."""
    return EMERGENCY[quality.emergency] + 2 * (not quality.risky), CHAIN[quality.chain]
