"""`medloop data build`: what people said becomes data a model may learn from, whole or not at all.

    gather -> draft -> scrub -> drop near-copies -> decontaminate -> split by question -> write -> describe -> publish

Out: the folder `data/feedback/NAME` (pairs, thumbs, experts' answers, rules for the codebook, red-team questions, what was left
out, card), and `data/preferences/{preferences,thumbs}.jsonl`, where training looks for them. Each row names the records behind
it. The same store, prepared data, seed and settings give the same bytes, so building again changes nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import (
    CodebookDelta,
    FeedbackCard,
    Message,
    Record,
)
from medloop.contracts.dataset import SPLIT_FILES, Split
from medloop.data.feedback.build_card import CARD, READABLE, make_card, render_card
from medloop.data.feedback.near_rows import Asked, Wordings, repeats, sides
from medloop.data.feedback.pool import KINDS, Pool, Row
from medloop.data.feedback.propose_rules import Proposals
from medloop.data.feedback.rows import Draft, draft
from medloop.data.feedback.scrub_rows import Cleaner
from medloop.data.feedback.select import Fix, Question, Survey, by_question, survey
from medloop.data.feedback.write import ANSWERS, PAIRS, RED, RULES, SOURCE, THUMBS, pair, write
from medloop.data.prepare.collect import opening
from medloop.data.progress import Progress, silent
from medloop.data.text.near import Indexes, Mask, Nearness
from medloop.errors import BusyError, InputError
from medloop.knobs import RUN_NAME
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, new_artifact, sweep, verify_artifact, verify_if_sealed
from medloop.store.records import crud, erasing, lineage

HELD_OUT: tuple[Split, ...] = ("dev", "test", "gold", "red")
WAIT_S = 120.0  # for an erasure that is under way when a dataset is ready


class FeedbackConfig(BaseModel):
    """How to build; `--config FILE.yaml` or `--set NAME=VALUE`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("feedback", pattern=RUN_NAME, description="Name of the dataset, under data/feedback.")
    test_share: float = Field(
        0.2, ge=0, le=0.5, description="Share of the questions that is held out; near-copies stay together."
    )
    liked_answers: bool = Field(False, description="Also learn from answers that most raters liked, beside experts' answers.")
    max_pairs: int = Field(8, ge=1, le=10_000_000, description="Most preference pairs of one question.")
    text_threshold: float = Field(0.8, gt=0.5, le=1, description="Jaccard similarity from which two answers are near-copies.")
    question_threshold: float = Field(0.75, gt=0.5, le=1, description="Share of words from which two questions are near-copies.")
    hold_out_critical: bool = Field(True, description="Questions with a critical failure go to the test side, to be measured by.")
    strict_consent: bool = Field(
        False, description="A record about a person needs that person's grant on file, not only no refusal."
    )

    @property
    def nearness(self) -> Nearness:
        return Nearness(both=self.question_threshold)


@dataclass
class Made:
    """Everything that is known before a file is written; the rows are in the pool, `test` says which are held out."""

    found: Survey
    pool: Pool
    drops: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)  # kind, reason, records
    rules: list[CodebookDelta] = field(default_factory=list)
    evidence: set[str] = field(default_factory=set)  # corrections that a rule may have come from
    checked: dict[str, int] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    kept: Mask = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    test: Mask = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def leave_out(self, kind: str, reason: str, ids: Iterable[str]) -> None:
        self.drops[kind, reason] += 1
        self.dropped.append((kind, reason, tuple(ids)))

    def side(self, at: int) -> str:
        return "test" if self.test[at] else "train"


@dataclass(frozen=True)
class Built:
    """The finished dataset; `kept` rows of preferences.jsonl came from elsewhere, `new` records were never used before."""

    card: FeedbackCard
    folder: Path
    sha256: str
    kept: int
    new: int
    held: int


def build(
    store: Store, config: FeedbackConfig, *, seed: int, actor: str, progress: Progress = silent
) -> Built:  # fmt: skip
    """Make the dataset anew from the whole store, put it in place, and enter which records are in it."""
    workspace = store.settings.workspace
    target = workspace.home / "data/feedback" / config.name
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    with ExitStack() as until_entered:
        with new_artifact(target, replace=True) as folder:
            made = until_entered.enter_context(making(store, config, folder, seed=seed, actor=actor, progress=progress))
            _check_some(made)
            written = write(folder, made, progress)
            card = make_card(config.model_dump(), seed, written, made)
            (folder / CARD).write_text(card.canonical_json() + "\n", encoding="utf-8")
            (folder / READABLE).write_text(render_card(card), encoding="utf-8")
            # From here to the end nobody may erase: what goes now would come back with the folder.
            until_entered.enter_context(erasing.erasure_lock(store, wait_s=WAIT_S))
            _check_none_erased(store, made)
        sha256 = verify_artifact(target).sha256
        kept = _publish(workspace, target)
        new = _enter(store, made, sha256, target, actor)
    held = sum(fates["phi"] for fates in made.found.fates.values())
    return Built(card, target, sha256, kept, new, held)


