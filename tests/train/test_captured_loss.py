"""A batch padded to the size of a CUDA graph: loss and gradients of the batch as it is. The graph itself needs a GPU."""

import logging
from types import SimpleNamespace
from typing import Any

import torch

from medloop.models.fast_forward import open_fast_forward
from medloop.testing.families import family_twin
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl.captured_loss import MAX_GRAPHS, CapturedLoss, GraphInputs, fill
from medloop.train.trl.sft_trainer import pack_examples

EXAMPLES = [
    {"input_ids": list(range(5, 25)), "labels": [-100] * 8 + list(range(13, 25))},
    {"input_ids": list(range(40, 47)), "labels": [-100] * 2 + list(range(42, 47))},
]
LONGER = [
    {"input_ids": list(range(30, 90)), "labels": list(range(30, 90))},
    {"input_ids": list(range(100, 150)), "labels": list(range(100, 150))},
]


def test_padding_changes_neither_loss_nor_gradients() -> None:
    model = family_twin("llama", adapter=True)
    forward, packed = open_fast_forward(model), pack_examples(EXAMPLES)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    hidden = forward(packed.rows)[packed.predictors]
    logprobs = token_logprobs(hidden, forward.decoder.lm_head, packed.targets, temperature=1.0).logprobs
    expected = -logprobs.sum() / 34  # as with a second micro-batch of as many tokens
    gradients = torch.autograd.grad(expected, trained)
    captured = CapturedLoss(forward, trained)
    key = captured.size_key(packed)
    assert key == (512, 512, 512, 3)
    longer = pack_examples(LONGER)
    assert captured.size_key(longer) == key
    entry = captured.new_entry(key)
    fill(entry, longer, 3)  # the batch goes over what this one has left
    captured.add_gradients(entry)
    torch._foreach_zero_(captured.gradients)
    for _ in range(2):
        fill(entry, packed, 34)
        entry.rows.grids.clear()
        loss = captured.add_gradients(entry)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(captured.gradients, gradients, strict=True):
        torch.testing.assert_close(ours, 2 * theirs, rtol=1e-4, atol=1e-6)
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0


def test_large_batches_and_capped_attention_have_no_graph() -> None:
    long = [{"input_ids": [7] * 450, "labels": [7] * 450}] * 19
    for family, examples in (("llama", long), ("gemma2", EXAMPLES)):
        forward = open_fast_forward(family_twin(family, adapter=True))
        assert CapturedLoss(forward, [torch.nn.Parameter(torch.zeros(1))]).size_key(pack_examples(examples)) is None


def one_graph(self: CapturedLoss, key: tuple[int, ...], packed: Any, num_items: Any) -> bool:
    """As on a GPU, but that nothing is captured."""
    entry: GraphInputs = self.new_entry(key)
    entry.graph, entry.loss = SimpleNamespace(replay=lambda: None), torch.zeros(())
    self.graphs[key] = entry
    return True


def test_batches_without_a_graph_are_counted_and_said_once(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(CapturedLoss, "_capture", one_graph)
    captured = CapturedLoss(open_fast_forward(family_twin("llama", adapter=True)), [torch.nn.Parameter(torch.zeros(1))])
    sizes = [pack_examples(EXAMPLES[:1] * count) for count in range(1, MAX_GRAPHS + 4)]  # each has its own graph
    with caplog.at_level(logging.WARNING):
        losses = [captured(packed, 34) for packed in (*sizes, sizes[0])]
    assert [loss is None for loss in losses] == [False] * MAX_GRAPHS + [True] * 3 + [False]
    assert (captured.replayed, captured.without) == (MAX_GRAPHS + 1, 3)
    assert caplog.text.count("up to 6 times slower") == 1 and f"more than {MAX_GRAPHS} sizes" in caplog.text


def test_a_missing_gradient_starts_at_zero() -> None:
    """Not only the first parameter decides."""
    trained = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    captured = CapturedLoss(open_fast_forward(family_twin("llama", adapter=True)), trained)
    captured.gradients[1].fill_(7.0)  # left by the step before
    trained[0].grad = torch.ones(2)
    captured._own_gradients()
    assert [gradient.tolist() for gradient in captured.gradients] == [[1.0, 1.0], [0.0, 0.0]]
    assert all(parameter.grad is gradient for parameter, gradient in zip(trained, captured.gradients, strict=True))
