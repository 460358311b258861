"""What the jobs do: train a stage, build a dataset, erase records, decide about a model, as the commands of these names do.

A worker process does the work, so a `kill -9` is repaired: training continues from its newest checkpoint, a dataset is built
again, an erasure continues from its journal. The result of a task that does not train lies in the job's folder, `result.json`.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import JobDetail, TrainRequest
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.job import TaskRequest
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.progress import Step
from medloop.evaluate.examined import Progress
from medloop.jobs import requests
from medloop.jobs.affected import QueuedJobs
from medloop.jobs.lease import Lease
from medloop.jobs.queue import RESULT
from medloop.jobs.status import REPORT_S, StatusWriter
from medloop.knobs import load_config
from medloop.loop.erasure import erase_records
from medloop.loop.feedback import build_from_feedback
from medloop.loop.gate import examine
from medloop.loop.inspection import draw_week
from medloop.loop.train import STAGES, run_stage
from medloop.privacy.erasure.approval import request_approval
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import SecondPersonNeededError, preview, proof_path
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files.atomic import atomic_write
from medloop.store.records.gates import promotion_refusal, save_gate
from medloop.train.runs.model_card import result_sentence

Json = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """A job in the hands of its worker."""

    lease: Lease
    request: Any
    settings: Settings
    should_stop: Callable[[], bool]

    def write_result(self, result: Json) -> None:
        atomic_write(self.lease.folder / RESULT, json.dumps(result, ensure_ascii=False, indent=2) + "\n")

    def relative(self, path: Path) -> str:
        """As a path of the workspace: whoever asks over HTTP need not know where that lies."""
        home = self.settings.home
        return path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)


def train(work: Work) -> str:
    request: TrainRequest = work.request
    stage, status, folder = STAGES[request.stage], StatusWriter(work.lease), work.lease.folder
    # What a name leads to may have changed while the job waited.
    (requests.check_remote if work.lease.check().submitter else requests.check_closed)(request, work.settings)
    config = load_config(stage.config, flags=requests.config_values(request, folder.name, work.settings))
    result = run_stage(
        stage, config, work.settings, folder=folder, guard=work.lease.check, on_plan=status.on_plan,
        on_progress=status.on_progress, should_stop=work.should_stop,
    )  # fmt: skip
    if result.plan is not None:
        status.finish()
    card = result.card
    verdict = [result_sentence(card)] if card.held_out_verdict or card.alarms or card.stopped or card.degraded else []
    return " ".join([*verdict, *card.warnings, f"The result is {work.relative(result.run.target)}."])


def build_dataset(work: Work) -> str:
    request: TaskRequest = work.request
    config, progress = FeedbackConfig.model_validate(request.config["settings"]), TaskProgress(work)
    with open_store(work.settings) as store:
        built = build_from_feedback(store, config, seed=request.config["seed"], actor=request.actor, progress=progress.phase)
    work.write_result(
        {
            "name": config.name, "sha256": built.sha256, "rows": {name: file.rows for name, file in built.card.files.items()},
            "records": built.card.records, "dropped": built.card.drops, "new": built.new_records, "held": built.quarantined,
        }
    )  # fmt: skip
    return f"The dataset is {work.relative(built.folder)}."


def erase(work: Work) -> str:
    request, jobs = work.request, QueuedJobs(work.settings)
    values: Json = request.config
    erasure = ErasureRequest(
        values["reason"],
        values.get("subject"),
        tuple(values["records"]),
        values["keep_jobs"],
        values.get("approved_by"),
        values.get("approved_ids"),
        values.get("request_id"),
    )
    with open_store(work.settings) as store:
        if values["dry_run"]:
            plan = preview(store, erasure, actor=request.actor, jobs=jobs)
            work.write_result(
                {
                    "state": "preview", "rows": plan.rows, "files": plan.files, "unsearched": plan.unsearched,
                    "shared": plan.shared, "jobs": plan.jobs, "foreign": [asdict(record) for record in plan.foreign],
                    "evidence": plan.evidence, "ids_sha256": plan.ids_sha256, "by_hand": plan.by_hand,
                }
            )  # fmt: skip
            return "Nothing was changed."
        try:
            proof = erase_records(store, erasure, actor=request.actor, jobs=jobs)
        except SecondPersonNeededError as needed:
            request_id = request_approval(store, erasure, needed, by=request.actor)
            waiting = {"state": "waiting", "rows": {}, "files": [], "request_id": request_id, "evidence": needed.evidence}
            work.write_result({**waiting, "ids_sha256": needed.ids_sha256})
            return f"{needed.what}. {needed.removed}; the request {request_id} waits for a second person."
        path = proof_path(store, proof.erasure_id)
    work.write_result(
        {
            "state": "complete" if proof.complete else "incomplete", "erasure_id": proof.erasure_id, "rows": proof.rows,
            "files": [str(file["path"]) for file in proof.files], "flagged": [model["path"] for model in proof.flagged],
            "jobs": list(proof.jobs), "left": list(proof.left), "unsearched": list(proof.unsearched), "shared": proof.shared,
            "by_hand": list(proof.by_hand), "evidence": proof.evidence, "proof": proof.model_dump(mode="json", exclude_none=True),
        }
    )  # fmt: skip
    return f"The erasure is {'complete' if proof.complete else 'NOT complete'}; the proof is {work.relative(path)}."


def decide_gate(work: Work) -> str:
    """`medloop gate` for a model of the workspace; the verdict is stored like that of the command."""
    request: TaskRequest = work.request
    values, progress = request.config, TaskProgress(work)
    # What a name leads to may have changed while the job waited.
    candidate, baseline = requests.gate_models(values["model"], values.get("baseline"), work.settings)
    assert candidate is not None, "the request names a model"
    config = GateConfig.model_validate(values["settings"])
    with open_store(work.settings) as store:
        examined = examine(
            work.settings, store, candidate=candidate, baseline=baseline, config=config, progress=progress.answering
        )  # fmt: skip
        result = examined.result
        gate = save_gate(store, result, actor=request.actor)
        refusal = promotion_refusal(store, result.artifact)
    counts = Counter(check.outcome for check in result.checks)
    work.write_result(
        {
            "gate": gate, "artifact": result.artifact, "label": result.label, "baseline": result.baseline,
            "outcome": result.outcome, "checks": dict(counts), "needs_sign_offs": result.needs_sign_offs, "refusal": refusal,
            "report": work.relative(examined.report),
        }
    )  # fmt: skip
    return f"The verdict is {gate[7:19]}."


def draw_inspection(work: Work) -> str:
    """This week's sample of answers for clinicians: every scored answer of the workspace is read, which takes a minute."""
    request: TaskRequest = work.request
    with open_store(work.settings) as store:
        answers = draw_week(work.settings, store, actor=request.actor)
    work.write_result({"week": request.config["week"], "answers": answers})
    return f"This week's sample has {answers} answers."


class TaskProgress:
    """Phases and steps into status.json; a request to stop is obeyed at the next step."""

    def __init__(self, work: Work) -> None:
        self.work, self.reported_at = work, 0.0

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Step]:
        done = 0

        def step(count: int) -> None:
            nonlocal done
            done += count
            if self.work.should_stop():
                raise KeyboardInterrupt
            self._report(f"{name}.", done, total)

        step(0)
        yield step

    def answering(self, label: str) -> Progress:
        """For an evaluation, which counts by itself."""

        def report(done: int, total: int) -> None:
            if self.work.should_stop():
                raise KeyboardInterrupt
            self._report(f"{label}.", done, total)

        return report

    def _report(self, message: str, done: int, total: int) -> None:
        if time.monotonic() - self.reported_at >= REPORT_S:
            self.reported_at = time.monotonic()
            progress = round(min(100 * done / max(total, 1), 100.0), 1)
            self.work.lease.report(JobDetail(phase_progress=progress, message=message))
