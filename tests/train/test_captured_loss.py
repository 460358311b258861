"""A batch padded to the size of a CUDA graph: loss and gradients of the batch as it is. The graph itself needs a GPU."""

import torch

from medloop.models.fast_forward import open_fast_forward
from medloop.testing.families import family_twin
from medloop.train.rl.logprobs import token_logprobs
from medloop.train.trl.captured_loss import CapturedLoss, fill
from medloop.train.trl.sft_trainer import pack_examples

EXAMPLES = [
    {"input_ids": list(range(5, 25)), "labels": [-100] * 8 + list(range(13, 25))},
    {"input_ids": list(range(40, 47)), "labels": [-100] * 2 + list(range(42, 47))},
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
    entry = captured.new_entry(key)
    for _ in range(2):  # the second one over what the first one has left
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
