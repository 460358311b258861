"""A power cut loses whatever was not fsynced. Here a model disk decides what that is.

`Disk` watches `fsync`, `rename`, `replace` and `link`. It remembers the content of each file at its last fsync and the
names in each folder at its last fsync. Before and after each of those calls the power may fail: the disk is then
rebuilt with nothing unsynced, with everything, and with random mixtures (each file and folder old or new, a file's
unsynced end possibly torn or NUL), and the reader must find its promise kept on every one of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.errors import InputError
from medloop.store.crypto import create_key_file, read_key_file
from medloop.store.files import jsonl
from medloop.store.files.artifacts import atomic_write, new_artifact, sweep, verify_artifact


class Disk:
    def __init__(self, root: Path, scratch: Path, check: Callable[[Path], None], patch: pytest.MonkeyPatch) -> None:
        self.root, self.scratch, self.check = root, scratch, check
        self.files: dict[int, bytes] = {}
        self.folders: dict[int, dict[str, int]] = {}
        self.cuts = 0
        self.busy = False
        for folder, _, names in os.walk(root):
            self.folders[os.stat(folder).st_ino] = entries(Path(folder))
            self.files |= {os.stat(Path(folder, name)).st_ino: Path(folder, name).read_bytes() for name in names}
        for name in ("fsync", "rename", "replace", "link"):
            patch.setattr(os, name, self.watched(name, getattr(os, name)))

    def watched(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*args):
            if self.busy:
                return real(*args)
            self.cut()
            real(*args)
            if name == "fsync":
                path = Path(os.readlink(f"/proc/self/fd/{args[0]}"))
                if path.is_dir():
                    self.folders[path.stat().st_ino] = entries(path)
                else:
                    self.files[path.stat().st_ino] = path.read_bytes()
            self.cut()

        return call

    def cut(self) -> None:
        """The power fails here, in eight different ways."""
        self.busy = True
        for variant in range(8):
            self.cuts += 1
            rebuilt = self.scratch / f"cut-{self.cuts}"
            self.rebuild(rebuilt, random.Random(self.cuts), variant)
            self.check(rebuilt)
        self.busy = False

    def rebuild(self, target: Path, chance: random.Random, variant: int) -> None:
        now = {path.stat().st_ino: path for path in (self.root, *self.root.rglob("*"))}

        def unsynced_is_there() -> bool:
            return {0: False, 1: True}.get(variant, chance.random() < 0.5)

        def build(inode: int, path: Path) -> None:
            is_folder = inode in self.folders or (inode in now and now[inode].is_dir())
            if is_folder:
                path.mkdir()
                names = entries(now[inode]) if inode in now and unsynced_is_there() else self.folders.get(inode, {})
                for name, child in names.items():
                    build(child, path / name)
            else:
                synced = self.files.get(inode, b"")
                whole = now[inode].read_bytes() if inode in now and unsynced_is_there() else synced
                if variant > 4 and whole.startswith(synced) and len(whole) > len(synced):
                    keep = chance.randrange(len(synced), len(whole) + 1)
                    whole = whole[:keep] + b"\0" * chance.choice((0, len(whole) - keep))
                path.write_bytes(whole)

        build(self.root.stat().st_ino, target)


def entries(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch):
    (tmp_path / "root").mkdir()
    (tmp_path / "scratch").mkdir()
    return lambda check: Disk(tmp_path / "root", tmp_path / "scratch", check, monkeypatch)


def make(target: Path, text: str, *, replace: bool = False) -> None:
    with new_artifact(target, replace=replace) as folder:
        (folder / "sub").mkdir()
        for name in ("card", "weights", "sub/more"):
            (folder / name).write_text(text * 100)


def test_artifact_is_whole_or_absent_and_there_once_acknowledged(tmp_path: Path, disk) -> None:
    done = False

    def check(root: Path) -> None:
        if (root / "deep").exists():
            sweep(root / "deep")
        target = root / "deep/a"
        assert target.exists() or not done
        if target.exists():
            verify_artifact(target)

    model = disk(check)
    make(tmp_path / "root/deep/a", "new")
    done = True
    model.cut()
    assert model.cuts > 100


def test_replaced_artifact_is_the_old_or_the_new_one_at_every_moment(tmp_path: Path, disk) -> None:
    make(tmp_path / "root/a", "old")
    done = False

    def check(root: Path) -> None:
        verify_artifact(root / "a")
        assert (root / "a/card").read_text()[:3] in (("new",) if done else ("old", "new"))

    model = disk(check)
    make(tmp_path / "root/a", "new", replace=True)
    done = True
    model.cut()
    assert model.cuts > 100


def test_single_file_is_the_old_or_the_new_one(tmp_path: Path, disk) -> None:
    path = tmp_path / "root/x"
    path.write_bytes(b"old" * 1000)
    done = False

    def check(root: Path) -> None:
        assert (root / "x").read_bytes() in ((b"new" * 999,) if done else (b"old" * 1000, b"new" * 999))

    model = disk(check)
    atomic_write(path, b"new" * 999)
    done = True
    model.cut()


def test_acknowledged_lines_are_there(tmp_path: Path, disk) -> None:
    acked: list[dict] = []
    rows = [{"n": n, "text": "胸痛" * n} for n in range(12)]

    def check(root: Path) -> None:
        try:
            lines = list(jsonl.read(root / "deep/a.jsonl"))
        except InputError:
            assert not (root / "deep/a.jsonl").exists()
            lines = []
        assert lines == rows[: len(lines)] and len(lines) >= len(acked)

    model = disk(check)
    for start in range(0, 12, 3):
        jsonl.append(tmp_path / "root/deep/a.jsonl", rows[start : start + 3])
        acked = rows[: start + 3]
        model.cut()


def test_new_key_file_is_a_key_or_absent(tmp_path: Path, disk) -> None:
    done: list[str] = []

    def check(root: Path) -> None:
        path = root / "keys/master.key"
        assert path.exists() or not done
        if path.exists():
            path.chmod(0o600)  # the model keeps no modes
            assert read_key_file(path).id in (done or [read_key_file(path).id])

    model = disk(check)
    done.append(create_key_file(tmp_path / "root/keys/master.key").id)
    model.cut()
