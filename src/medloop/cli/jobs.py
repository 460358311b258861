"""`medloop jobs`: training in background processes, which survive this one. The API does the same over HTTP."""

import json
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from medloop.cli import ui
from medloop.contracts import JobStatus, TrainRequest
from medloop.errors import ConfigError, ResultError, explain_os_errors
from medloop.jobs import job_row, preflight, queue, requests
from medloop.jobs.submit import submit_training
from medloop.jobs.supervisor import Supervisor
from medloop.jobs.worker import work as work_on
from medloop.knobs import load_config, problem_list, read_yaml, set_pairs
from medloop.loop.train import STAGES, prepare_stage
from medloop.settings import Settings
from medloop.teacher import usage
from medloop.train.runs.teacher_use import paid_use

jobs_app = typer.Typer(no_args_is_help=True, help="Training jobs: submit, watch, cancel, resume; they survive crashes.")
LOGS = "deepseek_teacher"  # of the teacher's requests, in the folder of the logs
JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="For example train_20260203T120000Z.")]


def register(app: typer.Typer) -> None:
    app.add_typer(jobs_app, name="jobs")


@jobs_app.command("submit")
def submit(
    stage: Annotated[
        str, typer.Argument(metavar="STAGE", help="SFT, REWARD, DPO, KTO, PPO, GRPO or IRS; or a JSON file of a request.")
    ],
    model: Annotated[
        str | None, typer.Option(help="Base model: embedded:NAME, a folder, a GGUF file, or a hub id (else the setting).")
    ] = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
    check: Annotated[bool, typer.Option("--check", help="Only check it and say what it would cost; nothing is queued.")] = False,
) -> None:
    """Put a training job into the queue; it runs when 'medloop jobs work' or the API has a free slot.

    Example:  medloop jobs submit GRPO --set adapter=sft --set steps=40
    """
    settings = ui.settings()
    request = _request(stage, model, config, set_ or [])
    if check:
        _check(request, settings)
        return
    submitted = submit_training(request, settings)
    ui.say(f"{submitted.job_id} waits. It runs while the API serves.")
    checked = submitted.preflight
    if checked.objective is not None:
        ui.say(checked.objective.sentence())
    for warning in checked.warnings:
        ui.say(f"Note: {warning}")
    ui.next_step("jobs work", "Run it without the API:")


def _check(request: TrainRequest, settings: Settings) -> None:
    """All that can be known without starting the run, with the errors that the worker would meet."""
    warnings = preflight.check(request, settings).warnings
    stage, name = STAGES[request.stage], "check"
    config = load_config(stage.config, flags=requests.config_values(request, name, settings))
    prepared = prepare_stage(stage, config, settings, folder=settings.workspace.jobs / name)
    costs = [] if prepared.trainer is None else [prepared.trainer.cost(prepared.plan, settings).sentence()]
    ui.say(" ".join([*warnings, *costs]))


def _request(stage: str, model: str | None, file: Path | None, pairs: list[str]) -> TrainRequest:
    """A request from flags, or from a file that holds the body of `POST /api/train`."""
    if stage.endswith(".json"):
        with explain_os_errors(stage):
            text = Path(stage).read_text(encoding="utf-8")
        return _checked(stage, lambda: TrainRequest.from_json(text))
    if stage.upper() not in STAGES:
        raise ConfigError(f"There is no stage {stage}", f"Known: {', '.join(STAGES)}")
    values = {**(read_yaml(file) if file else {})}
    set_pairs(values, STAGES[stage.upper()].config, pairs)
    return _checked(stage, lambda: TrainRequest(stage=STAGES[stage.upper()].name, model_id=model, config=values))


def _checked(name: str, build: Callable[[], TrainRequest]) -> TrainRequest:
    try:
        return build()
    except ValidationError as error:
        raise ConfigError(f"{name}: {problem_list(error, 'request')}", "docs/stages/jobs.md has an example") from None


@jobs_app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of jobs to show, newest first.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="JOB_ID", help="Only jobs older than this one.")] = None,
    json_: ui.AsJson = False,
) -> None:
    """List all jobs, newest first.

    Example:  medloop jobs list
    """
    settings = ui.settings()
    page, asked = queue.page(settings, limit=limit, after=after), usage.by_job(settings.workspace.logs / LOGS)
    if json_:
        rows = [job_row.status_json(job) | _teacher_json(job, asked) for job in page.jobs]
        ui.say_json({"jobs": rows, "after": page.after})
        return
    if not page.jobs:
        ui.next_step("jobs submit STAGE", "There are no jobs. Submit one with:")
        return
    head = ("job", "stage", "state", "iteration", "phase", "reward", "teacher USD")
    costs = {job.job_id: f"{asked[job.job_id].usd:.4f}" for job in page.jobs if job.job_id in asked}
    ui.table(head, ([*_cells(job)[:-1], costs.get(job.job_id, "")] for job in page.jobs))
    if (spent := usage.today(settings.workspace.logs / LOGS)).requests:
        ui.say(f"The teacher today, for whatever: {spent.requests:,} requests, {spent.tokens:,} tokens, {spent.usd:.4f} USD.")
    if page.after:
        ui.next_step(f"jobs list --after {page.after}", "More with:")


