"""The journal of an erasure: what must be removed, on the disk before the first change, and gone at the end.

It holds the words to search for, so it is encrypted under a leaf of the key tree, which is destroyed when the erasure is done.
"""

import base64
import hmac
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from medloop.errors import IntegrityError
from medloop.privacy.erasure.contracts import ErasurePlan
from medloop.store.crypto import seal, unseal
from medloop.store.db import Store
from medloop.store.files import workspace_scan
from medloop.store.files.atomic import atomic_write
from medloop.store.key_tree import leaf_of
from medloop.store.records import consents, erasing

PENDING = ".pending"


def keep(store: Store, plan: ErasurePlan, folder: Path) -> None:
    cipher = _cipher(store, plan.erasure_id)
    assert cipher is not None, "a new erasure has a new leaf"
    sealed = seal(cipher, plan.canonical_json().encode(), plan.erasure_id.encode())
    atomic_write(folder / f"{plan.erasure_id}{PENDING}", base64.b64encode(sealed), mode=0o600)


def pending(store: Store, folder: Path) -> Iterator[ErasurePlan]:
    """Unfinished erasures, oldest first."""
    for path in sorted(folder.glob(f"*{PENDING}")):
        name = path.name.removesuffix(PENDING)
        cipher = _cipher(store, name)
        if cipher is None:  # finished: only the files were left, by a kill or by a backup
            _delete_files(folder, name)
            continue
        try:
            plain = unseal(cipher, base64.b64decode(path.read_bytes()), name.encode())
        except FileNotFoundError:
            continue  # finished in the meantime: a caller that only reads does not hold the lock
        except (InvalidTag, ValueError):
            raise IntegrityError(f"{path} cannot be read with this workspace's key", "Restore the key, or the file") from None
        yield ErasurePlan.from_json(plain.decode())


def remove(store: Store, folder: Path, erasure_id: str) -> None:
    """Destroy the key of a journal, then delete its files."""
    erasing.destroy_keys(store, [_leaf(erasure_id)])
    _delete_files(folder, erasure_id)


def _delete_files(folder: Path, erasure_id: str) -> None:
    for ending in (".files.jsonl", PENDING):
        workspace_scan.remove(folder / f"{erasure_id}{ending}")


def _cipher(store: Store, erasure_id: str) -> AESGCM | None:
    """None if the key was destroyed."""
    with store.transaction() as conn:
        tree, _ = store.keys.tree_file(conn).tree()
    secret = tree.secret(_leaf(erasure_id))
    return (
        None
        if secret is None
        else AESGCM(hmac.digest(consents.hashing_key(store), b"medloop erasure journal" + secret, "sha256"))
    )


def _leaf(erasure_id: str) -> str:
    return leaf_of(None, erasure_id, 0)
