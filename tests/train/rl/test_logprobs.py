"""Chunked log-probabilities: the numbers and gradients of log_softmax, without its memory."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from medloop.train.rl.logprobs import logits_logprobs, token_logprobs

B, T, H, V = 3, 5, 8, 37


def batch(seed: int = 0, dtype: torch.dtype = torch.float32, *, bias: bool = False):
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(B, T, H, generator=draw, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, H, generator=draw, dtype=dtype, requires_grad=True)
    targets = torch.randint(V, (B, T), generator=draw)
    return hidden, weight, targets, torch.randn(V, generator=draw, dtype=dtype, requires_grad=True) if bias else None


def naive(hidden, weight, targets, temperature, bias=None, softcap=None):
    logits = torch.nn.functional.linear(hidden, weight, bias)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    every = torch.log_softmax(logits / temperature, -1)
    return every.gather(-1, targets[..., None])[..., 0], -(every.exp() * every).sum(-1)


class Watch(TorchDispatchMode):
    """Remembers the biggest tensor that any operation made, counts matrix products, and knows which operations ran."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = self.products = 0
        self.operations: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm)
        self.operations.add(str(func.overloadpacket))
        for tensor in output if isinstance(output, tuple | list) else [output]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return output


def test_a_hand_worked_row() -> None:
    # logits (ln 1, ln 3) at temperature 1: p = 1/4, 3/4. At 0.5 they count squared: p = 1/10, 9/10.
    hidden, weight, targets = torch.ones(1, 2, 1), torch.tensor([[0.0], [math.log(3)]]), torch.tensor([[0, 1]])
    warm = token_logprobs(hidden, weight, targets, temperature=1.0, entropy="value")
    assert warm.logprobs[0].exp().tolist() == pytest.approx([0.25, 0.75])
    assert warm.entropy is not None and float(warm.entropy[0, 0]) == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3))
    cold = token_logprobs(hidden, weight, targets, temperature=0.5).logprobs
    assert cold[0].exp().tolist() == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("trained_head", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 15, 99])
def test_values_and_gradients_are_those_of_log_softmax(chunk: int, trained_head: bool, softcap: float | None) -> None:
    hidden, weight, targets, bias = batch(bias=True)
    weight.requires_grad_(trained_head), bias.requires_grad_(trained_head)
    learnt = [hidden, weight, bias] if trained_head else [hidden]
    pull = torch.randn(2, B, T, generator=torch.Generator().manual_seed(9))
    theirs = naive(hidden, weight, targets, 0.7, bias, softcap)
    ours = token_logprobs(hidden, weight, targets, temperature=0.7, bias=bias, softcap=softcap, entropy="gradient", chunk=chunk)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
    expected = torch.autograd.grad((pull[0] * theirs[0] + pull[1] * theirs[1]).sum(), learnt)
    gradients = torch.autograd.grad((pull[0] * ours.logprobs + pull[1] * ours.entropy).sum(), learnt)
    for mine, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("trained_head", [False, True])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_gradcheck_in_float64(softcap: float | None, trained_head: bool) -> None:
    hidden, weight, targets, bias = batch(1, torch.float64, bias=True)
    if not trained_head:
        weight, bias = weight.detach(), bias.detach()

    def scored(*tensors):
        return tuple(
            token_logprobs(
                tensors[0],
                tensors[1] if trained_head else weight,
                targets,
                temperature=1.3,
                bias=tensors[2] if trained_head else bias,
                softcap=softcap,
                entropy="gradient",
                chunk=4,
            )
        )

    assert torch.autograd.gradcheck(scored, (hidden, weight, bias) if trained_head else (hidden,), fast_mode=True)


@pytest.mark.parametrize("trained_head", [False, True])
def test_no_tensor_is_larger_than_a_chunk_of_logits(trained_head: bool) -> None:
    hidden, targets = torch.randn(4, 64, 4, requires_grad=True), torch.randint(1000, (4, 64))
    weight = torch.randn(1000, 4, requires_grad=trained_head)
    with Watch() as ours:
        scored = token_logprobs(hidden, weight, targets, temperature=1.0, entropy="gradient", chunk=8)
        (scored.logprobs.sum() + scored.entropy.sum()).backward()
    with Watch() as theirs:
        naive(hidden, weight, targets, 1.0)[0].sum().backward()
    assert ours.numbers == 8 * 1000
    assert theirs.numbers == 4 * 64 * 1000


