"""Tokens that open a sentence count more where a few corrections are learnt, whichever forward pass computes the loss."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.train.test_sft import captured_on_a_cpu

from medloop.contracts import Message, ModelRef, TrainingCard
from medloop.errors import ConfigError
from medloop.loop.train import STAGES, run_stage
from medloop.models.find import resolve
from medloop.models.load import load_tokenizer
from medloop.models.template import encode_example
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.configs.sft_config import OPENING_WEIGHT
from medloop.train.examples.openings import OpeningWeights
from medloop.train.examples.sft_examples import IGNORED
from medloop.train.runs import find_run
from medloop.train.sft import SFTConfig
from medloop.train.trl.sft_trainer import ResumableSFT, pack_examples


def encoded(tokenizer, question: str, answer: str) -> dict[str, list[int]]:
    messages = [Message(role="user", content=question), Message(role="assistant", content=answer)]
    example = encode_example(tokenizer, messages, max_length=256)
    assert example is not None
    ids = list(example.input_ids)
    return {
        "input_ids": ids,
        "labels": [token if bit else IGNORED for token, bit in zip(ids, example.completion_mask, strict=True)],
    }


@pytest.mark.parametrize(
    ("question", "answer", "openings"),
    [
        ("A fever. What dose?", "Ask a doctor first. Drink water! Rest.", ["Ask", "Drink", "Rest", ""]),
        ("孩子发烧。吃多少？", "先问医生。多喝水。", ["先", "多", ""]),
        ("Fever?", "Above 38.5 give 2.5 mg, e.g. at night. Ask Dr. Li.", ["Above", "Ask", ""]),
        ("发烧？", "医生说：“先休息。”多喝水。", ["医", "多", ""]),
    ],
)
@pytest.mark.parametrize("model", ["embedded:tiny", "embedded:obedient"])
def test_what_opens_a_sentence_and_what_ends_the_answer_weigh_more(settings: Settings, model, question, answer, openings):
    tokenizer = load_tokenizer(resolve(ModelRef(base=model), settings).folder)
    example = encoded(tokenizer, question, answer)
    ids, labels = (torch.tensor(example[name]) for name in ("input_ids", "labels"))
    weights = OpeningWeights(tokenizer, OPENING_WEIGHT)(ids, labels)
    heavy = [place + 1 for place, weight in enumerate(weights.tolist()) if weight == OPENING_WEIGHT]
    assert set(weights.tolist()) == {1.0, OPENING_WEIGHT} and len(heavy) == len(openings), "none of the question"
    shown = [tokenizer.decode(ids[place:], skip_special_tokens=True) for place in heavy]  # "。多喝水。" where one token is both
    assert (
        all(text.lstrip("。 ").startswith(start) for text, start in zip(shown, openings, strict=True)) and not shown[-1].strip()
    )
    packed = pack_examples([example, example], OpeningWeights(tokenizer, OPENING_WEIGHT))
    assert packed.weights is not None and packed.weights.tolist() == 2 * weights[labels[1:] != IGNORED].tolist()


@pytest.fixture
def losses_of(settings: Settings, tmp_path: Path) -> Callable[..., list[float]]:
    for name in ("fixes", "old"):
        rows = [f"{name} {n}: first this. Then that." for n in range(8)]
        texts = [
            [{"role": "user", "content": f"{name} {n}?"}, {"role": "assistant", "content": text}] for n, text in enumerate(rows)
        ]
        jsonl.write(tmp_path / f"{name}.jsonl", [{"messages": text} for text in texts])

    def train(name: str) -> list[float]:
        config = SFTConfig(
            name=name, model=settings.model, data=str(tmp_path / "fixes.jsonl"), replay_data=str(tmp_path / "old.jsonl"),
            batch_size=8, max_steps=2,
        )  # fmt: skip
        run_stage(STAGES["SFT"], config, settings)
        return [row["loss"] for row in jsonl.read(settings.home / f"models/lora/{name}/metrics.jsonl") if "loss" in row]

    return train


def test_every_forward_pass_weighs_them_alike_and_the_weight_is_part_of_the_run(settings, losses_of, monkeypatch):
    direct = losses_of("direct")
    with monkeypatch.context() as patch:
        patch.setattr(ResumableSFT, "_wants_fast", lambda self: True)
        fast = losses_of("fast")
        patch.setattr(ResumableSFT, "_captured_loss", captured_on_a_cpu)
        graph = losses_of("graph")
    with monkeypatch.context() as patch:
        patch.setattr(ResumableSFT, "_direct_agrees", lambda self: False)
        library = losses_of("library")
    assert len(direct) == 2
    for losses in (fast, graph, library):
        assert losses == pytest.approx(direct, rel=1e-3)
    card = TrainingCard.from_json((settings.home / "models/lora/direct/card.json").read_text(encoding="utf-8"))
    assert card.config["opening_weight"] == OPENING_WEIGHT
    monkeypatch.setattr(find_run, "OPENING_WEIGHT", 1.0)
    with pytest.raises(ConfigError, match=r"opening_weight 9\.0, now 1\.0"):
        losses_of("direct")
    assert losses_of("plain")[0] < direct[0]
