"""Sampling with products in bfloat16 on a CPU: as near to float32 as bfloat16 is, or not at all."""

from typing import Any

import pytest
import torch

from medloop.models.rollout import agreement
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.models.rollout.sampler import Sampler
from medloop.testing.families import family_configs, family_twin

PROMPTS = [[5, 6, 7], [*range(20, 41)], [40, 41, 42, 43, 44], [5, 6, 7], [100]]
STREAMS = [f"s{n}" for n in range(len(PROMPTS))]


@pytest.fixture(autouse=True)
def instructions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a processor that has them: the products are the same on any other, but slow."""
    found = {"avx512_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    return found


def low_sampler(model: Any) -> Sampler:
    return Sampler(model, stop_ids=[], pad_id=0, products=torch.bfloat16)


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("family", family_configs())
@torch.no_grad()
def test_a_family_samples_what_a_library_in_bfloat16_would(family: str, adapter: bool) -> None:
    model = family_twin(family, adapter=adapter, initializer_range=0.05)
    weights = {name: weight.clone() for name, weight in model.named_parameters()}
    sampler = low_sampler(model)
    assert sampler.backend == "fast_bfloat16"
    for row in sampler(PROMPTS, STREAMS, max_new_tokens=16):
        logits = model(input_ids=torch.tensor([[*row.prompt, *row.tokens]])).logits[0, len(row.prompt) - 1 : -1].float()
        exact = logits.log_softmax(-1).gather(1, torch.tensor(row.tokens)[:, None]).squeeze(1)
        assert 0 < (torch.tensor(row.logprobs) - exact).abs().mean() < 0.1
    for name, weight in model.named_parameters():
        assert weight.dtype == torch.float32 and torch.equal(weight, weights[name]), "training goes on in float32"


@torch.no_grad()
def test_an_update_too_small_for_bfloat16_is_not_rounded_away() -> None:
    """The adapter stays beside weights that are in bfloat16 already, as those of most models."""
    model = family_twin("llama", adapter=True)
    for name, weight in model.named_parameters():
        weight.copy_(weight * 1e-4 if "lora_B" in name else weight.bfloat16())
    decoder = build_fast_decoder(model, products=torch.bfloat16)
    linear, x = decoder.layers[0].gate_up_proj, torch.randn(9, 32, generator=torch.Generator().manual_seed(1))
    y, with_adapter = linear.with_lora_inputs(x), linear(x)
    assert y.dtype == torch.float32 and torch.equal(y, y.bfloat16().float()), "a product in bfloat16"
    with model.disable_adapter():
        decoder.refresh_if_changed()
        difference = with_adapter - linear(x)
    layers = (model.get_base_model().model.layers[0].mlp.gate_proj, model.get_base_model().model.layers[0].mlp.up_proj)
    exact = torch.cat([x @ (layer.get_delta_weight("default")).T for layer in layers], dim=1)
    assert (difference - exact).norm() < 0.02 * exact.norm()
    merged = (layers[0].base_layer.weight + layers[0].get_delta_weight("default")).bfloat16()
    assert (merged == layers[0].base_layer.weight).float().mean() > 0.9, "merged it would be"


def test_a_processor_without_instructions_samples_in_float32_and_says_so(
    instructions: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    instructions["avx512_bf16"] = False
    assert low_sampler(family_twin("llama", adapter=True)).backend == "fast"
    assert "does not multiply in bfloat16" in caplog.text and "no instructions for bfloat16" in caplog.text


def test_what_is_farther_than_bfloat16_would_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = family_twin("llama", adapter=True)
    exact = agreement.decoder_logprobs

    def farther(decoder: Any, *probe: Any) -> torch.Tensor:
        return exact(decoder, *probe) if decoder.merged else exact(decoder, *probe) * 1.1

    monkeypatch.setattr(agreement, "decoder_logprobs", farther)
    assert low_sampler(model).backend == "fast"
    assert "nats from float32" in caplog.text


def test_it_is_for_float32_models() -> None:
    with pytest.raises(UnsupportedModelError, match="not a float32 model"):
        build_fast_decoder(family_twin("llama", dtype=torch.bfloat16), products=torch.bfloat16)
