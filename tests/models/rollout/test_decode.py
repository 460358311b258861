"""Positions under left padding. (n) is the item of the checklist in docs/stages/rl_maths.md."""

import torch
from torch import tensor
from transformers import GPT2Config, GPT2LMHeadModel

from medloop.models.rollout.decode import position_ids

PAD = 0


def test_positions_count_from_the_first_real_token() -> None:  # (3)
    mask = tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    assert position_ids(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_absolute_positions_are_wrong_without_position_ids() -> None:  # (3)
    torch.manual_seed(0)
    shape = {"vocab_size": 20, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 1.0}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)).eval()
    bare, left = tensor([[5, 6, 7]]), tensor([[PAD, PAD, 5, 6, 7]])
    attention = left != PAD
    with torch.no_grad():
        alone = model(input_ids=bare).logits
        logits = model(input_ids=left, attention_mask=attention, position_ids=position_ids(attention)).logits[:, 2:]
        untold = model(input_ids=left, attention_mask=attention, position_ids=torch.arange(5)[None]).logits[:, 2:]
    torch.testing.assert_close(logits, alone, atol=1e-5, rtol=1e-5)
    assert (untold - alone).abs().max() > 0.1
