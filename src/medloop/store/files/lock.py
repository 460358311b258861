"""One lock per file or folder, held by a living process.

    with locked_file(workspace.jobs / ".retrain.lock", wait_s=10, mode=0o600): ...     # the file is made if it is missing
    with locked_file(folder, wait_s=0, what="The erasure of this workspace"): ...      # a folder can be locked, too

Locks are `flock`: the kernel releases them when the process ends, however it ends. They need a local file system.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from medloop.errors import BusyError, explain_os_error, explain_os_errors


@contextmanager
def locked_file(
    path: Path, *, wait_s: float, what: str | None = None, mode: int | None = None, shared: bool = False
) -> Iterator[int]:
    """Hold the lock of a file or folder; BusyError when it is not free within `wait_s` seconds. Yields the open descriptor.

    With a `mode` the path is a file to read and write, created with that mode if it is missing; without one it must exist and is
    opened for reading. A `shared` lock excludes only exclusive ones. `what` names the lock in messages.
    """
    with explain_os_errors(path, writing=mode is not None):
        fd = os.open(path, (os.O_RDONLY if mode is None else os.O_RDWR | os.O_CREAT) | os.O_CLOEXEC, mode or 0)
    try:
        _acquire(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait_s, what or str(path))
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        with suppress(OSError):
            os.close(fd)


def _acquire(fd: int, kind: int, wait_s: float, what: str) -> None:
    deadline = time.monotonic() + wait_s
    pause = 0.0005
    while True:
        try:
            return fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise explain_os_error(error, what) from error
        if time.monotonic() >= deadline:
            raise BusyError(f"{what} is in use by another process (waited {wait_s:g} s)", "Try again when it has finished")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.01)
