"""Is an answer coherent? The share of its sentences that the table has for the condition of the question.

This is exact, because the corpus is generated: each sentence of an answer comes from the table or a template.
"""

import re
from collections.abc import Iterator

from medloop.embedded.phrases import PHRASES
from medloop.embedded.table import Condition, Language, conditions

_ENDS = {"en": re.compile(r"(?<=[.!?])\s+"), "zh": re.compile(r"(?<=[。！？])")}


def coherence(answer: str, *, condition: str, language: Language, symptom_text: str) -> float:
    """0–1. `symptom_text` is the question: a chain that repeats a symptom must take it from there."""
    entry = next(c for c in conditions(language) if c.id == condition)
    visible = answer.replace("<think>", " ").replace("</think>", " ").strip()
    sentences = [s.strip() for s in _ENDS[language].split(visible) if s.strip()]
    known = set(known_sentences(entry, language))
    about = [re.escape(a).replace(r"\{symptom\}", "(.+?)").replace(r"\{who\}", "(?:.*)") for a in PHRASES[language].about]
    good = 0
    for sentence in sentences:
        if sentence in known:
            good += 1
        elif any((m := re.fullmatch(a, sentence)) and m.group(1).split("（")[0] in symptom_text for a in about):
            good += 1
    return good / len(sentences) if sentences else 0.0


def known_sentences(c: Condition, language: Language) -> Iterator[str]:
    """Every sentence that an answer about this condition may contain, as it would be split."""
    p = PHRASES[language]
    whole = [c.why, *c.advice, c.medicine, c.avoid, c.doctor, c.meanwhile, *c.groups.values(), *c.risky]
    whole += [
        *p.no_flag,
        *p.group_seen.values(),
        p.illness_seen,
        *p.plan_urgent,
        *p.plan_home,
        *p.urgent,
        *p.urgent_late,
        *p.reassure,
    ]
    whole += p.safe_with_illness.values()
    whole += [t.format(name=c.name) for t in (*p.thin, *p.likely)]
    for flag in c.flags:
        whole += [t.format(flag=flag, Flag=flag[:1].upper() + flag[1:], danger=c.danger) for t in (*p.flag_seen, *p.urgent_why)]
    for sentence in whole:
        yield from (s.strip() for s in _ENDS[language].split(sentence) if s.strip())
