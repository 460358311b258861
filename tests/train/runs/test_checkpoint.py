"""A checkpoint brings everything back, or is passed over for the one before it."""

import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from medloop.errors import IntegrityError
from medloop.train.runs.checkpoint import load_newest, save_checkpoint


class Bench:
    """A small network with dropout, AdamW and a schedule, trained on noise."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.9**step)

    def step(self) -> float:
        loss = self.model(torch.randn(6, 4)).square().mean() + random.random() + np.random.rand()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.item()

    def save(self, folder: Path, step: int, **more) -> Path:
        return save_checkpoint(folder, step, dict(self.model.named_parameters()), self.optimizer, self.scheduler, **more)


def test_training_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    bench = Bench()
    for _ in range(3):
        bench.step()
    bench.save(tmp_path, 3)
    expected = [bench.step() for _ in range(4)]
    fresh, checkpoint = Bench(), load_newest(tmp_path)
    checkpoint.restore(fresh.model, fresh.optimizer, fresh.scheduler)
    checkpoint.restore_random()
    assert [fresh.step() for _ in range(4)] == expected
    assert checkpoint.step == 3


def test_extra_keeps_its_shape_and_its_numbers(tmp_path: Path):
    marked = {"!": "tuple", "of": [1]}  # looks like our own marking, and is not
    extra = {
        "marked": marked,
        "kl": 0.1 + 0.2,
        "none": None,
        "pair": (1, [2.5, "三"]),
        "by_id": {3: {"!": torch.arange(4)}},
        "half": torch.ones(2).bfloat16(),
    }
    save_checkpoint(tmp_path, 1, {}, extra=extra)
    restored = load_newest(tmp_path).extra
    assert (
        restored["kl"] == extra["kl"]
        and restored["none"] is None
        and restored["pair"] == extra["pair"]
        and restored["marked"] == marked
    )
    assert torch.equal(restored["by_id"][3]["!"], torch.arange(4)) and restored["half"].dtype == torch.bfloat16


def test_only_safetensors_and_json_are_written(tmp_path: Path):
    path = Bench().save(tmp_path, 1)
    assert sorted(file.name for file in path.iterdir()) == ["MANIFEST.json", "state.json", "tensors.safetensors"]


def test_the_two_newest_are_kept(tmp_path: Path):
    bench = Bench()
    for step in (9, 10, 100):
        bench.save(tmp_path, step)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000010", "step-00000100"]
    assert load_newest(tmp_path).step == 100


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "MANIFEST.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "lose"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, name: str, damage: str):
    bench = Bench()
    bench.save(tmp_path, 1)
    file = bench.save(tmp_path, 2) / name
    raw = bytearray(file.read_bytes())
    if damage == "lose":
        file.unlink()
    else:
        raw[len(raw) // 2] ^= 1
        file.write_bytes(bytes(raw[:-3] if damage == "cut" else raw))
    assert load_newest(tmp_path).step == 1


def die_inside(folder: Path, call: str) -> None:
    """Save step 2, and die by kill -9 in the middle of it."""
    from medloop.store.files import artifacts

    setattr(artifacts, call, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    Bench().save(folder, 2)


@pytest.mark.parametrize("call", ["_seal", "_publish", "fsync_folder"])
def test_a_kill_inside_saving_leaves_the_one_before(tmp_path: Path, children, call: str):
    Bench().save(tmp_path, 1)
    child = children.Process(target=die_inside, args=(tmp_path, call))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert load_newest(tmp_path).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"], "the torn one is swept away"


def test_weights_of_another_model_are_refused(tmp_path: Path):
    Bench().save(tmp_path, 1)
    with pytest.raises(IntegrityError, match=r"0\.bias"):
        load_newest(tmp_path).restore(torch.nn.Linear(4, 8))


def test_nothing_to_load_is_none(tmp_path: Path):
    assert load_newest(tmp_path) is None and load_newest(tmp_path / "absent") is None
