"""The fast training forward of each family on a CPU: the library's log-probabilities and gradients, in float32."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from medloop.models import forward_plain
from medloop.models.fast_forward import FastForward, open_fast_forward
from medloop.models.packing import pack
from medloop.models.rollout.build import build_fast_decoder
from medloop.testing.families import family_configs, family_twin, four_bit_twin
from medloop.train.rl.logprobs import token_logprobs

SHARED = list(range(3, 14))
PROMPTS = [SHARED, SHARED, [5, 6, 7], SHARED, [200]]
ANSWERS = [list(range(20, 29)), [4], list(range(40, 57)), list(range(100, 124)), [1, 2, 3, 4, 5]]
WEIGHTS = torch.tensor([1.0, -0.5, 0.3, -1.0, 0.7])


def library_loss(model: Any) -> torch.Tensor:
    total = torch.zeros(())
    for prompt, answer, weight in zip(PROMPTS, ANSWERS, WEIGHTS, strict=True):
        logits = model(input_ids=torch.tensor([prompt + answer]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        total = total + logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum() * weight
    return total


def fast_loss(forward: FastForward) -> torch.Tensor:
    rows, predictors = pack(PROMPTS, ANSWERS, torch.device("cpu"))
    targets = torch.stack([F.pad(torch.tensor(a), (0, predictors.shape[1] - len(a)), value=-1) for a in ANSWERS])
    decoder = forward.decoder
    scored = token_logprobs(
        forward(rows)[predictors], decoder.lm_head, targets.clamp(min=0), temperature=1.0, mask=targets >= 0,
        softcap=decoder.logit_softcap,
    )  # fmt: skip
    return (scored.logprobs * WEIGHTS[:, None]).sum()


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("family", family_configs())
def test_loss_and_gradients_are_the_library_s(family: str) -> None:
    model = family_twin(family, adapter=True)
    loss = library_loss(model)
    expected = gradients(model, loss)
    forward = FastForward(build_fast_decoder(model, merge=False))
    ours = fast_loss(forward)
    assert torch.allclose(ours, loss, rtol=1e-4)
    assert (gradients(model, ours) - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("family", family_configs())
def test_of_a_base_in_four_bits_too(family: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    model = four_bit_twin(family, tmp_path, adapter=True)
    loss = library_loss(model)
    expected = gradients(model, loss)
    ours = fast_loss(open_fast_forward(model))
    assert torch.allclose(ours, loss, rtol=1e-4)
    assert (gradients(model, ours) - expected).norm() < 1e-4 * expected.norm()


def test_a_model_is_compared_with_the_library_before_it_is_trained() -> None:
    model = family_twin("gemma3", adapter=True)
    assert torch.allclose(fast_loss(open_fast_forward(model)), library_loss(model), rtol=1e-4)


@pytest.mark.parametrize("window", [4, 9, 10])
def test_padding_that_sees_no_key_leaves_gradients_finite(window: int) -> None:
    """A prompt longer than the window, shared by answers of different lengths."""
    rows, _ = pack([list(range(12))] * 2, [list(range(20, 23)), list(range(20, 25))], torch.device("cpu"))
    torch.manual_seed(0)
    q = torch.randn(len(rows.tokens), 2, 8, requires_grad=True)
    k, v = (torch.randn(len(rows.tokens), 1, 8, requires_grad=True) for _ in range(2))
    by_attended = torch.randn(q.shape)
    given = (rows, 0.3, window, None)
    plain = (q.detach(), k.detach(), v.detach())
    result, saved = forward_plain.attention(*plain, *given)
    own = forward_plain.attention_backward(by_attended, *plain, *given, saved)
    starts = zip(
        rows.query_starts.tolist(),
        rows.query_starts[1:].tolist(),
        rows.key_starts.tolist(),
        rows.key_starts[1:].tolist(),
        strict=False,
    )
    attended = []
    for first, end, key_first, key_end in starts:
        keys, values = (side[rows.key_index[key_first:key_end], 0] for side in (k, v))
        distance = torch.arange(len(keys) - (end - first), len(keys))[:, None] - torch.arange(len(keys))
        scores = (q[first:end].transpose(0, 1) @ keys.T * 0.3).masked_fill((distance < 0) | (distance >= window), -torch.inf)
        attended.append((scores.softmax(-1) @ values).transpose(0, 1))
    assert torch.allclose(result, torch.cat(attended), atol=1e-5)
    expected = torch.autograd.grad(torch.cat(attended), (q, k, v), by_attended)
    for mine, theirs in zip(own, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
