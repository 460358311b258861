"""`medloop jobs`: training in processes of their own, which survive this one. The API does the same over HTTP."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError
from rich.table import Table

from medloop.cli import ui
from medloop.contracts import JobStatus, TrainRequest
from medloop.errors import ConfigError, ResultError, speaking_of
from medloop.jobs import job_row, preflight, queue, requests
from medloop.jobs.supervisor import Supervisor
from medloop.jobs.worker import work as run
from medloop.knobs import load_config, read_yaml, split_pairs
from medloop.loop.train import STAGES, prepare_stage
from medloop.settings import Settings

jobs_app = typer.Typer(no_args_is_help=True, help="Training jobs: submit, watch, cancel, resume; they survive crashes.")
JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="For example train_20260203T120000Z.")]
AsJson = Annotated[bool, typer.Option("--json", help="The JSON that the API answers with.")]


def register(app: typer.Typer) -> None:
    app.add_typer(jobs_app, name="jobs")


@jobs_app.command("submit")
def submit(
    stage: Annotated[
        str, typer.Argument(metavar="STAGE", help="SFT, REWARD, DPO, KTO, PPO, GRPO or IRS; or a JSON file of a request.")
    ],
    model: Annotated[
        str | None, typer.Option(help="Base model: embedded:NAME, a folder, or a hub id (else the setting).")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings of the stage.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the stage; may be repeated.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check it and say what it would take; nothing is queued.")] = False,
) -> None:
    """Put a training job into the queue; it runs when 'medloop jobs work' or the API finds a free place.

    Example:  medloop jobs submit GRPO --set adapter=sft --set steps=40
    """
    settings = ui.settings()
    request = _request(stage, model, config, set_ or [])
    if check:
        warnings = preflight.look(request, settings).warnings
        trainable, name = STAGES[request.stage], "check"
        run_config = load_config(trainable.config, flags=requests.wanted(request, name, settings))
        prepared = prepare_stage(trainable, run_config, settings, folder=settings.workspace.jobs / name)
        ui.say(" ".join([*warnings, prepared.trainer.cost(prepared.plan, settings).sentence()]))
        return
    found = queue.submit(request, settings)
    for warning in found.expected.warnings:
        ui.say(f"Note: {warning}")
    ui.say(f"{found.job_id} waits. It runs with: medloop jobs work, or while 'medloop api serve' runs.")


def _request(stage: str, model: str | None, file: Path | None, pairs: list[str]) -> Any:
    """A request out of flags, or out of a file as document 003 writes it."""
    if stage.endswith(".json"):
        with speaking_of(stage):
            text = Path(stage).read_text(encoding="utf-8")
        try:
            return TrainRequest.from_json(text)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg'].lower()}" for p in error.errors(include_input=False))
            raise ConfigError(f"{stage}: {problems}", "docs/stages/jobs.md has an example") from None
    values = {**(read_yaml(file) if file else {})}
    values.update({name: yaml.safe_load(text) for name, text in split_pairs("--set", pairs).items()})
    try:
        return TrainRequest.model_validate({"stage": stage.upper(), "model_id": model, "config": values})
    except ValidationError:
        raise ConfigError(f"There is no stage {stage}", "Known: SFT, REWARD, DPO, KTO, PPO, GRPO, IRS") from None


@jobs_app.command("list")
def list_jobs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many, newest first.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="JOB_ID", help="Only those older than this one.")] = None,
) -> None:
    """All jobs, newest first.

    Example:  medloop jobs list
    """
    found = queue.page(ui.settings(), limit=limit, after=after)
    if not found.jobs:
        ui.say("There are no jobs. Submit one with: medloop jobs submit STAGE")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("job", "stage", "state", "iteration", "phase", "reward"):
        table.add_column(column, no_wrap=True)
    for job in found.jobs:
        table.add_row(*_cells(job)[:-1])
    ui.console().print(table)
    if found.after:
        ui.say(f"More with: medloop jobs list --after {found.after}")


def _cells(job: JobStatus) -> list[str]:
    at = job.detail
    phase = f"{at.current_phase} {at.phase_progress:.0f}%" if at.current_phase and job.state == "running" else ""
    reward = "" if at.metrics.avg_reward is None else f"{at.metrics.avg_reward:.3f}"
    count = f"{at.current_iteration}/{at.total_iterations}" if at.total_iterations else ""
    return [job.job_id, job.stage, job.state, count, phase, reward, at.message or ""]


@jobs_app.command("status")
def status(job_id: JobId, json_: AsJson = False) -> None:
    """Where a job is.

    Example:  medloop jobs status train_20260203T120000Z
    """
    found = queue.status_of(job_id, ui.settings())
    if json_:
        ui.say(json.dumps(job_row.shown(found), ensure_ascii=False, indent=2))
        return
    _, stage, state, count, phase, reward, message = _cells(found)
    ui.say(f"{job_id}: {stage}, {state}" + (f", iteration {count}" if count else "") + (f", {phase}" if phase else "") + ".")
    parts = "  ".join(f"{name} {value:.3f}" for name, value in found.detail.metrics.reward_breakdown.items())
    if reward:
        ui.say(f"Reward {reward}  {parts}")
    if message:
        ui.say(message)


@jobs_app.command("metrics")
def metrics(job_id: JobId) -> None:
    """The lines of metrics.jsonl as a JSON array.

    Example:  medloop jobs metrics train_20260203T120000Z > metrics.json
    """
    ui.say(json.dumps(queue.metrics_of(job_id, ui.settings()), ensure_ascii=False))


@jobs_app.command("cancel")
def cancel(job_id: JobId) -> None:
    """End a job; one that runs writes a checkpoint first, so that it can be resumed.

    Example:  medloop jobs cancel train_20260203T120000Z
    """
    found = queue.cancel(job_id, ui.settings())
    ui.say(f"{job_id} is {found.state}." if found.state == "cancelled" else f"{job_id} ends after a checkpoint.")


@jobs_app.command("resume")
def resume(job_id: JobId) -> None:
    """Put a paused, failed or cancelled job back into the queue; it goes on from its newest checkpoint.

    Example:  medloop jobs resume train_20260203T120000Z
    """
    queue.resume(job_id, ui.settings())
    ui.say(f"{job_id} waits again. It runs with: medloop jobs work")


@jobs_app.command("work")
def work(
    job_id: Annotated[
        str | None, typer.Argument(metavar="JOB_ID", help="This job, here and now; without one: the queue.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="So many jobs at once.")] = 1,
) -> None:
    """Run one job in this process, or work off the queue: one process per job, restarted when it dies.

    Example:  medloop jobs work
    """
    settings = ui.settings()
    if job_id is None:
        _work_off(settings, slots)
        return

    row = run(job_id, settings)
    if row.state == "failed":
        raise ResultError(f"{job_id} failed: {row.reason}")
    ui.say(f"{job_id} is {row.state}. {row.reason or ''}".rstrip())


def _work_off(settings: Settings, slots: int) -> None:
    """The queue to its end, then a line for each job that was in it."""
    waiting = [row.job_id for row in queue.entries(settings) if row.state not in job_row.OVER]
    if not waiting:
        ui.say("Nothing waits.")
        return
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())  # workers have sessions of their own: they go on
    Supervisor(settings, slots=slots).until_empty(over.is_set)
    for job_id in reversed(waiting):
        found = queue.status_of(job_id, settings)
        ui.say(f"{job_id} is {found.state}. {found.detail.message or ''}".rstrip())
