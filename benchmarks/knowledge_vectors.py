"""How long the search for the nearest vectors takes: files of the workspace (usearch) beside pgvector in PostgreSQL.

    python benchmarks/knowledge_vectors.py --database postgresql+psycopg://user@host/empty --out vectors.json

The database must be empty, with the extension enabled; without --database only the files are measured. Vectors are random, of
length 1, 384 numbers each, in documents of 500: nothing is near to anything in particular, harder for a graph (HNSW) than
real texts, so read the recall as a lower bound. A question is one of the rows with as much noise as keeps a cosine of about 0.7.
One question is what the index asks for it: the 100 nearest rows, and exact cosines of 200 rows. The encoder and the ranking by
words, which are the same for both, are not in these times. The first 5 questions are not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from medloop.serve.agent.database_vectors import DatabaseNearest
from medloop.serve.agent.vectors import Floats, Nearest, nearest_of
from medloop.settings import Settings
from medloop.store.db import Store, ensure_master_key, open_store, upgrade
from medloop.store.records.knowledge_vectors import VectorTable, forget, pgvector_state

WIDTH, ROWS, QUESTIONS, WARM = 384, 500, 100, 5


def unit(rows: Floats) -> Floats:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def in_database(store: Store, vectors: Floats) -> Nearest:
    table = VectorTable(store, pgvector_state(store), "sha256:" + "0" * 64, WIDTH)
    table.create()
    for start in range(0, len(vectors), ROWS):
        block = np.ascontiguousarray(vectors[start : start + ROWS], ">f4").tobytes()
        table.write(f"{start:032}", f"document {start}", block)
    table.build_index()
    store.vacuum([table.name])
    parts = table.parts()
    return DatabaseNearest(table, [parts[name] for name in sorted(parts)])


def measure(build: Callable[[], Nearest], vectors: Floats, questions: Floats) -> dict[str, Any]:
    began = time.perf_counter()
    nearest = build()
    built = time.perf_counter() - began
    others = np.random.default_rng(3).integers(0, len(vectors), (len(questions), 100))
    times, found, best = [], 0, 0
    for question, random_rows in zip(questions, others, strict=True):
        began = time.perf_counter()
        near = nearest(question, 100)
        nearest.cosines(np.unique(np.concatenate([near, random_rows])), question)
        times.append((time.perf_counter() - began) * 1000)
        exact = np.argsort(-(vectors @ question), kind="stable")[:100]
        found, best = found + len(set(exact) & set(near)), best + (near[0] == exact[0])
    times = sorted(times[WARM:])
    return {
        "backend": nearest.backend, "build_s": round(built, 1), "p50_ms": round(statistics.median(times), 2),
        "p95_ms": round(times[int(0.95 * len(times))], 2), "recall_100": round(found / (100 * len(questions)), 4),
        "first_right": int(best),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Search for the nearest vectors: files beside pgvector.")
    parser.add_argument("--database", default="", help="URL of an empty PostgreSQL database with the extension vector")
    parser.add_argument("--sizes", default="1000,10000,100000", help="rows, separated by commas")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    results = []
    for size in (int(size) for size in args.sizes.split(",")):
        generator = np.random.default_rng(size)
        vectors = unit(generator.normal(size=(size, WIDTH)))
        questions = unit(vectors[: QUESTIONS + WARM] + unit(generator.normal(size=(min(size, QUESTIONS + WARM), WIDTH))))
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            results.append({"rows": size, **measure(lambda: nearest_of(home, "bench", vectors), vectors, questions)})  # noqa: B023
            print(json.dumps(results[-1]))
            if args.database:
                settings = Settings.model_validate({"home": home, "database": {"url": args.database}})
                ensure_master_key(settings)
                upgrade(settings)
                with open_store(settings) as store:
                    forget(store)
                    results.append({"rows": size, **measure(lambda: in_database(store, vectors), vectors, questions)})  # noqa: B023
                    forget(store)
                print(json.dumps(results[-1]))
    if args.out:
        args.out.write_text(
            json.dumps({"width": WIDTH, "questions": QUESTIONS, "results": results}, indent=2) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
