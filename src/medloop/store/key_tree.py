"""The key tree: one small file from which every row's text gets its key, and in which keys can be destroyed.

    tree = KeyTree.new()
    tree.secret("3fa0c1d2b89d01")          # the 32 bytes of one leaf; None if it was destroyed
    tree.destroy(["3fa0c1d2"])             # from now on nobody can compute a leaf that begins so; all others are as before

Each row has a leaf of its own. Rows about one person lie in one branch, so a person is destroyed in one step. A node makes its 16
children with SHA-256, so a new tree is only its root. To destroy a branch, the nodes above it are replaced with their other
children (a puncturable pseudo-random function; docs/decisions/0019-key-tree.md). The file is outside the database and its
backups. An older copy of the file opens everything that a newer one opens, so a copy never has to be recent to be safe.
"""

import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from medloop.errors import IntegrityError, KeyUnavailableError
from medloop.store.files.wipe import finish_wipe, replace_and_wipe

BRANCH, LEAF = 8, 14  # hexadecimal digits: of the branch of a person, and of a row's leaf in it
DIGITS = {digit: digit.encode() for digit in "0123456789abcdef"}
NODE_BYTES, HEAD_BYTES = 32, 8
Stamp = tuple[int, int, int]


@dataclass
class KeyTree:
    """`nodes` by prefix cover all leaves that are left. What begins with one of `retired` is still read, but not written."""

    nodes: dict[str, bytes]
    retired: set[str] = field(default_factory=set)

    @classmethod
    def new(cls) -> "KeyTree":
        return cls({"": secrets.token_bytes(NODE_BYTES)})

    def secret(self, leaf: str) -> bytes | None:
        """The secret of a leaf; None if it was destroyed."""
        depth = self._depth_above(leaf)
        if depth is None:
            return None
        node = self.nodes[leaf[:depth]]
        for digit in leaf[depth:]:  # `_child`, without the call: this runs for every row that is written or read
            node = sha256(node + DIGITS[digit]).digest()
        return node

    def writable(self, leaf: str) -> bool:
        retired = self.retired and (leaf in self.retired or leaf[:BRANCH] in self.retired)
        return not retired and self._depth_above(leaf) is not None

    def is_gone(self, prefix: str) -> bool:
        """Whether every leaf that begins so was destroyed."""
        return self._depth_above(prefix) is None and not any(name.startswith(prefix) for name in self.nodes)

    def destroy(self, prefixes: Iterable[str]) -> int:
        """Destroy every leaf that begins with one of these; returns how many of these were still there."""
        count = 0
        for prefix in prefixes:
            self.retired.discard(prefix)
            if self.is_gone(prefix):
                continue
            count += 1
            for name in [name for name in self.nodes if name.startswith(prefix)]:
                del self.nodes[name]
            depth = self._depth_above(prefix)
            if depth is None:
                continue
            node = self.nodes.pop(prefix[:depth])
            for level in range(depth, len(prefix)):
                self.nodes |= {prefix[:level] + digit: _child(node, digit) for digit in DIGITS if digit != prefix[level]}
                node = _child(node, prefix[level])
        return count

    def _depth_above(self, prefix: str) -> int | None:
        nodes = self.nodes
        for depth in range(len(prefix) + 1):
            if prefix[:depth] in nodes:
                return depth
        return None

    def to_bytes(self) -> bytes:
        nodes = b"".join(prefix.ljust(LEAF).encode() + node for prefix, node in sorted(self.nodes.items()))
        return len(self.nodes).to_bytes(HEAD_BYTES, "big") + nodes + " ".join(sorted(self.retired)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "KeyTree":
        size = LEAF + NODE_BYTES
        end = HEAD_BYTES + int.from_bytes(data[:HEAD_BYTES], "big") * size
        nodes = {
            data[start : start + LEAF].decode().rstrip(): data[start + LEAF : start + size]
            for start in range(HEAD_BYTES, end, size)
        }
        return cls(nodes, set(data[end:].decode().split()))


def _child(node: bytes, digit: str) -> bytes:
    return sha256(node + DIGITS[digit]).digest()


def leaf_of(subject: str | None, record_id: str, generation: int) -> str:
    """The leaf of a row: in the branch of the person it is about, else in one of its own.

    After an erasure, the same person or record goes on with the next generation.
    """
    record = _digest(f"record {record_id}|{generation}")
    return record[:LEAF] if subject is None else _digest(f"subject {subject}|{generation}")[:BRANCH] + record[: LEAF - BRANCH]


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class KeyTreeFile:
    """A tree in its file, encrypted with a key from the database; read again when another process has changed it."""

    def __init__(self, path: Path, raw: bytes) -> None:
        self.path = path
        self._cipher = AESGCM(raw)
        self._stamp: Stamp | None = None
        self._tree = KeyTree({})
        self._checked = float("-inf")

    def tree(self, *, max_age_s: float = 0.0) -> tuple[KeyTree, Stamp]:
        """The tree, and a stamp that changes when the file does. Readers may use one that is a little old."""
        if self._stamp is None or time.monotonic() - self._checked > max_age_s:
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._tree, self._stamp = self._read(), stamp
            self._checked = time.monotonic()
        assert self._stamp is not None
        return self._tree, self._stamp

    def create(self) -> None:
        assert not self.path.exists(), "a key tree is never overwritten with a new one"
        self._write(KeyTree.new())

    def retire(self, prefixes: Iterable[str]) -> None:
        """Write nothing more under these leaves and branches; they can still be read."""
        tree = self._read()
        if new := {prefix for prefix in prefixes if not tree.is_gone(prefix)} - tree.retired:
            tree.retired |= new
            self._write(tree)

    def destroy(self, prefixes: Iterable[str]) -> int:
        """Destroy these leaves and branches; returns how many were still there."""
        tree = self._read()
        if count := tree.destroy(prefixes):
            self._write(tree)
        finish_wipe(self.path)
        return count

    def _write(self, tree: KeyTree) -> None:
        nonce = secrets.token_bytes(12)
        replace_and_wipe(self.path, nonce + self._cipher.encrypt(nonce, tree.to_bytes(), self.path.name.encode()))

    def _read(self) -> KeyTree:
        try:
            sealed = self.path.read_bytes()
        except FileNotFoundError:
            raise self._missing() from None
        try:
            return KeyTree.from_bytes(self._cipher.decrypt(sealed[:12], sealed[12:], self.path.name.encode()))
        except InvalidTag:
            raise IntegrityError(f"{self.path} was changed or damaged", "Restore it from where you keep the master key") from None

    def _stamp_now(self) -> Stamp:
        try:
            info = os.stat(self.path)
        except FileNotFoundError:
            raise self._missing() from None
        return info.st_mtime_ns, info.st_ino, info.st_size

    def _missing(self) -> KeyUnavailableError:
        return KeyUnavailableError(
            f"{self.path} is missing, but the store holds text encrypted with it",
            "Restore it from where you keep the master key; any copy since the first one opens the text",
        )
