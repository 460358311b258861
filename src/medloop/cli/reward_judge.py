"""The options that name a judge, for `medloop reward validate` and `medloop reward drift`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from medloop.contracts.validity import JudgeSource
from medloop.knobs import split_pairs

BUDGET_FREE = 0.0  # USD: a teacher only answers from its cache
DwFile = Annotated[
    str | None, typer.Option("--dw", metavar="FILE", help="Dynamic weights instead of a mix, as configs/dw.yaml ('': defaults).")
]
TeacherFile = Annotated[
    str | None, typer.Option("--teacher", metavar="FILE", help="A teacher alone, as configs/teacher.yaml ('': the preset).")
]
ModelAlone = Annotated[
    str | None, typer.Option("--reward-model", metavar="MODEL", help="A reward model alone: its name or folder.")
]


def judge_source(
    config: Path | None, with_: Sequence[str] | None, dw: str | None, teacher: str | None, reward_model: str | None
) -> JudgeSource:
    """The judge that the options name."""
    given = split_pairs("--with", with_ or (), bare=True)
    return JudgeSource(config=str(config) if config else None, given=given, dw=dw, teacher=teacher, reward_model=reward_model)
