"""The policy: its log-probabilities, its reference, and what of it learns."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CohereConfig, GPT2Config

from medloop.contracts import ModelRef
from medloop.loop.train import STAGES, run_stage
from medloop.models.fast_forward import open_fast_forward
from medloop.models.load import load
from medloop.models.rollout.decode import FastDecoder
from medloop.models.rollout.rollouts import Rollout
from medloop.testing.models import tiny_model
from medloop.train.rl.policy import Policy, collate, open_policy
from medloop.train.sft import SFTConfig

ROWS = [
    Rollout((5, 6, 7), (8, 9, 10, 11), (0.0,) * 4, True, "a"),
    Rollout((9,) * 12, (3, 4), (0.0,) * 2, True, "b"),
    Rollout((40, 41), (1, 2, 3, 4, 5, 6, 7), (0.0,) * 7, False, "c"),
]


def test_a_base_in_four_bits_samples_what_it_scores_and_learns(taught: Any) -> None:
    """On a machine without bitsandbytes this is skipped; `make setup` installs it."""
    pytest.importorskip("bitsandbytes")
    policy = open_policy(ModelRef(base=taught.model, adapter="sft"), taught, load_in_4bit=True)
    assert "Linear4bit" in str(policy.model)
    drawn = policy.sampler()([row.prompt for row in ROWS], ["a", "b", "c"], max_new_tokens=9, temperature=0.7)
    batch = collate(drawn, policy.pad_id, policy.device)
    logprobs = policy.forward(batch, temperature=0.7).logprobs
    for row, own in zip(drawn, logprobs, strict=True):
        assert own[: len(row.tokens)].tolist() == pytest.approx(row.logprobs, abs=1e-4)
    logprobs.sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for name, p in policy.trained().items() if "lora_A" in name)
    with policy.reference():
        assert torch.allclose(policy.forward(batch, temperature=0.7).logprobs, logprobs.detach())


def test_a_base_in_four_bits_is_sampled_and_trained_by_one_decoder(taught: Any, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    base = tiny_model(tmp_path / "wide", width=64)
    policy = open_policy(ModelRef(base=str(base)), taught, load_in_4bit=True, lora_r=4)
    learn(policy)
    sampler = policy.sampler()
    assert (sampler.backend, policy.update_backend) == ("fast", "fast")
    assert sampler.fast_decoder is policy.fast.decoder, "two would hold the weights twice"
    for step in range(2):  # the sampler reads what was learnt since, also after the reference was computed
        drawn = sampler([row.prompt for row in ROWS], ["a", "b", "c"], max_new_tokens=9, temperature=0.7)
        with policy.reference():
            logprobs(policy, drawn)
        policy.fast, fast = None, policy.fast
        library = logprobs(policy, drawn)
        policy.fast = fast
        for row, own in zip(drawn, library, strict=True):
            assert own[: len(row.tokens)].tolist() == pytest.approx(row.logprobs, abs=1e-4), step
        learn(policy)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, new_workspace: Any) -> Any:
    settings = new_workspace(tmp_path_factory.mktemp("taught"))
    config = SFTConfig(name="sft", model=settings.model, batch_size=8, learning_rate=0.02, lora_r=4)
    run_stage(STAGES["SFT"], config, settings)
    return settings


def opened(settings: Any, adapter: str | None = "sft", **more: Any) -> Policy:
    return open_policy(ModelRef(base=settings.model, adapter=adapter), settings, **more)


def logprobs(policy: Policy, rows: list[Rollout] = ROWS, temperature: float = 0.7) -> torch.Tensor:
    with torch.no_grad():
        return policy.forward(collate(rows, policy.pad_id, policy.device), temperature=temperature).logprobs


def learn(policy: Policy, steps: int = 3) -> None:
    optimizer = torch.optim.AdamW(policy.trained().values(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        scored = policy.forward(
            collate(ROWS, policy.pad_id, policy.device), temperature=1.0, values=policy.value_head is not None
        )
        (-scored.logprobs.sum() + (0 if scored.values is None else (scored.values - 1).square().sum())).backward()
        optimizer.step()


def test_company_and_padding_change_no_logprob(taught: Any) -> None:
    policy = opened(taught)
    together = logprobs(policy)
    for index, row in enumerate(ROWS):
        assert torch.allclose(together[index, : len(row.tokens)], logprobs(policy, [row])[0], atol=1e-5)
        assert bool((together[index, len(row.tokens) :] == 0).all())


@pytest.mark.parametrize("config", [None, GPT2Config(n_embd=32, n_layer=1, n_head=2), CohereConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, logit_scale=0.3)])  # fmt: skip
def test_logprobs_are_the_model_s_own_whatever_follows_its_output_layer(taught: Any, tmp_path: Path, config: Any) -> None:
    folder = tiny_model(tmp_path / "m", config=config)
    policy = open_policy(ModelRef(base=str(folder)), taught, lora_r=2)
    assert policy.direct == (not isinstance(config, CohereConfig))
    for row in ROWS:
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*row.prompt, *row.tokens]])).logits[0, len(row.prompt) - 1 : -1] / 0.7
        expected = logits.log_softmax(-1).gather(1, torch.tensor(row.tokens)[:, None]).squeeze(1)
        assert torch.allclose(logprobs(policy, [row])[0], expected, atol=1e-4)


def test_the_sampler_s_logprobs_are_the_trainer_s(taught: Any) -> None:
    policy = opened(taught)
    drawn = policy.sampler()([row.prompt for row in ROWS], ["a", "b", "c"], max_new_tokens=9, temperature=0.7)
    again = logprobs(policy, drawn)
    for index, row in enumerate(drawn):
        ratio = (again[index, : len(row.tokens)] - torch.tensor(row.logprobs)).exp()
        assert bool(((ratio - 1).abs() < 1e-4).all())


@pytest.mark.parametrize("adapter", ["sft", None])
def test_the_reference_equals_a_separate_frozen_copy_exactly_and_stays_so(taught: Any, adapter: str | None) -> None:
    policy = opened(taught, adapter, lora_r=4)
    before = logprobs(policy)
    copied = Policy(policy.loaded, copy.deepcopy(policy.model), None, policy.has_reference)
    learn(policy)
    with policy.reference():
        assert torch.equal(logprobs(policy), logprobs(copied)) and torch.equal(logprobs(policy), before)
    assert not torch.allclose(logprobs(policy), before, atol=1e-3), "the policy itself has moved"


def test_after_an_adapter_the_reference_is_the_adapter_not_the_base(taught: Any) -> None:
    policy = opened(taught)
    base = open_policy(ModelRef(base=taught.model), taught)
    with policy.reference():
        assert not torch.allclose(logprobs(policy), logprobs(base), atol=1e-2)


@pytest.mark.parametrize("adapter", ["sft", None])
def test_an_exception_inside_the_reference_leaves_the_policy_as_it_was(taught: Any, adapter: str | None) -> None:
    policy = opened(taught, adapter)
    learn(policy)
    before, names = logprobs(policy), [name for name, p in policy.model.named_parameters() if p.requires_grad]
    with pytest.raises(ZeroDivisionError), policy.reference():
        raise ZeroDivisionError
    assert torch.equal(logprobs(policy), before)
    assert [name for name, p in policy.model.named_parameters() if p.requires_grad] == names == list(policy.trained())


def test_only_the_adapter_and_the_value_head_learn(taught: Any) -> None:
    policy = opened(taught, with_values=True)
    frozen = {name: p.detach().clone() for name, p in policy.model.named_parameters() if name not in policy.trained()}
    learn(policy)
    assert all(("default" in name) or name.startswith("value_head") for name in policy.trained())
    now = dict(policy.model.named_parameters())
    assert all(torch.equal(now[name], value) and now[name].grad is None for name, value in frozen.items())
    assert any("reference" in name for name in frozen)


def test_under_five_percent_of_the_embedded_model_learns(taught: Any) -> None:
    policy = open_policy(ModelRef(base="embedded:tiny"), taught, lora_r=8, with_values=True)
    every = sum(p.numel() for p in policy.model.parameters())
    assert sum(p.numel() for p in policy.trained().values()) < 0.05 * every


def test_the_critic_starts_at_zero_and_is_float32(taught: Any) -> None:
    policy = opened(taught, with_values=True)
    values = policy.forward(collate(ROWS, policy.pad_id, policy.device), temperature=1.0, values=True).values
    assert values is not None and bool((values == 0).all()) and policy.value_head is not None
    assert policy.value_head.weight.dtype == torch.float32


def test_adapters_on_a_half_precision_base_are_float32(taught: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medloop.models.runtime.number_type", lambda device, trainable: torch.bfloat16)
    policy = opened(taught)
    assert next(load(ModelRef(base=taught.model), taught).model.parameters()).dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in policy.trained().values())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_is_off_also_while_learning(taught: Any, tmp_path: Path, checkpointing: bool) -> None:
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    folder = tiny_model(tmp_path / "m", config=config)
    policy = open_policy(ModelRef(base=str(folder)), taught, gradient_checkpointing=checkpointing)
    batch = collate(ROWS, policy.pad_id, policy.device)
    first, second = (policy.forward(batch, temperature=1.0).logprobs for _ in range(2))
    assert torch.equal(first, second)


def test_gradient_checkpointing_changes_no_gradient(taught: Any) -> None:
    grads = []
    for checkpointing in (False, True):
        policy = opened(taught, gradient_checkpointing=checkpointing)
        policy.forward(collate(ROWS, policy.pad_id, policy.device), temperature=1.0).logprobs.sum().backward()
        grads.append({name: p.grad for name, p in policy.trained().items()})
    assert all(torch.allclose(grads[0][name], grads[1][name], atol=1e-6) for name in grads[0])


def test_rows_beyond_the_rotary_tables_are_left_to_the_library(taught: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the fast forward is used: its plain operations on a CPU."""
    policy = opened(taught)
    expected = logprobs(policy)
    policy.fast = open_fast_forward(policy.model)
    for limit, packed in ((14, True), (13, False)):
        monkeypatch.setattr(FastDecoder, "max_positions", limit)
        batch = policy.collate(ROWS)
        assert (batch.packed is not None) is packed
        with torch.no_grad():
            assert torch.allclose(policy.forward(batch, temperature=0.7).logprobs, expected, atol=1e-4)
