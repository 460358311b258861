"""Erase again what earlier erasures erased: after a backup was restored, erased people must stay erased.

    proofs = replay_erasures(store, actor="user:li")

The register (register.py) says which rows, keys and files each erasure removed. Rows of a backup are encrypted under keys that
were destroyed, so they cannot be opened; they are removed with a tombstone. Their words are unknown then, so files are searched
for the ids of the records, and a file that is still, byte for byte, one that held erased text is removed. Where an older copy of
the key tree came back with the backup, the words are known, and the whole erasure is repeated.
"""

from pathlib import Path

from medloop.contracts import utc_now, uuid7
from medloop.privacy.erasure import find_files, journal, register
from medloop.privacy.erasure.contracts import ErasurePlan, ErasureProof, TrainingJobs
from medloop.privacy.erasure.erase import carry_out
from medloop.privacy.erasure.find_files import Recard
from medloop.privacy.erasure.plan import note, own_words, stored_parts
from medloop.privacy.erasure.register import ErasedEntry
from medloop.store.db import Store
from medloop.store.records import erasing


def replay_erasures(
    store: Store, *, actor: str, recard: Recard | None = None, jobs: TrainingJobs | None = None
) -> list[ErasureProof]:
    """Repeat every erasure of which something came back; the proofs of those that had to be repeated."""
    proofs = []
    with erasing.erasure_lock(store) as folder:
        for plan in journal.pending(store, folder):
            proofs.append(carry_out(store, plan, folder, recard, jobs))
        for entry in register.entries(store):
            again = _plan_again(store, entry)
            if again is not None:
                note(store, actor, "erasure.replay", again.erasure_id, replays=entry.erasure_id)
                journal.keep(store, again, folder)
                proofs.append(carry_out(store, again, folder, recard, jobs))
    return proofs


def _plan_again(store: Store, entry: ErasedEntry) -> ErasurePlan | None:
    """The plan to repeat an erasure; None if nothing of it came back."""
    record_ids = erasing.existing(store, entry.ids)
    for name, ids in erasing.rows_under(store, entry.keys).items():
        record_ids.setdefault(name, set()).update(ids)
    for name, ids in erasing.find_derived(store, record_ids).items():
        if ids:
            record_ids.setdefault(name, set()).update(ids)
    same_files = _files_as_before(store, entry)
    if not any(record_ids.values()) and not same_files and not erasing.keys_left(store, entry.keys):
        return None
    parts = stored_parts(store, record_ids)
    parts["keys"] = tuple(sorted({*parts["keys"], *entry.keys}))
    gone = {name: tuple(sorted({*ids, *parts["record_ids"].get(name, ())})) for name, ids in entry.ids.items()}
    return ErasurePlan(
        erasure_id=f"er_{uuid7()}", replays=entry.erasure_id, subject=entry.subject, asked=entry.asked, reason=entry.reason,
        actor=entry.actor, approved_by=entry.approved_by, started=utc_now(), words=own_words(store, record_ids),
        condemned=tuple(same_files), **(parts | {"record_ids": parts["record_ids"] | gone}),
    )  # fmt: skip


def _files_as_before(store: Store, entry: ErasedEntry) -> list[str]:
    """Files and folders that have the hash from before the erasure: they hold what it removed."""
    home = store.settings.home
    return [path for path, hashes in entry.files.items() if find_files.hash_of(Path(home / path)) in hashes]
