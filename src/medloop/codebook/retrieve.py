"""The entries that fit a question, within a budget of tokens: by their triggers, the lexicon's concepts, and likeness of words.

    find = Retriever(live.entries, live.sha256)
    find("我爸嘴角歪了，说话不清楚")            # RulesFound(codebook="sha256:…", rules=(RuleUse(...),))

A rule fits if all its triggers are in the question, as words or as what the lexicon knows under several names in both languages,
or if the question is much like the one it came from. `≈topic` stands for everyday words (lay_words.py) and only
adds questions to those that the other words of its trigger are in. A vetted first sentence
needs more than a rule in the prompt, because it stands in the answer as it is: all triggers or nearly the same question, in the
language of the question. An example fits a question that is like its own and about the same people, danger, illnesses, allergies
and medicine: by words alone, a pregnant woman with hay fever got the example of a child's dose. Where the question has a red
flag, rules that are about something else are not told and say nothing; what they forbid is taken out all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from medloop import lexicon
from medloop.codebook.lay_words import LayTopics, lay_topic, lay_topics
from medloop.codebook.similar import concepts, denied, ngram_vectors
from medloop.contracts import CodebookEntry, Contract, RulesFound, RuleUse, utc_now
from medloop.lexicon.language import asked_in, detect_language
from medloop.models.codebook_prompt import names_only

ALWAYS = "*"  # a trigger that every question has
EMERGENCY = "emergency"  # the scope of rules from such questions
_DOSES = frozenset(("dose", "doses", "dosage", "剂量"))  # a medicine for the lexicon; a trigger on them is about the amount
_BREASTFEEDS = re.compile(r"\bbreast ?-?(?:feed|fed\b|milk)|\bnursing (?:mother|mom|mum|my|a baby)|\blactat|哺乳|母乳|喂奶|奶妈")
_ALLERGY = re.compile(  # and to what
    r"(?P<no>\b(?:no|not|without|any)\b (?:known |drug )*|没有?|无|不)?(?:\ballerg(?:ic|y|ies) to (?:the )?(?P<to>[a-z]+)"
    r"|\b(?P<en>[a-z]+) allerg(?:y|ies)\b|对?(?P<zh>[^，。！？；、：,.\s对没无不]{1,8}?)(?:类药物|类药|类)?过敏)"
)
TOKENS_PER_HANZI, CHARACTERS_PER_TOKEN = 1.0, 4.0  # a rough count, on the safe side for the usual tokenizers


class RetrieveConfig(Contract):
    """Limits of what is put into a prompt."""

    most_rules: int = 4
    most_examples: int = 2
    token_budget: int = 256
    like_question: float = 0.34
    same_question: float = 0.62
    like_example: float = 0.3


@dataclass(frozen=True)
class _Trigger:
    """Alternatives of one trigger: words, concepts of the lexicon that one of them names, or topics in everyday words."""

    words: tuple[str, ...]
    concepts: frozenset[str]
    topics: frozenset[str] = frozenset()
    named: tuple[tuple[str, _Trigger], ...] = ()  # a topic, and words of the lexicon that are it

    def is_in(self, question: AnalyzedQuestion) -> bool:
        if self.topics & question.topics.said:
            return True
        if any(topic not in question.topics.excluded and words.is_in(question) for topic, words in self.named):
            return True  # "am I pregnant?" has the word and not the thing
        if ALWAYS in self.words or self.concepts & question.known:
            return True
        if self.concepts and self.concepts <= question.absent:
            return False
        return any(_has_word(question.folded, word) for word in self.words)


@dataclass(frozen=True)
class AnalyzedQuestion:
    """What the triggers look for in a question; the lexicon reads it once."""

    folded: str
    known: frozenset[str]
    absent: frozenset[str]
    topics: LayTopics

    @classmethod
    def of(cls, text: str) -> AnalyzedQuestion:
        return cls(lexicon.folded(text), concepts(text), denied(text), lay_topics(text))


@dataclass(frozen=True)
class _Subject:
    """Whom and what a question is about, apart from its symptoms."""

    matters: frozenset[str]  # red flags, groups, conditions, allergies, stopping or changing a medicine, everyday topics
    drugs: frozenset[str]  # families

    @classmethod
    def of(cls, question: AnalyzedQuestion) -> _Subject:
        matters = {name for name in question.known if name.startswith(("red_flag:", "group:", "condition:", "act:"))}
        matters |= {"group:breastfeeding"} if _BREASTFEEDS.search(question.folded) else set()
        matters |= _allergies(question.folded)
        drugs = {lexicon.drugs()[name[5:]].family for name in question.known if name.startswith("drug:")}
        return cls(frozenset(matters | question.topics.said), frozenset(drugs))


@dataclass(frozen=True)
class _Example:
    """What an example is about, and whether its answer names a medicine, which another one of the question may not go with."""

    subject: _Subject
    names_medicine: bool

    @classmethod
    def of(cls, entry: CodebookEntry) -> _Example:
        families = {lexicon.drugs()[mention.id].family for mention in lexicon.find_drugs(entry.text)}
        return cls(_Subject.of(AnalyzedQuestion.of(entry.content.question)), bool(families - {"any"}))

    def may_guide(self, asked: _Subject) -> bool:
        """Whether it may stand before such a question, which may be about more medicines if the answer names none."""
        more = asked.drugs - self.subject.drugs
        same = self.subject.matters == asked.matters and self.subject.drugs <= asked.drugs
        return same and not (more - {"any"} and self.names_medicine)


def _allergies(folded: str) -> set[str]:
    found = (match for match in _ALLERGY.finditer(folded) if match["no"] is None)
    return {f"allergy:{name}" for match in found if (name := match["to"] or match["en"] or match["zh"])}


@dataclass(frozen=True)
class Fit:
    """How well an entry fits: whether all its triggers are there, and how like the question is to its own."""

    entry: CodebookEntry
    triggered: bool
    likeness: float

    @property
    def score(self) -> float:
        return float(self.triggered) + self.likeness


@dataclass
class Retriever:
    """The entries of one version of the codebook, ready to be asked."""

    entries: Sequence[CodebookEntry]
    sha256: str
    config: RetrieveConfig = field(default_factory=RetrieveConfig)

    def __post_init__(self) -> None:
        self._triggers = [tuple(map(_trigger, entry.content.triggers)) for entry in self.entries]
        lines = [(index, line) for index, entry in enumerate(self.entries) for line in questions_of(entry)]
        self._owners = np.array([index for index, _ in lines], dtype=np.intp)
        self._vectors = ngram_vectors([line for _, line in lines])
        examples = [(index, entry) for index, entry in enumerate(self.entries) if entry.kind == "example"]
        self._examples = {index: _Example.of(entry) for index, entry in examples}

    def __call__(self, question: str, /) -> RulesFound:
        read = AnalyzedQuestion.of(question)
        fits = self.fits(question, read)
        language, emergency = detect_language(question), _has_red_flag(read.known)
        uses: list[RuleUse] = []
        budget = self.config.token_budget
        most = {"rule": self.config.most_rules, "example": self.config.most_examples}
        for fit in fits:
            text = shown_text(fit.entry)
            cost = token_count(text)
            if fit.entry.kind not in most or most[fit.entry.kind] <= 0 or cost > budget:
                continue
            if names_only(text, fit.entry.content.first_sentence) and language not in (fit.entry.language, "mixed"):
                continue  # a sentence in another language than the question's
            told = not emergency or _holds_in_emergency(fit.entry)
            forbids = fit.entry.content.forbids if self._enforces(fit) else ()
            if not told and not forbids:
                continue
            most[fit.entry.kind] -= 1
            budget -= cost
            may_speak = told and self._may_speak(fit, language)
            sentence = fit.entry.content.first_sentence if may_speak else ""
            answer = self._answer(fit, question) if may_speak else ""
            uses.append(
                RuleUse(rule_id=fit.entry.entry_id, text=text, first_sentence=sentence, forbids=forbids, answer=answer, told=told)
            )
        return RulesFound(codebook=self.sha256, rules=tuple(uses), system=self.system)

    @property
    def system(self) -> str:
        """The system prompt of the codebook; empty where it has none."""
        now = utc_now()
        return next((entry.text for entry in self.entries if entry.kind == "prompt" and not entry.is_expired(now)), "")

    def fits(self, question: str, read: AnalyzedQuestion | None = None) -> list[Fit]:
        """The rules and examples that fit, best first; rules before examples."""
        read = read or AnalyzedQuestion.of(question)
        likeness = np.zeros(len(self.entries), np.float32)
        np.maximum.at(likeness, self._owners, self._vectors @ ngram_vectors([question])[0])
        fits, now, language, subject = [], utc_now(), asked_in(question), _Subject.of(read)
        for index, (entry, triggers, like) in enumerate(zip(self.entries, self._triggers, likeness, strict=True)):
            if entry.kind == "prompt" or entry.is_expired(now):
                continue
            if index in self._examples and not self._examples[index].may_guide(subject):
                continue
            if "other_language" in entry.content.forbids and entry.language != language:
                continue  # a corrected language is one of questions in it; Chinese with foreign words is Chinese
            triggered = bool(triggers) and all(trigger.is_in(read) for trigger in triggers)
            if triggered or like >= self._least(entry):
                fits.append(Fit(entry, triggered, float(like)))
        return sorted(fits, key=lambda fit: (fit.entry.kind != "rule", -fit.score, fit.entry.entry_id))

    def _least(self, entry: CodebookEntry) -> float:
        """How like a question has to be without the triggers; a rule with triggers says itself when it holds."""
        if entry.kind == "example":
            return self.config.like_example
        return self.config.same_question if entry.content.triggers else self.config.like_question

    def _may_speak(self, fit: Fit, language: str) -> bool:
        return (fit.entry.language == language or language == "mixed") and self._enforces(fit)

    def _enforces(self, fit: Fit) -> bool:
        """Whether a rule may change the answer; standing in the prompt needs less."""
        return fit.triggered or fit.likeness >= self.config.same_question

    def _answer(self, fit: Fit, question: str) -> str:
        """The expert's answer to nearly this question, about the same things; an answer to another one could harm."""
        lines, answers = questions_of(fit.entry), fit.entry.content.answers
        if fit.likeness < self.config.same_question or len(lines) != len(answers):
            return ""
        likeness = ngram_vectors(lines) @ ngram_vectors([question])[0]
        best = int(likeness.argmax())
        return answers[best] if concepts(lines[best]) == concepts(question) else ""


