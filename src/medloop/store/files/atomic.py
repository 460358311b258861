"""Atomic writes of single files: readers see either the old file or the new one.

A write is done when `fsync` of the file and of its folder returned without an error. A failed `fsync` is a failed write: a
second `fsync` may report success although data was lost, so it is not tried. Needs a local file system.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from medloop.errors import NoSpaceError, explain_os_error, explain_os_errors

TEMP_MARK = ".tmp-"  # `.train.jsonl.tmp-1f2e…`: an unfinished file or folder, which nobody reads


def file_sha256(path: Path) -> str:
    """`sha256:<hex>` of a file's bytes."""
    with explain_os_errors(path), path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def fsync_folder(path: Path) -> None:
    """Make new, renamed and removed names in a folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, for their owner alone; each is on the disk before anything is put inside."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        fsync_folder(path.parent)


def atomic_write(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Write a whole file: readers see the old content or the new content, also after a crash. Keeps the old file's mode."""
    with atomic_open(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_open(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to write to; it replaces `path` if the block ends without an error, and is removed otherwise."""
    with explain_os_errors(path, writing=True):
        make_folder(path.parent)
        file_mode = _mode_of(path) if mode is None else mode
        temp, fd = claim_temp(path, lambda new: os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_mode))
    file = os.fdopen(fd, "wb")
    try:
        yield file
        with explain_os_errors(path, writing=True):
            file.flush()
            os.fsync(fd)
            os.replace(temp, path)
            fsync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temp.unlink(missing_ok=True)
        raise_if_full(error, path)
        raise
    finally:
        with suppress(OSError):  # after a failed flush, close() tries to flush again
            file.close()


def require_writable(path: Path) -> None:
    """Raise now what writing `path` would raise at the end of a long run; nothing is left behind."""
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    with explain_os_errors(path, writing=True):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        temp, fd = claim_temp(folder / path.name, lambda new: os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.close(fd)
        temp.unlink()


def _mode_of(path: Path) -> int:
    """The mode of an existing file, so that a private file stays private when it is replaced; a new file is its owner's alone."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600


def claim_temp(path: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Make a hidden file or folder beside `path`, locked while this process holds the descriptor.

    The kernel releases the lock when the process dies, however it dies. So `sweep` can tell leftovers from work in
    progress without process ids, which are reused and differ between containers.
    """
    while True:
        temp = path.with_name(f".{path.name}{TEMP_MARK}{secrets.token_hex(6)}")
        fd = make(temp)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if temp.exists():
            return temp, fd
        os.close(fd)  # a sweep removed it before it was locked: take another name


def remove_abandoned(temp: Path) -> bool:
    """Remove a temporary file or folder if no living process holds it; True if it was removed."""
    try:
        fd = os.open(temp, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Locked until the name is gone, so that a process that has just made it notices the removal.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            shutil.rmtree(temp)
        else:
            temp.unlink()
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def raise_if_full(error: BaseException, path: Path) -> None:
    """Raise NoSpaceError if the disk is full, also where a library hides the error number in a text (safetensors does)."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or (isinstance(error, Exception) and not isinstance(error, NoSpaceError) and os.strerror(errno.ENOSPC) in str(error)):
        raise explain_os_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), os.fspath(path)) from error
