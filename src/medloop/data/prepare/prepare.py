"""`medloop data prepare`: sources in, one finished dataset out, all files at once or none.

    collect -> scrub -> drop duplicates -> cluster near-copies -> split -> decontaminate -> write -> check -> describe

The same sources, seed and configuration give the same bytes. Texts are spooled to disk; memory holds about two kilobytes
per row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from medloop.contracts import DatasetCard, FileEntry, Source
from medloop.contracts.dataset import SPLIT_FILES, DropReason, Language, Split, Stratum
from medloop.data.prepare.collect import LANGUAGES, Drop, RecordTable, collect_records, whole_text
from medloop.data.prepare.dataset_card import CardFacts, make_card, render_card
from medloop.data.prepare.decontaminate import FIRST_CHECK_SEED, RemainingCopies, check_files, find_copies
from medloop.data.prepare.scrub_sources import SourceScrubber
from medloop.data.prepare.split import SPLITS, TRAIN, Population, Sizes, assign, strata_in
from medloop.data.prepare.spool import Spool
from medloop.data.progress import Progress, silent
from medloop.data.sources.import_files import list_sources, read_source
from medloop.data.text.clean import CleanLimits
from medloop.data.text.dedupe import Signatures, exact_duplicates, near_duplicates
from medloop.data.text.near import Clusters, Indexes, Nearness, Vocabulary, near_pairs
from medloop.data.text.shingles import Hashes, text_shingles
from medloop.errors import InputError, ResultError
from medloop.settings import Workspace
from medloop.store.files.artifacts import file_sha256, new_artifact, sweep
from medloop.store.files.atomic import atomic_open
from medloop.store.files.jsonl import write

CARD, READABLE, DROPPED = "card.json", "DATA_CARD.md", "dropped.jsonl"
MIN_ROWS = 10
MAX_CHECKS = 20  # each finds about a thousandth of what the one before left, so real data need one or two
Repeats = dict[int, tuple[DropReason, int]]  # a dropped row: why, and the row it repeats


class PrepareConfig(BaseModel):
    """How to prepare; `--config FILE.yaml` or `--set NAME=VALUE`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("processed", min_length=1, description="Name of the dataset on its card.")
    dev: float = Field(0.1, ge=0, le=0.4, description="Share of the rows for dev.")
    test: float = Field(0.1, ge=0, le=0.4, description="Share of the rows for test.")
    gold: int = Field(200, ge=0, description="Rows of the gold set; at most a tenth of all rows.")
    red: int = Field(200, ge=0, description="Rows of the red-team set; at most a tenth of all rows and half of the candidates.")
    text_threshold: float = Field(
        0.8, gt=0.5, le=1, description="Jaccard similarity from which two whole texts are near-duplicates."
    )
    question_threshold: float = Field(
        0.75, gt=0.5, le=1, description="Share of words and pairs from which two questions are near-copies."
    )
    min_question_letters: int = Field(12, ge=1, description="Letters a question needs; a Chinese character counts as three.")
    min_answer_letters: int = Field(3, ge=1, description="Letters an answer needs; a Chinese character counts as three.")
    max_chars: int = Field(20_000, ge=100, description="Characters of the longest conversation.")
    scrub: bool = Field(True, description="Remove identifiers; doubtful conversations are left out and go into a separate file.")

    @property
    def limits(self) -> CleanLimits:
        return CleanLimits(self.min_question_letters, self.min_answer_letters, self.max_chars)

    @property
    def nearness(self) -> Nearness:
        return Nearness(both=self.question_threshold)

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.dev, self.test, self.gold, self.red)

    @model_validator(mode="after")
    def _leave_some_to_train(self) -> PrepareConfig:
        if self.dev + self.test > 0.5:
            raise ValueError(f"dev and test together take {self.dev + self.test:g} of the rows, at most 0.5 is possible")
        return self