def _has_red_flag(known: frozenset[str]) -> bool:
    return any(concept.startswith("red_flag:") for concept in known)


def _holds_in_emergency(entry: CodebookEntry) -> bool:
    """Whether a rule may guide an answer to an emergency: it is from one, is about the language, or is for every question.

    Told of a child's dose, a small model forgot the swollen throat (docs/log.md#repair). What it forbids stays forbidden.
    """
    content = entry.content
    if entry.scope == EMERGENCY or "other_language" in content.forbids or ALWAYS in content.triggers:
        return True
    return any(_has_red_flag(concepts(line)) for line in questions_of(entry))


def questions_of(entry: CodebookEntry) -> list[str]:
    """The questions that an entry comes from: one a line."""
    return [line for line in entry.content.question.splitlines() if line.strip()]


def shown_text(entry: CodebookEntry) -> str:
    """An entry as it stands in a prompt, on one line."""
    if entry.kind != "example":
        return " ".join(entry.text.split())
    question, answer = questions_of(entry)[0], " ".join(entry.text.split())
    if entry.language == "zh":
        return f"示例。问：{question} 答：{answer}"
    return f"Example. Question: {question} Answer: {answer}"


def token_count(text: str) -> int:
    hanzi = len(re.findall(r"[\u3000-\u9fff\uff00-\uffef]", text))
    return int(hanzi * TOKENS_PER_HANZI + (len(text) - hanzi) / CHARACTERS_PER_TOKEN) + 1


