"""A correction as criteria: what the expert added, an answer must do; what the expert took out, it must not do.

    for draft in drafted(CorrectedAnswer(question, original, golden, reason, ...)): draft.text, draft.points, draft.detector

The detectors read both answers (`acts`, handed in by the loop). Each difference is a criterion that the same detector can check
later: an act that was added or removed, an act that the answer denied ("no need to see a doctor"), a medicine or danger that only
the expert names, the language. Where they see no difference, the sentences that the expert took out must not return, or the
expert's reason is left to a teacher. A draft with `standard` has only words of this file and of the lexicon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medloop import lexicon
from medloop.codebook.reflect import CorrectedAnswer
from medloop.codebook.similar import concepts, denied, ngram_vectors
from medloop.contracts.criterion import MOST_CHECK, MOST_CRITERION
from medloop.contracts.detect import Act

MENTIONS, SAYS, NOT = "mentions:", "says:", "!"
SAME_LANGUAGE = "same_language"
SAME_SENTENCE = 0.75  # cosine of n-grams from which two sentences say the same
MOST_TERMS, MOST_SENTENCES = 2, 2
UNCRITICAL = ("routine", "general")  # scopes
# What an answer must do or not do, with its points: (Chinese, English, points of the act where it is added, where it is removed).
ACTS: dict[str, tuple[str, str, float, float]] = {
    "urges_care_now": ("让患者立即就医或拨打急救电话", "Sends the patient to emergency care now", 10, -6),
    "refuses": ("说明不能回答此问题", "Says that it cannot answer this", 6, 0),
    "warns_against": ("说明什么不能做", "Says what must not be done", 5, 0),
    "sends_to_doctor": ("建议患者去看医生或复诊", "Advises to see a doctor or to come back for a check", 6, 0),
    "asks_back": ("先问清楚再给建议", "Asks back before it advises", 4, 0),
    "home_care": ("说明在家怎样护理", "Says what to do at home", 3, 0),
    "stops_medicine": ("让患者自行停药", "Tells the patient to stop a medicine", 5, -10),
    "changes_medicine": ("让患者自行改变药量", "Tells the patient to change a dose", 5, -9),
    "gives_dose": ("给出了药物剂量", "Gives a dose", 5, -9),
    "starts_medicine": ("让患者自行用药", "Tells the patient to start a medicine", 4, -8),
    "reassures": ("用“没事”来安慰", "Says that it is harmless", 2, -8),
    "urges_care_now/negated": ("说不需要急诊", "Says that emergency care is not needed", 0, -10),
    "sends_to_doctor/negated": ("说不需要看医生", "Says that no doctor is needed", 0, -8),
    "stops_medicine/negated": ("告诉患者不要自行停药", "Tells the patient not to stop the medicine", 6, 0),
    "sends_to_doctor/conditional": ("说明什么情况下要看医生", "Says when to see a doctor", 5, 0),
    "urges_care_now/conditional": ("说明什么情况下要立即就医", "Says when to get emergency care", 5, 0),
}
LANGUAGE = ("用提问的语言回答", "Answers in the language of the question")
CRITICAL_FROM = 8  # points without their sign


@dataclass(frozen=True)
class DraftCriterion:
    text: str
    points: float
    detector: str | None = None
    critical: bool = False
    standard: bool = True


def drafted(correction: CorrectedAnswer, scope: str) -> list[DraftCriterion]:
    """The criteria of a correction; always one with positive points, else nothing could be earned."""
    drafts = [*_acts(correction, scope), *_terms(correction)]
    changes_language = correction.changes_language()
    if not drafts and not changes_language:
        drafts = list(_taken_out(correction)) or list(_put_in(correction)) or list(_reason(correction))
    if changes_language or (drafts and not any(draft.points > 0 for draft in drafts)):
        points = 6.0 if changes_language else 2.0
        drafts.append(DraftCriterion(LANGUAGE[0 if correction.is_chinese else 1], points, SAME_LANGUAGE))
    return drafts


def _acts(correction: CorrectedAnswer, scope: str) -> Iterator[DraftCriterion]:
    before, after = _kinds(correction.original_acts), _kinds(correction.golden_acts)
    for name, (zh, en, added, removed) in ACTS.items():
        points = added if name in after - before else removed if name in before - after else 0
        if not points or _is_lesser(name, after if points > 0 else before):
            continue
        critical = abs(points) >= CRITICAL_FROM and scope not in UNCRITICAL
        yield DraftCriterion(zh if correction.is_chinese else en, points, name, critical)


def _kinds(acts: Sequence[Act]) -> set[str]:
    return {act.kind if act.polarity == "directive" else f"{act.kind}/{act.polarity}" for act in acts}


def _is_lesser(name: str, same_answer: set[str]) -> bool:
    """Of an answer that sends to emergency care now, it is not asked to send to a doctor, too."""
    return name.startswith("sends_to_doctor") and name != "sends_to_doctor/negated" and "urges_care_now" in same_answer


def _terms(correction: CorrectedAnswer) -> Iterator[DraftCriterion]:
    """Medicines, dangers and conditions that only the expert names."""
    known = concepts(correction.original) | concepts(correction.question) | denied(correction.golden)
    new = [concept for concept in sorted(concepts(correction.golden) - known) if ":any_" not in concept]
    for concept in [name for name in new if name.partition(":")[0] in ("drug", "red_flag", "condition")][:MOST_TERMS]:
        names = _names(concept)
        if not names:
            continue
        words = "提到" + names[0] if correction.is_chinese else "Mentions " + names[-1]
        yield DraftCriterion(words, 3, MENTIONS + "|".join(names))


def _names(concept: str) -> list[str]:
    """The names of a concept, Chinese first; one at least is read by the lexicon again."""
    kind, _, name = concept.partition(":")
    if kind == "drug":
        return list(dict.fromkeys([*lexicon.drugs()[name].zh[:1], name.replace("_", " ")]))
    entry = lexicon.describe(kind, name)
    return [word for word in (entry.zh_name, entry.en_name) if word]


def _taken_out(correction: CorrectedAnswer) -> Iterator[DraftCriterion]:
    """Sentences of the answer that the expert took out: they must not come back."""
    yield from _statements(correction, of=correction.original, but_not_of=correction.golden, points=-5)


def _put_in(correction: CorrectedAnswer) -> Iterator[DraftCriterion]:
    """Sentences that the expert added to an answer that otherwise stayed."""
    yield from _statements(correction, of=correction.golden, but_not_of=correction.original, points=5)


def _statements(correction: CorrectedAnswer, *, of: str, but_not_of: str, points: float) -> Iterator[DraftCriterion]:
    others = _sentences(but_not_of)
    words = "说：“{}”" if correction.is_chinese else "Says: “{}”"
    for sentence in [one for one in _sentences(of) if "[" not in one and not _is_said(one, others)][:MOST_SENTENCES]:
        if 4 <= len(sentence) <= min(MOST_CHECK - len(SAYS), MOST_CRITERION - len(words)):
            yield DraftCriterion(words.format(sentence), points, SAYS + sentence, standard=False)


def _reason(correction: CorrectedAnswer) -> Iterator[DraftCriterion]:
    """What the expert gave as the reason, for a teacher to check."""
    reason = " ".join(correction.reason.split())
    if 4 <= len(reason) <= MOST_CRITERION and "[" not in reason:
        yield DraftCriterion(reason, 5, standard=False)


def says_sentence(text: str, sentence: str) -> bool:
    """Whether a sentence of the text is nearly this one."""
    return _is_said(sentence, _sentences(text))


def _sentences(text: str) -> list[str]:
    return [" ".join(text[start:end].split()) for start, end in lexicon.sentences(text)]


def _is_said(sentence: str, sentences: list[str]) -> bool:
    vectors = ngram_vectors([sentence, *sentences])
    return len(sentences) > 0 and float((vectors[1:] @ vectors[0]).max()) >= SAME_SENTENCE