@dataclass(frozen=True)
class RowOutcomes:
    """The fate of every row: its place in SPLITS, and for dropped rows the reason and the row they repeat."""

    places: NDArray[np.uint8]
    kept: NDArray[np.bool_]
    reasons: Repeats


@dataclass(frozen=True)
class PreparedFiles:
    """What stays in memory once the files are written; small, so that verification has the memory to itself."""

    files: dict[Split, FileEntry]
    cells: Counter[tuple[Split, Language, Stratum]]
    kept: Counter[str]
    drops: list[Drop]
    vocabulary: Vocabulary


def prepare(
    workspace: Workspace, config: PrepareConfig, *, seed: int, names: Sequence[str] = (), progress: Progress = silent
) -> DatasetCard:
    """Rebuild `data/processed` from the named sources (all by default)."""
    sources = [read_source(workspace.raw, name) for name in sorted(set(names))] if names else list_sources(workspace.raw)
    if not sources:
        raise InputError("There is no data to prepare", "Import some first: medloop data import FILE --name NAME")
    sweep(workspace.processed.parent)
    with new_artifact(workspace.processed, replace=True) as folder, _scrubbing(workspace, config) as scrub:
        built = _build(folder, sources, workspace.raw, config, scrub, seed, progress)
        built, checked = _remove_remaining(folder, built, config, progress)
        write(folder / DROPPED, ({k: v for k, v in vars(drop).items() if v is not None} for drop in built.drops))
        facts = CardFacts(
            config.model_dump(), seed, sources, built.files, built.cells, built.kept, built.drops, checked,
            None if scrub is None else scrub.counts(),
        )  # fmt: skip
        card = make_card(facts)
        (folder / CARD).write_text(card.canonical_json() + "\n", encoding="utf-8")
        (folder / READABLE).write_text(render_card(card, facts), encoding="utf-8")
    if scrub is None or not scrub.held:
        quarantine_file(workspace).unlink(missing_ok=True)
    return card


def quarantine_file(workspace: Workspace) -> Path:
    """The file of doubtful conversations, beside the dataset and not in it, so that it is not shared with the dataset."""
    return workspace.processed.with_name(f"{workspace.processed.name}.quarantine.jsonl")


@contextmanager
def _scrubbing(workspace: Workspace, config: PrepareConfig) -> Iterator[SourceScrubber | None]:
    """The quarantine file appears just before the dataset, so a kill in between never leaves a dataset without it.

    Without doubtful rows no file is written, and the previous dataset's file is deleted only after that dataset is replaced.
    """
    if not config.scrub:
        yield None
        return
    with suppress(_NoneInDoubt), atomic_open(quarantine_file(workspace), mode=0o600) as aside:
        scrub = SourceScrubber(aside)
        yield scrub
        if not scrub.held:
            raise _NoneInDoubt


class _NoneInDoubt(Exception):
    """No conversation was doubtful, so no quarantine file is written."""


def read_card(workspace: Workspace) -> DatasetCard:
    path = workspace.processed / CARD
    if not path.is_file():
        raise InputError("There is no prepared data yet", "Make it with: medloop data prepare")
    return DatasetCard.from_json(path.read_text(encoding="utf-8"))


def _build(
    folder: Path, sources: Sequence[Source], raw: Path, config: PrepareConfig, scrub: SourceScrubber | None, seed: int,
    progress: Progress,
) -> PreparedFiles:  # fmt: skip
    """Write the five split files."""
    with Spool(folder) as spool:
        rows, signatures, drops = collect_records(
            sources, raw, spool, limits=config.limits, scrub=scrub, seed=seed, progress=progress
        )  # fmt: skip
        _check_enough(rows, drops)
        repeats = _duplicates(rows, signatures, config.text_threshold, progress)
        del signatures
        vocabulary = Vocabulary(rows.questions)
        outcome = _sort_out(rows, repeats, vocabulary, config, progress)
        files = _write_splits(folder, rows, outcome)
        drops = _in_order([*drops, *_dropped(rows, outcome, sources)])
    rows_per_source = Counter(sources[number].name for number in rows.source[outcome.kept])
    return PreparedFiles(files, _cells(rows, outcome), rows_per_source, drops, vocabulary)


