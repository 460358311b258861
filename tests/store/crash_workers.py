"""What the killed processes do. Each works without end and tells its parent what has been acknowledged, and only that.

The first message, the last acknowledged number again, says that it has begun. A worker that is started again does
what a careful client does: it repeats the first piece of work that was not acknowledged, not knowing whether it went
through.
"""

from __future__ import annotations

import hashlib
from multiprocessing.connection import Connection
from pathlib import Path

from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store import rotate
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact
from medloop.store.records import crud


def batch(writer: str, number: int) -> list[Feedback]:
    """Batch `number` of a writer: the same records whenever it is asked for."""
    given = {"session_id": writer, "agent_name": "a", "user_query": "q" * 200, "agent_response": "r" * 800, "rating": 3}
    stamp = "2026-01-02T03:04:05Z"
    return [Feedback(feedback_id=f"{writer}-{number}-{n}", timestamp=stamp, **given) for n in range(1 + number * 7 % 13)]


def add_records(home: str, url: str, writer: str, start: int, acked: Connection) -> None:
    acked.send(start - 1)
    with open_store(Settings(home=Path(home), database={"url": url})) as store:
        number = start
        while True:
            crud.add(store, batch(writer, number), actor="crash")
            acked.send(number)
            number += 1


def rotate_keys(home: str, url: str, writer: str, start: int, acked: Connection) -> None:
    acked.send(start - 1)
    with open_store(Settings(home=Path(home), database={"url": url})) as store:
        number = start
        while True:
            rotate.rotate(store, data=True, master=True, actor="crash")
            rotate.reencrypt(store, actor="crash", batch=20)
            acked.send(number)
            number += 1


def content(number: int, name: str) -> bytes:
    seed = hashlib.sha256(f"{number} {name}".encode()).digest()
    return seed * (1 + number * 37 % 2000)


def make_artifacts(folder: str, _: str, writer: str, start: int, acked: Connection) -> None:
    """New folders `<writer>_<n>`, and one that is replaced again and again, `<writer>-latest`."""
    acked.send(start - 1)
    number = start
    while True:
        target = Path(folder) / f"{writer}_{number}"
        if not target.exists():
            fill(target, number, replace=False)
        fill(Path(folder) / f"{writer}-latest", number, replace=True)
        acked.send(number)
        number += 1


def fill(target: Path, number: int, *, replace: bool) -> None:
    with new_artifact(target, replace=replace) as temp:
        (temp / "sub").mkdir()
        for name in ("card", "weights", "sub/more"):
            (temp / name).write_bytes(content(number, name))


def append_lines(path: str, _: str, writer: str, start: int, acked: Connection) -> None:
    have = [row["n"] for row in jsonl.read(Path(path)) if row["writer"] == writer] if Path(path).exists() else []
    number = len(have)
    acked.send(number)
    while True:
        size = 1 + number * 7 % 13
        jsonl.append(Path(path), [{"writer": writer, "n": number + n, "pad": "药" * (number % 500)} for n in range(size)])
        number += size
        acked.send(number)
