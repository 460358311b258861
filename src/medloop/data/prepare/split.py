"""Who goes where. Clusters of near-copies stay on one side; languages and strata keep their shares.

Every question has a priority, a hash of the seed and the question. Inside each cell (language and gravest stratum) rows
are taken in that order: first red-team and gold, one row per cluster, then test and dev, whole clusters, then train. A row
that was dropped as a duplicate of the same question still has its turn, and the row it repeats takes the place. So copies
of a gold question that somebody adds to the sources cannot push it into train: where a border moves, rows go from gold
to test at most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.dataset import Language, Split, Stratum
from medloop.data.prepare.collect import LANGUAGES
from medloop.data.text.near import Indexes
from medloop.data.text.risk import ORDER, is_red_team

SPLITS: tuple[Split, ...] = ("train", "dev", "test", "gold", "red")
TRAIN, DEV, TEST, GOLD, RED = range(5)
Cell = tuple[Language, Stratum]  # the gravest stratum
K = TypeVar("K", Language, Cell)


@dataclass(frozen=True)
class Sizes:
    """Shares of all rows (dev, test) and numbers of rows (gold, red) that are wanted."""

    dev: float
    test: float
    gold: int
    red: int


@dataclass(frozen=True)
class Population:
    """What the split needs to know of every row. `stand_ins` is the row itself, or for a duplicate the row it repeats."""

    clusters: Indexes
    stand_ins: Indexes
    priorities: NDArray[np.uint64]
    reviewed: NDArray[np.bool_]
    languages: NDArray[np.uint8]
    strata: NDArray[np.uint8]
    generic: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row's turn in the draw: `row` goes where the draw says."""

    row: int
    cluster: int
    cell: Cell
    red_team: bool
    order: tuple[bool, int, int]  # reviewed first, then priority, then place


def assign(population: Population, sizes: Sizes) -> NDArray[np.uint8]:
    """The split of every row, as a place in SPLITS; rows that stand for nobody are dropped and say train."""
    kept = np.unique(population.stand_ins)
    rows = len(kept)
    places = np.zeros(len(population.stand_ins), dtype=np.uint8)
    line = candidates(population)
    shares = Counter(LANGUAGES[language] for language in population.languages[kept])
    risky = [one for one in line if one.red_team]
    red = draw(risky, min(sizes.red, rows // 10, len({one.cluster for one in risky}) // 2), shares)
    line = without(line, red)
    gold = draw(line, min(sizes.gold, rows // 10), shares)
    places[[one.row for one in red]] = RED
    places[[one.row for one in gold]] = GOLD
    members = whole_clusters(population)
    line = sorted(without(line, gold), key=lambda one: one.order[1:])
    test = draw_whole(line, round(sizes.test * rows), members)
    dev = draw_whole(without(line, test), round(sizes.dev * rows), members)
    places[[row for one in test for row in members[one.cluster]]] = TEST
    places[[row for one in dev for row in members[one.cluster]]] = DEV
    return places


def candidates(population: Population) -> list[Candidate]:
    """Every row that may be held out, in the order of the draw. Generic questions may not: half of train would repeat them."""
    found = []
    same_question = population.clusters == population.clusters[population.stand_ins]
    for at in np.flatnonzero(same_question & ~population.generic[population.stand_ins]).tolist():
        row, strata = int(population.stand_ins[at]), strata_in(int(population.strata[at]))
        order = (not population.reviewed[row], int(population.priorities[at]), at)
        cell = (LANGUAGES[population.languages[at]], strata[0])
        found.append(Candidate(row, int(population.clusters[row]), cell, is_red_team(strata), order))
    return sorted(found, key=lambda one: one.order)


def whole_clusters(population: Population) -> dict[int, list[int]]:
    """The rows of each cluster, duplicates left out."""
    members: dict[int, list[int]] = {}
    for row in np.unique(population.stand_ins).tolist():
        members.setdefault(int(population.clusters[row]), []).append(row)
    return members


def strata_in(mask: int) -> list[Stratum]:
    """The strata behind the bits of a row, gravest first."""
    return [stratum for at, stratum in enumerate(ORDER) if mask >> at & 1]


def draw(line: list[Candidate], total: int, languages: Mapping[Language, int]) -> list[Candidate]:
    """`total` rows of different clusters: languages by their share of the rows, strata by the square root of theirs.

    The square root gives rare strata a voice; at most half of a cell is taken, so that the train set keeps some of each.
    """
    cells = Counter(cell for cell, _ in {(one.cell, one.cluster) for one in line})
    caps = {cell: math.ceil(count / 2) for cell, count in cells.items()}
    tongues: Counter[Language] = Counter()
    for cell, cap in caps.items():
        tongues[cell[0]] += cap
    room: dict[Cell, int] = {}
    for tongue, seats in allocate(total, {key: float(languages[key]) for key in tongues}, tongues).items():
        room |= allocate(seats, {cell: math.sqrt(count) for cell, count in cells.items() if cell[0] == tongue}, caps)
    return _seat(line, room, lambda one: 1)


def draw_whole(line: list[Candidate], total: int, members: Mapping[int, list[int]]) -> list[Candidate]:
    """Whole clusters with about `total` rows, every cell by its share; a cluster too large for its cell stays out."""
    first: dict[int, Candidate] = {}
    for one in line:
        first.setdefault(one.cluster, one)
    cells: Counter[Cell] = Counter()
    for one in first.values():
        cells[one.cell] += len(members[one.cluster])
    room = allocate(total, {cell: float(count) for cell, count in cells.items()}, cells)
    return _seat(list(first.values()), room, lambda one: len(members[one.cluster]))


def _seat(line: list[Candidate], room: dict[Cell, int], size: Callable[[Candidate], int]) -> list[Candidate]:
    """Go through the line; whoever still finds room in his cell is taken, one row per cluster."""
    chosen: dict[int, Candidate] = {}
    for one in line:
        if one.cluster not in chosen and size(one) <= room[one.cell]:
            room[one.cell] -= size(one)
            chosen[one.cluster] = one
    return list(chosen.values())


def allocate(total: int, weights: Mapping[K, float], caps: Mapping[K, int]) -> dict[K, int]:
    """Seats in proportion to the weights, none beyond its cap (Sainte-Laguë: the next seat goes to the largest w / (2 n + 1))."""
    whole = sum(weights.values()) or 1.0
    # Nearly all seats at once: everybody's share, rounded down, less one. The rest is dealt out one by one.
    given = {key: max(0, min(caps[key], int(total * weights[key] / whole) - 1)) for key in sorted(weights)}
    for _ in range(total - sum(given.values())):
        open_ = [key for key in given if given[key] < caps[key] and weights[key] > 0]
        if not open_:
            break
        given[max(open_, key=lambda key: weights[key] / (2 * given[key] + 1))] += 1
    return given


def without(line: list[Candidate], taken: list[Candidate]) -> list[Candidate]:
    """Those whose cluster was not taken."""
    clusters = {one.cluster for one in taken}
    return [one for one in line if one.cluster not in clusters]
