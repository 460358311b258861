"""The options that name a judge, for `medloop reward validate` and `medloop reward drift`."""

from typing import Annotated

import typer

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
