"""The SFT loss as CUDA graphs on a GPU: gradients as without graphs, whatever batches come in which order.

pytest -m gpu tests/train/test_captured_loss_gpu.py
"""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from medloop.models.fast_forward import open_fast_forward
from medloop.testing.families import family_configs
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl import captured_loss
from medloop.train.trl.captured_loss import MAX_GRADIENT_DIFFERENCE, CapturedLoss
from medloop.train.trl.sft_trainer import PackedExamples, pack_examples

pytestmark = pytest.mark.gpu
SHAPE: dict[str, Any] = {"vocab_size": 1000, "hidden_size": 192, "intermediate_size": 400, "num_hidden_layers": 3,
    "max_position_embeddings": 2048, "num_attention_heads": 6, "num_key_value_heads": 2}  # fmt: skip
TOLERANCE = 0.02  # norm of the difference of the gradients over theirs


def captured_of(config: Any) -> CapturedLoss:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        adapter = "lora_" in name
        parameter.data = torch.randn(parameter.shape) * 0.02 if adapter else parameter.data.to(torch.bfloat16)
    model = model.cuda().train()
    return CapturedLoss(open_fast_forward(model), [parameter for parameter in model.parameters() if parameter.requires_grad])


@pytest.fixture
def captured() -> CapturedLoss:
    return captured_of(Qwen2Config(**SHAPE))


def batch(*lengths: int, seed: int = 0) -> PackedExamples:
    """Rows of these lengths; the first third of each is a prompt."""
    draw = torch.Generator().manual_seed(seed)
    rows = [torch.randint(3, 1000, (length,), generator=draw).tolist() for length in lengths]
    return pack_examples([{"input_ids": row, "labels": [-100] * (len(row) // 3) + row[len(row) // 3 :]} for row in rows])


def eager(captured: CapturedLoss, packed: PackedExamples, count: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """As `ResumableSFT._fast_loss`: the batch as it is, kernel by kernel."""
    packed, decoder = packed.to("cuda"), captured.forward.decoder
    decoder.refresh_values()
    with torch.autocast("cuda", torch.bfloat16):
        hidden = captured.forward(packed.rows)[packed.predictors]
        logprobs = token_logprobs(hidden, decoder.lm_head, packed.targets, temperature=1.0).logprobs
        loss = -logprobs.sum() / count
    return loss.detach(), list(torch.autograd.grad(loss, captured.trained))


def zero_grad(captured: CapturedLoss) -> None:
    for parameter in captured.trained:
        parameter.grad = None


def gradients(captured: CapturedLoss) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in captured.trained])  # type: ignore[union-attr]


def assert_as_eager(captured: CapturedLoss, packed: PackedExamples, count: int = 300) -> None:
    """A replay of this batch alone, against the batch without a graph."""
    zero_grad(captured)
    loss = captured(packed, count)
    assert loss is not None, "the batch has no graph"
    expected, theirs = eager(captured, packed, count)
    assert abs(float(loss - expected)) <= 0.005 * abs(float(expected))
    assert relative(gradients(captured), flat(theirs)) < TOLERANCE


def flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def step(captured: CapturedLoss) -> None:
    """As an optimizer does: the adapter has other values afterwards, in the same memory."""
    with torch.no_grad():
        for parameter in captured.trained:
            parameter.add_(torch.randn_like(parameter) * 0.01)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SHAPE),
        Qwen2Config(**SHAPE),
        MistralConfig(**SHAPE, sliding_window=64),
        family_configs(hidden_size=128, intermediate_size=256, initializer_range=0.02)["qwen3"],
        family_configs(hidden_size=128, intermediate_size=256, initializer_range=0.02)["gemma3"],
    ],
    ids=["llama", "qwen2", "mistral", "qwen3", "gemma3"],
)
def test_gradients_of_a_graph_are_those_without(config: Any) -> None:
    captured = captured_of(config)
    rows = [20, 7, 55] if config.vocab_size < 1000 else [200, 31, 120]
    packed = batch(*rows)
    packed = PackedExamples(packed.rows, packed.predictors, packed.targets % config.vocab_size)
    packed.rows.tokens.remainder_(config.vocab_size)
    assert_as_eager(captured, packed)
    assert captured.difference < MAX_GRADIENT_DIFFERENCE


