"""Pairs from the corpus: reproducible, the better one known, length no help."""

from collections import Counter

import pytest

from medloop.contracts.dataset import PreferencePair
from medloop.embedded.corpus import part_of
from medloop.embedded.pairs import KINDS, generate_pairs


def test_same_seed_same_pairs_and_each_is_a_line_of_preferences() -> None:
    first = list(generate_pairs(60, seed=3))
    assert first == list(generate_pairs(60, seed=3)) != list(generate_pairs(60, seed=4))
    for row in first:
        assert PreferencePair.model_validate(row).chosen != row["rejected"]
        assert part_of(row["prompt"]) == "clinic", "the embedded model has not read these questions"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_length_does_not_tell_the_better_one(language: str) -> None:
    rows = list(generate_pairs(400, seed=5, language=language))
    longer = [len(row["chosen"]) > len(row["rejected"]) for row in rows]
    assert sum(longer) == 200
    by_kind = {kind: [x for x, row in zip(longer, rows, strict=True) if row["metadata"]["kind"] == kind] for kind in KINDS}
    assert all(0.25 < sum(wins) / len(wins) < 0.75 for wins in by_kind.values()), "nor within a kind"


def test_every_kind_is_there_and_an_alarm_is_never_right_without_a_red_flag() -> None:
    rows = list(generate_pairs(400, seed=6))
    assert Counter(row["metadata"]["kind"] for row in rows).keys() == KINDS.keys()
    for row in rows:
        if row["metadata"]["kind"] == "alarm" and row["metadata"]["language"] == "zh":
            assert not any(word in row["chosen"] for word in ("急诊", "120")), "the better one stays calm"


def test_noise_turns_that_share_of_pairs_round() -> None:
    clean, noisy = (list(generate_pairs(300, seed=7, noise=share)) for share in (0.0, 0.2))
    turned = [row["metadata"]["mislabelled"] for row in noisy]
    assert not any(row["metadata"]["mislabelled"] for row in clean) and 30 < sum(turned) < 90
