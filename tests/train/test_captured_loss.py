"""A batch padded to the size of a CUDA graph: loss and gradients of the batch as it is. test_captured_loss_gpu.py runs graphs.

Here a graph is a replay of the same operations, so everything but the capture itself is run.
"""

import logging
import random
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from medloop.models.fast_forward import open_fast_forward
from medloop.testing.families import family_twin
from medloop.train.examples.batch_order import LengthGroupedSampler
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl import captured_loss
from medloop.train.trl.captured_loss import MAX_GRAPHS, CapturedLoss, GraphInputs, GraphSize, fill
from medloop.train.trl.sft_trainer import pack_examples

EXAMPLES = [
    {"input_ids": list(range(5, 25)), "labels": [-100] * 8 + list(range(13, 25))},
    {"input_ids": list(range(40, 47)), "labels": [-100] * 2 + list(range(42, 47))},
]
LONGER = [
    {"input_ids": list(range(30, 90)), "labels": list(range(30, 90))},
    {"input_ids": list(range(100, 150)), "labels": list(range(100, 150))},
]


def record_on_cpu(self: CapturedLoss, entry: GraphInputs) -> None:
    """What a graph does at a replay, as a function."""

    def replay() -> None:
        entry.loss = self.add_gradients(entry)

    entry.graph = SimpleNamespace(replay=replay)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> CapturedLoss:
    monkeypatch.setattr(CapturedLoss, "_record", record_on_cpu)
    model = family_twin("llama", adapter=True)
    return CapturedLoss(open_fast_forward(model), [parameter for parameter in model.parameters() if parameter.requires_grad])


