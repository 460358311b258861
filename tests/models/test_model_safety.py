"""A planted folder is refused before any framework opens a file of it."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from medloop.contracts import ModelRef
from medloop.errors import ModelError
from medloop.models.find import resolve
from medloop.models.load import load
from medloop.models.safety import check_folder, fingerprint


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "planted"))


PICKLES = [
    "pytorch_model.bin",
    "model.pt",
    "model.pth",
    "x.pkl",
    "x.ckpt",
    "training_args.bin",
    "x.h5",
    "x.npy",
    "deep/er/x.bin",
    "x.BIN",
]


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_is_refused_and_never_opened(folder: Path, settings, tmp_path: Path, name: str):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(pickle.dumps(Canary(tmp_path / "canary")))
    with pytest.raises(ModelError, match=Path(name).name):
        load(ModelRef(base=str(folder)), settings)
    assert not (tmp_path / "canary").exists()


def test_a_pickle_renamed_to_safetensors_is_refused(folder: Path, settings, tmp_path: Path):
    (folder / "model.safetensors").write_bytes(pickle.dumps(Canary(tmp_path / "canary")) + b" " * 100)
    with pytest.raises(ModelError, match="not safetensors, whatever its name says"):
        load(ModelRef(base=str(folder)), settings)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json", "adapter_config.json"])
def test_auto_map_is_refused_wherever_it_hides(folder: Path, settings, name: str):
    written = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    written["nested"] = [{"auto_map": {"AutoModel": "evil.Model"}}]
    (folder / name).write_text(json.dumps(written))
    with pytest.raises(ModelError, match="auto_map"):
        resolve(ModelRef(base=str(folder)), settings)


def test_python_beside_auto_map_is_refused_and_never_run(folder: Path, settings, tmp_path: Path):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'canary')!r})\nclass C: pass\nclass M: pass\n")
    with pytest.raises(ModelError, match=r"auto_map.*evil\.py"):
        load(ModelRef(base=str(folder)), settings)
    assert not (tmp_path / "canary").exists()


def test_kernel_code_from_a_hub_is_refused(folder: Path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"_attn_implementation_internal": "someone/kernel"}))
    with pytest.raises(ModelError, match="kernel code"):
        check_folder(folder)


@pytest.mark.parametrize("kind", ["file", "folder", "dangling"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, kind: str):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.json").write_text("{}")
    target = {"file": "outside/secret.json", "folder": "outside", "dangling": "nothing"}[kind]
    (folder / "linked.json").symlink_to(tmp_path / target)
    with pytest.raises(ModelError, match=r"linked\.json: a link"):
        check_folder(folder)


def test_a_link_inside_the_folder_is_fine(folder: Path):
    (folder / "copy.json").symlink_to(folder / "config.json")
    check_folder(folder)


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:5], lambda b: b""])
def test_weights_of_the_wrong_length_are_refused(folder: Path, change):
    weights = folder / "model.safetensors"
    weights.write_bytes(change(weights.read_bytes()))
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        check_folder(folder)


def test_an_lfs_pointer_is_named_as_such(folder: Path):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    with pytest.raises(ModelError, match="git lfs pull"):
        check_folder(folder)


def test_a_weight_index_may_not_point_elsewhere(folder: Path):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../elsewhere.safetensors"}}))
    with pytest.raises(ModelError, match="index"):
        check_folder(folder)


def test_every_reason_is_named_at_once(folder: Path):
    for name in ("a.bin", "b.py"):
        (folder / name).write_bytes(b"x")
    with pytest.raises(ModelError, match=r"a\.bin.*b\.py"):
        check_folder(folder)


def test_cards_pictures_and_hidden_folders_do_no_harm(folder: Path):
    before = fingerprint(folder)
    (folder / ".git").mkdir()
    for name in ("README.MD", "LICENSE", "curve.png", ".gitattributes", ".git/index.bin", "card.json"):
        (folder / name).write_text("{}")
    check_folder(folder)
    assert fingerprint(folder) == before


def test_a_changed_weight_changes_the_fingerprint(folder: Path):
    before, raw = fingerprint(folder), bytearray((folder / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(raw))
    assert fingerprint(folder) != before