def write_preferences(
    store: Store, output: Path, config: FeedbackConfig, *, seed: int, actor: str, progress: Progress = silent
) -> tuple[int, int]:
    """Document 002: the preference pairs of any store as one file, each row with its side of the split; (train, test) rows."""
    with (
        TemporaryDirectory() as folder,
        making(store, config, Path(folder), seed=seed, actor=actor, progress=progress) as made,
    ):
        rows = made.pool.of_kind("pairs", made.kept).tolist()
        if not rows:
            raise InputError(f"{store.name} gives no preference pairs ({_why(made)})", "See: medloop data build")
        with erasing.erasure_lock(store, wait_s=WAIT_S):
            _check_none_erased(store, made)
            jsonl.write(output, (pair(made.pool.row(at), made.side(at)) for at in rows))
            with store.write() as conn:
                lineage.add_records(conn, file_sha256(output), (one for row in jsonl.read(output) for one in _sources(row)))
                lineage.flag_artifact(conn, file_sha256(output), "exported", str(output))
        test = int(made.test[rows].sum())
    return len(rows) - test, test


@contextmanager
def making(
    store: Store, config: FeedbackConfig, folder: Path, *, seed: int, actor: str, progress: Progress
) -> Iterator[Made]:  # fmt: skip
    """Rows in their final form and order, for as long as the block lasts; `folder` has room for their texts.

    Nothing is written into the store but audit lines and what goes into quarantine.
    """
    cleaner = Cleaner()
    found = survey(store, cleaner, actor=actor, strict=config.strict_consent, progress=progress)
    held_out, parents = _held_out(store.settings.workspace)
    with Pool(folder) as pool:
        made = Made(found, pool, parents=parents)
        _draft(store, made, cleaner, config, progress)
        made.kept = np.ones(len(pool), dtype=np.bool_)
        _drop_copies(made, config, progress)
        _decontaminate(made, held_out, config)
        _split(made, config, seed)
        yield made


def _draft(store: Store, made: Made, cleaner: Cleaner, config: FeedbackConfig, progress: Progress) -> None:
    """Question by question: what was said about it becomes rows, and the rows are scrubbed."""
    proposals = Proposals()
    with progress("Making rows", len(made.found.index)) as step:
        for material in by_question(store, made.found):
            drafts = draft(material, max_pairs=config.max_pairs, liked_answers=config.liked_answers)
            for kind, reason, ids in drafts.dropped:
                made.leave_out(kind, reason, ids)
            for one in drafts.rows:
                _add(made, one, cleaner)
            for fix in material.fixes:
                _propose(proposals, fix, cleaner)
                made.evidence.add(fix.record_id)
            step(len(material.marks) + len(material.votes) + len(material.fixes))
    made.rules = proposals.rules()
    if proposals.silent:
        made.drops["rules", "nothing_to_say"] += len(proposals.silent)
        made.dropped.append(("rules", "nothing_to_say", tuple(sorted(proposals.silent))))


def _add(made: Made, one: Draft, cleaner: Cleaner) -> None:
    """One scrubber a row: the same person has the same placeholder in question and answers."""
    scrubber = Scrubber()
    try:
        question = cleaner.messages(one.question.messages, scrubber)
        texts = tuple(cleaner.scrub(text, scrubber) for text in one.texts)
    except Unscrubbable:  # the turns of a trace, which no record was checked for
        made.leave_out(one.kind, "phi", one.records)
        return
    made.pool.add(Row.of(one, question, texts), one.order)


def _propose(proposals: Proposals, fix: Fix, cleaner: Cleaner) -> None:
    scrubber = Scrubber()
    try:
        asked, original, golden = (cleaner.scrub(text, scrubber) for text in (fix.question.asked, fix.original, fix.golden))
        reason = None if fix.reason is None else cleaner.scrub(fix.reason, scrubber)
    except Unscrubbable:
        return  # counted with the row that has the same turns
    question = Question((Message(role="user", content=asked),))
    proposals.add(replace(fix, question=question, original=original, golden=golden, reason=reason))


def _drop_copies(made: Made, config: FeedbackConfig, progress: Progress) -> None:
    """Per kind; what more records speak for stays."""
    with progress("Looking for near-copies", len(made.pool)) as step:
        for kind in KINDS:
            rows = made.pool.by_weight(kind)
            asked = Asked(made.pool.wordings, made.pool.wording(rows), Wordings(), config.nearness)
            texts_of = partial(_compared, made.pool, rows)
            for at, reason in sorted(repeats(asked.clusters(), texts_of, config.text_threshold, step).items()):
                _take_out(made, int(rows[at]), reason)


def _compared(pool: Pool, rows: Indexes, at: int) -> tuple[str, ...]:
    return pool.row(int(rows[at])).compared


