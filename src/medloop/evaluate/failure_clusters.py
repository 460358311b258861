"""Failures that look alike, as named issues: "risk: ibuprofen, weeks, pregnant (pregnancy, English): 14, 9 before".

    clusters = cluster_failures(scored, penalties, label="sft", embed=None)
    clusters = with_trend(clusters, earlier_report)

A failure is an answer that loses at least half of a metric. Two are alike by their texts (question, answer and the rule's reason;
sentence embeddings where an encoder is given, else TF-IDF of words and of Chinese bigrams) and by strata and language. The
answer with most others like it founds an issue with them, then the next one; those that remain alone are counted as single.
Nothing is random: the same scores give the same issues.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import EvalReport, FailureCluster, Score
from medloop.evaluate.run import EvalScores
from medloop.lexicon.words import split_words

Vectors = NDArray[Any]
Embed = Callable[[Sequence[str]], NDArray[Any]]  # texts to rows of length 1

LOST = 0.5  # of a metric, to be called a failure
ALIKE = {"words": 0.3, "embedding": 0.6}  # similarity from which two failures are the same issue
STRATA_SHARE = 0.2  # of the similarity
SMALLEST = 2  # failures of an issue
MOST = 400  # failures of one metric that are compared with each other, the worst first; the others join the issues of these
VOCABULARY = 4000  # words, the most frequent ones
TERMS, EXAMPLES, ISSUES = 5, 3, 8  # of an issue, of an issue, of a metric
SAME_ISSUE = 0.25  # overlap of terms from which an issue of an earlier report is the same
_HAN = re.compile(r"[\u3400-\u9fff]{2,}")


def cluster_failures(
    scored: Sequence[EvalScores], penalties: frozenset[str], *, label: str, embed: Embed | None = None
) -> list[FailureCluster]:
    """The issues of one model, metric by metric, the largest first."""
    words: dict[tuple[str, str], Counter[str]] = {}  # one answer may fail several metrics

    def exchanges(row: EvalScores) -> Counter[str]:
        if row.answer.key not in words:
            words[row.answer.key] = _words(_exchange(row))
        return words[row.answer.key].copy()

    clusters = []
    for metric in dict.fromkeys(score.name for row in scored for score in row.scores):
        failures = [row for row in scored if _lost(row, metric, penalties) >= LOST]
        failures.sort(key=lambda row: (-_lost(row, metric, penalties), *row.answer.key))
        clusters += _issues(failures, metric, label, embed, exchanges)
    return clusters


def _lost(row: EvalScores, metric: str, penalties: frozenset[str]) -> float:
    value = row.value(metric)
    return 0.0 if value is None else value if metric in penalties else 1 - value


def _issues(
    failures: Sequence[EvalScores], metric: str, label: str, embed: Embed | None, exchanges: Callable[[EvalScores], Counter[str]]
) -> list[FailureCluster]:
    if len(failures) < SMALLEST:
        return []
    words = [exchanges(row) for row in failures]
    for row, counts in zip(failures, words, strict=True):
        counts.update(_words(_reason(row, metric)))
    weights, terms = _tf_idf(words)
    texts = weights if embed is None else embed([f"{_exchange(row)}\n{_reason(row, metric)}" for row in failures])
    groups = _marks([row.answer.groups for row in failures])
    enough = ALIKE["words" if embed is None else "embedding"]

    def alike(first: slice | list[int], second: slice) -> NDArray[np.bool_]:
        similarity = (1 - STRATA_SHARE) * (texts[first] @ texts[second].T) + STRATA_SHARE * (groups[first] @ groups[second].T)
        return np.asarray(similarity >= enough)

    founders = _founders(alike(slice(MOST), slice(MOST)))
    members = _joined(alike(founders, slice(None)))
    members.sort(key=lambda group: -len(group))
    return [_issue([failures[n] for n in group], weights[group].mean(axis=0), terms, metric, label) for group in members[:ISSUES]]


def _founders(alike: NDArray[np.bool_]) -> list[int]:
    """The failure with most others like it; then the same among those that are like none so far."""
    left = np.ones(len(alike), dtype=bool)
    founders = []
    while left.any():
        counts = (alike & left).sum(axis=1) * left
        founder = int(counts.argmax())  # the first of several: the order is that of the losses
        if counts[founder] < SMALLEST:
            break
        founders.append(founder)
        left &= ~alike[founder]
    return founders


def _joined(alike: NDArray[np.bool_]) -> list[list[int]]:
    """(founders, failures) -> the failures of each issue: one that is like several founders joins the first."""
    taken = np.zeros(alike.shape[1], dtype=bool)
    groups = []
    for row in alike:
        groups.append([int(n) for n in np.flatnonzero(row & ~taken)])
        taken |= row
    return groups


def _issue(members: Sequence[EvalScores], weights: Vectors, terms: Sequence[str], metric: str, label: str) -> FailureCluster:
    top = sorted(range(len(terms)), key=lambda n: (-weights[n], terms[n]))
    named = _without_parts([terms[n] for n in top[: 4 * TERMS] if weights[n] > 0])[:TERMS]
    groups = Counter(group for row in members for group in row.answer.groups)
    usual = tuple(name for name, count in sorted(groups.items(), key=lambda row: (-row[1], row[0])) if 2 * count > len(members))
    return FailureCluster(
        label=label, metric=metric, terms=tuple(named), groups=usual, count=len(members),
        splits=dict(sorted(Counter(row.answer.split for row in members).items())),
        examples=tuple(row.contract() for row in members[:EXAMPLES]),
    )  # fmt: skip


def _without_parts(terms: Sequence[str]) -> list[str]:
    """Bigrams of one Chinese word overlap ("布洛", "洛芬"): the later ones add nothing to a name."""
    chosen: list[str] = []
    for term in terms:
        if not any(_HAN.match(term) and _HAN.match(other) and {term[0], term[-1]} & {other[0], other[-1]} for other in chosen):
            chosen.append(term)
    return chosen


def with_trend(clusters: Iterable[FailureCluster], earlier: EvalReport | None) -> tuple[FailureCluster, ...]:
    """How many failures the same issue of the same model had in an earlier report; 0 for a new issue, None for a new model."""
    if earlier is None:
        return tuple(clusters)
    known = {result.label for result in earlier.results}
    return tuple(
        cluster.model_copy(update={"earlier": _before(cluster, earlier)}) if cluster.label in known else cluster
        for cluster in clusters
    )


def _before(cluster: FailureCluster, earlier: EvalReport) -> int:
    same = [row for row in earlier.clusters if (row.label, row.metric) == (cluster.label, cluster.metric)]
    overlaps = [(len({*row.terms} & {*cluster.terms}) / len({*row.terms, *cluster.terms} or {""}), row.count) for row in same]
    return max((pair for pair in overlaps if pair[0] >= SAME_ISSUE), default=(0.0, 0))[1]


def _reason(row: EvalScores, metric: str) -> str:
    return next((score.reason for score in row.scores if score.name == metric and isinstance(score, Score)), "")


def _exchange(row: EvalScores) -> str:
    return f"{row.answer.sample.question}\n{row.answer.sample.answer or ''}"


def _words(text: str) -> Counter[str]:
    latin = (word for word in split_words(text) if word.isascii() and len(word) > 2 and not word.isdigit())
    han = (run[n : n + 2] for run in _HAN.findall(text) for n in range(len(run) - 1))
    return Counter([*latin, *han])


def _tf_idf(documents: Sequence[Counter[str]]) -> tuple[Vectors, list[str]]:
    """(n, terms) for words that more than one failure has; words of one alone only count in the length of its row."""
    found_in = Counter(word for words in documents for word in words)
    shared = sorted((word for word, count in found_in.items() if count >= SMALLEST), key=lambda word: (-found_in[word], word))
    terms = sorted(shared[:VOCABULARY])
    place = {word: index for index, word in enumerate(terms)}
    rarity = {word: math.log(1 + len(documents) / count) for word, count in found_in.items()}
    matrix = np.zeros((len(documents), len(terms)), dtype=np.float32)
    for row, words in enumerate(documents):
        weights = {word: rarity[word] if n == 1 else (1 + math.log(n)) * rarity[word] for word, n in words.items()}
        length = math.hypot(*weights.values()) or 1.0
        for word in weights.keys() & place.keys():
            matrix[row, place[word]] = weights[word] / length
    return matrix, terms


def _marks(groups: Sequence[Sequence[str]]) -> Vectors:
    names = sorted({name for row in groups for name in row})
    return _unit(np.array([[float(name in row) for name in names] for row in groups]))


def _unit(matrix: Vectors) -> Vectors:
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(lengths == 0, 1.0, lengths))
