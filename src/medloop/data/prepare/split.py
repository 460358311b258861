"""Assign rows to splits. Clusters of near-copies stay on one side; languages and strata keep their shares.

Every question has a priority, a hash of the seed and the question. Inside each cell (language and gravest stratum) rows are
drawn in that order: first red-team and gold, one row per cluster, then whole clusters for test and dev; train keeps the rest. A
dropped duplicate still takes part in the draw, for the row it repeats. So adding copies of a gold question to the sources cannot
push it into train; at most, rows move from gold to test.
"""

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
    """Requested shares of all rows (dev, test) and numbers of rows (gold, red)."""

    dev: float
    test: float
    gold: int
    red: int


@dataclass(frozen=True)
class Population:
    """What the split needs from every row; `stand_ins` is the row itself, or for a duplicate the row it repeats."""

    clusters: Indexes
    stand_ins: Indexes
    priorities: NDArray[np.uint64]
    reviewed: NDArray[np.bool_]
    languages: NDArray[np.uint8]
    strata: NDArray[np.uint8]
    generic: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SplitCandidate:
    """One entry in the draw; `row` goes to the split that the draw decides."""

    row: int
    cluster: int
    cell: Cell
    red_team: bool
    order: tuple[bool, int, int]  # reviewed first, then priority, then place


def assign(population: Population, sizes: Sizes) -> NDArray[np.uint8]:
    """The split of every row as an index into SPLITS; dropped duplicates say train."""
    kept_rows = np.unique(population.stand_ins)
    rows = len(kept_rows)
    places = np.zeros(len(population.stand_ins), dtype=np.uint8)
    queue = candidates(population)
    shares = Counter(LANGUAGES[language] for language in population.languages[kept_rows])
    risky = [candidate for candidate in queue if candidate.red_team]
    red = draw(risky, min(sizes.red, rows // 10, len({candidate.cluster for candidate in risky}) // 2), shares)
    queue = remove_clusters(queue, red)
    gold = draw(queue, min(sizes.gold, rows // 10), shares)
    places[[candidate.row for candidate in red]] = RED
    places[[candidate.row for candidate in gold]] = GOLD
    members = whole_clusters(population)
    queue = sorted(remove_clusters(queue, gold), key=lambda candidate: candidate.order[1:])
    test = draw_whole(queue, round(sizes.test * rows), members)
    dev = draw_whole(remove_clusters(queue, test), round(sizes.dev * rows), members)
    places[[row for candidate in test for row in members[candidate.cluster]]] = TEST
    places[[row for candidate in dev for row in members[candidate.cluster]]] = DEV
    return places


def candidates(population: Population) -> list[SplitCandidate]:
    """Every row that may be held out, in draw order. Generic questions may not: half of train would repeat them."""
    result = []
    same_question = population.clusters == population.clusters[population.stand_ins]
    for position in np.flatnonzero(same_question & ~population.generic[population.stand_ins]).tolist():
        row, strata = int(population.stand_ins[position]), strata_in(int(population.strata[position]))
        order = (not population.reviewed[row], int(population.priorities[position]), position)
        cell = (LANGUAGES[population.languages[position]], strata[0])
        result.append(SplitCandidate(row, int(population.clusters[row]), cell, is_red_team(strata), order))
    return sorted(result, key=lambda candidate: candidate.order)


def whole_clusters(population: Population) -> dict[int, list[int]]:
    """The rows of each cluster, duplicates left out."""
    members: dict[int, list[int]] = {}
    for row in np.unique(population.stand_ins).tolist():
        members.setdefault(int(population.clusters[row]), []).append(row)
    return members


def strata_in(mask: int) -> list[Stratum]:
    """The strata behind the bits of a row, gravest first."""
    return [stratum for bit, stratum in enumerate(ORDER) if mask >> bit & 1]


def draw(queue: list[SplitCandidate], total: int, languages: Mapping[Language, int]) -> list[SplitCandidate]:
    """`total` rows of different clusters: languages by their share of the rows, strata by the square root of theirs.

    The square root gives rare strata a voice; at most half of a cell is taken, so that the train set keeps some of each.
    """
    cells = Counter(cell for cell, _ in {(candidate.cell, candidate.cluster) for candidate in queue})
    caps = {cell: math.ceil(count / 2) for cell, count in cells.items()}
    tongues: Counter[Language] = Counter()
    for cell, cap in caps.items():
        tongues[cell[0]] += cap
    room: dict[Cell, int] = {}
    for tongue, seats in allocate(total, {key: float(languages[key]) for key in tongues}, tongues).items():
        room |= allocate(seats, {cell: math.sqrt(count) for cell, count in cells.items() if cell[0] == tongue}, caps)
    return _seat(queue, room, lambda candidate: 1)


def draw_whole(queue: list[SplitCandidate], total: int, members: Mapping[int, list[int]]) -> list[SplitCandidate]:
    """Whole clusters with about `total` rows, every cell by its share; a cluster too large for its cell stays out."""
    first: dict[int, SplitCandidate] = {}
    for candidate in queue:
        first.setdefault(candidate.cluster, candidate)
    cells: Counter[Cell] = Counter()
    for candidate in first.values():
        cells[candidate.cell] += len(members[candidate.cluster])
    room = allocate(total, {cell: float(count) for cell, count in cells.items()}, cells)
    return _seat(list(first.values()), room, lambda candidate: len(members[candidate.cluster]))


def _seat(line: list[SplitCandidate], room: dict[Cell, int], size: Callable[[SplitCandidate], int]) -> list[SplitCandidate]:
    """Go through the line; whoever still finds room in his cell is taken, one row per cluster."""
    chosen: dict[int, SplitCandidate] = {}
    for candidate in line:
        if candidate.cluster not in chosen and size(candidate) <= room[candidate.cell]:
            room[candidate.cell] -= size(candidate)
            chosen[candidate.cluster] = candidate
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


def remove_clusters(queue: list[SplitCandidate], drawn: list[SplitCandidate]) -> list[SplitCandidate]:
    """Those whose cluster was not taken."""
    clusters = {candidate.cluster for candidate in drawn}
    return [candidate for candidate in queue if candidate.cluster not in clusters]
