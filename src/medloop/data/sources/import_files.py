"""`medloop data import`: copy a file into the workspace unchanged, with a `source.json` that says how to read it.

Every file is read and checked first, then all of them are stored: an error leaves nothing behind.
`data/raw/NAME/` holds the file, `source.json` and, when rows were skipped, `rejected.jsonl` (line and reason, no content).
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medloop.contracts import DatasetCard, Source, utc_now
from medloop.data.sources import SourceRow, detect_encoding, detect_format, read_rows, shapes
from medloop.errors import ConfigError, InputError, StoreError
from medloop.settings import Workspace
from medloop.store.files.artifacts import file_sha256, new_artifact, remove_artifact, sweep, verify_artifact
from medloop.store.files.jsonl import write

SOURCE = "source.json"
REJECTED = "rejected.jsonl"
NAME = re.compile(r"[^\W_][\w.-]{0,63}")
PEEK = 100  # rows looked at to find the shape of a file
Outcome = Literal["new", "replaced", "unchanged"]


@dataclass(frozen=True)
class ImportOptions:
    """How to read the files; the same for all files of one import."""

    licence: str = "unknown"
    format: str = "auto"
    encoding: str = "auto"
    mapping: Mapping[str, str] | None = None
    skip_errors: bool = False


@dataclass(frozen=True)
class ExaminedFile:
    """A file that was read to its end and can be used; nothing has been stored yet."""

    path: Path
    source: Source
    rejected: tuple[SourceRow, ...]


def import_files(
    paths: Sequence[Path], raw: Path, *, name: str | None, options: ImportOptions, replace: bool = False
) -> list[tuple[Source, Outcome]]:
    """Read all files, then store all: each becomes a source of its own."""
    shapes.check_mapping(options.mapping or {})
    if raw.is_dir():
        sweep(raw)
    names = source_names(paths, name)
    examined = [examine(path, raw, name=name, options=options) for path, name in zip(paths, names, strict=True)]
    outcomes = [_outcome(file, raw, replace) for file in examined]
    for file, outcome in zip(examined, outcomes, strict=True):
        if outcome != "unchanged":
            _store(file, raw)
    return [(file.source, outcome) for file, outcome in zip(examined, outcomes, strict=True)]


def source_names(paths: Sequence[Path], name: str | None) -> list[str]:
    """NAME for one file; NAME-stem for each of several; the file's stem where no name was given."""
    stems = [path.name.removesuffix(".gz").rsplit(".", 1)[0] for path in paths]
    names = [name or stems[0]] if len(paths) == 1 else [f"{name}-{stem}" if name else stem for stem in stems]
    for index, source_name in enumerate(names):
        if not NAME.fullmatch(source_name):
            raise ConfigError(f"'{source_name}' is not a valid source name", "Use --name with letters, digits, '-', '_' and '.'")
        if source_name in names[:index]:
            raise ConfigError(
                f"Two files would both become the source '{source_name}'", "Import them one by one, each with its --name"
            )
    return names


def examine(path: Path, raw: Path, *, name: str, options: ImportOptions) -> ExaminedFile:
    """Read a file to its end; InputError names the file and line of the first problem, unless problems are skipped."""
    if path.name in (SOURCE, REJECTED, "MANIFEST.json"):
        raise InputError(f"{path}: medloop uses this file name itself", "Rename the file")
    format, encoding = how_to_read(path, options)
    digest = file_sha256(path)
    shape, columns = find_shape(path, format, encoding, options.mapping or {})
    good, rejected = 0, []
    for row, _ in fitted_rows(path, format, encoding, shape, columns):
        if not row.problem:
            good += 1
        elif options.skip_errors:
            rejected.append(row)
        else:
            raise InputError.at(path, row.line, row.problem, "Repair that line, or skip such lines with --on-error skip")
    if not good:
        raise InputError(f"{path}: none of its {len(rejected)} rows can be used", "See the reason with --on-error stop")
    source = Source(
        name=name, path=f"data/raw/{name}/{path.name}", sha256=digest, format=format, encoding=encoding, shape=shape,
        columns=columns, rows=good, rejected_rows=len(rejected), licence=options.licence, imported=utc_now(),
    )  # fmt: skip
    return ExaminedFile(path, source, tuple(rejected))


def list_sources(raw: Path) -> list[Source]:
    """Every imported source, by name."""
    return [read_source(raw, name) for name in _names(raw)]


def _names(raw: Path) -> list[str]:
    """The imported sources; hidden folders are imports on their way or never finished."""
    return sorted(path.parent.name for path in raw.glob(f"*/{SOURCE}") if not path.parent.name.startswith("."))


