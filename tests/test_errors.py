"""Errors of the operating system as sentences: what went wrong, with which path, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from medloop.errors import InputError, MedloopError, StoreError
from medloop.loop.workspace import init_workspace
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact
from medloop.store.files.atomic import atomic_write, file_sha256

NOWHERE = Path("/proc/medloop-test")  # nobody can create a file there, and the kernel says "no such file"


def publish(path: Path) -> None:
    with new_artifact(path):
        pass


@pytest.mark.parametrize(
    "write", [init_workspace, publish, lambda path: atomic_write(path, b""), lambda path: jsonl.append(path, {"n": 1})]
)
def test_a_path_that_cannot_be_created_is_not_called_missing(write) -> None:
    with pytest.raises(MedloopError, match=f"Cannot create {NOWHERE}.* Choose a folder where you can write"):
        write(NOWHERE)


def test_a_file_to_read_that_is_missing_is_called_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none does not exist\. Check the path"):
        file_sha256(tmp_path / "none")


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MedloopError, match="file"):
        atomic_write(tmp_path / "file/inside", b"")
    with pytest.raises((InputError, StoreError), match="is a folder, but a file was expected"):
        file_sha256(tmp_path)
