"""A base in 4 bits on the fast path: what the library's own 4-bit forward pass gives, with the weights left in 4 bits."""

from pathlib import Path
from typing import Any

import pytest
import torch

from medloop.models.fast_forward import open_fast_forward
from medloop.models.load import load_base
from medloop.models.rollout import agreement
from medloop.models.rollout.agreement import check_agreement, in_float32, library_logprobs, probe
from medloop.models.rollout.build import build_fast_decoder
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.models.rollout.four_bit import FourBitMatrix
from medloop.models.rollout.sampler import Sampler
from medloop.testing.families import family_configs, four_bit_twin

pytest.importorskip("bitsandbytes")
PROMPTS = [[5, 6, 7], [*range(20, 41)], [40, 41, 42, 43, 44], [5, 6, 7], [100]]
STREAMS = [f"s{n}" for n in range(len(PROMPTS))]


@torch.no_grad()
def logprobs_of(model: Any, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> torch.Tensor:
    logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("family", family_configs())
def test_a_base_in_four_bits_is_sampled_by_the_fast_decoder_with_the_library_s_logprobs(
    family: str, adapter: bool, tmp_path: Path
) -> None:
    model = four_bit_twin(family, tmp_path, adapter=adapter)
    assert "Linear4bit" in str(model)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    assert sampler.backend == "fast"
    for row in sampler(PROMPTS, STREAMS, max_new_tokens=16):
        assert torch.allclose(torch.tensor(row.logprobs), logprobs_of(model, row.prompt, row.tokens), atol=2e-4)


def test_weights_stay_in_four_bits_and_are_held_once(tmp_path: Path) -> None:
    model = four_bit_twin("qwen2", tmp_path, adapter=True)
    ids = torch.tensor([PROMPTS[1]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        decoder = build_fast_decoder(model)
        assert torch.equal(model(input_ids=ids).logits, before), "the library reads the memory that the decoder has fused"
    stored = [linear.stored for linear in decoder._fused]
    assert decoder.in_four_bits and not decoder.merged and all(isinstance(matrix, FourBitMatrix) for matrix in stored)
    assert len({matrix.dense().data_ptr() for matrix in stored}) == 1, "one dense matrix at a time"
    assert len(stored[0].scratch.memory) == max((sum(m.shape[:1]) + len(m.lora_a)) * m.shape[1] for m in stored)
    attention = model.get_base_model().model.layers[0].self_attn
    first = decoder.layers[0].qkv_proj.stored
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(attention, name).base_layer.weight
        assert weight.data.untyped_storage().data_ptr() == first.packed.untyped_storage().data_ptr()


def test_an_adapter_that_was_trained_or_switched_off_is_read_again(tmp_path: Path) -> None:
    model = four_bit_twin("llama", tmp_path, adapter=True)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    first = sampler(PROMPTS[:1], ["s"], max_new_tokens=8)[0]
    with torch.no_grad():
        next(weight for name, weight in model.named_parameters() if "lora_B" in name).add_(0.2)
    changed = sampler(PROMPTS[:1], ["s"], max_new_tokens=8)[0]
    assert changed.logprobs != first.logprobs
    assert torch.allclose(torch.tensor(changed.logprobs), logprobs_of(model, changed.prompt, changed.tokens), atol=2e-4)
    with model.disable_adapter():
        off = sampler(PROMPTS[:1], ["s"], max_new_tokens=8)[0]
        assert torch.allclose(torch.tensor(off.logprobs), logprobs_of(model, off.prompt, off.tokens), atol=2e-4)


def test_a_row_that_is_no_whole_number_of_blocks_is_left_to_the_library(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = four_bit_twin("llama", tmp_path, hidden_size=96, num_attention_heads=6)
    assert Sampler(model, stop_ids=[], pad_id=0).backend == "library"
    assert "a row of 96 weights is no multiple of 64" in caplog.text and "1.2 times slower" in caplog.text


def test_weights_that_a_cpu_has_packed_in_another_order_are_left_to_the_library(tmp_path: Path) -> None:
    model = four_bit_twin("llama", tmp_path)
    model.model.layers[0].mlp.down_proj.weight.quant_state.packing_format_for_cpu = True
    with pytest.raises(UnsupportedModelError, match="another order"):
        build_fast_decoder(model)


def test_float32_is_the_truth_of_a_base_that_computes_in_bfloat16(tmp_path: Path) -> None:
    """Else a decoder would be held against the library's own rounding."""
    model = four_bit_twin("llama", tmp_path, dtype=torch.bfloat16)
    decoder = build_fast_decoder(model)
    ids, mask = probe(262, torch.device("cpu"))
    with torch.no_grad():
        library = library_logprobs(model, ids, mask)
        with in_float32(model):
            truth = library_logprobs(model, ids, mask)
        exact = library_logprobs(load_base(tmp_path, torch.device("cpu"), torch.float32, True), ids, mask)
        ours = agreement.decoder_logprobs(decoder, ids, mask)
    assert agreement._distance(truth, exact) < 1e-4 < 1e-2 < agreement._distance(library, truth)
    assert agreement._distance(ours, truth) <= 1.25 * agreement._distance(library, truth)
    assert torch.equal(library_logprobs(model, ids, mask), library), "it computes in bfloat16 again"


def test_a_decoder_of_other_weights_in_four_bits_is_refused(tmp_path: Path) -> None:
    model = four_bit_twin("llama", tmp_path)
    decoder = build_fast_decoder(model)
    decoder.layers[1].down_proj.stored.scales.mul_(1.05)
    with pytest.raises(UnsupportedModelError, match="nats from float32"):
        check_agreement(decoder, model)


def test_training_takes_the_fast_forward(tmp_path: Path) -> None:
    forward = open_fast_forward(four_bit_twin("qwen2", tmp_path, adapter=True))
    assert forward.decoder.in_four_bits
