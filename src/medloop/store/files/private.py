"""Files of a workspace that other users of the machine could read: find them, and make them their owner's alone.

    report = tighten(workspace)        # report.changed, report.left

medloop makes files with 0600 and folders with 0700 (the command sets the umask). What an older version, a copy or a person has
put there is tightened when a workspace is completed or served. Links are left alone, and so is what lies behind them.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from medloop.settings import Workspace

OTHERS = 0o077


@dataclass(frozen=True)
class TightenReport:
    changed: int = 0
    left: tuple[Path, ...] = ()  # of another user: only they can change the mode


def open_to_others(workspace: Workspace) -> list[Path]:
    """What of the workspace other users may read, write or enter."""
    return [path for path in _paths(workspace) if _mode(path) & OTHERS]


def tighten(workspace: Workspace) -> TightenReport:
    """Take all rights from everybody but the owner."""
    paths = open_to_others(workspace)
    for path in paths:
        with suppress(OSError):
            # Opened without following a link: between the look and the change somebody may have put one there.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & ~OTHERS)
            finally:
                os.close(fd)
    left = tuple(path for path in paths if _mode(path) & OTHERS)
    return TightenReport(len(paths) - len(left), left)


def _paths(workspace: Workspace) -> Iterator[Path]:
    """The workspace's folder, and what medloop keeps in it; other things beside them are not ours."""
    yield workspace.home
    yield from sorted(workspace.home.glob(f"{workspace.database.name}*"))
    yield from (workspace.config, workspace.home / "allow.txt")
    for top in sorted({workspace.home / path.relative_to(workspace.home).parts[0] for path in workspace.folders()}):
        if top.is_dir() and not top.is_symlink():
            yield top
            for folder, folders, files in os.walk(top):
                yield from (Path(folder, name) for name in (*folders, *files))


def _mode(path: Path) -> int:
    """0 for a link and for what is gone: neither lets anybody in."""
    try:
        info = path.lstat()
    except OSError:
        return 0
    return stat.S_IMODE(info.st_mode) if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) else 0
