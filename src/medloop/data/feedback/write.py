"""The files of a dataset made from feedback, and its card: `card.json` for programs, `DATA_CARD.md` for people.

Lines are written one by one out of the pool; what the card counts is counted on the way.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medloop import __version__
from medloop.contracts import (
    Contract,
    Conversation,
    ErasedRows,
    FeedbackCard,
    FileEntry,
    Message,
    Origin,
    PreferencePair,
    Record,
    sha256_id,
)
from medloop.data.feedback.draft_dataset import DraftDataset, FeedbackRow
from medloop.data.feedback.rows import RowKind
from medloop.data.prepare.dataset_card import table
from medloop.data.progress import Progress, Step
from medloop.data.text.risk import ORDER
from medloop.lexicon import VERSION as LEXICON
from medloop.privacy.phi import allowed
from medloop.privacy.phi.scrub import VERSION as SCRUBBER
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256

SOURCE = "feedback"
PAIRS, THUMBS, RULES, RED, DROPPED = "preferences.jsonl", "thumbs.jsonl", "rules.jsonl", "red_team.jsonl", "dropped.jsonl"
ANSWERS = {"train": "sft_train.jsonl", "test": "sft_test.jsonl"}
FILES_OF_KIND: dict[str, tuple[str, ...]] = {
    "pairs": (PAIRS,), "thumbs": (THUMBS,), "answers": tuple(ANSWERS.values()), "red": (RED,),
}  # fmt: skip
CARD, READABLE = "card.json", "DATA_CARD.md"
STATUSES = {
    "used": "allowed and clean: the rows are made from these", "superseded": "a newer version of the record replaces it",
    "check": "answers a check item, whose better answer is known: it measures its rater",
    "no_consent": "the record does not allow training, or the person it is about withdrew consent",
    "quarantined": "waits for a reviewer: medloop quarantine list", "refused": "a reviewer refused it",
    "phi": "may still name somebody: this build put it into quarantine", "erased": "erased, then sent again under the same id",
    "empty": "the question or an answer is only white space", "filtered": "does not fit the filter of this dataset",
}  # fmt: skip
REASONS = {
    "tie": "as many raters for as against",
    "no_choice": "most raters chose neither: equal, both bad, or the better one could still harm",
    "undecided": "no rater said good or bad",
    "same_answer": "both answers have the same words",
    "no_weight": "no clinician or annotator whose vote has weight stands behind it (medloop feedback raters)",
    "outweighed": "raters of at least the weight of its authors disliked the expert's answer",
    "flagged": "somebody flagged the answer that was chosen as a critical failure",
    "contradiction": "a stronger source says the opposite about the same two answers",
    "too_many": "more pairs for one question than max_pairs",
    "exact_duplicate": "the same words as another row",
    "near_duplicate": "nearly the same words as another row",
    "contaminated": "a near-copy of a held-out question of data/processed",
    "phi": "earlier messages of the conversation may identify a person",
    "nothing_to_say": "the correction has no reason, urgent advice or removed drug that gives a rule",
}
FILE_PURPOSES = {
    "preferences.jsonl": "pairs, for `medloop train reward` and `dpo`",
    "thumbs.jsonl": "liked or not, for `medloop train kto`",
    "sft_train.jsonl": "answers to learn, for `medloop train sft --data FILE`",
    "sft_test.jsonl": "the same, held out, for `--dev-data` and evaluation",
    "rules.jsonl": "proposals for the codebook, with their evidence",
    "red_team.jsonl": "questions whose answer was flagged as a critical failure",
    "dropped.jsonl": "dropped rows and records, with the reason",
}


@dataclass
class WrittenFiles:
    """What the card counts, known when the files are written."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    rows: dict[str, Counter[str]] = field(default_factory=dict)
    languages: Counter[str] = field(default_factory=Counter)
    strata: Counter[str] = field(default_factory=Counter)

    def add_file(self, path: Path, rows: int) -> None:
        self.files[path.name] = FileEntry(path=path.name, rows=rows, sha256=file_sha256(path))

    def count(self, row: FeedbackRow, split: str) -> None:
        self.rows.setdefault(row.kind, Counter())[split] += 1
        self.languages[row.metadata["language"]] += 1
        self.strata[row.metadata["strata"][0]] += 1


