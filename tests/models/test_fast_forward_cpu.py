"""The fast training forward on a CPU: the library's log-probabilities and gradients, whatever the family and however packed."""

from functools import cached_property
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from medloop.models.fast_forward import open_fast_forward
from medloop.models.forward_plain import _Grid
from medloop.models.packing import pack
from medloop.testing.families import family_configs
from medloop.train.rl.logprobs import logits_logprobs, token_logprobs

SHARED = list(range(3, 14))
PROMPTS = [SHARED, SHARED, [5, 6, 7], SHARED, [100]]
ANSWERS = [list(range(20, 29)), [4], list(range(40, 57)), list(range(60, 100)), [1, 2, 3, 4, 5]]
WEIGHTS = [1.0, -0.5, 0.3, -1.0, 0.7]
FAMILIES = family_configs(hidden_size=64, intermediate_size=96, vocab_size=128)


def model_of(family: str, rank: int = 4) -> Any:
    torch.manual_seed(0)
    config = FAMILIES[family]
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter.data, std=0.05)
    return model.eval()


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def library_loss(model: Any) -> torch.Tensor:
    total = torch.zeros(())
    for prompt, answer, weight in zip(PROMPTS, ANSWERS, WEIGHTS, strict=True):
        logits = model(input_ids=torch.tensor([prompt + answer]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        total = total + logits_logprobs(logits, torch.tensor(answer), temperature=0.7).logprobs.sum() * weight
    return total


@pytest.mark.parametrize("times", [1, 12])  # with 12 copies there are more tokens than inputs, and the adapter is merged
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_are_the_library_s(family: str, times: int) -> None:
    model = model_of(family)
    expected = library_loss(model)
    expected_gradients = gradients(model, expected)
    forward = open_fast_forward(model)
    answers = ANSWERS * times
    rows, predictors = pack(PROMPTS * times, answers, torch.device("cpu"))
    mask = torch.arange(predictors.shape[1]) < torch.tensor([len(answer) for answer in answers])[:, None]
    targets = torch.zeros_like(predictors).masked_scatter_(mask, torch.tensor([token for answer in answers for token in answer]))
    head = model.get_base_model().get_output_embeddings()
    scored = token_logprobs(
        forward(rows)[predictors], head.weight, targets, temperature=0.7, mask=mask, softcap=forward.decoder.logit_softcap
    )
    loss = (scored.logprobs.sum(1) * torch.tensor(WEIGHTS * times)).sum() / times
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-3)
    difference = gradients(model, loss) - expected_gradients
    assert difference.norm() < 1e-3 * expected_gradients.norm()


@pytest.mark.parametrize("change", ["other values", "adapter off"])
def test_an_adapter_that_is_read_again_before_the_way_back_is_refused(change: str) -> None:
    """The way back would multiply with other matrices than the way there."""
    model = model_of("llama")
    forward = open_fast_forward(model)
    rows, predictors = pack(PROMPTS, ANSWERS, torch.device("cpu"))
    loss = forward(rows)[predictors].sum()
    if change == "other values":
        forward.decoder.refresh_values()
    else:
        with model.disable_adapter():
            forward.decoder.refresh_if_changed()
    with pytest.raises(AssertionError, match="read again between"):
        loss.backward()


def test_the_mask_of_a_batch_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each layer, both ways: it is as large as the attention's scores."""
    made, plain = list[torch.Tensor](), _Grid.added.func  # type: ignore[attr-defined]

    def counted(grid: _Grid) -> torch.Tensor:
        made.append(plain(grid))
        return made[-1]

    counting = cached_property(counted)
    counting.__set_name__(_Grid, "added")
    monkeypatch.setattr(_Grid, "added", counting)
    model = model_of("llama")
    forward = open_fast_forward(model)
    made.clear()
    rows, predictors = pack(PROMPTS, ANSWERS, torch.device("cpu"))
    forward(rows)[predictors].sum().backward()
    assert len(made) == 2  # prompts and answers
