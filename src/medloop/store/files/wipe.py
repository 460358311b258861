"""Replace a file that holds keys, and overwrite the bytes of the old one on the disk, because they hold what was destroyed.

    replace_and_wipe(path, content)
    finish_wipe(path)                  # what a kill has left

The old bytes have a second name until they are overwritten, so that the next call finishes after a kill. A file system without
hard links, as many disks for backups have, cannot do that: there the old bytes are overwritten through the open file.
"""

import errno
import os
from pathlib import Path
from typing import BinaryIO

from medloop.errors import explain_os_errors
from medloop.store.files.atomic import atomic_write, fsync_folder

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


def replace_and_wipe(path: Path, content: bytes) -> None:
    finish_wipe(path)
    if not path.exists():
        atomic_write(path, content, mode=0o600)
        return
    with explain_os_errors(path, writing=True), path.open("r+b", buffering=0) as before:
        try:
            os.link(path, _old(path))
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
        atomic_write(path, content, mode=0o600)
        _overwrite(before)
    finish_wipe(path)


def finish_wipe(path: Path) -> None:
    old = _old(path)
    if not old.exists():
        return
    with explain_os_errors(old, writing=True):
        if not old.samefile(path):  # after a kill before the replacement, it is still the file in use
            with old.open("r+b", buffering=0) as file:
                _overwrite(file)
        old.unlink()
        fsync_folder(old.parent)


def _overwrite(file: BinaryIO) -> None:
    file.seek(0)
    file.write(bytes(os.fstat(file.fileno()).st_size))
    os.fsync(file.fileno())


def _old(path: Path) -> Path:
    return path.with_name(path.name + ".old")
