"""Settings: who wins, where a value came from, and errors that name the place."""

from pathlib import Path

import pytest

from medloop.errors import ConfigError
from medloop.loop.workspace import init_workspace
from medloop.settings import FIELDS, resolve


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "ws")
    return tmp_path / "ws"


def test_flag_beats_environment_beats_file_beats_default(home: Path) -> None:
    (home / "medloop.yaml").write_text("seed: 1\nthreads: 1\nmodel: file-model\n")
    resolved = resolve({"home": home, "seed": "3"}, {"MEDLOOP_SEED": "2", "MEDLOOP_THREADS": "2"})
    assert (resolved.settings.seed, resolved.settings.threads, resolved.settings.model, resolved.settings.device) == (
        3,
        2,
        "file-model",
        "auto",
    )
    assert resolved.origins["seed"] == "flag"
    assert resolved.origins["threads"] == "environment MEDLOOP_THREADS"
    assert resolved.origins["model"] == str(home / "medloop.yaml")
    assert resolved.origins["device"] == "default"


def test_the_workspace_is_found_from_a_folder_inside_it(home: Path) -> None:
    resolved = resolve({}, {}, cwd=home / "data/raw")
    assert resolved.settings.home == home and resolved.origins["home"] == "nearest medloop.yaml"


def test_outside_a_workspace_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="medloop init"):
        resolve({}, {}, cwd=tmp_path)


def test_all_problems_are_named_at_once_with_their_place(home: Path) -> None:
    (home / "medloop.yaml").write_text("sede: 1\nseed: many\njobs: {max_waiting: 0, max_wating: 3}\nteacher: k\n")
    with pytest.raises(ConfigError) as error:
        resolve({"home": home, "teacher_key": "k"}, {"MEDLOOP_DEVICE": "tpu", "MEDLOOP_DATABASE_URL": "sqlite://"})
    file = home / "medloop.yaml"
    for part in (
        f"unknown setting 'sede' ({file}; did you mean seed?)",
        f"seed is 'many' ({file}): must be a whole number",
        f"jobs.max_waiting is 0 ({file}): must be at least 1",
        f"unknown setting 'jobs.max_wating' ({file}; did you mean jobs.max_waiting?)",
        f"'teacher' ({file}) is a section; set teacher.key",
        "unknown setting 'teacher_key' (flag; did you mean teacher.key?)",
        "device is 'tpu' (environment MEDLOOP_DEVICE): must be 'auto', 'cpu' or 'cuda'",
        "unknown variable MEDLOOP_DATABASE_URL (did you mean MEDLOOP_DATABASE__URL?)",
    ):
        assert part in str(error.value)


def test_a_setting_has_one_name_in_every_place(home: Path) -> None:
    (home / "medloop.yaml").write_text("jobs:\n  max_waiting: 3\nfeedback:\n")
    assert resolve({"home": home}, {}).settings.jobs.max_waiting == 3
    environ = resolve({"home": home}, {"MEDLOOP_JOBS__MAX_WAITING": "4"})
    assert (environ.settings.jobs.max_waiting, environ.settings.jobs.max_waiting_per_user) == (4, 10)
    assert environ.origins["jobs.max_waiting"] == "environment MEDLOOP_JOBS__MAX_WAITING"
    flag = resolve({"home": home, "jobs.max_waiting": "5"}, {"MEDLOOP_JOBS__MAX_WAITING": "4"})
    assert (flag.settings.get("jobs.max_waiting"), flag.origins["jobs.max_waiting"]) == (5, "flag")


def test_variables_of_other_programs_are_left_alone(home: Path) -> None:
    resolve({"home": home}, {"MEDLOOP_URL": "http://127.0.0.1:8000", "MEDLOOP_KEY": "mlk_1", "MEDLOOP_TEST_SEED": "1"})


def test_broken_yaml_names_file_and_line(home: Path) -> None:
    (home / "medloop.yaml").write_text("seed: 1\nmodel: [unclosed\nthreads: 2\n")
    with pytest.raises(ConfigError, match=r"medloop\.yaml, line \d"):
        resolve({"home": home}, {})


def test_a_wrong_secret_is_not_repeated_in_the_error(home: Path) -> None:
    with pytest.raises(ConfigError) as error:
        resolve({"home": home, "database.encryption_key": {"k": "hunter2"}}, {})
    assert "hunter2" not in str(error.value)


def test_every_setting_has_a_sentence() -> None:
    assert len(FIELDS) >= 42 and all(field.description and field.description.endswith(".") for field in FIELDS.values())


def test_init_twice_changes_nothing(home: Path) -> None:
    (home / "medloop.yaml").write_text("seed: 7\n")
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file() and "db" not in p.name}
    assert not init_workspace(home).is_new
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file() and "db" not in p.name} == before


def test_reward_device_has_two_names_and_ours_wins(home: Path) -> None:
    assert resolve({"home": home}, {}).settings.reward.device == "cpu"
    plain = resolve({"home": home}, {"REWARD_DEVICE": "cuda"})
    assert (plain.settings.reward.device, plain.origins["reward.device"]) == ("cuda", "environment REWARD_DEVICE")
    ours = resolve({"home": home}, {"MEDLOOP_REWARD__DEVICE": "auto", "REWARD_DEVICE": "cuda"})
    assert (ours.settings.reward.device, ours.origins["reward.device"]) == ("auto", "environment MEDLOOP_REWARD__DEVICE")
    with pytest.raises(ConfigError, match=r"reward\.device is 'tpu' .environment REWARD_DEVICE."):
        resolve({"home": home}, {"REWARD_DEVICE": "tpu"})


def test_the_teachers_key_may_come_from_its_own_variable(home: Path) -> None:
    resolved = resolve({"home": home}, {"DEEPSEEK_API_KEY": "k"})
    assert (resolved.settings.get("teacher.key"), resolved.origins["teacher.key"]) == ("k", "environment DEEPSEEK_API_KEY")
    assert (
        resolve({"home": home}, {"DEEPSEEK_API_KEY": "k", "MEDLOOP_TEACHER__KEY": "ours"}).settings.get("teacher.key") == "ours"
    )
