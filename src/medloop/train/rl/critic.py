"""PPO's critic: a linear head on the policy's hidden states, fitted by least squares to the returns of all steps so far.

    moments = CriticMoments(returns, mask)
    compute_logprobs(state, experience, moments=moments)     # a pass over the answers of a step adds their tokens
    fit_critic(state, moments)                               # the head for the next step

No gradient: the critic cannot move the policy, and nothing has to be tuned. Adam on hundreds of correlated units fitted the noise
of one batch (explained variance -0.4 after ten steps). Earlier steps count less, by DECAY per step, because the policy moves on.
The prediction is scaled by how well the head of the step before predicted answers that it had not seen: 0 at first, so that an
untrained critic predicts the mean return and does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from medloop.train.rl.state import TrainState

DECAY = 0.9
RIDGE = 0.1  # times the mean variance of a unit


@dataclass
class CriticMoments:
    """Sums over the tokens of a step of products of (1, hidden state, return), in float64."""

    returns: Tensor  # (N, C)
    mask: Tensor  # (N, C)
    parts: list[Tensor] = field(default_factory=list)

    def clear(self) -> None:
        """Before each pass over the answers: only the last one counts."""
        self.parts.clear()

    def add(self, rows: list[int], hidden: Tensor) -> None:
        """The tokens of some answers; `hidden` is (B, C, H)."""
        columns = hidden.shape[1]
        mask = self.mask[rows, :columns]
        states, returns = hidden[mask].double(), self.returns[rows, :columns][mask].double()
        table = torch.cat([torch.ones_like(returns)[:, None], states, returns[:, None]], dim=1)
        self.parts.append((table.T @ table).cpu())

    def total(self) -> Tensor:
        return torch.stack(self.parts).sum(0)


def fit_critic(state: TrainState, moments: CriticMoments) -> None:
    """Add a step to the sums, and set the head to their solution; without a token with a return it stays."""
    new = moments.total()
    head = state.policy.value_head
    if head is None or float(new[0, 0]) < 2:
        return
    saved = state.saved.setdefault("critic", {"sums": torch.zeros_like(new), "weights": None, "covariance": 0.0, "variance": 0.0})
    if saved["weights"] is not None:  # how well it predicted this step, before it has seen it
        _, covariances, with_return, _ = _statistics(new)
        count = float(new[0, 0])
        saved["covariance"] = DECAY * saved["covariance"] + count * float(saved["weights"] @ with_return)
        saved["variance"] = DECAY * saved["variance"] + count * float(saved["weights"] @ covariances @ saved["weights"])
    saved["sums"] = DECAY * saved["sums"] + new
    mean, covariances, with_return, mean_return = _statistics(saved["sums"])
    ridge = RIDGE * covariances.diagonal().mean() * torch.eye(len(mean), dtype=torch.float64)
    saved["weights"] = torch.linalg.solve(covariances + ridge, with_return)
    scale = min(1.0, max(0.0, saved["covariance"] / saved["variance"])) if saved["variance"] > 0 else 0.0
    with torch.no_grad():
        head.weight.copy_((scale * saved["weights"])[None])
        head.bias.copy_(mean_return - scale * (saved["weights"] @ mean))


def _statistics(sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean hidden state, covariances of its units, their covariance with the return, and the mean return."""
    means = sums[0] / sums[0, 0]
    centred = sums / sums[0, 0] - means[:, None] * means
    return means[1:-1], centred[1:-1, 1:-1], centred[1:-1, -1], means[-1]