def read_source(raw: Path, name: str) -> Source:
    """One source, its bytes verified against what was imported."""
    folder = raw / name
    if not NAME.fullmatch(name) or not (folder / SOURCE).is_file():
        known = ", ".join(_names(raw)) or "none yet"
        raise InputError(f"There is no source '{name}' in {raw}", f"Imported sources: {known}")
    verify_artifact(folder)
    return Source.from_json((folder / SOURCE).read_text(encoding="utf-8"))


def remove_source(workspace: Workspace, name: str, *, force: bool = False) -> Source:
    """Remove an imported source from the disk. One that the prepared data was made from is kept, unless `force`."""
    source = read_source(workspace.raw, name)
    card = workspace.processed / "card.json"
    used = DatasetCard.from_json(card.read_text(encoding="utf-8")).sources if card.is_file() else ()
    if not force and any(used_source.name == name for used_source in used):
        raise StoreError(
            f"The prepared data was made from '{name}'",
            "Prepare the data without it first (medloop data prepare --source NAME), or remove it all the same with --force",
        )
    remove_artifact(workspace.raw / name)
    return source


def source_file(raw: Path, source: Source) -> Path:
    return raw / source.name / Path(source.path).name


def how_to_read(path: Path, options: ImportOptions) -> tuple[str, str]:
    """Format and encoding of a file."""
    format = detect_format(path, options.format)
    return format, "binary" if format == "parquet" else detect_encoding(path, options.encoding)


def fitted_rows(
    path: Path, format: str, encoding: str, shape: str, columns: Mapping[str, str]
) -> Iterator[tuple[SourceRow, list[shapes.RoleText]]]:
    """Every row with its messages; a row that does not fit the shape has a problem and no messages."""
    for row in read_rows(path, format, encoding):
        messages: list[shapes.RoleText] = []
        if not row.problem:
            try:
                messages = shapes.messages_of(row.values, shape, columns)
                shapes.passages_of(row.values, columns)
            except shapes.ShapeProblem as problem:
                row = SourceRow(row.line, problem=str(problem))
        yield row, messages


def find_shape(path: Path, format: str, encoding: str, mapping: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    columns: list[str] = []
    seen = False
    for row, _ in zip(read_rows(path, format, encoding), range(PEEK), strict=False):
        seen = True
        if row.problem:
            continue
        if match := shapes.fit(row.values, mapping):
            return match[0].name, match[1]
        columns = columns or [name for name in row.values if name]
    if not seen:
        raise InputError(f"{path} has no records", "Name a file with at least one record")
    if not columns:
        row = next(read_rows(path, format, encoding))
        raise InputError.at(path, row.line, row.problem, "Check the file's --format and --encoding")
    if absent := [name for name in mapping.values() if name not in columns]:
        field = next(field for field, name in mapping.items() if name == absent[0])
        raise InputError(f"--map {field}={absent[0]}: {path} has no column '{absent[0]}'", f"Its columns are: {_named(columns)}")
    known = "; ".join(f"{shape.name} ({' + '.join(shape.needs)})" for shape in shapes.SHAPES.values())
    what = f"{path}: no known shape fits its columns ({_named(columns)})"
    raise InputError(what, f"Known: {known}. Or name columns, for example --map question=COLUMN --map answer=COLUMN")


def _named(columns: Sequence[str]) -> str:
    """Column names for a message; what does not look like a name may be text of a file without a header."""
    shown = [name if re.fullmatch(r"[^\W\d][\w .-]{0,29}", name) else "…" for name in columns[:20]]
    return ", ".join(shown + (["…"] if len(columns) > 20 else []))


def _outcome(file: ExaminedFile, raw: Path, replace: bool) -> Outcome:
    folder = raw / file.source.name
    if not (folder / SOURCE).is_file():
        return "new"
    old = read_source(raw, file.source.name)
    if old.model_copy(update={"imported": None}) == file.source.model_copy(update={"imported": None}):
        return "unchanged"
    if not replace:
        what = "other bytes" if old.sha256 != file.source.sha256 else "the same bytes, read with other options"
        raise StoreError(f"The source '{file.source.name}' already holds {what}", "Choose another --name, or pass --replace")
    return "replaced"


def _store(file: ExaminedFile, raw: Path) -> None:
    with new_artifact(raw / file.source.name, replace=True) as folder:
        shutil.copyfile(file.path, folder / file.path.name)
        if file_sha256(folder / file.path.name) != file.source.sha256:
            raise InputError(f"{file.path} changed while it was being imported", "Import it again when nothing writes to it")
        (folder / SOURCE).write_text(file.source.canonical_json() + "\n", encoding="utf-8")
        if file.rejected:
            write(folder / REJECTED, ({"line": row.line, "reason": row.problem} for row in file.rejected))
