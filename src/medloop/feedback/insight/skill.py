"""How far a rater's judgement is trusted: the weight of their vote when a dataset is built.

    votes = Votes()
    votes.add_unit(marks)                          # the judgements of one answer or pair, one per rater
    skills = estimate(votes, priors, drifted)      # by rater: accuracy, weight, evidence
    measure_skill(store)                           # both of these over the whole store

Dawid and Skene (1979) with two rates a rater (how often they see a good answer, how often a bad one), fitted by EM. Three things
keep it honest. A rater is compared with the others only, never with a majority that they are part of. Where the truth is known (a
senior settled the item, or it was put into the queue to check raters), it is the truth that counts. And a rater starts with what
their role is worth, a clinician as if 20 earlier judgements were known and 16 of them right, and is measured only by others of at
least that standing: annotators who agree with each other do not vote clinicians down. Names that are no raters of this
workspace are measured by those who are, never by one another: ten invented names that agree vouch for nobody. Agreement that
chance explains is worth nothing, so whoever likes everything ends at 0.5. The accuracy is one standard error below the
estimate: doubt lowers a weight.

Evidence ages: a judgement counts half after the rater's next 200. After an alarm of drift only later judgements count, and the
rater starts again as somebody unknown. The weight is the log odds of the accuracy, the share that is optimal for independent
votes; below an accuracy of 0.55 it is 0, and the vote does not count.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.polarity import label, polarity
from medloop.feedback.insight.profiles import RaterTracker
from medloop.store.db import Store
from medloop.store.records import marks
from medloop.store.records.marks import FeedbackMark
from medloop.store.records.users import list_users

Floats = NDArray[np.float64]
Prior = tuple[float, float]  # judgements that were right and wrong, as if they had been seen
PRIORS: dict[str, Prior] = {"clinician": (16.0, 4.0), "annotator": (7.0, 3.0)}  # by role
UNKNOWN: Prior = (3.0, 2.0)  # programs that name nobody, and raters who are not users
UNKNOWN_STANDING = UNKNOWN[0] / sum(UNKNOWN)
MOST, LEAST = 0.95, 0.05
BETTER_THAN_CHANCE = 0.55  # one half is chance; what the role is worth fades only slowly
HALF_LIFE = 200.0  # judgements of the same rater
ROUNDS = 30


@dataclass(frozen=True)
class RaterSkill:
    """`accuracy` is the mean of both rates. `shared` judgements could be compared, with others or, `known` of them, with the
    truth, of which `right` were right. `only_against`: not a rater, whose likes, choices and corrections teach nothing."""

    accuracy: float
    weight: float
    shared: int = 0
    known: int = 0
    right: int = 0
    drifted: bool = False
    only_against: bool = False

    @property
    def because(self) -> Literal["drift", "chance", "role", "evidence", "not_rater"]:
        """What the weight comes from. `chance`: the vote does not count. `role`: nothing has been measured yet."""
        if self.only_against:
            return "not_rater"
        if self.weight <= 0:
            return "chance"
        return "drift" if self.drifted else "evidence" if self.shared else "role"


@dataclass
class Votes:
    """Every judgement that can be compared: 25 bytes each."""

    raters: dict[str, int] = field(default_factory=dict)
    rater: array[int] = field(default_factory=lambda: array("i"))
    unit: array[int] = field(default_factory=lambda: array("q"))
    row: array[int] = field(default_factory=lambda: array("q"))
    liked: array[int] = field(default_factory=lambda: array("b"))
    truth: array[int] = field(default_factory=lambda: array("b"))  # 1, 0, or -1 where nobody knows
    kind: array[int] = field(default_factory=lambda: array("b"))
    units: int = 0

    def add_unit(self, unit: Sequence[FeedbackMark]) -> None:
        """Marks of different raters about one unit. Who settled it is not measured by it."""
        judged = [(mark, value) for mark in unit if (value := _vote(mark)) is not None and mark.rater is not None]
        settled = [value for mark, value in judged if mark.adjudicates]
        expected = next((mark.expected for mark in unit if mark.expected is not None), None)
        truth = int(settled[-1]) if settled else -1 if expected is None else int(expected == "b")
        others = [(mark, value) for mark, value in judged if not mark.adjudicates]
        if len(others) < 2 and truth < 0:
            return
        for mark, value in others:
            self.rater.append(self.raters.setdefault(mark.rater or "", len(self.raters)))
            self.unit.append(self.units)
            self.row.append(mark.row)
            self.liked.append(value)
            self.truth.append(truth)
            self.kind.append(mark.kind == "feedback")
        self.units += 1


def _vote(mark: FeedbackMark) -> bool | None:
    """Liked or not, or the second of two answers; None where the judgement takes no side."""
    if mark.kind == "preference":
        return bool(mark.choice) if mark.choice in (0, 1) else None
    return label(polarity(thumb=mark.thumb, stars=mark.rating, critical=mark.critical))


def log_odds(accuracy: float) -> float:
    """The weight of a vote; 0 where the accuracy is no better than chance."""
    share = min(accuracy, MOST)
    return float(np.log(share / (1 - share))) if share >= BETTER_THAN_CHANCE else 0.0


UNKNOWN_WEIGHT = log_odds(UNKNOWN[0] / sum(UNKNOWN))


def estimate(votes: Votes, priors: Mapping[str, Prior], drifted: Mapping[str, int]) -> dict[str, RaterSkill]:
    """The skill of each rater with a prior or a vote; `drifted` has the row of a rater's last alarm of drift."""
    names = list(dict.fromkeys([*votes.raters, *priors]))
    earlier = [UNKNOWN if name in drifted else priors.get(name, UNKNOWN) for name in names]
    start = np.array(earlier, dtype=np.float64).reshape(-1, 2)
    rates = np.repeat((start[:, :1] / start.sum(axis=1, keepdims=True)), 2, axis=1)  # (raters, [bad, good])
    error: Floats = np.zeros(len(names))
    probability: Floats = np.zeros(len(votes.rater))
    standing = start[:, 0] / start.sum(axis=1)
    table = _Table.of(votes, {votes.raters[name]: row for name, row in drifted.items() if name in votes.raters})
    for _ in range(ROUNDS if len(table.rater) else 0):
        before, probability = rates, table.expected(rates, standing)
        rates, error = table.fit(probability, start)
        if np.abs(rates - before).max() < 1e-4:
            break
    known = table.truth >= 0
    masks = ((table.age > 0) & (np.abs(probability - 0.5) > 1e-12), known, known & (table.truth == table.liked))
    shared, checked, right = (np.bincount(table.rater[mask], minlength=len(names)) for mask in masks)
    accuracy = np.clip(rates.mean(axis=1) - error, LEAST, MOST)
    return {
        name: RaterSkill(
            float(accuracy[n]), log_odds(float(accuracy[n])), int(shared[n]), int(checked[n]), int(right[n]), name in drifted
        )
        for n, name in enumerate(names)
    }


