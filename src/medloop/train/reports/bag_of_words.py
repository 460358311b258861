"""A baseline that a reward model must beat: logistic regression on the difference of two bags of words.

Words are runs of letters and digits; of Chinese text, single characters and bigrams. The penalty is chosen on a fifth of the
training prompts, then all of them are used. It knows no order, no question and no meaning.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from medloop.bootstrap import Numbers
from medloop.models.answer_features import words
from medloop.train.examples.pairs import Pair, split_by_prompt
from medloop.train.linear import compressed, minimise

VOCABULARY = 20_000
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0)  # of half the squared weights, summed over all pairs


def bag_of_words(train: Sequence[Pair], test: Sequence[Pair], seed: int) -> Numbers:
    """Margins of the test pairs by the words of the training pairs."""
    fit, tune = split_by_prompt(train, 0.2, seed, as_marked=False)
    best = PENALTIES[-1]
    if fit and tune:
        losses = {penalty: _loss(_margins(fit, tune, penalty)) for penalty in PENALTIES}
        best = min(losses, key=losses.__getitem__)
    return _margins(train, test, best)


def _margins(train: Sequence[Pair], test: Sequence[Pair], penalty: float) -> Numbers:
    counts = Counter(word for pair in train for word in words(pair.chosen) ^ words(pair.rejected))
    column = {word: index for index, (word, count) in enumerate(counts.most_common(VOCABULARY)) if count > 1}
    width = max(len(column), 1)
    features, transposed = compressed(_differences(train, column, width))

    def loss_and_gradient(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        margins = features @ weights
        loss = torch.nn.functional.softplus(-margins).sum() + 0.5 * penalty * (weights**2).sum()
        return loss, transposed @ -torch.sigmoid(-margins) + penalty * weights

    weights = minimise(loss_and_gradient, torch.zeros(width, dtype=torch.float64))
    return np.asarray(torch.mv(_differences(test, column, width), weights).numpy(), dtype=np.float64)


def _differences(pairs: Sequence[Pair], column: dict[str, int], width: int) -> torch.Tensor:
    """(pairs, words): +1 where only the chosen answer has the word, -1 where only the rejected one does; sparse."""
    positions: list[tuple[int, int]] = []
    values: list[float] = []
    for row, pair in enumerate(pairs):
        chosen, rejected = words(pair.chosen), words(pair.rejected)
        for word in sorted(chosen ^ rejected):
            if word in column:
                positions.append((row, column[word]))
                values.append(1.0 if word in chosen else -1.0)
    index = torch.tensor(positions, dtype=torch.int64).reshape(-1, 2).T
    return torch.sparse_coo_tensor(
        index, torch.tensor(values, dtype=torch.float64), (len(pairs), width), check_invariants=False
    ).coalesce()


def _loss(margins: Numbers) -> float:
    return float(np.logaddexp(0, -margins).mean())
