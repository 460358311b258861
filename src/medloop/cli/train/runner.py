"""What every `medloop train` command does: build the config, run the stage, show it on the terminal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from medloop.cli import ui
from medloop.contracts import TrainingCard
from medloop.knobs import load_config
from medloop.loop.train import STAGES, TrainingResult, run_stage
from medloop.models import leave_out_bitsandbytes
from medloop.train.runs.model_card import TRAINED_BY, usage
from medloop.train.runs.progress import OnProgress, Progress

if TYPE_CHECKING:
    from medloop.train.runs.estimate import Cost


@dataclass(frozen=True)
class Trained:
    """A run that was trained now."""

    result: TrainingResult
    seconds: float


def train(
    stage_name: str,
    flags: Mapping[str, Any],
    file: Path | None,
    pairs: list[str] | None,
    *,
    replace: bool,
    announce: Callable[[Any, Cost], None],
    outcome: Callable[[TrainingCard], str],
    live: bool = False,
    check: Callable[[TrainingResult], None] = lambda result: None,
) -> Trained | None:
    """Run a stage with its config from file, --set and flags; None, with a sentence, when this very run was trained before.

    `check` raises when the result of such an earlier run may not be used.
    """
    stage, settings = STAGES[stage_name], ui.settings()
    defaults = {"model": settings.model, "seed": settings.seed}
    config = load_config(stage.config, file=file, pairs=pairs or (), flags=flags, defaults=defaults)
    if not _may_need_bitsandbytes(config):
        leave_out_bitsandbytes()
    with Terminal(stage_name.lower(), announce, live) as terminal:
        result = run_stage(
            stage, config, settings, replace=replace, on_plan=terminal.on_plan, on_progress=terminal.on_progress,
            should_stop=terminal.should_stop,
        )  # fmt: skip
    if result.plan is None:
        ui.say(f"Already trained: {ui.shown(result.run.target)} ({outcome(result.card).rstrip('.')}). Nothing to do.")
        check(result)
        return None
    return Trained(result, time.monotonic() - terminal.began)


def _may_need_bitsandbytes(config: Any) -> bool:
    """A base in 4 bits and the 8-bit optimizer do; a part of the reward that is somebody's own code may."""
    return bool(
        getattr(config, "load_in_4bit", False) or getattr(config, "memory_gb", None)
        or getattr(config, "optimizer", "adamw") != "adamw"
        or getattr(config, "reward", None) or getattr(config, "given", None) or getattr(config, "second_judge", None)
    )  # fmt: skip


class Terminal:
    """Announces a run; then shows its progress, and turns Ctrl-C into a checkpoint and an end."""

    def __init__(self, label: str, announce: Callable[[Any, Cost], None], live: bool) -> None:
        self.label, self.announce, self.live = label, announce, live
        self.began = 0.0
        self._is_stopped: Callable[[], bool] = lambda: False
        self._stack = ExitStack()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def on_plan(self, plan: Any, cost: Cost) -> None:
        self.announce(plan, cost)
        if plan.steps_done is not None:
            ui.say(f"Continuing: {plan.steps_done:,} of {plan.steps:,} steps are done.")
        self._is_stopped = self._stack.enter_context(stop_on_signal())
        self._show = self._stack.enter_context(progress_bar(self.label, plan, self.live))
        self.began = time.monotonic()

    def on_progress(self, progress: Progress) -> None:
        self._show(progress)

    def should_stop(self) -> bool:
        return self._is_stopped()


def announce_cost(plan: Any, cost: Cost) -> None:
    """What the run will cost, before it does."""
    size = plan.config.batch_size
    ui.say(f"{plan.steps:,} steps of {size} on {cost.device}, about {cost.duration} and {cost.memory / 1e9:.1f} GB.")
    if cost.memory > cost.free:
        ui.say(f"Only {cost.free / 1e9:.1f} GB are free; lower micro_batch_size or max_length.")


def held_out_accuracy(card: TrainingCard, unit: str, before: str = "") -> str:
    """`held-out accuracy 50.0% -> 62.5% (38.6% to 81.5%, 16 rows)`."""
    metrics = card.metrics
    interval = f"{metrics['test_accuracy_low']:.1%} to {metrics['test_accuracy_high']:.1%}"
    return f"held-out accuracy {before}{metrics['test_accuracy']:.1%} ({interval}, {metrics[f'test_{unit}']:,.0f} {unit})"


def report(trained: Trained, outcome: str) -> None:
    """What came out, and where it is."""
    target, card = trained.result.run.target, trained.result.card
    ui.say(f"Trained in {trained.seconds:.0f} s: {outcome}.")
    if card.update_backend is not None:
        ui.say(card.update_note or f"The training was computed by {TRAINED_BY[card.update_backend]}.")
    files = "card.json, README.md, metrics.jsonl" + (", report.md" if (target / "report.md").is_file() else "")
    share = card.trainable_parameters / card.total_parameters
    ui.say(f"{ui.shown(target)}: {card.trainable_parameters:,} trained parameters ({share:.1%}), {files}.")


def say_next(trained: Trained) -> None:
    """The command that uses the result; README.md beside the weights has the same one."""
    ui.next_step(usage(trained.result.card, trained.result.run.target, shown=ui.shown))


@contextmanager
def progress_bar(label: str, plan: Any, live: bool) -> Iterator[OnProgress]:
    """One bar for the steps; with `live` a line for each finished step stays on the screen."""
    shown = plan.steps_done or 0
    with ui.progress(label, plan.steps, done=shown) as bar:

        def show(progress: Progress) -> None:
            nonlocal shown
            numbers = "  ".join(_number(name, value) for name, value in progress.numbers.items() if name != "step")
            under_way = progress.finished < progress.step
            phase = f"{progress.phase.lower()} {progress.done}/{progress.total}  " if under_way else ""
            bar.update(progress.finished, text=phase + numbers)
            if live and (step := int(progress.numbers.get("step", progress.finished))) > shown:
                shown = step
                bar.say(f"step {step:>4}  {numbers}")

        yield show


def _number(name: str, value: float) -> str:
    if name == "learning_rate":
        return f"rate {value:.1e}"
    return f"{value:,.0f} tokens/s" if name == "tokens_per_second" else f"{name} {value:.3f}"


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks for a checkpoint and an end; a second Ctrl-C ends at once."""
    requested = False

    def request_stop(number: int, frame: object) -> None:
        nonlocal requested
        requested = True
        typer.echo("Stopping after this step, with a checkpoint. The same command will continue from there.", err=True)
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    before = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