def write_dataset(folder: Path, draft: DraftDataset, config: dict[str, Any], seed: int, progress: Progress) -> FeedbackCard:
    """Every file of the dataset, the cards last."""
    written = WrittenFiles()
    with progress("Writing", int(draft.keep_mask.sum())) as step:
        for name, lines in _lines_by_file(draft, written, step).items():
            written.add_file(folder / name, jsonl.write(folder / name, lines))
    dropped = (
        {"kind": kind, "reason": reason, "records": list(record_ids)} for kind, reason, record_ids in sorted(draft.dropped)
    )
    written.add_file(folder / DROPPED, jsonl.write(folder / DROPPED, dropped))
    card = _make_card(config, seed, written, draft)
    (folder / CARD).write_text(card.canonical_json() + "\n", encoding="utf-8")
    (folder / READABLE).write_text(render_card(card), encoding="utf-8")
    return card


def _lines_by_file(draft: DraftDataset, written: WrittenFiles, step: Step) -> dict[str, Iterable[Contract | dict[str, Any]]]:
    """Per file its lines, made as they are written."""

    def rows(kind: RowKind, only: str | None = None) -> Iterator[tuple[int, FeedbackRow, str]]:
        for number, (index, split) in enumerate(draft.rows_of(kind), 1):
            if only in (None, split):
                row = draft.pool.row(index)
                written.count(row, split)
                step(1)
                yield number, row, split

    return {
        PAIRS: (pair_line(row, split) for _, row, split in rows("pairs")),
        THUMBS: (_thumb_line(row, split) for _, row, split in rows("thumbs")),
        **{name: (_record_line(*line) for line in rows("answers", only)) for only, name in ANSWERS.items()},
        RULES: draft.rules,
        RED: (_record_line(*line) for line in rows("red")),
    }


def _metadata(row: FeedbackRow, split: str) -> dict[str, Any]:
    return {"source": SOURCE, "split": split, **row.metadata, "records": list(row.record_ids)}


def pair_line(row: FeedbackRow, split: str) -> PreferencePair:
    return PreferencePair(
        prompt=row.prompt, chosen=row.texts[0], rejected=row.texts[1], context=row.context or None, metadata=_metadata(row, split)
    )


def _thumb_line(row: FeedbackRow, split: str) -> dict[str, Any]:
    prompt = row.prompt if isinstance(row.prompt, str) else [message.model_dump() for message in row.prompt]
    metadata = _metadata(row, split)
    context = {"context": list(row.context)} if row.context else {}
    return {"prompt": prompt, "completion": row.texts[0], "label": metadata.pop("liked"), **context, "metadata": metadata}


def _record_line(number: int, row: FeedbackRow, split: str) -> Record:
    """A line as `data prepare` writes it: with the answer for SFT, the prompt alone for the red team."""
    answers = (Message(role="assistant", content=text) for text in row.texts)
    conversation, metadata = Conversation(messages=(*row.messages, *answers)), _metadata(row, split)
    return Record(
        record_id=conversation.content_id(), conversation=conversation, language=metadata["language"],
        strata=tuple(metadata.pop("strata")), origin=Origin(source=SOURCE, line=number),
        reviewed=row.kind == "answers" and metadata["from"] == "correction", context=row.context or None, meta=metadata,
    )  # fmt: skip


def _make_card(config: dict[str, Any], seed: int, written: WrittenFiles, draft: DraftDataset) -> FeedbackCard:
    drops: dict[str, dict[str, int]] = {}
    for (kind, reason), count in sorted(draft.drops.items()):
        drops.setdefault(kind, {})[reason] = count
    return FeedbackCard(
        name=config["name"], seed=seed, files=written.files,
        records={kind: dict(sorted(counts.items())) for kind, counts in sorted(draft.selection.statuses.items())},
        rows={kind: dict(sorted(counts.items())) for kind, counts in sorted(written.rows.items())}, drops=drops,
        languages=dict(sorted(written.languages.items())),
        strata={name: written.strata[name] for name in ORDER if written.strata[name]}, decontamination=draft.checked,
        config=config, parents=draft.parents,
        versions={
            "medloop": __version__, "python": platform.python_version(), "scrubber": SCRUBBER + allowed.version(),
            "lexicon": LEXICON,
        },
    )  # fmt: skip


def after_erasure(card_json: bytes, content: Mapping[str, bytes], erased: ErasedRows) -> dict[str, bytes] | None:
    """Both cards of a dataset after rows were erased; None when it was not made from feedback."""
    try:
        card = FeedbackCard.from_json(card_json.decode())
    except (ValidationError, UnicodeDecodeError):
        return None
    lines = {name: content[name].splitlines() for name in card.files if name in content}
    files = {
        name: FileEntry(path=name, rows=len(lines[name]), sha256=sha256_id(content[name])) if name in lines else entry
        for name, entry in card.files.items()
    }
    rows = {kind: _rows_by_split(kind, lines) for kind in card.rows}
    changed = card.model_copy(update={"files": files, "rows": rows, "erased": (*card.erased, erased)})
    return {CARD: (changed.canonical_json() + "\n").encode(), READABLE: render_card(changed).encode()}


