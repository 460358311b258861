"""The card of a dataset made from feedback: `card.json` for programs, `DATA_CARD.md` for people, both from the same facts."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from medloop import __version__
from medloop.contracts import ErasedRows, FeedbackCard, FileEntry, sha256_id
from medloop.data.feedback.write import Written
from medloop.data.prepare.dataset_card import table
from medloop.data.text.risk import ORDER
from medloop.lexicon import VERSION as LEXICON
from medloop.privacy.phi.scrub import VERSION as SCRUBBER

if TYPE_CHECKING:
    from medloop.data.feedback.build import Made

CARD, READABLE = "card.json", "DATA_CARD.md"
FATES = {
    "used": "allowed and clean: the rows of this dataset are made of these",
    "superseded": "a newer version of the same record took its place",
    "no_consent": "the record does not allow training, or the person it is about took that back",
    "quarantined": "waits for a person to look at it: medloop quarantine list",
    "refused": "a person refused it",
    "phi": "may still name somebody: put into quarantine by this build",
    "erased": "erased, and sent again under the same id",
    "empty": "a question or an answer of white space",
}
REASONS = {
    "tie": "as many raters for as against",
    "undecided": "no rater said good or bad",
    "same_answer": "both answers have the same words",
    "contradiction": "a stronger word about the same two answers says the opposite",
    "too_many": "more pairs of one question than max_pairs",
    "exact_duplicate": "the same words as another row",
    "near_duplicate": "nearly the same words as another row",
    "contaminated": "a near-copy of a held-out question of data/processed",
    "phi": "earlier turns of the conversation may name somebody",
    "nothing_to_say": "a correction without a reason, urgent advice or a drug that gives a rule",
}
ABOUT = {
    "preferences.jsonl": "pairs, for `medloop train reward` and `dpo`",
    "thumbs.jsonl": "liked or not, for `medloop train kto`",
    "sft_train.jsonl": "answers to learn, for `medloop train sft --data`",
    "sft_test.jsonl": "the same kind, held out, for `--dev-data` and evaluation",
    "rules.jsonl": "proposals for the codebook, with their evidence",
    "red_team.jsonl": "questions that drew a critical failure",
    "dropped.jsonl": "what was left out and why, by record id",
}


def make_card(config: dict[str, Any], seed: int, written: Written, made: Made) -> FeedbackCard:
    drops: dict[str, dict[str, int]] = {}
    for (kind, reason), count in sorted(made.drops.items()):
        drops.setdefault(kind, {})[reason] = count
    return FeedbackCard(
        name=config["name"],
        seed=seed,
        files=written.files,
        records={kind: dict(sorted(fates.items())) for kind, fates in sorted(made.found.fates.items())},
        rows={kind: dict(sorted(counts.items())) for kind, counts in sorted(written.rows.items())},
        drops=drops,
        languages=dict(sorted(written.languages.items())),
        strata={name: written.strata[name] for name in ORDER if written.strata[name]},
        decontamination=made.checked,
        config=config,
        parents=made.parents,
        versions={"medloop": __version__, "python": platform.python_version(), "scrubber": SCRUBBER, "lexicon": LEXICON},
    )


def after_erasure(card_json: bytes, content: Mapping[str, bytes], erased: ErasedRows) -> dict[str, bytes] | None:
    """Both cards of a dataset that lost rows; None when it is not a dataset made from feedback."""
    try:
        card = FeedbackCard.from_json(card_json.decode())
    except (ValidationError, UnicodeDecodeError):
        return None
    lines = {name: content[name].splitlines() for name in card.files if name in content}
    files = {
        name: FileEntry(path=name, rows=len(lines[name]), sha256=sha256_id(content[name])) if name in lines else entry
        for name, entry in card.files.items()
    }
    rows = {kind: _sides(kind, lines) for kind in card.rows}
    new = card.model_copy(update={"files": files, "rows": rows, "erased": (*card.erased, erased)})
    return {CARD: (new.canonical_json() + "\n").encode(), READABLE: render_card(new).encode()}


def _sides(kind: str, lines: Mapping[str, list[bytes]]) -> dict[str, int]:
    names = {"pairs": ("preferences.jsonl",), "thumbs": ("thumbs.jsonl",), "red": ("red_team.jsonl",)}
    counts = Counter[str]()
    for name in names.get(kind, ("sft_train.jsonl", "sft_test.jsonl")):
        for line in lines.get(name, []):
            row = json.loads(line)
            counts[(row.get("metadata") or row.get("meta"))["split"]] += 1
    return dict(sorted(counts.items()))


def render_card(card: FeedbackCard) -> str:
    """The same as Markdown that a person can read from top to bottom."""
    parts = (_head(card), _files(card), _records(card), _drops(card), _checks(card), _made(card), _erased(card))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(card: FeedbackCard) -> str:
    used = sum(fates.get("used", 0) for fates in card.records.values())
    gone = sum(one.rows for one in card.erased)
    later = f" **{gone:,} rows were erased later** (last section); counts of records, languages, risks are older." if gone else ""
    return f"""# Data card: {card.name}

