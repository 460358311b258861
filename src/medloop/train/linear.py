"""Linear models of sparse features, fitted by L-BFGS in seconds: the heads of a reward model and the bag of words."""

import warnings
from collections.abc import Callable

import torch

ITERATIONS = 60
LossAndGradient = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def minimise(loss_and_gradient: LossAndGradient, start: torch.Tensor) -> torch.Tensor:
    """L-BFGS from `start` with gradients by hand: those of sparse matrices are slow by autograd."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        with torch.no_grad():
            loss, weights.grad = loss_and_gradient(weights)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def compressed(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A sparse matrix and its transpose by compressed rows, whose products are fast."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls compressed rows beta; products with them are all we need
        return matrix.to_sparse_csr(), matrix.T.coalesce().to_sparse_csr()
