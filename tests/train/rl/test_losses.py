"""Losses by hand, and what must not change them. (n) is the item of the checklist in docs/stages/rl_maths.md."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_rollouts import KINDS, padded, rollouts
from torch import tensor

from medloop.train.rl import maths
from medloop.train.rl.advantages import gae, token_rewards
from medloop.train.rl.losses import Window, aggregate, policy_losses, rollout_drift, rollout_weights, value_losses

yes, no = True, False


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
    losses, _ = policy_losses(logprobs, torch.full_like(logprobs, -1.0), tensor([advantage]), tensor([[yes]]), **options)
    losses.sum().backward()
    assert losses.item() == pytest.approx(loss)
    assert logprobs.grad.item() == pytest.approx(slope)


def test_stats_by_hand() -> None:  # (4, 13)
    # The clip cuts what is good and has grown, or bad and has shrunk: the first two of five; the sixth is masked.
    ratios, mask = tensor([[2.0, 0.5, 1.0, 2.0, 0.5, 9.0]]), tensor([[yes, yes, yes, yes, yes, no]])
    advantages = tensor([[1.0, -1.0, 1.0, -1.0, 1.0, 1.0]])
    _, stats = policy_losses(ratios.log(), torch.zeros(1, 6), advantages, mask)
    means = stats.means()
    assert means["ratio"] == pytest.approx(6 / 5)
    assert means["approx_kl"] == pytest.approx(1 / 5)  # r - 1 - ln r: 1 - ln 2 and -1/2 + ln 2, twice, and 0
    assert (means["clipped_low"], means["clipped_high"]) == pytest.approx((1 / 5, 1 / 5))
    assert means["clip_fraction"] == pytest.approx(2 / 5)


def test_the_first_step_has_ratio_one_and_nothing_clipped() -> None:  # (4)
    batch = rollouts(dtype=torch.float32)
    _, stats = policy_losses(batch["logprobs"], batch["logprobs"].clone(), batch["advantages"], batch["mask"])
    assert stats.means() == {"ratio": 1, "approx_kl": 0, "clipped_low": 0, "clipped_high": 0, "clip_fraction": 0}


def test_one_advantage_per_answer_is_the_same_on_each_token() -> None:  # (13)
    batch = rollouts()
    spread = batch["scores"][:, None].expand_as(batch["mask"])
    per_answer, _ = policy_losses(batch["logprobs"], batch["old"], batch["scores"], batch["mask"])
    per_token, _ = policy_losses(batch["logprobs"], batch["old"], spread, batch["mask"])
    assert torch.equal(per_answer, per_token)


@pytest.mark.parametrize(
    ("kind", "short", "long"), [("grpo", 0.05, 0.005), ("dr_grpo", 0.005, 0.005), ("dapo", 1 / 110, 1 / 110)]
)
def test_length_bias(kind: str, short: float, long: float) -> None:  # (19)
    # Lengths 10 and 100 of at most 100, advantage 1. grpo: 1/2 x 1/10 and 1/2 x 1/100. dr_grpo: 1 / (2 x 100). dapo: 1/110.
    logprobs = torch.zeros(2, 100, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(100) < tensor([[10], [100]])
    losses, _ = policy_losses(logprobs, logprobs.detach(), torch.ones(2), mask)
    aggregate(losses, mask, Window.of(mask, 100), kind).backward()
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
    assert aggregate(losses, mask, Window.of(mask, 2), kind).item() == pytest.approx(expected[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_from_is_a_loss_of_zero(kind: str) -> None:  # (21)
    batch = rollouts()
    assert loss_of({**batch, "mask": torch.zeros_like(batch["mask"])}, kind).item() == 0


def test_samples_of_another_engine_count_by_how_likely_they_are_here() -> None:
    own, sampled = torch.tensor([[-1.0, -2.0, -1.0]]), torch.tensor([[-1.0, -1.0, -9.0]])
    mask = torch.tensor([[True, True, True]])
    weights = rollout_weights(own, sampled, mask, 3.0)
    assert weights.tolist() == [[1.0, pytest.approx(math.exp(-1)), 3.0]]
    plain, _ = policy_losses(own, own, torch.tensor([2.0]), mask)
    weighed, _ = policy_losses(own, own, torch.tensor([2.0]), mask, weights=weights)
    assert torch.equal(weighed, plain * weights)
    assert float(rollout_drift(own, sampled, torch.tensor([[True, True, False]]))) == 1.0


# Value loss


def test_the_value_loss_by_hand() -> None:  # (12)
    values, returns, mask = tensor([[0.1, 2.5, 7.0]]), torch.ones(1, 3), tensor([[yes, yes, no]])
    assert value_losses(values, returns, mask)[0].tolist() == pytest.approx([0.5 * 0.9**2, 0.5 * 1.5**2, 0])


# Invariances of whole losses


def loss_of(batch: dict, kind: str, window: Window | None = None) -> torch.Tensor:
    """Policy + KL + value loss of a batch, as one number."""
    mask, window = batch["mask"], window or Window.of(batch["mask"], 7)
    losses, _ = policy_losses(batch["logprobs"], batch["old"], batch["advantages"], mask, dual_clip=3.0)
    losses = losses + 0.3 * maths.kl_k3(batch["logprobs"], batch["reference"], mask, old_logprobs=batch["old"])
    value = value_losses(batch["values"], batch["rewards"], mask)
    return aggregate(losses, mask, window, kind) + 0.1 * aggregate(value, mask, window, "dapo")


def everything(batch: dict) -> dict:
    """Every number that a batch gives, per token or in total."""
    mask, rows = batch["mask"], len(batch["scores"])
    paid = token_rewards(
        batch["scores"],
        batch["logprobs"],
        batch["reference"],
        mask,
        present=torch.ones(rows, dtype=torch.bool),
        ended=torch.arange(rows) % 2 == 0,
        beta=0.1,
        missing_eos_penalty=1.0,
    )
    advantages, returns = gae(paid.rewards, batch["old_values"], mask)
    white = maths.whiten(advantages, mask)
    losses, stats = policy_losses(batch["logprobs"], batch["old"], white, mask)
    value = value_losses(batch["values"], returns, mask)
    per_token = {"rewards": paid.rewards, "kl": paid.kl, "white": white, "returns": returns, "losses": losses, "value": value}
    total = {kind: aggregate(losses, mask, Window.of(mask, 7), kind) for kind in KINDS}
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
    value = value_losses(batch["values"], batch["rewards"], mask)
    policy, _ = policy_losses(now, old, batch["advantages"], mask)
    for losses in (value, policy, maths.kl_k1(now, ref, mask), maths.kl_k3(now, ref, mask, old_logprobs=old)):
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
    pieces = [policy_losses(*(batch[name][rows] for name in names))[1] for rows in (slice(0, 1), slice(1, None))]
    whole = policy_losses(*(batch[name] for name in names))[1].means()
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