def test_masked_tokens_are_not_computed_and_have_no_gradient() -> None:
    hidden, weight, targets, _ = batch()
    mask = torch.zeros(B, T, dtype=torch.bool)
    mask[0, 1:3] = mask[2, 0] = True
    spoilt = torch.where(mask[..., None], hidden.detach(), torch.nan).requires_grad_()
    scored = token_logprobs(spoilt, weight, targets, temperature=1.0, mask=mask, entropy="value")
    whole = token_logprobs(hidden, weight, targets, temperature=1.0, entropy="value")
    torch.testing.assert_close(scored.logprobs, torch.where(mask, whole.logprobs, 0.0))
    torch.testing.assert_close(scored.entropy, torch.where(mask, whole.entropy, 0.0))
    scored.logprobs.sum().backward()
    assert torch.equal(spoilt.grad[~mask], torch.zeros_like(spoilt.grad[~mask]))
    assert spoilt.grad[mask].abs().sum(-1).min() > 0


def test_an_empty_mask_gives_zeros_and_a_gradient_of_zero() -> None:
    hidden, weight, targets, _ = batch()
    scored = token_logprobs(hidden, weight, targets, temperature=1.0, mask=torch.zeros(B, T, dtype=torch.bool))
    scored.logprobs.sum().backward()
    assert not scored.logprobs.any() and not hidden.grad.any()


def test_entropy_as_a_value_has_no_gradient() -> None:
    hidden, weight, targets, _ = batch()
    assert not token_logprobs(hidden, weight, targets, temperature=1.0, entropy="value").entropy.requires_grad
    assert not logits_logprobs(hidden @ weight.T, targets, temperature=1.0, entropy="value").entropy.requires_grad


@pytest.mark.parametrize(("learns", "trained_head", "products"), [(False, False, 3), (True, False, 6), (True, True, 12)])
def test_each_chunk_is_projected_once_unless_the_head_is_trained(learns: bool, trained_head: bool, products: int) -> None:
    # 3 chunks. Nothing learns: 3 projections. Frozen head: and 3 derivatives. Trained: projected twice, and 2 x 3 gradients.
    hidden, weight, targets, _ = batch()
    hidden.requires_grad_(learns), weight.requires_grad_(trained_head)
    with Watch() as watch:
        logprobs = token_logprobs(hidden, weight, targets, temperature=1.0, entropy="value", chunk=5).logprobs
        if learns:
            logprobs.sum().backward()
    assert watch.products == products


def test_no_derivative_is_made_under_no_grad() -> None:
    hidden, weight, targets, _ = batch()
    with torch.no_grad(), Watch() as watch:
        assert not token_logprobs(hidden, weight.detach(), targets, temperature=1.0, chunk=5).logprobs.requires_grad
    assert watch.products == 3
    assert "aten.logsumexp" in watch.operations and "aten.exp" not in watch.operations  # nor any probability


def test_bfloat16_is_summed_in_float32() -> None:
    hidden, weight, targets, _ = batch(dtype=torch.bfloat16)
    scored = token_logprobs(hidden, weight, targets, temperature=0.7, chunk=4)
    logits = (hidden @ weight.T).float()
    exact = torch.log_softmax(logits / 0.7, -1).gather(-1, targets[..., None])[..., 0]
    assert scored.logprobs.dtype == torch.float32
    torch.testing.assert_close(scored.logprobs, exact, atol=1e-5, rtol=1e-5)


@given(seed=st.integers(0, 999), temperature=st.floats(0.1, 5), chunk=st.integers(1, 20))
def test_the_plain_way_agrees_with_the_chunked_one(seed: int, temperature: float, chunk: int) -> None:
    hidden, weight, targets, _ = batch(seed, torch.float64)
    chunked = token_logprobs(hidden, weight, targets, temperature=temperature, entropy="value", chunk=chunk)
    plain = logits_logprobs(hidden @ weight.T, targets, temperature=temperature, entropy="value")
    torch.testing.assert_close(chunked.logprobs, plain.logprobs)
    torch.testing.assert_close(chunked.entropy, plain.entropy)


def test_forbidden_tokens_take_no_part_in_the_entropy() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)  # two equal choices: ln 2
    scored = logits_logprobs(logits, torch.tensor([0]), temperature=0.7, entropy="gradient")
    assert scored.entropy.item() == pytest.approx(math.log(2))
    scored.entropy.sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_a_temperature_that_cannot_be_divided_by_is_refused(wrong: float) -> None:
    hidden, weight, targets, _ = batch()
    with pytest.raises(AssertionError, match="temperature must be above 0"):
        token_logprobs(hidden, weight, targets, temperature=wrong)
    with pytest.raises(AssertionError, match="temperature must be above 0"):
        logits_logprobs(hidden @ weight.T, targets, temperature=wrong)
