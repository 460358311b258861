"""How long the pages of the console take: python benchmarks/console.py --records 100000, or --workspace demo (after make demo)

Fills a temporary workspace with traces and ratings, or copies yours; opens every page of the rail as its role, and from each
list the first item behind it. It prints the median and the slowest of some requests, and the processor time of one: the
server's part, no browser. The first request of a page is not counted. On a busy machine the processor time counts; the load
is printed with the numbers. The budgets: 300 ms on the demo workspace, 1 s with 100,000 records; a page over it is marked.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fastapi.testclient import TestClient

from medloop.contracts import Conversation, Feedback, Message, Trace
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, users
from medloop.web.app import create_app
from medloop.web.navigation import MENU

PASSWORD = "invented words of a stopwatch"
PREFIX, CHUNK, MANY = "timed-", 2000, 100_000


def fill(store: Store, records: int, by: str) -> None:
    """Half traces, half ratings about them."""
    for start in range(0, records // 2, CHUNK):
        rows: list[Trace | Feedback] = []
        for n in range(start, min(start + CHUNK, records // 2)):
            talk = Conversation(messages=(Message(role="user", content="Q?"), Message(role="assistant", content="A.")))
            trace = Trace(session_id=f"s{n}", agent_name="triage", model_version=f"clinic@{n % 5}", conversation=talk)
            rows += [trace, Feedback(
                session_id=trace.session_id, agent_name="triage", user_query="Q?", agent_response="A.", rating=1 + n % 5,
                trace_id=trace.trace_id, clinician_id=by, recorded_by=by, consent=("training",),
            )]  # fmt: skip
        crud.add(store, rows, actor="bench")


def measure(settings: Settings, times: int) -> list[tuple[str, str, float, float, float]]:
    app, results = create_app(settings, supervise=False), []
    with TestClient(app, base_url="http://127.0.0.1", headers={"Origin": "http://127.0.0.1"}) as client:
        for role in users.ROLES:
            client.cookies.clear()
            client.post("/web/login", data={"name": f"{PREFIX}{role}", "password": PASSWORD})
            for path in _paths(client, role):
                taken, used = [], time.process_time()
                for _ in range(times):
                    start = time.perf_counter()
                    answer = client.get(f"/web/{path}")
                    taken.append(time.perf_counter() - start)
                    assert answer.status_code == 200, (role, path, answer.status_code)
                cpu = (time.process_time() - used) / times
                results.append((role, path or "home", statistics.median(taken), max(taken), cpu))
    return results


def _paths(client: TestClient, role: str) -> list[str]:
    """The pages of the rail that this role may open, and the first item that each of them links to."""
    paths = ["", "loop", "search?q=clinic"]
    for name in (name for name, roles in MENU.items() if role in roles):
        found = re.findall(rf'href="/web/({name}/[^"?#]+|lineage\?id=[^"]+)"', client.get(f"/web/{name}").text)
        items = (html.unescape(path) for path in found)
        paths += [
            name,
            *next(([path] for path in items if path not in paths and client.get(f"/web/{path}").status_code == 200), []),
        ]
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--workspace", type=Path, help="Measure a copy of this workspace instead of an invented one")
    parser.add_argument("--times", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="medloop-console-") as folder:
        home = Path(folder) / "clinic"
        if args.workspace:
            shutil.copytree(args.workspace, home)
        else:
            init_workspace(home)
        settings = Settings(home=home, device="cpu", threads=1, offline=True)
        with open_store(settings) as store:
            names = [users.add_user(store, PREFIX + role, role, password=PASSWORD, actor="bench").user_id for role in users.ROLES]
            if not args.workspace:
                fill(store, args.records, names[0])
        budget = 1.0 if not args.workspace and args.records >= MANY else 0.3
        before = os.getloadavg()[0]
        rows = measure(settings, args.times)
        for role, page, median, most, cpu in sorted(rows, key=lambda row: -row[2]):
            times_ms = f"{median * 1000:7.0f} ms  (slowest {most * 1000:5.0f}, processor {cpu * 1000:5.0f})"
            sys.stdout.write(f"{times_ms}  {page[:40]:40} {role}{'  OVER' if median > budget else ''}\n")
        over = sum(median > budget for _, _, median, _, _ in rows)
        load = f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        sys.stdout.write(f"{over} of {len(rows)} pages over {budget * 1000:.0f} ms; {args.times} requests each; {load}\n")


if __name__ == "__main__":
    main()
