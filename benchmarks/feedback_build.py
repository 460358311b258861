"""How much memory and time `medloop data build` takes, beside reading and filtering the same records in memory.

    python benchmarks/feedback_build.py --records 100000 --out feedback_build.json

Fills stores with simulated ratings, choices and corrections (five records a question, zh and en, one in fifty with a name and a
phone number), then runs three processes one after the other: the command on a small store, which shows what the program itself
takes; the command on the large one; and a peer, pyarrow reading the same records from one plain JSON-lines file into a table
and keeping those with consent. The peer does not decrypt, scrub, compare or split: it is a lower bound. Time, CPU time and peak
memory are reported for each process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

SMALL = 50
BATCH = 2_000

PEER = """
import sys, time
import pyarrow.compute as pc
import pyarrow.json
table = pyarrow.json.read_json(sys.argv[1])
kept = table.filter(pc.equal(table["consent"], "training"))
rows = kept.to_pylist()
print(len(rows))
"""


def make(count: int, seed: int = 1) -> Iterator[Any]:
    """Records about count / 5 questions with different words."""
    from medloop.contracts import Correction, Feedback, Preference
    from medloop.embedded.corpus import generate

    rng = random.Random(seed)
    vocabulary = (files("medloop") / "assets/phi/words.txt").read_text(encoding="utf-8").split()
    words = [word for word in vocabulary if word.isascii() and word.islower() and 5 < len(word) < 10][:8_000]
    texts = generate(count, seed=seed)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(0, count, 5):
        (question, good), (_, bad), (_, third) = (_question_and_answer(next(texts)) for _ in range(3))
        query = f"{question} {' '.join(rng.sample(words, 8))}?"
        if number % 50 == 0:
            query += " My name is John Smith, call 13800138000."
        answers = [f"{text} {' '.join(rng.sample(words, 6))}." for text in (good, bad, third)]
        shared: dict[str, Any] = {
            "consent": () if number % 45 == 0 else ("training",),
            "timestamp": now + timedelta(minutes=number),
        }
        rated = {"session_id": "s", "agent_name": "a", "user_query": query, **shared}
        for answer, thumb in ((answers[0], "up"), (answers[1], "down"), (answers[0], "up")):
            yield Feedback.model_validate(
                {**rated, "agent_response": answer, "thumb": thumb, "clinician_id": f"c{rng.randrange(40)}"}
            )
        yield Preference.model_validate(
            {"prompt": query, "response_a": answers[0], "response_b": answers[2], "preferred": "a", **shared}
        )
        yield Correction.model_validate({"prompt": query, "original": answers[1], "golden": answers[2], "reason": None, **shared})


def _question_and_answer(row: dict[str, Any]) -> tuple[str, str]:
    return row["messages"][-2]["content"], row["messages"][-1]["content"]


def fill(home: Path, count: int, plain: Path) -> int:
    """A store with these records, and the same ones as a plain file; returns the bytes of the file."""
    from itertools import islice

    from medloop.loop.workspace import init_workspace
    from medloop.settings import Settings
    from medloop.store.db import open_store
    from medloop.store.records import crud

    init_workspace(home)
    records = make(count)
    with open_store(Settings(home=home)) as store, plain.open("w", encoding="utf-8") as file:
        while batch := list(islice(records, BATCH)):
            crud.add(store, batch, actor="benchmark")
            file.writelines(json.dumps(_flat(record), ensure_ascii=False) + "\n" for record in batch)
    return plain.stat().st_size


def _flat(record: Any) -> dict[str, Any]:
    values = record.model_dump(mode="json")
    plain = {name: value for name, value in values.items() if isinstance(value, str | int | bool) and name != "timestamp"}
    return plain | {"consent": ",".join(values["consent"]), "when": values["timestamp"]}


def run_child(command: list[str]) -> dict[str, Any]:
    """Seconds, CPU seconds and peak memory of one child."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert child.stdout is not None
    output = child.stdout.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[0]} ended with {child.returncode}")
    return {
        "seconds": round(time.monotonic() - start, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_rss_mib": round(used.ru_maxrss / 1024, 1),
        "last_line": output.strip().splitlines()[-1],
    }


def build(home: Path) -> dict[str, Any]:
    return run_child([sys.executable, "-m", "medloop", "--home", str(home), "data", "build"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        fill(home / "small", SMALL, home / "small.jsonl")
        size = fill(home / "large", args.records, home / "large.jsonl")
        alone, whole = build(home / "small"), build(home / "large")
        peer = run_child([sys.executable, "-c", PEER, str(home / "large.jsonl")])
        dataset = sum(file.stat().st_size for file in (home / "large/data/feedback/feedback").glob("*"))
    grown = whole["peak_rss_mib"] - alone["peak_rss_mib"]
    result = {
        "records": args.records,
        "plain_mib": round(size / 2**20, 1),
        "dataset_mib": round(dataset / 2**20, 1),
        "python": platform.python_version(),
        f"data build, {SMALL} records": alone,
        "data build": whole,
        "peer: pyarrow, read and filter": peer,
        "growth_mib": round(grown, 1),
        "growth_over_plain": round(grown / (size / 2**20), 2),
        "growth_bytes_per_record": round(grown * 2**20 / args.records),
        "peak_over_peer": round(whole["peak_rss_mib"] / peer["peak_rss_mib"], 2),
        "cpu_ms_per_record": round(1e3 * (whole["cpu_seconds"] - alone["cpu_seconds"]) / args.records, 2),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
