"""A GGUF file as a base model: what is read of it, and that a damaged one is said in a sentence."""

import hashlib
import json
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from medloop.contracts import Message, ModelRef
from medloop.errors import IntegrityError, ModelError
from medloop.models.find import resolve
from medloop.models.load import load, load_tokenizer
from medloop.models.safety import file_state
from medloop.models.template import encode_prompt
from medloop.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 a zip", "is not a GGUF file"),
        (b"GG", "is not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + b"\0" * 16, "has version 1 of GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 9, 9) + b"cut off here", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(settings: Settings, tmp_path: Path, content: bytes, message: str) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        resolve(ModelRef(base=str(tmp_path / "model.gguf")), settings)


def test_a_file_that_is_not_there_is_said_without_asking_the_hub(settings: Settings) -> None:
    with pytest.raises(ModelError, match=r"There is no file models/x\.gguf"):
        resolve(ModelRef(base="models/x.gguf"), settings)


SHAPE = {"hidden": 16, "heads": 2, "layers": 1, "inner": 32}
WORDS = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "▁b", "ab", "▁ab"]


@pytest.mark.parametrize(("names", "hint"), [(("b.gguf",), "Name the file: "), (("b.gguf", "c.gguf"), "one of its 2 files")])
def test_a_folder_of_gguf_names_the_file_to_name(settings, tmp_path: Path, names: tuple[str, ...], hint: str):
    """Seen: "a model must be safetensors and JSON only", as if GGUF could not be used."""
    folder = tmp_path / "qwen"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"GGUF")
    with pytest.raises(ModelError) as refused:
        resolve(ModelRef(base=str(folder)), settings)
    assert hint in str(refused.value) and str(folder / "b.gguf") in str(refused.value)
    assert "safetensors" not in str(refused.value)


def write_gguf(path: Path, *, weight: float, begin: bool = True) -> None:
    """A llama of one layer whose matrices hold one number."""
    gguf = pytest.importorskip("gguf")
    hidden, inner = SHAPE["hidden"], SHAPE["inner"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(SHAPE["layers"])
    writer.add_feed_forward_length(inner)
    writer.add_head_count(SHAPE["heads"])
    writer.add_head_count_kv(SHAPE["heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // SHAPE["heads"])
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(WORDS)
    writer.add_token_scores([-float(n) for n in range(len(WORDS))])
    writer.add_token_types([2, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(begin)
    shapes = {"token_embd": (len(WORDS), hidden), "output": (len(WORDS), hidden), "output_norm": (hidden,)}
    block = {"attn_norm": (hidden,), "ffn_norm": (hidden,), "ffn_down": (hidden, inner)}
    block |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (hidden, hidden))
    block |= dict.fromkeys(("ffn_gate", "ffn_up"), (inner, hidden))
    for name, shape in {**shapes, **{f"blk.0.{name}": shape for name, shape in block.items()}}.items():
        writer.add_tensor(f"{name}.weight", np.full(shape, weight, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def weights_of(file: Path, settings: Settings) -> set[float]:
    return {float(weight.detach().mean()) for weight in load(ModelRef(base=str(file)), settings).model.parameters()}


@pytest.mark.usefixtures("cache")
def test_a_file_of_that_name_in_the_current_directory_is_not_read(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, weight in (("models", 0.5), ("here", 0.25)):
        (tmp_path / folder).mkdir()
        write_gguf(tmp_path / folder / "x.gguf", weight=weight)
    monkeypatch.chdir(tmp_path / "here")
    assert weights_of(tmp_path / "models/x.gguf", settings) == {0.5}


@pytest.mark.usefixtures("cache")
def test_settings_that_lie_beside_a_file_are_not_read(settings: Settings, tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", weight=0.5)
    auto_map = {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}, "tokenizer_class": "Evil"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(auto_map))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path)}))
    assert weights_of(tmp_path / "x.gguf", settings) == {0.5}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("begin", [True, False])
def test_texts_begin_as_the_file_says(settings: Settings, tmp_path: Path, begin: bool) -> None:
    write_gguf(tmp_path / "x.gguf", weight=0.5, begin=begin)
    tokenizer = load_tokenizer(resolve(ModelRef(base=str(tmp_path / "x.gguf")), settings).folder)
    assert (encode_prompt(tokenizer, [Message(role="user", content="ab")])[0] == tokenizer.bos_token_id) is begin
    assert (tokenizer("ab")["input_ids"][0] == tokenizer.bos_token_id) is begin


@pytest.mark.usefixtures("cache")
def test_weights_are_read_once_in_a_process_and_again_when_they_change(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command asks for its model some ten times; for gigabytes that was half a minute."""
    write_gguf(tmp_path / "model.gguf", weight=0.5)
    ref, read = ModelRef(base=str(tmp_path / "model.gguf")), list[str]()
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: read.append(Path(file.name).suffix) or digest(file, kind))
    first = resolve(ref, settings)
    assert resolve(ref, settings) == first
    read.clear()
    assert resolve(ref, settings) == first
    assert not {".gguf", ".safetensors"} & set(read)
    (first.folder / "extra.json").symlink_to("/nonexistent")
    with pytest.raises(IntegrityError, match=r"extra\.json"):
        resolve(ref, settings)
    (first.folder / "extra.json").unlink()
    weights = first.folder / "model.safetensors"
    weights.chmod(0o600)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(IntegrityError, match="was changed"):
        resolve(ref, settings)


@pytest.mark.usefixtures("cache")
def test_another_file_of_that_size_and_time_is_another_model(settings: Settings, tmp_path: Path) -> None:
    """A server may switch a link from one model to the next."""
    for name, weight in (("a", 0.5), ("b", 0.25)):
        write_gguf(tmp_path / f"{name}.gguf", weight=weight)
        os.utime(tmp_path / f"{name}.gguf", ns=(1_000_000_000, 1_000_000_000))
    current, found = tmp_path / "current.gguf", []
    for name in ("a", "b"):
        current.unlink(missing_ok=True)
        current.symlink_to(tmp_path / f"{name}.gguf")
        found.append(weights_of(current, settings))
    assert found == [{0.5}, {0.25}]


def test_a_file_has_another_state_when_it_was_written_and_its_time_set_back(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    os.utime(tmp_path / "x", ns=(5, 5))
    before = file_state(tmp_path / "x")
    (tmp_path / "y").write_bytes(b"abc")
    os.utime(tmp_path / "y", ns=(5, 5))
    assert file_state(tmp_path / "y")[:2] != before[:2]
    time.sleep(0.05)
    (tmp_path / "x").write_bytes(b"abd")
    os.utime(tmp_path / "x", ns=(5, 5))
    assert file_state(tmp_path / "x") != before
