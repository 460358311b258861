"""How long the pages of the console take, on a workspace with many records: python benchmarks/console.py --records 100000

Fills a temporary workspace with traces and ratings, opens every page of the rail as its role, and prints the median and the
slowest of some requests, and the processor time of one: the server's part, no browser. On a busy machine the processor time
counts. The budgets: 300 ms on a small workspace, 1 s with 100,000 records.
"""

from __future__ import annotations

import argparse
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

PASSWORD = "invented for the clock"
CHUNK = 2000


def fill(store: Store, records: int) -> None:
    """Half traces, half ratings about them."""
    names = [users.add_user(store, name, name, password=PASSWORD, actor="bench").user_id for name in users.ROLES]
    for start in range(0, records // 2, CHUNK):
        rows: list[Trace | Feedback] = []
        for n in range(start, min(start + CHUNK, records // 2)):
            talk = Conversation(messages=(Message(role="user", content="Q?"), Message(role="assistant", content="A.")))
            trace = Trace(session_id=f"s{n}", agent_name="triage", model_version=f"clinic@{n % 5}", conversation=talk)
            rows += [trace, Feedback(
                session_id=trace.session_id, agent_name="triage", user_query="Q?", agent_response="A.", rating=1 + n % 5,
                trace_id=trace.trace_id, clinician_id=names[0], recorded_by=names[0], consent=("training",),
            )]  # fmt: skip
        crud.add(store, rows, actor="bench")


def measure(settings: Settings, times: int) -> list[tuple[str, str, float, float, float]]:
    app, results = create_app(settings, supervise=False), []
    with TestClient(app, base_url="http://127.0.0.1", headers={"Origin": "http://127.0.0.1"}) as client:
        for role in users.ROLES:
            client.cookies.clear()
            client.post("/web/login", data={"name": role, "password": PASSWORD})
            for name in ("", "loop", "search?q=clinic", *(name for name, roles in MENU.items() if role in roles)):
                taken, used = [], time.process_time()
                for _ in range(times):
                    start = time.perf_counter()
                    answer = client.get(f"/web/{name}")
                    taken.append(time.perf_counter() - start)
                    assert answer.status_code == 200, (role, name, answer.status_code)
                cpu = (time.process_time() - used) / times
                results.append((role, name or "home", statistics.median(taken), max(taken), cpu))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="medloop-console-") as folder:
        home = Path(folder) / "clinic"
        init_workspace(home)
        settings = Settings(home=home, device="cpu", threads=1, offline=True)
        with open_store(settings) as store:
            fill(store, args.records)
        for role, page, median, most, cpu in sorted(measure(settings, args.times), key=lambda row: -row[4]):
            times_ms = f"{median * 1000:7.0f} ms  (slowest {most * 1000:5.0f}, processor {cpu * 1000:5.0f})"
            sys.stdout.write(f"{times_ms}  {page:14} {role}\n")


if __name__ == "__main__":
    main()
