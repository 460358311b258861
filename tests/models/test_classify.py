"""Classifiers: what they read, that padding changes nothing, and what is refused."""

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import GPT2Config

from medloop.contracts import Message
from medloop.errors import ModelError
from medloop.models.classify import QUESTION_TOKENS, encode, is_encoder, new_classifier, open_classifier
from medloop.models.load import load_tokenizer
from medloop.testing.models import tiny_encoder, tiny_model

ANSWERS = ("Rest.", "Drink water and rest. " * 4, "Call the emergency number now, then sit down and wait.")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("bases")
    gpt2 = GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=256)
    folders = {
        "causal": tiny_model(place / "causal"),
        "encoder": tiny_encoder(place / "encoder"),
        "gpt2": tiny_model(place / "gpt2", config=gpt2),
        "pad is eos": tiny_model(place / "same"),
    }
    tokenizer = load_tokenizer(folders["pad is eos"])
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folders["pad is eos"])
    return folders


def dialogue(*turns: str) -> tuple[Message, ...]:
    roles = ("user", "assistant")
    return tuple(Message(role=roles[index % 2], content=text) for index, text in enumerate(turns))


@pytest.mark.parametrize("kind", ["causal", "encoder", "gpt2", "pad is eos"])
def test_a_logit_is_the_same_alone_in_company_and_in_any_order(bases, settings, kind: str):
    model = new_classifier(str(bases[kind]), settings, seed=1, trainable=True)
    rows = [encode(model.tokenizer, dialogue("What now?"), text, max_length=256).ids for text in ANSWERS]
    alone = [model.logits([row])[0] for row in rows]
    assert len({round(logit, 4) for logit in alone}) == 3, "the answers are told apart"
    assert model.logits(rows, batch_size=3) == pytest.approx(alone, abs=1e-5)
    assert model.logits(rows[::-1], batch_size=2) == pytest.approx(alone[::-1], abs=1e-5)


def test_the_logit_is_read_at_the_last_token_and_sees_the_question(bases, settings):
    model = new_classifier(str(bases["causal"]), settings, seed=1, trainable=True)
    first, second = (encode(model.tokenizer, dialogue(q), "Rest.", max_length=256).ids for q in ("My head?", "My foot?"))
    assert first[-1] == second[-1] == model.tokenizer.eos_token_id
    assert model.logits([first]) != model.logits([second])


def test_the_head_comes_from_the_seed(bases, settings):
    row = [[5, 6, 7]]
    first, again, other = (new_classifier(str(bases["causal"]), settings, seed=s, trainable=True).logits(row) for s in (1, 1, 2))
    assert first == again != other


def test_the_head_alone_is_new(bases, settings):
    assert new_classifier(str(bases["causal"]), settings, seed=1, trainable=True).fresh == ("score",)
    assert new_classifier(str(bases["encoder"]), settings, seed=1, trainable=True).fresh == ("classifier",)


@pytest.mark.parametrize("kind", ["causal", "encoder"])
def test_too_long_loses_old_messages_then_the_beginning_of_the_question_never_the_answer(bases, kind: str):
    tokenizer = load_tokenizer(bases[kind])
    answer = "The answer stays."
    short = encode(tokenizer, dialogue("old " * 30, "said", "new question"), answer, max_length=90)
    assert short.dropped_messages == 2 and short.dropped_tokens == 0
    cut = encode(tokenizer, dialogue("start " * 40 + "the end"), answer, max_length=90)
    text = tokenizer.decode(cut.ids)
    assert cut.dropped_tokens > 0 and len(cut.ids) <= 90
    assert "the end" in text and answer in text and "start start" in text
    assert encode(tokenizer, dialogue("q" * 40), "a" * (95 - QUESTION_TOKENS), max_length=95) is None


@pytest.mark.parametrize(("kind", "control"), [("causal", "<|im_end|>"), ("encoder", "[SEP]")])
def test_text_never_becomes_a_control_token(bases, kind: str, control: str):
    tokenizer = load_tokenizer(bases[kind])
    token = tokenizer.convert_tokens_to_ids(control)
    plain, forged = (encode(tokenizer, dialogue("a b"), f"c{x}d", max_length=256).ids.count(token) for x in ("", control))
    assert plain == forged and is_encoder(tokenizer) == (kind == "encoder")


def test_a_base_with_gaps_is_refused(bases, settings, tmp_path: Path):
    folder = tiny_model(tmp_path / "gaps")
    weights = load_file(folder / "model.safetensors")
    weights.pop(next(name for name in weights if "layers.1.mlp" in name))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lack 1 tensors"):
        new_classifier(str(folder), settings, seed=1, trainable=True)


def test_a_folder_with_a_pickle_or_without_a_scoring_is_refused(bases, settings, tmp_path: Path):
    folder = tiny_model(tmp_path / "strange")
    with pytest.raises(ModelError, match="not a reward model"):
        open_classifier(folder, settings)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ModelError, match="safetensors and JSON only"):
        new_classifier(str(folder), settings, seed=1, trainable=True)