@dataclass(frozen=True)
class _Table:
    """The votes as columns; `age` is how much each still counts."""

    rater: NDArray[np.int64]
    unit: NDArray[np.int64]
    liked: NDArray[np.int64]
    truth: NDArray[np.int64]
    age: Floats

    @classmethod
    def of(cls, votes: Votes, drifted: Mapping[int, int]) -> _Table:
        columns = (votes.rater, votes.unit, votes.liked, votes.truth, votes.row, votes.kind)
        rater, unit, liked, truth, row, kind = (np.array(column, dtype=np.int64) for column in columns)
        age = np.zeros(len(rater))
        for number in np.unique(rater):
            own = np.flatnonzero(rater == number)
            newest_first = own[np.argsort(-row[own], kind="stable")]
            age[newest_first] = 0.5 ** (np.arange(len(own)) / HALF_LIFE)
            if number in drifted:  # the alarm comes from ratings, and its row is theirs
                age[own[(kind[own] == 1) & (row[own] <= drifted[int(number)])]] = 0.0
        return cls(rater, unit, liked, truth, age)

    def expected(self, rates: Floats, standing: Floats) -> Floats:
        """For each vote, the probability that its unit is good according to others of at least its rater's standing (for unknown
        raters: of more), or to the truth; one half where there are none."""
        bad, good = np.where(rates.mean(axis=1, keepdims=True) > 0.5, rates, 0.5)[self.rater].T  # nobody is turned round
        own = np.where(self.liked == 1, np.log(good / (1 - bad)), np.log((1 - good) / bad)) * (self.age > 0)
        mine = standing[self.rater]
        others: Floats = np.zeros(len(own))
        for level in np.unique(mine):
            unknown = level <= UNKNOWN_STANDING
            heard = np.where(mine > level if unknown else mine >= level, own, 0.0)
            said = np.bincount(self.unit, weights=heard)[self.unit]
            others = np.where(mine == level, said if unknown else said - own, others)
        probability = 1 / (1 + np.exp(-np.clip(others, -30, 30)))
        return np.where(self.truth >= 0, self.truth, probability)

    def fit(self, probability: Floats, start: Floats) -> tuple[Floats, Floats]:
        """The two rates of each rater, how often they are right about bad and about good answers; and the error of their mean.

        Least squares of the votes on the probabilities: where the others are unsure, disagreeing with them says little. What the
        role is worth counts as judgements of answers that are certainly good, and of as many that are certainly bad.
        """
        p, liked, certain = probability, self.liked, start.sum(axis=1) / 2

        def total(values: Floats) -> Floats:
            return np.asarray(np.bincount(self.rater, weights=values * self.age, minlength=len(start)), dtype=np.float64)

        good, bad, both = total(p * p) + certain, total((1 - p) ** 2) + certain, total(p * (1 - p))
        liked_good, liked_bad = total(p * liked) + start[:, 0] / 2, total((1 - p) * liked) + start[:, 1] / 2
        determinant = good * bad - both * both
        true_likes = (liked_good * bad - liked_bad * both) / determinant
        false_likes = (liked_bad * good - liked_good * both) / determinant
        # How much one vote moves the mean of the two; a vote varies by a quarter at most.
        moves = (p * (bad + both)[self.rater] - (1 - p) * (good + both)[self.rater]) / determinant[self.rater] / 2
        error = np.sqrt(total(self.age * moves**2) / 4)
        return np.clip(np.stack((1 - false_likes, true_likes), axis=1), LEAST, MOST), error


def measure_skill(store: Store) -> dict[str, RaterSkill]:
    """The skill of every user, and of every other name that rated; from the numbers of all records, no text is read."""
    tracker, votes = RaterTracker(marks.busiest_raters(store)), Votes()
    for mark in marks.iterate_marks(store):
        tracker.add(mark)
    for kind in ("feedback", "preference"):
        for _, unit in marks.marks_by_unit(store, kind):
            votes.add_unit(list({mark.rater: mark for mark in unit}.values()))  # the latest of each rater
    people = list_users(store)
    priors = {user.user_id: UNKNOWN if user.waits else PRIORS.get(user.role, UNKNOWN) for user in people}
    skills = estimate(votes, priors, tracker.drift_rows())
    not_raters = [user.user_id for user in people if user.waits or user.role not in PRIORS]
    return skills | {name: replace(skills[name], only_against=True) for name in not_raters}
