"""The mathematics of PPO and GRPO, by hand and by invariance. (n) is the item of the checklist in docs/stages/rl_maths.md."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from medloop.train.rl import maths
from medloop.train.rl.maths import AdaptiveKL, Window

EOS, PAD = 2, 0
KINDS = ("grpo", "bnpo", "dr_grpo", "dapo")
yes, no = True, False


def rollouts(seed: int = 0, rows: int = 6, columns: int = 7, dtype: torch.dtype = torch.float64) -> dict:
    """Random answers of different lengths, right-padded."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, columns + 1, (rows,), generator=draw)
    names = ("logprobs", "old", "reference", "values", "old_values", "rewards", "advantages")
    made = {name: torch.randn(rows, columns, generator=draw, dtype=dtype) for name in names}
    return {**made, "mask": torch.arange(columns) < lengths[:, None], "scores": torch.randn(rows, generator=draw, dtype=dtype)}


def padded(batch: dict, left: int, right: int, filler: float = math.nan) -> dict:
    """The same rollouts with columns of rubbish around them."""

    def pad(x):
        return x if x.dim() == 1 else torch.nn.functional.pad(x, (left, right), value=False if x.dtype == torch.bool else filler)

    return {name: pad(x) for name, x in batch.items()}


# Masks


def test_the_mask_ends_with_the_first_end_token() -> None:  # (6)
    tokens = tensor([[5, EOS, 7, EOS], [5, 6, 7, 8], [EOS, 5, 5, 5], [5, 9, EOS, 5]])
    expected = [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]
    assert maths.completion_mask(tokens, [EOS, 9]).int().tolist() == expected


def test_padding_with_the_end_token_is_padding() -> None:  # (6)
    tokens = tensor([[5, 6, EOS, EOS, EOS], [EOS, EOS, EOS, EOS, EOS]])
    assert maths.completion_mask(tokens, [EOS]).sum(1).tolist() == [3, 1]


def test_rows_cut_before_the_last_column_are_masked_by_length() -> None:  # (6)
    tokens = tensor([[5, 6, PAD, PAD], [5, EOS, PAD, PAD]])
    mask = maths.completion_mask(tokens, [EOS], lengths=tensor([2, 4]))
    assert mask.sum(1).tolist() == [2, 2]
    assert maths.has_ended(tokens, mask, [EOS]).tolist() == [False, True]


def test_an_end_token_outside_the_mask_does_not_end_an_answer() -> None:  # (8)
    assert maths.has_ended(tensor([[5, 6, EOS]]), tensor([[yes, yes, no]]), [EOS]).tolist() == [False]


def test_positions_count_from_the_first_real_token() -> None:  # (3)
    mask = tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    assert maths.position_ids(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_absolute_positions_are_wrong_without_position_ids() -> None:  # (3)
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = {"vocab_size": 20, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 1.0}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)).eval()
    bare, left = tensor([[5, 6, 7]]), tensor([[PAD, PAD, 5, 6, 7]])
    attention = left != PAD
    with torch.no_grad():
        alone = model(input_ids=bare).logits
        told = model(input_ids=left, attention_mask=attention, position_ids=maths.position_ids(attention)).logits[:, 2:]
        untold = model(input_ids=left, attention_mask=attention, position_ids=torch.arange(5)[None]).logits[:, 2:]
    torch.testing.assert_close(told, alone, atol=1e-5, rtol=1e-5)
    assert (untold - alone).abs().max() > 0.1


def test_the_last_token_is_the_last_real_one() -> None:  # (8)
    mask = tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()
    assert maths.last_token(mask).int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


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
    assert maths.kl_k3(p, ref, here, old=tensor([0.125]).log()).item() == pytest.approx(4 * (math.log(2) - 0.5))


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
    losses, stats = maths.policy_losses(logprobs, tensor([[-1.0]]), ones, mask)
    total = losses + maths.kl_k3(logprobs, reference, mask, old=tensor([[-1.0]])) + maths.kl_k1(logprobs, reference, mask)
    (total.sum() * 0).backward()  # as a weight of 0 would: inf x 0 is NaN
    assert torch.isfinite(total).all() and torch.isfinite(logprobs.grad).all()
    assert all(math.isfinite(value) for value in stats.means().values())


