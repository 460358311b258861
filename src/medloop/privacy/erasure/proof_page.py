"""The proof of an erasure as a page for people: the same facts as the JSON beside it, in words. No erased word is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medloop.privacy.erasure.contracts import ErasureProof

TABLES = {
    "rlhf_feedback": "ratings", "rlhf_preferences": "choices between two answers", "rlhf_corrections": "corrections",
    "traces": "exchanges with the assistant", "red_team_cases": "red-team cases made of them",
    "queue_items": "items of the review queue made of them", "scored_answers": "scored answers made of them",
}  # fmt: skip
STORE = {
    "log emptied": "SQLite's log was emptied, and no byte of the sealed rows was left in the database file",
    "log emptied, file made anew": "SQLite's log was emptied and its file, which held bytes of sealed rows, written anew",
    "tables vacuumed": "PostgreSQL vacuumed the tables; all text in them had been encrypted",
}  # fmt: skip


def render(proof: ErasureProof) -> str:
    parts = (_head(proof), _rows(proof), _files(proof), _learnt(proof), _look(proof), _stays(proof))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(proof: ErasureProof) -> str:
    whom = f"the person known here as `{proof.subject}`" if proof.subject else f"the records {_listed(proof.asked)}"
    verdict = "**Complete**: the last look through the workspace found nothing of it."
    if not proof.complete:
        why = ["files still hold erased text"] * bool(proof.left) + ["training jobs on it have not ended"] * bool(proof.alive)
        verdict = f"**NOT complete**: {' and '.join(why)}, see below. The same command finishes it."
    return f"""# Erasure {proof.erasure_id}

{verdict}

- Asked for: {whom}
- Reason given: {proof.reason}
- By: {proof.actor}, from {proof.started:%Y-%m-%d %H:%M:%S} to {proof.finished:%Y-%m-%d %H:%M:%S} UTC"""


def _rows(proof: ErasureProof) -> str:
    counts = [(TABLES.get(name, name), count) for name, count in proof.rows.items()]
    stones = [
        (f"`{stone['record_id']}`", TABLES.get(stone["table"], stone["table"]), f"`{stone['proof']}`")
        for stone in proof.tombstones
    ]
    return f"""## What was removed from the store

{_table(("what", "rows"), counts)}

The hash is that of the encrypted row as it was: who holds a backup can find by it the row that must not come back. A record that
is added again under one of these ids is neither listed nor used.

{_table(("record", "what", "hash of the encrypted row"), stones)}"""


def _files(proof: ErasureProof) -> str:
    if not proof.files:
        return "## What was changed in files\n\nNo file held their text or was made of them."
    rows = [
        (f"`{change['path']}`", change["action"], change["rows"], _short(change["before"]), _short(change.get("after")))
        for change in proof.files
    ]  # fmt: skip
    return f"""## What was changed in files

`rows` are rows, or places in a text that is not made of rows. Whole hashes are in the JSON file beside this one.

{_table(("file or folder", "action", "rows", "sha256 before", "after"), rows)}"""


def _learnt(proof: ErasureProof) -> str:
    lines = [
        f"- `{item['path']}` is a model that learnt from it and is flagged `tainted`: train it again." for item in proof.flagged
    ]
    lines += [f"- The training job `{item['job']}` is {item['state']}: it was learning from it." for item in proof.cancelled]
    lines += [f"- **Has not ended:** the training job `{name}` was told to, for it learns from it." for name in proof.alive]
    done = {f"jobs/{item}" for item in (*proof.alive, *(item["job"] for item in proof.cancelled))}
    lines += [f"- The run `{name}` learns from it; begun before, it refuses to go on." for name in proof.jobs if name not in done]
    if proof.keep_jobs:
        lines.append("- Training jobs were left alone, as was asked for (`--keep-jobs`).")
    return "## What had learnt from it\n\n" + ("\n".join(lines) or "No model and no training job of this workspace.")


def _look(proof: ErasureProof) -> str:
    seen = Counter(proof.verified)
    lines = [
        f"- {seen['files']:,} files ({seen['bytes']:,} bytes) were looked through for {seen['texts']:,} texts, in every way of"
        f" writing that is searched for: {seen['hits']:,} hits.",
        f"- {seen['too_short']:,} of these texts are too short to be told from others by their bytes; rows made of their"
        " records were found by the record's id.",
        f"- Database: {STORE.get(proof.store, proof.store)}.",
    ]
    lines += [f"- **Still holds erased text:** `{name}`" for name in proof.left]
    lines += [f"- Not searched, because it is packed or damaged: `{name}`" for name in proof.unsearched]
    return "## The last look\n\n" + "\n".join(lines)


def _stays(proof: ErasureProof) -> str:
    lines = [f"- Made of these records and outside the workspace, so it is yours to remove: `{path}`" for path in proof.elsewhere]
    if proof.shared:
        lines.append(f"- {proof.shared:,} records of others, or that were not asked for, hold some of the same text. They stay.")
    lines.append(
        "- Backups, and what was sent to a teacher, are not reached from here. Weights of models are flagged, not unlearnt."
    )
    return "## What is not covered\n\n" + "\n".join(lines)


def _short(sha256: str | None) -> str:
    return f"`{sha256[7:19]}`" if sha256 else "gone"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line) + " |" for line in lines
    )
