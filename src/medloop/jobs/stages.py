"""The tensor side of a job: a request becomes a stage's plan, and its ticks become the status of document 003.

Only a worker imports this file; it brings torch.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from medloop.contracts import JobDetail, JobMetrics, JobRuntime, ModelRef, Scorer, TrainingCard, TrainRequest
from medloop.jobs import requests
from medloop.jobs.lease import Lease
from medloop.jobs.queue import has_unsloth
from medloop.knobs import build
from medloop.loop.evaluation import rl_audit
from medloop.loop.scoring import reward_scorer
from medloop.models import runtime
from medloop.models.load import resolve
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.rl import state
from medloop.train.runs import estimate
from medloop.train.runs.run import Job

REPORT_S = 1.0  # at most one status file a second
KEPT = 3  # checkpoints on the disk at once: two that count, one that is being written


@dataclass(frozen=True)
class HeldJob(Job):
    """A run's folder that opens only to the holder of the lease: every append and checkpoint asks for its path first."""

    lease: Lease

    @property
    def checkpoints(self) -> Path:
        self.lease.check()
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        self.lease.check()
        return self.folder / "metrics.jsonl"


@dataclass(frozen=True)
class Cost(estimate.Cost):
    """With the bytes on the disk."""

    disk: int

    def sentence(self) -> str:
        minutes = f"{self.seconds / 60:.0f} min" if self.seconds > 90 else f"{self.seconds:.0f} s"
        said = f"Roughly {minutes}, {self.memory / 1e9:.1f} GB of memory and {self.disk / 1e6:,.0f} MB of disk on {self.device}."
        if self.memory > self.free:
            said += f" Only {self.free / 1e9:.1f} GB are free: lower micro_batch_size or max_new_tokens."
        return said


@dataclass(frozen=True)
class Finished:
    """A run that was published before its worker could say so."""

    job: Job
    card: TrainingCard
    kind: str


@dataclass(frozen=True)
class Ready:
    """A stage that only has to be run."""

    stage: Any
    plan: Any
    job: Job
    kind: str
    is_rl: bool
    steps: int

    def run(self, settings: Settings, status: Status, should_stop: Callable[[], bool]) -> TrainingCard:
        if self.is_rl:
            card: TrainingCard = self.stage.run(self.plan, settings, watch=status.rl, should_stop=should_stop)
        else:
            card = self.stage.run(self.plan, settings, tick=status.trl, should_stop=should_stop)
        return card


def prepare(request: TrainRequest, settings: Settings, folder: Path, lease: Lease | None) -> Ready | Finished:
    """Read the data and see what is left of an earlier start; nothing is written. Without a lease it is only a look."""
    runs = requests.runs(request)
    stage = importlib.import_module(runs.module)
    wish = build(getattr(stage, runs.config), flags=requests.wanted(request, folder.name, settings))
    kind = "model" if getattr(wish, "full", False) and runs.kind == "adapter" else runs.kind
    if runs.rl:
        scorer = _scorer(wish, settings)
        job = held(state.find_job(wish, stage.METHOD, scorer, settings, folder=folder), lease)
    else:
        job = held(stage.find_job(wish, settings, folder=folder), lease)
    if (card := job.finished()) is not None:
        return Finished(job, card, kind)
    if runs.rl:
        plan: Any = state.plan(wish, stage.METHOD, scorer, settings, job, audit=rl_audit(wish.seed))
    else:
        plan = stage.plan(wish, settings, job)
    return Ready(stage, plan, job, kind, runs.rl, wish.steps if runs.rl else plan.steps)


def held(job: Job, lease: Lease | None) -> Job:
    return job if lease is None else HeldJob(job.folder, job.target, job.identity, lease)


def check(request: TrainRequest, settings: Settings) -> Cost:
    """Everything that can be known about a run without starting it; errors as the worker would meet them."""
    ready = prepare(request, settings, settings.workspace.jobs / "check", None)
    assert isinstance(ready, Ready), "a run that is to be named later has no result yet"
    return cost(ready, settings)


def _scorer(wish: Any, settings: Settings) -> Scorer:
    """The reward of a run; its files are looked up from the workspace, like all others of a job."""

    def place(name: str) -> str:
        path = requests.find(name, settings)
        return str(path) if name and path.exists() else name

    dw = getattr(wish, "dw", None)
    return reward_scorer(
        settings, reward=wish.reward and place(wish.reward), given={name: place(source) for name, source in wish.given.items()},
        dw=dw and place(dw), dw_config=getattr(wish, "dw_config", None),
    )  # fmt: skip


