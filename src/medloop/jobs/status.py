"""The progress of a training run as the status of its job, which `GET /api/train/status/{job_id}` answers with."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from medloop.contracts import JobDetail, JobMetrics, JobRuntime
from medloop.jobs import job_row
from medloop.jobs.lease import Lease
from medloop.jobs.queue import has_unsloth
from medloop.store.files import jsonl
from medloop.train.runs.progress import Progress

if TYPE_CHECKING:
    from medloop.train.runs.estimate import Cost

REPORT_S = 1.0  # at most one status file a second
log = logging.getLogger("medloop.jobs")


class StatusWriter:
    """Writes status.json, at most once a second.

    Its numbers are those of the current iteration, as far as its answers are scored; until the first ones are, those of the last
    METRICS line of the run.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease, self.device, self.steps = lease, "cpu", 0
        self.reported_at, self.step, self.metrics = 0.0, -1, JobMetrics()

    def on_plan(self, plan: Any, cost: Cost) -> None:
        """What the run will cost becomes the job's message before the first step."""
        self.device, self.steps = cost.device, plan.steps
        if (objective := getattr(getattr(plan, "scorer", None), "objective", None)) is not None:
            job_row.write_objective(self.lease.folder, objective)
        self.lease.note(cost.sentence(), needs_bytes=cost.disk)
        log.info("%s %d steps, %d of them done.", cost.sentence(), plan.steps, plan.steps_done or 0)

    def on_progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self.reported_at < REPORT_S:
            return
        self.reported_at = now
        if progress.reward is not None:
            self.step, live = progress.step, progress.reward
            self.metrics = JobMetrics(avg_reward=live.mean, reward_breakdown=dict(live.parts), current_weights=dict(live.weights))
        elif progress.step != self.step:
            self.step = progress.step
            self._read_metrics()
        self._write(progress.step, progress.steps, progress.phase, 100 * progress.done / max(progress.total, 1))

    def finish(self) -> None:
        """All steps are done."""
        self._read_metrics()
        self._write(self.steps, self.steps, "TRAINING", 100.0)

    def _write(self, step: int, steps: int, phase: str, progress: float) -> None:
        detail = JobDetail(
            current_iteration=step, total_iterations=steps, current_phase=phase, phase_progress=round(min(progress, 100.0), 1),
            metrics=self.metrics, runtime=self._runtime(),
        )  # fmt: skip
        self.lease.report(detail)

    def _read_metrics(self) -> None:
        path = self.lease.folder / "metrics.jsonl"
        if not path.is_file():
            return
        rows = [row for row in jsonl.read(path) if row["phase"] == "METRICS" and row.get("avg_reward") is not None]
        if rows:
            row = rows[-1]
            parts = (row.get("extra") or {}).get("parts", {})
            self.metrics = JobMetrics(
                avg_reward=row["avg_reward"], reward_breakdown=parts, current_weights=row.get("weights") or {}
            )

    def _runtime(self) -> JobRuntime:
        used = 0
        if self.device == "cuda":
            import torch  # a worker that trains has it loaded already; others never come here

            used = torch.cuda.memory_reserved()
        return JobRuntime(device=self.device, unsloth_available=has_unsloth(), gpu_mem_used=used)
