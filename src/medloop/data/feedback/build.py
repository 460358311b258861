"""`medloop data build`: feedback becomes data that a model may learn from, whole or not at all.

    select -> draft rows -> scrub -> drop duplicates -> decontaminate -> split -> write -> publish -> record lineage

Out: the folder `data/feedback/NAME` (pairs, thumbs, experts' answers, rules for the codebook, red-team questions, what was left
out, card), and `data/preferences/{preferences,thumbs}.jsonl`, where training looks for them. Each row names the records behind
it. The same store, prepared data, seed and settings give the same bytes, so building again changes nothing.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import FeedbackCard, Record
from medloop.contracts.dataset import SPLIT_FILES, Split
from medloop.contracts.record_filter import FilterTree
from medloop.data.feedback.draft_dataset import KINDS, DraftDataset, RowPool
from medloop.data.feedback.near_rows import DistinctPrompts
from medloop.data.feedback.propose_rules import RuleProposals
from medloop.data.feedback.rater_weights import EQUAL, RaterWeights
from medloop.data.feedback.rows import draft_rows
from medloop.data.feedback.select import CachedScrubber, feedback_by_prompt, select_records
from medloop.data.feedback.write import ANSWERS, PAIRS, RED, RULES, SOURCE, THUMBS, pair_line, write_dataset
from medloop.data.prepare.collect import opening
from medloop.data.progress import Progress, silent
from medloop.data.text.near import Nearness
from medloop.errors import BusyError, InputError
from medloop.knobs import RUN_NAME
from medloop.settings import Workspace
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, new_artifact, sweep, verify_artifact, verify_if_sealed
from medloop.store.records import crud, erasing, lineage

HELD_OUT: tuple[Split, ...] = ("dev", "test", "gold", "red")
WAIT_S = 120.0  # for an erasure that is running when a dataset is ready


class FeedbackConfig(BaseModel):
    """How to build; `--config FILE.yaml` or `--set NAME=VALUE`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("feedback", pattern=RUN_NAME, description="Name of the dataset, under data/feedback.")
    test_share: float = Field(0.2, ge=0, le=0.5, description="Share of questions to hold out; near-copies stay together.")
    liked_answers: bool = Field(True, description="Learn from answers that most raters liked as well as from experts' answers.")
    max_pairs: int = Field(8, ge=1, le=10_000_000, description="Most preference pairs for one question.")
    text_threshold: float = Field(0.8, gt=0.5, le=1, description="Jaccard similarity from which two answers are near-copies.")
    question_threshold: float = Field(0.75, gt=0.5, le=1, description="Share of words from which two questions are near-copies.")
    hold_out_critical: bool = Field(True, description="Hold out questions with a critical failure, for measuring.")
    strict_consent: bool = Field(
        False, description="A record about a person needs that person's consent on file; no refusal is not enough."
    )
    filter: FilterTree | None = Field(None, description="Only records that fit this tree; see 'medloop data filter'.")


@dataclass(frozen=True)
class BuiltDataset:
    """The finished dataset; `foreign_rows` of preferences.jsonl came from elsewhere, `new_records` were never used before."""

    card: FeedbackCard
    folder: Path
    sha256: str
    foreign_rows: int
    new_records: int
    quarantined: int


