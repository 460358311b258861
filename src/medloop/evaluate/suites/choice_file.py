"""Multiple-choice questions from files of several public forms, as JSON lines, gzipped or not.

MedQA       {"question", "options": {"A": "…", …}, "answer_idx": "C"}
CMExam      {"question", "options": {"A": "…", …}, "answer": "C"}
SafetyBench {"question", "options": ["…", …], "answer_index": 1}
PubMedQA    {"question", "contexts": ["…", …], "label": "yes" | "no" | "maybe"}

`id`, `lang` and `subject` (or `category`, `meta_info`) are optional. A bad row is an InputError with file and line; it never
quotes the text. A question with several right answers ("ABD") cannot be scored by one choice; it is left out and counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from medloop.errors import InputError
from medloop.lexicon.language import detect_language
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import refuse_duplicate

LABELS = ("yes", "no", "maybe")
SUBJECTS = ("subject", "category", "meta_info")
FORM = 'Lines look like {"question": ..., "options": {"A": ..., "B": ...}, "answer": "A"}; the manual lists other forms'


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question with its options; `answer` is the index of the right one. Options without letters are yes, no, maybe."""

    id: str
    question: str
    options: tuple[str, ...]
    answer: int
    language: str
    letters: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChoiceFile:
    """What a file holds; `several_answers` counts the questions that were left out because more than one option is right."""

    questions: tuple[ChoiceQuestion, ...]
    several_answers: int


class _BadRow(Exception):
    """What is wrong with a row, without its text."""


class _SeveralAnswers(Exception):
    pass


def read_choice_file(path: Path) -> ChoiceFile:
    """Every question of the file; InputError with the line of the first bad row, or if there is none at all."""
    questions, several, first_lines = [], 0, dict[str, int]()
    for number, row in jsonl.numbered(path):
        try:
            question = _question(row, number)
        except _SeveralAnswers:
            several += 1
            continue
        except _BadRow as problem:
            raise InputError.at(path, number, str(problem), FORM) from None
        refuse_duplicate(first_lines, question.id, path, number)
        questions.append(question)
    if not questions:
        raise InputError(f"{path} has no multiple-choice questions with one right answer", FORM)
    return ChoiceFile(tuple(questions), several)


def _question(row: Mapping[str, Any], number: int) -> ChoiceQuestion:
    text = _text(row, "question")
    letters, options = _options(row)
    subject = next((str(row[name]) for name in SUBJECTS if row.get(name)), None)
    return ChoiceQuestion(
        id=str(row.get("id") or f"line-{number}"), question=text, options=options, answer=_answer(row, letters, options),
        language=str(row.get("lang") or row.get("language") or detect_language(text)), letters=letters,
        contexts=_contexts(row), strata=(f"subject:{subject}",) if subject else (),
    )  # fmt: skip


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _BadRow(f"'{name}' is not a text")
    return value.strip()


def _options(row: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The letters of the options, and their texts; yes, no and maybe have no letters."""
    options = row.get("options")
    if options is None and ("label" in row or "final_decision" in row):
        return (), LABELS
    if isinstance(options, list):
        options = dict(zip(ascii_uppercase, options, strict=False)) if len(options) <= len(ascii_uppercase) else None
    if not isinstance(options, Mapping) or len(options) < 2:
        raise _BadRow("'options' is not a list or an object of two or more texts")
    texts = tuple(value.strip() if isinstance(value, str) else "" for value in options.values())
    if not all(texts):
        raise _BadRow(f"option {list(options)[texts.index('')]} is not a text")
    return tuple(map(str, options)), texts


def _answer(row: Mapping[str, Any], letters: tuple[str, ...], options: tuple[str, ...]) -> int:
    """The index of the right option: a number, a letter, or the option's text."""
    index = row.get("answer_index")
    if index is not None:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(options):
            raise _BadRow(f"'answer_index' is not a number from 0 to {len(options) - 1}")
        return index
    names = ("answer_idx", "answer") if letters else ("label", "final_decision")
    name = next((name for name in names if row.get(name) is not None), names[-1])
    answer = str(row.get(name, "")).strip()
    if answer in letters:
        return letters.index(answer)
    if options.count(answer) == 1:
        return options.index(answer)
    marked = answer.replace(",", "").replace(" ", "")
    if len(marked) > 1 and len(set(marked)) == len(marked) and set(marked) <= set(letters):
        raise _SeveralAnswers
    raise _BadRow(f"'{name}' names none of the options")


def _contexts(row: Mapping[str, Any]) -> tuple[str, ...]:
    contexts = row.get("contexts") or ()
    if isinstance(contexts, str):
        contexts = [contexts]
    if not isinstance(contexts, list | tuple) or not all(isinstance(text, str) for text in contexts):
        raise _BadRow("'contexts' is not a list of texts")
    return tuple(contexts)
