"""`medloop data preview`: what an import would read from a file. Nothing is written."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from medloop.data.sources import shapes
from medloop.data.sources.import_files import ImportOptions, find_shape, fitted_rows, how_to_read
from medloop.lexicon.language import detect_language

LANGUAGE_ROWS = 500  # rows whose language is detected
PROBLEMS = 10  # problems that are named


@dataclass(frozen=True)
class Preview:
    """`columns` maps the fields of the shape to columns of the file; `ignored` are columns that no field reads."""

    path: Path
    format: str
    encoding: str
    shape: str
    columns: Mapping[str, str]
    ignored: tuple[str, ...]
    rows: int
    problems: int
    named_problems: tuple[tuple[int, str], ...]
    languages: Mapping[str, int]
    examples: tuple[tuple[shapes.RoleText, ...], ...]


def preview(path: Path, options: ImportOptions, *, count: int) -> Preview:
    """Read the whole file as an import would; the first `count` conversations are kept. InputError if no shape fits."""
    shapes.check_mapping(options.mapping or {})
    format, encoding = how_to_read(path, options)
    shape, columns = find_shape(path, format, encoding, options.mapping or {})
    rows, problems, languages, examples = 0, list[tuple[int, str]](), Counter[str](), list[tuple[shapes.RoleText, ...]]()
    names: dict[str, None] = {}
    for row, messages in fitted_rows(path, format, encoding, shape, columns):
        if row.problem:
            problems.append((row.line, row.problem))
            continue
        rows += 1
        names |= dict.fromkeys(row.values) if rows <= LANGUAGE_ROWS else {}
        if rows <= LANGUAGE_ROWS:
            languages[detect_language("\n".join(text for _, text in messages))] += 1
        if len(examples) < count:
            examples.append(tuple(messages))
    ignored = tuple(name for name in names if name and name not in columns.values())
    return Preview(
        path, format, encoding, shape, columns, ignored, rows, len(problems), tuple(problems[:PROBLEMS]), languages,
        tuple(examples),
    )  # fmt: skip