def build(
    store: Store, config: FeedbackConfig, *, seed: int, actor: str, weights: RaterWeights = EQUAL, progress: Progress = silent
) -> BuiltDataset:  # fmt: skip
    """Build the dataset anew from the whole store, put it in place, and record which records are in it."""
    workspace = store.settings.workspace
    target = workspace.home / "data/feedback" / config.name
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    with ExitStack() as until_recorded:
        with new_artifact(target, replace=True) as folder:
            drafted = drafting(store, config, folder, seed=seed, actor=actor, weights=weights, progress=progress)
            draft = until_recorded.enter_context(drafted)
            if not (draft.pool.kinds()[draft.keep_mask] != KINDS.index("red")).any():
                what = f"There is nothing to learn from yet ({_why_nothing(draft)})"
                raise InputError(what, "Collect feedback, or check consent and quarantine")
            card = write_dataset(folder, draft, config.model_dump(), seed, progress)
            # From here to the end nobody may erase: what is erased now would come back with the folder.
            until_recorded.enter_context(erasing.erasure_lock(store, wait_s=WAIT_S))
            _check_none_erased(store, draft)
        sha256 = verify_artifact(target).sha256
        foreign_rows = _publish(workspace, target)
        new_records = _record_lineage(store, draft, sha256, target, actor)
    quarantined = sum(counts["phi"] for counts in draft.selection.statuses.values())
    return BuiltDataset(card, target, sha256, foreign_rows, new_records, quarantined)


def write_preferences(
    store: Store, output: Path, config: FeedbackConfig, *, seed: int, actor: str, weights: RaterWeights = EQUAL,
    progress: Progress = silent,
) -> tuple[int, int]:  # fmt: skip
    """The preference pairs of any store as one file, each row with its side of the split; returns (train, test) rows."""
    with (
        TemporaryDirectory() as folder,
        drafting(store, config, Path(folder), seed=seed, actor=actor, weights=weights, progress=progress) as draft,
    ):
        rows = draft.rows_of("pairs")
        if not rows:
            raise InputError(f"{store.name} gives no preference pairs ({_why_nothing(draft)})", "See: medloop data build")
        with erasing.erasure_lock(store, wait_s=WAIT_S):
            _check_none_erased(store, draft)
            jsonl.write(output, (pair_line(draft.pool.row(index), split) for index, split in rows))
            with store.write() as conn:
                lineage.add_records(conn, file_sha256(output), (name for row in jsonl.read(output) for name in _record_ids(row)))
                lineage.flag_artifact(conn, file_sha256(output), "exported", str(output), actor=actor)
        test = sum(split == "test" for _, split in rows)
    return len(rows) - test, test


@contextmanager
def drafting(
    store: Store, config: FeedbackConfig, folder: Path, *, seed: int, actor: str, weights: RaterWeights, progress: Progress
) -> Iterator[DraftDataset]:  # fmt: skip
    """Rows in their final form and order, for as long as the block lasts; `folder` has room for their texts.

    The store gets nothing but audit lines and what goes into quarantine.
    """
    scrubber = CachedScrubber()
    selection = select_records(store, scrubber, actor=actor, strict=config.strict_consent, only=config.filter, progress=progress)
    with RowPool(folder) as pool:
        draft = DraftDataset(selection, pool, Nearness(both=config.question_threshold))
        held_out, draft.parents = _held_out_prompts(store.settings.workspace)
        _draft_rows(store, draft, scrubber, config, weights, progress)
        draft.drop_duplicates(config.text_threshold, progress)
        draft.drop_contaminated(held_out)
        draft.split(config.test_share, hold_out_critical=config.hold_out_critical, seed=seed)
        yield draft


def _draft_rows(
    store: Store, draft: DraftDataset, scrubber: CachedScrubber, config: FeedbackConfig, weights: RaterWeights, progress: Progress
) -> None:
    """Prompt by prompt: its feedback becomes rows and proposed rules, without identifiers."""
    proposals = RuleProposals(scrubber)
    with progress("Making rows", len(draft.selection.index)) as step:
        for feedback in feedback_by_prompt(store, draft.selection, weights):
            drafts = draft_rows(feedback, max_pairs=config.max_pairs, liked_answers=config.liked_answers)
            for dropped in drafts.dropped:
                draft.drop(*dropped)
            for row in drafts.rows:
                draft.add(row, scrubber)
            for correction in drafts.corrections:
                proposals.add(correction)
                draft.corrections.add(correction.record_id)
            step(len(feedback))
    draft.rules = proposals.deltas()
    if proposals.without_rule:
        draft.drop("rules", "nothing_to_say", sorted(proposals.without_rule), count=len(proposals.without_rule))


