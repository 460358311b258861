"""How many ratings per second, acknowledged after COMMIT, with keys, scan, encryption and audit on; what overload and kill -9 do.

    python benchmarks/ingest.py --mlflow /path/to/venv/bin/python --out ingest.json
    python benchmarks/ingest.py --part kill --kills 100 --acks 100000 --database sqlite

    speed     our `POST /api/v1/rlhf/feedback` and MLflow's `POST /api/3.0/mlflow/traces/{id}/assessments` in turn, the same
              load, one process each; `ratio` is the median over the rounds of ours by theirs. `by_trace`: rating and comment on
              a logged exchange, as MLflow's; `whole`: with question and answer, which are scanned and sealed too.
    overload  open loop at three times the peak just measured: `goodput` is the share of the peak that is still stored.
    kill      kill -9 under load, again and again: every acknowledged rating is there, none is there twice.

The load generator is `_load.py`, in a process of its own; the servers that are killed come from `_serve.py`. Ratings
are zh and en (650 bytes with their texts), each with an idempotency key. Without --mlflow ours alone.
MLflow comes from an environment of its own:
`python -m venv mlflow && mlflow/bin/pip install mlflow==3.17.2`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Last, not first: a neighbour of this file may have the name of a standard module.
sys.path[:] = [*(place for place in sys.path if Path(place).resolve() != HERE), str(HERE)]

import _serve  # noqa: E402

from medloop.client import Client  # noqa: E402
from medloop.embedded.corpus import generate  # noqa: E402
from medloop.loop.workspace import init_workspace  # noqa: E402
from medloop.settings import Settings  # noqa: E402
from medloop.store.db import open_store, upgrade  # noqa: E402
from medloop.store.records import users  # noqa: E402

WANTED = {"ratio": 8.0, "goodput": 0.9}
KEYS = 8
CONNECTIONS = 64
OVER = 3.0
LOAD = [sys.executable, "-P", str(HERE / "_load.py")]
OWN: dict[str, Any] = {
    "start_new_session": True
}  # Linux shares processor time by session first: each server and load has its own
Json = dict[str, Any]


def bodies(path: Path, count: int = 500) -> Path:
    """Ratings of answers from the embedded corpus, each about 500 bytes."""
    rng = random.Random(5)
    comments = (
        "Good advice, but it does not ask about fever.",
        "剂量没有问题，但是没有提到过敏史。",
        "Misses the red flag in the first line.",
    )
    with path.open("w", encoding="utf-8") as file:
        for row in generate(count, seed=11):
            question, answer = _texts(row)
            body = {
                "session_id": "@KEY@", "agent_name": "triage", "model_version": "bench@1", "user_query": question[:150],
                "agent_response": answer[:200], "rating": rng.randint(1, 5), "comments": rng.choice(comments),
                "axes": {"safety": rng.randint(1, 5)}, "consent": ["training"],
            }  # fmt: skip
            file.write(json.dumps(body, ensure_ascii=False) + "\n")
    return path


def by_trace(file: Path, trace: str) -> Path:
    """The same ratings as comments on one logged exchange: what MLflow's assessments are."""
    out = file.with_name("by_trace.jsonl")
    with out.open("w", encoding="utf-8") as lines:
        for line in file.read_text(encoding="utf-8").splitlines():
            body = json.loads(line)
            fields = {name: body[name] for name in ("session_id", "rating", "comments", "axes", "consent")}
            lines.write(json.dumps({"trace_id": trace, **fields}, ensure_ascii=False) + "\n")
    return out


