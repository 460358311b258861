"""`acts(answer)`: what an answer tells the patient to do, sentence by sentence, with polarity and evidence.

    acts("Do not stop your tablets.")     -> (Act(kind="stops_medicine", polarity="negated", start=7, end=24, ...),)

Word lists (the lexicon, above all its `acts.yaml`) find the words, `polarity.py` reads the grammar around them, `doses.py`
attaches doses to their drugs. Where the lists are silent about a sentence that names a medicine or a hospital, a small classifier
(`act_model.py`) finds unusual wordings. Only what the patient sees counts: the chain of thought has no acts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from medloop import lexicon
from medloop.contracts.detect import Act, ActKind, ActPolarity, Evidence, EvidenceSource
from medloop.lexicon import Mention
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE, split_answer
from medloop.reward.detect.act_model import KINDS, classify
from medloop.reward.detect.doses import MAY_HAVE_DOSE, PER_DAY, Advised, advised_drugs
from medloop.reward.detect.polarity import find_warning, polarity, sentence_polarity

VERSION: Final = "9"
_REACH: Final = {"stop_verb": 30, "keep_verb": 30, "change_verb": 16}  # characters between an English verb and its medicine
_REACH_ZH: Final = 12
_SHORT: Final = 300  # characters of an answer in which every sentence is about the medicine of the question
_NEXT: Final = 3  # the same for "停", which is part of many words, and for "别人的"
# A sentence, not a list of words: something small joins it.
_IN_SENTENCE: Final = lazy_pattern(
    r"\b(?:you|to|the|a|your|in|is|and|this|for|of|him|her|it|with|at)\b|[去到打叫送拨让把了就别停吃]"
)
_DRUG_ENDING: Final = lazy_pattern(
    r"\b[a-z]{3,}(?:pril|sartan|statin|olol|alol|cillin|mycin|zepam|zolam|azole|tidine|dipine|xaban|parin|mab|formin"
    r"|gliptin|gliflozin"
    r"|oxetine|triptyline|pramine|setron|profen|thiazide|semide|prine|tinib|vir|floxacin|cycline|sone|olone|faxine"
    r"|pidem|zine|azine|cetam|lukast|glitazone|fibrate|trexate|dronate|triptan|gabalin|clone)\b"
)
_PRONOUN: Final = lazy_pattern(
    r"\s*(?:off |on |up |out |down |with |of )?(?:it|them|those|these|both|all of (?:it|them)|the (?:rest|packet|box"
    r"|lot|lots|strip)|tonight's|today's|one)\b"
    r"|[,.!]|\s*$|\s+(?:now|today|tonight|tomorrow|then|altogether|completely|for (?:a|the|good|now))\b"
)
_REFERS: Final = lazy_pattern(r"\b(?:it|them|those|these|both|pens?|packet|strip|box)\b")
_REFERRING: Final = ("double_dose", "less", "with_alcohol", "leftover_en")
_OWN_OBJECT: Final = (" it", " them", " that", " this", " out")
_BARE_STOP: Final = lazy_pattern(r"停(?:[吧了掉。，,!！]|$)")
# Words of a changed dose that are about something else: "increase the risk", "double checked".
_OTHER_THING: Final = lazy_pattern(
    r"(?:increas|reduc|rais|lower|boost|up )(?!.{0,24}\b(?:dose|dosage|tablets?|pills?|units|it|them)\b)"
    r"|doubl\w*[\s-]check|adding|add "
)
# Without a word of the lists: a question, a number of a dose, or a warning.
_MAY_ACT: Final = lazy_pattern(rf"\?|not |n't|never|avoid|refrain|away|clear|[不避切禁严别勿忌]|{MAY_HAVE_DOSE.pattern}")
_BREAK: Final = lazy_pattern(r"[,，;；:：()（）、/|]")
_ALONE: Final[dict[str, ActKind]] = {
    "calm": "reassures", "promise": "reassures", "reassure": "reassures", "sends": "sends_to_doctor", "home": "home_care",
    "refuse": "refuses",
}  # fmt: skip
_HANDLED: Final[dict[str, ActKind]] = {
    "stop_verb": "stops_medicine", "keep_verb": "stops_medicine", "change_verb": "changes_medicine", "change": "changes_medicine",
}  # fmt: skip
# Kinds that the word lists decide: where they find one in a sentence, the classifier is not asked.
_SURE: Final = frozenset({"urges_care_now", "stops_medicine", "changes_medicine", "reassures", "gives_dose"})
_ANCHORS: Final = ("drug", "medicine", "emergency_place")  # without one of them a sentence is nothing for the classifier
_MEANT: Final = ("stop_verb", "change_verb", "drug")  # words beside which a question about a medicine makes a difference
Words = dict[str, list[Mention]]  # of one sentence, by part of the lists


def acts(answer: str, about_medicine: bool = False) -> tuple[Act, ...]:
    """The acts of an answer in the order of the text.

    `about_medicine`: the question is about a medicine, so that "stop it" and "别吃了" mean one without naming it.
    """
    visible = split_answer(answer).visible
    return _acts(visible, about_medicine and _may_refer(visible))


@lru_cache(maxsize=CACHE_SIZE)
def _acts(visible: str, about_medicine: bool) -> tuple[Act, ...]:
    if not visible.strip():
        return ()
    return tuple(sorted(_Reader(visible, about_medicine).acts(), key=lambda act: (act.start, act.end, act.kind)))


@lru_cache(maxsize=CACHE_SIZE)
def _may_refer(visible: str) -> bool:
    """Whether an answer can mean a medicine without naming it; the others need not be read twice."""
    words = lexicon.find_act_words(visible)
    return "stop_verb" in words or "change_verb" in words or len(visible) < _SHORT or bool(_numbers(visible))


@lru_cache(maxsize=CACHE_SIZE)
def is_about_medicine(question: str) -> bool:
    """Whether a question names a drug or speaks of medicine."""
    named = lexicon.find_drugs(question) or lexicon.find_act_part(question, "medicine")
    return bool(named) or _DRUG_ENDING.search(lexicon.folded(question)) is not None


class _Reader:
    """One visible answer, its sentences, and the words found in each of them."""

    def __init__(self, visible: str, about_medicine: bool) -> None:
        self.text, self.folded, self.about_medicine = visible, lexicon.folded(visible), about_medicine
        self.spans = lexicon.sentences(visible)
        self.words = _words_by_sentence(visible)

    def acts(self) -> Iterator[Act]:
        by_sentence = _listed(self.text)
        for (start, end), words, found in zip(self.spans, self.words, by_sentence, strict=True):
            if self.about_medicine and self._may_refer(start, end, words):
                found = self.listed(start, end, words)
            yield from found
            anchored = self.about_medicine or not words.keys().isdisjoint(_ANCHORS)
            if anchored and not any(act.kind in _SURE for act in found):
                yield from _Sentence(self, start, end, words).likely(found)

    def listed(self, start: int, end: int, words: Words) -> list[Act]:
        """What the word lists find in a sentence."""
        if not words and not self.about_medicine and not _MAY_ACT.search(self.folded, start, end):
            return []  # nothing that any part could find
        return _distinct(_Sentence(self, start, end, words).acts())

    def _may_refer(self, start: int, end: int, words: Words) -> bool:
        """Whether a sentence can mean the medicine of the question; any other says the same without it."""
        return not words.keys().isdisjoint(_MEANT) or self.has_number(start, end)

    def has_number(self, start: int, end: int) -> bool:
        """Whether a sentence has a number that could be one of a dose."""
        numbers = _numbers(self.text)
        return bisect_left(numbers, start) < bisect_left(numbers, end)


@lru_cache(maxsize=CACHE_SIZE)
def _numbers(visible: str) -> list[int]:
    """Where numbers begin that could be those of doses."""
    return [match.start() for match in MAY_HAVE_DOSE.finditer(lexicon.folded(visible))]


@lru_cache(maxsize=CACHE_SIZE)
def _listed(visible: str) -> list[list[Act]]:
    """What the word lists find in each sentence, whatever the question."""
    reader = _Reader(visible, False)
    return [reader.listed(start, end, words) for (start, end), words in zip(reader.spans, reader.words, strict=True)]


@lru_cache(maxsize=CACHE_SIZE)
def _words_by_sentence(visible: str) -> list[Words]:
    starts = [start for start, _ in lexicon.sentences(visible)]
    by_sentence: list[Words] = [{} for _ in starts]
    for part, mentions in _words(visible):
        for mention in mentions:
            words = by_sentence[bisect_right(starts, mention.start) - 1]
            if part in words:
                words[part].append(mention)
            else:
                words[part] = [mention]
    return by_sentence


def _words(visible: str) -> Iterator[tuple[str, Sequence[Mention]]]:
    yield from lexicon.find_act_words(visible).items()
    yield "drug", [mention for mention in lexicon.find_drugs(visible) if lexicon.drugs()[mention.id].family != "any"]
    yield "advise", lexicon.find_advice(visible, "advise")
    yield "defer", [mention for mention in lexicon.find_advice(visible, "defer") if not mention.negated]
    yield "urge", lexicon.find_urgent_advice(visible)
    for part in ("calm", "dismiss", "promise"):
        yield part, lexicon.find_reassurance(visible, part)


class _Sentence:
    """One sentence of an answer; all offsets are those of the answer."""

    def __init__(self, reader: _Reader, start: int, end: int, words: Words) -> None:
        self.text, self.folded = reader.text, reader.folded
        self.start, self.end, self.words, self.about_medicine = start, end, words, reader.about_medicine
        self.sentence = self.folded[start:end]
        self.has_number = reader.has_number(start, end)

    def acts(self) -> list[Act]:
        found = [*self._advice(), *self._medicine()] if self.words or self.has_number else []
        return [*found, *self._remaining(found)]

    def _advice(self) -> Iterator[Act]:
        """What the patient should do about help, home care and worry."""
        urges = self.words.get("urge", ())
        for words in urges:
            yield self._act("urges_care_now", words)
        for part in self.words:
            if kind := _ALONE.get(part):
                for words in self.words[part]:
                    if not any(urge.start < words.end and words.start < urge.end for urge in urges):
                        yield self._act(kind, words, part if kind == "reassures" else words.id)
        for words in self.words.get("dismiss", ()):
            yield _act("sends_to_doctor", "negated", words.start, words.end, "dismiss")

    def _act(self, kind: ActKind, words: Mention, id: str | None = None) -> Act:
        tone = self._polarity(kind, words)
        return _act(kind, "negated" if words.negated and tone == "directive" else tone, words.start, words.end, id or words.id)

    def _polarity(self, kind: ActKind, words: Mention) -> ActPolarity:
        return polarity(self.sentence, words.start - self.start, words.end - self.start, kind)

    def _medicine(self) -> Iterator[Act]:
        """Medicine that is stopped, kept, changed, given or started."""
        for part in self.words:
            if kind := _HANDLED.get(part):
                for words in self.words[part]:
                    if medicine := self._medicine_of(part, words):
                        yield self._handled(part, kind, words, medicine)
        drugs, verbs = self.words.get("drug", ()), self.words.get("advise", ())
        if drugs or self.has_number:
            for advised in advised_drugs(self.text, self.folded, (self.start, self.end), drugs, verbs, self.about_medicine):
                yield _advised_act(advised)

    def _medicine_of(self, part: str, words: Mention) -> Mention | None:
        """The nearest medicine that the verb can mean; "停药" is its own."""
        if words.id == "stop_medication" or part == "change":
            return words
        medicines = [*self.words.get("drug", ()), *self.words.get("medicine", ())]
        if part == "change_verb" and words.id not in ("kin_drug", "leftover_drug"):
            medicines += self.words.get("change_unit", ())
        near = [
            (m.kind != "drug", max(m.start - words.end, words.start - m.end, 0), m)
            for m in medicines
            if self._joins(part, words, m)
        ]
        return min(near, key=lambda rank: rank[:2])[2] if near else self._unlisted(part, words) or self._referred(part, words)

    def _referred(self, part: str, words: Mention) -> Mention | None:
        """The medicine of the question, which the answer calls "it" or leaves out: "ditch it", "停了吧"."""
        if not self.about_medicine or part == "keep_verb":
            return None
        verb = self.folded[words.start : words.end]
        if part == "change_verb":
            return words if words.id in _REFERRING and not _OTHER_THING.match(self.folded, words.start) else None
        if not verb.isascii():
            return words if words.id != "stop_bare" or _BARE_STOP.match(self.folded, words.start) else None
        own = verb.endswith(_OWN_OBJECT) or _REFERS.search(verb) or _PRONOUN.match(self.folded, words.end, self.end)
        return words if own else None

    def _unlisted(self, part: str, words: Mention) -> Mention | None:
        """A drug that no list has, known by its ending: "azathioprine", "labetalol"."""
        match = _DRUG_ENDING.search(self.folded, words.end, min(self.end, words.end + _REACH[part]))
        medicine = match and Mention("medicine", "unlisted", match.start(), match.end(), match[0], False)
        return medicine if medicine and self._joins(part, words, medicine) else None

    def _joins(self, part: str, words: Mention, medicine: Mention) -> bool:
        """Whether a verb and a medicine belong together: close, and in English the verb first ("stop diarrhea" stops no drug)."""
        verb = self.folded[words.start : words.end]
        if medicine.start >= words.start:
            between = self.folded[words.end : medicine.start]
        elif verb.isascii() and not verb.endswith(("ed", " go")) and words.id != "with_alcohol":
            return False
        else:
            between = self.folded[medicine.end : words.start]
        if words.id in ("stop_bare", "kin_drug"):
            return len(between) <= _NEXT and (words.id != "kin_drug" or medicine.start >= words.start)
        if words.id == "with_alcohol":
            return len(between) <= _REACH[part]
        if verb.isascii():
            return len(between) <= _REACH[part] and not _BREAK.search(between)
        return len(between) <= _REACH_ZH and len(_BREAK.findall(between)) <= (part == "stop_verb")

    def _handled(self, part: str, kind: ActKind, words: Mention, medicine: Mention) -> Act:
        """Stopping, keeping on or changing a medicine. "Keep taking it" is the negation of stopping."""
        tone = self._polarity(kind, words)
        if part == "keep_verb":
            tone = "negated" if tone == "directive" else "reported"
        if tone == "directive" and "defer" in self.words:
            tone = "conditional"  # a doctor decides
        drug = medicine.id if medicine.kind == "drug" else None
        return _act(kind, tone, min(words.start, medicine.start), max(words.end, medicine.end), words.id, drug)

    def _remaining(self, found: Sequence[Act]) -> Iterator[Act]:
        """A question back, or a warning that is about no medicine and no doctor."""
        first, last = self._edges()
        if self.folded[first:last].endswith("?"):
            if not any(act.polarity != "question" for act in found):
                yield _act("asks_back", "directive", first, last, "question")
        elif not any(act.polarity == "negated" for act in found) and (span := find_warning(self.sentence)):
            yield _act("warns_against", "directive", self.start + span[0], self.start + span[1], "warning")

    def likely(self, found: Sequence[Act]) -> Iterator[Act]:
        """What the classifier takes the sentence for, where the word lists found nothing like it."""
        first, last = self._edges()
        guess = classify(self.text[first:last])
        if guess is None:
            return
        name, share = guess
        medicine = self.about_medicine or "medicine" in self.words or "drug" in self.words
        anchored = "emergency_place" in self.words if name == "N" else medicine
        if name == "N" and any(act.polarity == "negated" for act in found):
            return  # "no need to go to hospital" urges nobody
        if anchored and _IN_SENTENCE.search(self.sentence):
            yield _act(KINDS[name], sentence_polarity(self.sentence), first, last, f"{name} {share:.2f}", source="model")

    def _edges(self) -> tuple[int, int]:
        """The sentence without white space around it."""
        size = len(self.sentence)
        return self.start + size - len(self.sentence.lstrip()), self.start + len(self.sentence.rstrip())


def _act(
    kind: ActKind, tone: ActPolarity, start: int, end: int, id: str, drug: str | None = None, source: EvidenceSource = "lexicon"
) -> Act:
    evidence = Evidence.trusted(source=source, id=id, start=start, end=end)
    return Act.trusted(
        kind=kind, polarity=tone, start=start, end=end, drug=drug, amount=None, unit=None, per_day=None, evidence=(evidence,)
    )


def _advised_act(advised: Advised) -> Act:
    drug, dose, per_day = advised.drug, advised.dose, advised.per_day
    evidence = [Evidence.trusted(source="lexicon", id=drug.id, start=drug.start, end=drug.end)] if drug else []
    if dose:
        evidence.append(Evidence.trusted(source="numbers", id="dose", start=dose.start, end=dose.end))
    return Act.trusted(
        kind=advised.kind, polarity=advised.polarity, start=advised.start, end=advised.end, drug=drug.id if drug else None,
        amount=float(dose.amount) if dose else None, unit=dose.unit + PER_DAY * dose.daily if dose else None,
        per_day=float(per_day) if per_day is not None else None, evidence=tuple(evidence),
    )  # fmt: skip


def _distinct(found: list[Act]) -> list[Act]:
    """One act of a kind and polarity in a sentence is enough, except for drugs and doses."""
    if len(found) < 2:
        return found
    first: dict[tuple[object, ...], Act] = {}
    for act in found:
        first.setdefault((act.kind, act.polarity, act.drug, act.amount, act.unit), act)
    return list(first.values())
