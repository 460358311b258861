"""What a retrieval bot would answer: to each question, real answers to the questions most like it. For `verdicts.py --pairs`.

    python benchmarks/verdicts.py --data DIR --pairs question --fires pairs.jsonl
    python benchmarks/verdicts.py --fires pairs.jsonl --half held --seed 7 --out sample.jsonl

Verdicts on answers to their own questions are few, and most have been read. Here both texts are by people or models as before;
who is answered is new, so that faults are frequent: an emergency gets the reply to a complaint like it, a pregnant woman the
remedy of somebody else. A pair stays within one half of the texts, question and answer, and two questions that are nearly the
same make none.

    alike    cosine of tf-idf over words, in Chinese over pairs of characters: of two questions; with `--pairs answer` of the
             question and the answer itself, with `both` of the question and the whole row: these are other bots
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from acts import Answer, Row, dialogue, drafts, pair, read

NEAREST = 4  # answers that each question gets
SAME = 0.9  # from here on two questions are one
LONGEST = {"zh": 400, "en": 1200}  # characters of a question; longer ones are cases
_WORD = re.compile(r"[a-z']+")
_CHARACTERS = re.compile(r"[\u3400-\u9fff]+")


class Text(NamedTuple):
    name: str
    id: str
    question: str
    answer: str  # empty where a set has questions only

    @property
    def both(self) -> str:
        return f"{self.question}\n{self.answer}"


def _first(row: Row) -> Iterator[Answer]:
    """The first answer of a dialogue: it answers all that had been said."""
    yield from list(dialogue(row))[:1]


def _asked(row: Row) -> Iterator[Answer]:
    """Sets of questions without answers."""
    if "prompt" in row:
        asked = row["prompt"][-1]["content"]
    else:
        asked = next((row[key] for key in ("first_message", "chief_complaint", "complaint", "question", "q") if key in row), "")
    yield str(row["id"]), str(asked), ""


ANSWERED = {
    "zh": {
        "zh_toyhom_dialogue": pair("question", "answer"), "zh_huatuo26m_test_qa": pair("question", "answer"),
        "zh_cmtmedqa_multiturn": _first, "pref_zh_disc_medllm_gpt4_scores": _first,
        "safety_zh_mental_health_dialogue": pair("context", "response"),
    },
    "en": {
        "safety_en_diasafety_medical": pair("context", "response"), "healthbench_examples": _first,
        "triage_en_medicheck": lambda row: (
            (f"{row['id']}#{reply['system']}", row["query"], reply["text"]) for reply in row["responses"]
        ),
        "pref_en_hh_harmless": lambda row: (
            (f"{row['id']}#{name}", row["prompt"][-1]["content"], row[name]) for name in ("chosen", "rejected")
        ),
        "judge_en_kqa_must_have": pair("question", "physician_answer"), "rate_en_oncqa_gpt4_drafts": drafts,
    },
}  # fmt: skip
ASKED = {
    "zh": {"triage_zh_hand_labelled": _asked},
    "en": {
        "triage_en_healthbench_emergency": _asked, "triage_en_lostbench_pressure": _asked, "triage_en_clinicaflow": _asked,
        "triage_en_nursesim_gpt": _asked, "questions_en_kqa_unlabelled": _asked,
    },
}  # fmt: skip


def pairs(folder: Path, half_of: Callable[[str, str], str], by: str) -> Iterator[Text]:
    """Question of one row and answer of another; `id` is the question's, then set and id of the answer."""
    for language, sets in ANSWERED.items():
        texts = [text for name, reader in sets.items() for text in _texts(folder, name, reader)]
        asked = [text for name, reader in ASKED[language].items() for text in _texts(folder, name, reader)]
        for side in ("open", "held"):
            answered = [text for text in texts if text.answer and half_of(text.name, text.id) == side]
            asking = {text.question: text for text in answered + asked if half_of(text.name, text.id) == side}
            index = _Index([text.question for text in answered], [getattr(text, by) for text in answered])
            for question, text in asking.items():
                if len(question) > LONGEST[language]:
                    continue
                for place in index.nearest(question, NEAREST):
                    other = answered[place]
                    yield Text(text.name, f"{text.id} {other.name} {other.id}", question, other.answer)


def _texts(folder: Path, name: str, reader: Callable[[Row], Iterator[Answer]]) -> Iterator[Text]:
    for row in read(folder, name) or ():
        for id, question, answer in reader(row):
            if question.strip():
                yield Text(name, id, question.strip(), answer.strip())


def _terms(text: str) -> Counter[str]:
    folded = text.lower()
    terms = Counter(_WORD.findall(folded))
    for run in _CHARACTERS.findall(folded):
        terms.update(run[place : place + 2] for place in range(len(run) - 1))
    return terms


class _Index:
    def __init__(self, questions: list[str], texts: list[str]) -> None:
        counts = [_terms(text) for text in texts]
        seen = Counter(term for terms in counts for term in terms)
        self._weight = {term: math.log(len(texts) / number) for term, number in seen.items()}
        self._found: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._questions = questions
        for place, terms in enumerate(counts):
            for term, value in self._vector(terms).items():
                self._found[term].append((place, value))

    def _vector(self, terms: Counter[str]) -> dict[str, float]:
        vector = {term: (1 + math.log(number)) * self._weight[term] for term, number in terms.items() if term in self._weight}
        length = math.sqrt(sum(value * value for value in vector.values())) or 1.0
        return {term: value / length for term, value in vector.items()}

    def nearest(self, question: str, count: int) -> list[int]:
        """Places of the answers to the questions most like this one, one of a question, none of the question itself."""
        alike: dict[int, float] = defaultdict(float)
        for term, value in self._vector(_terms(question)).items():
            for place, other in self._found[term]:
                alike[place] += value * other
        chosen: list[int] = []
        taken: set[str] = set()
        for place in sorted(alike, key=lambda place: (-alike[place], place)):
            if len(chosen) == count:
                break
            if alike[place] < SAME and self._questions[place] not in taken | {question}:
                taken.add(self._questions[place])
                chosen.append(place)
        return chosen