def _texts(row: Any) -> tuple[str, str]:
    texts = {message["role"]: message["content"] for message in row["messages"]}
    return texts["user"], texts["assistant"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ours:
    """`medloop api serve` on a workspace of its own, with KEYS keys."""

    def __init__(self, home: Path, url: str = "") -> None:
        self.home, self.url, self.port = home, url, free_port()
        self.process: Any = None
        # No job is filed after a thousand ratings: building its data takes the second core. MLflow's workers are off, too.
        self.env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MEDLOOP_FEEDBACK__RETRAIN_EVERY": "0",
            **({"MEDLOOP_DATABASE__URL": url} if url else {}),
        }
        init_workspace(home)
        self.settings = Settings(home=home, database={"url": url})
        upgrade(self.settings)
        with open_store(self.settings) as store:
            user = users.add_user(store, "bench", "engineer", actor="bench")
            self.keys = [users.new_key(store, user, actor="bench") for _ in range(KEYS)]

    def start(self, *, rate: float = 1e6) -> None:
        command = [sys.executable, "-m", "medloop", "--home", str(self.home), "api", "serve", "--port", str(self.port)]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--rate", str(rate)], env=self.env, stdout=log, stderr=log, **OWN)
        wait_for(f"http://127.0.0.1:{self.port}/healthz")

    def fork(self) -> None:
        self.process = _serve.forked(self.home, self.url, self.port, 1e6)
        wait_for(f"http://127.0.0.1:{self.port}/healthz")

    def end(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)
        self.process.wait(timeout=30) if isinstance(self.process, subprocess.Popen) else self.process.join(timeout=30)
        self.process = None

    def memory(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def trace(self) -> str:
        """A logged exchange to rate."""
        talk = [{"role": "user", "content": "I have a cough."}, {"role": "assistant", "content": "Do you also have a fever?"}]
        with Client(f"http://127.0.0.1:{self.port}", self.keys[0]) as client:
            return client.log_trace(session_id="bench", agent_name="triage", model_version="bench@1", messages=talk)

    def plan(self, file: Path, **more: Any) -> Json:
        plan = {"port": self.port, "path": "/api/v1/rlhf/feedback", "bodies": str(file), "keys": self.keys}
        return {**plan, "prefix": f"{random.randbytes(4).hex()}-", **more}


class Mlflow:
    """An MLflow tracking server with one worker and one trace."""

    def __init__(self, home: Path, python: Path, jobs: bool) -> None:
        home.mkdir()
        self.port = free_port()
        bin_ = python.parent
        command = [
            str(bin_ / "mlflow"), "server", "--backend-store-uri", f"sqlite:///{home}/mlflow.db",
            "--artifacts-destination", str(home / "artifacts"),
            "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
        ]  # fmt: skip
        env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": str(jobs).lower()}
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, **OWN)
        url = f"http://127.0.0.1:{self.port}"
        wait_for(f"{url}/health", seconds=120)
        code = (
            "import mlflow, sys; mlflow.set_tracking_uri(sys.argv[1]); mlflow.set_experiment('bench')\n"
            "with mlflow.start_span('chat') as span: span.set_inputs({'q': 'cough'}); span.set_outputs({'a': 'rest'})\n"
            "print('TRACE', mlflow.get_last_active_trace_id(), mlflow.__version__)"
        )
        output = subprocess.run([str(python), "-c", code, url], capture_output=True, text=True, check=True, timeout=120).stdout
        match = re.search(r"TRACE (\S+) (\S+)", output)
        assert match, "MLflow made no trace"
        self.trace, self.version = match.groups()

    def plan(self, file: Path, **more: Any) -> Json:
        path = f"/api/3.0/mlflow/traces/{self.trace}/assessments"
        return {"port": self.port, "path": path, "bodies": str(self._bodies(file)), **more}

    def _bodies(self, file: Path) -> Path:
        out, when = file.with_name("mlflow.jsonl"), "2026-11-15T10:00:00Z"
        lines = []
        for line in file.read_text(encoding="utf-8").splitlines():
            body = json.loads(line)
            assessment = {
                "assessment_name": "rating", "trace_id": self.trace, "source": {"source_type": "HUMAN", "source_id": "dr-1"},
                "create_time": when, "last_update_time": when, "feedback": {"value": body["rating"]},
                "rationale": body["comments"], "metadata": {"session": "s"},
            }  # fmt: skip
            lines.append(json.dumps({"assessment": assessment}, ensure_ascii=False))
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return out

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)


def processor_s(session: int) -> float:
    """Processor time of all processes of a session so far."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(server: Ours | Mlflow, plan: Json) -> Json:
    """A run, with the server's processor time for each stored request: what other work on the machine does not change much."""
    before = processor_s(server.process.pid)
    report = load(plan)
    spent = processor_s(server.process.pid) - before
    return {**report, "cpu_ms": round(1000 * spent / max(report["good"], 1), 2), "cores": round(spent / report["seconds"], 2)}


def wait_for(url: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=2).close()
            return
        time.sleep(0.05)
    raise SystemExit(f"{url} did not answer within {seconds:g} s")


def load(plan: Json) -> Json:
    done = subprocess.run(LOAD, input=json.dumps(plan), capture_output=True, text=True, timeout=900, **OWN)
    if done.returncode:
        raise SystemExit(done.stderr)
    report: Json = json.loads(done.stdout)
    return report


