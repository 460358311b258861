"""Which tokens of an answer open a sentence: there it is decided what is said, the rest follows from it.

A correction adds a sentence or replaces one. Where to say it is one token of fifty or so, the first of that sentence, and so is
where not to say it: in the rows that join the corrections. With every token alike, 300 steps left that choice
half-learnt, and the sentence about a child's dose was said to the old (docs/log.md#repair).
"""

import re
from typing import Any

import torch
from torch import Tensor

from medloop.train.examples.sft_examples import IGNORED

OPENING_WEIGHT = 9.0  # of a token that opens a sentence, or ends the answer in its place; 1 for the others
_END = re.compile(r"[。！？.!?\n]\s*$")
_NEXT = re.compile(r"[。！？!?\n]\s*\S|\.\s+\S")  # a token that ends one sentence and opens another: "。多"


class OpeningWeights:
    """The weight of each token in the loss, by the tokenizer's sentence ends."""

    def __init__(self, tokenizer: Any) -> None:
        texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
        self.ends = torch.tensor([_END.search(text) is not None for text in texts])  # (V,)
        self.opens = torch.tensor([_NEXT.search(text) is not None for text in texts])  # (V,)

    def __call__(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """(..., T-1): weights of what the tokens but the last predict; tokens that are not trained on count as 1."""
        tokens = input_ids.clamp(max=len(self.ends) - 1)  # a model may have rows for more tokens than its tokenizer knows
        ended, opens = self.ends.to(tokens.device)[tokens[..., :-1]], self.opens.to(tokens.device)[tokens[..., 1:]]
        first = labels[..., :-1] == IGNORED
        return torch.where((ended | opens | first) & (labels[..., 1:] != IGNORED), OPENING_WEIGHT, 1.0)
