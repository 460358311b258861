"""What the teacher's client makes of every known fault of a service: outcome, score, cache, booking.

    python benchmarks/teacher_faults.py --out teacher_faults.json

Each fault is tried with one answer and one attempt against a loopback teacher. The last column lists what went wrong; it is
empty when all is well.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from _fault_trial import FaultTrial, try_fault

from medloop.testing.teacher_faults import CATALOGUE


def row(trial: FaultTrial) -> dict[str, object]:
    return {
        "fault": trial.fault.name, "outcome": ", ".join(trial.outcomes), "score": trial.score, "cached": trial.cached,
        "booked_share": round(trial.run.cost / trial.reserved, 3) if trial.reserved else 0.0, "problems": trial.problems,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file for the table.")
    args = parser.parse_args()
    rows = []
    for name in CATALOGUE:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(result := row(try_fault(name, Path(folder))))
        columns = (result["outcome"], result["score"], result["cached"], result["booked_share"], result["problems"] or "")
        print(f"{name:<42}" + "".join(f"{column!s:<13}" for column in columns))
    bad = sum(bool(result["problems"]) for result in rows)
    print(f"{len(rows)} faults, {bad} with a problem")
    if args.out:
        report = {"faults": len(rows), "with_problems": bad, "rows": rows}
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
