"""The reward model by our own forward pass: the library's logits and gradients, and a reason where the library computes."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, BertConfig, LlamaConfig

from medloop.models.fast_forward import open_fast_classifier
from medloop.models.rollout.decode import UnsupportedModelError
from medloop.testing.families import family_configs
from medloop.train.trl.fast_path import FastPath
from medloop.train.trl.reward_trainer import ResumableReward, pack_pairs

PROMPT = list(range(20, 40))
CHOSEN = [[*PROMPT, 50, 51, 52], [*PROMPT, 9, 9, 9, 9, 8], [7, 8, 9], [60, 61]]
REJECTED = [[*PROMPT, 50, 70], [*PROMPT, 9], [11, 12, 13, 14], [60, 61, 62, 63]]  # alike, a beginning of it, other, a beginning


def classifier(config: Any) -> Any:
    torch.manual_seed(0)
    config.num_labels, config.pad_token_id = 1, 0
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    lora = LoraConfig(
        r=4, target_modules="all-linear", exclude_modules=[".*score.*"], modules_to_save=["score"], task_type="SEQ_CLS"
    )
    model = get_peft_model(model, lora)
    for name, parameter in model.named_parameters():
        if "lora_" in name or "score" in name:
            torch.nn.init.normal_(parameter.data, std=0.1)
    return model.eval()


def gradients(model: Any, logits: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    chosen, rejected = logits.squeeze(-1).chunk(2)
    (-torch.nn.functional.logsigmoid(chosen - rejected).mean()).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_logits_and_gradients_are_the_library_s(family: str) -> None:
    model = classifier(family_configs()[family])
    rows = [*CHOSEN, *REJECTED]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    trainer = object.__new__(ResumableReward)  # the forward pass alone, as training calls it
    trainer.model, trainer.path = model, FastPath("The reward model", forward=open_fast_classifier(model))
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    library, ours = model(**inputs).logits, trainer._forward(**inputs).logits
    assert trainer.backend == "fast"
    torch.testing.assert_close(ours, library, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(gradients(model, ours), gradients(model, library), atol=1e-4, rtol=1e-3)


@pytest.mark.gpu
def test_on_a_gpu_logits_and_gradients_are_the_library_s_to_rounding() -> None:
    shape = {"hidden_size": 192, "intermediate_size": 400, "num_attention_heads": 6, "num_key_value_heads": 2}
    model = classifier(LlamaConfig(**shape, num_hidden_layers=3, vocab_size=262))
    for name, parameter in model.named_parameters():
        if "lora_" not in name and "score" not in name:
            parameter.data = parameter.data.to(torch.bfloat16)
    model = model.cuda()
    forward, rows = open_fast_classifier(model), [*CHOSEN, *REJECTED]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device="cuda")
    packed, last = pack_pairs(rows, torch.device("cuda"))
    with torch.autocast("cuda", torch.bfloat16):
        library = model(input_ids=ids, attention_mask=(ids != 0).long()).logits.float()
        ours = model.get_base_model().score(forward(packed)[last]).float()
    torch.testing.assert_close(ours, library, atol=0.03 * float(library.detach().abs().max()), rtol=0.05)
    theirs = gradients(model, library)
    assert float((gradients(model, ours) - theirs).norm() / theirs.norm()) < 0.1


def test_what_a_pair_begins_with_stands_once() -> None:
    packed, last = pack_pairs([*CHOSEN, *REJECTED], torch.device("cpu"))
    assert len(packed.tokens) < sum(map(len, [*CHOSEN, *REJECTED])) - len(PROMPT)
    assert packed.tokens[last].tolist() == [row[-1] for row in [*CHOSEN, *REJECTED]]


def test_an_encoder_is_refused_with_the_reason() -> None:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 99}
    bert = AutoModelForSequenceClassification.from_config(BertConfig(**shape, num_labels=1))
    model = get_peft_model(bert, LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS"))
    with pytest.raises(UnsupportedModelError, match="its architecture is bert, without a score"):
        open_fast_classifier(model)
