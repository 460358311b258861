"""Compiled modules (`make compile`) stand in for their sources, so they must not be older."""

import importlib
import runpy
from pathlib import Path

import pytest

MODULES = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "compile.py"))["modules"]()


@pytest.mark.parametrize("path", MODULES)
def test_a_compiled_module_is_not_older_than_its_source(path: str) -> None:
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    spec = importlib.import_module(name).__spec__
    assert spec is not None and spec.origin is not None
    loaded = Path(spec.origin)
    source = loaded.with_name(f"{loaded.name.partition('.')[0]}.py")
    assert loaded.stat().st_mtime >= source.stat().st_mtime, (
        f"{source.name} was edited: run `make compile` again, or `make clean`"
    )


def test_lexicon_rules_and_detectors_are_compiled() -> None:
    names = ("lexicon/scan", "reward/rules/risk", "reward/detect/acts", "reward/points", "reward/answer_text")
    assert {f"medloop/{name}.py" for name in names} <= set(MODULES)
