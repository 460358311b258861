"""Raters' skill: agreement, known answers and drift decide what a vote weighs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from medloop.feedback.insight.skill import MOST, PRIORS, UNKNOWN, UNKNOWN_WEIGHT, RaterSkill, Votes, estimate
from medloop.store.records.marks import FeedbackMark

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
CLINICIAN, ANNOTATOR = PRIORS["clinician"], PRIORS["annotator"]


def mark(row: int, rater: str, up: bool, **more: Any) -> FeedbackMark:
    return FeedbackMark("feedback", row, f"r{row}{rater}", NOON, rater, rater, thumb="up" if up else "down", **more)


def simulate(accuracies: dict[str, float], units: int = 300, good: float = 0.5, seed: int = 1) -> Votes:
    """Each unit is judged by all; `accuracies` of -1 say "up" always."""
    rng, votes = np.random.default_rng(seed), Votes()
    for unit in range(units):
        truth = rng.random() < good
        told = {name: True if p < 0 else bool(truth) == (rng.random() < p) for name, p in accuracies.items()}
        votes.add_unit([mark(unit * 10 + n, name, up) for n, (name, up) in enumerate(told.items())])
    return votes


def skills(votes: Votes, drifted: dict[str, int] | None = None, **priors: Any) -> dict[str, RaterSkill]:
    return estimate(votes, priors, drifted or {})


def test_the_accuracy_of_raters_is_found_from_their_agreement() -> None:
    true = {"li": 0.92, "wu": 0.85, "ann": 0.7, "spam": 0.5}
    found = skills(simulate(true), li=CLINICIAN, wu=CLINICIAN, ann=ANNOTATOR, spam=ANNOTATOR)
    assert all(-0.1 < found[name].accuracy - accuracy < 0.04 for name, accuracy in true.items())  # rather too low than too high
    assert found["li"].weight > found["wu"].weight > found["ann"].weight > found["spam"].weight
    assert found["li"].shared == 300


def test_whoever_likes_everything_weighs_nothing_where_most_answers_are_good() -> None:
    found = skills(simulate({"li": 0.9, "wu": 0.9, "yes": -1}, good=0.85), li=CLINICIAN, wu=CLINICIAN, yes=ANNOTATOR)
    assert found["yes"].weight < 0.25 * found["li"].weight


def test_three_who_vote_against_two_clinicians_do_not_turn_them_round() -> None:
    """The clinicians start with more evidence, and nobody is believed by turning a rater round."""
    votes = Votes()
    for unit in range(40):
        pair = [("li", unit % 2 == 0), ("wu", unit % 2 == 0)] + [(name, unit % 2 == 1) for name in ("s1", "s2", "s3")]
        votes.add_unit([mark(unit * 10 + n, name, up) for n, (name, up) in enumerate(pair)])
    found = skills(votes, li=CLINICIAN, wu=CLINICIAN, s1=UNKNOWN, s2=UNKNOWN, s3=UNKNOWN)
    assert found["li"].weight + found["wu"].weight > sum(found[name].weight for name in ("s1", "s2", "s3"))


def test_a_senior_who_settles_an_item_says_what_was_right() -> None:
    votes = Votes()
    for unit in range(30):
        judged = [mark(unit * 10, "ann", True), mark(unit * 10 + 1, "ben", False)]
        votes.add_unit([*judged, mark(unit * 10 + 2, "dr", unit % 2 == 0 or unit % 4 == 1, adjudicates=True)])
    found = skills(votes, ann=ANNOTATOR, ben=ANNOTATOR, dr=CLINICIAN)
    assert (found["ann"].known, found["ann"].right, found["ben"].right) == (30, 23, 7) and found["dr"].shared == 0


def test_items_with_a_known_answer_measure_a_rater_who_works_alone() -> None:
    votes = Votes()
    for unit in range(40):
        choice = FeedbackMark(
            "preference", unit, f"p{unit}", NOON, "ann", "ann", preferred="ab"[unit % 2], expected="aabb"[unit % 4]
        )
        votes.add_unit([choice])
    found = skills(votes, ann=ANNOTATOR)
    assert (found["ann"].known, found["ann"].right) == (40, 20) and found["ann"].weight < 0.4


def test_after_drift_only_later_judgements_count_and_trust_starts_again() -> None:
    votes = simulate({"li": 0.9, "wu": 0.9, "old": 0.9}, units=60)
    before = skills(votes, li=CLINICIAN, wu=CLINICIAN, old=CLINICIAN)["old"]
    after = skills(votes, {"old": 10**9}, li=CLINICIAN, wu=CLINICIAN, old=CLINICIAN)["old"]
    assert after.shared == 0 and after.weight == UNKNOWN_WEIGHT < before.weight


def test_without_evidence_the_role_decides_and_nobody_is_certain() -> None:
    found = skills(Votes(), li=CLINICIAN, ann=ANNOTATOR, bot=UNKNOWN)
    assert found["li"].weight > found["ann"].weight > found["bot"].weight == UNKNOWN_WEIGHT > 0
    sure = skills(simulate({"li": 1.0, "wu": 1.0, "xu": 1.0}, units=2000), li=CLINICIAN)["li"]
    assert sure.accuracy <= MOST and skills(Votes()) == {}


def test_where_nobody_agrees_with_anybody_nobody_gains_weight() -> None:
    votes = simulate({f"r{n}": 0.5 for n in range(3)}, units=2000)
    assert max(skill.weight for skill in skills(votes).values()) <= UNKNOWN_WEIGHT + 1e-9


def test_annotators_who_agree_with_each_other_do_not_vote_clinicians_down() -> None:
    """Three of five judge each unit: often two hostile annotators against one clinician."""
    rng, votes = np.random.default_rng(3), Votes()
    for unit in range(600):
        truth = bool(rng.random() < 0.5)
        told = {name: truth == (rng.random() < (0.9 if name in ("li", "wu") else 0.1)) for name in ("li", "wu", "h1", "h2", "h3")}
        some = [str(name) for name in rng.permutation(list(told))[:3]]
        votes.add_unit([mark(unit * 10 + n, name, told[name]) for n, name in enumerate(some)])
    found = skills(votes, li=CLINICIAN, wu=CLINICIAN, h1=ANNOTATOR, h2=ANNOTATOR, h3=ANNOTATOR)
    assert (
        found["li"].weight > 1 and found["wu"].weight > 1 and found["h1"].weight == found["h2"].weight == found["h3"].weight == 0
    )


def test_invented_names_that_agree_with_each_other_vouch_for_nobody() -> None:
    """Twelve names that are no raters here, all against one clinician; each of them is measured by the clinician alone."""
    votes, names = Votes(), [f"dr-invented-{n}" for n in range(12)]
    for unit in range(200):
        told = {"li": unit % 2 == 0, **dict.fromkeys(names, unit % 2 == 1)}
        votes.add_unit([mark(unit * 20 + n, name, up) for n, (name, up) in enumerate(told.items())])
    found = skills(votes, li=CLINICIAN)
    assert found["li"].weight > 0 == sum(found[name].weight for name in names)
    alone = skills(simulate(dict.fromkeys(names, 1.0)))
    assert {round(alone[name].weight - UNKNOWN_WEIGHT, 9) for name in names} == {
        0
    }  # where nobody knows better, they stay unknown
