"""Statistics, KL and its controller, by hand. (n) is the item of the checklist in docs/stages/rl_maths.md."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_rollouts import rollouts
from torch import tensor

from medloop.train.rl import maths
from medloop.train.rl.losses import policy_losses
from medloop.train.rl.maths import AdaptiveKL

yes, no = True, False


# Statistics


def test_masked_mean_and_variance_by_hand() -> None:  # (11)
    # 1, 2, 6: mean 3, squared distances 4 + 1 + 9 = 14, over n - 1 = 2: 7
    values, mask = tensor([[1.0, 2.0, 99.0], [6.0, math.nan, math.inf]]), tensor([[yes, yes, no], [yes, no, no]])
    assert maths.masked_mean(values, mask).item() == pytest.approx(3)
    assert maths.masked_var(values, mask).item() == pytest.approx(7)
    assert maths.masked_mean(values, torch.zeros_like(mask)).item() == 0
    assert maths.masked_var(values, tensor([[yes, no, no], [no, no, no]])).item() == 0


def test_whitening_by_hand() -> None:  # (11)
    # 0, 2, 4: mean 2, variance 4. Shifted: -1, 0, 1. Not shifted: the mean stays 2.
    values, mask = tensor([[0.0, 2.0, 4.0, 50.0]]), tensor([[yes, yes, yes, no]])
    assert maths.whiten(values, mask)[0].tolist() == pytest.approx([-1, 0, 1, 0])
    assert maths.whiten(values, mask, shift_mean=False)[0].tolist() == pytest.approx([1, 2, 3, 0])


def test_whitening_is_over_the_whole_batch_not_per_row() -> None:  # (11)
    white = maths.whiten(rollouts()["rewards"], rollouts()["mask"])
    mask = rollouts()["mask"]
    assert maths.masked_mean(white, mask).item() == pytest.approx(0, abs=1e-12)
    assert maths.masked_var(white, mask).item() == pytest.approx(1, abs=1e-6)
    assert maths.masked_mean(white[:2], mask[:2]).abs() > 0.1


def test_explained_variance_by_hand() -> None:  # (12)
    # returns 0, 2, 4 vary by 4. Exact values explain all; a constant none; errors 0, 1, -1 vary by 1: 1 - 1/4.
    returns, mask = tensor([[0.0, 2.0, 4.0, 9.0]]), tensor([[yes, yes, yes, no]])
    assert maths.explained_variance(returns.clone(), returns, mask) == pytest.approx(1)
    assert maths.explained_variance(torch.full_like(returns, 7.0), returns, mask) == pytest.approx(0)
    assert maths.explained_variance(tensor([[0.0, 1.0, 5.0, -9.0]]), returns, mask) == pytest.approx(0.75)
    assert maths.explained_variance(returns, torch.ones_like(returns), mask) is None


# KL


def test_kl_estimators_by_hand() -> None:  # (9)
    # p = 1/2, ref = 1/4: k1 = ln 2; k3 = 1/2 - 1 - ln(1/2) = ln 2 - 1/2
    p, ref, here = tensor([0.5]).log(), tensor([0.25]).log(), tensor([yes])
    assert maths.kl_k1(p, ref, here).item() == pytest.approx(math.log(2))
    assert maths.kl_k3(p, ref, here).item() == pytest.approx(math.log(2) - 0.5)
    # sampled under old = 1/8, p/old = 4
    assert maths.kl_k3(p, ref, here, old_logprobs=tensor([0.125]).log()).item() == pytest.approx(4 * (math.log(2) - 0.5))


@given(st.floats(-60, 0), st.floats(-60, 0))
def test_k3_is_never_negative(p: float, ref: float) -> None:  # (9)
    for dtype in (torch.float32, torch.float64):
        assert maths.kl_k3(tensor([p], dtype=dtype), tensor([ref], dtype=dtype), tensor([yes])).item() >= 0
    assert maths.kl_k3(tensor([p]), tensor([p]), tensor([yes])).item() == 0


def test_k3_is_never_negative_next_to_zero() -> None:  # (9)
    gaps = torch.linspace(-1e-3, 1e-3, 20_001)  # here exp(gap) - 1 - gap is mostly rounding
    assert maths.kl_k3(gaps, torch.zeros_like(gaps), gaps == gaps).min().item() >= 0


@pytest.mark.parametrize("gap", [-1e4, -100.0, 100.0, 1e4, math.inf])
def test_no_log_ratio_makes_an_infinite_gradient(gap: float) -> None:  # (9)
    logprobs = tensor([[-1.0 - gap if math.isfinite(gap) else -1.0]], requires_grad=True)
    reference = tensor([[-1.0 if math.isfinite(gap) else -math.inf]])
    ones, mask = torch.ones(1, 1), tensor([[yes]])
    losses, stats = policy_losses(logprobs, tensor([[-1.0]]), ones, mask)
    total = (
        losses + maths.kl_k3(logprobs, reference, mask, old_logprobs=tensor([[-1.0]])) + maths.kl_k1(logprobs, reference, mask)
    )
    (total.sum() * 0).backward()  # as a weight of 0 would: inf x 0 is NaN
    assert torch.isfinite(total).all() and torch.isfinite(logprobs.grad).all()
    assert all(math.isfinite(value) for value in stats.means().values())


def test_only_with_the_ratio_is_the_gradient_that_of_the_kl() -> None:  # (9)
    # Exact expectations over four words, sampled under old = p (the first step, ratio 1).
    logits = tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    logp, ref = torch.log_softmax(logits, 0), torch.log_softmax(tensor([1.0, 0.0, -1.0, 0.5], dtype=torch.float64), 0)
    (true,) = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)
    old, here = logp.detach(), torch.ones(4, dtype=torch.bool)
    (with_ratio,) = torch.autograd.grad(
        (old.exp() * maths.kl_k3(logp, ref, here, old_logprobs=old)).sum(), logits, retain_graph=True
    )
    (without,) = torch.autograd.grad((old.exp() * maths.kl_k3(logp, ref, here)).sum(), logits)
    torch.testing.assert_close(with_ratio, true)
    assert (without - true).abs().max() > 0.1


# Control


def test_the_kl_controller_by_hand() -> None:  # (14)
    control = AdaptiveKL(beta=0.2, target=6.0, horizon=256)
    # KL 6.6 is 10 % above: e = .1, 128 samples: .2 x exp(.1 x 128 / 256)
    assert control.after(6.6, 128).beta == pytest.approx(0.2 * 1.0512711)
    assert control.after(60.0, 128).beta == pytest.approx(0.2 * 1.6487213)  # e is kept at 1: exp(.5)
    assert control.after(-60.0, 128).beta == pytest.approx(0.2 * 0.9048374)  # and at -.2
    assert control.after(6.0, 256).beta == 0.2
    assert AdaptiveKL(0.2, None).after(60.0, 128).beta == 0.2  # no target: it stays


def test_beta_is_back_in_time_after_a_long_calm() -> None:  # (14)
    """Forty steps far below the target, then one far above: within its range beta needs a few steps, not as many again."""
    control = AdaptiveKL(beta=0.02, target=0.5, horizon=192, low=0.002, high=20.0)
    for _ in range(40):
        control = control.after(0.0, 128)
    assert control.beta == 0.002
    for _ in range(4):
        control = control.after(5.0, 128)
    assert control.beta > 0.02


def test_the_kl_controller_goes_through_json() -> None:  # (14, 25)
    control = AdaptiveKL(beta=0.2, target=6.0).after(7.3, 64)
    assert AdaptiveKL(**json.loads(json.dumps(control.state()))) == control


def test_the_kl_controller_refuses_what_would_break_it() -> None:  # (14)
    with pytest.raises(AssertionError, match="not finite"):
        AdaptiveKL(beta=0.2, target=6.0).after(math.nan, 64)
    with pytest.raises(AssertionError, match=r"horizon must be at least 64"):
        AdaptiveKL(beta=0.2, target=6.0, horizon=12).after(1.0, 64)


@given(st.lists(st.floats(-1e3, 1e3), max_size=30))
def test_beta_stays_positive(kls: list[float]) -> None:  # (14)
    control = AdaptiveKL(beta=0.2, target=6.0, horizon=500)
    for kl in kls:
        control = control.after(kl, 499)
    assert 0 < control.beta < math.inf


def test_an_epoch_stops_beyond_one_and_a_half_targets() -> None:  # (14)
    assert maths.should_stop(0.151, 0.1) and not maths.should_stop(0.15, 0.1)
    assert not maths.should_stop(-1.0, 0.1)
