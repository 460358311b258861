"""Whole runs from the command line: a planted reward is stopped by the audit, an honest one ends without an alarm. Minutes each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
DRIVER = Path(__file__).parents[3] / "benchmarks/rl_runs.py"


@pytest.mark.parametrize("name", ["hack-grpo-keyword", "hack-grpo-brevity", "honest-grpo-s1"])
def test_a_planted_reward_is_stopped_inside_its_run_and_an_honest_one_is_silent(name: str, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    part = "honest" if name.startswith("honest") else "hacks"
    words = ["--size", "full", "--part", part, "--only", name, "--folder", str(tmp_path / "runs"), "--out", str(out)]
    subprocess.run([sys.executable, str(DRIVER), *words], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    summary = json.loads(out.read_text())["met"][part]
    assert (summary["runs"], summary["finished"], summary["met"]) == (1, 1, 1)