def test_only_with_the_ratio_is_the_gradient_that_of_the_kl() -> None:  # (9)
    # Exact expectations over four words, sampled under old = p (the first step, ratio 1).
    logits = tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    logp, ref = torch.log_softmax(logits, 0), torch.log_softmax(tensor([1.0, 0.0, -1.0, 0.5], dtype=torch.float64), 0)
    (true,) = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), logits, retain_graph=True)
    old, here = logp.detach(), torch.ones(4, dtype=torch.bool)
    (with_ratio,) = torch.autograd.grad((old.exp() * maths.kl_k3(logp, ref, here, old=old)).sum(), logits, retain_graph=True)
    (without,) = torch.autograd.grad((old.exp() * maths.kl_k3(logp, ref, here)).sum(), logits)
    torch.testing.assert_close(with_ratio, true)
    assert (without - true).abs().max() > 0.1


# Rewards per token


def ppo_rewards(**changes):
    """Two answers: one of two tokens that ended, one of three that was cut. k1 is .5 everywhere, beta .1."""
    given = {
        "scores": tensor([2.0, 1.0]),
        "logprobs": torch.full((2, 3), -1.0),
        "reference": torch.full((2, 3), -1.5),
        "mask": tensor([[yes, yes, no], [yes, yes, yes]]),
        "present": tensor([yes, yes]),
        "ended": tensor([yes, no]),
        "beta": 0.1,
    }
    return maths.token_rewards(**{**given, **changes})


def test_the_score_is_paid_on_the_last_real_token_and_kl_on_each() -> None:  # (8, 9)
    expected = tensor([[-0.05, 2 - 0.05, 0], [-0.05, -0.05, 1 - 0.05]])
    torch.testing.assert_close(ppo_rewards().rewards, expected)
    torch.testing.assert_close(ppo_rewards().kl, tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.5]]))


def test_a_cut_answer_pays_on_its_last_token() -> None:  # (8)
    fined = ppo_rewards(missing_eos_penalty=0.7).rewards - ppo_rewards().rewards
    torch.testing.assert_close(fined, tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -0.7]]))


def test_a_missing_score_takes_its_row_out_instead_of_counting_as_zero() -> None:  # (21)
    found = ppo_rewards(scores=tensor([2.0, math.nan]), present=tensor([yes, no]))
    assert not found.mask[1].any() and not found.rewards[1].any() and not found.kl[1].any()
    torch.testing.assert_close(found.rewards[0], ppo_rewards().rewards[0])


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
    advantages, returns = maths.gae(tensor([[0.0, 4.0, 9.0]]), tensor([[1.0, 2.0, 9.0]]), tensor([[yes, yes, no]]), lam=0.5)
    assert advantages.tolist() == [[2.0, 2.0, 0.0]]
    assert returns.tolist() == [[3.0, 4.0, 0.0]]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (1.0, 1.0), (0.9, 0.8), (1.0, 0.0)])
@pytest.mark.parametrize("bootstrapped", [False, True])
def test_gae_is_the_sum_of_its_definition(gamma: float, lam: float, bootstrapped: bool) -> None:  # (10)
    batch = rollouts()
    rewards, values, mask = batch["rewards"], batch["old_values"], batch["mask"]
    after = batch["scores"] if bootstrapped else None
    advantages, returns = maths.gae(rewards, values, mask, gamma=gamma, lam=lam, bootstrap=after)
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
    return maths.group_advantages(rewards, groups, present=present, **options)


