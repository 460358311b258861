"""RAGAS: answers that had passages to rely on, by the four metrics of the package of that name (arXiv 2309.15217).

    faithfulness        share of the answer's statements that the passages support
    answer_relevancy    cosine of the question and questions that the judge makes from the answer
    context_precision   whether useful passages stand before useless ones
    context_recall      share of the reference answer's statements that the passages support

The package runs in an environment of its own (`ragas_process.py`) and asks a judge behind a URL. What it cannot score is missing,
with the reason. Texts are scrubbed before they leave this machine; a text that cannot be scrubbed is not sent, and its case is
missing. The last two measure the retrieval, not the model: they are the same for every model. The first three passages count, as
in RL training; of a long one the model reads what fits into its prompt.
"""

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
from medloop.evaluate.suites.ragas_process import METRICS, Outcome, RagasJudge, RagasRow
from medloop.models.context_limits import ContextLimits

VERSION = "1"
PACKAGE = "0.4.3"
LOOKS_LIKE = '{"id": ..., "question": ..., "contexts": [...], "reference": ...}'
TOP_K = ContextLimits().top_k
CONTEXTS = ("contexts", "context", "retrieved_contexts")
REFERENCES = ("reference", "golden", "long_answer", "answer")


class ContextCase(Contract):
    """A question with passages, and a reference answer where there is one."""

    id: Text
    messages: tuple[Message, ...]
    contexts: tuple[Text, ...]
    reference: str | None = None
    language: Text
    strata: tuple[Text, ...] = ()


Scrub = Callable[[Sequence[str]], list[str] | str]  # the texts as they may leave, or why they may not


def read_context_cases(path: Path, strata_of: StrataOf) -> list[ContextCase]:
    return list(_read(path, strata_of))


def _read(path: Path, strata_of: StrataOf) -> Iterator[ContextCase]:
    for number, name, messages, row in case_rows(path, LOOKS_LIKE):
        given = next((row[field] for field in CONTEXTS if row.get(field)), ())
        contexts = tuple(str(text) for text in ([given] if isinstance(given, str) else given) if str(text).strip())
        if not contexts:
            raise InputError.at(path, number, "no context passages", f"Lines look like {LOOKS_LIKE}")
        reference = next((str(row[field]) for field in REFERENCES if row.get(field)), None)
        yield ContextCase(
            id=name, messages=messages, contexts=contexts[:TOP_K], reference=reference, language=language_of(row, messages),
            strata=strata_of_row(row, messages, strata_of),
        )  # fmt: skip


@dataclass(frozen=True)
class Ragas:
    """`scrub` takes identifiers out; it is not asked for a judge on this machine."""

    cases: Sequence[ContextCase]
    judge: RagasJudge
    visible: Callable[[str], str]
    scrub: Scrub
    inputs: dict[str, str] = field(default_factory=dict)
    name: str = "ragas"
    metrics: tuple[SuiteMetric, ...] = tuple(SuiteMetric(name=name) for name in METRICS)

    @property
    def version(self) -> str:
        return f"{VERSION}/ragas-{PACKAGE}/{self.judge.model}"

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult:
        self.judge.check()
        drawn = draw(self.cases, config)
        passages = [case.contexts for case in drawn]
        completions = answer_all(model, [case.messages for case in drawn], config, progress, passages)
        answers = [answer_of(completion) for completion in completions]
        rows = [self._row(case, completion) for case, completion in zip(drawn, completions, strict=True)]
        sent = [row for row in rows if isinstance(row, RagasRow)]
        outcomes = self.judge.score(sent) if sent else {}
        cases = tuple(
            SuiteCase(
                id=case.id, question=user_text(case.messages), answer=answer, language=case.language, strata=case.strata,
                scores=self._scores(row if isinstance(row, str) else outcomes[case.id]),
                truncated=completion.finish_reason == "length",
            )
            for case, answer, row, completion in zip(drawn, answers, rows, completions, strict=True)
        )  # fmt: skip
        notes = [note for name in METRICS for note in missing_notes(cases, name)]
        return SuiteResult(
            suite=self.name, version=self.version, metrics=self.metrics, cases=cases, inputs=self.inputs, notes=tuple(notes)
        )

    def _row(self, case: ContextCase, completion: Completion) -> RagasRow | str:
        """What is sent about a case, or why nothing is."""
        answer = answer_of(completion)
        if answer is None:
            return why_missing(completion)
        texts = [user_text(case.messages), self.visible(answer).strip(), case.reference or "", *case.contexts]
        if not texts[1]:
            return "the answer is empty"
        if not self.judge.is_local:
            scrubbed = self.scrub(texts)
            if isinstance(scrubbed, str):
                return f"not sent: {scrubbed}"
            texts = scrubbed
        question, shown, reference, *contexts = texts
        return RagasRow(case.id, question, shown, tuple(contexts), reference or None)

    def _scores(self, outcomes: dict[str, Outcome] | str) -> tuple[Score | Missing, ...]:
        return tuple(self._score(name, outcomes if isinstance(outcomes, str) else outcomes[name]) for name in METRICS)

    def _score(self, name: str, outcome: Outcome) -> Score | Missing:
        author = f"ragas:{self.judge.model}"
        if isinstance(outcome, str):
            return Missing(name=name, reason=outcome, author=author, version=self.version)
        if name == "answer_relevancy":
            outcome = max(outcome, 0.0)  # a cosine; below 0 the answer is about something else
        if not 0.0 <= outcome <= 1.0001:
            return Missing(name=name, reason="RAGAS gave a number outside 0 to 1", author=author, version=self.version)
        reason = f"RAGAS {PACKAGE} gives {outcome:.3f}."
        return Score(name=name, value=min(1.0, round(outcome, 6)), reason=reason, author=author, version=self.version)
