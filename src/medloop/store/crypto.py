"""Envelope encryption: a data key encrypts text, the master key encrypts data keys, and the master key stays outside the store.

    master key   MEDLOOP_DATABASE__ENCRYPTION_KEY (base64 of 32 bytes), else the key file (mode 0600)
    data keys    random; stored in the table `data_keys`, each wrapped with the master key; each row names its data key
    key tree     a file in the workspace's `keys/` (key_tree.py); each row has a leaf in it, each person a branch
    text key     SHA-256 of data key and leaf; each row names both. An erasure destroys the leaf: no copy of the row opens again
    a column     AES-256-GCM; the associated data is table|row id|column|key id, so a value cannot be moved elsewhere

Without the right master key nothing is written or read: there is a KeyUnavailableError, never plain text and never a new key.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, bindparam, func, select

from medloop.contracts import utc_now, uuid7
from medloop.errors import IntegrityError, KeyUnavailableError, explain_os_errors
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write, fsync_folder, make_folder
from medloop.store.key_tree import KeyTree, KeyTreeFile, Stamp, leaf_of
from medloop.store.tables import data_keys

KEY_BYTES = 32
NONCE_BYTES = 12  # random; below 2**32 values per data key the chance of a repeat stays under 2**-32
FORMAT = b"\x01"  # AES-256-GCM: format byte, nonce, ciphertext with its 16-byte tag
CACHED_KEYS = 4096
READ_AGE_S = 1.0  # a reader may use a key this long after an erasure destroyed it; a writer never
MAKE_ONE = "openssl rand -base64 32"
_NEWEST = select(data_keys.c.key_id).where(data_keys.c.purpose == bindparam("purpose")).order_by(data_keys.c.id.desc()).limit(1)
_ALL_NEWEST = select(data_keys.c.purpose, data_keys.c.key_id).where(
    data_keys.c.id.in_(select(func.max(data_keys.c.id)).group_by(data_keys.c.purpose))
)
NEWEST_KEYS = "medloop_newest_keys"  # option of a transaction's connection: they are read once, nobody else can add one meanwhile


class ErasedKeyError(IntegrityError):
    """An erasure destroyed the key of this text; the row came back from a backup."""


@dataclass(frozen=True)
class MasterKey:
    raw: bytes = field(repr=False)
    origin: str

    @property
    def id(self) -> str:
        """A name that does not reveal the key."""
        return hmac.new(self.raw, b"medloop master key id", "sha256").hexdigest()[:16]


def load_master_key(settings: Settings) -> MasterKey:
    """The master key from the environment or the key file; KeyUnavailableError when there is none or others can read the file."""
    if given := settings.database.encryption_key.get_secret_value():
        return MasterKey(decode_key(given, "MEDLOOP_DATABASE__ENCRYPTION_KEY"), "environment MEDLOOP_DATABASE__ENCRYPTION_KEY")
    path = settings.master_key_file
    if not path.exists():
        raise KeyUnavailableError(
            f"There is no encryption key: {path} does not exist and MEDLOOP_DATABASE__ENCRYPTION_KEY is not set",
            "Restore the key file from your backup, or set the variable; 'medloop init' makes a key for a new workspace",
        )
    return read_key_file(path)


def read_key_file(path: Path) -> MasterKey:
    with explain_os_errors(path):
        info = path.stat()
        if info.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyUnavailableError(
                f"{path} can be read by other users (mode {info.st_mode & 0o777:04o})", f"Run: chmod 600 {path}"
            )
        text = path.read_bytes()
    return MasterKey(decode_key(text, str(path)), f"file {path}")


def decode_key(text: str | bytes, source: str) -> bytes:
    with suppress(binascii.Error, ValueError):
        raw = base64.b64decode(text.strip(), validate=True)
        if len(raw) == KEY_BYTES:
            return raw
    raise KeyUnavailableError(f"{source} does not hold a key: expected base64 of {KEY_BYTES} bytes", f"Make one with: {MAKE_ONE}")


def encode_key(raw: bytes) -> bytes:
    return base64.b64encode(raw) + b"\n"


def create_key_file(path: Path) -> MasterKey:
    """Make the key file if it does not exist; two processes that try at once get the same key."""
    with explain_os_errors(path, writing=True):
        make_folder(path.parent)
        fresh = path.with_name(f".{path.name}.new-{secrets.token_hex(6)}")
        atomic_write(fresh, encode_key(secrets.token_bytes(KEY_BYTES)), mode=0o600)
        try:
            os.link(fresh, path)  # unlike a rename, this never replaces an existing key
            fsync_folder(path.parent)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return read_key_file(path)


def next_key_file(settings: Settings) -> Path:
    """Where rotation keeps the new master key until it has wrapped all data keys."""
    return settings.master_key_file.with_name(settings.master_key_file.name + ".next")


def seal(cipher: AESGCM, plain: bytes, bound_to: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return FORMAT + nonce + cipher.encrypt(nonce, plain, bound_to)


def unseal(cipher: AESGCM, blob: bytes, bound_to: bytes) -> bytes:
    """The plain bytes; InvalidTag when the blob, its place or the key differs from when it was sealed."""
    if blob[:1] != FORMAT or len(blob) < 1 + NONCE_BYTES + 16:
        raise InvalidTag
    return cipher.decrypt(blob[1 : 1 + NONCE_BYTES], blob[1 + NONCE_BYTES :], bound_to)


def place(table: str, row_id: str, column: str, key_id: str) -> bytes:
    """The place that a ciphertext is bound to. Only the row id is free text, so the four parts cannot be confused."""
    return f"{table}|{row_id}|{column}|{key_id}".encode()


@dataclass(frozen=True)
class DataKey:
    """One unwrapped data key."""

    key_id: str
    raw: bytes = field(repr=False)

    def text_key(self, leaf: str, secret: bytes) -> "TextKey":
        return TextKey(self.key_id, leaf, hashlib.sha256(self.raw + secret).digest())  # both are random, and 32 bytes each


class TextKey:
    """The key of the text of one row; it binds each ciphertext to its place and to the data key's id."""

    def __init__(self, key_id: str, leaf: str, raw: bytes) -> None:
        self.key_id, self.leaf = key_id, leaf
        self._cipher = AESGCM(raw)

    @property
    def columns(self) -> dict[str, str]:
        """The columns by which a row names its key."""
        return {"key_id": self.key_id, "text_key": self.leaf}

    def encrypt_row(self, table: str, row_id: str, plain: Mapping[str, bytes]) -> dict[str, bytes]:
        """Columns of one row."""
        cipher, key_id = self._cipher, self.key_id
        return {column: seal(cipher, value, place(table, row_id, column, key_id)) for column, value in plain.items()}

    def decrypt_row(self, table: str, row_id: str, sealed: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Columns of one row, without the empty ones; IntegrityError names the column that does not fit its place."""
        return {column: self.decrypt(blob, table, row_id, column) for column, blob in sealed.items() if blob is not None}

    def encrypt(self, plain: bytes, table: str, row_id: str, column: str) -> bytes:
        return seal(self._cipher, plain, place(table, row_id, column, self.key_id))

    def decrypt(self, blob: bytes, table: str, row_id: str, column: str) -> bytes:
        try:
            return unseal(self._cipher, blob, place(table, row_id, column, self.key_id))
        except InvalidTag:
            raise IntegrityError(
                f"{table}.{column} of {row_id} was changed or damaged: it does not decrypt with its key {self.key_id}",
                "Restore the row from a backup",
            ) from None


@dataclass(slots=True)
class WriteKeys:
    """The keys for the rows of one transaction: the newest data key, and the tree as it is now."""

    data_key: DataKey
    tree: KeyTree
    cache: dict[tuple[str, str], TextKey]

    def for_row(self, subject: str | None, row_id: str) -> TextKey:
        """The key of a new row, which may be about a person. Whoever was erased before gets a new one."""
        generation = 0
        while not self.tree.writable(leaf := leaf_of(subject, row_id, generation)):
            generation += 1
        return self.for_leaf(leaf)

    def for_leaf(self, leaf: str) -> TextKey:
        name = self.data_key.key_id, leaf
        key = self.cache.get(name)
        if key is None:
            secret = self.tree.secret(leaf)
            if secret is None:
                raise ErasedKeyError(
                    "The key of this text was destroyed by an erasure",
                    "After a restore, remove such rows with: medloop erase --replay",
                )
            if len(self.cache) >= CACHED_KEYS:
                self.cache.clear()
            key = self.cache[name] = self.data_key.text_key(leaf, secret)
        return key


class Keyring:
    """The unwrapped data keys of one open store. It reads the master key only when it meets an unknown data key."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, DataKey] = {}
        self._tree: tuple[str, KeyTreeFile] | None = None
        self._cache: tuple[Stamp | None, dict[tuple[str, str], TextKey]] = (None, {})

    def writing(self, conn: Connection) -> WriteKeys:
        """The keys to write with in this transaction. They are looked up each time, because data keys rotate, and no erasure can
        retire a leaf while the transaction holds the writer's lock. The first call makes the data key and the tree."""
        return self._keys(self._newest(conn, "data"), self.tree_file(conn))

    def auditing(self, conn: Connection) -> DataKey:
        """The key that signs the head of the audit log. It is wrapped, not derived, so a new master key does not change it."""
        return self._newest(conn, "audit")

    def reading(self, conn: Connection, row: Any) -> TextKey:
        """The key of a row; ErasedKeyError if an erasure destroyed it."""
        tree_file = self._tree[1] if self._tree else self.tree_file(conn)
        return self._keys(self.data_key(conn, row.key_id), tree_file, max_age_s=READ_AGE_S).for_leaf(row.text_key)

    def tree_file(self, conn: Connection) -> KeyTreeFile:
        """The key tree of this database, in a file that is named after the key that encrypts it; the first write makes it."""
        key_id = _newest_id(conn, "texts")
        if self._tree is None or self._tree[0] != key_id:
            key = self.add(conn, "texts") if key_id is None else self.data_key(conn, key_id)
            tree_file = KeyTreeFile(self._settings.workspace.keys / f"{key.key_id}.tree", key.raw)
            if key_id is None:
                tree_file.create()
            self._tree = (key.key_id, tree_file)
        return self._tree[1]

    def _keys(self, data_key: DataKey, tree_file: KeyTreeFile, *, max_age_s: float = 0.0) -> WriteKeys:
        tree, stamp = tree_file.tree(max_age_s=max_age_s)
        if self._cache[0] != stamp:
            self._cache = (stamp, {})
        return WriteKeys(data_key, tree, self._cache[1])

    def data_key(self, conn: Connection, key_id: str) -> DataKey:
        if key_id not in self._known:
            row = conn.execute(select(data_keys).where(data_keys.c.key_id == key_id)).first()
            if row is None:
                raise KeyUnavailableError(f"Data key {key_id} is not in the store", "Restore the table data_keys from a backup")
            self._known[key_id] = DataKey(key_id, self._unwrap(conn, row.key_id, row.master_id, row.wrapped))
        return self._known[key_id]

    def exists(self, conn: Connection, purpose: str) -> bool:
        return conn.execute(select(data_keys.c.id).where(data_keys.c.purpose == purpose).limit(1)).first() is not None

    def add(self, conn: Connection, purpose: str) -> DataKey:
        """Make a new data key, which `writing` or `auditing` returns from now on."""
        master = self.master(conn)
        key = DataKey(f"{purpose[0]}k_{uuid7()}", secrets.token_bytes(KEY_BYTES))
        row = {"key_id": key.key_id, "purpose": purpose, "master_id": master.id, "created": utc_now()}
        conn.execute(data_keys.insert().values(**row, wrapped=wrap(master, key.key_id, key.raw)))
        self._known[key.key_id] = key
        conn.get_execution_options().get(NEWEST_KEYS, {}).pop(purpose, None)
        return key

    def master(self, conn: Connection) -> MasterKey:
        """The master key that fits the store.

        A rotation that is killed after the database took the new key leaves that key in the `.next` file. It is read from
        there until the next rotation puts it in place.
        """
        master_id = conn.execute(select(data_keys.c.master_id).limit(1)).scalar()
        next_file = next_key_file(self._settings)
        if master_id and not self._settings.database.encryption_key.get_secret_value() and next_file.exists():
            key = read_key_file(next_file)
            if key.id == master_id:
                return key
        master = load_master_key(self._settings)
        if master_id not in (None, master.id):
            raise KeyUnavailableError(
                f"The encryption key from {master.origin} has id {master.id}, but the store is encrypted with {master_id}",
                f"Restore the key {master_id}; nothing was changed",
            )
        return master

    def _newest(self, conn: Connection, purpose: str) -> DataKey:
        key_id = _newest_id(conn, purpose)
        return self.add(conn, purpose) if key_id is None else self.data_key(conn, key_id)

    def _unwrap(self, conn: Connection, key_id: str, master_id: str, wrapped: bytes) -> bytes:
        master = self.master(conn)
        try:
            return unseal(AESGCM(master.raw), wrapped, place("data_keys", key_id, "wrapped", master_id))
        except InvalidTag:
            raise IntegrityError(
                f"Data key {key_id} was changed or damaged", "Restore the table data_keys from a backup"
            ) from None


def _newest_id(conn: Connection, purpose: str) -> str | None:
    known: dict[str, str] | None = conn.get_execution_options().get(NEWEST_KEYS)
    if known is None:
        return conn.execute(_NEWEST, {"purpose": purpose}).scalar()
    if purpose not in known:
        known.update({row.purpose: row.key_id for row in conn.execute(_ALL_NEWEST)})
    return known.get(purpose)


def wrap(master: MasterKey, key_id: str, raw: bytes) -> bytes:
    return seal(AESGCM(master.raw), raw, place("data_keys", key_id, "wrapped", master.id))
