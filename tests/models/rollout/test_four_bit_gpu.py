"""A base in 4 bits on a GPU: sampled by the captured graph, trained by the fast forward pass, its weights left in 4 bits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from medloop.models.packing import pack
from medloop.models.rollout.agreement import check_agreement
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import base_linear
from medloop.models.rollout.sampler import Sampler
from medloop.testing.families import family_configs, four_bit_twin
from medloop.train.rl.logprobs import logits_logprobs, token_logprobs

pytestmark = pytest.mark.gpu
pytest.importorskip("bitsandbytes")
SIZES: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "initializer_range": 0.05}
SHARED = list(range(3, 14))
PROMPTS = [SHARED, SHARED, [5, 6, 7], SHARED, [200]]
ANSWERS = [list(range(20, 29)), [4], list(range(40, 57)), list(range(100, 170)), [1, 2, 3, 4, 5]]
WEIGHTS = [1.0, -0.5, 0.3, -1.0, 0.7]
ROWS = [*range(64)]


def twin(family: str, folder: Path, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Any:
    return four_bit_twin(family, folder, adapter=True, dtype=dtype, device="cuda", **{**SIZES, **changes})


def sampled(sampler: Sampler, temperature: float = 1.0) -> Any:
    return sampler([SHARED] * len(ROWS), [f"s{row}" for row in ROWS], max_new_tokens=40, temperature=temperature)


@torch.no_grad()
def drift(model: Any, rollouts: Any) -> float:
    """Mean distance per token from the library's own 4-bit forward pass."""
    ids = torch.tensor([[*row.prompt, *row.tokens] for row in rollouts], device="cuda")
    logits = model(input_ids=ids).logits[:, len(SHARED) - 1 : -1].float()
    theirs = logits.log_softmax(-1).gather(2, ids[:, len(SHARED) :, None]).squeeze(2)
    ours = torch.tensor([row.logprobs for row in rollouts], device="cuda")
    return float((ours - theirs).abs().mean())


@pytest.mark.parametrize("family", family_configs())
def test_the_captured_graph_samples_what_the_library_s_four_bits_say(family: str, tmp_path: Path) -> None:
    model = twin(family, tmp_path)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    assert sampler.backend == "cuda_graph"
    rollouts = sampled(sampler)
    graphs = sampler._graphs._by_shape.values()  # type: ignore[union-attr]
    assert any(buffers.graph is not None for buffers in graphs), "it was captured"
    assert drift(model, rollouts) < 0.03
    assert [row.tokens for row in sampled(sampler)] == [row.tokens for row in rollouts]


def test_a_captured_graph_reads_an_adapter_that_was_trained(tmp_path: Path) -> None:
    model = twin("qwen2", tmp_path)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    before = sampled(sampler)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.05 * torch.randn_like(weight))
    after = sampled(sampler)
    assert [row.tokens for row in after] != [row.tokens for row in before]
    assert drift(model, after) < 0.03


def test_a_replay_makes_no_copy_of_the_weights(tmp_path: Path) -> None:
    model = twin("llama", tmp_path, hidden_size=1024, intermediate_size=4096, num_hidden_layers=6)
    layers = [base_linear(module) for name, module in model.named_modules() if name.endswith("_proj")]
    dense = 2 * sum(layer.in_features * layer.out_features for layer in layers)
    largest = 2 * 1024 * 2 * 4096
    start = torch.cuda.memory_allocated()
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - start < largest + dense * 0.05, "one matrix, the scales and the adapters"
    sampled(sampler)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    sampled(sampler)
    assert torch.cuda.max_memory_allocated() - held < dense / 2


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def library_loss(model: Any, *, low: bool) -> torch.Tensor:
    base, total = model.get_base_model(), torch.zeros((), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        for prompt, answer, weight in zip(PROMPTS, ANSWERS, WEIGHTS, strict=True):
            logits = base(input_ids=torch.tensor([prompt + answer], device="cuda"), use_cache=False).logits[
                0, len(prompt) - 1 : -1
            ]
            logprobs = logits_logprobs(logits, torch.tensor(answer, device="cuda"), temperature=0.7).logprobs
            total = total + logprobs.sum() * weight
    return total


@pytest.mark.parametrize("family", family_configs())
def test_gradients_are_as_near_to_float32_as_the_library_s(family: str, tmp_path: Path) -> None:
    from medloop.models.fast_forward import open_fast_forward  # triton

    exact = twin(family, tmp_path / "exact", torch.float32, saved=torch.bfloat16)
    model = twin(family, tmp_path / "low")
    exact.load_state_dict({name: weight for name, weight in model.state_dict().items() if "lora_" in name}, strict=False)
    truth, usual = gradients(exact, library_loss(exact, low=False)), gradients(model, library_loss(model, low=True))
    forward = open_fast_forward(model)
    assert forward.decoder.in_four_bits
    rows, predictors = pack(PROMPTS, ANSWERS, torch.device("cuda"))
    padded = [F.pad(torch.tensor(answer), (0, predictors.shape[1] - len(answer)), value=-1) for answer in ANSWERS]
    targets = torch.stack(padded).cuda()
    scored = token_logprobs(
        forward(rows)[predictors], forward.decoder.lm_head, targets.clamp(min=0), temperature=0.7, mask=targets >= 0,
        softcap=forward.decoder.logit_softcap,
    )  # fmt: skip
    ours = gradients(model, (scored.logprobs * torch.tensor(WEIGHTS, device="cuda")[:, None]).sum())
    assert (ours - truth).norm() <= 1.1 * (usual - truth).norm()


def test_other_weights_in_four_bits_are_refused(tmp_path: Path) -> None:
    from medloop.models.rollout.decode import UnsupportedModelError

    model = twin("llama", tmp_path)
    decoder = build_fast_decoder(model)
    check_agreement(decoder, model)
    decoder.layers[1].down_proj.stored.scales.mul_(1.3)  # type: ignore[union-attr]
    with pytest.raises(UnsupportedModelError, match="nats from float32"):
        check_agreement(decoder, model)
