"""Seats in proportion, clusters on one side, and a draw that copies cannot disturb."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop.data.prepare.split import DEV, GOLD, RED, TEST, TRAIN, Population, Sizes, allocate, assign

ROUTINE, EMERGENCY = 32, 1  # bits of the strata


def population(clusters: list[int], *, red_every: int = 7, reviewed: tuple[int, ...] = (), seed: int = 1) -> Population:
    size = len(clusters)
    rng = np.random.default_rng(seed)
    return Population(
        clusters=np.array(clusters),
        stand_ins=np.arange(size),
        priorities=rng.integers(0, 2**63, size, dtype=np.uint64),
        reviewed=np.isin(np.arange(size), reviewed),
        languages=(np.array(clusters) % 3 == 0).astype(np.uint8),
        strata=np.where(np.array(clusters) % red_every == 0, EMERGENCY, ROUTINE).astype(np.uint8),
        generic=np.zeros(size, dtype=np.bool_),
    )


@given(st.integers(0, 300), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=8))
def test_seats_stay_within_caps_and_all_are_given_while_there_is_room(total: int, cells: list[tuple[int, int]]) -> None:
    weights = {str(index): float(weight) for index, (weight, _) in enumerate(cells)}
    caps = {str(index): cap for index, (_, cap) in enumerate(cells)}
    given = allocate(total, weights, caps)
    assert all(0 <= given[key] <= caps[key] for key in given)
    assert sum(given.values()) == min(total, sum(caps[key] for key in caps if weights[key] > 0))


def test_seats_follow_the_weights() -> None:
    assert allocate(100, {"a": 70.0, "b": 20.0, "c": 10.0}, dict.fromkeys("abc", 100)) == {"a": 70, "b": 20, "c": 10}
    assert allocate(10, {"a": 70.0, "b": 30.0}, {"a": 2, "b": 100}) == {"a": 2, "b": 8}


def test_clusters_stay_on_one_side_but_for_single_gold_and_red_rows() -> None:
    clusters = [row // 3 for row in range(900)]
    places = assign(population(clusters), Sizes(0.1, 0.1, 30, 30))
    for cluster in range(300):
        sides = places[cluster * 3 : cluster * 3 + 3].tolist()
        assert len(set(sides)) == 1 or sorted(sides) in ([TRAIN, TRAIN, GOLD], [TRAIN, TRAIN, RED])
    assert [int((places == split).sum()) for split in (DEV, TEST, GOLD, RED)] == pytest.approx([90, 90, 30, 21], abs=8)


def test_every_language_and_stratum_is_held_out_in_its_share() -> None:
    people = population(list(range(1_000)))
    places = assign(people, Sizes(0.1, 0.1, 60, 40))
    for split in (DEV, TEST, GOLD):
        assert people.languages[places == split].mean() == pytest.approx(1 / 3, abs=0.05)
    assert (people.strata[places == RED] == EMERGENCY).all()
    assert (people.strata[places == GOLD] == EMERGENCY).mean() > 1 / 7  # the square root speaks up for the rare


def test_reviewed_rows_come_first_in_gold() -> None:
    reviewed = tuple(range(100, 130))
    places = assign(population(list(range(1, 1_001)), red_every=2_000, reviewed=reviewed), Sizes(0.1, 0.1, 30, 0))
    assert np.flatnonzero(places == GOLD).tolist() == list(reviewed)


def test_generic_questions_are_never_held_out() -> None:
    people = population(list(range(500)))
    generic = np.arange(500) % 2 == 0
    places = assign(Population(**{**vars(people), "generic": generic}), Sizes(0.2, 0.2, 50, 20))
    assert (places[generic] == TRAIN).all()


def test_a_row_that_repeats_an_answer_to_another_question_gives_no_extra_turn() -> None:
    people = population(list(range(1_000)), red_every=2_000)
    stand_ins = np.where(np.arange(1_000) % 2 == 0, np.arange(1_000), 1)  # half of the rows share the answer of row 1
    late = people.priorities.copy()
    late[1] = 2**63  # whose own question comes last
    places = assign(Population(**{**vars(people), "stand_ins": stand_ins, "priorities": late}), Sizes(0.1, 0.1, 50, 0))
    assert places[1] == TRAIN


@pytest.mark.parametrize("seed", range(8))
def test_copies_of_gold_questions_cannot_push_them_into_train(seed: int) -> None:
    people = population(list(range(2_000)), seed=seed)
    gold = np.flatnonzero(assign(people, Sizes(0.1, 0.1, 100, 50)) == GOLD)
    rng = np.random.default_rng(seed + 100)
    copied = rng.choice(gold, 50)
    more = {name: np.concatenate((getattr(people, name), getattr(people, name)[copied])) for name in ("clusters", "languages", "strata", "generic", "reviewed")}  # fmt: skip
    more["strata"][2_000::5] = ROUTINE  # an edit may hide the risk
    more["priorities"] = np.concatenate((people.priorities, rng.integers(0, 2**63, 50, dtype=np.uint64)))
    more["stand_ins"] = np.arange(2_050)
    more["stand_ins"][copied[:25]] = np.arange(2_000, 2_025)  # here the copy was kept and the original dropped
    places = assign(Population(**more), Sizes(0.1, 0.1, 100, 50))
    held_out = {int(more["clusters"][row]) for row in np.flatnonzero(places != TRAIN)}
    assert held_out >= set(copied.tolist())
