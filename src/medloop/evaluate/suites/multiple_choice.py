"""Multiple choice by log-likelihood: the model "chooses" the option that it finds most likely after the question.

    --suite multiple_choice=medqa_test.jsonl.gz

`accuracy` compares the summed log-likelihoods of the options' texts after "Question: …\\nAnswer:", `accuracy_norm` divides them
by the option's bytes (UTF-8), because a sum favours short options, and `accuracy_letter` lists the options in the prompt and
compares their letters. The values are those of lm-evaluation-harness (`acc`, `acc_bytes`, and `acc` of a task with letters).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from medloop.contracts import Missing, Score
from medloop.contracts.suite import LogLikelihood, SuiteCase, SuiteConfig, SuiteMetric, SuiteModel, SuiteProgress, SuiteResult
from medloop.errors import ConfigError, InputError
from medloop.evaluate.suites.answering import NO_ANSWER, draw, missing_notes
from medloop.evaluate.suites.choice_file import ChoiceQuestion, read_choice_file
from medloop.evaluate.suites.scoring import SuiteScorer
from medloop.store.files.atomic import file_sha256

ACCURACY, NORM, LETTER = "accuracy", "accuracy_norm", "accuracy_letter"


class Choices(NamedTuple):
    """A prompt and what may follow it, one continuation per option."""

    prompt: str
    continuations: tuple[str, ...]


def text_choices(question: ChoiceQuestion) -> Choices:
    """The options' texts after the question."""
    if question.language == "zh":
        return Choices(f"{_context(question)}问题：{question.question}\n答案：", question.options)
    return Choices(f"{_context(question)}Question: {question.question}\nAnswer:", tuple(f" {text}" for text in question.options))


def letter_choices(question: ChoiceQuestion) -> Choices:
    """The letters after the question and its options."""
    listed = "".join(f"{letter}. {text}\n" for letter, text in zip(question.letters, question.options, strict=True))
    if question.language == "zh":
        return Choices(f"{_context(question)}问题：{question.question}\n{listed}答案：", question.letters)
    letters = tuple(f" {letter}" for letter in question.letters)
    return Choices(f"{_context(question)}Question: {question.question}\n{listed}Answer:", letters)


def _context(question: ChoiceQuestion) -> str:
    if not question.contexts:
        return ""
    return f"{'摘要：' if question.language == 'zh' else 'Abstract: '}{chr(10).join(question.contexts)}\n"


class MultipleChoice:
    """A suite over one file of questions."""

    name, version = "multiple_choice", "1"
    scorer = SuiteScorer(name, version)
    metrics = (SuiteMetric(name=ACCURACY), SuiteMetric(name=NORM), SuiteMetric(name=LETTER))

    def __init__(self, path: Path | None) -> None:
        if path is None:
            raise InputError(
                "The suite multiple_choice has no questions of its own", "Name a file of them: --suite multiple_choice=FILE"
            )
        self.path, self.file = path, read_choice_file(path)

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult:
        questions = draw(self.file.questions, config)
        cases: list[SuiteCase] = []
        for start in range(0, len(questions), config.batch_size):
            cases += self._examine(model, questions[start : start + config.batch_size])
            progress(len(cases), len(questions))
        return SuiteResult(
            suite=self.name, version=self.version, metrics=self.metrics, cases=tuple(cases), baselines=_baselines(questions),
            inputs={self.path.name: file_sha256(self.path)}, notes=self._notes(cases),
        )  # fmt: skip

    def _examine(self, model: SuiteModel, questions: Sequence[ChoiceQuestion]) -> list[SuiteCase]:
        choices = [text_choices(question) for question in questions]
        choices += [letter_choices(question) for question in questions if question.letters]
        pairs = [(choice.prompt, continuation) for choice in choices for continuation in choice.continuations]
        try:
            remaining = iter(model.log_likelihoods(pairs))
        except ConfigError as error:  # a model behind a URL
            return [self._unread(question, str(error)) for question in questions]
        by_choice = [[next(remaining) for _ in choice.continuations] for choice in choices]
        texts, letters = by_choice[: len(questions)], iter(by_choice[len(questions) :])
        return [
            self._case(question, text, next(letters) if question.letters else None)
            for question, text in zip(questions, texts, strict=True)
        ]

    def _case(
        self, question: ChoiceQuestion, texts: Sequence[LogLikelihood], letters: Sequence[LogLikelihood] | None
    ) -> SuiteCase:
        totals = [likelihood.total for likelihood in texts]
        per_byte = [total / len(option.encode()) for total, option in zip(totals, question.options, strict=True)]
        scores = [self._score(ACCURACY, question, texts, totals), self._score(NORM, question, texts, per_byte)]
        if letters is not None:
            scores.append(self._score(LETTER, question, letters, [likelihood.total for likelihood in letters]))
        return _case(question, scores)

    def _unread(self, question: ChoiceQuestion, reason: str) -> SuiteCase:
        metrics = (ACCURACY, NORM, LETTER) if question.letters else (ACCURACY, NORM)
        return _case(question, [self.scorer.missing(metric, reason) for metric in metrics])

    def _score(
        self, metric: str, question: ChoiceQuestion, likelihoods: Sequence[LogLikelihood], values: Sequence[float]
    ) -> Score | Missing:
        if any(likelihood.truncated for likelihood in likelihoods):
            return self.scorer.missing(metric, NO_ANSWER)
        chosen = values.index(max(values))  # the first of equal ones, as in lm-evaluation-harness
        names, right = question.letters or question.options, question.answer
        reason = f"it chose {names[chosen]} ({values[chosen]:.3f}); {names[right]} is right ({values[right]:.3f})"
        return self.scorer.score(metric, float(chosen == right), reason)

    def _notes(self, cases: Sequence[SuiteCase]) -> tuple[str, ...]:
        notes = missing_notes(cases, ACCURACY)
        if self.file.several_answers:
            notes.append(f"{self.file.several_answers} questions of the file have several right answers and were left out.")
        return tuple(notes)


def _case(question: ChoiceQuestion, scores: Sequence[Score | Missing]) -> SuiteCase:
    return SuiteCase(
        id=question.id, question=question.question, language=question.language, strata=question.strata, scores=tuple(scores)
    )


def _baselines(questions: Sequence[ChoiceQuestion]) -> dict[str, dict[str, float]]:
    """What guessing gets, and what always choosing the most frequent right option gets."""
    baselines = {}
    for metric, asked in ((ACCURACY, questions), (NORM, questions), (LETTER, [q for q in questions if q.letters])):
        if asked:
            most_frequent = Counter(question.answer for question in asked).most_common(1)[0][1]
            baselines[metric] = {
                "random": sum(1 / len(question.options) for question in asked) / len(asked),
                "majority": most_frequent / len(asked),
            }  # fmt: skip
    return baselines
