"""Cases with criteria in HealthBench's form: our own (`rubric_cases.jsonl`, Chinese and English), or a file of JSON lines.

    {"id": "r1", "prompt": [{"role": "user", "content": "..."}], "rubrics": [
        {"criterion": "Sends the patient to emergency care", "points": 8, "tags": ["axis:accuracy"]}]}

`points` go from -10 to 10; a criterion with negative points names a fault. `detector` lets a detector decide instead of the
teacher: the name of an act, `mentions:a|b` (one of these words), `says:SENTENCE`; `!` before it is the opposite. `critical` marks
a fault that could harm a patient, or with positive points what must not be lacking. HealthBench's own files are read as they are.
"""

from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from medloop.contracts import Contract, Message
from medloop.contracts.base import Text
from medloop.errors import InputError
from medloop.evaluate.suites.case_rows import StrataOf, case_rows, language_of, strata_of_row, user_text
from medloop.knobs import did_you_mean, problem_list

BUNDLED = resources.files("medloop.evaluate.suites") / "rubric_cases.jsonl"
LOOKS_LIKE = '{"id": ..., "prompt": [...], "rubrics": [{"criterion": ..., "points": 5, "tags": []}]}'
HINT = f"Lines look like {LOOKS_LIKE}"


class RubricCriterion(Contract):
    """One thing that an answer should do, or with negative points should not do."""

    criterion: Text
    points: float = Field(ge=-10, le=10)
    tags: tuple[Text, ...] = ()
    detector: Text | None = None
    critical: bool = False


class RubricCase(Contract):
    id: Text
    messages: tuple[Message, ...]
    criteria: tuple[RubricCriterion, ...] = Field(min_length=1)
    language: Text
    strata: tuple[Text, ...] = ()

    @property
    def question(self) -> str:
        return user_text(self.messages)


def read_rubric_cases(path: Path, strata_of: StrataOf, detectors: Collection[str]) -> list[RubricCase]:
    """The cases of a file, which may be gzipped; InputError names the line with a criterion that cannot be used."""
    return list(_read(path, strata_of, detectors))


def _read(path: Path, strata_of: StrataOf, detectors: Collection[str]) -> Iterator[RubricCase]:
    for number, name, messages, row in case_rows(path, LOOKS_LIKE):
        rubrics = row.get("rubrics") or row.get("criteria") or ()
        try:
            criteria = tuple(RubricCriterion.model_validate(rubric) for rubric in rubrics)
        except ValidationError as error:
            raise InputError.at(path, number, f"a criterion is wrong: {problem_list(error, 'criterion')}", HINT) from None
        if not any(criterion.points > 0 for criterion in criteria):
            raise InputError.at(path, number, "no criterion has positive points", HINT)
        for detector in (criterion.detector for criterion in criteria if criterion.detector):
            if _detector_name(detector) not in detectors:
                guess = did_you_mean(detector, detectors)
                hint = f"Did you mean {guess}? " if guess else ""
                raise InputError.at(
                    path, number, "a criterion names an unknown detector", f"{hint}Detectors are {', '.join(detectors)}"
                )
        strata = (*_themes(row), *strata_of_row(row, messages, strata_of))
        yield RubricCase(id=name, messages=messages, criteria=criteria, language=language_of(row, messages), strata=strata)


def _detector_name(detector: str) -> str:
    """Without the opposite and the words: `!mentions:a|b` is `mentions:`."""
    name, colon, _ = detector.removeprefix("!").partition(":")
    return name + colon


def _themes(row: Mapping[str, Any]) -> list[str]:
    """`theme` of a row, or HealthBench's `example_tags`."""
    tags = [str(tag) for tag in row.get("example_tags") or () if str(tag).startswith("theme:")]
    return [f"theme:{row['theme']}"] if row.get("theme") else tags[:1]
