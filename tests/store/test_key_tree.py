"""The key tree: what is destroyed is gone, everything else stays as it was, and a kill loses no key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop.errors import IntegrityError
from medloop.store.key_tree import BRANCH, LEAF, KeyTree, KeyTreeFile, leaf_of

LEAVES = st.lists(st.text("0123456789abcdef", min_size=LEAF, max_size=LEAF), min_size=2, max_size=8, unique=True)


@given(LEAVES, st.data())
def test_what_is_destroyed_is_gone_and_the_rest_is_as_before(leaves: list[str], data: st.DataObject) -> None:
    tree = KeyTree.new()
    before = {leaf: tree.secret(leaf) for leaf in leaves}
    prefixes = [leaf[: data.draw(st.sampled_from((BRANCH, LEAF)))] for leaf in leaves[: len(leaves) // 2]]
    tree.destroy(prefixes)
    tree = KeyTree.from_bytes(tree.to_bytes())
    for leaf, secret in before.items():
        assert tree.secret(leaf) == (None if leaf.startswith(tuple(prefixes)) else secret)
    assert all(tree.is_gone(prefix) for prefix in prefixes) and tree.destroy(prefixes) == 0


def test_rows_of_one_person_lie_in_one_branch_and_others_elsewhere() -> None:
    mine = {leaf_of("sub_1", f"fb_{n}", 0) for n in range(50)}
    assert len(mine) == 50 and len({leaf[:BRANCH] for leaf in mine}) == 1
    assert leaf_of("sub_2", "fb_1", 0)[:BRANCH] not in mine.pop() and leaf_of(None, "fb_1", 0) != leaf_of(None, "fb_1", 1)


def test_an_erased_person_costs_kilobytes() -> None:
    tree = KeyTree.new()
    tree.destroy(leaf_of(f"sub_{n}", "fb_1", 0)[:BRANCH] for n in range(100))
    assert len(tree.to_bytes()) < 100 * 5600


@pytest.mark.parametrize("step", ["link", "replace", "unlink"])
def test_a_kill_while_the_file_is_replaced_loses_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    file = KeyTreeFile(tmp_path / "tk_1.tree", b"k" * 32)
    file.create()
    mine, hers = leaf_of("sub_1", "fb_1", 0), leaf_of("sub_2", "fb_2", 0)
    secret = file.tree()[0].secret(hers)

    def killed(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path if step == "unlink" else os, step, killed)
        file.destroy([mine])
    again = KeyTreeFile(tmp_path / "tk_1.tree", b"k" * 32)
    assert again.tree()[0].secret(hers) == secret
    again.destroy([mine])
    assert again.tree()[0].secret(mine) is None and again.tree()[0].secret(hers) == secret
    assert [path.name for path in tmp_path.iterdir()] == ["tk_1.tree"]


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    file = KeyTreeFile(tmp_path / "tk_1.tree", b"k" * 32)
    file.create()
    file.path.write_bytes(file.path.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match="was changed or damaged"):
        KeyTreeFile(file.path, b"k" * 32).tree()
