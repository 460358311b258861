"""Train the ensemble of heads of a reward model: seconds on a processor, no GPU, reproducible by seed.

    fitted = fit_heads(pairs, negatives, HeadSettings(members=8, seed=42))
    fitted.heads, fitted.head_weight

Loss of each head: -log sigmoid(score of chosen - score of rejected), weighted by how often the question was drawn for that head
(bootstrap over questions), plus a penalty that is chosen on a fifth of the questions. On the same fifth `head_weight` is fitted,
so that sigmoid(margin) means what it says; the heads are then trained on all questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from medloop.models.answer_features import BITS, LENGTHS, SEEN_BITS, SHAPE, AnswerFeatures, Floats, answer_features, question_text
from medloop.models.heads import Heads, oddity, standardise, with_broken
from medloop.train.examples.pairs import Pair, split_by_prompt
from medloop.train.linear import compressed, minimise

PENALTIES = (0.03, 0.1, 0.3, 1.0)  # of half the squared weights of words, summed over all pairs
DENSE_PENALTY = 1.0
LEAST_LOGIT = 0.5  # of looking broken
LEAST_NEGATIVES = 20  # synthetic negatives, below which nobody knows what broken looks like
Z95 = 1.645  # standard deviations of a normal distribution below which 95 % lie
LEAST_STD = 0.05  # of shares; a set whose answers never repeat words must not make one repeated word infinitely far
Vectors = Callable[[Sequence[tuple[str, str]]], NDArray[np.float32]]  # (question, answer) -> (N, D)


@dataclass(frozen=True)
class HeadSettings:
    members: int
    seed: int
    length_free: bool = False
    vectors: Vectors | None = None


@dataclass(frozen=True)
class AnswerTable:
    """The features of pairs: row 2n is the chosen answer of pair n, row 2n + 1 its rejected one."""

    pairs: Sequence[Pair]
    rows: list[AnswerFeatures]
    vectors: NDArray[np.float32]

    @property
    def questions(self) -> list[str]:
        return [pair.first_question for pair in self.pairs]


@dataclass(frozen=True)
class FittedHeads:
    """`head_weight` turns a margin of the heads into log-odds; `margins` are of held pairs, before they were trained on."""

    heads: Heads
    head_weight: float
    penalty: float
    margins: Floats


def tabulate(pairs: Sequence[Pair], vectors: Vectors | None = None) -> AnswerTable:
    texts = [(question_text(pair.prompt), answer) for pair in pairs for answer in (pair.chosen, pair.rejected)]
    rows = [answer_features(*text) for text in texts]
    return AnswerTable(pairs, rows, vectors(texts) if vectors is not None else np.zeros((len(texts), 0), np.float32))


def fit_heads(
    pairs: Sequence[Pair], negatives: Sequence[Pair], settings: HeadSettings, held: set[str] | None = None
) -> FittedHeads:
    """The ensemble from pairs of people; what an answer should not look like from synthetic negatives.

    `held` are the questions to choose penalty and weight on; without it a fifth of the questions.
    """
    table = tabulate(pairs, settings.vectors)
    scaling = _scaling(table)
    design = _Design(table, scaling)
    if held is None:
        held = {pair.first_question for pair in split_by_prompt(pairs, 0.2, settings.seed, as_marked=False)[1]}
    penalty, margins = _choose_penalty(design, np.array([question in held for question in table.questions]))
    words, dense = design.fit(_bootstrap(table.questions, settings.members, settings.seed), penalty)
    heads = Heads(
        words=words.astype(np.float32), shape=dense[: len(SHAPE)].astype(np.float32),
        vectors=dense[len(SHAPE) :].astype(np.float32), offsets=np.zeros(settings.members, np.float32), scaling=scaling,
        **familiarity(table, tabulate(negatives)),
    )  # fmt: skip
    if settings.length_free:
        heads = _without_length(heads, table)
    return FittedHeads(_centred(heads, table), fit_scales([margins])[0], penalty, margins)


def fit_scales(columns: Sequence[Floats]) -> list[float]:
    """Factors of several columns of margins, none below 0, for which the right order is most likely; drawn gently to 1."""
    if not len(columns[0]):
        return [1.0] * len(columns)
    margins = torch.tensor(np.stack(columns, 1))

    def loss_and_gradient(logs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scales = logs.exp()
        slopes = -torch.sigmoid(-(margins @ scales))
        loss = torch.nn.functional.softplus(-(margins @ scales)).sum() + 0.5 * (logs**2).sum()
        return loss, scales * (margins.T @ slopes) + logs

    return [float(value) for value in minimise(loss_and_gradient, torch.zeros(len(columns), dtype=torch.float64)).exp()]


class _Design:
    """The differences of two answers' features as matrices; only words that occur in at least two pairs have a column."""

    def __init__(self, table: AnswerTable, scaling: NDArray[np.float32]) -> None:
        counts = np.zeros(1 << BITS, np.int64)
        for row in table.rows:
            counts[row.buckets] += 1
        self.columns = np.flatnonzero(counts > 1)
        place = np.full(1 << BITS, -1)
        place[self.columns] = np.arange(len(self.columns))
        differences = _sparse_differences(table.rows, place, len(self.columns))
        self.words, self.transposed = compressed(differences)
        shapes = standardise(np.stack([row.shape for row in table.rows]), scaling)
        dense = np.concatenate([shapes, table.vectors], 1)
        self.dense = torch.tensor(dense[0::2] - dense[1::2], dtype=torch.float32)

    def fit(self, draws: Floats, penalty: float) -> tuple[Floats, Floats]:
        """(words, K) and (numbers, K): the weights of K heads; `draws` (N, K) says how often a pair counts for a head."""
        width, members = len(self.columns), draws.shape[1]
        penalties = torch.full((width + self.dense.shape[1], 1), penalty)
        penalties[width:] = DENSE_PENALTY
        counts = torch.tensor(draws, dtype=torch.float32)

        def loss_and_gradient(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            margins = self.words @ weights[:width] + self.dense @ weights[width:]
            slopes = -counts * torch.sigmoid(-margins)
            loss = (counts * torch.nn.functional.softplus(-margins)).sum() + 0.5 * (penalties * weights**2).sum()
            return loss, torch.cat([self.transposed @ slopes, self.dense.T @ slopes]) + penalties * weights

        weights = minimise(loss_and_gradient, torch.zeros(width + self.dense.shape[1], members)).numpy()
        everywhere = np.zeros((1 << BITS, members))
        everywhere[self.columns] = weights[:width]
        return everywhere, weights[width:].astype(np.float64)

    def margins(self, weights: tuple[Floats, Floats]) -> Floats:
        words = torch.tensor(weights[0][self.columns], dtype=torch.float32)
        scores = self.words @ words + self.dense @ torch.tensor(weights[1], dtype=torch.float32)
        return np.asarray(scores.numpy(), np.float64)


def _sparse_differences(rows: Sequence[AnswerFeatures], place: NDArray[np.int64], width: int) -> torch.Tensor:
    """(pairs, words): an answer's words share a length of 1, so that a long answer does not weigh more."""
    lines, columns, values = [], [], []
    for number, row in enumerate(rows):
        found = place[row.buckets]
        found = found[found >= 0]
        lines.append(np.full(len(found), number // 2))
        columns.append(found)
        sign = -1.0 if number % 2 else 1.0
        values.append(np.full(len(found), sign / np.sqrt(max(len(row.buckets), 1)), np.float32))
    index = torch.tensor(np.stack([np.concatenate(lines), np.concatenate(columns)]))
    size = (len(rows) // 2, width)
    return torch.sparse_coo_tensor(index, torch.tensor(np.concatenate(values)), size, check_invariants=False).coalesce()


def _choose_penalty(design: _Design, held: NDArray[np.bool_]) -> tuple[float, Floats]:
    """The penalty with the least loss on the held pairs, and their margins; the middle one where nothing is held."""
    if not held.any() or held.all():
        return PENALTIES[1], np.zeros(0)
    best: tuple[float, float, Floats] | None = None
    for penalty in PENALTIES:
        margins = design.margins(design.fit((~held)[:, None].astype(np.float64), penalty))[held, 0]
        loss = float(np.logaddexp(0, -margins * fit_scales([margins])[0]).mean())
        if best is None or loss < best[0]:
            best = (loss, penalty, margins)
    assert best is not None, "there are penalties to choose from"
    return best[1], best[2]


def _bootstrap(questions: Sequence[str], members: int, seed: int) -> Floats:
    """(N, K): how often the question of each pair was drawn for each head."""
    distinct = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    rng = np.random.default_rng([seed, 7])
    counts = np.stack(
        [np.bincount(rng.integers(0, len(distinct), len(distinct)), minlength=len(distinct)) for _ in range(members)]
    )
    return np.asarray(counts[:, [distinct[question] for question in questions]].T, np.float64)


def _scaling(table: AnswerTable) -> NDArray[np.float32]:
    shapes = np.stack([row.shape for row in table.rows])
    least, greatest = np.quantile(shapes, [0.01, 0.99], axis=0)
    return np.stack([shapes.mean(0), np.maximum(shapes.std(0), 1e-6), least, greatest]).astype(np.float32)


def familiarity(table: AnswerTable, negatives: AnswerTable) -> dict[str, Any]:
    """What training has seen, what broken answers look like, and how strange training answers look to the others."""
    questions = np.repeat(np.unique(table.questions, return_inverse=True)[1], 2)
    first = np.full((2, 1 << SEEN_BITS), -1)  # the first question that has it
    shared = np.zeros((2, 1 << SEEN_BITS), bool)  # and whether another one has it, too
    for row, question in zip(table.rows, questions, strict=True):
        for kind, hashes in enumerate((row.words, row.word_pairs)):
            shared[kind, hashes] |= (first[kind, hashes] >= 0) & (first[kind, hashes] != question)
            first[kind, hashes] = np.where(first[kind, hashes] < 0, question, first[kind, hashes])

    def strangeness(rows: Sequence[AnswerFeatures]) -> Floats:
        return np.stack([oddity(row, ~shared[0, row.words], ~shared[1, row.word_pairs]) for row in rows])

    oddities = strangeness(table.rows)
    scaling = np.stack([oddities.mean(0), np.maximum(oddities.std(0), LEAST_STD)]).astype(np.float32)
    broken: Floats = np.zeros(oddities.shape[1])
    if len(negatives.pairs) >= LEAST_NEGATIVES:
        broken = _fit_broken((strangeness(negatives.rows) - scaling[0]) / scaling[1])
    shown = with_broken(oddities, scaling, broken)
    middle, end = np.quantile(shown, [0.5, 0.95], axis=0)  # not mean and std: these numbers are skewed
    least = np.append(np.full(oddities.shape[1], LEAST_STD), LEAST_LOGIT)
    usual = np.stack([middle, np.maximum((end - middle) / Z95, least)]).astype(np.float32)
    seen = np.packbits(first >= 0, axis=1, bitorder="little")
    return {"seen": seen, "odd_scaling": scaling, "broken": broken.astype(np.float32), "usual": usual}


def _fit_broken(oddities: Floats) -> Floats:
    """Weights by which a synthetic negative looks more broken than the answer it was made of; rows as in a table."""
    differences = torch.tensor(oddities[1::2] - oddities[0::2])

    def loss_and_gradient(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        margins = differences @ weights
        loss = torch.nn.functional.softplus(-margins).sum() + 0.5 * (weights**2).sum()
        return loss, differences.T @ -torch.sigmoid(-margins) + weights

    return minimise(loss_and_gradient, torch.zeros(differences.shape[1], dtype=torch.float64)).numpy()


def _without_length(heads: Heads, table: AnswerTable) -> Heads:
    """The heads less what length explains of them, by least squares over the training answers."""
    lengths = standardise(np.stack([row.shape for row in table.rows]), heads.scaling)[:, LENGTHS]
    design = np.concatenate([lengths, np.ones((len(lengths), 1))], 1)
    slopes = np.linalg.lstsq(design, heads.members(table.rows, table.vectors), rcond=None)[0][: len(LENGTHS)]
    shape = heads.shape.copy()
    shape[list(LENGTHS)] -= slopes
    return Heads(**{**vars(heads), "shape": shape.astype(np.float32)})


def _centred(heads: Heads, table: AnswerTable) -> Heads:
    offsets = heads.members(table.rows, table.vectors).mean(0).astype(np.float32)
    return Heads(**{**vars(heads), "offsets": offsets})
