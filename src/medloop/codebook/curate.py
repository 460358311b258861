"""The curator: is a proposal new, does an entry say it already, does it contradict one?

    placed = place(draft, others)        # Placement(action="update", target=…, likeness=0.94)
    conflicts(entry, live)               # what contradicts it: [RuleConflict(entry_id, reason)]

Two rules say the same if their words do (by n-grams, and by a sentence encoder where one is given). Two rules contradict each
other if both can fit one question and one says do what the other says not to do, or if they put different sentences first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from medloop import lexicon
from medloop.codebook.retrieve import ALWAYS, fitting_words, questions_of
from medloop.codebook.similar import Embed, concepts, ngram_vectors
from medloop.contracts import CodebookEntry, EntryText
from medloop.lexicon.language import detect_language

SAME_WORDS = 0.86  # cosine of n-grams from which two rules say the same
SAME_MEANING = 0.93  # the same for a sentence encoder
ABOUT_THE_SAME = 0.55  # cosine, without words of negation, from which "do" and "do not" are about one thing
MOST_QUESTIONS = 20  # that one entry remembers
_NOT = re.compile(
    r"\b(?:do not|don't|never|avoid|must not|should not|shouldn't|not to|no longer|refrain from|without)\b"
    r"|不要|不应|不得|不能|不可|禁止|避免|切勿|别|勿"
)
Action = Literal["add", "update", "merge"]


@dataclass(frozen=True)
class Placement:
    """`update`: the same words again, with new evidence. `merge`: an entry that says the same in other words."""

    action: Action
    target: CodebookEntry | None = None
    likeness: float = 0.0


@dataclass(frozen=True)
class RuleConflict:
    entry_id: str
    reason: Literal["do and do not", "another first sentence", "another system prompt"]


def place(draft: EntryText, kind: str, scope: str, others: Sequence[CodebookEntry], embed: Embed | None = None) -> Placement:
    """Where a draft belongs among live and proposed entries of its kind and scope."""
    alike = [entry for entry in others if entry.kind == kind and (entry.scope == scope or _same_effect(draft, entry))]
    if not alike or kind == "prompt":
        return Placement("add")
    words = _words(draft.text)
    for entry in alike:
        if _words(entry.text) == words and (kind == "rule" or questions_of(entry)[:1] == [draft.question]):
            return Placement("update", entry, 1.0)
    if kind != "rule":
        return Placement("add")
    for entry in alike:
        if _same_effect(draft, entry):
            return Placement("merge", entry, 1.0)
    texts = [draft.text, *(entry.text for entry in alike)]
    vectors = ngram_vectors(texts)
    scores = vectors[1:] @ vectors[0]
    best = int(scores.argmax())
    if scores[best] >= SAME_WORDS and _polarity(texts[0]) == _polarity(texts[best + 1]):
        return Placement("merge", alike[best], float(scores[best]))
    if embed is not None:
        vectors = embed(texts)
        meaning = vectors[1:] @ vectors[0]
        best = int(meaning.argmax())
        same_language = detect_language(texts[0]) == detect_language(texts[best + 1])
        if meaning[best] >= SAME_MEANING and same_language and _polarity(texts[0]) == _polarity(texts[best + 1]):
            return Placement("merge", alike[best], float(meaning[best]))
    return Placement("add")


def _same_effect(draft: EntryText, entry: CodebookEntry) -> bool:
    """Whether a draft and a rule do the same to an answer in one language: the same vetted sentence, or for the same questions
    the same changes of acts. Several corrections of one mistake are one rule."""
    theirs = entry.content
    chinese = detect_language(draft.question or draft.text) in ("zh", "mixed")
    if entry.kind != "rule" or (entry.language == "zh") != chinese:
        return False
    if draft.first_sentence and _words(draft.first_sentence) == _words(theirs.first_sentence):
        return True
    if draft.first_sentence and not (theirs.first_sentence or theirs.expects or theirs.forbids):
        if any(theirs.answers) and all(draft.first_sentence in answer for answer in theirs.answers):
            return True  # what was not clear from the earlier corrections alone
    return bool(draft.triggers and draft.triggers == theirs.triggers and set(draft.expects) & set(theirs.expects))


def merged(target: EntryText, draft: EntryText) -> EntryText:
    """The target with what the draft knows: its questions and answers, what it forbids, and the triggers that both have. The
    words stay the target's, unless the draft says it for the same questions as both."""
    questions = list(dict.fromkeys([*target.question.splitlines(), *draft.question.splitlines()]))
    answers = _answers_by_question(target) | _answers_by_question(draft)
    triggers = _common_triggers(target.triggers, draft.triggers)
    return target.model_copy(
        update={
            "question": "\n".join(questions[-MOST_QUESTIONS:]), "triggers": triggers,
            "first_sentence": _commoner_sentence(target, draft, list(answers.values())),
            "text": draft.text if triggers == draft.triggers != target.triggers else target.text,
            "forbids": tuple(dict.fromkeys([*target.forbids, *draft.forbids])),
            "answers": tuple(answers.get(line, "") for line in questions[-MOST_QUESTIONS:]) if any(answers.values()) else (),
            "expects": tuple(dict.fromkeys([*target.expects, *draft.expects])),
        }
    )  # fmt: skip


