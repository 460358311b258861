"""The proof of an erasure as a page for people: the facts of the JSON file beside it, in words, without any erased text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medloop.privacy.erasure.contracts import ErasureProof

TABLES = {
    "rlhf_feedback": "ratings", "rlhf_preferences": "choices between two answers", "rlhf_corrections": "corrections",
    "traces": "conversations with the assistant", "red_team_cases": "red-team cases made from them",
    "queue_items": "items of the review queue made from them", "scored_answers": "scored answers made from them",
}  # fmt: skip
STORE = {
    "log emptied": "SQLite's log was emptied, and the database file holds no byte of the erased rows",
    "log emptied, file made anew": "SQLite's log was emptied, and its file, which held bytes of erased rows, was rewritten",
    "tables vacuumed": "PostgreSQL vacuumed the tables; all text in them was encrypted, and its keys are destroyed",
}  # fmt: skip


def render(proof: ErasureProof) -> str:
    parts = (_head(proof), _rows(proof), _files(proof), _trained(proof), _last_search(proof), _not_covered(proof))
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(proof: ErasureProof) -> str:
    whom = f"the person known here as `{proof.subject}`" if proof.subject else f"the records {_listed(proof.asked)}"
    verdict = "**Complete**: the last search of the workspace found no erased text."
    if not proof.complete:
        why = ["files still hold erased text"] * bool(proof.left)
        why += ["training jobs on erased data have not ended"] * bool(proof.alive)
        verdict = f"**NOT complete**: {' and '.join(why)}, see below. Run the same command again to finish the erasure."
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

Each hash is the hash of the encrypted row before it was erased. With it, you can find the row in a backup and keep it from coming
back. A record that is added again under one of these ids is neither listed nor used.

{_table(("record", "what", "hash of the encrypted row"), stones)}"""


def _files(proof: ErasureProof) -> str:
    if not proof.files:
        return "## What was changed in files\n\nNo file held their text or was made from them."
    rows = [
        (f"`{change['path']}`", change["action"], change["rows"], _short(change["before"]), _short(change.get("after")))
        for change in proof.files
    ]  # fmt: skip
    return f"""## What was changed in files

`rows` counts rows, or places in a text without rows. The JSON file beside this one has the full hashes.

{_table(("file or folder", "action", "rows", "sha256 before", "after"), rows)}"""


def _trained(proof: ErasureProof) -> str:
    lines = [
        f"- The model `{item['path']}` was trained on erased data and is flagged `tainted`: train it again."
        for item in proof.flagged
    ]
    lines += [f"- The training job `{item['job']}`, which used erased data, is {item['state']}." for item in proof.cancelled]
    lines += [f"- **Not ended:** the training job `{name}` uses erased data and was told to stop." for name in proof.alive]
    done = {f"jobs/{item}" for item in (*proof.alive, *(item["job"] for item in proof.cancelled))}
    lines += [f"- The run `{name}` started on erased data and refuses to continue." for name in proof.jobs if name not in done]
    if proof.keep_jobs:
        lines.append("- Training jobs were not stopped, as requested (`--keep-jobs`).")
    return "## What was trained on it\n\n" + ("\n".join(lines) or "No model and no training job of this workspace.")


def _last_search(proof: ErasureProof) -> str:
    counts = Counter(proof.verified)
    lines = [
        f"- {counts['files']:,} files ({counts['bytes']:,} bytes) were searched for {counts['texts']:,} texts in several"
        f" encodings: {counts['hits']:,} hits.",
        f"- {counts['too_short']:,} of these texts are too short to search for; rows made from their records were found by the"
        " record's id.",
        f"- Database: {STORE.get(proof.store, proof.store)}.",
        f"- {counts_of_keys(proof)} No copy of the encrypted text opens again: not in the database's log, not on an old page,"
        " not in a replica and not in a backup of the database.",
    ]
    lines += [f"- **Still holds erased text:** `{name}`" for name in proof.left]
    lines += [f"- **In a column of the database that is not encrypted:** {_code(place)}" for place in proof.columns]
    lines += [f"- **Left for a person to look at:** {_code(place)}" for place in proof.by_hand]
    lines += [f"- Not searched, because it is packed or damaged: `{name}`" for name in proof.unsearched]
    return "## The last search\n\n" + "\n".join(lines)


def _not_covered(proof: ErasureProof) -> str:
    lines = [f"- Made from these records, but outside the workspace: remove `{path}` yourself." for path in proof.elsewhere]
    if proof.shared:
        lines.append(
            f"- {proof.shared:,} records hold some of the same text. They stay: they are about others or were not requested."
        )
    lines += [
        f"- Copies of `keys/{proof.key_file}` from before this erasure still hold the destroyed keys: replace them with the file"
        " as it is now. A disk that never writes in place (most SSDs) may keep the old bytes for a while.",
        "- Ids, session, agent and model names, axes, ratings and times are not encrypted. They were deleted, but may remain in"
        " the log of a PostgreSQL server and in backups of the database until those are overwritten.",
        "- Files in backups are not changed. `medloop restore` erases again what was erased since the backup; after a restore in"
        " another way, run `medloop erase --replay`.",
        "- What was sent to a teacher is not covered. Models are flagged, but their weights are not changed.",
    ]
    return "## What is not covered\n\n" + "\n".join(lines)


def counts_of_keys(proof: ErasureProof) -> str:
    return f"{proof.keys_destroyed:,} keys that encrypted these texts were destroyed."


def _code(place: str) -> str:
    name, _, rest = place.partition(":")
    return f"`{name}`{rest and ':' + rest}"


def _short(sha256: str | None) -> str:
    return f"`{sha256[7:19]}`" if sha256 else "gone"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line) + " |" for line in lines
    )
