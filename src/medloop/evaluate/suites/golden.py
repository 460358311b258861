"""Golden answers: how close does the model come to what an expert wrote?

    token_f1    F1 of shared tokens, counted with repetition (SQuAD)
    rouge_l     F1 of the longest common subsequence of tokens (ROUGE-L)
    embedding   cosine of the sentence encoder, where one is installed and reads the language

Tokens are lower-case words in Latin letters, numbers, and single characters in Chinese. Only what the patient sees is compared.
Of several golden answers to one question the closest counts. Similarity is not correctness: a good answer in other words scores
low, and one wrong number in the right sentence scores high. Use it to see whether a correction was learnt.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medloop.contracts import (
    Completion,
    Contract,
    Message,
    Missing,
    Score,
    SuiteCase,
    SuiteConfig,
    SuiteMetric,
    SuiteModel,
    SuiteResult,
)
from medloop.contracts.base import Text
from medloop.contracts.suite import SuiteProgress
from medloop.errors import InputError
from medloop.evaluate.suites.answering import answer_all, answer_of, draw, missing_notes, why_missing
from medloop.evaluate.suites.case_rows import StrataOf, case_rows, language_of, strata_of_row, user_text

VERSION = "1"
LOOKS_LIKE = '{"id": ..., "question": ..., "golden": ...}'
GOLDEN = ("golden", "reference", "ideal_completion", "physician_answer", "answer")
WORDS = (SuiteMetric(name="token_f1"), SuiteMetric(name="rouge_l"))
EMBEDDING = SuiteMetric(name="embedding")
NO_ENCODER = "No sentence encoder is installed, so answers are compared by shared words only, which know no synonyms."
_TOKEN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+(?:\.\d+)?")
_MOST = 2000  # tokens of one text: the table of the longest common subsequence grows with the square


class GoldenCase(Contract):
    id: Text
    messages: tuple[Message, ...]
    golden: tuple[Text, ...]
    language: Text
    strata: tuple[Text, ...] = ()

    @property
    def question(self) -> str:
        return user_text(self.messages)


Similarity = Callable[[Sequence[tuple[str, str]]], list[float | None]]  # None: the encoder does not read this language


def read_golden_cases(path: Path, strata_of: StrataOf) -> list[GoldenCase]:
    """The cases of a file; a golden answer stands in `golden`, `reference` or `answer`, as a text or a list of texts."""
    return list(_read(path, strata_of))


def _read(path: Path, strata_of: StrataOf) -> Iterator[GoldenCase]:
    for number, name, messages, row in case_rows(path, LOOKS_LIKE):
        given = next((row[field] for field in GOLDEN if row.get(field)), ())
        golden = tuple(str(text) for text in ([given] if isinstance(given, str) else given) if str(text).strip())
        if not golden:
            raise InputError.at(path, number, "no golden answer", f"Lines look like {LOOKS_LIKE}")
        strata = strata_of_row(row, messages, strata_of)
        yield GoldenCase(id=name, messages=messages, golden=golden, language=language_of(row, messages), strata=strata)


@dataclass(frozen=True)
class Golden:
    """`visible` is the part of an answer that the patient sees; `encoder` names what `similarity` uses, "" for none."""

    cases: Sequence[GoldenCase]
    visible: Callable[[str], str]
    similarity: Similarity | None = None
    encoder: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    name: str = "golden"

    @property
    def metrics(self) -> tuple[SuiteMetric, ...]:
        return (*WORDS, EMBEDDING) if self.similarity else WORDS

    @property
    def version(self) -> str:
        return f"{VERSION}/{self.encoder}" if self.encoder else VERSION

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult:
        drawn = draw(self.cases, config)
        completions = answer_all(model, [case.messages for case in drawn], config, progress)
        answers = [answer_of(completion) for completion in completions]
        cosines = self._cosines(drawn, answers)
        cases = tuple(
            SuiteCase(
                id=case.id, question=case.question, answer=answer, language=case.language, strata=case.strata,
                scores=self._scores(case, completion, cosine), truncated=completion.finish_reason == "length",
            )
            for case, answer, cosine, completion in zip(drawn, answers, cosines, completions, strict=True)
        )  # fmt: skip
        notes = missing_notes(cases, EMBEDDING.name) if self.similarity else [NO_ENCODER]
        return SuiteResult(
            suite=self.name, version=self.version, metrics=self.metrics, cases=cases, inputs=self.inputs, notes=tuple(notes)
        )

    def _cosines(self, cases: Sequence[GoldenCase], answers: Sequence[str | None]) -> list[float | None]:
        """The cosine to the closest golden answer; None where there is none."""
        texts = ["" if answer is None else self.visible(answer).strip() for answer in answers]
        pairs = [(text, golden) for case, text in zip(cases, texts, strict=True) if text for golden in case.golden]
        values = iter(self.similarity(pairs) if self.similarity and pairs else [])
        best: list[float | None] = []
        for case, text in zip(cases, texts, strict=True):
            known = [next(values, None) for _ in case.golden] if text else []
            best.append(max((value for value in known if value is not None), default=None))
        return best

    def _scores(self, case: GoldenCase, completion: Completion, cosine: float | None) -> tuple[Score | Missing, ...]:
        answer = answer_of(completion)
        if answer is None:
            return tuple(self._missing(metric.name, why_missing(completion)) for metric in self.metrics)
        tokens = tokens_of(self.visible(answer))
        golden = [tokens_of(text) for text in case.golden]
        scores: list[Score | Missing] = [
            self._score("token_f1", max(token_f1(tokens, other) for other in golden)),
            self._score("rouge_l", max(rouge_l(tokens, other) for other in golden)),
        ]
        if self.similarity:
            why = f"{self.encoder} does not read this language" if tokens else "the answer is empty"
            scores.append(self._missing("embedding", why) if cosine is None else self._score("embedding", max(0.0, cosine)))
        return tuple(scores)

    def _score(self, name: str, value: float) -> Score:
        reason = f"{value:.3f} to the closest golden answer."
        return Score(name=name, value=round(min(value, 1.0), 6), reason=reason, author="suite:golden", version=self.version)

    def _missing(self, name: str, reason: str) -> Missing:
        return Missing(name=name, reason=reason, author="suite:golden", version=self.version)


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())[:_MOST]


def token_f1(tokens: Sequence[str], golden: Sequence[str]) -> float:
    shared = (Counter(tokens) & Counter(golden)).total()
    return _f1(shared, len(tokens), len(golden))


def rouge_l(tokens: Sequence[str], golden: Sequence[str]) -> float:
    return _f1(_common_subsequence(tokens, golden), len(tokens), len(golden))


def _f1(shared: int, size: int, golden_size: int) -> float:
    """2PR / (P + R) with P = shared/size and R = shared/golden_size."""
    return 2 * shared / (size + golden_size) if shared else 0.0


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    row = [0] * (len(second) + 1)
    for token in first:
        diagonal = 0
        for column, other in enumerate(second, start=1):
            above = row[column]
            row[column] = diagonal + 1 if token == other else max(above, row[column - 1])
            diagonal = above
    return row[-1]
