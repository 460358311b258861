"""What the commands share: the settings behind the global flags, plain printing, one progress bar, one table."""

import json
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from medloop.contracts.base import to_utc
from medloop.errors import ConfigError
from medloop.knobs import split_pairs
from medloop.privacy.phi import allowed
from medloop.settings import ResolvedSettings, Settings, resolve
from medloop.store.files.private import TightenReport

# Options that many commands share.
ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="YAML file with settings of this command.")]
SetPairs = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Override one setting of this command; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_flags: dict[str, Any] = {}  # what stood before the command: `medloop --home DIR --set seed=7 data prepare`

RewardFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Parts and weights of the reward, as in configs/reward.yaml.")
]
RewardParts = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="PART[=SOURCE]",
        help="Supply a part of the reward: teacher[=configs/teacher.yaml], model=models/reward/NAME, "
        "rel, faith or conc[=configs/dw.yaml], or your own as NAME=module:object; may be repeated.",
    ),
]  # fmt: skip
ContextPassages = Annotated[
    int | None, typer.Option(min=1, help="Context passages of a question in its prompt (default: as trained, else 3).")
]
MaxPrompt = Annotated[
    int | None, typer.Option(min=8, help="Maximum tokens of a prompt with passages (default: as trained, else 256).")
]
QuestionFiles = Annotated[
    list[Path] | None,
    typer.Option("--questions", metavar="FILE", help="Questions, by id, for answers that have only an id; may be repeated."),
]


def remember_flags(home: Path | None, pairs: list[str]) -> None:
    _flags.clear()
    _flags.update(split_pairs("--set", pairs))
    if home is not None:
        _flags["home"] = home


def given_flags() -> dict[str, Any]:
    return dict(_flags)


def resolved(*, must_exist: bool = True) -> ResolvedSettings:
    """The settings; from now on the scrubber leaves the terms of this workspace alone."""
    answer = resolve(_flags, must_exist=must_exist)
    if answer.settings.workspace.config.is_file():
        allowed.use(answer.settings.allow_file)
    return answer


def settings() -> Settings:
    return resolved().settings


def console() -> Console:
    """Results go to stdout; progress and messages to stderr."""
    return Console(soft_wrap=True, highlight=False)


def say(text: str = "") -> None:
    typer.echo(text)


def require_terminal(command: str) -> None:
    """Patient text goes to a terminal, never into a pipe or a file."""
    if not sys.stdout.isatty():
        raise ConfigError(f"'medloop {command}' prints patient text, so only to a terminal", "Run it without a pipe")


def say_json(value: Any) -> None:
    """Values, records or dataclasses as JSON; what the text form of a command shows, for programs."""
    say(json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=2))


def say_private(report: TightenReport) -> None:
    """What `tighten` has changed, and what it could not."""
    if report.changed:
        say(f"Files and folders of the workspace that other users of this machine could read are private now: {report.changed}.")
    if report.left:
        say(f"Other users of this machine can read {len(report.left)} files or folders that belong to somebody else, such as")
        say(f"  {shown(report.left[0])}")


def next_step(command: str, lead: str = "Next:") -> None:
    """The one place that prints a command to run next; tests/cli/test_next_steps.py runs them all."""
    home = f"--home {shlex.quote(str(_flags['home']))} " if "home" in _flags else ""
    say(f"{lead} medloop {home}{command}")


def shown(path: Path) -> str:
    """A path as a person would type it: relative to the current folder where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def parse_since(text: str) -> datetime:
    """`2026-03-01`, `2026-03-01T12:00Z`, `30d` or `12h`; UTC if no zone is given."""
    if age := re.fullmatch(r"(\d{1,5})([dh])", text):
        return datetime.now(UTC) - timedelta(**{{"d": "days", "h": "hours"}[age[2]]: int(age[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--since: '{text}' is not a date", "Examples: 2026-03-01, 2026-03-01T12:00, 30d, 12h") from None
    try:
        return to_utc(time) if time.tzinfo else time.replace(tzinfo=UTC)
    except ValueError as error:
        raise ConfigError(f"--since '{text}': {error}") from None


class Bar:
    """Where a long step is. Calling it with a count advances it, so `progress` is a `data.progress.Progress`.

    Without a terminal it prints a line at each tenth (none for a step that takes only a moment), and at least one every
    `every` seconds.
    """

    def __init__(self, label: str, total: int | None, done: int, drawn: Progress | None, every: float = 60) -> None:
        self.label, self.total, self.done, self.text, self._every = label, total, done, "", every
        self._drawn = drawn
        self._task = drawn.add_task(label, total=total, completed=done, text="") if drawn else None
        self._began = self._printed = time.monotonic()
        self._tenth, self._printed_done = self._tenths(), -1

    def __call__(self, count: int) -> None:
        self.update(self.done + count)

    def update(self, done: int, total: int | None = None, text: str = "") -> None:
        """`done` of `total`, with a few words such as the loss."""
        self.done, self.total, self.text = done, self.total if total is None else total, text
        if self._drawn is not None and self._task is not None:
            self._drawn.update(self._task, completed=done, total=self.total, text=text)
        else:
            self._print_line()

    def say(self, line: str) -> None:
        """A line that stays: above the bar, or on stdout without a terminal."""
        if self._drawn is not None:
            self._drawn.console.print(Text(line))
        else:
            say(line)

    def _tenths(self) -> int:
        return 10 * self.done // self.total if self.total else 0

    def _print_line(self) -> None:
        waited = time.monotonic() - self._printed
        if waited < 2 or (self._tenths() == self._tenth and waited < self._every):
            return
        self._printed, self._tenth = time.monotonic(), self._tenths()
        same, self._printed_done = self.done == self._printed_done, self.done
        elapsed = f", {self._printed - self._began:.0f} s so far" if same else ""
        share = f" of {self.total:,} ({self.done / self.total:.0%})" if self.total else ""
        typer.echo(f"{self.label}: {self.done:,}{share}{elapsed}  {self.text}".rstrip(), err=True)


@contextmanager
def progress(label: str, total: int | None = None, *, done: int = 0, every: float = 60) -> Iterator[Bar]:
    """The one progress bar: on stderr, gone when the step ends; `total` may come later with `Bar.update`."""
    if not sys.stderr.isatty():
        yield Bar(label, total, done, None, every)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
    drawn = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    with drawn:
        yield Bar(label, total, done, drawn)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str = "") -> None:
    """Columns side by side on stdout. Ids stay whole, to be copied: only the last column wraps, and only on a terminal."""
    drawn = Table(
        *(Column(name, no_wrap=True) for name in columns[:-1]), columns[-1],
        box=None, pad_edge=False, show_header=any(columns), title=title or None, title_justify="left",
    )  # fmt: skip
    for row in rows:
        drawn.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    out = console()
    width = Measurement.get(out, out.options.update(max_width=10_000), drawn)
    out.width = max(out.width, width.minimum if out.is_terminal else width.maximum)
    out.print(drawn)


def printable(text: str, keep: str = "") -> str:
    """Ids and texts come from clients: a character that could control the terminal is shown as a box."""
    return "".join(char if char.isprintable() or char in keep else "\N{WHITE SQUARE}" for char in text)
