"""Jobs small enough to be killed by the dozen, and the children that run them."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import TrainRequest
from medloop.jobs import job_row, queue, worker
from medloop.jobs.submit import submit_training
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256

TINY = {"max_new_tokens": 8, "held_out_n": 3, "lora_r": 2, "lora_alpha": 4}
STEPS = {"steps": 6, "prompts_per_step": 2, "samples": 2, "save_every": 2, "eval_every": 3, **TINY}
RUNS: dict[str, dict[str, Any]] = {
    "GRPO": {"config": STEPS},
    "PPO": {"config": STEPS},
    "IRS": {
        "config": {"n_candidates": 3, "batch_size": 2, "save_every": 1, "dw": "dw.yaml", "replay": 0.3, **TINY},
        "n_iterations": 2,
        "n_questions": 4,
        "top_k": 2,
    },
}
# What the stages share in one piece of code: one of them in every run of the suite, the others in `make test-slow`.
SHARED = ["GRPO", *(pytest.param(name, marks=pytest.mark.slow) for name in RUNS if name != "GRPO")]

STARTED: list[Any] = []


def make_workspace(home: Path, model: Path) -> Settings:
    init_workspace(home)
    rows = [{"id": f"q{n}", "question": f"Case {n}: pain for {n} days, what now?"} for n in range(10)]
    talks = [
        {"messages": [{"role": "user", "content": f"Old case {n}"}, {"role": "assistant", "content": "Rest."}]} for n in range(6)
    ]
    for path, lines in (("rl/training_prompts", rows[:7]), ("processed/dev", rows[7:]), ("processed/train", talks)):
        (home / f"data/{path}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (home / "dw.yaml").write_text("relevance:\n  scorer: heuristic\n")
    return Settings(home=home, model=str(model), device="cpu", threads=1, offline=True)


def submit(settings: Settings, stage: str = "GRPO", **more: Any) -> str:
    run = RUNS[stage]
    request = {"stage": stage, **run, "config": {**run["config"], **more}}
    return submit_training(TrainRequest.model_validate(request), settings).job_id


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work(settings: Settings, job_id: str, die_at: int | None = None, die_in: str | None = None) -> None:
    """Work in this process; by kill -9 it ends at the tick `die_at`, or inside the call named `die_in`."""
    from medloop.jobs.status import StatusWriter

    ticks = 0
    was = StatusWriter.on_progress

    def counting(self: Any, progress: Any) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == die_at:
            die()
        was(self, progress)

    StatusWriter.on_progress = counting  # type: ignore[method-assign]
    if die_in is not None:
        module, _, call = die_in.rpartition(".")
        setattr(__import__(module, fromlist=["x"]), call, die)
    ended = worker.work(job_id, settings)
    assert ended.state == "succeeded", ended.reason


def work_until_call(settings: Settings, job_id: str, number: int, failure: int | None) -> None:
    """The `number`-th call that makes something durable kills the process, or fails with `failure`; a file says that it did."""
    calls = 0

    def counted(call: Any) -> Any:
        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                (settings.home / "struck").touch()
                if failure is None:
                    die()
                raise OSError(failure, os.strerror(failure))
            return call(*args, **kwargs)

        return instead

    for name in ("fsync", "rename", "replace"):
        setattr(os, name, counted(getattr(os, name)))
    worker.work(job_id, settings)


def work_slowly(settings: Settings, job_id: str, seconds: float, ticks: int = 10**9) -> None:
    """Each of the first `ticks` takes a while, so that there is time to do something to the process."""
    from medloop.jobs.status import StatusWriter

    was, seen = StatusWriter.on_progress, 0

    def slow(self: Any, progress: Any) -> None:
        nonlocal seen
        was(self, progress)
        seen += 1
        end = time.monotonic() + seconds
        while seen <= ticks and time.monotonic() < end:  # through SIGCONT too
            time.sleep(0.02)

    StatusWriter.on_progress = slow  # type: ignore[method-assign]
    worker.work(job_id, settings)


def is_warm() -> None:
    assert "medloop.testing.warm" in sys.modules


def claim_and_die(settings: Settings, job_id: str) -> None:
    from medloop.jobs.lease import claim

    with claim(queue.folder_of(job_id, settings)):
        die()


def start(children: Any, target: Any, *args: Any) -> Any:
    child = children.Process(target=target, args=args)
    child.start()
    STARTED.append(child)
    return child


def finish(children: Any, target: Any, *args: Any) -> int:
    child = start(children, target, *args)
    child.join()
    assert child.exitcode is not None
    return int(child.exitcode)


def outcome(settings: Settings, job_id: str) -> dict[str, Any]:
    """Everything a run leaves, without its times and its name."""
    folder, result = queue.folder_of(job_id, settings), settings.home / "models/rl" / job_id
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["ts"]
    checkpoints = sorted(folder.rglob("checkpoints/*/*.safetensors"))
    weights = {str(p.relative_to(p.parents[1])): file_sha256(p) for p in [*sorted(result.glob("*.safetensors")), *checkpoints]}
    samples = [{**json.loads(line), "model": ""} for line in (folder / "samples.jsonl").read_text().splitlines()]
    named = {name.replace(job_id, "RESULT"): sha for name, sha in weights.items()}
    return {"metrics": [json.dumps(row, sort_keys=True) for row in rows], "weights": named, "samples": samples}


def wait_for(check: Any, seconds: float = 180.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := check():
            return value
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def row(settings: Settings, job_id: str) -> job_row.JobRow:
    return job_row.read(queue.folder_of(job_id, settings))


class Dead:
    """A worker that is over already."""

    returncode = 0

    def poll(self) -> int:
        return 0