def _commoner_sentence(target: EntryText, draft: EntryText, answers: Sequence[str]) -> str:
    """Of both vetted sentences the one that more experts said: what stood in one correction by chance gives way."""
    ours, theirs = target.first_sentence, draft.first_sentence
    if not ours or not theirs:
        return ours or theirs
    return theirs if sum(theirs in answer for answer in answers) > sum(ours in answer for answer in answers) else ours


def _answers_by_question(content: EntryText) -> dict[str, str]:
    lines = content.question.splitlines()
    return dict(zip(lines, content.answers, strict=True)) if len(lines) == len(content.answers) else {}


def _common_triggers(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """What both kinds of question have: corrections of one mistake in several illnesses are about none of them. Without anything
    in common, one of the two."""
    if ours == theirs or not theirs:
        return ours
    if common := tuple(trigger for trigger in ours if trigger in theirs):
        return common
    if len(ours) == len(theirs) == 1:
        return ("|".join(dict.fromkeys([*ours[0].split("|"), *theirs[0].split("|")])),)
    return ours


def conflicts(entry: CodebookEntry, live: Iterable[CodebookEntry]) -> list[RuleConflict]:
    """The live entries that contradict this one; those that it replaces do not count."""
    found = []
    for other in live:
        if other.entry_id == entry.entry_id or other.entry_id in entry.supersedes or other.kind != entry.kind:
            continue
        if entry.kind != "rule" or not may_meet(entry, other):
            continue
        if _contradict(entry.text, other.text):
            found.append(RuleConflict(other.entry_id, "do and do not"))
        elif _other_sentence(entry, other):
            found.append(RuleConflict(other.entry_id, "another first sentence"))
    return found


def may_meet(entry: CodebookEntry, other: CodebookEntry) -> bool:
    """Whether one question can have both: the same triggers in part, or one fits the questions of the other."""
    ours, theirs = set(_alternatives(entry)), set(_alternatives(other))
    if ours & theirs or ALWAYS in ours | theirs:
        return True
    if any(fitting_words(question, other) for question in questions_of(entry)):
        return True
    if any(fitting_words(question, entry) for question in questions_of(other)):
        return True
    lines = [*questions_of(entry), *questions_of(other)]
    if len(lines) < 2 or entry.scope != other.scope:
        return False
    vectors, split = ngram_vectors(lines), len(questions_of(entry))
    return bool(split and split < len(lines) and (vectors[:split] @ vectors[split:].T).max() >= ABOUT_THE_SAME)


def _alternatives(entry: CodebookEntry) -> list[str]:
    return [lexicon.folded(word.strip()) for trigger in entry.content.triggers for word in trigger.split("|")]


def _other_sentence(entry: CodebookEntry, other: CodebookEntry) -> bool:
    ours, theirs = entry.content.first_sentence, other.content.first_sentence
    return bool(ours and theirs and entry.language == other.language and _words(ours) != _words(theirs))


def _contradict(first: str, second: str) -> bool:
    """One says do, the other do not, about the same thing: the same drug, urgent care, or nearly the same words."""
    for find in (lexicon.find_drugs, lexicon.find_urgent_advice):
        ours, theirs = _signs(find(first), find is lexicon.find_drugs), _signs(find(second), find is lexicon.find_drugs)
        if any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys()):
            return True
    if _polarity(first) == _polarity(second):
        return False
    vectors = ngram_vectors([_NOT.sub(" ", first.lower()), _NOT.sub(" ", second.lower())])
    return float(vectors[0] @ vectors[1]) >= ABOUT_THE_SAME or (
        bool(concepts(first)) and concepts(first) == concepts(second) and float(vectors[0] @ vectors[1]) >= ABOUT_THE_SAME / 2
    )


def _signs(mentions: Iterable[lexicon.Mention], by_id: bool) -> dict[str, bool]:
    return {mention.id if by_id else "urgent": mention.negated for mention in mentions}


def _polarity(text: str) -> bool:
    return _NOT.search(text.lower()) is not None


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