def _decontaminate(made: Made, held_out: Wordings, config: FeedbackConfig) -> None:
    rows = np.flatnonzero(made.kept)
    copies = Asked(made.pool.wordings, made.pool.wording(rows), held_out, config.nearness).copies()
    for at in rows[copies].tolist():
        _take_out(made, at, "contaminated")
    made.checked = {"held_out_questions": held_out.given, "rows_compared": len(rows), "left": 0}


def _take_out(made: Made, at: int, reason: str) -> None:
    row = made.pool.row(at)
    made.kept[at] = False
    made.leave_out(row.kind, reason, row.records)


def _split(made: Made, config: FeedbackConfig, seed: int) -> None:
    rows = np.flatnonzero(made.kept)
    numbers = made.pool.wording(rows)
    labels = Asked(made.pool.wordings, numbers, Wordings(), config.nearness).clusters()
    critical = made.pool.kinds()[rows] == KINDS.index("red")
    made.test = np.zeros(len(made.pool), dtype=np.bool_)
    keys = made.pool.wordings.keys()[numbers]
    made.test[rows] = sides(labels, keys, critical & config.hold_out_critical, config.test_share, seed)


def _held_out(workspace: Workspace) -> tuple[Wordings, tuple[str, ...]]:
    """Questions of the prepared data that nothing here may repeat, and the hashes of the files they are in."""
    paths = [workspace.processed / SPLIT_FILES[split] for split in HELD_OUT]
    found = [path for path in paths if path.is_file()]
    if found:
        verify_if_sealed(workspace.processed)
    questions = (opening(record.conversation) for path in found for record in jsonl.read(path, Record))
    return Wordings(questions), tuple(file_sha256(path) for path in found)


def _check_some(made: Made) -> None:
    if not (made.pool.kinds()[made.kept] != KINDS.index("red")).any():
        raise InputError(
            f"There is nothing to learn from yet ({_why(made)})", "Collect feedback, or look at consent and quarantine"
        )


def _why(made: Made) -> str:
    fates: Counter[str] = Counter()
    for counts in made.found.fates.values():
        fates.update(counts)
    said = [f"{count:,} records {fate.replace('_', ' ')}" for fate, count in fates.most_common()]
    said += [f"{count:,} {kind} {reason.replace('_', ' ')}" for (kind, reason), count in made.drops.most_common()]
    return ", ".join(said) or "the store holds no feedback"


def _check_none_erased(store: Store, made: Made) -> None:
    gone, used = lineage.erased_ids(store), made.found.settled.values()
    if any(one in gone for ids in used for one in ids):
        raise BusyError("Records were erased while the dataset was being made", "Build it again; nothing was changed")


def _publish(workspace: Workspace, folder: Path) -> int:
    """Put pairs and thumbs where training looks; rows of other origin stay. Returns how many of those there are."""
    kept = 0
    for name in (PAIRS, THUMBS):
        path, mine = workspace.preferences / name, folder / name
        known = {_same(row) for row in jsonl.read(mine)}
        if not known and not path.is_file():
            continue
        others = (row for row in jsonl.read(path) if _is_other(row, known)) if path.is_file() else iter(())
        kept += jsonl.write(path, chain(others, jsonl.read(mine))) - sum(1 for _ in jsonl.read(mine))
    return kept


def _is_other(row: dict[str, Any], known: set[bytes]) -> bool:
    return (row.get("metadata") or {}).get("source") != SOURCE and _same(row) not in known


def _same(row: dict[str, Any]) -> bytes:
    said = repr([row.get(name) for name in ("prompt", "chosen", "rejected", "completion", "label")])
    return hashlib.blake2b(said.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()


def _enter(store: Store, made: Made, sha256: str, folder: Path, actor: str) -> int:
    """Which records are in the dataset and in each of its files, and that they have been used; returns how many are new.

    Models name the file they learnt from by its hash, so each file has a lineage of its own. One transaction a file: whoever
    else wants to write waits for one of them, not for all.
    """
    published = store.settings.workspace.preferences
    files = [folder / name for name in (PAIRS, THUMBS, RULES, RED, *ANSWERS.values())]
    inside = set(made.evidence)
    for path in (*files, published / PAIRS, published / THUMBS):
        if not path.is_file():
            continue
        found = {one for row in jsonl.read(path) for one in _sources(row)}
        if path.parent == folder:
            inside |= found
        with store.write() as conn:
            lineage.add_records(conn, file_sha256(path), found)
    with store.write() as conn:
        lineage.add_records(conn, sha256, inside)
    return sum(crud.mark_processed(store, kind, ids, actor=actor) for kind, ids in made.found.settled.items())


def _sources(row: dict[str, Any]) -> list[str]:
    """The records that a line of any of the files came from."""
    part = row.get("metadata") or row.get("meta") or {}
    return [*part.get("records", ()), *(row.get("rule") or {}).get("evidence", ())]