def plain(captured: CapturedLoss, packed: Any, count: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss of a batch as it is, and its gradients."""
    hidden = captured.forward(packed.rows)[packed.predictors]
    logprobs = token_logprobs(hidden, captured.forward.decoder.lm_head, packed.targets, temperature=1.0).logprobs
    loss = -logprobs.sum() / count
    return loss.detach(), list(torch.autograd.grad(loss, captured.trained))


def test_padding_changes_neither_loss_nor_gradients(captured: CapturedLoss) -> None:
    packed, longer = pack_examples(EXAMPLES), pack_examples(LONGER)
    expected, gradients = plain(captured, packed, 34)  # as with a second micro-batch of as many tokens
    assert captured.size_of(packed) == GraphSize(tokens=512, predicted=128, longest=512, rows=4)
    captured(longer, 3)  # the batch goes over what this one has left
    captured.trained[0].grad = None
    for parameter in captured.trained:
        parameter.grad = None
    losses = [captured(packed, 34) for _ in range(2)]
    assert len(captured.graphs) == 1 and captured.difference < 1e-4
    for loss in losses:
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for parameter, theirs in zip(captured.trained, gradients, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * theirs, rtol=1e-4, atol=1e-6)
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0


def test_every_row_of_padding_has_a_token(captured: CapturedLoss) -> None:
    packed = pack_examples(EXAMPLES)
    entry = captured.new_entry(GraphSize(tokens=512, predicted=128, longest=512, rows=16))
    fill(entry, packed, None)
    starts, own = entry.rows.query_starts.tolist(), packed.rows.query_starts.tolist()
    assert starts[: len(own)] == own and starts[-1] == 512 and len(starts) == 17
    assert all(end > start for start, end in pairwise(starts))


def test_a_graph_adds_to_what_a_batch_without_one_has_left(captured: CapturedLoss) -> None:
    packed = pack_examples(EXAMPLES)
    _, gradients = plain(captured, packed, 34)
    for parameter, gradient in zip(captured.trained, gradients, strict=True):
        parameter.grad = gradient.clone()
    captured(packed, 34)  # captures too: that adds nothing
    for parameter, theirs in zip(captured.trained, gradients, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * theirs, rtol=1e-4, atol=1e-6)


def test_large_batches_and_capped_attention_have_no_graph() -> None:
    long = [{"input_ids": [7] * 450, "labels": [7] * 450}] * 19
    for family, examples in (("llama", long), ("gemma2", EXAMPLES)):
        forward = open_fast_forward(family_twin(family, adapter=True))
        assert CapturedLoss(forward, [torch.nn.Parameter(torch.zeros(1))]).size_of(pack_examples(examples)) is None


def test_a_graph_with_other_gradients_ends_all_graphs(
    captured: CapturedLoss, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Its loss is right: padding that leaks into the gradients shows in them alone."""
    packed = pack_examples(EXAMPLES)
    captured(packed, 34)
    before = [gradient.clone() for gradient in captured.gradients]

    def record_wrong(self: CapturedLoss, entry: GraphInputs) -> None:
        record_on_cpu(self, entry)
        replay = entry.graph.replay
        entry.graph.replay = lambda: (replay(), torch._foreach_mul_(self.gradients, 1.5))

    monkeypatch.setattr(CapturedLoss, "_record", record_wrong)
    captured.pool = object()
    with caplog.at_level(logging.WARNING):
        assert captured(pack_examples(EXAMPLES * 20), 34) is None
    assert captured.failed and not captured.graphs and captured.pool is None and captured(packed, 34) is None
    assert "its gradients 0.5 of theirs" in caplog.text and "up to 6 times slower" in caplog.text
    for ours, earlier in zip(captured.gradients, before, strict=True):
        assert torch.equal(ours, earlier)


def test_padding_that_is_learnt_from_is_seen(captured: CapturedLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is compared with the batch as it is, not with the padded one."""

    def fill_wrong(entry: GraphInputs, packed: Any, num_items: Any) -> None:
        fill(entry, packed, num_items)
        entry.weights[-1] = 1.0

    monkeypatch.setattr(captured_loss, "fill", fill_wrong)
    assert captured(pack_examples(EXAMPLES), 34) is None and captured.failed


@pytest.mark.parametrize("inside", [False, True])
def test_out_of_memory_refuses_one_size(
    captured: CapturedLoss, monkeypatch: pytest.MonkeyPatch, caplog: Any, inside: bool
) -> None:
    """Inside of a capture its end fails as well."""

    def record(self: CapturedLoss, entry: GraphInputs) -> None:
        if len(entry.rows.tokens) > 600:
            try:
                raise torch.OutOfMemoryError
            finally:
                if inside:
                    raise RuntimeError("the capture is not valid")
        record_on_cpu(self, entry)

    monkeypatch.setattr(CapturedLoss, "_record", record)
    small, large = pack_examples(EXAMPLES), pack_examples(LONGER * 8)
    with caplog.at_level(logging.WARNING):
        losses = [captured(packed, 34) for packed in (small, large, small, large)]
    assert [loss is None for loss in losses] == [False, True, False, True]
    assert not captured.failed and (captured.replayed, captured.without, captured.captures) == (2, 2, 1)
    assert caplog.text.count("not enough memory for a graph of 1,024 tokens") == 1


def lengths_of_answers() -> list[tuple[int, int]]:
    """Prompts and answers of lengths as in real files: most short, some long."""
    draw = random.Random(0)
    return [
        (min(2000, int(draw.lognormvariate(4.6, 0.6))), min(1500, max(1, int(draw.lognormvariate(5.2, 0.6)))))
        for _ in range(2000)
    ]


@pytest.mark.parametrize("size", [4, 8, 16])
def test_nearly_all_batches_have_a_graph(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of up to MAX_TOKENS tokens, and few are captured."""
    lengths = lengths_of_answers()
    captured = CapturedLoss(open_fast_forward(family_twin("llama", adapter=True)), [torch.nn.Parameter(torch.zeros(1))])
    order = LengthGroupedSampler([sum(pair) for pair in lengths], size, 42)
    captures = batches = 0

    def capture(size: GraphSize, packed: Any, num_items: Any) -> bool:
        nonlocal captures
        captures += 1
        if len(captured.graphs) >= MAX_GRAPHS:
            captured._drop(next(iter(captured.graphs)))
        captured.graphs[size] = captured_loss.GraphInputs(*[torch.zeros(1)] * 4)  # type: ignore[arg-type, call-arg]
        return True

    monkeypatch.setattr(captured, "_capture", capture)
    for epoch in range(3):
        order.set_epoch(epoch)
        rows = [lengths[index] for index in order]
        for start in range(0, len(rows), size):
            packed = shape_of(rows[start : start + size])
            if captured.size_of(packed) is not None:
                batches += 1
                assert captured._entry(packed, 1) is not None
    assert batches > 300 and captures <= MAX_GRAPHS + 12, f"{captures} graphs for {batches} batches"


def shape_of(rows: Sequence[tuple[int, int]]) -> Any:
    """Of a batch, what decides its graph."""
    lengths = [prompt + answer - 1 for prompt, answer in rows]
    packed = SimpleNamespace(tokens=range(sum(lengths)), query_starts=range(len(rows) + 1), longest_query=max(lengths))
    return SimpleNamespace(rows=packed, targets=range(sum(answer for _, answer in rows)))


def test_a_batch_takes_a_graph_of_little_more_than_its_size(captured: CapturedLoss) -> None:
    one, two = EXAMPLES[:1], EXAMPLES * 3
    for examples in (two, one, EXAMPLES):
        captured(pack_examples(examples), 34)
    assert captured.captures == 1 and captured.replayed == 3


def test_the_graph_that_waited_longest_makes_room(captured: CapturedLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_loss, "MAX_GRAPHS", 2)
    sizes = [pack_examples([{"input_ids": [7] * 200, "labels": [7] * 200}] * count) for count in (1, 6, 25)]
    for packed in (sizes[0], sizes[1], sizes[0], sizes[2]):
        assert captured(packed, 34) is not None
    assert [size.tokens for size in captured.graphs] == [512, 5120] and captured.captures == 3


def test_a_missing_gradient_starts_at_zero() -> None:
    """Not only the first parameter decides."""
    trained = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    captured = CapturedLoss(open_fast_forward(family_twin("llama", adapter=True)), trained)
    captured.gradients[1].fill_(7.0)  # left by the step before
    trained[0].grad = torch.ones(2)
    captured._own_gradients()
    assert [gradient.tolist() for gradient in captured.gradients] == [[1.0, 1.0], [0.0, 0.0]]
    assert all(parameter.grad is gradient for parameter, gradient in zip(trained, captured.gradients, strict=True))
