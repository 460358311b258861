"""How long the numbers about feedback, a turn at the queue and a look at the trigger take, and how much memory.

    python benchmarks/feedback_metrics.py --records 100000 --items 20000

In a workspace of its own on SQLite, filled with made ratings (40 raters, three per answer) and items. The memory is what the
process grew by while measuring; times are processor time, so that other work on the machine disturbs little.
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
    for start in range(0, n, 3000):
        some = []
        for at in range(start, min(n, start + 3000)):
            said = {"rating": rng.randint(1, 5), "clinician_id": f"u{rng.randrange(40)}", "trace_id": f"t{at // 3}"}
            some.append(Feedback.model_validate({**base, **said, "timestamp": now + timedelta(seconds=40 * at)}))
        crud.add(store, some, actor="benchmark")


def items(n: int) -> list[QueueItem]:
    rng = random.Random(2)
    return [
        QueueItem.model_validate(
            {
                "kind": "rate",
                "content": QueueContent(prompt=(Message(role="user", content=f"question {at}"),), answers=("answer",)),
                "priority": rng.random(),
                "stratum": STRATA[at % 4],
            }
        )
        for at in range(n)
    ]


def turns(store: Store, n: int) -> list[float]:
    """Seconds of each taking and giving back, by one rater who has met more and more."""
    took = []
    for _ in range(n):
        began = time.process_time()
        held = queue.next_item(store, "rater")
        assert held is not None
        took.append(time.process_time() - began)
        queue.skip(store, held.item_id, "rater")
    return took


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--records", type=int, default=100_000)
    args.add_argument("--items", type=int, default=20_000)
    args.add_argument("--out", type=Path, help="JSON file for the results")
    given = args.parse_args()
    told: dict[str, float] = {"records": given.records, "items": given.items}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder))
        init_workspace(Path(folder))
        with open_store(settings) as store:
            fill(store, given.records)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            began = time.process_time()
            found = measure(store)
            took = time.process_time() - began
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            told |= {"ratings": found.feedback, "raters": len(found.raters), "metrics_s": took, "metrics_mb": grown}
            rows.add_items(store, items(given.items), actor="benchmark")
            some = [1e3 * one for one in turns(store, 400)]
            told |= {"next_item_ms": statistics.median(some), "next_item_worst_ms": max(some)}
            began = time.process_time()
            assert trigger_if_due(store, settings) is not None
            told["trigger_s"] = time.process_time() - began
            fill(store, 500)
            began = time.process_time()
            for _ in range(50):
                assert trigger_if_due(store, settings) is None
            told["no_trigger_of_500_new_ms"] = 1e3 * (time.process_time() - began) / 50
    text = json.dumps({name: round(value, 2) for name, value in told.items()}, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
