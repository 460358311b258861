"""How close the teacher's client comes to the ideal time, against a loopback teacher with a known latency.

    python benchmarks/teacher.py --judgements 2000 --in-flight 64 --latency 0.2 --out teacher.json

Ideal is judgements / in flight * latency; one judgement before it warms up. The teacher runs in a process of its own. A
second run over the same answers must make no request. Then injected answers (known and held-out texts) and the null answers
go past two judges: one is fooled by whatever speaks of grading, the other by any word of the attack that reaches it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from medloop.teacher.config import TeacherConfig
from medloop.teacher.injection.fence import sanitize
from medloop.teacher.judge import TeacherFiles, judge_all
from medloop.teacher.judge_items import JudgeItem
from medloop.testing.attacks import NULLS, TEXTS, attacks, fooled_by_anything
from medloop.testing.teacher_server import Judge, TeacherServer, gullible

SETS = json.loads((Path(__file__).parent / "injections.json").read_text(encoding="utf-8"))
ANSWER = "Case {n}: this is usually due to strain. Please rest, drink water and measure your temperature twice a day. " * 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(port: int, latency: float) -> None:
    TeacherServer(port=port, latency_s=latency, keep_bodies=False).serve_forever()


def started(port: int, latency: float) -> multiprocessing.Process:
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port, latency), daemon=True)
    process.start()
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
            return process
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the loopback teacher did not start")


def throughput(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    port = free_port()
    server = started(port, args.latency)
    config = TeacherConfig(
        base_url=f"http://127.0.0.1:{port}", in_flight=args.in_flight, null_probes=0, budget_usd=1e6, daily_usd=1e6, passes=1
    )
    files = TeacherFiles(folder / "judgements.jsonl", folder / "logs")
    items = [JudgeItem(f"p{n}", f"Case {n}: what should I do?", ANSWER.format(n=n)) for n in range(args.judgements)]
    judge_all(
        [JudgeItem("warm", "Is it cold?", "Put on a coat.")], config, key="k", files=files
    )  # what is loaded once is not measured
    began, cpu = time.monotonic(), time.process_time()
    first = judge_all(items, config, key="k", files=files)
    seconds, used = time.monotonic() - began, time.process_time() - cpu
    began = time.monotonic()
    second = judge_all(items, config, key="k", files=files)
    again = time.monotonic() - began
    server.terminate()
    ideal = args.judgements / args.in_flight * args.latency
    return {
        "judgements": len(first.judgements), "calls": first.calls, "seconds": round(seconds, 3), "ideal_seconds": round(ideal, 3),
        "ratio": round(seconds / ideal, 3), "cpu_seconds": round(used, 3), "second_run_calls": second.calls,
        "second_run_seconds": round(again, 3), "load_average": os.getloadavg()[0],
    }  # fmt: skip


def injection(folder: Path) -> dict[str, Any]:
    sets = {"known": TEXTS, **{name: tuple(SETS[name]) for name in ("held_out", "second", "third")}}
    report: dict[str, Any] = {
        f"{name}, {judge.__name__}": _lift(folder / name / judge.__name__, texts, judge)
        for name, texts in sets.items()
        for judge in (gullible, fooled_by_anything)
    }
    null = [value for value in _scores(folder, list(NULLS), gullible) if value is not None]
    changed = sum(sanitize(text) != text for text in SETS["innocent"])
    return {
        **report,
        "null_answers": len(null),
        "null_max": max(null),
        "innocent_changed": f"{changed} of {len(SETS['innocent'])}",
    }


def _lift(folder: Path, texts: tuple[str, ...], judge: Judge) -> dict[str, Any]:
    pairs = attacks(texts)
    weak, bad = (_scores(folder / str(n), [pair[n] for pair in pairs], judge) for n in (0, 1))
    lifts = [b - a for a, b in zip(weak, bad, strict=True) if a is not None and b is not None]
    return {
        "attacks": len(pairs), "judged": len(lifts), "mean_lift": round(sum(lifts) / len(lifts), 4),
        "gained_over_0.2": sum(lift > 0.2 for lift in lifts), "worst_lift": max(lifts),
    }  # fmt: skip


def _scores(folder: Path, answers: list[str], judge: Judge) -> list[float | None]:
    with TeacherServer(keep_bodies=False, judge=judge) as server:
        config = TeacherConfig(base_url=server.url, null_probes=0, backoff_s=0.0, passes=1)
        items = [JudgeItem(f"i{n}", "Is my headache dangerous?", answer) for n, answer in enumerate(answers)]
        run = judge_all(items, config, key="k", files=TeacherFiles(folder / "injected.jsonl", folder / "logs"))
    return [result.judgement.teacher_score if result.judgement else None for result in run.results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judgements", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2, help="Seconds per reply.")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = {"throughput": throughput(args, Path(folder)), "injection": injection(Path(folder))}
    text = json.dumps(report, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
