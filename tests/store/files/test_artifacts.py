"""Artifact folders: whole or absent, checked on read."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from medloop.errors import InputError, IntegrityError, NoSpaceError, StoreError
from medloop.store.files import artifacts
from medloop.store.files.artifacts import (
    atomic_write,
    file_sha256,
    folder_sha256,
    new_artifact,
    newest_verified,
    sweep,
    verify_artifact,
)
from medloop.store.files.atomic import claim_temp


def make(target: Path, *, replace: bool = False, **files: str) -> Path:
    with new_artifact(target, replace=replace) as folder:
        for name, text in (files or {"card": "one", "weights": "two" * 100}).items():
            (folder / name).write_text(text)
        (folder / "sub").mkdir()
        (folder / "sub/deep.txt").write_text("deep")
    return target


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_finished_artifact_verifies_and_its_hash_does_not_depend_on_time_or_place(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a"), make(tmp_path / "b")
    manifest = verify_artifact(first)
    assert {file.path for file in manifest.files} == {"card", "weights", "sub/deep.txt"}
    assert manifest.sha256 == verify_artifact(second).sha256 == folder_sha256(first)
    assert names(tmp_path) == ["a", "b"]


def test_failed_block_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_artifact(tmp_path / "a") as folder:
        (folder / "card").write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_existing_target_is_refused_before_work_starts(tmp_path: Path) -> None:
    make(tmp_path / "a")
    started = False
    with pytest.raises(StoreError, match="already exists"), new_artifact(tmp_path / "a"):
        started = True
    assert not started
    verify_artifact(tmp_path / "a")


def test_empty_folder_counts_as_free(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    verify_artifact(make(tmp_path / "a"))


def test_replace_swaps_the_content_and_leaves_no_old_folder(tmp_path: Path) -> None:
    make(tmp_path / "a", card="old")
    make(tmp_path / "a", card="new", replace=True)
    verify_artifact(tmp_path / "a")
    assert (tmp_path / "a/card").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_replace_refuses_a_folder_that_medloop_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("years of work")
    with pytest.raises(StoreError, match="not made by medloop"):
        make(tmp_path / "thesis", replace=True)
    make(tmp_path / "a")
    (tmp_path / "a/notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"would delete notes\.txt, which is not part of it"):
        make(tmp_path / "a", replace=True)
    assert (tmp_path / "thesis/chapter.txt").exists() and (tmp_path / "a/notes.txt").exists()


def test_replace_killed_between_its_renames_is_undone_on_read(tmp_path: Path) -> None:
    make(tmp_path / "a", card="old")
    os.rename(tmp_path / "a", tmp_path / ".a.old-0123456789ab")
    assert verify_artifact(tmp_path / "a") and (tmp_path / "a/card").read_text() == "old"


def test_folder_that_another_process_made_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="already exists"), new_artifact(tmp_path / "a") as folder:
        (folder / "card").write_text("late")
        make(tmp_path / "a", card="first")
    assert (tmp_path / "a/card").read_text() == "first" and names(tmp_path) == ["a"]


def test_second_replace_after_a_killed_one_keeps_only_the_newest(tmp_path: Path) -> None:
    make(tmp_path / "a", card="second")
    make(tmp_path / ".a.old-0123456789ab", card="first")  # the first replacement was killed before it cleaned up
    make(tmp_path / "a", card="third", replace=True)
    os.rename(tmp_path / "a", tmp_path / "lost")
    with pytest.raises(InputError):
        verify_artifact(tmp_path / "a")  # and not the first one again


def test_old_folder_left_behind_a_finished_replace_is_swept(tmp_path: Path) -> None:
    make(tmp_path / "a", card="new")
    make(tmp_path / ".a.old-0123456789ab", card="old")
    sweep(tmp_path)
    assert names(tmp_path) == ["a"] and (tmp_path / "a/card").read_text() == "new"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda a: (a / "card").unlink(), "card is missing"),
        (lambda a: (a / "sub/more").write_text("x"), "sub/more is not in the manifest"),
        (lambda a: (a / "card").write_text("oneone"), "card has 6 bytes instead of 3"),
        (lambda a: (a / "card").write_text("eno"), "card was changed"),
        (lambda a: (a / "MANIFEST.json").unlink(), "no MANIFEST"),
        (lambda a: (a / "MANIFEST.json").write_text("{}"), "MANIFEST.json cannot be read"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage, says: str) -> None:
    damage(make(tmp_path / "a"))
    with pytest.raises(IntegrityError, match=says):
        verify_artifact(tmp_path / "a")


def test_every_single_byte_flip_is_found(tmp_path: Path) -> None:
    make(tmp_path / "a")
    paths = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    for path in paths:
        good = path.read_bytes()
        for index in range(len(good)):
            bad = bytearray(good)
            bad[index] ^= random.Random(index).randrange(1, 256)
            path.write_bytes(bad)
            with pytest.raises(IntegrityError):
                verify_artifact(tmp_path / "a")
        path.write_bytes(good)
    verify_artifact(tmp_path / "a")


def test_every_truncation_of_a_file_is_found(tmp_path: Path) -> None:
    make(tmp_path / "a")
    for path in (tmp_path / "a/weights", tmp_path / "a/MANIFEST.json"):
        good = path.read_bytes()
        for size in range(len(good)):
            path.write_bytes(good[:size])
            with pytest.raises(IntegrityError):
                verify_artifact(tmp_path / "a")
        path.write_bytes(good)


def test_missing_artifact_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        verify_artifact(tmp_path / "nowhere")


def test_links_are_refused_since_they_have_no_content_to_vouch_for(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="neither a file"), new_artifact(tmp_path / "a") as folder:
        (folder / "link").symlink_to("/etc/hostname")
    assert names(tmp_path) == []


def test_newest_verified_counts_numbers_and_passes_over_damage(tmp_path: Path) -> None:
    for number in (2, 9, 10, 11):
        make(tmp_path / f"iter_{number}")
    (tmp_path / "iter_11/card").write_text("eno")
    (tmp_path / "iter_12").mkdir()
    assert newest_verified(tmp_path, "iter_*") == tmp_path / "iter_10"
    assert newest_verified(tmp_path, "epoch_*") is None
    assert newest_verified(tmp_path / "nowhere", "*") is None


def test_sweep_removes_leftovers_of_the_dead_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".a.tmp-0123456789ab/sub").mkdir(parents=True)
    (tmp_path / ".b.json.tmp-0123456789ab").write_text("half")
    (tmp_path / ".mine.tmp-backup").write_text("a user's own")
    make(tmp_path / "a")
    with new_artifact(tmp_path / "live") as live:
        (live / "x").write_text("x")
        temp, fd = claim_temp(tmp_path / "c", lambda path: os.open(path, os.O_CREAT | os.O_RDWR))
        removed = sweep(tmp_path)
        os.close(fd)
        assert {path.name for path in removed} == {".a.tmp-0123456789ab", ".b.json.tmp-0123456789ab"}
        assert live.exists() and temp.exists()
    assert names(tmp_path) == [temp.name, ".mine.tmp-backup", "a", "live"]


@pytest.mark.parametrize("hidden", [OSError(errno.ENOSPC, "x"), RuntimeError("I/O error: No space left on device (os error 28)")])
def test_full_disk_is_named_and_the_temp_is_freed(tmp_path: Path, hidden: Exception) -> None:
    with pytest.raises(NoSpaceError, match="No space left"), new_artifact(tmp_path / "a") as folder:
        (folder / "card").write_text("half")
        raise hidden
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("replace", [False, True])
def test_failure_of_any_nth_system_call_never_passes_as_success(
    tmp_path: Path, monkeypatch, call: str, code: int, replace: bool
) -> None:
    """Fail the 1st, 2nd, 3rd … call until the whole operation goes through; in between: old, new, or absent, never half."""
    for nth in range(1, 50):
        target = tmp_path / f"a{nth}"
        if replace:
            make(target, card="old")
        with monkeypatch.context() as patch:
            hit = fail_nth(patch, call, nth, code)
            try:
                make(target, card="new", replace=replace)
                failed = False
            except StoreError:
                failed = True
        assert failed == bool(hit)
        if not failed:
            break
        state = (target / "card").read_text() if target.exists() else None
        sweep(tmp_path)
        if replace and state is None:
            state = "old"
        assert state in (("old", "new") if replace else (None, "new"))
        if state:
            verify_artifact(target)
            assert (target / "card").read_text() == state
    else:
        pytest.fail("never went through")
    assert not any(name.startswith(".") for name in names(tmp_path))


def fail_nth(patch: pytest.MonkeyPatch, call: str, nth: int, code: int) -> list[int]:
    """Make the nth call of `os.<call>` fail; the list tells afterwards whether it came to that."""
    real, calls, hit = getattr(os, call), 0, []

    def faulty(*args):
        nonlocal calls
        calls += 1
        if calls == nth:
            hit.append(nth)
            raise OSError(code, os.strerror(code))
        return real(*args)

    patch.setattr(os, call, faulty)
    return hit


def test_atomic_write_keeps_the_old_file_when_fsync_fails(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "card.json"
    atomic_write(path, "old")
    with monkeypatch.context() as patch:
        fail_nth(patch, "fsync", 1, errno.EIO)
        with pytest.raises(StoreError):
            atomic_write(path, "new")
    assert path.read_text() == "old" and names(tmp_path) == ["card.json"]


def test_atomic_write_does_not_open_a_private_file_to_others(tmp_path: Path) -> None:
    atomic_write(tmp_path / "secret", "old", mode=0o600)
    atomic_write(tmp_path / "secret", "new")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_atomic_write_on_a_full_disk_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoSpaceError), artifacts.atomic_open(tmp_path / "big") as file:
        file.write(b"x")
        with open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")
    assert names(tmp_path) == []


def test_file_sha256_is_the_known_one(tmp_path: Path) -> None:
    atomic_write(tmp_path / "x", b"abc")  # FIPS 180-4, example B.1
    assert file_sha256(tmp_path / "x") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