def fitting_words(question: str, entry: CodebookEntry) -> bool:
    """Whether a question has all triggers of an entry."""
    triggers = tuple(map(_trigger, entry.content.triggers))
    read = AnalyzedQuestion.of(question)
    return bool(triggers) and all(trigger.is_in(read) for trigger in triggers)


def has_words(text: str, words: str) -> bool:
    """Whether a text names one of `a|b`, under any name that the lexicon knows for it, and does not only deny it."""
    return _trigger(words).is_in(AnalyzedQuestion.of(text))


def _trigger(text: str) -> _Trigger:
    topics = [topic for word in text.split("|") if (topic := lay_topic(word)) is not None]
    words = tuple(word.strip() for word in text.split("|") if word.strip() and lay_topic(word) is None)
    named = frozenset().union(*(concepts(word) or _by_name(word) for word in words if lexicon.folded(word) not in _DOSES))
    by_topic = tuple((topic.id, _trigger("|".join(topic.named))) for topic in topics if topic.named)
    ids = frozenset(topic.id for topic in topics)
    return _Trigger(tuple(lexicon.folded(word) for word in words), named | _members(named), ids, by_topic)


def _members(named: frozenset[str]) -> frozenset[str]:
    """The drugs of the families that are named: "antibiotics" are amoxicillin, too."""
    drugs = lexicon.drugs()
    families = {drugs[name[5:]].family for name in named if name.startswith("drug:") and drugs[name[5:]].family_word}
    return frozenset(f"drug:{drug.id}" for drug in drugs.values() if drug.family in families - {"any"})


def _by_name(word: str) -> frozenset[str]:
    """The red flag or drug that has this name in the lexicon, although its patterns do not read it ("stroke signs")."""
    wanted = lexicon.folded(word)
    flags = {f"red_flag:{entry.id}" for entry in lexicon.red_flags() if wanted in (entry.zh_name.lower(), entry.en_name.lower())}
    return frozenset(flags | ({f"drug:{wanted}"} if wanted in lexicon.drugs() else set()))


def _has_word(folded: str, word: str) -> bool:
    if re.search(r"[a-z0-9]", word):
        return re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", folded) is not None
    return word in folded
