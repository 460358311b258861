"""What a backup says about itself. The manifest is encrypted: names of files may say something about people."""

from typing import Literal

from pydantic import Field

from medloop.contracts import Contract
from medloop.contracts.base import Hash, Text, Timestamp


class BackupFile(Contract):
    """One file: its content is the chunks in this order."""

    path: Text  # in the workspace
    size: int = Field(ge=0)
    mode: int
    stamp: Text  # inode, size and times: a file with the same stamp at the next backup is not read again
    sha256: Hash
    chunks: tuple[str, ...]


class BackupDatabase(Contract):
    """The snapshot of the database, and where the audit log stood in it."""

    kind: Literal["sqlite", "postgresql"]
    pg_schema: str = ""
    schema_version: Text
    audit_rows: int = Field(ge=0)
    audit_hash: Text
    dump: BackupFile


class KeyBundle(Contract):
    """The keys of a workspace in their newest state, for all backups: an older state would open what was erased since."""

    store_id: str = ""  # of the workspace whose keys these are; no other one may replace them
    home: str = ""  # and its folder: a copy of the workspace elsewhere may not replace them either
    masters: dict[str, str]  # every master key of the workspace since the first backup, by id; base64
    files: dict[str, str]  # the other files of its folder keys/; base64


class BackupManifest(Contract):
    """Everything in one backup. It is written last, so a backup that was interrupted has none."""

    scheme: Literal["medloop-backup-1"] = "medloop-backup-1"
    backup_id: Text
    created: Timestamp
    version: Text  # of medloop
    workspace: Text
    database: BackupDatabase
    files: tuple[BackupFile, ...]
    left_out: tuple[Text, ...] = ()  # links and sockets, which have no content
    damaged: tuple[Text, ...] = ()  # sealed folders that did not fit their own manifest when they were copied
    master_id: Text  # the master key that opens the database
    trees: tuple[Text, ...]  # the files of the key tree, without which no text opens
    new_bytes: int = Field(ge=0)  # that this backup added to the repository

    @property
    def bytes(self) -> int:
        return self.database.dump.size + sum(file.size for file in self.files)