def test_group_advantages_by_hand() -> None:  # (18)
    # 1, 2, 3, 6: mean 3, spread sqrt((4 + 1 + 0 + 9) / 3) = 2.1602
    found = relative([1, 2, 3, 6], eps=0.0)
    assert found.values.tolist() == pytest.approx([-0.92582, -0.46291, 0, 1.38873], abs=1e-5)
    assert relative([1, 2, 3, 6], scale="none").values.tolist() == [-2, -1, 0, 3]
    # with 0, 0, 0, 4 beside it: mean 1 there, all eight 0 0 0 1 2 3 4 6 have mean 2, spread sqrt(34 / 7) = 2.2039
    both = relative([1, 2, 3, 6, 0, 0, 0, 4], scale="batch", eps=0.0).values * math.sqrt(34 / 7)
    assert both.tolist() == pytest.approx([-2, -1, 0, 3, -1, -1, -1, 3])


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_flat_group_is_exactly_zero_and_counted(scale: str) -> None:  # (18)
    # The mean of three times 0.1 is not 0.1 in floating point; divided by eps it would pull.
    found = relative([0.1, 0.1, 0.1, 0.0, 1.0, 2.0], size=3, scale=scale)
    assert found.values[:3].tolist() == [0, 0, 0] and found.values[3:].abs().sum() > 1
    assert (found.groups, found.flat_groups) == (2, 1)


def test_missing_rewards_are_no_part_of_the_baseline() -> None:  # (21)
    found = relative([1, 3, math.nan, math.nan], eps=0.0)  # mean 2, spread sqrt 2; the missing as 0 would make the mean 1
    assert found.values.tolist() == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5), 0, 0])
    assert (found.missing, found.flat_groups) == (2, 0)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_reward_alone_in_its_group_teaches_nothing(scale: str) -> None:  # (21)
    found = relative([5, math.nan, math.nan, math.nan] + [math.nan] * 4, scale=scale)
    assert not found.values.any()
    assert (found.flat_groups, found.missing) == (2, 7)


def test_groups_must_stand_together_and_be_equal() -> None:  # (18)
    rewards, present = torch.zeros(4), torch.ones(4, dtype=torch.bool)
    with pytest.raises(AssertionError, match="must stand together"):
        maths.group_advantages(rewards, ["a", "b", "a", "b"], present=present)
    with pytest.raises(AssertionError, match=r"same number of samples, here there are \[1, 3\]"):
        maths.group_advantages(rewards, ["a", "a", "a", "b"], present=present)


JUDGE_FAILED = tensor([[1, 0.8], [1, 0.8], [1, 0.8], [1, math.nan]], dtype=torch.float64)


def several(rewards, weights, size=4, **options):
    groups = [n // size for n in range(len(rewards))]
    weights = tensor(weights, dtype=rewards.dtype)
    return maths.gdpo_advantages(rewards, groups, weights, present=~torch.isnan(rewards), **options)


def test_one_failed_judge_does_not_make_a_good_answer_bad() -> None:  # (21, 22)
    # As a zero in the sum, the failure costs the fourth answer 1.5 spreads.
    as_zero = relative(JUDGE_FAILED.nan_to_num().sum(1).tolist())
    assert as_zero.values.tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-3)
    found = several(JUDGE_FAILED, [1.0, 1.0])
    assert found.values.tolist() == [0, 0, 0, 0]
    assert (found.flat_groups, found.missing) == (1, 0)


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
    found = several(rewards, [1.0, 0.5])
    scored = found.values[:3]
    assert found.missing == 1 and found.values[3] == 0
    assert scored.mean().item() == pytest.approx(0, abs=1e-12) and scored.std().item() == pytest.approx(1, abs=1e-3)


# Policy loss


