"""How long the numbers about feedback, a turn number the queue and a look number the trigger take, and how much memory.

    python benchmarks/feedback_metrics.py --records 100000 --items 20000

In a temporary workspace on SQLite, filled with simulated ratings (40 raters, three per answer) and items. Memory is the growth of
the process while measuring; times are processor time, so that other work on the machine has little effect.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from medloop.contracts import Feedback, Message
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.feedback.insight.metrics import measure
from medloop.feedback.review import queue
from medloop.feedback.trigger import trigger_if_due
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud
from medloop.store.records import review_queue as rows

STRATA = ("emergency", "medication", "child", "routine")


def fill(store: Store, n: int) -> None:
    rng, now = random.Random(1), datetime(2026, 1, 1, tzinfo=UTC)
    base = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "consent": ("training",)}
    for first in range(0, n, 3000):
        batch = []
        for number in range(first, min(n, first + 3000)):
            values = {"rating": rng.randint(1, 5), "clinician_id": f"u{rng.randrange(40)}", "trace_id": f"t{number // 3}"}
            batch.append(Feedback.model_validate({**base, **values, "timestamp": now + timedelta(seconds=40 * number)}))
        crud.add(store, batch, actor="benchmark")


def items(n: int) -> list[QueueItem]:
    rng = random.Random(2)
    return [
        QueueItem.model_validate(
            {
                "kind": "rate",
                "content": QueueContent(prompt=(Message(role="user", content=f"question {number}"),), answers=("answer",)),
                "priority": rng.random(),
                "stratum": STRATA[number % 4],
            }
        )
        for number in range(n)
    ]


def lease_times(store: Store, n: int) -> list[float]:
    """Seconds of each lease, for one rater who has seen more and more items."""
    seconds = []
    for _ in range(n):
        start = time.process_time()
        item = queue.next_item(store, "rater")
        assert item is not None
        seconds.append(time.process_time() - start)
        queue.skip(store, item.item_id, "rater")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    results: dict[str, float] = {"records": args.records, "items": args.items}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder))
        init_workspace(Path(folder))
        with open_store(settings) as store:
            fill(store, args.records)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.process_time()
            metrics = measure(store)
            seconds = time.process_time() - start
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            results |= {"ratings": metrics.feedback, "raters": len(metrics.raters), "metrics_s": seconds, "metrics_mb": grown}
            rows.add_items(store, items(args.items), actor="benchmark")
            milliseconds = [1e3 * second for second in lease_times(store, 400)]
            results |= {"next_item_ms": statistics.median(milliseconds), "next_item_worst_ms": max(milliseconds)}
            start = time.process_time()
            assert trigger_if_due(store, settings) is not None
            results["trigger_s"] = time.process_time() - start
            fill(store, 500)
            start = time.process_time()
            for _ in range(50):
                assert trigger_if_due(store, settings) is None
            results["no_trigger_of_500_new_ms"] = 1e3 * (time.process_time() - start) / 50
    text = json.dumps({name: round(value, 2) for name, value in results.items()}, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
