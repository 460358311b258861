"""Cases of a suite from a file of JSON lines, gzipped or not: each line one contract with an id of its own."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from medloop.contracts import Contract
from medloop.errors import InputError
from medloop.knobs import problem_list
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import refuse_duplicate

C = TypeVar("C", bound=Contract)


def read_cases(path: Path, kind: type[C], to_do: str) -> list[C]:
    """Every line as `kind`, which has an `id`; InputError with the line of the first bad one, or if there is none at all."""
    cases, first_lines = [], dict[str, int]()
    for number, row in jsonl.numbered(path):
        try:
            cases.append(kind.model_validate(row))
        except ValidationError as error:
            raise InputError.at(path, number, problem_list(error, "case"), to_do) from None
        refuse_duplicate(first_lines, str(row["id"]), path, number)
    if not cases:
        raise InputError(f"{path} has no cases", to_do)
    return cases
