"""`data prepare` never gives up on real-looking mixes: it removes what its own check finds, until a check finds nothing."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_desk import Desk, questions

from medloop.contracts import Conversation
from medloop.data.prepare.collect import whole_text
from medloop.data.prepare.prepare import read_card
from medloop.data.text import dedupe
from medloop.data.text.shingles import jaccard, text_shingles

HELD_OUT = ("dev.jsonl", "test.jsonl", "gold_set.jsonl", "red_team.jsonl")
LEAFLET_WORDS = [
    f"{start}{end}" for start in ("ba", "de", "fi", "go", "lu", "mo", "ne", "pa") for end in ("ral", "tin", "vos", "mek")
]


def leaflets(rng: random.Random, topics: int, versions: int) -> list[dict[str, Any]]:
    """Questions of their own whose long answers are versions of one text, as in scraped leaflets: Jaccard around 0.8."""
    rows = []
    subjects = iter(questions(topics * versions, seed=rng.randrange(1_000_000)))
    for _ in range(topics):
        text = [rng.choice(LEAFLET_WORDS) for _ in range(400)]
        for _ in range(versions):
            answer = list(text)
            for place in rng.sample(range(400), rng.randint(0, 5)):
                answer[place] = rng.choice(LEAFLET_WORDS)
            rows.append({"question": next(subjects)["question"], "answer": " ".join(answer)})
    return rows


def leaks(desk: Desk, threshold: float = 0.8) -> int:
    """Every train text against every held-out text, without MinHash."""
    texts = {
        file: [text_shingles(whole_text(Conversation.model_validate(record["conversation"]))) for record in desk.records(file)]
        for file in ("train.jsonl", *HELD_OUT)
    }
    return sum(jaccard(mine, theirs) >= threshold for mine in texts["train.jsonl"] for file in HELD_OUT for theirs in texts[file])


@pytest.mark.parametrize("seed", range(4))
def test_data_prepare_never_gives_up(desk: Desk, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The search for duplicates misses most of them here, so the checks have work to do; nothing is lost and all is counted."""
    monkeypatch.setattr(dedupe, "MISS", 0.9)
    desk.import_rows("leaflets", leaflets(random.Random(seed), topics=25, versions=6))
    desk.import_rows("own", questions(150, seed=seed))
    ran = desk.run("prepare", "--seed", str(seed))
    assert ran.code == 0, ran.error
    card, dropped = read_card(desk), desk.records("dropped.jsonl")
    files = {file: desk.records(file) for file in ("train.jsonl", *HELD_OUT)}
    assert card.decontamination["left"] == 0 and card.decontamination["checks"] > 1
    assert 0 < card.decontamination["removed_by_checks"] <= sum(drop["reason"] == "contaminated" for drop in dropped)
    assert sum(map(len, files.values())) + len(dropped) == card.rows_in == 300
    assert {split: sum(card.strata[split].values()) for split in card.strata} == {k: v.rows for k, v in card.files.items()}
    held_out = {record["record_id"] for file in HELD_OUT for record in files[file]}
    assert all(drop["matched"] in held_out for drop in dropped if drop["reason"] == "contaminated")
    assert Counter(drop["source"] for drop in dropped) == {
        name: sum(counts.values()) for name, counts in card.drops.items() if counts
    }
    readable = (desk.processed / "DATA_CARD.md").read_text(encoding="utf-8")
    assert f"after {card.decontamination['checks']} checks" in readable and "had gone out as well" in readable


@pytest.mark.parametrize("seed", range(3))
def test_no_text_of_train_repeats_a_held_out_one(desk: Desk, seed: int) -> None:
    desk.import_rows("leaflets", leaflets(random.Random(100 + seed), topics=12, versions=5))
    desk.import_rows("own", questions(60, seed=seed))
    assert desk.run("prepare", "--seed", str(seed)).code == 0
    assert leaks(desk) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(42, 52))
def test_real_mixes_prepare_with_every_seed(desks: Callable[[str], Desk], seed: int) -> None:
    """MEDLOOP_REAL_DATA: files of your own, separated by the path separator; they stay where they are."""
    names = os.environ.get("MEDLOOP_REAL_DATA", "")
    if not names:
        pytest.skip("set MEDLOOP_REAL_DATA to files that `medloop data import` reads")
    desk = desks("real")
    for number, name in enumerate(names.split(os.pathsep)):
        assert desk.run("import", Path(name), "--name", f"source{number}", "--on-error", "skip").code == 0
    ran = desk.run("prepare", "--seed", str(seed))
    assert ran.code == 0, ran.error
    assert read_card(desk).decontamination["left"] == 0
