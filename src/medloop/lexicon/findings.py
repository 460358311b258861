"""What a text says about a patient, in names of our own lists only: red flags, groups, conditions, drugs, doses, ages, topics.

    named_findings("My father is 71, takes warfarin and has chest pain.") -> ["chest pain", "warfarin", "chest", "pain"]

Nothing of the text itself is in the result. Whoever writes a text can choose among these names, and cannot put in a word of
their own: a reader that sees only names cannot be given an order (`teacher/extraction.py`).
"""

import re

from medloop.lexicon import describe, find_conditions, find_doses, find_drugs, find_groups, find_red_flags, folded
from medloop.lexicon.numbers import find_ages
from medloop.lexicon.synonyms import STEM, concepts

MOST_FINDINGS = 80


def named_findings(text: str) -> list[str]:
    """The names, what matters most first; a red flag, group or condition that the text only denies begins with "no ".

    Where it is affirmed and denied, it is affirmed: a denial further on must not hide it, nor a long list of other names.
    """
    findings = (*find_red_flags(text), *find_groups(text), *find_conditions(text))
    affirmed = {describe(finding.kind, finding.id).en_name for finding in findings if not finding.negated}
    denied = {describe(finding.kind, finding.id).en_name for finding in findings if finding.negated} - affirmed
    drugs = {describe(drug.kind, drug.id).en_name for drug in find_drugs(text)}
    numbers = {f"{dose.amount:g} {dose.unit}" for dose in find_doses(text)}
    numbers |= {f"age {age.years:.2g}" for age in find_ages(folded(text)) if age.years <= 120}
    topics = {concept.removeprefix("#").replace("_", " ") for concept in concepts(_stems(folded(text)))} - denied
    ranked = (affirmed, drugs, {f"no {name}" for name in denied}, numbers, topics)
    return list(dict.fromkeys(name for group in ranked for name in sorted(group)))[:MOST_FINDINGS]


def _stems(text: str) -> set[str]:
    """Words by their first letters, and each two neighbouring Chinese characters, as the list of synonyms knows them."""
    runs = re.findall(r"[\u3400-\u9fff]+", text)
    pairs = {run[index : index + 2] for run in runs for index in range(len(run) - 1)}
    return pairs | {word[:STEM] for word in re.findall(r"[a-z]+", text)}
