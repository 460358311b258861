"""An overlap run that is killed with kill -9, while the next answers are drawn and between checkpoints, ends with the same bytes."""

import json
import os
import signal
from typing import Any

import pytest

from medloop.models.rollout.sampler import Sampler
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256
from medloop.testing.fakes import FakeScorer
from medloop.train import ppo
from medloop.train.configs.rl_config import PPOConfig
from medloop.train.rl.plan import make_plan
from medloop.train.runs.find_run import find_run


def train_in_child(settings: Settings, die_at: tuple[int, str] | None) -> None:
    """`die_at` is a step and a phase of it, or `drawing`: inside the thread that draws the answers of that step."""
    plain = Sampler.__call__

    def sample(self: Sampler, prompts: Any, streams: Any, **more: Any) -> Any:
        if die_at == (int(streams[0].split(":")[1]), "drawing"):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, prompts, streams, **more)

    def look(progress: Any) -> None:
        if die_at == (progress.step, progress.phase):
            os.kill(os.getpid(), signal.SIGKILL)

    Sampler.__call__ = sample  # type: ignore[method-assign]
    config = PPOConfig(
        model=settings.model, name="r", learning_rate=0.02, max_new_tokens=8, held_out_n=0, save_every=2, lora_r=4, steps=5,
        prompts_per_step=2, samples=4, prompts="data/processed/train.jsonl", overlap=True,
    )  # fmt: skip
    scorer = FakeScorer(lambda sample: len(set(sample.answer or "")) / 20)
    ppo.run(make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer), settings, on_progress=look)


def start(children: Any, *args: Any) -> int:
    child = children.Process(target=train_in_child, args=args)
    child.start()
    child.join()
    return int(child.exitcode)


def outcome(settings: Any) -> tuple[Any, ...]:
    rows = [json.loads(line) for line in (settings.home / "jobs/train_ppo-r/metrics.jsonl").read_text().splitlines()]
    names = ("adapter_model.safetensors", "samples.jsonl", "rewards.csv")
    files = [file_sha256(settings.home / "models/rl/r" / name) for name in names]
    return files, [{key: value for key, value in row.items() if key != "ts"} for row in rows]


@pytest.mark.slow
def test_killed_with_answers_that_wait_it_ends_with_the_same_bytes(settings: Any, untouched: Any, children: Any) -> None:
    assert start(children, untouched, None) == 0
    for die_at in ((1, "SCORING"), (3, "drawing"), (4, "TRAINING"), (5, "drawing"), (5, "TRAINING")):
        assert start(children, settings, die_at) == -signal.SIGKILL
    assert start(children, settings, None) == 0
    assert outcome(settings) == outcome(untouched)