def _held_out_prompts(workspace: Workspace) -> tuple[DistinctPrompts, tuple[str, ...]]:
    """Prompts of the prepared data that no row may repeat, and the hashes of the files they are in."""
    paths = [path for split in HELD_OUT if (path := workspace.processed / SPLIT_FILES[split]).is_file()]
    if paths:
        verify_if_sealed(workspace.processed)
    prompts = (opening(record.conversation) for path in paths for record in jsonl.read(path, Record))
    return DistinctPrompts(prompts), tuple(file_sha256(path) for path in paths)


def _why_nothing(draft: DraftDataset) -> str:
    statuses: Counter[str] = Counter()
    for counts in draft.selection.statuses.values():
        statuses.update(counts)
    reasons = [f"{count:,} records {status.replace('_', ' ')}" for status, count in statuses.most_common()]
    reasons += [f"{count:,} {kind} {reason.replace('_', ' ')}" for (kind, reason), count in draft.drops.most_common()]
    return ", ".join(reasons) or "the store holds no feedback"


def _check_none_erased(store: Store, draft: DraftDataset) -> None:
    erased = lineage.erased_ids(store)
    if any(not erased.isdisjoint(record_ids) for record_ids in draft.selection.settled.values()):
        raise BusyError("Records were erased while the dataset was being built", "Build it again; nothing was changed")


def _publish(workspace: Workspace, folder: Path) -> int:
    """Put pairs and thumbs where training looks; rows of other origin stay. Returns how many of those there are."""
    foreign_rows = 0
    for name in (PAIRS, THUMBS):
        path, new = workspace.preferences / name, folder / name
        known = {_row_hash(row) for row in jsonl.read(new)}
        if not known and not path.is_file():
            continue
        others = (row for row in jsonl.read(path) if _is_foreign(row, known)) if path.is_file() else iter(())
        foreign_rows += jsonl.write(path, chain(others, jsonl.read(new))) - sum(1 for _ in jsonl.read(new))
    return foreign_rows


def _is_foreign(row: dict[str, Any], known: set[bytes]) -> bool:
    return (row.get("metadata") or {}).get("source") != SOURCE and _row_hash(row) not in known


def _row_hash(row: dict[str, Any]) -> bytes:
    content = repr([row.get(name) for name in ("prompt", "chosen", "rejected", "completion", "label")])
    return hashlib.blake2b(content.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()


def _record_lineage(store: Store, draft: DraftDataset, sha256: str, folder: Path, actor: str) -> int:
    """Which records are in the dataset and in each of its files, and that they have been used; returns how many are new.

    Models name the file they learnt from by its hash, so each file has its own lineage. One transaction a file: another writer
    waits for one of them, not for all.
    """
    published = store.settings.workspace.preferences
    files = [folder / name for name in (PAIRS, THUMBS, RULES, RED, *ANSWERS.values())]
    in_dataset = set(draft.corrections)
    for path in (*files, published / PAIRS, published / THUMBS):
        if not path.is_file():
            continue
        in_file = {name for row in jsonl.read(path) for name in _record_ids(row)}
        if path.parent == folder:
            in_dataset |= in_file
        with store.write() as conn:
            lineage.add_records(conn, file_sha256(path), in_file)
    with store.write() as conn:
        lineage.add_records(conn, sha256, in_dataset)
    return sum(crud.mark_processed(store, kind, ids, actor=actor) for kind, ids in draft.selection.settled.items())


def _record_ids(row: dict[str, Any]) -> list[str]:
    """The records that a line of any of the files came from."""
    metadata = row.get("metadata") or row.get("meta") or {}
    return [*metadata.get("records", ()), *(row.get("rule") or {}).get("evidence", ())]