def _remove_remaining(
    folder: Path, built: PreparedFiles, config: PrepareConfig, progress: Progress
) -> tuple[PreparedFiles, dict[str, int]]:
    """Check the finished files and remove from train what the check finds, until a check finds nothing."""
    removed = 0
    for number in range(MAX_CHECKS):
        if not built.files["train"].rows:
            raise InputError(
                "Nothing would be left to train on: the questions are too much alike to hold some out",
                "Add other questions, or hold out less (--dev, --test, --gold, --red)",
            )
        check = check_files(
            folder, built.files, built.vocabulary, config.nearness, config.text_threshold, FIRST_CHECK_SEED + number, progress
        )  # fmt: skip
        if not check.copies:
            counts = {"train_questions": check.train_questions, "held_out_questions": check.held_out_questions}
            return built, {**counts, "checks": number + 1, "removed_by_checks": removed, "left": 0}
        built = _without_copies(folder, built, check)
        removed += len(check.copies)
    raise ResultError(
        f"{len(check.copies)} near-copies of held-out records were still in the train set after {MAX_CHECKS} checks, "
        "so nothing was written",
        "This is a bug in medloop: please report it",
    )


def _without_copies(folder: Path, built: PreparedFiles, check: RemainingCopies) -> PreparedFiles:
    """The train file without the copies that a check found, and the counts that go with it."""
    train = _without_rows(folder / built.files["train"].path, check.train_rows)
    drops = [
        Drop(copy.origin.source, copy.origin.line, "contaminated", copy.record_id, match.record_id, split)
        for copy, match, split in check.copies
    ]
    cells = Counter[tuple[Split, Language, Stratum]](("train", copy.language, copy.stratum) for copy, _, _ in check.copies)
    kept = Counter(copy.origin.source for copy, _, _ in check.copies)
    return replace(
        built, files={**built.files, "train": train}, cells=built.cells - cells, kept=built.kept - kept,
        drops=_in_order([*built.drops, *drops]),
    )  # fmt: skip


def _without_rows(path: Path, rows: Container[int]) -> FileEntry:
    """Rewrite a file without these rows."""
    lines = [line for row, line in enumerate(path.read_bytes().splitlines(keepends=True)) if row not in rows]
    path.write_bytes(b"".join(lines))
    return FileEntry(path=path.name, rows=len(lines), sha256=file_sha256(path))


def _in_order(drops: Iterable[Drop]) -> list[Drop]:
    return sorted(drops, key=lambda drop: (drop.source, drop.line))


def _check_enough(rows: RecordTable, drops: Sequence[Drop]) -> None:
    if len(rows) < MIN_ROWS:
        why = ", ".join(f"{count} {reason}" for reason, count in Counter(drop.reason for drop in drops).most_common())
        raise InputError(
            f"Only {len(rows)} of {len(rows) + len(drops)} rows can be used, at least {MIN_ROWS} are needed",
            f"Dropped: {why}" if why else "Import more data",
        )


def _duplicates(
    rows: RecordTable, signatures: Signatures, threshold: float, progress: Progress
) -> dict[int, tuple[DropReason, int]]:
    """Rows that repeat another row, exactly or nearly, and which; reviewed rows are kept before their copies."""
    same = exact_duplicates(rows.text_keys, rows.reviewed)
    left = np.flatnonzero(same < 0)
    order = left[np.argsort(~rows.reviewed[left], kind="stable")]
    near = near_duplicates(signatures, order, _shingles_of(rows), threshold, progress)
    stand_ins = _stand_ins(np.maximum(same, near))
    dropped = np.flatnonzero(stand_ins != np.arange(len(rows))).tolist()
    if (count := len(rows) - len(dropped)) < MIN_ROWS:
        raise InputError(f"Only {count} rows are left without duplicates, at least {MIN_ROWS} are needed", "Import more data")
    return {row: ("near_duplicate" if same[row] < 0 else "exact_duplicate", int(stand_ins[row])) for row in dropped}