def cost(ready: Ready, settings: Settings) -> Cost:
    """Time, memory and disk before the first step."""
    config, device = ready.plan.config, runtime.device_of(settings)
    full = getattr(config, "full", False)
    base = resolve(ModelRef(base=config.model), settings).folder
    runtime.set_threads(settings)
    shape = estimate.shape_of(base, runtime.number_type(device, trainable=full), None if full else config.lora_r)
    if ready.is_rl:
        seconds, memory = estimate.rl(shape, rl_work(ready.plan), device=device)
    else:
        said = ready.stage.cost(ready.plan, settings)
        seconds, memory = said.seconds, said.memory
    disk = int(1.2 * (KEPT * 12 + 4) * shape.trainable)
    return Cost(device.type, seconds, memory, estimate.free_memory(device), disk)


def rl_work(plan: state.RLPlan) -> estimate.RLWork:
    """Tokens of the steps that are left; held-out checks included, answers at their full length."""
    config = plan.config
    left = max(config.steps - plan.continues_at, 1)
    questions = getattr(config, "prompts_per_step", 0) or config.n_questions
    asked = math.ceil(sum(len(q.ids) for q in plan.questions) / len(plan.questions))
    answers = left * questions * config.samples
    checks = (1 + left // config.eval_every) * len(plan.held_out)
    row = asked + config.max_new_tokens
    passes = getattr(config, "epochs", 1)
    at_once = (config.micro_batch_size or state.ROWS_AT_ONCE["cpu"]) * row
    return estimate.RLWork(
        written=(answers + checks) * config.max_new_tokens, read=answers * (asked + 2 * row), learnt=answers * row * passes,
        at_once=at_once, cached=min(config.rollout_batch_size, questions * config.samples) * row,
    )  # fmt: skip


class Status:
    """Ticks of a stage into status.json, at most once a second; the numbers come out of the last METRICS line."""

    def __init__(self, lease: Lease, metrics: Path, device: str, steps: int) -> None:
        self.lease, self.metrics, self.device, self.steps = lease, metrics, device, steps
        self.last, self.step, self.numbers = 0.0, -1, JobMetrics()
        self.detail = JobDetail(total_iterations=steps, runtime=self._runtime())

    def rl(self, at: state.Tick) -> None:
        self._report(at.step, at.steps, at.phase, 100 * at.done / max(at.wanted, 1))

    def trl(self, at: Any) -> None:
        self._report(at.step, at.total, "TRAINING", 100 * at.step / max(at.total, 1))

    def over(self) -> None:
        """The last word: all steps done."""
        self._refresh()
        self.lease.report(
            JobDetail(
                current_iteration=self.steps, total_iterations=self.steps, current_phase="TRAINING", phase_progress=100.0,
                metrics=self.numbers, runtime=self._runtime(),
            )
        )  # fmt: skip

    def _report(self, step: int, steps: int, phase: str, progress: float) -> None:
        now = time.monotonic()
        if now - self.last < REPORT_S:
            return
        self.last = now
        if step != self.step:
            self.step = step
            self._refresh()
        self.detail = JobDetail(
            current_iteration=step, total_iterations=steps, current_phase=phase, phase_progress=round(min(progress, 100.0), 1),
            metrics=self.numbers, runtime=self._runtime(),
        )  # fmt: skip
        self.lease.report(self.detail)

    def _refresh(self) -> None:
        if not self.metrics.is_file():
            return
        rows = [row for row in jsonl.read(self.metrics) if row["phase"] == "METRICS" and row.get("avg_reward") is not None]
        trained = [row for row in rows if "held_out" not in (row.get("extra") or {})]
        if trained:
            row = trained[-1]
            parts = (row.get("extra") or {}).get("parts", {})
            self.numbers = JobMetrics(
                avg_reward=row["avg_reward"], reward_breakdown=parts, current_weights=row.get("weights") or {}
            )

    def _runtime(self) -> JobRuntime:
        used = torch.cuda.memory_reserved() if self.device == "cuda" else 0
        return JobRuntime(device=self.device, unsloth_available=has_unsloth(), gpu_mem_used=used)
