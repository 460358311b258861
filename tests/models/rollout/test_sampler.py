"""Rollouts: the same answer whatever it is batched with, and log-probabilities of the policy that drew it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from medloop.errors import ModelError, ResultError
from medloop.models.rollout import agreement, decode
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import Sampler, continuing
from medloop.testing.models import tiny_model

SHAPE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2}  # fmt: skip
CONFIGS: dict[str, PretrainedConfig | None] = {
    "llama": None,
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=8),
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, initializer_range=0.2),
}
PROMPTS = [[5, 6, 7], [9] * 12, [40, 41, 42, 43, 44], [5, 6, 7], [100]]
STREAMS = [f"s{n}" for n in range(len(PROMPTS))]
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    def model(kind: str = "llama", *, adapter: bool = False, **lora: Any) -> Any:
        folder = tmp_path_factory.mktemp(kind)
        loaded = AutoModelForCausalLM.from_pretrained(tiny_model(folder, config=CONFIGS[kind]), dtype=torch.float32)
        if adapter:
            loaded = get_peft_model(loaded, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **lora))
            stir(loaded)
        return loaded.eval()

    return model


def stir(model: Any, seed: int = 1) -> None:
    """The adapter has learnt something."""
    torch.manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)


def sample(
    model: Any, *, stops: tuple[int, ...] = (), library: bool = False, n: int = 12, temperature: float = 1.0, **kw: Any
) -> list[Rollout]:
    sampler = Sampler(model, stop_ids=stops, pad_id=0, library=library)
    return sampler(PROMPTS, STREAMS, max_new_tokens=n, temperature=temperature, **kw)


def close(first: list[Rollout], second: list[Rollout], within: float = 1e-4) -> bool:
    return [row.tokens for row in first] == [row.tokens for row in second] and all(
        abs(a - b) < within for x, y in zip(first, second, strict=True) for a, b in zip(x.logprobs, y.logprobs, strict=True)
    )


@torch.no_grad()
def forward_logprobs(model: Any, row: Rollout, temperature: float) -> torch.Tensor:
    """What a trainer would compute: one row, no padding, no cache."""
    ids = torch.tensor([[*row.prompt, *row.tokens]])
    logits = model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(row.tokens)[:, None]).squeeze(1)


@torch.no_grad()
def best_logprobs(model: Any, row: Rollout) -> torch.Tensor:
    logits = model(input_ids=torch.tensor([[*row.prompt, *row.tokens]])).logits[0, len(row.prompt) - 1 : -1]
    best: torch.Tensor = logits.float().log_softmax(-1).amax(-1)
    return best


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("adapter", [False, True])
def test_logprobs_are_those_of_a_plain_forward_at_the_sampling_temperature(make: Make, kind: str, adapter: bool) -> None:
    model = make(kind, adapter=adapter and kind != "gpt2")
    for row in sample(model, temperature=0.7):
        assert torch.allclose(torch.tensor(row.logprobs), forward_logprobs(model, row, 0.7), atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "gpt2"])
def test_the_fast_decoder_gives_the_library_s_answers(make: Make, kind: str) -> None:
    model = make(kind, adapter=True)
    assert Sampler(model, stop_ids=[], pad_id=0).backend == "fast"
    assert close(sample(model), sample(model, library=True))


def test_an_answer_does_not_depend_on_its_company(make: Make) -> None:
    model = make()
    together = sample(model)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    alone = [sampler([prompt], [stream], max_new_tokens=12)[0] for prompt, stream in zip(PROMPTS, STREAMS, strict=True)]
    assert close(together, alone) and close(together, sample(model, batch_size=2))


def test_the_same_prompt_with_another_stream_gets_another_answer(make: Make) -> None:
    rows = sample(make())
    assert rows[0].prompt == rows[3].prompt and rows[0].tokens != rows[3].tokens


@pytest.mark.parametrize("library", [False, True])
def test_a_row_ends_with_its_stop_token_and_the_others_go_on_unchanged(make: Make, library: bool) -> None:
    model = make()
    whole = sample(model, n=30, library=library)
    stop = whole[1].tokens[4]
    stopped = sample(model, n=30, stops=(stop,), library=library)
    for before, after in zip(whole, stopped, strict=True):
        length = before.tokens.index(stop) + 1 if stop in before.tokens else 30
        assert after.tokens == before.tokens[:length] and after.ended == (stop in before.tokens)
        assert len(after.logprobs) == length


def test_rows_that_continue_move_only_into_gaps() -> None:
    going = torch.tensor([False, True, True, False, True, False, True])
    assert continuing(going).tolist() == [4, 1, 2, 6]


@pytest.mark.parametrize("library", [False, True])
def test_many_rows_that_end_at_different_times_are_as_alone(make: Make, library: bool) -> None:
    sampler = Sampler(make(), stop_ids=range(100, 110), pad_id=0, library=library)
    prompts, streams = [prompt for prompt in PROMPTS for _ in range(6)], [f"r{n}" for n in range(6 * len(PROMPTS))]
    together = sampler(prompts, streams, max_new_tokens=40)
    assert len({len(row.tokens) for row in together}) > 8  # they leave the batch one after the other
    alone = [sampler([prompt], [stream], max_new_tokens=40)[0] for prompt, stream in zip(prompts, streams, strict=True)]
    assert close(together, alone)


def test_the_pad_token_may_be_a_stop_token(make: Make) -> None:
    model = make()
    stop = sample(model)[2].tokens[3]
    sampler = Sampler(model, stop_ids=[stop], pad_id=stop)
    assert close(sampler(PROMPTS, STREAMS, max_new_tokens=12), sample(model, stops=(stop,)))


def test_refresh_takes_what_the_adapter_has_learnt(make: Make) -> None:
    model = make(adapter=True)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    before = sampler(PROMPTS, STREAMS, max_new_tokens=12)
    stir(model, seed=2)
    assert close(before, sampler(PROMPTS, STREAMS, max_new_tokens=12))
    sampler.refresh()
    assert close(sampler(PROMPTS, STREAMS, max_new_tokens=12), sample(model, library=True))


def test_with_the_adapter_off_the_base_model_answers(make: Make) -> None:
    model = make(adapter=True)
    with model.disable_adapter():
        off = sample(model)
        assert close(off, sample(model, library=True))
    assert not close(off, sample(model))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_in_bfloat16_the_adapter_stays_beside_weights_that_are_not_copied(make: Make, kind: str) -> None:
    model = make(kind, adapter=True).to(torch.bfloat16)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    assert sampler.fast_decoder is not None and not sampler.fast_decoder.merged
    attention = model.get_base_model().model.layers[0].self_attn
    fused = sampler.fast_decoder.layers[0].qkv_proj.stored
    assert attention.k_proj.base_layer.weight.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
    stir(model, seed=3)
    sampler.refresh()
    for row in sampler(PROMPTS, STREAMS, max_new_tokens=6):
        assert torch.allclose(torch.tensor(row.logprobs), forward_logprobs(model, row, 1.0), atol=0.15)


@pytest.mark.parametrize(("kind", "lora"), [("gpt2", None), ("llama", {"use_dora": True})])
def test_what_the_fast_decoder_does_not_support_is_sampled_by_the_library(
    make: Make, kind: str, lora: dict[str, Any] | None
) -> None:
    model = make(kind, adapter=lora is not None, **(lora or {}))
    assert Sampler(model, stop_ids=[], pad_id=0).backend == "library"
    assert len(sample(model)) == len(PROMPTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fast_decoder_that_differs_is_not_used(make: Make, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(decode, "_apply_rotary", lambda x, cos, sin: x)  # as if this architecture rotated otherwise
    assert Sampler(make().to(dtype), stop_ids=[], pad_id=0).backend == "library"


def test_a_fallback_says_why_and_what_it_costs(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    Sampler(make("gpt2"), stop_ids=[], pad_id=0)
    assert "times slower" in caplog.text and "its architecture is gpt2" in caplog.text


def test_rounding_that_a_fixed_bound_would_refuse_is_accepted(make: Make) -> None:
    """Large logits in bfloat16: two correct forward passes are far apart, and equally far from float32."""
    model = make(adapter=True)
    with torch.no_grad():
        model.get_base_model().lm_head.weight.mul_(8)
    model = model.to(torch.bfloat16)
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    assert sampler.backend == "fast" and sampler.fast_decoder is not None
    probe = agreement.probe(262, torch.device("cpu"))
    with torch.no_grad():
        difference = agreement.decoder_logprobs(sampler.fast_decoder, *probe) - agreement.library_logprobs(model, *probe)
    assert difference.abs().max() > 0.15


def test_the_float32_reference_leaves_the_weights_as_they_were(make: Make) -> None:
    model = make(adapter=True).to(torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with agreement.in_float32(model):
        assert model(input_ids=torch.tensor([[5, 6, 7]])).logits.dtype == torch.float32
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("library", [False, True])
def test_temperature_0_takes_the_most_likely_token(make: Make, library: bool) -> None:
    model = make()
    for row in sample(model, temperature=0.0, library=library):
        assert torch.allclose(torch.tensor(row.logprobs), best_logprobs(model, row), atol=1e-4)


def test_weights_that_are_not_finite_are_said(make: Make) -> None:
    model = make()
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        sample(model, library=True)


def test_lack_of_memory_halves_the_batch_and_changes_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model, plain = make(), Sampler._sample

    def poor(self: Sampler, batch: list[Any], *args: Any) -> Any:
        if len(batch) > room:
            raise torch.OutOfMemoryError("no room")
        return plain(self, batch, *args)

    whole, room = sample(model), 2
    monkeypatch.setattr(Sampler, "_sample", poor)
    assert close(whole, sample(model))
    room = 0
    with pytest.raises(ResultError, match="not enough memory"):
        sample(model)


def test_a_batch_size_that_did_not_fit_is_said_once_and_not_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = list[int]()

    def poor(self: Sampler, batch: list[Any], *args: Any) -> Any:
        tried.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("no room")
        return plain(self, batch, *args)

    plain, sampler = Sampler._sample, Sampler(make(), stop_ids=[], pad_id=0)
    monkeypatch.setattr(Sampler, "_sample", poor)
    for call in range(2):
        sampler([[5, 6, 7]] * 6, [f"{call}:{n}" for n in range(6)], max_new_tokens=1)
    assert tried == [6, 3, 1, 1, 1, 1, 1, 1] + [1] * 6 and sampler.batch_limit == 1
    assert caplog.text.count("answers at once in sampling") == 2


def test_frequencies_follow_the_distribution(make: Make) -> None:
    model = make()
    sampler = Sampler(model, stop_ids=[], pad_id=0)
    rows = sampler([[5, 6, 7]] * 4000, [f"n{n}" for n in range(4000)], max_new_tokens=1, temperature=0.8, batch_size=4000)
    counts = torch.bincount(torch.tensor([row.tokens[0] for row in rows]), minlength=262) / 4000
    with torch.no_grad():
        expected = (model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1] / 0.8).softmax(-1)
    assert (counts - expected).abs().max() < 0.03


def test_progress_counts_rows(make: Make) -> None:
    seen: list[tuple[int, int]] = []
    sample(make(), batch_size=2, progress=lambda done, all_: seen.append((done, all_)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.gpu
def test_the_graph_gives_the_loop_s_answers(make: Make) -> None:
    model = make(adapter=True).cuda()
    sampler = Sampler(model, stop_ids=[7, 8, 9, 10], pad_id=0)
    assert sampler.backend == "cuda_graph"
    prompts, streams = PROMPTS * 8, [f"g{n}" for n in range(8 * len(PROMPTS))]
    drawn = sampler(prompts, streams, max_new_tokens=100)
    assert close(
        drawn, Sampler(model, stop_ids=[7, 8, 9, 10], pad_id=0, library=True)(prompts, streams, max_new_tokens=100), 1e-3
    )
    stir(model, seed=5)
    sampler.refresh()
    again = Sampler(model, stop_ids=[7, 8, 9, 10], pad_id=0, library=True)(prompts, streams, max_new_tokens=100)
    assert close(sampler(prompts, streams, max_new_tokens=100), again, 1e-3)
