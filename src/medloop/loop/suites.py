"""Suites by name, composed: a suite receives what other stages lend it (rules, detectors, teacher, scrubber) from here.

    suite = load_suite("triage", SuiteTools(settings))                     # a name of SUITES
    suite = load_suite("multiple_choice=medqa.jsonl", SuiteTools(settings))  # with its cases in a file
    suite = load_suite("rubric=corrections", SuiteTools(settings))           # criteria that clinicians accepted, from the store
    suite = load_suite("clinic.suites:Politeness", SuiteTools(settings))   # your own

A new suite is a file in evaluate/suites/ and a line in SUITES.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import ModelRef, Suite, SuiteConfig, SuiteModel, SuiteProgress, SuiteResult
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import ConfigError, InputError
from medloop.evaluate.suite_results import check_result
from medloop.evaluate.suites.ability import Ability
from medloop.evaluate.suites.multiple_choice import MultipleChoice
from medloop.knobs import did_you_mean, import_object
from medloop.loop.leak_suite import leak_suite
from medloop.loop.reference_suites import golden_suite, ragas_suite
from medloop.loop.rubrics import NAME as CORRECTIONS
from medloop.loop.rubrics import corrections_suite
from medloop.loop.safety_suites import rubric_suite, triage_suite
from medloop.reward.answer_text import split_answer
from medloop.settings import Settings


@dataclass(frozen=True)
class SuiteTools:
    """What a suite can be built from: the workspace and its settings (seed, keys, folders), and the models to be examined."""

    settings: Settings
    models: tuple[ModelRef, ...] = ()


SuiteFactory = Callable[[SuiteTools, Path | None], Suite]

SUITES: dict[str, SuiteFactory] = {
    "triage": lambda tools, file: triage_suite(tools.settings, file),
    "rubric": lambda tools, file: rubric_suite(tools.settings, file),
    "golden": lambda tools, file: golden_suite(tools.settings, file),
    "ragas": lambda tools, file: ragas_suite(tools.settings, file),
    "multiple_choice": lambda tools, file: MultipleChoice(file),
    "ability": lambda tools, file: Ability(file, lambda answer: split_answer(answer).visible),
    "leak": lambda tools, file: leak_suite(tools.settings, tools.models, file),
}


def load_suite(spec: str, tools: SuiteTools) -> Suite:
    """`NAME`, `NAME=FILE`, or `module:object`: a suite, or a class or function that returns one."""
    name, equals, file = spec.partition("=")
    if (name, file) == ("rubric", CORRECTIONS):
        return corrections_suite(tools.settings)
    if name in SUITES:
        return SUITES[name](tools, _case_file(spec, file, tools) if equals else None)
    if ":" not in name:
        guess = did_you_mean(name, SUITES)
        known = f"Suites are {', '.join(SUITES)}, or your own as module:object" if SUITES else "Name your own as module:object"
        raise ConfigError(f"There is no suite '{name}'", (f"Did you mean {guess}? " if guess else "") + known)
    if equals:
        raise ConfigError(f"The suite '{name}' is your own and takes no file", "Let the object read its own cases")
    suite = import_object("suite", name, "run")
    if not all(hasattr(suite, part) for part in ("name", "version", "metrics", "run")):
        raise ConfigError(f"'{name}' is not a suite", "A suite has name, version, metrics and run(model, config, progress)")
    return suite  # type: ignore[no-any-return]


def load_suites(specs: Sequence[str], tools: SuiteTools) -> tuple[Suite, ...]:
    """All of them, each under its own name: a suite is a split of the report."""
    suites = tuple(load_suite(spec, tools) for spec in specs)
    names = [suite.name for suite in suites]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"The suite '{name}' is named twice", "Name each suite once; put cases of one kind into one file")
        if name in SPLIT_FILES:
            raise ConfigError(f"The suite '{name}' has the name of a split", "Give it another name")
    return suites


def run_suite(suite: Suite, model: SuiteModel, config: SuiteConfig, progress: SuiteProgress) -> SuiteResult:
    return check_result(suite.run(model, config, progress), suite.name)


def _case_file(spec: str, file: str, tools: SuiteTools) -> Path:
    if not file:
        raise ConfigError(f"--suite {spec} names no file", "Write NAME=FILE, or NAME alone")
    path = tools.settings.find(file)
    if not path.is_file():
        raise InputError(f"{path} does not exist", f"The cases of the suite are read from the file after '=' in {spec}")
    return path
