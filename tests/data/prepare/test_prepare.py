"""`medloop data prepare`, through the command."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from data_desk import Desk, near_copy, questions

from medloop.contracts import DatasetCard, Record
from medloop.data.prepare import prepare as stage
from medloop.store.files.artifacts import verify_artifact

FILES = ("train.jsonl", "dev.jsonl", "test.jsonl", "gold_set.jsonl", "red_team.jsonl")
WRITTEN = (*FILES, "card.json", "DATA_CARD.md", "dropped.jsonl")


def question_of(record: dict) -> str:
    return record["conversation"]["messages"][0]["content"]


def test_every_row_is_in_one_file_or_has_a_reason(desk: Desk) -> None:
    rows = questions(300)
    desk.import_rows(
        "a",
        [
            *rows,
            {"question": "嗯", "answer": "好"},
            rows[0],
            {"question": rows[1]["question"] + "!", "answer": rows[1]["answer"]},
        ],
    )
    assert desk.run("prepare", "--gold", "20", "--red", "20").code == 0
    records = [Record.model_validate(record) for file in FILES for record in desk.records(file)]
    drops = desk.records("dropped.jsonl")
    assert sorted([record.origin.line for record in records] + [drop["line"] for drop in drops]) == list(range(1, 304))
    assert {(drop["line"], drop["reason"]) for drop in drops} >= {
        (301, "too_short"),
        (302, "exact_duplicate"),
        (303, "exact_duplicate"),
    }
    assert len(desk.records("gold_set.jsonl")) == 20 and len(desk.records("red_team.jsonl")) > 5
    assert not {"question", "answer", "conversation"} & {key for drop in drops for key in drop}


def test_the_card_counts_what_the_files_hold(desk: Desk) -> None:
    desk.import_rows("a", questions(200), "--licence", "CC0")
    desk.run("prepare")
    card = DatasetCard.from_json((desk.processed / "card.json").read_text(encoding="utf-8"))
    for split, entry in card.files.items():
        records = desk.records(entry.path)
        assert entry.rows == len(records) == sum(card.strata[split].values()) == sum(card.languages[split].values())
        assert card.languages[split] == Counter(record["language"] for record in records)
    assert card.rows_in == 200 == sum(e.rows for e in card.files.values()) + sum(sum(c.values()) for c in card.drops.values())
    text = desk.run("card").out
    for needed in (card.content_id(), "CC0", card.sources[0].sha256[7:19], "**0 left**", "not looked for", f"--seed {card.seed}"):
        assert needed in text
    verify_artifact(desk.processed)


def test_the_same_sources_and_seed_give_the_same_bytes_whatever_the_order_of_import(desks: Callable[[str], Desk]) -> None:
    rows = questions(240)
    parts = {"one": rows[:100], "two": rows[100:150], "three": rows[150:]}
    outputs = []
    for name, order in (("left", list(parts)), ("right", list(reversed(parts)))):
        desk = desks(name)
        for part in order:
            desk.import_rows(part, parts[part])
        desk.run("prepare", "--seed", "7", "--gold", "15")
        outputs.append({file: (desk.processed / file).read_bytes() for file in WRITTEN})
    assert outputs[0] == outputs[1]
    desk.run("prepare", "--seed", "8", "--gold", "15")
    assert (desk.processed / "gold_set.jsonl").read_bytes() != outputs[0]["gold_set.jsonl"]


@pytest.mark.parametrize("seed", [1, 2])
def test_planted_near_copies_of_gold_questions_never_reach_train(desk: Desk, seed: int) -> None:
    rng = random.Random(seed)
    rows = questions(900, seed=seed)
    desk.import_rows("own", rows)
    desk.run("prepare", "--gold", "80", "--red", "60")
    gold = desk.records("gold_set.jsonl") + desk.records("red_team.jsonl")
    copies = [(near_copy(rng, question_of(record)), rng.choice(rows)["answer"]) for record in rng.sample(gold, 50)]
    desk.import_rows("planted", [{"question": question, "answer": answer} for question, answer in copies])
    desk.run("prepare", "--gold", "80", "--red", "60")
    assert [record["origin"]["line"] for record in desk.records("train.jsonl") if record["origin"]["source"] == "planted"] == []
    dropped = [drop for drop in desk.records("dropped.jsonl") if drop["source"] == "planted" and drop["reason"] == "contaminated"]
    held_out = {record["record_id"] for file in FILES[1:] for record in desk.records(file)}
    assert dropped and all(drop["matched"] in held_out for drop in dropped)


@pytest.mark.parametrize("index_works", [True, False])
def test_a_held_out_question_hidden_in_a_later_turn_is_found(
    desk: Desk, index_works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.import_rows("own", questions(300))
    desk.run("prepare", "--gold", "30")
    target = question_of(desk.records("gold_set.jsonl")[0])
    opening = {"role": "user", "content": "我想了解一下体检套餐的价格和流程安排"}
    hidden = [
        opening,
        {"role": "assistant", "content": "好的"},
        {"role": "user", "content": target},
        {"role": "assistant", "content": "好"},
    ]
    desk.import_rows("talk", [{"messages": hidden}])
    if not index_works:
        monkeypatch.setattr(stage, "find_copies", lambda *_: {})  # the check must not rely on it
    assert desk.run("prepare", "--gold", "30", "--dev", "0", "--test", "0").code == 0
    assert [drop["reason"] for drop in desk.records("dropped.jsonl") if drop["source"] == "talk"] == ["contaminated"]
    decontamination = stage.read_card(desk).decontamination
    assert (decontamination["checks"], decontamination["removed_by_checks"]) == ((1, 0) if index_works else (2, 1))


def test_a_leak_that_removal_does_not_mend_stops_the_run_and_the_old_data_stay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = questions(300)
    desk.import_rows("own", rows)
    desk.run("prepare", "--gold", "30")
    before = {file: (desk.processed / file).read_bytes() for file in WRITTEN}
    monkeypatch.setattr(stage, "find_copies", lambda *_: {})  # both removals are broken: the check must not rely on them
    monkeypatch.setattr(stage, "_without_copies", lambda folder, built, check: built)
    monkeypatch.setattr(stage, "MAX_CHECKS", 2)
    gold = {question_of(record) for record in desk.records("gold_set.jsonl")}
    desk.import_rows(
        "planted",
        [{"question": f"Hello, {q} Thanks!" if q.isascii() else f"你好，{q}谢谢", "answer": rows[0]["answer"] * 2} for q in gold],
    )
    ran = desk.run("prepare", "--gold", "30")
    assert ran.code == 10
    assert "near-copies of held-out records were still in the train set after 2 checks" in ran.error
    assert {file: (desk.processed / file).read_bytes() for file in WRITTEN} == before
    assert [path.name for path in desk.processed.parent.iterdir() if path.name.startswith(".processed")] == []


def test_reviewed_rows_are_kept_before_their_copies_and_come_first_in_gold(desk: Desk) -> None:
    rows = questions(200)
    desk.import_rows("a", rows)
    changed = [row | {"answer": row["answer"] + (" Get well" if row["answer"].isascii() else "保重")} for row in rows[120:140]]
    desk.import_rows("b", [row | {"reviewed": True} for row in (*rows[100:120], *changed)])
    desk.run("prepare", "--gold", "20", "--red", "0")
    drops = Counter((drop["source"], drop["reason"]) for drop in desk.records("dropped.jsonl"))
    assert (drops["a", "exact_duplicate"], drops["a", "near_duplicate"], drops["b", "near_duplicate"]) == (20, 20, 0)
    cells = {(r["language"], r["strata"][0]) for r in desk.records("gold_set.jsonl") if not r["reviewed"]}
    passed_over = [
        r for file in FILES[:3] for r in desk.records(file) if r["reviewed"] and (r["language"], r["strata"][0]) in cells
    ]
    assert any(record["reviewed"] for record in desk.records("gold_set.jsonl"))
    assert passed_over == []


@pytest.mark.parametrize("count", [10, 17, 40])
def test_small_inputs_scale_down_and_train_keeps_most(desk: Desk, count: int) -> None:
    desk.import_rows("a", questions(count))
    assert desk.run("prepare").code == 0
    sizes = {file: len(desk.records(file)) for file in FILES}
    assert sizes["gold_set.jsonl"] <= count // 10 and sizes["red_team.jsonl"] <= count // 10
    assert sizes["train.jsonl"] >= count * 0.55


def test_too_few_rows_are_refused_with_the_reasons(desk: Desk) -> None:
    desk.import_rows("a", [*questions(9), {"question": "嗯", "answer": "好"}])
    assert desk.run("prepare").error == "Only 9 of 10 rows can be used, at least 10 are needed. Dropped: 1 too_short."
    desk.import_rows("a", questions(9) * 3, "--replace")
    assert "Only 9 rows are left without duplicates" in desk.run("prepare").error
    assert "There is no data to prepare" not in desk.run("prepare").error


def test_no_source_and_an_unknown_one_say_what_to_do(desk: Desk) -> None:
    assert "medloop data import FILE --name NAME" in desk.run("prepare").error
    desk.import_rows("a", questions(20))
    assert "Imported sources: a" in desk.run("prepare", "--source", "b").error


def test_settings_come_from_file_then_set_then_flags_and_all_problems_at_once(desk: Desk, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("gold: 3\nred: 3\ntext_threshold: 0.9\n", encoding="utf-8")
    desk.import_rows("a", questions(100))
    desk.run("prepare", "--config", config, "--set", "red=2", "--set", "gold=4", "--gold", "5")
    card = json.loads((desk.processed / "card.json").read_text(encoding="utf-8"))
    assert (card["config"]["gold"], card["config"]["red"], card["config"]["text_threshold"]) == (5, 2, 0.9)
    error = desk.run("prepare", "--set", "gold=many", "--set", "colour=red", "--dev", "0.4").error
    assert "gold is 'many'" in error and "'colour'" in error
    assert "at most 0.5 is possible" in desk.run("prepare", "--dev", "0.4", "--test", "0.4").error
