"""A clinic with few rows learns when it prepares its data that the gate cannot pass a model, and what helps."""

import random
from pathlib import Path

from data_desk import new_desk

from medloop.contracts.gate_config import GateConfig
from medloop.data.prepare.enough import too_small
from medloop.data.prepare.prepare import PrepareConfig, read_card
from medloop.embedded.corpus import Quality, answer_for, draw_case, question_for


def rows(count: int) -> list[dict[str, str]]:
    rng = random.Random(3)
    cases = [draw_case(rng, "en") for _ in range(count)]
    return [
        {"question": f"{question_for(rng, case)} ({rng.randrange(10**9)})", "answer": answer_for(rng, case, Quality("full", "first", False))}
        for case in cases
    ]  # fmt: skip


def test_few_rows_are_too_few_for_the_gate_and_prepare_says_so(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    desk.import_rows("mine", rows(200))
    done = desk.run("prepare")
    assert done.code == 0
    sizes = {split: entry.rows for split, entry in read_card(desk).files.items()}
    assert f"Too few rows for the gate: gold has {sizes['gold']} and red has {sizes['red']}." in done.out
    assert "It needs at least 30 scored cases of each" in done.out
    left_train = sum(counts.get("contaminated", 0) for counts in read_card(desk).drops.values())
    assert f"about 300 rows after duplicates are dropped; there are {sum(sizes.values()) + left_train}." in done.out
    card, policy = read_card(desk), GateConfig(min_cases=10)
    assert not list(too_small(card, PrepareConfig(), policy.model_copy(update={"required_suites": ("triage",)})))


def test_a_small_set_by_choice_names_the_option(tmp_path: Path) -> None:
    desk = new_desk(tmp_path / "clinic")
    desk.import_rows("mine", rows(450))
    done = desk.run("prepare", "--gold", "5", "--red", "5")
    assert "gold has 5 and red has 5." in done.out
    assert "Ask for more of them: medloop data prepare --gold 30 --red 30\n" in done.out and "Import more" not in done.out
    enough = desk.run("prepare", "--gold", "30", "--red", "30")
    assert "Too few rows" not in enough.out


def test_rows_that_left_train_as_copies_of_held_out_ones_count_where_the_sets_are_drawn(tmp_path: Path) -> None:
    """Seen: 292 rows, of which 162 left train; "there are 130", where asking for more would have helped."""
    desk = new_desk(tmp_path / "clinic")
    desk.import_rows("mine", rows(200))
    desk.run("prepare", "--gold", "5", "--red", "5")
    card = read_card(desk)
    left = sum(entry.rows for entry in card.files.values())
    many = card.model_copy(update={"drops": {"mine": {"contaminated": 300 - left, "near_duplicate": 50}}})
    assert [sentence[:16] for sentence in too_small(many, PrepareConfig(gold=5, red=5), GateConfig())] == [
        "Too few rows for",
        "Ask for more of ",
    ]
