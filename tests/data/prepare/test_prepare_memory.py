"""Memory grows by a few kilobytes a row, not with the texts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks/prepare.py"


@pytest.mark.slow
def test_a_row_costs_less_than_four_kilobytes(tmp_path: Path) -> None:
    peaks = {}
    for rows in (5_000, 25_000):
        out = tmp_path / f"{rows}.json"
        subprocess.run([sys.executable, BENCHMARK, "--rows", str(rows), "--out", out], check=True, capture_output=True)
        result = json.loads(out.read_text(encoding="utf-8"))
        peaks[rows] = result["prepare"]["peak_rss_mib"]
        assert result["near-duplicates alone"]["dropped"] >= result["peer: datasketch MinHashLSH"]["dropped"]
    assert (peaks[25_000] - peaks[5_000]) * 2**20 / 20_000 < 4_096