def speed(ours: Ours, peer: Mlflow | None, file: Path, rounds: int, seconds: float) -> Json:
    """A/B/A/B: what else the machine does falls on both."""
    files = {"by_trace": by_trace(file, ours.trace()), "whole": file}
    mine: dict[str, list[Json]] = {name: [] for name in files}
    theirs: list[Json] = []
    load(ours.plan(file, connections=16, seconds=2))  # warm
    for _ in range(rounds):
        for name, given in files.items():
            mine[name].append(timed(ours, ours.plan(given, connections=CONNECTIONS, seconds=seconds)))
        if peer is not None:
            theirs.append(timed(peer, peer.plan(file, connections=CONNECTIONS, seconds=seconds)))
    report: Json = {"runs": {**mine, "mlflow": theirs}}
    for name, runs in mine.items():
        report[name] = {"per_s": statistics.median(run["per_s"] for run in runs), **_against(runs, theirs)}
    return report


def _against(mine: list[Json], theirs: list[Json]) -> Json:
    if not theirs:
        return {}
    pairs = list(zip(mine, theirs, strict=True))
    ratios = [a["per_s"] / b["per_s"] for a, b in pairs]
    return {
        "mlflow_per_s": statistics.median(run["per_s"] for run in theirs),
        "ratio": round(statistics.median(ratios), 2),
        "worst_ratio": round(min(ratios), 2),
        "wanted": WANTED["ratio"],
        "cpu_ratio": round(statistics.median(b["cpu_ms"] / a["cpu_ms"] for a, b in pairs), 2),
        "p99_ratio": round(statistics.median(a["p99_ms"] / b["p99_ms"] for a, b in pairs), 3),
    }


def overload(ours: Ours, file: Path, seconds: float, rounds: int) -> Json:
    """Peak and three times the peak in turn; memory before and after all of it."""
    before, runs = ours.memory(), []
    for _ in range(rounds):
        peak = load(ours.plan(file, connections=64, seconds=seconds))
        over = load(ours.plan(file, connections=600, seconds=seconds, rate=OVER * peak["per_s"]))
        runs.append({"peak": peak, "over": over, "goodput": round(over["per_s"] / peak["per_s"], 3)})
    statuses = {code for run in runs for code in run["over"]["statuses"]}
    return {
        "runs": runs, "goodput": statistics.median(run["goodput"] for run in runs), "wanted": WANTED["goodput"],
        "only_429_503": statuses <= {"200", "201", "429", "503"}, "broken": sum(run["over"]["broken"] for run in runs),
        "without_retry_after": sum(run["over"]["no_retry_after"] for run in runs),
        "memory_mb": [round(before / 2**20, 1), round(ours.memory() / 2**20, 1)],
    }  # fmt: skip


def kill(ours: Ours, kills: int, acks: int, folder: Path) -> Json:
    """Single ratings and imports of 50, sent again until acknowledged; meanwhile the server is killed at random moments."""
    ours.end()
    ours.fork()
    started, rng = time.monotonic(), random.Random(time.time_ns())
    single, lines = kill_bodies(folder, ours.trace())
    shared = {"seconds": 7200, "resend": True}
    plans = [
        ours.plan(single, connections=32, most=acks // 5, acked=str(folder / "single.txt"), **shared),
        ours.plan(lines, connections=4, most=acks - acks // 5, acked=str(folder / "lines.txt"), **shared)
        | {"path": "/api/v1/rlhf/import", "kind": "application/x-ndjson"},
    ]
    loads = [Background(plan) for plan in plans]
    logs = [Acked(Path(plan["acked"])) for plan in plans]
    for done in range(1, kills + 1):
        while sum(log.count() for log in logs) < acks * done / (kills + 1) and any(load.runs for load in loads):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.05))
        ours.end(signal.SIGKILL)
        ours.fork()
    reports = [load.report() for load in loads]
    ours.end()
    return {"kills": kills, "loads": reports, "seconds": round(time.monotonic() - started), **counted(ours.settings, logs)}


