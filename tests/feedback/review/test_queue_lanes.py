"""The three lanes of a batch: shares, no near copies, what the learning lane looks for, the same batch for the same input."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from medloop.contracts import Message
from medloop.contracts.queue import QueueItem
from medloop.feedback.review.active_learning import directions, select_labels
from medloop.feedback.review.lanes import QueueCandidate, Signals, choose_batch
from medloop.feedback.review.novelty import NEAR_DUPLICATE, NearDuplicates, SeenQuestions, jaccard, shingles
from medloop.feedback.review.propose import lane_of
from medloop.feedback.review.queue import QueueConfig

WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "tu", "re", "so") for b in ("bel", "dor", "fin", "gat", "hus", "jem", "kor")]
ALL_LEARN = QueueConfig(explore=0, learn=1)


def strata(text: str) -> tuple[Any, ...]:
    return ("emergency",) if "chest" in text else ("routine",)


SIGNALS = Signals(strata)
TORN = Signals(strata, values=lambda samples: [0.5 for _ in samples])  # a reward model that doubts everything


def phrase(rng: random.Random, n: int = 12) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n))


def pair(rng: random.Random, question: str = "") -> QueueCandidate:
    return QueueCandidate((Message(role="user", content=question or phrase(rng)),), (phrase(rng), phrase(rng)), kind="compare")


def single(rng: random.Random, **reasons: float) -> QueueCandidate:
    return QueueCandidate((Message(role="user", content=phrase(rng)),), (phrase(rng),), reasons=reasons)


def whole(item: QueueItem) -> str:
    return "\n".join((item.content.prompt[0].content, *item.content.answers))


def in_order(items: list[QueueItem]) -> list[str]:
    return [lane_of(item) for item in sorted(items, key=lambda item: -item.priority)]


def test_each_lane_gets_its_share_all_the_way_down_the_queue() -> None:
    rng = random.Random(1)
    # Whole numbers: of equal priorities the earlier one in the list is handed out first.
    pool = [single(rng, disagreement=rng.randrange(2)) for _ in range(300)] + [pair(rng) for _ in range(300)]
    lanes = in_order(choose_batch(pool, TORN, {"emergency": 40, "routine": 60}, QueueConfig(), SeenQuestions()))
    assert Counter(lanes) == {"safety": 65, "learning": 25, "chance": 10}
    for n in (20, 50, 80):
        here = Counter(lanes[:n])
        assert abs(here["learning"] - 0.25 * n) <= 2 and abs(here["chance"] - 0.1 * n) <= 2


def test_pairs_that_nothing_speaks_against_are_for_learning_and_fill_what_safety_cannot() -> None:
    rng = random.Random(2)
    quiet = [pair(rng) for _ in range(200)]
    lanes = Counter(lane_of(item) for item in choose_batch(quiet, SIGNALS, {"routine": 50}, QueueConfig(), SeenQuestions()))
    assert lanes == {"learning": 45, "chance": 5}


def test_without_a_reward_model_comparisons_are_drawn_for_one() -> None:
    rng = random.Random(8)
    pool = [single(rng, disagreement=0.5) for _ in range(200)] + [pair(rng) for _ in range(200)]
    chosen = choose_batch(pool, SIGNALS, {"routine": 100}, QueueConfig(), SeenQuestions())
    kinds = Counter((lane_of(item), item.kind) for item in chosen)
    assert kinds["learning", "compare"] == 25 and kinds["safety", "rate"] == 65
    assert {item.reasons["teaches"] for item in chosen if lane_of(item) == "learning"} == {1.0}  # by lot: none is worth more


def test_without_a_reward_model_and_pairs_safety_has_the_places_of_learning() -> None:
    rng = random.Random(9)
    pool = [single(rng, disagreement=0.5) for _ in range(200)]
    lanes = Counter(lane_of(item) for item in choose_batch(pool, SIGNALS, {"routine": 50}, QueueConfig(), SeenQuestions()))
    assert lanes == {"safety": 45, "chance": 5}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30))
def test_a_batch_has_no_near_copies_while_there_is_anything_else(seed: int, copies: int) -> None:
    rng = random.Random(seed)
    model = [single(rng, thumbs_down=1.0), pair(rng)]
    near = [
        QueueCandidate(
            candidate.prompt,
            tuple(f"{answer} {rng.choice(WORDS)}" for answer in candidate.answers),
            candidate.kind,
            reasons=candidate.reasons,
        )
        for candidate in model
        for _ in range(copies)
    ]
    pool = [*near, *(single(rng) for _ in range(60)), *(pair(rng) for _ in range(60))]
    chosen = choose_batch(pool, TORN, {"routine": 40}, QueueConfig(), SeenQuestions())
    assert len(chosen) == 40
    for number, first in enumerate(chosen):
        for second in chosen[:number]:
            assert first.kind != second.kind or jaccard(shingles(whole(first)), shingles(whole(second))) < NEAR_DUPLICATE


def test_near_copies_fill_a_queue_that_would_be_empty_otherwise() -> None:
    copies = [
        QueueCandidate((Message(role="user", content=f"how long does a cold last {n}"),), ("about ten days",)) for n in range(8)
    ]
    assert len(choose_batch(copies, SIGNALS, {"routine": 5}, QueueConfig(), SeenQuestions())) == 5


def test_the_same_input_gives_the_same_batch() -> None:
    def batch() -> list[tuple[str, float]]:
        rng = random.Random(3)
        pool = [single(rng, disagreement=rng.random()) for _ in range(100)] + [pair(rng) for _ in range(100)]
        signals = Signals(strata, values=lambda samples: [len(sample.answer or "") % 10 / 10 for sample in samples])
        return [
            (item.item_id, item.priority) for item in choose_batch(pool, signals, {"routine": 60}, QueueConfig(), SeenQuestions())
        ]

    assert batch() == batch()


def test_the_learning_lane_asks_what_the_reward_model_doubts() -> None:
    rng = random.Random(4)
    pool = [single(rng) for _ in range(100)]
    torn = {candidate.answers[0] for candidate in pool[:20]}
    signals = Signals(strata, values=lambda samples: [0.5 if sample.answer in torn else 0.99 for sample in samples])
    chosen = choose_batch(pool, signals, {"routine": 8}, ALL_LEARN, SeenQuestions())
    assert len(chosen) == 8 and all(item.reasons["uncertainty"] == 1.0 for item in chosen)


def test_answers_that_differ_in_nothing_are_no_lesson() -> None:
    rng = random.Random(5)
    answer = phrase(rng, 40)
    equal = [
        QueueCandidate((Message(role="user", content=phrase(rng)),), (answer, f"{answer} kadok"), kind="compare")
        for _ in range(20)
    ]
    chosen = choose_batch([*equal, *(pair(rng) for _ in range(20))], TORN, {"routine": 10}, ALL_LEARN, SeenQuestions())
    assert not {item.item_id for item in chosen if item.content.answers[1].endswith("kadok")}


def test_what_was_taught_before_is_worth_less_than_what_was_not() -> None:
    texts = [["rest and drink water"], ["take ibuprofen twice daily"]]
    vectors = directions([*texts, *[texts[0]] * 5])
    first = next(iter(select_labels(vectors[:2], [None, None], labelled=vectors[2:], count=1)))
    assert first == (1, 1.0)
    assert (
        next(iter(select_labels(vectors[:2], [None, None], labelled=vectors[:0], count=1)))[0] == 0
    )  # else the earlier of two equals


def test_only_the_most_doubtful_share_is_looked_at() -> None:
    rng = random.Random(10)
    vectors = directions([[phrase(rng)] for _ in range(50)])
    uncertainty = [1.0 if index >= 40 else 0.95 for index in range(50)]
    picks = [index for index, _ in select_labels(vectors, uncertainty, labelled=vectors[:0], count=5, uncertain_share=0.2)]
    assert min(picks[:5]) >= 40


def test_an_outlier_is_worth_less_than_what_many_share() -> None:
    rng = random.Random(6)
    common = [[f"call emergency care now {phrase(rng, 3)}"] for _ in range(30)]
    vectors = directions([["zzz qqq xxx vvv www"], *common])
    order = [index for index, _ in select_labels(vectors, [None] * 31, labelled=vectors[:0], count=31)]
    assert order.index(0) > 0


def test_the_greedy_design_follows_the_formula_by_brute_force() -> None:
    """Each step lowers the mean variance over all candidates by most, with every inverse taken anew."""
    rng = random.Random(7)
    vectors = directions([[phrase(rng, 4)] for _ in range(12)])
    uncertainty = [rng.random() for _ in range(12)]
    variance = [(2 - value) * value / 4 for value in uncertainty]
    picks = [index for index, _ in select_labels(vectors, uncertainty, labelled=vectors[:0], count=6, uncertain_share=1.0)][:6]
    precision = np.eye(vectors.shape[1]) / 16

    def mean_variance(matrix: Any) -> float:
        return float(np.einsum("ij,ij->i", vectors @ np.linalg.inv(matrix), vectors).mean())

    for step, index in enumerate(picks):
        after = {
            n: mean_variance(precision + variance[n] * np.outer(vectors[n], vectors[n]))
            for n in range(12)
            if n not in picks[:step]
        }
        assert after[index] == pytest.approx(min(after.values()))
        precision += variance[index] * np.outer(vectors[index], vectors[index])


def test_near_finds_copies_and_nothing_else() -> None:
    near = NearDuplicates()
    near.add(shingles("my child has had a fever of 39 since yesterday and will not drink"))
    assert near.has(shingles("my child has had a fever of 39 since yesterday and will not eat"))
    assert not near.has(shingles("my child has a rash")) and not near.has(shingles(""))


def test_shares_beyond_the_whole_are_refused() -> None:
    with pytest.raises(ValidationError, match="together at most 1"):
        QueueConfig(learn=0.7, explore=0.4)
