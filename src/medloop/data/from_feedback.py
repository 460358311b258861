"""`medloop data build`: what people said becomes data a model may learn from, whole or not at all.

    gather -> draft -> scrub -> drop near-copies -> decontaminate -> split by question -> write -> describe -> publish

Out: the folder `data/feedback/NAME` (pairs, thumbs, experts' answers, rules for the codebook, red-team questions, what was left
out, card), and `data/preferences/{preferences,thumbs}.jsonl`, where training looks for them. Each row names the records behind
it. The same store, prepared data, seed and settings give the same bytes, so building again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts import Contract, Conversation, FeedbackCard, FileEntry, Message, Origin, PreferencePair, Record
from medloop.contracts.dataset import Split
from medloop.data.feedback_card import CARD, READABLE, make_card, render_card
from medloop.data.feedback_intake import Material, Question, gather
from medloop.data.feedback_near import Asked, repeats, sides
from medloop.data.feedback_rows import Draft, Drafts, draft
from medloop.data.feedback_rules import Corrected, propose
from medloop.data.gather import opening
from medloop.data.language import detect_language
from medloop.data.near import Nearness
from medloop.data.prepare import FILES
from medloop.data.risk import strata_of
from medloop.errors import InputError
from medloop.privacy.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store import jsonl, lineage, records
from medloop.store.artifacts import file_sha256, new_artifact, sweep, verify_artifact, verify_if_sealed
from medloop.store.db import Store

SOURCE = "feedback"
PAIRS, THUMBS, RULES, RED, DROPPED = "preferences.jsonl", "thumbs.jsonl", "rules.jsonl", "red_team.jsonl", "dropped.jsonl"
ANSWERS = {"train": "sft_train.jsonl", "test": "sft_test.jsonl"}
HELD_OUT: tuple[Split, ...] = ("dev", "test", "gold", "red")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class FeedbackConfig(BaseModel):
    """How to build; `--config FILE.yaml` or `--set NAME=VALUE`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("feedback", pattern=NAME, description="Name of the dataset, under data/feedback.")
    test_share: float = Field(
        0.2, ge=0, le=0.5, description="Share of the questions that is held out; near-copies stay together."
    )
    liked_answers: bool = Field(False, description="Also learn from answers that most raters liked, beside experts' answers.")
    max_pairs: int = Field(8, ge=1, description="Most preference pairs of one question.")
    text_threshold: float = Field(0.8, gt=0.5, le=1, description="Jaccard similarity from which two answers are near-copies.")
    question_threshold: float = Field(0.75, gt=0.5, le=1, description="Share of words from which two questions are near-copies.")
    hold_out_critical: bool = Field(True, description="Questions with a critical failure go to the test side, to be measured by.")
    strict_consent: bool = Field(
        False, description="A record about a person needs that person's grant on file, not only no refusal."
    )

    @property
    def nearness(self) -> Nearness:
        return Nearness(both=self.question_threshold)


@dataclass(frozen=True)
class Row:
    """A draft after scrubbing, with the side of the split it is on."""

    draft: Draft
    question: tuple[Message, ...]
    texts: tuple[str, ...]
    split: str = "train"

    @property
    def asked(self) -> str:
        return opening(Conversation(messages=self.question))

    @property
    def prompt(self) -> str | tuple[Message, ...]:
        return self.question[0].content if len(self.question) == 1 else self.question

    def metadata(self, **more: Any) -> dict[str, Any]:
        user = "\n".join(message.content for message in self.question if message.role == "user")
        about = {"source": SOURCE, "split": self.split, "language": detect_language(user), "strata": list(strata_of(user))}
        return about | dict(self.draft.about) | more | {"records": list(self.draft.records)}


