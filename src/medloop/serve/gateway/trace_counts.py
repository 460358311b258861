"""How many traces were accepted, written, dropped and lost, in a small file that survives the end of the process.

The counters are in a mapped page: a `kill -9` keeps them, because the page belongs to the kernel. At the next start, what was
accepted and is neither written nor counted as dropped or failed was lost with the process.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_FORMAT = struct.Struct("<5Q")
NAMES = ("accepted", "written", "dropped", "failed", "lost")


@dataclass(frozen=True)
class TraceNumbers:
    """Of all time. `dropped`: refused because too many waited; `failed`: the store refused it; `lost`: the process was killed."""

    accepted: int = 0
    written: int = 0
    dropped: int = 0
    failed: int = 0
    lost: int = 0

    @property
    def pending(self) -> int:
        return self.accepted - self.written - self.dropped - self.failed - self.lost


class TraceCounts:
    def __init__(self, page: mmap.mmap) -> None:
        self._page = page

    def add(self, name: str, count: int = 1) -> None:
        place = NAMES.index(name) * 8
        (value,) = struct.unpack_from("<Q", self._page, place)
        struct.pack_into("<Q", self._page, place, value + count)

    @property
    def numbers(self) -> TraceNumbers:
        return TraceNumbers(*_FORMAT.unpack_from(self._page, 0))


@contextmanager
def counting(path: Path) -> Iterator[TraceCounts]:
    """The counters in this file; one process at a time. What the process before it lost is counted now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_size != _FORMAT.size:
            os.ftruncate(file, 0)
            os.ftruncate(file, _FORMAT.size)
        with mmap.mmap(file, _FORMAT.size) as page:
            counts = TraceCounts(page)
            if counts.numbers.pending > 0:
                counts.add("lost", counts.numbers.pending)
            yield counts
            page.flush()
    finally:
        os.close(file)


def read_numbers(path: Path) -> TraceNumbers:
    """For a look from another process."""
    try:
        content = path.read_bytes()
    except OSError:
        return TraceNumbers()
    return TraceNumbers(*_FORMAT.unpack(content)) if len(content) == _FORMAT.size else TraceNumbers()