def _sort_out(
    rows: RecordTable,
    repeats: dict[int, tuple[DropReason, int]],
    vocabulary: Vocabulary,
    config: PrepareConfig,
    progress: Progress,
) -> RowOutcomes:
    """Assign clusters to splits and remove copies of held-out questions from train."""
    stand_ins = np.arange(len(rows))
    stand_ins[list(repeats)] = [row for _, row in repeats.values()]
    is_kept = stand_ins == np.arange(len(rows))
    clusters, generic = _clusters(rows, vocabulary, config.nearness, progress), vocabulary.generic(rows.questions)
    population = Population(clusters, stand_ins, rows.priorities, rows.reviewed, rows.language, rows.strata, generic)
    places = assign(population, config.sizes)
    train, held_out = np.flatnonzero(is_kept & (places == TRAIN)), np.flatnonzero(is_kept & (places != TRAIN))
    copies = find_copies(rows, train, held_out, vocabulary, config.nearness, progress)
    is_kept[list(copies)] = False
    return RowOutcomes(places, is_kept, {**repeats, **{row: ("contaminated", match) for row, match in copies.items()}})


def _stand_ins(repeats: Indexes) -> Indexes:
    """For each row itself, or for a duplicate the kept row that it repeats."""
    rows = np.where(repeats < 0, np.arange(len(repeats)), repeats)
    while (rows[rows] != rows).any():
        rows = rows[rows]
    return np.asarray(rows)


def _shingles_of(rows: RecordTable) -> Callable[[int], Hashes]:
    return lambda row: text_shingles(whole_text(rows.spool.record(row).conversation))


def _clusters(rows: RecordTable, vocabulary: Vocabulary, nearness: Nearness, progress: Progress) -> Indexes:
    clusters = Clusters(len(rows))
    first: dict[int, int] = {}
    for row, key in enumerate(rows.question_keys.tolist()):
        clusters.join(row, first.setdefault(key, row))
    with progress("Clustering near-copies of questions", len(rows)) as step:
        for row, near_copies in near_pairs(rows.questions, vocabulary, nearness):
            step(1)
            for other in near_copies.tolist():
                clusters.join(row, other)
    return clusters.labels()


def _write_splits(folder: Path, rows: RecordTable, outcome: RowOutcomes) -> dict[Split, FileEntry]:
    files: dict[Split, FileEntry] = {}
    for place, split in enumerate(SPLITS):
        chosen = np.flatnonzero(outcome.kept & (outcome.places == place)).tolist()
        path = folder / SPLIT_FILES[split]
        with path.open("wb") as file:
            file.writelines(rows.spool.lines(chosen))
        files[split] = FileEntry(path=path.name, rows=len(chosen), sha256=file_sha256(path))
    return files


def _dropped(rows: RecordTable, outcome: RowOutcomes, sources: Sequence[Source]) -> list[Drop]:
    drops = []
    for row, (reason, match) in outcome.reasons.items():
        match_is_kept = outcome.kept[match]
        drops.append(
            Drop(
                source=sources[rows.source[row]].name,
                line=int(rows.line[row]),
                reason=reason,
                record_id=rows.spool.record(row).record_id,
                matched=rows.spool.record(match).record_id,
                split=SPLITS[outcome.places[match]] if match_is_kept else None,
            )
        )
    return drops


def _cells(rows: RecordTable, outcome: RowOutcomes) -> Counter[tuple[Split, Language, Stratum]]:
    """Rows per split, language and gravest stratum."""
    return Counter(
        (SPLITS[outcome.places[row]], LANGUAGES[rows.language[row]], strata_in(int(rows.strata[row]))[0])
        for row in np.flatnonzero(outcome.kept).tolist()
    )
