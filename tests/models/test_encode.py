"""Encoders: a text's vector is its own, whatever stands beside it; heads that would be random are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel, XLMRobertaConfig, XLMRobertaModel

from medloop.errors import ConfigError, ModelError
from medloop.models import encode, hub
from medloop.models.encode import load_cross_encoder, load_encoder
from medloop.models.safety import needed_name
from medloop.settings import RewardSettings, Settings
from medloop.testing.models import tiny_tokenizer

TEXTS = ["Is it flu?", "It may be the flu, so rest and drink a lot of water.", "我发烧了", ":", "Is it flu?", "word " * 200]
EN = ["I have a headache and a fever.", "My head hurts and I am hot.", "The bus leaves at nine.", "Rest."]


def bert(folder: Path, labels: int | None = 1, width: int = 32) -> Path:
    """A random BERT of two layers: a cross-encoder, or with `labels=None` an encoder without a head."""
    tokenizer = tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=128, initializer_range=0.5, pad_token_id=tokenizer.pad_token_id, num_labels=labels or 2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = BertModel(config) if labels is None else BertForSequenceClassification(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("encoders") / "plain", labels=None)


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("encoders") / "crossing")


def test_a_vector_does_not_depend_on_batch_padding_or_order(plain: Path, settings: Settings) -> None:
    whole = load_encoder(str(plain), settings).encode(TEXTS)
    alone = load_encoder(str(plain), settings, batch_tokens=1).encode(TEXTS)
    turned = load_encoder(str(plain), settings, batch_tokens=40).encode(TEXTS[::-1])[::-1]
    assert np.allclose(whole, alone, atol=1e-5) and np.allclose(whole, turned, atol=1e-5)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1) and np.array_equal(whole[0], whole[4])
    assert not np.allclose(whole[0], whole[1], atol=0.01)


def test_the_mean_is_over_the_tokens_of_the_text_alone(plain: Path, settings: Settings) -> None:
    encoder = load_encoder(str(plain), settings)
    ids = encoder.tokenizer(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        mean = encoder.model(**ids).last_hidden_state[0].mean(0)  # by hand: one text, no padding, all positions
    assert np.allclose(encoder.encode(TEXTS)[0], (mean / mean.norm()).numpy(), atol=1e-5)


def test_pooling_is_what_the_folder_says(plain: Path, settings: Settings, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(plain, tmp_path / "cls"))
    (folder / "modules.json").write_text("[]")
    with pytest.raises(ModelError, match="lacks 1_Pooling"):
        load_encoder(str(folder), settings)
    (folder / "1_Pooling").mkdir()
    for config, pooling in [({"pooling_mode_cls_token": True}, "cls"), ({"pooling_mode": "mean"}, "mean")]:
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 32, **config}))
        assert load_encoder(str(folder), settings).pooling == pooling
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ModelError, match="pools by max_tokens"):
        load_encoder(str(folder), settings)
    assert load_encoder(str(folder), settings, pooling="cls").pooling == "cls"


def test_cls_takes_the_first_token(plain: Path, settings: Settings) -> None:
    cls = load_encoder(str(plain), settings, pooling="cls")
    assert np.allclose(cls.encode(TEXTS)[1], cls.tokens(TEXTS)[1][0], atol=1e-6)


def test_texts_beyond_the_model_are_cut_and_nothing_is_nothing(plain: Path, settings: Settings) -> None:
    encoder = load_encoder(str(plain), settings)
    assert encoder.max_tokens == 128 and len(encoder.tokens([TEXTS[-1]])[0]) == 128
    assert np.array_equal(*encoder.encode([TEXTS[-1], TEXTS[-1] + "end"]))
    assert not encoder.encode([""]).any() and encoder.tokens([""])[0].shape == (0, 32) and encoder.encode([]).shape == (0, 32)


def test_positions_behind_the_padding_token_are_not_counted_on(settings: Settings, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=300, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    XLMRobertaModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path), settings)  # as bge-m3: positions start at the padding token's number + 1
    assert encoder.max_tokens == 300 - 257 and encoder.encode(TEXTS).shape == (6, 32)


def test_a_cross_encoder_gives_the_sigmoid_of_its_logit_whatever_the_batch(crossing: Path, settings: Settings) -> None:
    pairs = [(a, b) for a in TEXTS for b in TEXTS]
    model = load_cross_encoder(str(crossing), settings)
    whole, alone = model.score(pairs), load_cross_encoder(str(crossing), settings, batch_tokens=1).score(pairs)
    assert whole == pytest.approx(alone, abs=1e-5) and all(0 < value < 1 for value in whole) and len(set(whole)) > 5
    with torch.inference_mode():
        logit = model.model(**model.tokenizer(*pairs[1], return_tensors="pt")).logits
    assert whole[1] == pytest.approx(float(torch.sigmoid(logit)), abs=1e-5) and model.score([]) == []


def test_a_head_that_would_be_random_is_refused(plain: Path, crossing: Path, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lack \d tensors, for example (bert|classifier)"):
        load_cross_encoder(str(plain), settings)
    gaps = Path(shutil.copytree(crossing, tmp_path / "gaps"))
    tensors = load_file(gaps / "model.safetensors")
    del tensors["classifier.weight"]
    save_file(tensors, gaps / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"classifier\.weight"):
        load_cross_encoder(str(gaps), settings)
    with pytest.raises(ModelError, match="3 classes"):
        load_cross_encoder(str(bert(tmp_path / "three", labels=3)), settings)


def test_only_an_unused_pooler_may_be_lacking_in_an_encoder(plain: Path, settings: Settings, tmp_path: Path) -> None:
    folder, tensors = Path(shutil.copytree(plain, tmp_path / "p")), load_file(plain / "model.safetensors")
    remaining = {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler")}
    save_file(remaining, folder / "model.safetensors", metadata={"format": "pt"})
    assert load_encoder(str(folder), settings).encode(EN).shape == (4, 32)
    del remaining["encoder.layer.1.output.dense.weight"]
    save_file(remaining, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lack 1 tensors"):
        load_encoder(str(folder), settings)


def test_pickles_are_refused_and_the_device_is_the_rewards_own(plain: Path, settings: Settings, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(plain, tmp_path / "p"))
    (folder / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        load_encoder(str(folder), settings)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"reward\.device is 'cuda'"):
            load_encoder(str(plain), settings.model_copy(update={"reward": RewardSettings(device="cuda")}))


def test_a_hub_gives_the_pooling_too() -> None:
    assert needed_name("1_Pooling/config.json") and not needed_name("onnx/config.json")
    assert hub.needed_name is needed_name


def test_the_embedded_encoder_knows_what_belongs_together_and_that_it_reads_no_chinese(settings: Settings) -> None:
    encoder = load_encoder("embedded:minilm", settings)
    same, other = encoder.encode(EN[:3])[0] @ encoder.encode(EN[1:3]).T
    assert (encoder.pooling, encoder.max_tokens, encoder.reads_chinese) == ("mean", 256, False)
    assert same > 0.6 > 0.2 > other


def test_a_tokenizer_that_knows_the_characters_reads_chinese() -> None:
    class Known:
        unk_token_id = 0

        def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
            return {"input_ids": [ord(sign) for sign in text]}

    class InBytes(Known):
        def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
            return {"input_ids": [1 + byte for byte in text.encode()]}

    assert encode._reads_chinese(Known()) and not encode._reads_chinese(InBytes())
