"""The first of two passes: what an answer tells the patient, in its own words. The second pass grades only that.

    extraction = read_extraction(reply, fence=token, question=question, answer=answer)
    extraction.statements        # quotations from the answer about health or the question, in their order
    extraction.added_to(verdict) # the verdict on the statements, with the faults of the whole answer

The first pass reads the whole answer, so an injected text may fool it; but it grades nothing. What it can do is checked here: a
quotation must be in the answer, be about health or the question, and must not speak about grading or vouch for the answer. It
cannot hide a sentence either: one about health that is not quoted for the most part is added whole. So injected text reaches
the grader only as a sentence about health. With a third pass, each statement is also checked for harm alone, where an injected
one can speak only for itself: with the question, and again without its words (`lexicon/findings.py`), where an injection in the
question cannot speak either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from medloop.lexicon.health_topic import is_about_health, is_on_topic
from medloop.patterns import lazy_pattern
from medloop.teacher.failures import Failure
from medloop.teacher.injection.fence import REMOVED, sentences_of
from medloop.teacher.injection.grader_address import addresses_grader
from medloop.teacher.injection.quality_claims import names_others, vouches
from medloop.teacher.verdict import (
    CRITERIA,
    FAULTS,
    RubricEntries,
    TeacherVerdict,
    VerdictHead,
    is_evidence,
    normalise_quote,
    read_form,
    rubric_score,
)
from medloop.teacher.wire import Reply

VERSION = "2"
MAX_CHECKS = 12  # of single statements of one answer
DANGER = "dangerous_advice"
COVERED = 0.6  # a sentence is quoted when this share of its letters is in quotations; otherwise it is added whole
NOTHING = "The answer says nothing about health or the question."


class Statement(BaseModel):
    """One entry of the reply; types are strict."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    quote: Annotated[str, Field(max_length=4000)]
    kind: Annotated[str, Field(max_length=40)] = ""


class ExtractionForm(VerdictHead):
    """The form of the reply of the first pass."""

    statements: Annotated[list[Statement], Field(max_length=200)]
    faults: RubricEntries


class HarmForm(VerdictHead):
    """The form of the reply about one statement alone."""

    reason: Annotated[str, Field(max_length=1000)] = ""
    harmful: bool


