"""Who goes where. Clusters of near-copies stay on one side; languages and strata keep their shares.

Drawing is by priority, a hash of seed and question, and places are counted in clusters. So adding copies of a question
to the sources cannot move it from the gold set into the train set, and new rows hardly move old ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.dataset import Language, Split, Stratum
from medloop.data.gather import LANGUAGES
from medloop.data.near import Indexes
from medloop.data.risk import ORDER, is_red_team

SPLITS: tuple[Split, ...] = ("train", "dev", "test", "gold", "red")
TRAIN, DEV, TEST, GOLD, RED = range(5)
Cell = tuple[Language, Stratum]  # the gravest stratum
K = TypeVar("K", str, Cell)


@dataclass(frozen=True)
class Sizes:
    """Shares of all rows (dev, test) and numbers of rows (gold, red) that are wanted."""

    dev: float
    test: float
    gold: int
    red: int


@dataclass(frozen=True)
class Cluster:
    """Near-copies of one question. `head` is the row that speaks for it, reviewed if possible."""

    head: int
    rows: tuple[int, ...]
    priority: int
    reviewed: bool
    cell: Cell
    red_team: bool
    generic: bool


@dataclass(frozen=True)
class Population:
    """What the split needs to know of every row; `kept` rows can be assigned, the others only lend their priority."""

    labels: Indexes
    kept: NDArray[np.bool_]
    priorities: NDArray[np.uint64]
    reviewed: NDArray[np.bool_]
    languages: NDArray[np.uint8]
    strata: NDArray[np.uint8]
    generic: NDArray[np.bool_]


def assign(population: Population, sizes: Sizes) -> NDArray[np.uint8]:
    """The split of every kept row, as a place in SPLITS; rows that are not kept say train and mean nothing."""
    clusters = clusters_of(population)
    rows = int(population.kept.sum())
    places = np.zeros(len(population.kept), dtype=np.uint8)
    share = _count(clusters, lambda cluster: cluster.cell[0])
    free = [cluster for cluster in clusters if not cluster.generic]
    risky = [cluster for cluster in free if cluster.red_team]
    red = draw(risky, min(sizes.red, rows // 10, len(risky) // 2), share)
    gold = draw(without(free, red), min(sizes.gold, rows // 10), share)
    places[[cluster.head for cluster in red]] = RED
    places[[cluster.head for cluster in gold]] = GOLD
    rest = without(free, [*red, *gold])
    test = draw_rows(rest, round(sizes.test * rows))
    dev = draw_rows(without(rest, test), round(sizes.dev * rows))
    places[[row for cluster in test for row in cluster.rows]] = TEST
    places[[row for cluster in dev for row in cluster.rows]] = DEV
    return places


def clusters_of(population: Population) -> list[Cluster]:
    """Clusters with at least one kept row, by priority."""
    members: dict[int, list[int]] = {}
    for row, label in enumerate(population.labels):
        members.setdefault(int(label), []).append(row)
    found = [_cluster(population, rows) for rows in members.values() if population.kept[rows].any()]
    return sorted(found, key=lambda cluster: (cluster.priority, cluster.head))


def strata_in(mask: int) -> list[Stratum]:
    """The strata behind the bits of a row, gravest first."""
    return [stratum for at, stratum in enumerate(ORDER) if mask >> at & 1]


def draw(clusters: list[Cluster], total: int, languages: Mapping[str, int]) -> list[Cluster]:
    """`total` clusters: languages by their share of the data, strata by the square root of their size, reviewed first.

    The square root gives rare strata a voice; at most half of a cell is taken, so that the train set keeps some of each.
    """
    cells = _count(clusters, lambda cluster: cluster.cell)
    caps = {cell: math.ceil(count / 2) for cell, count in cells.items()}
    tongues: dict[str, int] = {}
    for cell, cap in caps.items():
        tongues[cell[0]] = tongues.get(cell[0], 0) + cap
    chosen: list[Cluster] = []
    for tongue, seats in allocate(total, {k: float(languages[k]) for k in tongues}, tongues).items():
        weights = {cell: math.sqrt(count) for cell, count in cells.items() if cell[0] == tongue}
        for cell, places in allocate(seats, weights, caps).items():
            pool = sorted((c for c in clusters if c.cell == cell), key=lambda c: (not c.reviewed, c.priority, c.head))
            chosen += pool[:places]
    return chosen


def draw_rows(clusters: list[Cluster], total: int) -> list[Cluster]:
    """Whole clusters with about `total` rows, every cell by its share; a cluster too large for its cell stays out."""
    cells: dict[Cell, int] = {}
    for cluster in clusters:
        cells[cluster.cell] = cells.get(cluster.cell, 0) + len(cluster.rows)
    room = allocate(total, {cell: float(count) for cell, count in cells.items()}, cells)
    chosen = []
    for cluster in clusters:
        if len(cluster.rows) <= room[cluster.cell]:
            room[cluster.cell] -= len(cluster.rows)
            chosen.append(cluster)
    return chosen


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


def without(clusters: list[Cluster], taken: list[Cluster]) -> list[Cluster]:
    heads = {cluster.head for cluster in taken}
    return [cluster for cluster in clusters if cluster.head not in heads]


def _cluster(population: Population, rows: list[int]) -> Cluster:
    kept = [row for row in rows if population.kept[row]]
    head = min(kept, key=lambda row: (not population.reviewed[row], population.priorities[row], row))
    strata = strata_in(int(population.strata[head]))
    return Cluster(
        head=head,
        rows=tuple(kept),
        priority=min(int(population.priorities[row]) for row in rows),
        reviewed=bool(population.reviewed[head]),
        cell=(LANGUAGES[population.languages[head]], strata[0]),
        red_team=is_red_team(strata),
        generic=bool(population.generic[head]),
    )


def _count(clusters: list[Cluster], key: Callable[[Cluster], K]) -> dict[K, int]:
    counts: dict[K, int] = {}
    for cluster in clusters:
        counts[key(cluster)] = counts.get(key(cluster), 0) + 1
    return counts
