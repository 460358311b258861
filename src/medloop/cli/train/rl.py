"""`medloop train ppo|grpo|irs`: a policy learns from rewards; after a crash, the same command goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from medloop.cli import ui
from medloop.cli.reward import sources
from medloop.cli.train.sft import stop_on_signal, train_app
from medloop.contracts import TrainingCard
from medloop.knobs import build
from medloop.loop.evaluation import rl_audit
from medloop.loop.scoring import reward_scorer
from medloop.models import require_packages
from medloop.store.audit_trail import open_audit_trail

if TYPE_CHECKING:
    from medloop.train.rl.state import RLPlan, Tick

Name = Annotated[str | None, typer.Option(help="Name of the result, under models/rl [round1].")]
Model = Annotated[str | None, typer.Option(help="Base model: embedded:NAME, a folder, or a hub id (else the setting 'model').")]
Adapter = Annotated[str | None, typer.Option(help="Adapter to start from; it is the reference too [none: the base model].")]
Prompts = Annotated[str | None, typer.Option(metavar="FILE", help="Questions to train on [data/rl/training_prompts.jsonl].")]
HeldOut = Annotated[str | None, typer.Option(metavar="FILE", help="Questions only to measure on [data/processed/dev.jsonl].")]
Reward = Annotated[str | None, typer.Option(metavar="FILE", help="YAML of the reward [the default mix; configs/reward.yaml].")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PART[=SOURCE]", help="Hand in a given part of the reward, as in 'medloop reward score'."),
]
Steps = Annotated[int | None, typer.Option(help="Batches of answers.")]
Samples = Annotated[int | None, typer.Option(help="Answers to each question.")]
Rate = Annotated[float | None, typer.Option(help="First learning rate [by model size].")]
Seed = Annotated[int | None, typer.Option(help="Seed (else the setting 'seed').")]
Config = Annotated[Path | None, typer.Option(help="YAML file with these and more settings.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the run; may be repeated.")]
RolloutUrl = Annotated[str | None, typer.Option(metavar="URL", help="vLLM server that samples; it serves the same base [none].")]
Live = Annotated[bool, typer.Option("--live", help="Show reward, KL, entropy and length of every step while it runs.")]
Replace = Annotated[bool, typer.Option("--replace", help="Train anew over a result or an unfinished run of that name.")]


@train_app.command("ppo")
def train_ppo(
    name: Name = None, model: Model = None, adapter: Adapter = None, prompts: Prompts = None, held_out: HeldOut = None,
    reward: Reward = None, with_: With = None, steps: Steps = None, samples: Samples = None, learning_rate: Rate = None,
    rollout_url: RolloutUrl = None,
    target_kl: Annotated[float | None, typer.Option(help="KL to the reference to steer to, nats per answer [6].")] = None,
    seed: Seed = None, config: Config = None, set_: Set = None, live: Live = False, replace: Replace = False,
) -> None:  # fmt: skip
    """PPO: a critic, the KL to the reference inside the reward and steered to a target, any reward function.

    Example:  medloop train ppo --adapter sft --name round1 --live
    """
    require_packages("trl", "datasets")
    from medloop.train import ppo

    flags = {
        "name": name, "model": model, "adapter": adapter, "prompts": prompts, "held_out": held_out, "reward": reward,
        "steps": steps, "samples": samples, "learning_rate": learning_rate, "target_kl": target_kl, "seed": seed,
        "rollout_url": rollout_url,
    }  # fmt: skip
    _train(ppo, ppo.PPOConfig, flags, with_, config, set_, live=live, replace=replace)


@train_app.command("grpo")
def train_grpo(
    name: Name = None, model: Model = None, adapter: Adapter = None, prompts: Prompts = None, held_out: HeldOut = None,
    reward: Reward = None, with_: With = None, steps: Steps = None, samples: Samples = None, learning_rate: Rate = None,
    rollout_url: RolloutUrl = None,
    loss: Annotated[str | None, typer.Option(help="How tokens are averaged: dapo, grpo, dr_grpo, bnpo [dapo].")] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the KL to the reference; 0: none [0.02].")] = None,
    seed: Seed = None, config: Config = None, set_: Set = None, live: Live = False, replace: Replace = False,
) -> None:  # fmt: skip
    """GRPO: several answers to each question, each judged against its siblings; no critic.

    Example:  medloop train grpo --adapter sft --name round1 --samples 8 --live
    """
    require_packages("trl", "datasets")
    from medloop.train import grpo

    flags = {
        "name": name, "model": model, "adapter": adapter, "prompts": prompts, "held_out": held_out, "reward": reward,
        "steps": steps, "samples": samples, "learning_rate": learning_rate, "loss": loss, "beta": beta, "seed": seed,
        "rollout_url": rollout_url,
    }  # fmt: skip
    _train(grpo, grpo.GRPOConfig, flags, with_, config, set_, live=live, replace=replace)


@train_app.command("irs")
def train_irs(
    name: Name = None, model: Model = None, adapter: Adapter = None, prompts: Prompts = None, held_out: HeldOut = None,
    reward: Reward = None, with_: With = None,
    dw: Annotated[str | None, typer.Option(metavar="FILE", help="Score by DW-GRPO, as configs/dw.yaml.")] = None,
    n_iterations: Annotated[int | None, typer.Option(help="Rounds of generate, score, fine-tune [3].")] = None,
    n_questions: Annotated[int | None, typer.Option(help="Questions asked in a round [100].")] = None,
    n_candidates: Annotated[int | None, typer.Option(help="Answers to each question [4].")] = None,
    top_k: Annotated[int | None, typer.Option(help="At most so many answers of a question are kept [3].")] = None,
    threshold: Annotated[float | None, typer.Option(help="Least reward of a kept answer [the mean of the round].")] = None,
    learning_rate: Rate = None, rollout_url: RolloutUrl = None, seed: Seed = None, config: Config = None, set_: Set = None,
    live: Live = False, replace: Replace = False,
) -> None:  # fmt: skip
    """Iterative Rejection Sampling: generate candidates, keep the best, fine-tune on them, again; one model in memory.

    Example:  medloop train irs --adapter sft --n-iterations 3 --n-candidates 4 --top-k 3
    """
    require_packages("trl", "datasets")
    from medloop.train import irs

    flags = {
        "name": name, "model": model, "adapter": adapter, "prompts": prompts, "held_out": held_out, "reward": reward, "dw": dw,
        "n_iterations": n_iterations, "n_questions": n_questions, "n_candidates": n_candidates, "top_k": top_k,
        "threshold": threshold, "learning_rate": learning_rate, "seed": seed, "rollout_url": rollout_url,
    }  # fmt: skip
    _train(irs, irs.IRSRunConfig, flags, with_, config, set_, live=live, replace=replace)


def _train(
    stage: Any, kind: type[Any], flags: dict[str, Any], with_: list[str] | None, file: Path | None, pairs: list[str] | None,
    *, live: bool, replace: bool,
) -> None:  # fmt: skip
    """Plan, announce, run, report; one path for all RL methods."""
    from medloop.train.rl import state

    settings = ui.settings()
    defaults = {"model": settings.model, "seed": settings.seed}
    wish = build(kind, file=file, pairs=pairs or (), flags={**flags, "given": sources(with_) or None}, defaults=defaults)
    dynamic = {name: getattr(wish, name) for name in ("dw", "dw_config") if hasattr(wish, name)}
    scorer = reward_scorer(settings, reward=wish.reward, given=wish.given, **dynamic)
    job = state.find_job(wish, stage.METHOD, scorer, settings)
    with open_audit_trail(settings) as trail:
        if not replace and (card := job.finished()) is not None:
            trail.enter("adapter", job.target, card)
            ui.say(f"Already trained: {ui.shown(job.target)} ({_gain(card)}). Nothing to do.")
            return
        plan = state.plan(wish, stage.METHOD, scorer, settings, job, replace=replace, audit=rl_audit(wish.seed))
        _announce(plan)
        began = time.monotonic()
        with stop_on_signal() as stopped, _bar(plan, live) as watch:
            card = stage.run(plan, settings, watch=watch, should_stop=stopped)
        trail.enter("adapter", job.target, card)
    _report(plan, card, time.monotonic() - began)


def _announce(plan: RLPlan) -> None:
    config = plan.config
    start = f"adapter {config.adapter}" if config.adapter else "a fresh adapter"
    left_out = f" ({plan.too_long:,} too long)" if plan.too_long else ""
    ui.say(f"{plan.method.upper()} on {config.model}, {start}: {len(plan.questions):,} questions{left_out}.")
    answers = (getattr(config, "prompts_per_step", 0) or config.n_questions) * config.samples
    ui.say(
        f"{config.steps:,} steps of {answers:,} answers; {len(plan.held_out):,} held-out questions; reward {plan.scorer.version}."
    )
    if plan.continues_at:
        ui.say(f"Continuing at step {plan.continues_at:,} of {config.steps:,}.")


def _report(plan: RLPlan, card: TrainingCard, seconds: float) -> None:
    found = card.metrics
    ui.say(f"Trained in {seconds:.0f} s: reward {found['reward_first']:.3f} -> {found['reward_last']:.3f}, {_gain(card)}.")
    if alarms := int(found.get("alarms", 0)):
        ui.say(f"{alarms} alarms of the reward-hacking panel: read report.html before you go on.")
    share = card.trainable_parameters / card.total_parameters
    ui.say(f"{ui.shown(plan.job.target)}: {share:.1%} of the weights trained; report.html, curves.png, rewards.csv, card.json.")
    ui.say(f"Next: medloop eval --model {card.base}+{ui.shown(plan.job.target)} --split gold --split red")


def _gain(card: TrainingCard) -> str:
    found = card.metrics
    kl = f", KL {found['kl_last']:.2f}" if "kl_last" in found else ""
    if "held_out_gain" not in found:
        return f"no held-out questions{kl}"
    low, high = found["held_out_gain_low"], found["held_out_gain_high"]
    return f"held-out reward {found['held_out_gain']:+.3f} [{low:+.3f}, {high:+.3f}]{kl}"


@contextmanager
def _bar(plan: RLPlan, live: bool) -> Iterator[Callable[[Tick], None]]:
    """One bar for the steps; with `live` a line for each finished step stays on the screen."""
    columns = (TextColumn(plan.method), BarColumn(bar_width=12), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=ui.messages(), transient=True) as bar:
        task = bar.add_task("", total=plan.config.steps, completed=plan.continues_at)
        shown = plan.continues_at

        def watch(at: Tick) -> None:
            nonlocal shown
            said = "  ".join(f"{name} {value:.3f}" for name, value in at.numbers.items() if name != "step")
            bar.update(task, completed=max(at.step - 1, 0), description=f"{at.phase.lower()} {at.done}/{at.wanted}  {said}")
            if live and (step := int(at.numbers.get("step", 0))) > shown:
                shown = step
                (ui.say if bar.console.quiet else bar.console.print)(f"step {step:>4}  {said}")

        yield watch