@pytest.mark.parametrize(
    ("ratio", "advantage", "options", "loss", "slope"),
    [  # slope: d loss / d logprob = -A r where the gradient passes, 0 where it is cut
        (1.0, 2.0, {}, -2.0, -2.0),
        (1.5, 1.0, {}, -1.2, 0.0),  # good and grown enough: cut at 1 + .2
        (1.5, -1.0, {}, 1.5, 1.5),  # bad and grown: the pessimist keeps pulling
        (0.5, -1.0, {}, 0.8, 0.0),  # bad and shrunk enough: cut at 1 - .2
        (0.5, 1.0, {}, -0.5, -0.5),  # good and shrunk: pulled back
        (1.25, 1.0, {"clip_high": 0.28}, -1.25, -1.25),
        (1.5, 1.0, {"clip_high": 0.28}, -1.28, 0.0),
        (0.75, -1.0, {"clip_high": 0.28}, 0.8, 0.0),
        (10.0, -1.0, {"dual_clip": 3.0}, 3.0, 0.0),  # ran away: bounded at c |A|
        (2.0, -1.0, {"dual_clip": 3.0}, 2.0, 2.0),
        (10.0, 1.0, {"dual_clip": 3.0}, -1.2, 0.0),  # only bad tokens have the second clip
    ],
)
def test_the_clipped_objective_by_hand(ratio, advantage, options, loss, slope) -> None:  # (13)
    logprobs = tensor([[math.log(ratio) - 1]], dtype=torch.float64, requires_grad=True)
    losses, _ = maths.policy_losses(logprobs, torch.full_like(logprobs, -1.0), tensor([advantage]), tensor([[yes]]), **options)
    losses.sum().backward()
    assert losses.item() == pytest.approx(loss)
    assert logprobs.grad.item() == pytest.approx(slope)


def test_stats_by_hand() -> None:  # (4, 13)
    # The clip cuts what is good and has grown, or bad and has shrunk: the first two of five; the sixth is masked.
    ratios, mask = tensor([[2.0, 0.5, 1.0, 2.0, 0.5, 9.0]]), tensor([[yes, yes, yes, yes, yes, no]])
    advantages = tensor([[1.0, -1.0, 1.0, -1.0, 1.0, 1.0]])
    _, stats = maths.policy_losses(ratios.log(), torch.zeros(1, 6), advantages, mask)
    found = stats.means()
    assert found["ratio"] == pytest.approx(6 / 5)
    assert found["approx_kl"] == pytest.approx(1 / 5)  # r - 1 - ln r: 1 - ln 2 and -1/2 + ln 2, twice, and 0
    assert (found["clipped_low"], found["clipped_high"]) == pytest.approx((1 / 5, 1 / 5))
    assert found["clip_fraction"] == pytest.approx(2 / 5)


def test_the_first_step_has_ratio_one_and_nothing_clipped() -> None:  # (4)
    batch = rollouts(dtype=torch.float32)
    _, stats = maths.policy_losses(batch["logprobs"], batch["logprobs"].clone(), batch["advantages"], batch["mask"])
    assert stats.means() == {"ratio": 1, "approx_kl": 0, "clipped_low": 0, "clipped_high": 0, "clip_fraction": 0}


def test_one_advantage_per_answer_is_the_same_on_each_token() -> None:  # (13)
    batch = rollouts()
    spread = batch["scores"][:, None].expand_as(batch["mask"])
    per_answer, _ = maths.policy_losses(batch["logprobs"], batch["old"], batch["scores"], batch["mask"])
    per_token, _ = maths.policy_losses(batch["logprobs"], batch["old"], spread, batch["mask"])
    assert torch.equal(per_answer, per_token)