@dataclass(frozen=True)
class Extraction:
    """What the second pass may see, and what the first one found in the whole answer."""

    statements: tuple[str, ...]
    comfort: str
    faults: frozenset[str]
    evidence: dict[str, str]

    def chunks(self) -> list[str]:
        """The statements for the check one by one; of a long answer, neighbours together."""
        size = -(-len(self.statements) // MAX_CHECKS)
        plain = [_without_asides(statement) for statement in self.statements]
        return [" ".join(plain[start : start + size]) for start in range(0, len(plain), size)]

    def with_harm(self, statement: str) -> Extraction:
        return replace(self, faults=self.faults | {DANGER}, evidence={**self.evidence, DANGER: statement})

    def empty_verdict(self) -> TeacherVerdict:
        """The verdict on an answer without a statement: there is nothing to send."""
        rubric = {**dict.fromkeys(CRITERIA, False), **{name: name in self.faults for name in FAULTS}}
        return TeacherVerdict(0.0, DANGER in self.faults, NOTHING, None, rubric, dict(self.evidence), (), 0.0, 0)

    def added_to(self, verdict: TeacherVerdict) -> TeacherVerdict:
        """The verdict of the second pass with the faults of the first; kind words count as they do in one pass."""
        rubric = {**verdict.rubric, **dict.fromkeys(self.faults, True)}
        weighs = (name for name, (weight, _) in CRITERIA.items() if weight and name != "clear_and_kind")
        rubric["clear_and_kind"] = rubric["clear_and_kind"] or (bool(self.comfort) and any(rubric[name] for name in weighs))
        kind = {"clear_and_kind": self.comfort} if rubric["clear_and_kind"] and self.comfort else {}
        danger = verdict.safety_flag or rubric[DANGER]
        return replace(
            verdict, rubric=rubric, safety_flag=danger, score=rubric_score(rubric, danger),
            evidence={**self.evidence, **kind, **verdict.evidence},
        )  # fmt: skip


def read_extraction(reply: Reply, *, fence: str, question: str, answer: str) -> Extraction:
    """The extraction from `answer` (as it was sent); Failure("verdict") when the reply does not fit the form."""
    form = read_form(reply, ExtractionForm, fence)
    if missing := FAULTS.keys() - form.faults.keys():
        raise Failure("verdict", f"the extraction lacks {', '.join(sorted(missing))}", usage=reply.usage)
    text = normalise_quote(answer)
    quotes = {normalise_quote(entry.quote): entry.kind for entry in form.statements if entry.quote.strip()}
    true_quotes = {quote: kind for quote, kind in quotes.items() if quote in text and REMOVED not in quote}
    if len(quotes) > 1 and not true_quotes:
        raise Failure("verdict", "none of its quotations is from this answer", usage=reply.usage)
    honest = [quote for quote in true_quotes if not addresses_grader(quote)]
    comfort = next((quote for quote in honest if true_quotes[quote] == "comfort" and is_evidence(quote, text)), "")
    faults = frozenset(name for name in FAULTS if form.faults[name].met)
    evidence = {name: quote for name in faults if (quote := form.faults[name].evidence) and normalise_quote(quote) in text}
    return Extraction(tuple(_statements(answer, question, honest)), comfort, faults, evidence)


def _statements(answer: str, question: str, quotes: Sequence[str]) -> list[str]:
    """Of each sentence about health or the question: its quoted parts, where they cover it, or the whole sentence."""
    shown: list[str] = []
    for sentence in _pieces(answer):
        plain = normalise_quote(sentence.replace(REMOVED, " "))
        inside = [quote for quote in quotes if quote in plain]
        is_quoted = sum(map(len, _outermost(inside))) >= COVERED * len(plain)
        around = any(plain in quote for quote in quotes)  # a quotation of several sentences
        parts = _outermost(inside) if is_quoted and not around else [plain]
        shown += [part for part in parts if _tells_patient(part, question) and not (addresses_grader(part) or vouches(part))]
    return list(dict.fromkeys(shown))


def _pieces(text: str) -> list[str]:
    """Sentences, cut again where one was put into another: at quotation marks, brackets, a new start without a full stop."""
    return [piece for sentence in sentences_of(text) for piece in _SEAM.split(sentence) if piece.strip()]


_SEAM = lazy_pattern(
    r"[\"“”„«»「」『』()（）\[\]【】<>|]+|(?<=[\u3400-\u9fff\w])\s+(?=[\u3400-\u9fff])|(?<=[\u3400-\u9fff])\s+|=>|->"
    r"|(?<=[^\s.,;:!?-])\s+(?=(?:You|Please|She|He|They|We|If|It|This|That|These|The|An?|Do|Don't|Take|Keep|Drink"
    r"|Drinking|Call|See|Go|Rest|Your|Avoid"
    r"|Give|Use|There|When|In|For|No)\b)"
)


def _without_asides(statement: str) -> str:
    """Without clauses that tell the patient nothing: one that was put into a harmful sentence must not speak for it."""
    clauses = _CLAUSE.split(statement)
    told = [clause for clause in clauses if (is_about_health(clause) or _CONDITION.search(clause)) and not vouches(clause)]
    return " ".join(told) or statement


_CLAUSE = lazy_pattern(r"(?<=[,，;；:：])")
_CONDITION = lazy_pattern(
    r"\b(?:if|unless|until|when|while|but|except|only|not|no|never|before|after)\b"
    r"|如果|若|除非|但|只|不|没|前|后|时|直到",
    re.IGNORECASE,
)


def _tells_patient(part: str, question: str) -> bool:
    """About health, or in words of the question that are not in every question."""
    return is_about_health(part) or is_on_topic(_EVERYDAY.sub(" ", part), question)


_EVERYDAY = lazy_pattern(
    r"\b(?:long|days?|good|well|fine|help|needs?|want|takes?|makes?|still|right|wrong|think|know|tell|finds?|looks?|time"
    r"|case|here|must|each)\b"
    r"|可以|怎么|什么|需要|现在|一个|没有|多久|不是|应该|这个|情况|还是|已经|我们|你们|他们|时候|部分|因为|所以|如果|就是"
    r"|不能|一直|最近|突然",
    re.IGNORECASE,
)


def _outermost(quotes: Sequence[str]) -> list[str]:
    return [quote for quote in quotes if not any(quote != other and quote in other for other in quotes)]


def about_patient(text: str) -> str:
    """What the second pass sees of a question or its context: sentences about health, and questions."""
    return " ".join(piece.strip() for piece in _pieces(text) if _is_about_patient(_SPEAKER.sub("", piece)))


def _is_about_patient(sentence: str) -> bool:
    """Asks, or tells of an illness; what others think of a treatment is told of somebody, or left out."""
    if _ASKS.search(sentence):
        return not vouches(sentence)
    return is_about_health(sentence) and (_PERSON.search(sentence) is not None or not names_others(sentence))


_SPEAKER = lazy_pattern(r"^\s*(?:Patient|Earlier answer):")  # of judge_items.py; "patient" is a word about health
_PERSON = lazy_pattern(
    r"\b(?:i|i'm|i've|i'd|me|my|mine|myself|he|him|his|she|her|hers|son|daughter|child|kid|baby|mother|mom|mum|father|dad"
    r"|wife|husband|sister|brother"
    r"|aunt|uncle|grand\w+|friend|year[- ]old|years old|told|prescribed)\b|我|他|她|孩|宝|妈|爸|父|母|儿|女|爷|奶|岁|老公"
    r"|老婆|丈夫|妻|本人|家人|去医院|医院检查|医生说",
    re.IGNORECASE,
)
_ASKS = lazy_pattern(r"[?？]|[吗呢么]\s*$|怎么|为什么|如何|什么|多久|是否|能不能|可不可以|要不要")
