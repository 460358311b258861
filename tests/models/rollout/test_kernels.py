"""The kernels of sampling: a step and a draw as those of decode.py. On a GPU, or anywhere with TRITON_INTERPRET=1 and triton."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import position_ids, sample_tokens
from medloop.testing.families import family_configs

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float16
SIZES: dict[str, Any] = {"vocab_size": 500, "hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 2}
CONFIGS = family_configs(num_hidden_layers=3, initializer_range=0.05) | {
    "llama-3-heads": LlamaConfig(**SIZES, num_attention_heads=3, num_key_value_heads=1),
    "qwen2-6-heads": Qwen2Config(**SIZES, num_attention_heads=6, num_key_value_heads=2),
}


@pytest.mark.parametrize("rank", [0, 4, 16])
@pytest.mark.parametrize("family", CONFIGS)
@torch.no_grad()
def test_a_step_gives_the_states_and_the_cache_of_the_plain_one(family: str, rank: int) -> None:
    from medloop.models.rollout.kernels import FusedStep

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config := CONFIGS[family], dtype=DTYPE)
    if rank:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.05)
        elif parameter.dim() == 1:
            parameter.add_(0.3 * torch.randn(parameter.shape))
    decoder = build_fast_decoder(model.to(DEVICE).eval())
    rows, width, steps = 5, 9, 4
    ids = torch.randint(0, config.vocab_size, (rows, width + steps), device=DEVICE)
    mask = torch.ones(rows, width + steps, dtype=torch.bool, device=DEVICE)
    mask[1, :3], mask[2, :7] = False, False
    positions, first, step = position_ids(mask), (~mask).sum(-1), FusedStep(decoder, rows)
    plain = decoder.new_cache(rows, width + steps)
    decoder.prefill(ids[:, :width], positions[:, :width], mask[:, :width], plain)
    cache = plain.clone()
    for column in range(width, width + steps):
        expected = decoder.step(ids[:, column], positions[:, column], mask, plain, column).float()
        states = step(ids[:, column].contiguous(), first, torch.tensor([column], device=DEVICE), cache).float()
        assert (states - expected).abs().max() < 0.03 * expected.abs().max()
    assert (cache - plain).abs().max() < 0.03 * plain.abs().max()


@pytest.mark.parametrize("vocabulary", [500, 5000, 49152])
@pytest.mark.parametrize("greedy", [False, True])
def test_a_draw_takes_the_token_of_the_plain_one_and_ends_rows(vocabulary: int, greedy: bool) -> None:
    from medloop.models.rollout.kernels import FusedDraw

    torch.manual_seed(1)
    rows, steps = 7, 4
    logits = (torch.randn(rows, vocabulary, device=DEVICE) * 3).to(DTYPE)
    noise = torch.rand(rows, steps, dtype=torch.float64, device=DEVICE)
    temperature, step = torch.tensor([0.7], device=DEVICE), torch.tensor([2], device=DEVICE)
    expected, expected_logprobs = sample_tokens(logits, 0.0 if greedy else temperature, noise[:, 2])
    tokens, output = torch.zeros(rows, dtype=torch.long, device=DEVICE), torch.full((rows, steps), -1, device=DEVICE)
    logprobs, done = torch.zeros(rows, steps, device=DEVICE), torch.zeros(rows, dtype=torch.bool, device=DEVICE)
    done[3] = True  # has ended before
    draw = FusedDraw(rows, vocabulary, expected[:1].clone())
    draw(logits, noise, step, temperature, tokens, output, logprobs, done, greedy=greedy)
    assert torch.equal(tokens, expected)
    assert output[3, 2] == -1 and torch.equal(output[:3, 2], expected[:3])
    assert torch.allclose(logprobs[:3, 2], expected_logprobs[:3], atol=1e-5) and logprobs[3, 2] == 0
    assert done.tolist() == [token == int(expected[0]) or row == 3 for row, token in enumerate(expected.tolist())]
