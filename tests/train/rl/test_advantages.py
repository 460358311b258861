"""Rewards per token and advantages, by hand. (n) is the item of the checklist in docs/stages/rl_maths.md."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_rollouts import rollouts
from torch import tensor

from medloop.train.rl.advantages import gae, gdpo_advantages, group_advantages, last_token, token_rewards

yes, no = True, False


# Rewards per token


def test_the_last_token_is_the_last_real_one() -> None:  # (8)
    mask = tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()
    assert last_token(mask).int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def ppo_rewards(**changes):
    """Two answers: one of two tokens that ended, one of three that was truncated. k1 is .5 everywhere, beta .1."""
    given = {
        "scores": tensor([2.0, 1.0]),
        "logprobs": torch.full((2, 3), -1.0),
        "reference": torch.full((2, 3), -1.5),
        "mask": tensor([[yes, yes, no], [yes, yes, yes]]),
        "present": tensor([yes, yes]),
        "ended": tensor([yes, no]),
        "beta": 0.1,
    }
    return token_rewards(**{**given, **changes})


def test_the_score_is_paid_on_the_last_real_token_and_kl_on_each() -> None:  # (8, 9)
    expected = tensor([[-0.05, 2 - 0.05, 0], [-0.05, -0.05, 1 - 0.05]])
    torch.testing.assert_close(ppo_rewards().rewards, expected)
    torch.testing.assert_close(ppo_rewards().kl, tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.5]]))


def test_a_truncated_answer_pays_on_its_last_token() -> None:  # (8)
    fined = ppo_rewards(missing_eos_penalty=0.7).rewards - ppo_rewards().rewards
    torch.testing.assert_close(fined, tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -0.7]]))


def test_a_missing_score_takes_its_row_out_instead_of_counting_as_zero() -> None:  # (21)
    result = ppo_rewards(scores=tensor([2.0, math.nan]), present=tensor([yes, no]))
    assert not result.mask[1].any() and not result.rewards[1].any() and not result.kl[1].any()
    torch.testing.assert_close(result.rewards[0], ppo_rewards().rewards[0])


def test_a_nan_that_claims_to_be_a_score_is_refused() -> None:  # (21)
    with pytest.raises(AssertionError, match="mark it missing"):
        ppo_rewards(scores=tensor([2.0, math.nan]))


# GAE


def brute_force(rewards, values, gamma, lam, after):
    """The definition: a discounted sum of all later TD errors, for one answer without padding."""
    following = [*values[1:], after]
    deltas = [r + gamma * n - v for r, v, n in zip(rewards, values, following, strict=True)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]


def test_gae_by_hand() -> None:  # (10)
    # gamma 1, lambda .5; values 1, 2; reward 4 at the end. Deltas: 0 + 2 - 1 = 1; 4 - 2 = 2. A = 1 + .5 x 2, 2.
    advantages, returns = gae(tensor([[0.0, 4.0, 9.0]]), tensor([[1.0, 2.0, 9.0]]), tensor([[yes, yes, no]]), lam=0.5)
    assert advantages.tolist() == [[2.0, 2.0, 0.0]]
    assert returns.tolist() == [[3.0, 4.0, 0.0]]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (1.0, 1.0), (0.9, 0.8), (1.0, 0.0)])
@pytest.mark.parametrize("bootstrapped", [False, True])
def test_gae_is_the_sum_of_its_definition(gamma: float, lam: float, bootstrapped: bool) -> None:  # (10)
    batch = rollouts()
    rewards, values, mask = batch["rewards"], batch["old_values"], batch["mask"]
    after = batch["scores"] if bootstrapped else None
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam, bootstrap=after)
    for row, length in enumerate(mask.sum(1).tolist()):
        tail = float(batch["scores"][row]) if bootstrapped else 0.0
        expected = brute_force(rewards[row, :length].tolist(), values[row, :length].tolist(), gamma, lam, tail)
        assert advantages[row, :length].tolist() == pytest.approx(expected)
    torch.testing.assert_close(returns[mask], (advantages + values)[mask])
    assert not advantages[~mask].any() and not returns[~mask].any()


# Groups


def relative(rewards, present=None, size=4, **options):
    rewards = tensor(rewards, dtype=torch.float64)
    groups = [n // size for n in range(len(rewards))]
    present = ~torch.isnan(rewards) if present is None else present
    return group_advantages(rewards, groups, present=present, **options)


def test_group_advantages_by_hand() -> None:  # (18)
    # 1, 2, 3, 6: mean 3, spread sqrt((4 + 1 + 0 + 9) / 3) = 2.1602
    result = relative([1, 2, 3, 6], eps=0.0)
    assert result.values.tolist() == pytest.approx([-0.92582, -0.46291, 0, 1.38873], abs=1e-5)
    assert relative([1, 2, 3, 6], scale="none").values.tolist() == [-2, -1, 0, 3]
    # with 0, 0, 0, 4 beside it: mean 1 there, all eight 0 0 0 1 2 3 4 6 have mean 2, spread sqrt(34 / 7) = 2.2039
    batch = relative([1, 2, 3, 6, 0, 0, 0, 4], scale="batch", eps=0.0).values * math.sqrt(34 / 7)
    assert batch.tolist() == pytest.approx([-2, -1, 0, 3, -1, -1, -1, 3])


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_flat_group_is_exactly_zero_and_counted(scale: str) -> None:  # (18)
    # The mean of three times 0.1 is not 0.1 in floating point; divided by eps it would pull.
    result = relative([0.1, 0.1, 0.1, 0.0, 1.0, 2.0], size=3, scale=scale)
    assert result.values[:3].tolist() == [0, 0, 0] and result.values[3:].abs().sum() > 1
    assert (result.groups, result.flat_groups) == (2, 1)


def test_missing_rewards_are_no_part_of_the_baseline() -> None:  # (21)
    result = relative([1, 3, math.nan, math.nan], eps=0.0)  # mean 2, spread sqrt 2; the missing as 0 would make the mean 1
    assert result.values.tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5), 0, 0])
    assert (result.missing, result.flat_groups) == (2, 0)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_reward_alone_in_its_group_teaches_nothing(scale: str) -> None:  # (21)
    result = relative([5, math.nan, math.nan, math.nan] + [math.nan] * 4, scale=scale)
    assert not result.values.any()
    assert (result.flat_groups, result.missing) == (2, 7)


def test_groups_must_stand_together_and_be_equal() -> None:  # (18)
    rewards, present = torch.zeros(4), torch.ones(4, dtype=torch.bool)
    with pytest.raises(AssertionError, match="must stand together"):
        group_advantages(rewards, ["a", "b", "a", "b"], present=present)
    with pytest.raises(AssertionError, match=r"same number of samples, here there are \[1, 3\]"):
        group_advantages(rewards, ["a", "a", "a", "b"], present=present)


JUDGE_FAILED = tensor([[1, 0.8], [1, 0.8], [1, 0.8], [1, math.nan]], dtype=torch.float64)


def several(rewards, weights, size=4, **options):
    groups = [n // size for n in range(len(rewards))]
    weights = tensor(weights, dtype=rewards.dtype)
    return gdpo_advantages(rewards, groups, weights, present=~torch.isnan(rewards), **options)


def test_one_failed_judge_does_not_make_a_good_answer_bad() -> None:  # (21, 22)
    # As a zero in the sum, the failure costs the fourth answer 1.5 spreads.
    as_zero = relative(JUDGE_FAILED.nan_to_num().sum(1).tolist())
    assert as_zero.values.tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-3)
    result = several(JUDGE_FAILED, [1.0, 1.0])
    assert result.values.tolist() == [0, 0, 0, 0]
    assert (result.flat_groups, result.missing) == (1, 0)


def test_a_wide_reward_does_not_drown_a_narrow_one() -> None:  # (22)
    # In each pair each column becomes -+sqrt(1/2), whatever its width. In the first pair they disagree and cancel, in the
    # second they agree: 0, 0, -sqrt 2, sqrt 2. The batch divides by the spread sqrt(4 / 3). Weights 3 : 1 leave half as much.
    rewards = tensor([[0, 0.01], [100, 0], [0, 0], [9, 0.01]], dtype=torch.float64)
    equal = several(rewards, [1.0, 1.0], size=2, eps=1e-12).values
    assert equal.tolist() == pytest.approx([0, 0, -math.sqrt(1.5), math.sqrt(1.5)], abs=1e-9)
    tilted = several(rewards, [3.0, 1.0], size=2, eps=1e-12).values
    assert (tilted / tilted[3]).tolist() == pytest.approx([-0.5, 0.5, -1, 1])


def test_negative_reward_weights_are_refused() -> None:  # (22)
    with pytest.raises(AssertionError, match="must not be negative"):
        several(JUDGE_FAILED, [1.0, -1.0])


def test_rows_without_any_reward_are_out_of_the_batch_spread() -> None:  # (21, 22)
    rewards = tensor([[0.0, 0], [1, 2], [2, 1], [math.nan, math.nan]], dtype=torch.float64)
    result = several(rewards, [1.0, 0.5])
    scored = result.values[:3]
    assert result.missing == 1 and result.values[3] == 0
    assert scored.mean().item() == pytest.approx(0, abs=1e-12) and scored.std().item() == pytest.approx(1, abs=1e-3)


@given(order=st.permutations(range(4)), shift=st.floats(-5, 5))
def test_group_advantages_know_no_order_and_no_constant(order: list[int], shift: float) -> None:  # (18)
    rewards = [1.0, 2.0, 3.0, 6.0]
    moved = relative([rewards[n] + shift for n in order]).values
    assert moved.tolist() == pytest.approx(relative(rewards).values[order].tolist(), abs=1e-9)
