"""General ability, which a training on medical feedback can cost: held text, instructions, the language, harmless questions.

    --suite ability              # the cases of assets/ability/cases.jsonl
    --suite ability=FILE         # your own cases

`token_probability` is the geometric mean of the probabilities of a held text's tokens, 1 / perplexity; a note names the
perplexity. `instruction` is 1 if all checks of an instruction hold. `language_mixing`: the answer is in another language than the
one asked for, or mixes two. `refusal`: a harmless question is refused, or not answered at all.
"""

import math
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from pydantic import model_validator

from medloop.contracts import Completion, Contract, Message, Missing, Score
from medloop.contracts.base import Text
from medloop.contracts.suite import LogLikelihood, SuiteCase, SuiteConfig, SuiteMetric, SuiteModel, SuiteProgress, SuiteResult
from medloop.errors import ConfigError
from medloop.evaluate.suites.answering import answer_all, answer_of, draw, why_missing
from medloop.evaluate.suites.case_file import read_cases
from medloop.evaluate.suites.instructions import InstructionCheck
from medloop.evaluate.suites.scoring import SuiteScorer
from medloop.lexicon.language import detect_language, languages
from medloop.store.files.atomic import file_sha256

BUNDLED: Final = Path(str(files("medloop") / "assets" / "ability" / "cases.jsonl"))
FORM = 'Lines look like {"id": ..., "kind": "text", "language": "en", "text": ...}; the manual lists all kinds'
PROBABILITY, INSTRUCTION, MIXING, REFUSAL = "token_probability", "instruction", "language_mixing", "refusal"
_BEGINNING = 200  # characters in which a refusal is said
_REFUSAL = re.compile(
    r"\bi(?:'m| am)? (?:can ?not|can['’]t|won['’]t|will not|unable to|not able to|must decline|have to decline|decline)\b"
    r"(?! (?:stress|emphasi[sz]e|overstate|recommend .{0,20} enough))"
    r"|\bsorry,? but\b|\bas an ai\b|\bnot (?:able|allowed|permitted) to (?:help|answer|provide|assist)"
    r"|(?:抱歉|对不起|很遗憾|不好意思)[^。！]{0,8}(?:不能|无法|没法|不便|不可以|没有办法)"
    r"|我(?:不能|无法|没法|没办法|不可以|不便)[^。，]{0,6}(?:回答|提供|帮|给出|讨论|协助|满足|完成)|拒绝(?:回答|提供)"
    r"|作为(?:一个|一名)?\s*(?:ai|人工智能|语言模型|大模型)",
    re.IGNORECASE,
)


class AbilityCase(Contract):
    """A text that the model should find likely, or a question; `answer_language` if it differs from the question's."""

    id: Text
    kind: Literal["text", "instruction", "harmless"]
    language: Text
    text: Text | None = None
    question: Text | None = None
    checks: tuple[InstructionCheck, ...] = ()
    answer_language: Text | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "AbilityCase":
        need = "text" if self.kind == "text" else "question"
        if getattr(self, need) is None:
            raise ValueError(f"a case of the kind {self.kind} needs a {need}")
        if (self.kind == "instruction") != bool(self.checks):
            raise ValueError("a case has checks if, and only if, it is an instruction")
        return self

    @property
    def expected_language(self) -> str | None:
        """None where the answer is JSON, which is in no language."""
        return None if any(check.check == "json" for check in self.checks) else self.answer_language or self.language


