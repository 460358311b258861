"""`medloop privacy`: take identifiers out of a file, or say what a file holds without showing it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from medloop.cli import ui
from medloop.contracts import canonical_json
from medloop.errors import InputError, explain_os_errors
from medloop.privacy.phi.scrub_file import Row, Tally, scrub_row, without_text
from medloop.store.files.atomic import atomic_write
from medloop.store.files.jsonl import numbered, write

privacy_app = typer.Typer(no_args_is_help=True, help="Identifiers of patients and staff: take them out, count them.")

_FIELD = typer.Option("--field", help="Field of each row to scrub; may be repeated (default: every text of the row).")


def register(app: typer.Typer) -> None:
    app.add_typer(privacy_app, name="privacy")


@privacy_app.command("scrub")
def scrub(
    source: Annotated[str, typer.Argument(metavar="[FILE|-]", help="JSON lines (.jsonl) or plain text; - reads stdin.")] = "-",
    field: Annotated[list[str] | None, _FIELD] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where cleaned rows go (default: stdout).")] = None,
    quarantine: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where doubtful rows go (default: FILE.quarantine.jsonl).")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Show counts by kind and the reasons for doubt.")] = False,
) -> None:
    """Replace identifiers by placeholders; rows in doubt go to a side file as they are, for a person to review.

    No file is overwritten. The side file holds unscrubbed text and is readable by you alone.

    Example:  medloop privacy scrub notes.jsonl --field text --output clean.jsonl --report
    """
    aside = quarantine or Path("quarantine.jsonl" if source == "-" else f"{source}.quarantine.jsonl")
    _must_be_new(*(path for path in (output, aside) if path))
    rows, as_text = _read(source)
    tally, held = _tally(), list[Mapping[str, Any]]()
    cleaned = _kept(rows, field or [], tally, held)
    if output and not as_text:
        write(output, cleaned)
    elif output:
        _write_text(output, cleaned)
    else:
        _print(cleaned, as_text)
    if held:
        _write_aside(aside, held)
    _say(tally, report, aside if held else None)


@privacy_app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines (.jsonl) or plain text; - reads stdin.")],
    field: Annotated[list[str] | None, _FIELD] = None,
) -> None:
    """Count identifiers and doubtful rows of a file. Changes nothing and prints no word of it.

    Example:  medloop privacy check clean.jsonl
    """
    tally = _tally()
    for row in _read(file)[0]:
        tally.add(scrub_row(row, field or []))
    _say(tally, True, None, err=False)


def _tally() -> Tally:

    return Tally()


def _must_be_new(*paths: Path) -> None:

    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already", "Name another file, or move this one away; nothing is overwritten")


def _read(source: str) -> tuple[Iterator[Mapping[str, Any]], bool]:
    """The rows, and whether they are one plain text."""
    if source.endswith(".jsonl"):
        return (row for _, row in numbered(Path(source))), False
    try:
        if source == "-":
            text = sys.stdin.buffer.read().decode()
        else:
            with explain_os_errors(Path(source)):
                text = Path(source).read_bytes().decode()
    except UnicodeDecodeError:
        raise InputError(f"{source} is not UTF-8 text", "Convert it to UTF-8 first") from None
    rows = _json_lines(text) if source == "-" else None
    return (iter(rows), False) if rows is not None else (iter([{"text": text}]), True)


def _json_lines(text: str) -> list[Mapping[str, Any]] | None:
    """The objects of these lines; None if the text is something else."""
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None
    return rows if rows and all(isinstance(row, dict) for row in rows) else None


def _kept(
    rows: Iterator[Mapping[str, Any]], fields: list[str], tally: Tally, held: list[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:

    for row in rows:
        done = scrub_row(row, fields)
        tally.add(done)
        if done.quarantined:
            held.append(_held(done))
        else:
            yield done.cleaned


def _held(done: Row) -> dict[str, Any]:

    return {"doubt": done.doubt, "reasons": sorted({reason for _, reason in without_text(done) if reason}), "row": done.given}


def _print(cleaned: Iterator[dict[str, Any]], as_text: bool) -> None:

    for row in cleaned:
        typer.echo(row["text"] if as_text else json.dumps(row, ensure_ascii=False), nl=not as_text)


def _write_text(output: Path, cleaned: Iterator[dict[str, Any]]) -> None:

    for row in cleaned:
        atomic_write(output, row["text"])


def _write_aside(aside: Path, held: list[Mapping[str, Any]]) -> None:

    atomic_write(aside, "".join(f"{canonical_json(row)}\n" for row in held), mode=0o600)


def _say(tally: Tally, report: bool, aside: Path | None, *, err: bool = True) -> None:
    """Counts only; on stderr beside cleaned text."""
    lines = [f"{tally.rows:,} rows, {tally.changed:,} with identifiers, {tally.quarantined:,} in doubt."]
    if aside:
        lines.append(f"Rows in doubt, unscrubbed: {ui.shown(aside)}")
    if report:
        lines += [f"  {kind:<10}{count:>8,}" for kind, count in sorted(tally.kinds.items())]
        lines += [f"  in doubt {count:,} times: {reason}" for reason, count in tally.reasons.most_common()]
        ranked = sorted(tally.doubts)
        if ranked:
            middle, high = ranked[len(ranked) // 2], ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))]
            lines.append(f"  doubt: median {middle:.2f}, 95 % below {high:.2f}, highest {ranked[-1]:.2f}")
    for line in lines:
        typer.echo(line, err=err)