@dataclass
class Made:
    """Everything that is known before a file is written."""

    material: Material
    rows: list[Row]
    drops: Counter[tuple[str, str]]
    dropped: list[dict[str, Any]] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """The finished dataset; `kept` rows of preferences.jsonl came from elsewhere, `new` records were never used before."""

    card: FeedbackCard
    folder: Path
    sha256: str
    kept: int
    new: int
    held: int


def build(store: Store, config: FeedbackConfig, *, seed: int, actor: str) -> Built:
    """Make the dataset anew from the whole store, put it in place, and enter which records are in it."""
    workspace = store.settings.workspace
    made = make(store, config, seed=seed, actor=actor)
    _check_some(made)
    target = workspace.home / "data/feedback" / config.name
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    with new_artifact(target, replace=True) as folder:
        files = _write(folder, made)
        card = make_card(config.model_dump(), seed, files, made)
        (folder / CARD).write_text(card.canonical_json() + "\n", encoding="utf-8")
        (folder / READABLE).write_text(render_card(card), encoding="utf-8")
    sha256 = verify_artifact(target).sha256
    kept = _publish(workspace, target)
    new = _enter(store, made, sha256, target, actor)
    held = sum(fates["phi"] for fates in made.material.fates.values())
    return Built(card, target, sha256, kept, new, held)


def write_preferences(store: Store, output: Path, config: FeedbackConfig, *, seed: int, actor: str) -> tuple[int, int]:
    """Document 002: the preference pairs of any store as one file, each row with its side of the split; (train, test) rows."""
    made = make(store, config, seed=seed, actor=actor)
    rows = [row for row in made.rows if row.draft.kind == "pairs"]
    if not rows:
        raise InputError(f"{store.name} gives no preference pairs ({_why(made)})", "See: medloop data build")
    jsonl.write(output, [_pair(row) for row in rows])
    with store.write() as conn:
        lineage.enter(conn, file_sha256(output), {one for row in rows for one in row.draft.records})
        lineage.flag(conn, file_sha256(output), "exported", str(output))
    test = sum(row.split == "test" for row in rows)
    return len(rows) - test, test


def make(store: Store, config: FeedbackConfig, *, seed: int, actor: str) -> Made:
    """Rows in their final form and order; nothing is written but audit lines and what goes into quarantine."""
    material = gather(store, actor=actor, strict=config.strict_consent)
    drafts = draft(material, max_pairs=config.max_pairs, liked_answers=config.liked_answers)
    held_out, parents = _held_out(store.settings.workspace)
    made = Made(material, [], drafts.drops, [_drop(*one) for one in drafts.dropped], parents=parents)
    rows = _without_copies(_scrubbed(drafts, made), config, made)
    asked = Asked([row.asked for row in rows], held_out, config.nearness)
    copies = asked.copies()
    for at in sorted(copies):
        _leave_out(made, rows[at], "contaminated")
    rows = [row for at, row in enumerate(rows) if at not in copies]
    made.checked = {"held_out_questions": len(held_out), "rows_compared": len(rows) + len(copies), "left": 0}
    made.rows = _split(rows, config, seed)
    return made


def _scrubbed(drafts: Drafts, made: Made) -> list[Row]:
    """One scrubber a row: the same person has the same placeholder in question and answers."""
    rows = []
    for one in drafts.rows:
        scrubber = Scrubber()
        try:
            question = tuple(_clean(message, scrubber) for message in one.question.messages)
            rows.append(Row(one, question, tuple(scrubber.scrub(text) for text in one.texts)))
        except Unscrubbable:  # the turns of a trace, which no record was checked for
            made.drops[one.kind, "phi"] += 1
            made.dropped.append(_drop(one.kind, "phi", one.records))
    return rows


def _clean(message: Message, scrubber: Scrubber) -> Message:
    return message.model_copy(update={"content": scrubber.scrub(message.content)})