class Ability:
    """A suite over the bundled cases or those of a file; `visible` removes the chain of thought from an answer."""

    name, version = "ability", "1"
    scorer = SuiteScorer(name, version)
    metrics = (
        SuiteMetric(name=PROBABILITY), SuiteMetric(name=INSTRUCTION), SuiteMetric(name=MIXING, penalty=True),
        SuiteMetric(name=REFUSAL, penalty=True),
    )  # fmt: skip

    def __init__(self, path: Path | None, visible: Callable[[str], str]) -> None:
        self.path, self.visible = path or BUNDLED, visible
        self.cases = read_cases(self.path, AbilityCase, FORM)

    def run(self, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult:
        cases = draw(self.cases, config)
        texts = [case for case in cases if case.kind == "text"]
        asked = [case for case in cases if case.kind != "text"]
        likelihoods, problem = _likelihoods(model, texts)
        prompts = [(Message(role="user", content=case.question or ""),) for case in asked]
        completions = answer_all(model, prompts, config, lambda done, _: progress(len(texts) + done, len(cases)))
        results = [self._text_case(case, likelihood, problem) for case, likelihood in zip(texts, likelihoods, strict=True)]
        results += [self._answered(case, completion) for case, completion in zip(asked, completions, strict=True)]
        return SuiteResult(
            suite=self.name, version=self.version, metrics=self.metrics, cases=tuple(results),
            inputs={self.path.name: file_sha256(self.path)}, notes=_perplexity_notes(texts, likelihoods, problem),
        )  # fmt: skip

    def _text_case(self, case: AbilityCase, likelihood: LogLikelihood | None, problem: str) -> SuiteCase:
        score: Score | Missing
        if likelihood is None or likelihood.truncated or not likelihood.tokens:
            score = self.scorer.missing(PROBABILITY, problem or "the text does not fit into the model")
        else:
            per_token = likelihood.total / likelihood.tokens
            score = self.scorer.score(PROBABILITY, min(math.exp(per_token), 1.0), f"perplexity {math.exp(-per_token):.2f}")
        return SuiteCase(id=case.id, question=case.text or "", language=case.language, strata=(case.kind,), scores=(score,))

    def _answered(self, case: AbilityCase, completion: Completion) -> SuiteCase:
        answer = answer_of(completion)
        return SuiteCase(
            id=case.id, question=case.question or "", answer=answer, language=case.language, strata=(case.kind,),
            scores=self._scores(case, answer, why_missing(completion)), truncated=completion.finish_reason == "length",
        )  # fmt: skip

    def _scores(self, case: AbilityCase, answer: str | None, why: str) -> tuple[Score | Missing, ...]:
        metric = INSTRUCTION if case.kind == "instruction" else REFUSAL
        if answer is None:
            return self.scorer.missing(metric, why), self.scorer.missing(MIXING, why)
        visible = self.visible(answer).strip()
        of_kind = self._instruction(case, visible) if case.kind == "instruction" else self._refusal(visible)
        mixing = self._mixing(case, visible)
        return (of_kind,) if mixing is None else (of_kind, mixing)

    def _instruction(self, case: AbilityCase, visible: str) -> Score:
        failed = [check.check for check in case.checks if not check.holds(visible)]
        return self.scorer.score(INSTRUCTION, float(not failed), f"not fulfilled: {', '.join(failed)}" if failed else "fulfilled")

    def _refusal(self, visible: str) -> Score:
        if not visible:
            return self.scorer.score(REFUSAL, 1.0, "the answer is empty")
        refused = _REFUSAL.search(visible[:_BEGINNING])
        return self.scorer.score(REFUSAL, float(refused is not None), "it refuses" if refused else "it answers")

    def _mixing(self, case: AbilityCase, visible: str) -> Score | None:
        """None where the answer has no language: it is empty, a number, or JSON."""
        expected = case.expected_language
        if expected is None or not languages(visible):
            return None
        language = detect_language(visible)
        reason = f"the answer is in {expected}" if language == expected else f"{expected} was asked for, the answer is {language}"
        return self.scorer.score(MIXING, float(language != expected), reason)


def _likelihoods(model: SuiteModel, texts: Sequence[AbilityCase]) -> tuple[list[LogLikelihood | None], str]:
    """Of the held texts; a model that gives none (behind a URL) has its answers examined all the same."""
    try:
        return [*model.log_likelihoods([("", case.text or "") for case in texts])], ""
    except ConfigError as error:
        return [None] * len(texts), str(error)


def _perplexity_notes(texts: Sequence[AbilityCase], likelihoods: Sequence[LogLikelihood | None], problem: str) -> tuple[str, ...]:
    """The perplexity over all tokens, and by language."""
    if problem:
        return (f"No token probabilities: {problem}",)
    whole = [(case.language, x) for case, x in zip(texts, likelihoods, strict=True) if x and x.tokens and not x.truncated]
    if not whole:
        return ()
    by_language = {
        language: _perplexity([x for other, x in whole if other == language]) for language in sorted({name for name, _ in whole})
    }
    parts = ", ".join(f"{language} {value:.2f}" for language, value in by_language.items())
    tokens = sum(x.tokens for _, x in whole)
    return (f"Perplexity on held text: {_perplexity([x for _, x in whole]):.2f} ({parts}; {tokens} tokens).",)


def _perplexity(likelihoods: Sequence[LogLikelihood]) -> float:
    return math.exp(-sum(x.total for x in likelihoods) / sum(x.tokens for x in likelihoods))
