"""`medloop train sft` as a user types it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from medloop.cli import main
from medloop.errors import ConfigError
from medloop.knobs import load_config
from medloop.train.sft import SFTConfig

CONFIGS = Path(__file__).parents[2] / "configs"


def medloop(monkeypatch: pytest.MonkeyPatch, settings, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["medloop", "--home", str(settings.home), *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def sft(monkeypatch, settings, *words: str) -> int:
    return medloop(monkeypatch, settings, "train", "sft", "--model", settings.model, "--batch-size", "8", *words)


def test_it_says_what_it_will_do_and_what_it_did(settings, monkeypatch, capsys):
    assert sft(monkeypatch, settings, "--name", "first", "--learning-rate", "0.02") == 0
    output = capsys.readouterr().out
    assert "LoRA of rank 8: 53 examples" in output and "7 steps of 8 on cpu, about" in output
    assert "models/lora/first" in output and "dev loss 6." in output and f"--adapter {settings.home}/models/lora/first" in output
    assert sft(monkeypatch, settings, "--name", "first", "--learning-rate", "0.02") == 0
    assert "Already trained" in capsys.readouterr().out


def test_another_run_of_that_name_is_one_sentence(settings, monkeypatch, capsys):
    assert sft(monkeypatch, settings) == 0
    assert sft(monkeypatch, settings, "--lora-r", "4") == 2
    assert "lora_r 8, now 4" in capsys.readouterr().err
    assert sft(monkeypatch, settings, "--lora-r", "4", "--replace") == 0


def test_flags_win_over_pairs_and_pairs_over_the_file(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("epochs: 2\nlora_r: 4\nseed: 5\n")
    config = load_config(
        SFTConfig,
        file=file,
        pairs=["lora_r=8", "full=true"],
        flags={"seed": 9, "epochs": None},
        defaults={"name": "base", "epochs": 7},
    )
    assert (config.epochs, config.lora_r, config.seed, config.full, config.name) == (2, 8, 9, True, "base")


def test_all_problems_come_at_once(settings, monkeypatch, capsys):
    words = ("--set", "epoch=3", "--set", "lora_r=0", "--set", "warmup=2", "--set", "name=../x")
    assert sft(monkeypatch, settings, *words) == 2
    stderr = capsys.readouterr().err
    for part in (
        "unknown setting 'epoch' (did you mean epochs?)", "lora_r is 0: must be at least 1", "warmup is 2: must be less than 1",
        "name is '../x': use up to 64 letters, digits",
    ):  # fmt: skip
        assert part in stderr
    assert not list((settings.home / "jobs").iterdir())


def test_batches_divide_exactly_or_it_refuses():
    with pytest.raises(ConfigError, match="micro_batch_size 5 does not divide batch_size 16"):
        load_config(SFTConfig, file=None, pairs=["micro_batch_size=5"], flags={}, defaults={})


@pytest.mark.parametrize("content", ["epochs: [", "- a\n- b\n", "just words"])
def test_a_broken_file_is_named(tmp_path: Path, content: str):
    (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        load_config(SFTConfig, file=tmp_path / "run.yaml", pairs=(), flags={}, defaults={})


def test_the_run_file_opens_with_its_command_and_holds_every_setting():
    text = (CONFIGS / "sft.yaml").read_text()
    assert text.startswith("# medloop train sft --config configs/sft.yaml\n")
    assert set(yaml.safe_load(text)) == set(SFTConfig.model_fields)
    assert load_config(SFTConfig, file=CONFIGS / "sft.yaml", pairs=(), flags={}, defaults={}) == SFTConfig()


def test_every_setting_says_what_it_is():
    for name, field in SFTConfig.model_fields.items():
        assert field.description and field.description.endswith("."), name


@pytest.mark.slow  # the jobs' tests stop a worker by the same signal
def test_a_polite_stop_leaves_a_checkpoint(settings):
    words = [sys.executable, "-m", "medloop", "--home", str(settings.home), "train", "sft", "--model", settings.model]
    words += ["--batch-size", "1", "--epochs", "40", "--set", "save_every=1000000"]
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = settings.home / "jobs/train_sft-sft/metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.is_file() and metrics.read_text().count("TRAINING") > 3) and time.monotonic() < deadline:
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 130 and "The same command will continue from there" in stderr and "Traceback" not in stderr
    saved = list((settings.home / "jobs/train_sft-sft/checkpoints").iterdir())
    last = max(json.loads(line)["iter"] for line in metrics.read_text().splitlines())
    assert [path.name for path in saved] == [f"step-{last:08d}"]


def test_every_setting_is_explained_on_its_page():
    page = (CONFIGS.parent / "docs/stages/train.md").read_text()
    assert [name for name in SFTConfig.model_fields if f"`{name}`" not in page] == []


def test_a_reward_model_from_made_up_pairs(settings, monkeypatch, capsys):
    pairs = settings.home / "pairs.jsonl"
    assert medloop(monkeypatch, settings, "embedded", "pairs", "--n", "60", "--language", "en", "--output", str(pairs)) == 0
    words = ("train", "reward", "--name", "first", "--model", settings.model, "--data", str(pairs), "--set", "max_steps=3")
    assert "60 pairs in" in capsys.readouterr().out
    assert medloop(monkeypatch, settings, *words, "--set", "warmup=2", "--set", "epoch=1") == 2
    assert "warmup is 2" in capsys.readouterr().err
    assert medloop(monkeypatch, settings, *words) == 0
    assert " longer than max_length (512 tokens)" in capsys.readouterr().out, "one token per letter: 512 are few"


def test_it_says_what_a_reward_model_is_worth(settings, monkeypatch, capsys):
    rows = [{"question": f"Case {n}?", "chosen": "YES " * (1 + n % 3), "rejected": "no " * (1 + n % 4)} for n in range(40)]
    pairs = settings.home / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("train", "reward", "--model", settings.model, "--data", str(pairs), "--learning-rate", "0.02", "--max-length", "99")
    assert medloop(monkeypatch, settings, *words) == 0
    output = capsys.readouterr().out
    assert (
        "32 pairs" in output
        and "8 pairs held out; no prompt is on both sides." in output
        and "2 steps of 16 on cpu, about" in output
    )
    for part in ("held-out accuracy", "longer answer", "bag of words", "calibration error", "models/reward/reward/report.md"):
        assert part in output
    assert medloop(monkeypatch, settings, *words) == 0
    assert "Already trained" in capsys.readouterr().out
    assert medloop(monkeypatch, settings, *words, "--lora-r", "4") == 2
    assert "lora_r 8, now 4" in capsys.readouterr().err
    assert medloop(monkeypatch, settings, "train", "reward", "--model", settings.model) == 3
    assert "medloop data build" in capsys.readouterr().err