def _rows_by_split(kind: str, lines: Mapping[str, list[bytes]]) -> dict[str, int]:
    counts = Counter[str]()
    for name in FILES_OF_KIND[kind]:
        for line in lines.get(name, []):
            row = json.loads(line)
            counts[(row.get("metadata") or row.get("meta"))["split"]] += 1
    return dict(sorted(counts.items()))


def render_card(card: FeedbackCard) -> str:
    """The card as Markdown for people."""
    parts = (_head(card), _files(card), _records(card), _drops(card), _checks(card), _recipe(card), _erased(card))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(card: FeedbackCard) -> str:
    used = sum(counts.get("used", 0) for counts in card.records.values())
    erased = sum(entry.rows for entry in card.erased)
    later = (
        f" **{erased:,} rows were erased later** (last section); counts of records, languages, risks are older." if erased else ""
    )
    return f"""# Data card: {card.name}

{used:,} feedback records as training data: only with consent, without identifiers and near-copies, split so that no
question is on both sides.{later}

- Dataset id: `{card.content_id()}`
- Rows by language: {_listed(card.languages)}
- Rows by their most serious risk: {_listed(card.strata)}
- Personal identifiers: removed row by row (scrubber {card.versions["scrubber"]}); what it misses is still in the data
- Built by medloop {card.versions["medloop"]} with seed {card.seed}"""


def _files(card: FeedbackCard) -> str:
    rows = [
        (f"`{name}`", entry.rows, FILE_PURPOSES.get(name, ""), f"`{entry.sha256[7:19]}`") for name, entry in card.files.items()
    ]
    splits = [(kind, counts.get("train", 0), counts.get("test", 0)) for kind, counts in card.rows.items()]
    return f"""## Contents

{table(("file", "rows", "for", "sha256"), rows)}

No question is on both sides of the split, nor is a near-copy of one.

{table(("rows", "train", "test"), splits)}"""


def _records(card: FeedbackCard) -> str:
    kinds = list(card.records)
    rows = [
        (status.replace("_", " "), *(card.records[kind].get(status, 0) for kind in kinds), meaning)
        for status, meaning in STATUSES.items()
        if any(card.records[kind].get(status) for kind in kinds)
    ]
    return "## Records by status\n\n" + table(("", *(kind.removeprefix("rlhf_") for kind in kinds), "meaning"), rows)


def _drops(card: FeedbackCard) -> str:
    rows = [
        (kind, reason.replace("_", " "), count, REASONS.get(reason, ""))
        for kind, counts in card.drops.items()
        for reason, count in counts.items()
    ]
    if not rows:
        return "## Dropped rows\n\nNone."
    return "## Dropped rows\n\n" + table(("rows", "reason", "count", "meaning"), rows)


def _checks(card: FeedbackCard) -> str:
    checked = card.decontamination
    held = checked.get("held_out_questions", 0)
    if not held:
        return "## Held-out questions\n\nNot compared, because no held-out questions are prepared yet (`medloop data prepare`)."
    dropped = sum(counts.get("contaminated", 0) for counts in card.drops.values())
    return f"""## Held-out questions

{checked["rows_compared"]:,} rows were compared with the {held:,} dev, test, gold and red-team questions of `data/processed`:
{dropped:,} near-copies were dropped."""


def _recipe(card: FeedbackCard) -> str:
    settings = [(f"`{name}`", str(value)) for name, value in card.config.items()]
    return f"""## How to rebuild it

```
medloop data build --name {card.name} --seed {card.seed}
```

with these settings (`--set NAME=VALUE`). The same records, prepared data, settings and versions give the same bytes.

{table(("setting", "value"), settings)}

Versions: {_listed(card.versions)}. Keep these files in the workspace, where an erasure can find them."""


def _erased(card: FeedbackCard) -> str:
    if not card.erased:
        return ""
    rows = [(entry.erasure_id, entry.rows, f"`{entry.before}`") for entry in card.erased]
    return f"""## Erased

Rows were removed after the dataset was built, so its hash has changed. Models trained on it before are flagged. The proofs are in
`reports/erasure`.

{table(("erasure", "rows", "hash before"), rows)}"""


def _listed(counts: dict[str, Any]) -> str:
    return (
        ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in counts.items())
        or "none"
    )
