"""How long lineage takes, both ways: from one record to every model and release, and from a release down to its records.

    python benchmarks/lineage.py --records 100000
    python benchmarks/lineage.py --records 100000 --database postgresql+psycopg://user@host/empty

In a temporary workspace on SQLite, or on the empty database of a URL. Datasets are built from the whole store again and again, so
the last one holds all records, and the lineage has a row for each record and dataset and file. Each dataset teaches an SFT model,
a reward model and an RL model, which is released. Times are wall-clock milliseconds of a call, from opening the catalog to
the finished graph, median and worst of `--repeat`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from medloop.contracts import Feedback, sha256_id
from medloop.settings import Settings
from medloop.store import catalog
from medloop.store.db import Store, ensure_master_key, open_store, upgrade
from medloop.store.lineage_graph import lineage_graph, taught_records
from medloop.store.records import crud, lineage
from medloop.testing.lineage import make_model


def fill_records(store: Store, n: int) -> list[str]:
    start, ids = datetime(2026, 1, 1, tzinfo=UTC), []
    base = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "consent": ("training",), "rating": 4}
    for first in range(0, n, 5000):
        times = (start + timedelta(seconds=number) for number in range(first, min(n, first + 5000)))
        batch = [Feedback.model_validate({**base, "timestamp": when, "recorded_by": "usr_1"}) for when in times]
        crud.add(store, batch, actor="benchmark")
        ids += [record.feedback_id for record in batch]
    return ids


def fill_lineage(store: Store, ids: list[str], builds: int) -> str:
    """The path of the release; every build holds all records so far, half of them as answers and half as pairs."""
    release = ""
    for build in range(1, builds + 1):
        share = ids[: len(ids) * build // builds]
        files = {name: sha256_id(f"{name} {build}") for name in ("sft_train.jsonl", "preferences.jsonl")}
        dataset, halves = sha256_id(f"dataset {build}"), dict(zip(files.values(), (share[::2], share[1::2]), strict=True))
        with store.write() as conn:
            for sha256, members in (*halves.items(), (dataset, share)):
                lineage.add_records(conn, sha256, members)
        card = {"name": f"w{build}", "files": {name: {"path": name, "sha256": sha256} for name, sha256 in files.items()}}
        home = store.settings.home
        catalog.register_file(store, "feedback", home / f"data/feedback/w{build}", dataset, card, actor="benchmark")
        sft = make_model(store, f"models/lora/sft{build}", inputs={"train": files["sft_train.jsonl"]})
        judge = make_model(
            store, f"models/reward/rm{build}", inputs={"pairs": files["preferences.jsonl"]}, method="reward", kind="reward model"
        )
        objective = {"version": "1", "parts": {"model": {"weight": 1, "version": f"model-{str(judge.fingerprint)[7:23]}"}}}
        rl = make_model(
            store, f"models/rl/round{build}", inputs={"adapter": str(sft.fingerprint)}, parent=sft.fingerprint, method="ppo",
            config={"objective": objective, "settings": "x" * 4000},
        )  # fmt: skip
        report = sha256_id(f"report {build}")
        named = {"name": f"r{build}", "inputs": {f"adapter of round{build}": rl.fingerprint}}
        catalog.register_file(store, "evaluation", home / f"reports/r{build}.json", report, named, actor="benchmark")
        release = f"models/rl/v{build}.0-rl"
        named = {"name": f"v{build}.0-rl", "inputs": {"adapter": rl.sha256, "evaluation": report}}
        catalog.register_file(store, "release", home / release, sha256_id(release), named, actor="benchmark")
    return release


def measure(call: Callable[[], object], repeat: int) -> dict[str, float]:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": round(statistics.median(times), 1), "worst_ms": round(max(times), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--builds", type=int, default=8, help="Datasets, each with three models and a release.")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--database", default="", help="URL of an empty database; SQLite without it.")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate({"home": Path(folder), "database": {"url": args.database}})
        ensure_master_key(settings)
        upgrade(settings)
        with open_store(settings) as store:
            ids = fill_records(store, args.records)
            release = fill_lineage(store, ids, args.builds)
            rng = random.Random(1)
            graph, below = lineage_graph(store, ids[0]), lineage_graph(store, release)
            assert below.records == args.records and any(node.label == release for node in graph.nodes)
            middle = sorted(ids)[len(ids) // 2]
            results = {
                "records": args.records, "builds": args.builds, "database": store.engine.dialect.name,
                "nodes_of_a_record": len(graph.nodes), "nodes_of_the_release": len(below.nodes),
                "record_to_releases": measure(lambda: lineage_graph(store, rng.choice(ids)), args.repeat),
                "release_to_records": measure(lambda: lineage_graph(store, release), args.repeat),
                "first_page_of_ids": measure(lambda: taught_records(store, release), args.repeat),
                "page_in_the_middle": measure(lambda: taught_records(store, release, after=middle), args.repeat),
                "own_page_of_a_clinician": measure(lambda: taught_records(store, release, sender="usr_1"), args.repeat),
            }  # fmt: skip
    text = json.dumps(results, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