def kill_bodies(folder: Path, trace: str) -> tuple[Path, Path]:
    """Ratings of one trace; the session carries the idempotency key, so that a record stored twice would show."""
    body = {"trace_id": trace, "rating": 4, "axes": {"safety": 5}, "consent": ["training"]}
    single, lines = folder / "single.jsonl", folder / "lines.jsonl"
    single.write_text(json.dumps({**body, "session_id": "@KEY@"}) + "\n", encoding="utf-8")
    rows = [json.dumps({"kind": "feedback", **body, "session_id": f"@KEY@/{n}"}) for n in range(50)]
    lines.write_text("\x1e".join(rows) + "\n", encoding="utf-8")
    return single, lines


class Background:
    """The load generator beside us."""

    def __init__(self, plan: Json) -> None:
        self.process = subprocess.Popen(LOAD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(plan))
        self.process.stdin.close()

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def report(self) -> Json:
        assert self.process.stdout is not None
        report: Json = json.loads(self.process.stdout.read())
        return report


class Acked:
    """What a load generator was told, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self._at, self._seen = path, 0, 0

    def count(self) -> int:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
            self._at += len(data)
            self._seen += data.count(b'"feedback_id"')
        return self._seen

    def ids(self) -> set[str]:
        answers = [json.loads(line.split(" ", 1)[1]) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return {result["feedback_id"] for answer in answers for result in answer.get("results", [answer])}


def counted(settings: Settings, logs: list[Acked]) -> Json:
    """What was acknowledged against what is there."""
    from sqlalchemy import func, select

    from medloop.store import audit
    from medloop.store.check import check
    from medloop.store.tables import idempotency_keys, rlhf_feedback

    expected = set().union(*(log.ids() for log in logs))
    with open_store(settings) as store:
        with store.read() as conn:
            there = set(conn.execute(select(rlhf_feedback.c.feedback_id)).scalars())
            by_key = select(rlhf_feedback.c.session_id).group_by(rlhf_feedback.c.session_id).having(func.count() > 1)
            doubles = len(conn.execute(by_key).all())
            keys = conn.execute(select(func.count()).select_from(idempotency_keys)).scalar_one()
        report = audit.verify(store)
        check(store)
    return {
        "acknowledged": len(expected), "stored": len(there), "lost": len(expected - there), "duplicated": doubles,
        "keys": keys, "audit_ok": report.ok, "audit_rows": report.rows,
    }  # fmt: skip


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server of our own with fsync on, on a unix socket."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from conftest import Postgres, find_postgres_binaries, unprivileged

    binaries = find_postgres_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed (no initdb)")
    home = Path(tempfile.mkdtemp(prefix="medloop-pg-"))
    server = Postgres(home, binaries, unprivileged())
    if "user" in server.as_user:
        os.chown(home, server.as_user["user"], server.as_user["group"])
    initdb = [str(binaries / "initdb"), "-D", str(home / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=home, **server.as_user)
    options = f"-k {home} -c listen_addresses='' -c dynamic_shared_memory_type=mmap"
    server.control("-l", str(home / "log"), "-o", options, "start")
    try:
        yield server.new_database()
    finally:
        server.stop("immediate")
        shutil.rmtree(home, ignore_errors=True)


def measure(args: argparse.Namespace, folder: Path, url: str) -> Json:
    file, ours = bodies(folder / "bodies.jsonl"), Ours(folder / "clinic", url)
    report: Json = {"database": args.database, "python": platform.python_version(), "cores": os.cpu_count()}
    ours.start()
    try:
        if args.part in ("all", "speed"):
            peer = Mlflow(folder / "mlflow", args.mlflow, args.mlflow_jobs) if args.mlflow else None
            try:
                report["speed"] = speed(ours, peer, file, args.rounds, args.seconds)
            finally:
                if peer is not None:
                    peer.end()
        if args.part in ("all", "overload"):
            report["overload"] = overload(ours, file, args.seconds, args.rounds)
        if args.part in ("all", "kill"):
            report["kill"] = kill(ours, args.kills, args.acks, folder)
    finally:
        if ours.process is not None:
            ours.end()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["all", "speed", "overload", "kill"], default="all")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--mlflow", type=Path, help="python of an environment with mlflow==3.17.2")
    parser.add_argument(
        "--mlflow-jobs", action="store_true", help="leave MLflow's job workers on, as it comes; they cost it speed"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one run")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--acks", type=int, default=5000)
    parser.add_argument("--folder", type=Path, help="where the workspace is made; a disk, not memory, if its speed is to count")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ingest-", dir=args.folder))
    try:
        if args.database == "postgresql":
            with postgres(folder) as url:
                report = measure(args, folder, url)
        else:
            report = measure(args, folder, "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(report, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