@pytest.mark.parametrize(
    ("kind", "short", "long"), [("grpo", 0.05, 0.005), ("dr_grpo", 0.005, 0.005), ("dapo", 1 / 110, 1 / 110)]
)
def test_length_bias(kind: str, short: float, long: float) -> None:  # (19)
    # Lengths 10 and 100 of at most 100, advantage 1. grpo: 1/2 x 1/10 and 1/2 x 1/100. dr_grpo: 1 / (2 x 100). dapo: 1/110.
    logprobs = torch.zeros(2, 100, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(100) < tensor([[10], [100]])
    losses, _ = maths.policy_losses(logprobs, logprobs.detach(), torch.ones(2), mask)
    maths.aggregate(losses, mask, Window.of(mask, 100), kind).backward()
    assert logprobs.grad[0, 0].item() == pytest.approx(-short)
    assert logprobs.grad[1, 0].item() == pytest.approx(-long)
    assert not logprobs.grad[0, 10:].any()


def test_windows_count_what_is_learnt_from() -> None:  # (8, 20)
    mask = tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]]).bool()
    assert Window.of(mask, 3) == Window(rows=3, tokens=6, max_length=3)
    assert Window.of(mask, 3, steps=2) == Window(rows=1.5, tokens=3, max_length=3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_masked_out_leaves_numerator_and_denominator(kind: str) -> None:  # (8)
    batch = rollouts()
    whole, less = batch["mask"], {name: x[1:] for name, x in batch.items()}
    masked = whole.clone()
    masked[0] = False
    assert loss_of({**batch, "mask": masked}, kind).item() == pytest.approx(loss_of(less, kind).item())


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_mask_leaves_out_is_in_no_sum(kind: str) -> None:  # (7)
    # 1 + 2 and 3 in three tokens of two rows of at most 2: grpo (3/2 + 3) / 2, dr_grpo 6 / (2 x 2), dapo 6 / 3
    losses, mask = tensor([[1.0, 2.0], [3.0, math.nan]]), tensor([[yes, yes], [yes, no]])
    expected = {"grpo": 2.25, "dr_grpo": 1.5, "dapo": 2.0, "bnpo": 2.0}
    assert maths.aggregate(losses, mask, Window.of(mask, 2), kind).item() == pytest.approx(expected[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_from_is_a_loss_of_zero(kind: str) -> None:  # (21)
    batch = rollouts()
    assert loss_of({**batch, "mask": torch.zeros_like(batch["mask"])}, kind).item() == 0


# Value loss


@pytest.mark.parametrize(
    ("value", "loss", "slope"),
    [  # old value 0, return 1, clip .2
        (0.1, 0.5 * 0.9**2, -0.9),  # within the clip: plain squared error
        (0.9, 0.5 * 0.8**2, 0.0),  # ran towards the return beyond the clip: held as at .2, no gradient
        (-0.5, 0.5 * 1.5**2, -1.5),  # ran away from it: the worse of the two is the plain one
        (2.5, 0.5 * 1.5**2, 1.5),  # overshot by more than the clipped error
    ],
)
def test_the_clipped_value_loss_by_hand(value: float, loss: float, slope: float) -> None:  # (12)
    values = tensor([[value, 7.0]], dtype=torch.float64, requires_grad=True)
    old, returns, mask = torch.zeros(1, 2), torch.ones(1, 2), tensor([[yes, no]])
    losses = maths.value_losses(values, old, returns, mask)
    losses.sum().backward()
    assert losses[0].tolist() == pytest.approx([loss, 0])
    assert values.grad[0].tolist() == pytest.approx([slope, 0])


# Invariances of whole losses


def loss_of(batch: dict, kind: str, window: Window | None = None) -> torch.Tensor:
    """Policy + KL + value loss of a batch, as one number."""
    mask, window = batch["mask"], window or Window.of(batch["mask"], 7)
    losses, _ = maths.policy_losses(batch["logprobs"], batch["old"], batch["advantages"], mask, dual_clip=3.0)
    losses = losses + 0.3 * maths.kl_k3(batch["logprobs"], batch["reference"], mask, old=batch["old"])
    value = maths.value_losses(batch["values"], batch["old_values"], batch["rewards"], mask)
    return maths.aggregate(losses, mask, window, kind) + 0.1 * maths.aggregate(value, mask, window, "dapo")


def everything(batch: dict) -> dict:
    """Every number that a batch gives, per token or in total."""
    mask, rows = batch["mask"], len(batch["scores"])
    paid = maths.token_rewards(
        batch["scores"],
        batch["logprobs"],
        batch["reference"],
        mask,
        present=torch.ones(rows, dtype=torch.bool),
        ended=torch.arange(rows) % 2 == 0,
        beta=0.1,
        missing_eos_penalty=1.0,
    )
    advantages, returns = maths.gae(paid.rewards, batch["old_values"], mask)
    white = maths.whiten(advantages, mask)
    losses, stats = maths.policy_losses(batch["logprobs"], batch["old"], white, mask)
    value = maths.value_losses(batch["values"], batch["old_values"], returns, mask)
    per_token = {"rewards": paid.rewards, "kl": paid.kl, "white": white, "returns": returns, "losses": losses, "value": value}
    total = {kind: maths.aggregate(losses, mask, Window.of(mask, 7), kind) for kind in KINDS}
    explained = maths.explained_variance(batch["values"], returns, mask)
    return {**{name: x[mask] for name, x in per_token.items()}, **total, **stats.means(), "explained": explained}


@pytest.mark.parametrize(("left", "right"), [(0, 3), (2, 0), (4, 1)])
@pytest.mark.parametrize("filler", [math.nan, 1e30])
def test_padding_columns_change_nothing(left: int, right: int, filler: float) -> None:  # (7)
    plain, wide = everything(rollouts()), everything(padded(rollouts(), left, right, filler))
    for name, value in plain.items():
        torch.testing.assert_close(torch.as_tensor(wide[name]), torch.as_tensor(value), msg=name)


@pytest.mark.parametrize("filler", [50.0, math.nan])
def test_every_number_per_token_is_zero_outside_the_mask(filler: float) -> None:  # (7)
    batch = padded(rollouts(), 1, 2, filler)
    now, old, ref, mask = batch["logprobs"], batch["old"], batch["reference"], batch["mask"]
    value = maths.value_losses(batch["values"], batch["old_values"], batch["rewards"], mask)
    policy, _ = maths.policy_losses(now, old, batch["advantages"], mask)
    for losses in (value, policy, maths.kl_k1(now, ref, mask), maths.kl_k3(now, ref, mask, old=old)):
        assert not losses[~mask].any() and losses[mask].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filler", [50.0, math.inf, math.nan])
def test_masked_tokens_have_a_gradient_of_exactly_zero(kind: str, filler: float) -> None:  # (7)
    batch = padded(rollouts(), 1, 2, filler)
    learnt = [batch["logprobs"].requires_grad_(), batch["values"].requires_grad_()]
    loss_of(batch, kind).backward()
    for x in learnt:
        assert torch.equal(x.grad[~batch["mask"]], torch.zeros_like(x.grad[~batch["mask"]]))
        assert x.grad[batch["mask"]].any()


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 99), cut=st.integers(1, 5))
def test_loss_and_gradient_do_not_depend_on_the_micro_batches(kind: str, seed: int, cut: int) -> None:  # (20)
    batch = rollouts(seed)
    window = Window.of(batch["mask"], 7)
    whole = batch["logprobs"].clone().requires_grad_()
    loss = loss_of({**batch, "logprobs": whole}, kind, window)
    loss.backward()
    parts, total = batch["logprobs"].clone().requires_grad_(), 0.0
    for rows in (slice(0, cut), slice(cut, None)):
        piece = loss_of({name: x[rows] for name, x in {**batch, "logprobs": parts}.items()}, kind, window)
        piece.backward()  # accumulates
        total += piece.item()
    assert total == pytest.approx(loss.item())
    torch.testing.assert_close(parts.grad, whole.grad)


def test_stats_of_micro_batches_add_up() -> None:  # (20)
    batch = rollouts()
    names = ("logprobs", "old", "advantages", "mask")
    pieces = [maths.policy_losses(*(batch[name][rows] for name in names))[1] for rows in (slice(0, 1), slice(1, None))]
    whole = maths.policy_losses(*(batch[name] for name in names))[1].means()
    assert (pieces[0] + pieces[1]).means() == pytest.approx(whole)


@given(order=st.permutations(range(6)))
def test_the_order_of_the_batch_changes_nothing(order: list[int]) -> None:  # (20)
    batch = rollouts()
    shuffled = {name: x[order] for name, x in batch.items()}
    for kind in KINDS:
        assert loss_of(shuffled, kind).item() == pytest.approx(loss_of(batch, kind).item())
    torch.testing.assert_close(
        maths.whiten(shuffled["rewards"], shuffled["mask"]), maths.whiten(batch["rewards"], batch["mask"])[order]
    )


@given(order=st.permutations(range(4)), shift=st.floats(-5, 5))
def test_group_advantages_know_no_order_and_no_constant(order: list[int], shift: float) -> None:  # (18)
    rewards = [1.0, 2.0, 3.0, 6.0]
    moved = relative([rewards[n] + shift for n in order]).values
    assert moved.tolist() == pytest.approx(relative(rewards).values[order].tolist(), abs=1e-9)


# Control


def test_the_kl_controller_by_hand() -> None:  # (14)
    control = AdaptiveKL(beta=0.2, target=6.0, horizon=10_000)
    # KL 6.6 is 10 % above: e = .1, 256 samples: .2 x (1 + .1 x 256 / 10000)
    assert control.after(6.6, 256).beta == pytest.approx(0.2 * 1.00256)
    assert control.after(60.0, 256).beta == pytest.approx(0.2 * 1.00512)  # e is kept at .2
    assert control.after(-60.0, 256).beta == pytest.approx(0.2 * 0.99488)  # and at -.2
    assert control.after(6.0, 256).beta == 0.2


def test_the_kl_controller_goes_through_json() -> None:  # (14, 25)
    control = AdaptiveKL(beta=0.2, target=6.0).after(7.3, 64)
    assert AdaptiveKL(**json.loads(json.dumps(control.state()))) == control


def test_the_kl_controller_refuses_what_would_break_it() -> None:  # (14)
    with pytest.raises(AssertionError, match="not finite"):
        AdaptiveKL(beta=0.2, target=6.0).after(math.nan, 64)
    with pytest.raises(AssertionError, match=r"horizon must be above 12\.8"):
        AdaptiveKL(beta=0.2, target=6.0, horizon=12).after(1.0, 64)


@given(st.lists(st.floats(-1e3, 1e3), max_size=30))
def test_beta_stays_positive(kls: list[float]) -> None:  # (14)
    control = AdaptiveKL(beta=0.2, target=6.0, horizon=100)
    for kl in kls:
        control = control.after(kl, 499)
    assert 0 < control.beta < math.inf


def test_an_epoch_stops_beyond_one_and_a_half_targets() -> None:  # (14)
    assert maths.should_stop(0.151, 0.1) and not maths.should_stop(0.15, 0.1)
    assert not maths.should_stop(-1.0, 0.1)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_one_bad_number_is_noticed(poison: float) -> None:
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(3)]
    weights[0].grad, weights[1].grad = torch.ones(3), torch.zeros(3)  # the third has none
    assert maths.is_finite(tensor(1.0), weights)
    assert not maths.is_finite(tensor(poison), weights)
    weights[1].grad[2] = poison
    assert not maths.is_finite(tensor(1.0), weights)


def test_samples_of_another_engine_count_by_how_likely_they_are_here() -> None:
    own, sampled = torch.tensor([[-1.0, -2.0, -1.0]]), torch.tensor([[-1.0, -1.0, -9.0]])
    mask = torch.tensor([[True, True, True]])
    weights = maths.rollout_weights(own, sampled, mask, 3.0)
    assert weights.tolist() == [[1.0, pytest.approx(math.exp(-1)), 3.0]]
    plain, _ = maths.policy_losses(own, own, torch.tensor([2.0]), mask)
    weighed, _ = maths.policy_losses(own, own, torch.tensor([2.0]), mask, weights=weights)
    assert torch.equal(weighed, plain * weights)
    assert float(maths.rollout_drift(own, sampled, torch.tensor([[True, True, False]]))) == 1.0
