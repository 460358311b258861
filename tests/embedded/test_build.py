"""The embedded model: what ships is the recipe's, small, whole and coherent; the recipe is reproducible."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

import medloop
from medloop.contracts import Message, ModelRef, TrainingCard
from medloop.embedded.build import OBEDIENT, BuildConfig, batches, build_model, learning_rate_factor, render, system_message
from medloop.embedded.corpus import generate
from medloop.embedded.rule_rows import obeys, unseen_rule_rows
from medloop.embedded.sample import sample_answers
from medloop.models.generate import load_generator
from medloop.settings import Settings
from medloop.store.files.artifacts import folder_sha256, verify_artifact

TINY = Path(medloop.__file__).parent / "assets/tiny"
MICRO = BuildConfig(
    rows=100,
    rule_rows=20,
    epochs=1,
    batch_rows=20,
    vocabulary=400,
    hidden=16,
    layers=1,
    heads=2,
    kv_heads=1,
    feed_forward=16,
    context=512,
)


@pytest.mark.parametrize(("folder", "recipe"), [(TINY, {}), (TINY.with_name("obedient"), OBEDIENT)])
def test_the_shipped_models_are_whole_small_and_from_the_recipe(folder: Path, recipe: dict[str, Any]) -> None:
    manifest = verify_artifact(folder)
    assert sum(f.size for f in manifest.files) <= 8_000_000
    card = TrainingCard.from_json((folder / "card.json").read_text(encoding="utf-8"))
    assert BuildConfig.model_validate(card.config) == BuildConfig.model_validate(recipe)


def test_render_is_the_chat_template() -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for row in generate(30, seed=8):
        assert tokenizer.apply_chat_template(row["messages"], tokenize=False) == render(row["messages"])


def test_any_text_survives_the_tokenizer() -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for text in ("Ünïcode ✓ 🙂\t\n  spaces", "混合 mixed 文本 123.45 mg", "<think>\n想\n</think>\n答"):
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


@pytest.mark.parametrize(("temperature", "bound"), [(0.0, 0.98), (1.0, 0.9)])
def test_it_answers_questions_it_has_never_read_coherently_in_both_languages(
    tmp_path: Path, temperature: float, bound: float
) -> None:
    generator = load_generator(ModelRef(base="embedded:tiny"), Settings(home=tmp_path))
    answers = sample_answers(generator, n=40, seed=21, temperature=temperature)
    for language in ("en", "zh"):
        fits = [a.coherence for a in answers if a.language == language]
        assert sum(fits) / len(fits) >= bound


def test_the_same_seed_builds_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_model(MICRO.model_copy(update={"seed": seed}), tmp_path / name, device="cpu", report=lambda *_: None)
    weights = [folder_sha256_of_weights(tmp_path / name) for name in "abc"]
    assert weights[0] == weights[1] != weights[2]


def folder_sha256_of_weights(folder: Path) -> bytes:
    assert folder_sha256(folder)
    return (folder / "model.safetensors").read_bytes() + (folder / "tokenizer.json").read_bytes()


def test_an_epoch_shows_every_row_once() -> None:
    rows = [[n] * (1 + n % 7) for n in range(1, 96)]
    seen = [row[0].item() for batch in batches(rows, MICRO, 0) for row in batch]
    assert sorted(seen) == list(range(1, 96))


def test_the_learning_rate_warms_up_and_falls_to_a_tenth() -> None:
    factors = [learning_rate_factor(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(1 / 30) and max(factors) == 1.0
    assert factors[-1] == pytest.approx(0.1, abs=1e-3)
    assert torch.tensor(factors[30:]).diff().max() <= 0


def test_a_conversation_prompt_can_be_asked(tmp_path: Path) -> None:
    generator = load_generator(ModelRef(base="embedded:tiny"), Settings(home=tmp_path))
    answer = generator([(Message(role="user", content="谢谢！"),)], max_new_tokens=40)[0]
    assert answer.text == "不客气。请多保重，如果加重请去看医生。" and answer.finish_reason == "stop"


def test_the_system_message_is_read_and_not_learned() -> None:
    end, system = 2, 7
    ids = torch.tensor([[1, system, 5, end, 9, 1, 8, 6, end], [1, 8, 5, 6, end, 9, 1, 4, end]])
    assert system_message(ids, end, system).int().sum(dim=1).tolist() == [4, 0]
    assert not system_message(ids, end, None).any()


def test_the_obedient_model_obeys_rules_about_conditions_it_has_no_rule_of(tmp_path: Path) -> None:
    """Far below what was measured (docs/log.md#rules-in-the-prompt): a model that does not obey has none or one of six."""
    generator = load_generator(ModelRef(base="embedded:obedient"), Settings(home=tmp_path))
    for kind in ("first", "followup", "act"):
        rows = list(unseen_rule_rows(12, seed=5, kind=kind, template=True))
        prompts = [tuple(Message(**message) for message in row["messages"][:-1]) for row in rows]
        answers = generator(prompts, max_new_tokens=200, temperature=0.0, seed=0)
        assert sum(obeys(row, answer.text) for row, answer in zip(rows, answers, strict=True)) >= 9, kind
