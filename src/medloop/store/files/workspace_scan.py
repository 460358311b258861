"""Search every file of a workspace byte by byte, and replace files, also inside sealed folders.

for path in files(home): ...                      # links are not followed
with opened(path) as data: ...                    # bytes without reading the file into memory; gzip unpacked
replace_file(path, content)                       # atomic, safe against processes that append
reseal(folder, {"train.jsonl": content})          # a sealed folder: same name, new hash
"""

import gzip
import mmap
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from medloop.errors import explain_os_errors
from medloop.store.files.artifacts import MANIFEST, new_artifact, verify_artifact
from medloop.store.files.atomic import atomic_write, fsync_folder
from medloop.store.files.lock import locked_file

OPAQUE = {
    b"PAR1": "Parquet", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf": "7z",
}  # fmt: skip
GZIP = b"\x1f\x8b"
MOST_UNPACKED = 2**30  # bytes of one gzip file; a zip bomb is reported, not unpacked


class TooLargeError(Exception):
    """A gzip file whose content is larger than anything medloop writes."""


def files(home: Path) -> Iterator[Path]:
    """Every file, sorted by name; folders that disappear in the meantime are skipped."""
    for folder, names, file_names in os.walk(home, followlinks=False):
        names.sort()
        for name in sorted(file_names):
            path = Path(folder) / name
            if not path.is_symlink() and path.is_file():
                yield path


def kind_of(path: Path) -> str | None:
    """The name of a packed format that cannot be searched, or None."""
    with suppress(OSError), path.open("rb") as file:
        start = file.read(8)
        return next((name for magic, name in OPAQUE.items() if start.startswith(magic)), None)
    return None


def is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == GZIP


@contextmanager
def opened(path: Path) -> Iterator[memoryview | bytes]:
    """The bytes of a file, unpacked if it is gzip; no bytes if the file is gone."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield b""
        return
    with file:
        if file.read(2) == GZIP:
            yield unpack(path)
            return
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                yield view
            finally:
                view.release()


def unpack(path: Path) -> bytes:
    """The content of a gzip file; of a damaged or half-written one, the readable beginning."""
    parts, size = [], 0
    with suppress(EOFError, zlib.error, gzip.BadGzipFile), gzip.open(path, "rb") as file:
        while part := file.read(2**20):
            parts.append(part)
            size += len(part)
            if size > MOST_UNPACKED:
                raise TooLargeError(path.name)
    return b"".join(parts)


def pack(content: bytes) -> bytes:
    """Content as gzip without a timestamp, so that equal content gives equal bytes."""
    return gzip.compress(content, mtime=0)


def sealed_above(home: Path, path: Path) -> Path | None:
    """The sealed folder that contains a file, or None."""
    for folder in path.parents:
        if folder == home or not folder.is_relative_to(home):
            return None
        if (folder / MANIFEST).is_file():
            return folder
    return None


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file under its lock: processes that append to it wait and then open the new one (store/files/jsonl.py)."""
    with locked_file(path, wait_s=30.0):
        atomic_write(path, content)


def reseal(folder: Path, changed: Mapping[str, bytes | None]) -> tuple[str, str]:
    """Change files of a sealed folder (None removes one); returns its hashes before and after. Other files are linked."""
    before = verify_artifact(folder).sha256
    with new_artifact(folder, replace=True) as temp:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_dir() or name == MANIFEST or changed.get(name, b"") is None:
                continue
            target = temp / name
            target.parent.mkdir(parents=True, exist_ok=True)
            content = changed.get(name)
            if content is not None:
                target.write_bytes(content)
                shutil.copymode(path, target)
            else:
                os.link(path, target)
    return before, verify_artifact(folder).sha256


def remove(path: Path) -> None:
    """Delete a file or folder."""
    with explain_os_errors(path, writing=True):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        fsync_folder(path.parent)