def _without_copies(rows: Sequence[Row], config: FeedbackConfig, made: Made) -> list[Row]:
    """Per kind; what more records speak for stays."""
    kept = []
    for kind in ("pairs", "thumbs", "answers", "red"):
        some = sorted((row for row in rows if row.draft.kind == kind), key=lambda row: (-len(row.draft.records), row.draft.order))
        labels = Asked([row.asked for row in some], [], config.nearness).clusters()
        found = repeats(labels, [_compared(row) for row in some], config.text_threshold)
        for at, (reason, _) in sorted(found.items()):
            _leave_out(made, some[at], reason)
        kept += sorted((row for at, row in enumerate(some) if at not in found), key=lambda row: row.draft.order)
    return kept


def _compared(row: Row) -> tuple[str, ...]:
    """A thumb up and a thumb down on like answers are not copies of each other."""
    return (*row.texts, "up" if row.draft.about["liked"] else "down") if row.draft.kind == "thumbs" else row.texts


def _split(rows: Sequence[Row], config: FeedbackConfig, seed: int) -> list[Row]:
    questions = [row.asked for row in rows]
    labels = Asked(questions, [], config.nearness).clusters()
    critical = {at for at, row in enumerate(rows) if row.draft.kind == "red"} if config.hold_out_critical else set()
    places = sides(labels, questions, critical, config.test_share, seed)
    return [Row(row.draft, row.question, row.texts, side) for row, side in zip(rows, places, strict=True)]


def _held_out(workspace: Workspace) -> tuple[list[str], tuple[str, ...]]:
    """Questions of the prepared data that nothing here may repeat, and the hashes of the files they are in."""
    paths = [workspace.processed / FILES[split] for split in HELD_OUT]
    found = [path for path in paths if path.is_file()]
    if found:
        verify_if_sealed(workspace.processed)
    questions = [opening(record.conversation) for path in found for record in jsonl.read(path, Record)]
    return questions, tuple(file_sha256(path) for path in found)


def _leave_out(made: Made, row: Row, reason: str) -> None:
    made.drops[row.draft.kind, reason] += 1
    made.dropped.append(_drop(row.draft.kind, reason, row.draft.records))


def _drop(kind: str, reason: str, ids: Iterable[str]) -> dict[str, Any]:
    return {"kind": kind, "reason": reason, "records": list(ids)}


def _check_some(made: Made) -> None:
    if not any(row.draft.kind != "red" for row in made.rows):
        raise InputError(
            f"There is nothing to learn from yet ({_why(made)})", "Collect feedback, or look at consent and quarantine"
        )


def _why(made: Made) -> str:
    fates: Counter[str] = Counter()
    for counts in made.material.fates.values():
        fates.update(counts)
    said = [f"{count:,} records {fate.replace('_', ' ')}" for fate, count in fates.most_common()]
    said += [f"{count:,} {kind} {reason.replace('_', ' ')}" for (kind, reason), count in made.drops.most_common()]
    return ", ".join(said) or "the store holds no feedback"


def _write(folder: Path, made: Made) -> dict[str, FileEntry]:
    by_kind = {kind: [row for row in made.rows if row.draft.kind == kind] for kind in ("pairs", "thumbs", "answers", "red")}
    content: dict[str, Sequence[Contract | dict[str, Any]]] = {
        PAIRS: [_pair(row) for row in by_kind["pairs"]],
        THUMBS: [_thumb(row) for row in by_kind["thumbs"]],
        **{
            name: [_record(row, at) for at, row in enumerate(by_kind["answers"], 1) if row.split == side]
            for side, name in ANSWERS.items()
        },
        RULES: _rules(made),
        RED: [_record(row, at) for at, row in enumerate(by_kind["red"], 1)],
    }
    dropped = sorted(made.dropped, key=lambda one: (one["kind"], one["reason"], one["records"]))
    content[DROPPED] = dropped
    files = {}
    for name, rows in content.items():
        jsonl.write(folder / name, rows)
        files[name] = FileEntry(path=name, rows=len(rows), sha256=file_sha256(folder / name))
    return files


