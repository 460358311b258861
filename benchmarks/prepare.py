"""How fast and how large `medloop data prepare` is, beside the obvious in-memory way to find near-duplicates.

    python benchmarks/prepare.py --rows 100000 --out prepare.json

Makes mixed zh/en rows (5 % exact copies, 5 % near-copies), then runs three children one after the other: `prepare` as the
command runs it; its search for near-duplicates alone; and a peer for the latter, which puts a datasketch MinHash of every
text into one MinHashLSH. All use 128 permutations and the same threshold. Each child reports its own time, CPU time and
peak memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

THRESHOLD = 0.8


def make_rows(path: Path, count: int, seed: int = 1) -> None:
    """Words and characters with the skewed frequencies of real text; about 12 words or 40 characters per question."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20_000)]
    chars = [chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(3_000)]
    heavy_words, heavy_chars = [1 / (n + 3) for n in range(len(words))], [1 / (n + 30) for n in range(len(chars))]
    rows: list[dict[str, str]] = []
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            draw = rng.random()
            if draw < 0.05 and rows:
                row = rng.choice(rows)
            elif draw < 0.10 and rows:
                row = edited(rng, rng.choice(rows))
            elif rng.random() < 0.5:
                row = {
                    "question": " ".join(rng.choices(words, heavy_words, k=rng.randint(6, 20))) + "?",
                    "answer": " ".join(rng.choices(words, heavy_words, k=rng.randint(40, 150))) + ".",
                }
            else:
                row = {
                    "question": "".join(rng.choices(chars, heavy_chars, k=rng.randint(15, 70))) + "？",
                    "answer": "".join(rng.choices(chars, heavy_chars, k=rng.randint(80, 250))) + "。",
                }
            if len(rows) < 5_000:
                rows.append(row)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def edited(rng: random.Random, row: dict[str, str]) -> dict[str, str]:
    position = rng.randrange(len(row["question"]) - 4)
    return {"question": row["question"][:position] + row["question"][position + 2 :], "answer": row["answer"][:-3]}


def run_prepare(rows: Path, home: Path) -> dict[str, Any]:
    from medloop.data.prepare.prepare import PrepareConfig, prepare
    from medloop.data.sources.import_files import ImportOptions, import_files
    from medloop.settings import Workspace

    workspace, phases = Workspace(home), {}

    @contextmanager
    def timed(phase: str, total: int) -> Iterator[Any]:
        began = time.process_time()
        yield lambda count: None
        phases[phase] = round(time.process_time() - began, 2)

    import_files([rows], workspace.raw, name="rows", options=ImportOptions())
    began, cpu = time.monotonic(), time.process_time()
    card = prepare(workspace, PrepareConfig(text_threshold=THRESHOLD, scrub=False), seed=42, progress=timed)
    return measured(began, cpu) | {
        "cpu_seconds_by_phase": phases,
        "dropped": card.drops["rows"],
        "files": {split: entry.rows for split, entry in card.files.items()},
    }


def run_alone(rows: Path, home: Path) -> dict[str, Any]:
    """Only what the peer does: read, shingle, sign, drop what is nearly there already."""
    import numpy as np

    from medloop.data.text.dedupe import Signer, near_duplicates
    from medloop.data.text.shingles import text_shingles

    began, cpu = time.monotonic(), time.process_time()
    signer, offsets, signatures = Signer(), [0], []
    with rows.open("rb") as file:
        for line in file:
            signatures.append(signer.sign(text_shingles(" ".join(json.loads(line).values()))))
            offsets.append(offsets[-1] + len(line))

        def shingles_of(row: int) -> Any:
            file.seek(offsets[row])
            return text_shingles(" ".join(json.loads(file.readline()).values()))

        repeats = near_duplicates(np.stack(signatures), np.arange(len(signatures)), shingles_of, THRESHOLD)
    return measured(began, cpu) | {"dropped": int((repeats >= 0).sum())}


def run_peer(rows: Path, home: Path) -> dict[str, Any]:
    """What a tutorial does: shingles, MinHash, one MinHashLSH, a row is dropped when the index knows one like it."""
    from datasketch import MinHash, MinHashLSH

    began, cpu = time.monotonic(), time.process_time()
    index, dropped = MinHashLSH(threshold=THRESHOLD, num_perm=128), 0
    with rows.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            text = " ".join(json.loads(line).values())
            units = text.split() if text.isascii() else list(text)
            sketch = MinHash(num_perm=128)
            sketch.update_batch({" ".join(units[start : start + 3]).encode() for start in range(max(1, len(units) - 2))})
            if index.query(sketch):
                dropped += 1
            else:
                index.insert(str(number), sketch)
    return measured(began, cpu) | {"dropped": dropped}


TASKS = {"prepare": run_prepare, "near-duplicates alone": run_alone, "peer: datasketch MinHashLSH": run_peer}


def measured(began: float, cpu: float) -> dict[str, Any]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_rss_mib": round(peak, 1),
    }


def child(task: str, rows: Path, home: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", task, str(rows), str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("prepare.json"))
    parser.add_argument("--child", nargs=3, metavar=("TASK", "ROWS", "HOME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        task, rows, home = args.child
        print(json.dumps(TASKS[task](Path(rows), Path(home))))
        return
    with tempfile.TemporaryDirectory(prefix="medloop-bench-") as folder:
        rows = Path(folder) / "rows.jsonl"
        make_rows(rows, args.rows)
        result: dict[str, Any] = {
            "rows": args.rows,
            "input_mib": round(rows.stat().st_size / 2**20, 1),
            "machine": platform.platform(),
        }
        for task in TASKS:
            result[task] = child(task, rows, Path(folder) / "home")
            result[task]["rows_per_cpu_second"] = round(args.rows / result[task]["cpu_seconds"])
    args.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
