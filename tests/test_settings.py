"""Settings: who wins, where a value came from, and errors that name the place."""

from pathlib import Path

import pytest

from medloop.errors import ConfigError
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings, resolve


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "ws")
    return tmp_path / "ws"


def test_flag_beats_environment_beats_file_beats_default(home: Path) -> None:
    (home / "medloop.yaml").write_text("seed: 1\nthreads: 1\nmodel: file-model\n")
    found = resolve({"home": home, "seed": "3"}, {"MEDLOOP_SEED": "2", "MEDLOOP_THREADS": "2"})
    assert (found.settings.seed, found.settings.threads, found.settings.model, found.settings.device) == (
        3,
        2,
        "file-model",
        "auto",
    )
    assert found.origins["seed"] == "flag"
    assert found.origins["threads"] == "environment MEDLOOP_THREADS"
    assert found.origins["model"] == str(home / "medloop.yaml")
    assert found.origins["device"] == "default"


def test_the_workspace_is_found_from_a_folder_inside_it(home: Path) -> None:
    found = resolve({}, {}, cwd=home / "data/raw")
    assert found.settings.home == home and found.origins["home"] == "nearest medloop.yaml"


def test_outside_a_workspace_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="medloop init"):
        resolve({}, {}, cwd=tmp_path)


def test_all_problems_are_named_at_once_with_their_place(home: Path) -> None:
    (home / "medloop.yaml").write_text("sede: 1\nseed: many\n")
    with pytest.raises(ConfigError) as error:
        resolve({"home": home}, {"MEDLOOP_DEVICE": "tpu"})
    for word in ("'sede'", "'seed'", "'device'", "medloop.yaml", "MEDLOOP_DEVICE"):
        assert word in str(error.value)


def test_broken_yaml_names_file_and_line(home: Path) -> None:
    (home / "medloop.yaml").write_text("seed: 1\nmodel: [unclosed\nthreads: 2\n")
    with pytest.raises(ConfigError, match=r"medloop\.yaml, line \d"):
        resolve({"home": home}, {})


def test_a_wrong_secret_is_not_repeated_in_the_error(home: Path) -> None:
    with pytest.raises(ConfigError) as error:
        resolve({"home": home, "encryption_key": {"k": "hunter2"}}, {})
    assert "hunter2" not in str(error.value)


def test_every_setting_has_a_sentence() -> None:
    assert all(field.description and field.description.endswith(".") for field in Settings.model_fields.values())


def test_init_twice_changes_nothing(home: Path) -> None:
    (home / "medloop.yaml").write_text("seed: 7\n")
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file() and "db" not in p.name}
    assert init_workspace(home) is False
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file() and "db" not in p.name} == before


def test_reward_device_has_two_names_and_ours_wins(home: Path) -> None:
    assert resolve({"home": home}, {}).settings.reward_device == "cpu"
    plain = resolve({"home": home}, {"REWARD_DEVICE": "cuda"})
    assert (plain.settings.reward_device, plain.origins["reward_device"]) == ("cuda", "environment REWARD_DEVICE")
    both = resolve({"home": home}, {"MEDLOOP_REWARD_DEVICE": "auto", "REWARD_DEVICE": "cuda"})
    assert (both.settings.reward_device, both.origins["reward_device"]) == ("auto", "environment MEDLOOP_REWARD_DEVICE")
    with pytest.raises(ConfigError, match=r"'reward_device' .environment REWARD_DEVICE."):
        resolve({"home": home}, {"REWARD_DEVICE": "tpu"})