def _pair(row: Row) -> PreferencePair:
    return PreferencePair(prompt=row.prompt, chosen=row.texts[0], rejected=row.texts[1], metadata=row.metadata())


def _thumb(row: Row) -> dict[str, Any]:
    prompt = row.prompt if isinstance(row.prompt, str) else [message.model_dump() for message in row.prompt]
    about = row.metadata()
    return {"prompt": prompt, "completion": row.texts[0], "label": about.pop("liked"), "metadata": about}


def _record(row: Row, line: int) -> Record:
    """A line as the data engine writes it: with the answer for SFT, the question alone for the red team."""
    answers = (Message(role="assistant", content=text) for text in row.texts)
    talk, about = Conversation(messages=(*row.question, *answers)), row.metadata()
    return Record(
        record_id=talk.content_id(),
        conversation=talk,
        language=about["language"],
        strata=tuple(about.pop("strata")),
        origin=Origin(source=SOURCE, line=line),
        reviewed=row.draft.kind == "answers" and about["from"] == "correction",
        meta=about,
    )


def _rules(made: Made) -> list[Contract]:
    corrected = []
    for fix in made.material.fixes:
        scrubber = Scrubber()
        try:
            question, original, golden = (scrubber.scrub(text) for text in (_asked(fix.question), fix.original, fix.golden))
            reason = None if fix.reason is None else scrubber.scrub(fix.reason)
        except Unscrubbable:
            continue  # counted with the row that has the same turns
        corrected.append(Corrected(question, original, golden, reason, fix.record_id, fix.when))
    found, silent = propose(corrected)
    if silent:
        made.drops["rules", "nothing_to_say"] += len(silent)
        made.dropped.append(_drop("rules", "nothing_to_say", silent))
    return list(found)


def _asked(question: Question) -> str:
    return "\n".join(message.content for message in question.messages if message.role == "user")


def _publish(workspace: Workspace, folder: Path) -> int:
    """Put pairs and thumbs where training looks; rows of other origin stay. Returns how many of those there are."""
    kept = 0
    for name in (PAIRS, THUMBS):
        path, mine = workspace.preferences / name, list(jsonl.read(folder / name))
        known = {_same(row) for row in mine}
        others = (
            [row for row in jsonl.read(path) if (row.get("metadata") or {}).get("source") != SOURCE] if path.is_file() else []
        )
        others = [row for row in others if _same(row) not in known]
        kept += len(others)
        if mine or path.is_file():
            jsonl.write(path, [*others, *mine])
    return kept


def _same(row: dict[str, Any]) -> str:
    return repr([row.get(name) for name in ("prompt", "chosen", "rejected", "completion", "label")])


def _enter(store: Store, made: Made, sha256: str, folder: Path, actor: str) -> int:
    """Which records are in the dataset and in each of its files, and that they have been used; returns how many are new.

    Models name the file they learnt from by its hash, so each file has a lineage of its own.
    """
    published = store.settings.workspace.preferences
    files = [folder / name for name in (PAIRS, THUMBS, RULES, RED, *ANSWERS.values())]
    with store.write() as conn:
        lineage.enter(conn, sha256, {one for row in made.rows for one in row.draft.records} | _evidence(made))
        for path in (*files, published / PAIRS, published / THUMBS):
            if path.is_file():
                lineage.enter(conn, file_sha256(path), {one for row in jsonl.read(path) for one in _sources(row)})
    return sum(records.mark_processed(store, kind, ids, actor=actor) for kind, ids in made.material.settled.items())


def _sources(row: dict[str, Any]) -> list[str]:
    """The records that a line of any of the files came from."""
    part = row.get("metadata") or row.get("meta") or {}
    return [*part.get("records", ()), *(row.get("rule") or {}).get("evidence", ())]


def _evidence(made: Made) -> set[str]:
    return {fix.record_id for fix in made.material.fixes}
