"""The fast training forward on a GPU: gradients as near to float32 as the library's, and the same log-probabilities."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen2Config

from medloop.models.packing import pack
from medloop.testing.families import family_configs
from medloop.train.rl.logprobs import logits_logprobs, token_logprobs

pytestmark = pytest.mark.gpu
SIZES: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 192, "intermediate_size": 400, "num_hidden_layers": 3, "max_position_embeddings": 256,
}  # fmt: skip
SHARED = list(range(3, 14))
PROMPTS = [SHARED, SHARED, [5, 6, 7], SHARED, [200]]
ANSWERS = [list(range(20, 29)), [4], list(range(40, 57)), list(range(100, 170)), [1, 2, 3, 4, 5]]
WEIGHTS = [1.0, -0.5, 0.3, -1.0, 0.7]


def model_of(config: PreTrainedConfig, rank: int, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        adapter = "lora_" in name
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.02 if adapter else parameter.data.to(dtype)
    return model.cuda().eval()


def library_loss(model: Any) -> torch.Tensor:
    base, total = model.get_base_model(), torch.zeros((), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=base.dtype != torch.float32):
        for prompt, answer, weight in zip(PROMPTS, ANSWERS, WEIGHTS, strict=True):
            ids = torch.tensor([prompt + answer], device="cuda")
            logits = base(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            logprobs = logits_logprobs(logits, torch.tensor(answer, device="cuda"), temperature=0.7).logprobs
            total = total + logprobs.sum() * weight
    return total


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.parametrize(
    ("config", "rank"),
    [
        (LlamaConfig(**SIZES, num_attention_heads=3, num_key_value_heads=1), 16),
        (Qwen2Config(**SIZES, num_attention_heads=6, num_key_value_heads=2), 4),
        (MistralConfig(**SIZES, num_attention_heads=6, num_key_value_heads=6, sliding_window=None), 8),
        *((config, 8) for config in family_configs(hidden_size=128, intermediate_size=256, initializer_range=0.02).values()),
    ],
)
def test_gradients_are_as_near_to_float32_as_the_library_s(config: PreTrainedConfig, rank: int) -> None:
    from medloop.models.fast_forward import open_fast_forward  # triton

    exact, library = (model_of(config, rank, dtype) for dtype in (torch.float32, torch.bfloat16))
    truth, usual = gradients(exact, library_loss(exact)), gradients(library, library_loss(library))
    model = model_of(config, rank, torch.bfloat16)
    forward = open_fast_forward(model)
    rows, predictors = pack(PROMPTS, ANSWERS, torch.device("cuda"))
    padded = [F.pad(torch.tensor(answer), (0, predictors.shape[1] - len(answer)), value=-1) for answer in ANSWERS]
    targets = torch.stack(padded).cuda()
    scored = token_logprobs(
        forward(rows)[predictors], forward.decoder.lm_head, targets.clamp(min=0), temperature=0.7, mask=targets >= 0,
        softcap=forward.decoder.logit_softcap,
    )  # fmt: skip
    ours = gradients(model, (scored.logprobs * torch.tensor(WEIGHTS, device="cuda")[:, None]).sum())
    assert (ours - truth).norm() <= 1.1 * (usual - truth).norm()


def test_the_adapter_is_read_again_when_it_was_trained_or_switched_off() -> None:
    from medloop.models.fast_forward import open_fast_forward  # triton

    model = model_of(LlamaConfig(**SIZES, num_attention_heads=3, num_key_value_heads=1), 8, torch.bfloat16)
    forward, (rows, _) = open_fast_forward(model), pack(PROMPTS, ANSWERS, torch.device("cuda"))

    @torch.no_grad()
    def states() -> torch.Tensor:
        forward.decoder.refresh_if_changed()
        return forward(rows)

    with_adapter = states()
    with model.disable_adapter():
        assert not torch.equal(states(), with_adapter)
    assert torch.equal(states(), with_adapter)
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "lora_B" in name).add_(0.5)
    assert not torch.equal(states(), with_adapter)


def test_steps_of_a_fused_optimizer_are_seen() -> None:
    from medloop.models.fast_forward import open_fast_forward  # triton

    model = model_of(LlamaConfig(**SIZES, num_attention_heads=3, num_key_value_heads=1), 8, torch.bfloat16)
    forward, (rows, _) = open_fast_forward(model), pack(PROMPTS, ANSWERS, torch.device("cuda"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.1, fused=True)
    before = forward(rows)
    before.float().sum().backward()
    optimizer.step()
    torch.autograd.graph.increment_version(trained)  # as train/rl/step.py does: the fused kernel does not
    forward.decoder.refresh_if_changed()
    assert not torch.equal(forward(rows), before)
