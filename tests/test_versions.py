"""Every file compiles without a warning, under this Python and under every other supported one that is here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPILE = "import pathlib, sys; [compile(pathlib.Path(name).read_text('utf-8'), name, 'exec') for name in sys.argv[1:]]"


def runs(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "python", [sys.executable, *(pytest.param(f"python3.{minor}", marks=pytest.mark.slow) for minor in (11, 12, 13))]
)
def test_every_file_compiles_without_a_warning(python: str) -> None:
    """An invalid escape in a pattern is a warning in 3.11 and stopped the collection of the tests in 3.13."""
    if not runs(python):
        pytest.skip(f"{python} does not run here")
    files = [str(path) for folder in ("src", "tests", "tools", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    done = subprocess.run([python, "-W", "error", "-c", COMPILE, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_make_test_versions_names_those_that_are_not_here(tmp_path: Path) -> None:
    (tmp_path / "make").symlink_to("/usr/bin/true")  # the suite itself is not run here
    for minor, code in ((11, "exit 0"), (12, "exit 127"), (13, "exit 127")):
        script = tmp_path / f"python3.{minor}"
        script.write_text(f"#!/bin/sh\n{code}\n")
        script.chmod(0o755)
    done = subprocess.run(
        ["/usr/bin/make", "test-versions", f"MAKE={tmp_path / 'make'}"], cwd=ROOT, capture_output=True, text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.splitlines() == [
        "== Python 3.11",
        "== Python 3.12 is not on the PATH, so nothing was tested with it.",
        "== Python 3.13 is not on the PATH, so nothing was tested with it.",
    ]
