"""Killed at any moment and started again, a run ends with the same bytes as one that was never killed."""

import json
import os
import random
import shutil
import signal

import pytest

from medloop.loop.train import STAGES, run_stage
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256
from medloop.train.configs.sft_config import SFTConfig

TIMES = ("ts", "tokens_per_second")


def run_config(settings: Settings, name: str) -> SFTConfig:
    """Two epochs of 7 steps, with dropout (so that random states matter) and a dev loss at the end of each."""
    return SFTConfig(name=name, model=settings.model, epochs=2, batch_size=8, micro_batch_size=4, lora_dropout=0.2, save_every=2)


def train(settings: Settings, name: str, die_at: int | None = None, die_in: str | None = None) -> None:
    """Train in this process; by kill -9 it ends when `die_at` steps were logged, or inside the call named `die_in`."""

    def die(*_, **__) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if die_in is not None:
        module, _, call = die_in.rpartition(".")
        setattr(__import__(module, fromlist=["x"]), call, die)
    config = run_config(settings, name)
    run_stage(STAGES["SFT"], config, settings, on_progress=lambda progress: die() if progress.step == die_at else None)


def start(children, *args) -> int:
    child = children.Process(target=train, args=args)
    child.start()
    child.join()
    return child.exitcode


def outcome(settings: Settings, name: str) -> tuple[str, list[dict]]:
    folder = settings.home / "models/lora" / name
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        for place in (row, row["extra"]):
            for key in TIMES:
                place.pop(key, None)
    return file_sha256(folder / "adapter_model.safetensors"), rows


@pytest.fixture(scope="module")
def golden(untouched: Settings, children) -> tuple[str, list[dict]]:
    """What a run that nobody killed leaves."""
    assert start(children, untouched, "killed") == 0
    return outcome(untouched, "killed")


def check_same(settings: Settings, golden: tuple[str, list[dict]]) -> None:
    weights, metrics = outcome(settings, "killed")
    assert metrics == golden[1]
    assert weights == golden[0]


def test_killed_at_random_steps_it_ends_with_the_same_bytes(settings, children, golden):
    rng = random.Random(int(os.environ.get("MEDLOOP_TEST_SEED", "1")))
    for step in sorted(rng.sample(range(1, 15), 4)):
        assert start(children, settings, "killed", step) == -signal.SIGKILL
    assert start(children, settings, "killed") == 0
    check_same(settings, golden)


@pytest.mark.parametrize(
    "place",
    [
        "medloop.train.runs.checkpoint.save_file",
        "medloop.store.files.artifacts._publish",
        "medloop.train.runs.publish.obey_umask",
    ],
)
def test_killed_inside_a_checkpoint_or_at_the_very_end_it_ends_with_the_same_bytes(settings, children, golden, place: str):
    assert start(children, settings, "killed", 5) == -signal.SIGKILL
    assert start(children, settings, "killed", None, place) == -signal.SIGKILL
    assert not (settings.home / "models/lora/killed").exists()
    assert start(children, settings, "killed") == 0
    check_same(settings, golden)
    assert [p.name for p in (settings.home / "models/lora").iterdir() if p.name.startswith(".")] == []


def test_killed_with_a_damaged_newest_checkpoint_it_uses_the_one_before(settings, children, golden):
    assert start(children, settings, "killed", 9) == -signal.SIGKILL
    newest = max((settings.home / "jobs/train_sft-killed/checkpoints").iterdir())
    weights = newest / "tensors.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert start(children, settings, "killed") == 0
    check_same(settings, golden)


@pytest.mark.slow
def test_killed_thirty_times_at_any_moment_it_ends_with_the_same_bytes(settings, children, golden):
    """From outside, at a random time: also in the middle of a step, of an append, of a dev loss."""
    rng, kills = random.Random(7), 0
    for _ in range(200):
        child = children.Process(target=train, args=(settings, "killed"))
        child.start()
        child.join(timeout=rng.uniform(0.6, 2.5) if kills < 30 else None)
        if child.exitcode is None:
            child.kill()
            child.join()
            kills += 1
        elif child.exitcode == 0:
            check_same(settings, golden)
            for folder in ("models/lora/killed", "jobs/train_sft-killed"):
                shutil.rmtree(settings.home / folder)
            if kills >= 30:
                return
        assert child.exitcode in (0, -signal.SIGKILL)
    pytest.fail("never finished")


def test_the_result_is_as_readable_as_any_other_file(untouched, golden):
    umask = os.umask(0)
    os.umask(umask)
    modes = {oct(path.stat().st_mode & 0o777) for path in (untouched.home / "models/lora/killed").iterdir()}
    assert modes == {oct(0o666 & ~umask)}
