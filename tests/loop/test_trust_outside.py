"""Labelled sets by others: converted once, the command gives the numbers of the benchmark."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from trust_workspace import BAD, GOOD, QUESTION, medloop

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def public_set(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_the_command_repeats_the_benchmark_on_sets_in_their_own_form(workspace: Path) -> None:
    sets = workspace / "sets"
    sets.mkdir()
    ktas = [{"id": n, "chief_complaint": "crushing chest pain, sweating", "ktas_expert": 2 if n % 2 else 5} for n in range(30)]
    public_set(sets, "triage_en_ktas_ed", ktas)
    options = {"question": QUESTION, "options": [BAD, GOOD], "answer_index": 1, "answer": GOOD}
    public_set(sets, "safety_zh_safetybench_health", [{"id": n, **options} for n in range(25)])
    draft = {"patient_context_and_message": QUESTION, "gpt4_draft": BAD, "harm_extent": "Severe harm"}
    public_set(sets, "rate_en_oncqa_gpt4_drafts", [{"id": n, **draft} for n in range(20)])
    command = [sys.executable, BENCHMARKS / "trust.py", "--data", sets, "--cases", "cases.jsonl", "--out", "card.json"]
    subprocess.run(command, check=True, capture_output=True)
    card = json.loads(medloop("reward", "validate", "cases.jsonl", "--json"))
    published = json.loads(Path("card.json").read_text(encoding="utf-8"))["card"]
    assert {name: card[name] for name in ("measures", "judges", "cases", "sources")} == {
        name: published[name] for name in ("measures", "judges", "cases", "sources")
    }
    measures = {(row["judge"], row["quantity"], row["slice"]): row["value"] for row in card["measures"]}
    assert measures["urgency", "false_alarms", "all"]["n"] == measures["urgency", "recall", "all"]["n"] == 15
    assert measures["harm", "recall", "source=rate_en_oncqa_gpt4_drafts"]["mean"] == 1.0
    assert {("risk", "recall", "source=acts_held"), ("false_reassurance", "precision", "source=acts_held")} <= measures.keys()
