"""Compiled modules (`make compile`) stand in for their sources, so they must not be older."""

import importlib
from pathlib import Path

import pytest

MODULES = ("lexicon", "lexicon.load", "lexicon.match", "lexicon.negation", "lexicon.numbers", "lexicon.scan", "reward.answer")
RULES = ("chain", "emergency", "false_reassurance", "format", "length", "overtriage", "repetition", "risk")


@pytest.mark.parametrize("name", [*MODULES, *(f"reward.rules.{rule}" for rule in RULES)])
def test_a_compiled_module_is_not_older_than_its_source(name: str) -> None:
    spec = importlib.import_module(f"medloop.{name}").__spec__
    assert spec is not None and spec.origin is not None
    loaded = Path(spec.origin)
    source = loaded.with_name(f"{loaded.name.partition('.')[0]}.py")
    assert loaded.stat().st_mtime >= source.stat().st_mtime, (
        f"{source.name} was edited: run `make compile` again, or `make clean`"
    )