def test_two_sizes_in_turn_with_steps_between(captured: CapturedLoss) -> None:
    small, large = batch(200, 31, 120), batch(700, 640, 90, 300, seed=1)
    for turn in range(6):
        assert_as_eager(captured, (small, large)[turn % 2])
        step(captured)
    assert captured.captures == 2 and captured.replayed == 6 and captured.without == 0


def test_a_shorter_batch_after_a_longer_one_of_the_same_graph(captured: CapturedLoss) -> None:
    """What the longer one has left in the inputs is not learnt from."""
    for rows in ((250, 200), (30, 9), (7,), (480,), (100, 100, 100)):
        assert_as_eager(captured, batch(*rows, seed=len(rows)))
    assert captured.captures <= 3


def test_gradients_add_up_over_micro_batches_with_and_without_graph(captured: CapturedLoss) -> None:
    first, second, third = batch(200, 31), batch(90, 120, seed=1), batch(600, 500, seed=2)
    assert captured(first, 700) is not None and captured(third, 700) is not None  # captured, so that replays alone follow
    zero_grad(captured)
    expected = [torch.zeros_like(parameter) for parameter in captured.trained]
    for packed in (first, second, third):
        torch._foreach_add_(expected, eager(captured, packed, 700)[1])
    captured(first, 700)
    for parameter, part in zip(captured.trained, eager(captured, second, 700)[1], strict=True):  # as `backward` adds
        assert parameter.grad is not None
        parameter.grad += part
    captured(third, 700)
    assert relative(gradients(captured), flat(expected)) < TOLERANCE


def test_an_eager_micro_batch_first_and_a_capture_after_it(captured: CapturedLoss) -> None:
    """A capture runs the batch several times and must add its gradients once."""
    first, second = batch(200, 31), batch(90, 120, seed=1)
    zero_grad(captured)
    expected = eager(captured, first, 300)[1]
    for parameter, part in zip(captured.trained, expected, strict=True):
        parameter.grad = part.clone()
    captured(second, 300)
    total = [mine + theirs for mine, theirs in zip(expected, eager(captured, second, 300)[1], strict=True)]
    assert captured.captures == 1 and relative(gradients(captured), flat(total)) < TOLERANCE


def test_weights_of_a_checkpoint_are_read_by_a_graph_that_is_there(captured: CapturedLoss) -> None:
    packed = batch(200, 31, 120)
    stored = [parameter.detach().clone() for parameter in captured.trained]
    assert_as_eager(captured, packed)
    before = gradients(captured).clone()
    for _ in range(3):
        step(captured)
    assert_as_eager(captured, packed)
    assert relative(gradients(captured), before) > TOLERANCE
    with torch.no_grad():
        for parameter, weight in zip(captured.trained, stored, strict=True):
            parameter.copy_(weight)
    assert_as_eager(captured, packed)
    assert relative(gradients(captured), before) < TOLERANCE


def test_graphs_come_and_go(captured: CapturedLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sizes than graphs: the memory of one that went is used again, and the others still replay rightly."""
    monkeypatch.setattr(captured_loss, "MAX_GRAPHS", 2)
    batches = [batch(*[200] * count, seed=count) for count in (1, 6, 25)]
    for _ in range(2):
        for packed in batches:
            assert_as_eager(captured, packed)
    assert len(captured.graphs) == 2 and captured.captures > 2 and captured.without == 0


@pytest.mark.parametrize("inside", [False, True], ids=["before the capture", "inside of it"])
def test_out_of_memory_refuses_one_size(captured: CapturedLoss, monkeypatch: pytest.MonkeyPatch, inside: bool) -> None:
    add_gradients = CapturedLoss.add_gradients

    def limited(self: CapturedLoss, entry: Any) -> torch.Tensor:
        if len(entry.rows.tokens) > 600 and torch.cuda.is_current_stream_capturing() == inside:
            torch.empty(2**50, dtype=torch.uint8, device="cuda")
        return add_gradients(self, entry)

    monkeypatch.setattr(CapturedLoss, "add_gradients", limited)
    small, large = batch(200, 31, 120), batch(700, 640)
    assert_as_eager(captured, small)
    assert captured(large, 300) is None and not captured.failed
    assert_as_eager(captured, small)
