"""tools/suite.py on small folders of tests: what failed beside others runs once more, alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "tools" / "suite.py"
ONLY_ALONE = "passed only when run alone: depends on timing or on order; mend it"
# Fails in a worker of xdist, passes alone: what a test that depends on timing or on order does.
FLAKY = """
import os
def test_flaky():
    assert "PYTEST_XDIST_WORKER" not in os.environ
def test_sound():
    with open("runs.txt", "a") as runs:
        runs.write("sound\\n")
"""
BROKEN = "def test_broken():\n    assert False\n"


def run_suite(folder: Path, files: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # some plug-ins of our environment take seconds to start
    command = [sys.executable, str(SCRIPT), "-q", "-p", "xdist.plugin", *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_test_that_passes_alone_is_named_and_is_no_failure(tmp_path):
    ended = run_suite(tmp_path, {"test_flaky.py": FLAKY})
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith(f"{ONLY_ALONE}\n  test_flaky.py::test_flaky\n")
    assert (tmp_path / "runs.txt").read_text() == "sound\n"  # only what failed ran again


def test_a_test_that_fails_alone_too_is_a_failure(tmp_path):
    ended = run_suite(tmp_path, {"test_flaky.py": FLAKY, "test_broken.py": BROKEN})
    assert ended.returncode == 1
    passed_alone = ended.stdout.partition(ONLY_ALONE)[2]
    assert "test_flaky.py::test_flaky" in passed_alone and "test_broken" not in passed_alone


def test_what_an_earlier_run_left_is_no_part_of_this_one(tmp_path):
    left = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    left.parent.mkdir(parents=True)
    left.write_text('{"test_gone.py::test_gone": true}')
    ended = run_suite(tmp_path, {"test_flaky.py": FLAKY})
    assert ended.returncode == 0 and "test_gone" not in ended.stdout


@pytest.mark.parametrize("count, runs_again", [(20, True), (21, False)])
def test_many_failures_are_a_failure_at_once(tmp_path, count, runs_again):
    many = f"import os, pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_n(n):\n    assert 'PYTEST_XDIST_WORKER' not in os.environ\n"
    ended = run_suite(tmp_path, {"test_many.py": many})
    assert ended.returncode == (0 if runs_again else 1)
    assert ("once more, alone" in ended.stdout) is runs_again


def test_a_file_that_cannot_be_collected_is_a_failure_at_once(tmp_path):
    ended = run_suite(tmp_path, {"test_flaky.py": FLAKY, "test_syntax.py": "def test_("})
    assert ended.returncode == 1 and "once more, alone" not in ended.stdout


def test_arguments_reach_both_runs_and_nothing_ends_them_early(tmp_path):
    ended = run_suite(tmp_path, {"test_flaky.py": FLAKY, "test_broken.py": BROKEN}, "-x", "-k", "flaky or sound")
    assert ended.returncode == 0 and (tmp_path / "runs.txt").exists()


def test_a_test_that_cannot_be_found_again_has_not_passed(tmp_path):
    names = "import os, pytest\n@pytest.mark.parametrize('n', [os.getpid()])\ndef test_n(n):\n    assert 'PYTEST_XDIST_WORKER' not in os.environ\n"
    ended = run_suite(tmp_path, {"test_names.py": names}, "-n", "1")
    assert ended.returncode == 1 and ONLY_ALONE not in ended.stdout