def _teacher_json(job: JobStatus, asked: Mapping[str, usage.UsageSum]) -> dict[str, object]:
    return {"teacher": asdict(asked[job.job_id])} if job.job_id in asked else {}


def _cells(job: JobStatus) -> list[str]:
    detail = job.detail
    phase = f"{detail.current_phase} {detail.phase_progress:.0f}%" if detail.current_phase and job.state == "running" else ""
    reward = "" if detail.metrics.avg_reward is None else f"{detail.metrics.avg_reward:.3f}"
    count = f"{detail.current_iteration}/{detail.total_iterations}" if detail.total_iterations else ""
    return [job.job_id, job.stage, job.state, count, phase, reward, detail.message or ""]


@jobs_app.command("status")
def status(job_id: JobId, json_: ui.AsJson = False) -> None:
    """Show where a job is.

    Example:  medloop jobs status train_20260203T120000Z
    """
    job = queue.status_of(job_id, ui.settings())
    asked = usage.by_job(ui.settings().workspace.logs / LOGS).get(job.job_id)
    used = paid_use(asked, queue.metrics_of(job.job_id, ui.settings()))
    if json_:
        ui.say_json(job_row.status_json(job) | ({} if used is None else {"teacher": used._asdict()}))
        return
    _, stage, state, count, phase, reward, message = _cells(job)
    ui.say(f"{job_id}: {stage}, {state}" + (f", iteration {count}" if count else "") + (f", {phase}" if phase else "") + ".")
    if message:
        ui.say(message)
    if reward:
        ui.say(f"Reward {reward}  {_named(job.detail.metrics.reward_breakdown)}")
        ui.say(f"Weights  {_named(job.detail.metrics.current_weights)}")
    if used is not None:
        ui.say(used.sentence() + ".")
    if job.objective is not None:
        ui.say(job.objective.sentence())
        for note in job.objective.notes:
            ui.say(f"Note: {note}")


def _named(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3f}" for name, value in values.items())


@jobs_app.command("metrics")
def metrics(job_id: JobId) -> None:
    """Print the lines of metrics.jsonl as a JSON array.

    Example:  medloop jobs metrics train_20260203T120000Z > metrics.json
    """
    ui.say(json.dumps(queue.metrics_of(job_id, ui.settings()), ensure_ascii=False))


@jobs_app.command("cancel")
def cancel(job_id: JobId) -> None:
    """End a job; one that runs writes a checkpoint first, so that it can be resumed.

    Example:  medloop jobs cancel train_20260203T120000Z
    """
    job = queue.cancel(job_id, ui.settings())
    ui.say(f"{job_id} is {job.state}." if job.state == "cancelled" else f"{job_id} ends after a checkpoint.")


@jobs_app.command("resume")
def resume(job_id: JobId) -> None:
    """Put a paused, failed or cancelled job back into the queue; it continues from its newest checkpoint.

    Example:  medloop jobs resume train_20260203T120000Z
    """
    queue.resume(job_id, ui.settings())
    ui.next_step("jobs work", f"{job_id} waits again. Run it with:")


@jobs_app.command("work")
def work(
    job_id: Annotated[
        str | None, typer.Argument(metavar="JOB_ID", help="Run only this job, in this process (default: the whole queue).")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Training jobs at once.")] = 1,
) -> None:
    """Run one job in this process, or run the whole queue: one process per job, restarted when it dies.

    Example:  medloop jobs work
    """
    settings = ui.settings()
    if job_id is None:
        _run_queue(settings, slots)
        return
    row = work_on(job_id, settings)
    if row.state == "failed":
        raise ResultError(f"{job_id} failed: {row.reason}")
    ui.say(f"{job_id} is {row.state}. {row.reason or ''}".rstrip())


def _run_queue(settings: Settings, slots: int) -> None:
    """Run the queue until it is empty, then print a line for each job that was in it."""
    waiting = [row.job_id for row in queue.rows(settings) if not row.has_ended]
    if not waiting:
        ui.say("Nothing waits.")
        return
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())  # workers have their own sessions: they continue
    Supervisor(settings, slots=slots).run_until_empty(over.is_set)
    for job_id in reversed(waiting):
        job = queue.status_of(job_id, settings)
        ui.say(f"{job_id} is {job.state}. {job.detail.message or ''}".rstrip())
