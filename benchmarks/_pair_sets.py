"""Public sets of preference pairs, as benchmarks/reward_model.py and others read them; those that are not there are named."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trust import disc_pairs, liveqa_pairs, safetybench_pairs

from medloop.train.examples.pairs import InvalidPreference, Pair, parse_pair

Row = dict[str, Any]


def ranked_pairs(rows: list[Row]) -> Iterator[Row]:
    """Every answer against every one below it."""
    for row in rows:
        for better, worse in itertools.combinations(row["responses_best_first"], 2):
            yield {"prompt": row["prompt"], "chosen": better, "rejected": worse}


def as_they_are(rows: list[Row]) -> Iterator[Row]:
    yield from rows


TRAINED: dict[str, Callable[[list[Row]], Iterator[Row]]] = {
    "pref_en_hh_harmless": as_they_are,
    "pref_zh_oasst_ranked": ranked_pairs,
    "pref_zh_en_dpo_demo": as_they_are,
    "pref_zh_disc_medllm_gpt4_scores": disc_pairs,
}
MEASURED: dict[str, Callable[[list[Row]], Iterator[Row]]] = {
    "rank_en_liveqa_medquad_judged": liveqa_pairs,
    "safety_zh_safetybench_health": safetybench_pairs,
}


def read_sets(folder: Path, sets: dict[str, Callable[[list[Row]], Iterator[Row]]]) -> tuple[dict[str, list[Pair]], list[str]]:
    """(pairs by set, sets that are not there); lines that are no pair, as an empty turn, are left out."""
    found: dict[str, list[Pair]] = {}
    absent = []
    for name, convert in sets.items():
        path = folder / f"{name}.jsonl.gz"
        if not path.is_file():
            absent.append(name)
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        found[name] = []
        for row in convert(rows):
            try:
                found[name].append(parse_pair(row))
            except InvalidPreference:
                continue
    return found, absent
