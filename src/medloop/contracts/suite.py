"""A suite examines a model in one way (triage safety, multiple choice, rubrics, leaks …): a score per case and metric.

class Politeness:                                       # a user's own, named as `clinic.suites:Politeness`
    name, version = "politeness", "1"
    metrics = (SuiteMetric(name="polite"),)

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult: ...
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text
from medloop.contracts.chat import Completion, Message
from medloop.contracts.score import Missing, Score

SuiteProgress = Callable[[int, int], None]  # cases so far, cases in all
LikelihoodPrompt = str | tuple[Message, ...]  # plain text, or messages that the model's chat template renders


class SuiteMetric(Contract):
    """One metric of a suite, from 0 to 1. A high value of a `penalty` is bad.

    `critical`: a case that fails it entirely (0, or 1 for a penalty) could harm a patient; the gate looks at each new one.
    `by_case`: each case is a test of its own, so the gate does without its mean where there are few cases.
    `optional`: few cases have it, and too few for a test do not keep a model from passing the gate.
    """

    name: Text
    penalty: bool = False
    critical: bool = False
    by_case: bool = False
    optional: bool = False

    def fails(self, value: float) -> bool:
        return value >= 1.0 if self.penalty else value <= 0.0


class SuiteCase(Contract):
    """One case, what the model said, and its scores; without an answer where the suite reads likelihoods."""

    id: Text
    question: str
    answer: str | None = None
    language: Text
    strata: tuple[Text, ...] = ()
    scores: tuple[Score | Missing, ...]
    truncated: bool = False


class CriterionGrade(Contract):
    """Whether an answer meets one criterion, by whom it was decided, and why; None where it could not be decided.

    `addresses_grader`: the answer spoke about its own grading, which was cut out before it was graded.
    """

    met: bool | None = None
    reason: Text
    author: Text
    addresses_grader: bool = False


class SuiteTable(Contract):
    """A table of counts or values for people, such as the triage matrix; each row starts with its name."""

    title: Text
    columns: tuple[Text, ...] = Field(min_length=2)
    rows: tuple[tuple[str, ...], ...]


class SuiteResult(Contract):
    """What one suite found for one model.

    `baselines` are what no model at all would get, by metric and name (`{"accuracy": {"random": 0.2, "majority": 0.24}}`).
    `inputs` are the files behind the cases, by hash; `notes` say what could not be measured and what that costs.
    """

    suite: Text
    version: Text
    metrics: tuple[SuiteMetric, ...] = Field(min_length=1)
    cases: tuple[SuiteCase, ...]
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)
    inputs: dict[str, Hash] = Field(default_factory=dict)
    notes: tuple[Text, ...] = ()
    tables: tuple[SuiteTable, ...] = ()


class SuiteConfig(Contract):
    """What every suite is told: at most `n` cases, drawn by hash of the case and the seed; and how the model answers."""

    n: int = Field(100, ge=1)
    seed: int = Field(42, ge=0)
    max_new_tokens: int = Field(256, ge=1)
    batch_size: int = Field(16, ge=1)


class LogLikelihood(Contract):
    """Of a continuation after a prompt: summed log-probability, its tokens, and whether greedy decoding would write it.

    `truncated` tokens at the start did not fit into the model and were left out: the value is then of a shorter text.
    """

    total: float
    tokens: int = Field(ge=0)
    greedy: bool
    truncated: int = Field(0, ge=0)


class SuiteModel(Protocol):
    """The model under examination. Answers are greedy and cached by content hash, so asking twice costs nothing."""

    @property
    def label(self) -> str: ...

    @property
    def identity(self) -> Mapping[str, str | None]: ...

    def answer(
        self, prompts: Sequence[Sequence[Message]], config: SuiteConfig, passages: Sequence[Sequence[str]] = ()
    ) -> list[Completion]:
        """`passages`: for each prompt, the context that stands before its last message as far as it fits; empty: none."""
        ...

    def log_likelihoods(self, pairs: Sequence[tuple[LikelihoodPrompt, str]]) -> list[LogLikelihood]:
        """Of (prompt, continuation). ConfigError if the model cannot give any."""
        ...


class Suite(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def metrics(self) -> tuple[SuiteMetric, ...]: ...

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult: ...
