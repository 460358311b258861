"""The fast decoder is each family's own forward pass: a tiny random twin with what sets the family apart."""

from typing import Any

import pytest
import torch

from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.models.rollout.sampler import Sampler
from medloop.testing.families import family_configs, family_twin

FAMILIES = family_configs()
PROMPTS = [[5, 6, 7], [*range(20, 41)], [40, 41, 42, 43, 44], [5, 6, 7], [100]]
STREAMS = [f"s{n}" for n in range(len(PROMPTS))]


@torch.no_grad()
def library_logprobs(model: Any, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> torch.Tensor:
    logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_sampled_by_the_fast_decoder_with_the_library_s_logprobs(family: str, adapter: bool) -> None:
    model = family_twin(family, adapter=adapter)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    assert sampler.backend == "fast"
    for row in sampler(PROMPTS, STREAMS, max_new_tokens=16):
        assert torch.allclose(torch.tensor(row.logprobs), library_logprobs(model, row.prompt, row.tokens), atol=2e-4)


def test_a_prompt_after_a_known_beginning_keeps_its_window() -> None:
    """As a server does it: the beginning from a cache, padding between it and the rest."""
    model = family_twin("mistral")
    decoder, ids = build_fast_decoder(model), torch.tensor([PROMPTS[1]])
    past, length, gap = 9, len(PROMPTS[1]), 3
    whole = decoder.new_cache(1, length)
    expected = decoder.prefill(ids, torch.arange(length)[None], torch.ones(1, length, dtype=torch.bool), whole)
    cache = decoder.new_cache(1, length + gap)
    cache[..., :past, :] = whole[..., :past, :]
    mask = torch.ones(1, length + gap, dtype=torch.bool)
    mask[:, past : past + gap] = False
    padded = torch.cat([torch.zeros(1, gap, dtype=torch.long), ids[:, past:]], dim=1)
    positions = torch.cat([torch.zeros(1, gap, dtype=torch.long), torch.arange(past, length)[None]], dim=1)
    assert torch.allclose(decoder.prefill(padded, positions, mask, cache, past), expected, atol=1e-4)


def test_a_text_longer_than_the_rotary_tables_is_sampled_by_the_library(caplog: pytest.LogCaptureFixture) -> None:
    model = family_twin("phi4-mini")
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    sampler([[3, 4]], ["s"], max_new_tokens=2)
    assert sampler.backend == "fast"
    row = sampler([list(range(3, 123))], ["s"], max_new_tokens=12)[0]
    assert sampler.fast_decoder is not None and sampler.fast_decoder.max_positions == 128
    assert len(row.tokens) == 12
    sampler([list(range(3, 123))], ["s"], max_new_tokens=12)
    assert sampler.backend == "mixed" and caplog.text.count("more than 128 tokens") == 1


def test_a_soft_cap_that_the_library_leaves_out_is_not_matched() -> None:
    model = family_twin("gemma2")
    model.config._attn_implementation = "sdpa"
    with pytest.raises(UnsupportedModelError, match="soft cap"):
        build_fast_decoder(model)