{used:,} records of the feedback service as training data: only what records and persons allow, without identifiers and
near-copies, split so that no question is on both sides.{later}

- Dataset id: `{card.content_id()}`
- Rows by language: {_listed(card.languages)}
- Rows by their gravest risk: {_listed(card.strata)}
- Identifiers of persons: taken out row by row (scrubber {card.versions["scrubber"]}); what it misses is still there
- Made by medloop {card.versions["medloop"]} with seed {card.seed}"""


def _files(card: FeedbackCard) -> str:
    rows = [(f"`{name}`", entry.rows, ABOUT.get(name, ""), f"`{entry.sha256[7:19]}`") for name, entry in card.files.items()]
    splits = [(kind, counts.get("train", 0), counts.get("test", 0)) for kind, counts in card.rows.items()]
    return f"""## What is in it

{table(("file", "rows", "for", "sha256"), rows)}

No question is on both sides of the split, nor is a near-copy of one.

{table(("rows", "train", "test"), splits)}"""


def _records(card: FeedbackCard) -> str:
    kinds = list(card.records)
    rows = [
        (fate.replace("_", " "), *(card.records[kind].get(fate, 0) for kind in kinds), meaning)
        for fate, meaning in FATES.items()
        if any(card.records[kind].get(fate) for kind in kinds)
    ]
    return "## What became of the records\n\n" + table(("", *(kind.removeprefix("rlhf_") for kind in kinds), "meaning"), rows)


def _drops(card: FeedbackCard) -> str:
    rows = [
        (kind, reason.replace("_", " "), count, REASONS.get(reason, ""))
        for kind, counts in card.drops.items()
        for reason, count in counts.items()
    ]
    if not rows:
        return "## What was left out\n\nNo row."
    return "## What was left out\n\n" + table(("rows", "reason", "count", "meaning"), rows)


def _checks(card: FeedbackCard) -> str:
    checked = card.decontamination
    held = checked.get("held_out_questions", 0)
    if not held:
        return "## Held-out questions\n\nNot compared: there was no prepared data (`medloop data prepare`) that holds some out."
    gone = sum(counts.get("contaminated", 0) for counts in card.drops.values())
    return f"""## Held-out questions

{checked["rows_compared"]:,} rows were held against the {held:,} dev, test, gold and red-team questions of `data/processed`:
{gone:,} near-copies were left out."""


def _made(card: FeedbackCard) -> str:
    settings = [(f"`{name}`", str(value)) for name, value in card.config.items()]
    return f"""## How to make it again

```
medloop data build --name {card.name} --seed {card.seed}
```

with these settings (`--set NAME=VALUE`). The same records, prepared data, settings and versions give the same bytes.

{table(("setting", "value"), settings)}

Versions: {_listed(card.versions)}. Keep these files in the workspace: there an erasure finds them."""


def _erased(card: FeedbackCard) -> str:
    if not card.erased:
        return ""
    rows = [(one.erasure_id, one.rows, f"`{one.before}`") for one in card.erased]
    return f"""## Erased

Rows were taken out after the dataset was made, so it has another hash now. Models that learnt from it before are flagged.
`reports/erasure` has the proofs.

{table(("erasure", "rows", "hash before"), rows)}"""


def _listed(counts: dict[str, Any]) -> str:
    return (
        ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in counts.items())
        or "none"
    )
