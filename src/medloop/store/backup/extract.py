"""Write the files of a backup into a folder. A file that is already there with the right content is left alone."""

import os
from collections.abc import Callable
from pathlib import Path

from medloop.errors import IntegrityError, explain_os_errors
from medloop.store.backup.contracts import BackupFile
from medloop.store.backup.repository import Repository
from medloop.store.files.atomic import atomic_open, file_sha256

Advance = Callable[[int], None]


def extract(repository: Repository, file: BackupFile, target: Path, advance: Advance = lambda count: None) -> None:
    if target.is_file() and target.stat().st_size == file.size and file_sha256(target) == file.sha256:
        advance(file.size)
        return
    with atomic_open(target, mode=0o600) as out:
        for data in repository.read(file):
            out.write(data)
            advance(len(data))
    with explain_os_errors(target, writing=True):
        os.chmod(target, file.mode)


def extract_into(repository: Repository, files: tuple[BackupFile, ...], home: Path, advance: Advance) -> None:
    for file in files:
        target = home / file.path
        if not target.resolve().is_relative_to(home.resolve()):
            raise IntegrityError(f"The backup names a file outside the workspace: {file.path}", "Do not use this backup")
        extract(repository, file, target, advance)
