"""How long a clinician's rating takes while the server is attacked, and how long the server takes to end then.

    python benchmarks/borders.py --out borders.json

    alone     the clinician's ratings without anybody else: ten a second at fixed times, so that a wait counts as latency.
    attacked  the same while 1,000 connections without a key are held (silent; headers that never end; bodies of 3 MB that never
              come; login forms that never end; each is opened again when the server closes it) and a program with a key keeps
              sending 50 texts full of names, 76,000 characters (228 KB) each, which have to be scanned.
    end       seconds from SIGTERM to the end of the server in the middle of that; acknowledged ratings that are missing then.

The server is `medloop api serve` with its default limits, on SQLite. `memory_mb` is of the server without its scan workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Last, not first: a neighbour of this file may have the name of a standard module.
sys.path[:] = [*(place for place in sys.path if Path(place).resolve() != HERE), str(HERE)]

from ingest import Json, Ours, load  # noqa: E402

from medloop.store.db import open_store  # noqa: E402
from medloop.store.records import users  # noqa: E402
from medloop.store.tables import rlhf_feedback  # noqa: E402

WANTED = {"p99_ms": 1000.0, "end_s": 10.0}
SURNAMES, GIVEN = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗", "芳伟娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉"
HEADERS = "Host: 127.0.0.1\r\nContent-Length: {size}\r\nContent-Type: {kind}\r\n\r\n"
IDLE = (
    b"",
    b"POST /api/v1/rlhf/feedback HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    f"POST /api/v1/rlhf/import HTTP/1.1\r\n{HEADERS.format(size=3_000_000, kind='application/x-ndjson')}{{".encode(),
    f"POST /web/login HTTP/1.1\r\n{HEADERS.format(size=4000, kind='application/x-www-form-urlencoded')}name=".encode(),
)


def hostile_body(seed: int) -> bytes:
    """Four messages of 19,000 characters, one name after the other."""
    rng = random.Random(seed)

    def text() -> str:
        return "".join(f"患者{rng.choice(SURNAMES)}{rng.choice(GIVEN)}{rng.choice(GIVEN)}来电。" for _ in range(2800))[:19_000]

    messages = [{"role": role, "content": text()} for role in ("user", "assistant") * 2]
    body = {"session_id": "s", "agent_name": "a", "model_version": "v", "messages": messages}
    return json.dumps(body, ensure_ascii=False).encode()


class Attack:
    """The connections and texts of the attackers, on a thread of their own."""

    def __init__(self, port: int, key: str, sockets: int, texts: int) -> None:
        self.port, self.key, self.sockets, self.texts = port, key, sockets, texts
        self.held = self.sent = 0
        self.statuses: dict[str, int] = {}
        self._ends = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Attack]:
        thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while self.held < self.sockets and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            yield self
        finally:
            self._ends.set()
            thread.join(timeout=30)

    async def _run(self) -> None:
        held = [self._hold(IDLE[n % len(IDLE)]) for n in range(self.sockets)]
        sent = [self._send(hostile_body(n)) for n in range(self.texts)]
        tasks = [asyncio.create_task(task) for task in (*held, *sent)]
        while not self._ends.is_set():
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()

    async def _hold(self, start: bytes) -> None:
        """One connection that is always there: when it is closed, it is opened again."""
        await asyncio.sleep(random.uniform(0, 2))
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                self.held += 1
                try:
                    writer.write(start)
                    while await reader.read(65536):
                        pass
                finally:
                    self.held -= 1
                    writer.close()
            await asyncio.sleep(0.05)

    async def _send(self, body: bytes) -> None:
        head = f"POST /api/v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.key}\r\n"
        head += f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(head.encode() + body)
                self.sent += 1
                status = (await reader.readline())[9:12].decode() or "none"
                self.statuses[status] = self.statuses.get(status, 0) + 1
                writer.close()
            await asyncio.sleep(0.05)


def keys(ours: Ours) -> tuple[str, str]:
    with open_store(ours.settings) as store:
        people = [
            users.add_user(store, name, role, actor="bench") for name, role in (("li", "clinician"), ("greedy", "engineer"))
        ]
        clinician, greedy = (users.new_key(store, user, actor="bench") for user in people)
    return clinician, greedy


def measure(args: argparse.Namespace, folder: Path) -> Json:
    ours = Ours(folder / "clinic")
    clinician, greedy = keys(ours)
    ours.start(rate=200)
    try:
        rating = {
            "trace_id": ours.trace(),
            "rating": 4,
            "comments": "Good, but it does not ask about fever.",
            "consent": ["training"],
        }
        file = folder / "ratings.jsonl"
        file.write_text(json.dumps(rating) + "\n", encoding="utf-8")
        plan = ours.plan(file, connections=4, seconds=args.seconds, rate=args.rate, acked=str(folder / "acked.txt")) | {
            "keys": [clinician]
        }
        alone, before = load(plan), ours.memory()
        report: Json = {"python": platform.python_version(), "cores": os.cpu_count(), "alone": alone}
        with Attack(ours.port, greedy, args.sockets, args.texts).running() as attack:
            attacked = load({**plan, "prefix": "attacked-"})
            attackers = {"sockets": attack.held, "texts_sent": attack.sent, "texts": attack.statuses}
            memory = [round(size / 2**20, 1) for size in (before, ours.memory())]
            report["attacked"] = {**attacked, "attackers": attackers, "memory_mb": memory, "wanted": WANTED["p99_ms"]}
            started = time.monotonic()
            process = ours.process
            ours.end(signal.SIGTERM)
            report["end"] = {
                "seconds": round(time.monotonic() - started, 2),
                "code": process.returncode,
                "wanted": WANTED["end_s"],
            }
        report["end"]["lost"] = lost(ours, folder / "acked.txt")
    finally:
        if ours.process is not None:
            ours.end(signal.SIGKILL)
    return report


def lost(ours: Ours, acked: Path) -> int:
    """Ratings that were acknowledged and are not there."""
    from sqlalchemy import select

    answers = [json.loads(line.split(" ", 1)[1]) for line in acked.read_text(encoding="utf-8").splitlines()]
    with open_store(ours.settings) as store, store.read() as conn:
        there = set(conn.execute(select(rlhf_feedback.c.feedback_id)).scalars())
    return len({answer["feedback_id"] for answer in answers} - there)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sockets", type=int, default=1000, help="connections without a key")
    parser.add_argument("--texts", type=int, default=50, help="hostile texts at once")
    parser.add_argument("--rate", type=float, default=10.0, help="ratings a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part")
    parser.add_argument("--folder", type=Path, help="where the workspace is made; a disk, not memory, if its speed is to count")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="borders-", dir=args.folder))
    try:
        report: dict[str, Any] = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(report, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
