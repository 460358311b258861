"""`medloop privacy`: remove personal identifiers from a file, or count them without showing any text."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from medloop.cli import ui
from medloop.contracts import canonical_json
from medloop.errors import InputError, explain_os_errors
from medloop.privacy.phi import allowed, scrub_file
from medloop.privacy.phi.scrub_file import ScrubCounts, scrub_row
from medloop.store.audit_trail import open_audit_trail
from medloop.store.files.atomic import atomic_write
from medloop.store.files.jsonl import numbered, write

privacy_app = typer.Typer(no_args_is_help=True, help="Find and remove identifiers of patients and staff.")

_FIELD = typer.Option("--field", help="Field of each row to scrub; may be repeated (default: every text in the row).")


def register(app: typer.Typer) -> None:
    app.add_typer(privacy_app, name="privacy")


@privacy_app.command("scrub")
def scrub(
    source: Annotated[str, typer.Argument(metavar="[FILE|-]", help="JSON lines (.jsonl) or plain text; - reads stdin.")] = "-",
    field: Annotated[list[str] | None, _FIELD] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the scrubbed rows (default: stdout).")] = None,
    quarantine: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for doubtful rows (default: FILE.quarantine.jsonl).")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Show counts by kind and the reasons for doubt.")] = False,
) -> None:
    """Replace identifiers with placeholders; doubtful rows go to a side file, unchanged, for a person to review.

    No file is overwritten. The side file holds unscrubbed text, and only you can read it.

    Example:  medloop privacy scrub notes.jsonl --field text --output clean.jsonl --report
    """
    ui.resolved(must_exist=False)
    aside = quarantine or Path("quarantine.jsonl" if source == "-" else f"{source}.quarantine.jsonl")
    _must_be_new(*(path for path in (output, aside) if path))
    rows, as_text = _read(source)
    counts, held = ScrubCounts(), list[Mapping[str, Any]]()
    cleaned = _scrub_rows(rows, field or [], counts, held)
    if output and not as_text:
        write(output, cleaned)
    elif output:
        for row in cleaned:
            atomic_write(output, row["text"])
    else:
        _print(cleaned, as_text)
    if held:
        atomic_write(aside, "".join(f"{canonical_json(row)}\n" for row in held), mode=0o600)
    _say(counts, report, aside if held else None)


@privacy_app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines (.jsonl) or plain text; - reads stdin.")],
    field: Annotated[list[str] | None, _FIELD] = None,
    json_: ui.AsJson = False,
) -> None:
    """Count the identifiers and doubtful rows in a file. Changes nothing and prints none of its text.

    Example:  medloop privacy check clean.jsonl
    """
    ui.resolved(must_exist=False)
    counts = ScrubCounts()
    for row in _read(file)[0]:
        counts.add(scrub_row(row, field or []))
    if json_:
        ui.say_json({name: getattr(counts, name) for name in ("rows", "changed", "quarantined", "kinds", "reasons")})
    else:
        _say(counts, True, None, err=False)


@privacy_app.command("preview")
def preview(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines (.jsonl) or plain text; - reads stdin.")],
    field: Annotated[list[str] | None, _FIELD] = None,
    most: Annotated[int, typer.Option(min=1, help="Show at most this many replacements.")] = 50,
    json_: ui.AsJson = False,
) -> None:
    """Show what 'medloop privacy scrub' would replace in a file: each text, its kind, how often, and one example.

    Nothing is changed. The most frequent replacement comes first. The output contains text from the file, so protect it like the
    file. If the scrubber takes a medical term for a name, keep the term with: medloop privacy allow TERM

    Example:  medloop privacy preview notes.jsonl --field text
    """
    ui.resolved(must_exist=False)
    replacements, counts = scrub_file.preview(_read(file)[0], field or [])
    if json_:
        ui.say_json({"replaced": [row._asdict() for row in replacements[:most]], "rows": counts.rows, "held": counts.quarantined})
        return
    rows = [(row.kind, ui.printable(row.text), f"{row.times:,}", ui.printable(row.example)) for row in replacements[:most]]
    ui.table(("Kind", "Text", "Times", "Example"), rows)
    if len(replacements) > most:
        ui.say(f"{len(replacements) - most:,} more; show them with --most {len(replacements)}")
    _say(counts, False, None, err=False)


@privacy_app.command("allow")
def allow(
    terms: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TERM]...", help="Medical terms to keep, not names of people. Without terms, the list is shown."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the terms from the list, so that they are replaced again.")
    ] = False,
) -> None:
    """Keep medical terms that the scrubber takes for names: show this workspace's list of them, or add and remove terms.

    A listed term is kept where it would be replaced as a name, a place or an organisation. Numbers, dates and addresses are
    always replaced. To see what would be replaced, use 'medloop privacy preview'. The audit log records each change with the
    number of terms and a digest of the list, but not the terms; dataset cards name the digest.

    Example:  medloop privacy allow 帕金森 "Zio patch"
    """
    settings = ui.settings()
    listed, given = allowed.read_terms(settings.allow_file), [term.strip() for term in terms or []]
    if not given:
        ui.say("\n".join(listed) or "No terms are allowed. Add some with: medloop privacy allow TERM...")
        return
    if bad := [term for term in given if not 2 <= len(term) <= 40 or any(char.isdigit() for char in term)]:
        raise InputError(f"'{bad[0]}' cannot be allowed", "A term has 2 to 40 characters and no digits")
    with open_audit_trail(settings) as trail:
        kept = [term for term in listed if term not in given]
        changed = kept if remove else [*listed, *dict.fromkeys(term for term in given if term not in listed)]
        atomic_write(settings.allow_file, "".join(f"{term}\n" for term in changed), mode=0o600)
        allowed.use(settings.allow_file)
        action = "privacy.disallow" if remove else "privacy.allow"
        trail.record(
            action, settings.allow_file, terms=abs(len(changed) - len(listed)), total=len(changed), list=allowed.version()
        )
    ui.say(
        f"{len(changed):,} terms are allowed in {ui.shown(settings.allow_file)}. A running server reads them at its next start."
    )


def _must_be_new(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise InputError(f"{path} already exists", "Name another file, or move this one away")
        if not path.parent.is_dir():
            raise InputError(f"There is no folder {path.parent}", "Make it first, or name a file in another one")


def _read(source: str) -> tuple[Iterator[Mapping[str, Any]], bool]:
    """The rows, and whether they are one plain text."""
    if source.endswith((".jsonl", ".jsonl.gz")):
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


def _scrub_rows(
    rows: Iterator[Mapping[str, Any]], fields: list[str], counts: ScrubCounts, held: list[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for row in rows:
        scrubbed = scrub_row(row, fields)
        counts.add(scrubbed)
        if scrubbed.quarantined:
            held.append({"doubt": scrubbed.doubt, "reasons": scrubbed.reasons, "row": row})
        else:
            yield scrubbed.cleaned


def _print(cleaned: Iterator[dict[str, Any]], as_text: bool) -> None:
    for row in cleaned:
        typer.echo(row["text"] if as_text else json.dumps(row, ensure_ascii=False), nl=not as_text)


def _say(counts: ScrubCounts, report: bool, aside: Path | None, *, err: bool = True) -> None:
    """Counts only; on stderr when the scrubbed text goes to stdout."""
    lines = [f"{counts.rows:,} rows, {counts.changed:,} with identifiers, {counts.quarantined:,} doubtful."]
    if aside:
        lines.append(f"Doubtful rows, unscrubbed: {ui.shown(aside)}")
    if report:
        lines += [f"  {kind:<10}{count:>8,}" for kind, count in sorted(counts.kinds.items())]
        lines += [f"  doubtful {count:,} times: {reason}" for reason, count in counts.reasons.most_common()]
        ranked = sorted(counts.doubts)
        if ranked:
            middle, high = ranked[len(ranked) // 2], ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))]
            lines.append(f"  doubt: median {middle:.2f}, 95 % below {high:.2f}, highest {ranked[-1]:.2f}")
    for line in lines:
        typer.echo(line, err=err)
