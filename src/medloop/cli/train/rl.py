"""`medloop train ppo|grpo|irs`: a policy learns from rewards."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medloop.cli import ui
from medloop.cli.train.options import Adapter, Model, Replace, Seed
from medloop.cli.train.runner import Trained, train
from medloop.cli.ui import ConfigFile, SetPairs
from medloop.errors import ConfigError, ResultError
from medloop.knobs import split_pairs
from medloop.loop.rounds import report_path, round_name, start_of_round
from medloop.store.db import open_store
from medloop.store.records.champion import champion_artifact
from medloop.store.records.rounds import SFT_ROUND
from medloop.train.runs.find_run import objective_of
from medloop.train.runs.model_card import BACKENDS, alarm_sentence, held_out_sentence, result_sentence

if TYPE_CHECKING:
    from medloop.loop.train import TrainingResult
    from medloop.train.rl.plan import RLPlan
    from medloop.train.runs.estimate import Cost

Name = Annotated[str | None, typer.Option(help="Name of the result, under models/rl (default: round1).")]
Round = Annotated[
    int | None,
    typer.Option(
        "--round", min=1, metavar="N",
        help="Number of the round: starts from the last accepted one (the first from SFT) and makes models/rl/roundN.",
    ),
]  # fmt: skip
Prompts = Annotated[
    str | None, typer.Option(metavar="FILE", help="Training questions (default: data/rl/training_prompts.jsonl).")
]
HeldOut = Annotated[str | None, typer.Option(metavar="FILE", help="Held-out questions (default: data/processed/dev.jsonl).")]
Reward = Annotated[
    str | None, typer.Option(metavar="FILE", help="YAML of the reward, as configs/reward.yaml (default: the mix).")
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PART[=SOURCE]", help="Add a given part to the reward, as in 'medloop reward score'."),
]
Steps = Annotated[int | None, typer.Option(help="Batches of answers.")]
Samples = Annotated[int | None, typer.Option(help="Answers to each question.")]
InitialRate = Annotated[float | None, typer.Option(help="Initial learning rate (default: by model size).")]
RolloutUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="vLLM server that samples from the same base (default: none).")
]
MemoryGb = Annotated[
    float | None,
    typer.Option(metavar="GB", help="Memory that the run may take; it chooses its batches by it (default: what is free)."),
]
AcceptUntrusted = Annotated[
    bool, typer.Option("--accept-untrusted", help="Train although people's labels do not support the reward; the card says so.")
]
Overlap = Annotated[bool, typer.Option("--overlap", help="Draw the next step's answers while a slow teacher scores this step's.")]
Live = Annotated[bool, typer.Option("--live", help="Show reward, KL, entropy and length of every step while it runs.")]


def train_ppo(
    name: Name = None, round_: Round = None, model: Model = None, adapter: Adapter = None, prompts: Prompts = None,
    held_out: HeldOut = None, reward: Reward = None, with_: With = None, steps: Steps = None, samples: Samples = None,
    learning_rate: InitialRate = None, rollout_url: RolloutUrl = None, memory_gb: MemoryGb = None,
    target_kl: Annotated[float | None, typer.Option(help="Target KL to the reference, nats per answer (default: 6).")] = None,
    seed: Seed = None, config: ConfigFile = None, set_: SetPairs = None, live: Live = False, replace: Replace = False,
    accept_untrusted: AcceptUntrusted = False, overlap: Overlap = False,
) -> None:  # fmt: skip
    """PPO: raise the reward with the help of a critic, and stay near the reference model (a KL penalty with a target).

    Example:  medloop train ppo --round 1 --live
    """
    flags = {
        "name": name, "model": model, "adapter": adapter, "prompts": prompts, "held_out": held_out, "reward": reward,
        "steps": steps, "samples": samples, "learning_rate": learning_rate, "target_kl": target_kl, "seed": seed,
        "rollout_url": rollout_url, "memory_gb": memory_gb, "overlap": overlap or None,
        "accept_untrusted": accept_untrusted or None,
    }  # fmt: skip
    _train("PPO", flags, with_, config, set_, live=live, replace=replace, number=round_)


def train_grpo(
    name: Name = None, round_: Round = None, model: Model = None, adapter: Adapter = None, prompts: Prompts = None,
    held_out: HeldOut = None, reward: Reward = None, with_: With = None, steps: Steps = None, samples: Samples = None,
    learning_rate: InitialRate = None, rollout_url: RolloutUrl = None, memory_gb: MemoryGb = None,
    loss: Annotated[str | None, typer.Option(help="How tokens are averaged: dapo, grpo, dr_grpo, bnpo (default: dapo).")] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the KL to the reference; 0: none (default: 0.02).")] = None,
    seed: Seed = None, config: ConfigFile = None, set_: SetPairs = None, live: Live = False, replace: Replace = False,
    accept_untrusted: AcceptUntrusted = False, overlap: Overlap = False,
) -> None:  # fmt: skip
    """GRPO: several answers to each question, each compared with the others; no critic.

    Example:  medloop train grpo --adapter sft --name round1 --samples 8 --live
    """
    flags = {
        "name": name, "model": model, "adapter": adapter, "prompts": prompts, "held_out": held_out, "reward": reward,
        "steps": steps, "samples": samples, "learning_rate": learning_rate, "loss": loss, "beta": beta, "seed": seed,
        "rollout_url": rollout_url, "memory_gb": memory_gb, "overlap": overlap or None,
        "accept_untrusted": accept_untrusted or None,
    }  # fmt: skip
    _train("GRPO", flags, with_, config, set_, live=live, replace=replace, number=round_)


def train_irs(
    name: Name = None, round_: Round = None, model: Model = None, adapter: Adapter = None, prompts: Prompts = None,
    held_out: HeldOut = None, reward: Reward = None, with_: With = None,
    dw: Annotated[str | None, typer.Option(metavar="FILE", help="Score by DW-GRPO, as configs/dw.yaml.")] = None,
    n_iterations: Annotated[int | None, typer.Option(help="Rounds of generate, score, fine-tune (default: 3).")] = None,
    n_questions: Annotated[int | None, typer.Option(help="Questions per round (default: 100).")] = None,
    n_candidates: Annotated[int | None, typer.Option(help="Answers to each question (default: 4).")] = None,
    top_k: Annotated[int | None, typer.Option(help="Context passages of a question in its prompt (default: 3).")] = None,
    threshold: Annotated[float | None, typer.Option(help="Minimum reward of a kept answer (default: the round's mean).")] = None,
    learning_rate: InitialRate = None, rollout_url: RolloutUrl = None, memory_gb: MemoryGb = None, seed: Seed = None,
    config: ConfigFile = None, set_: SetPairs = None, live: Live = False, replace: Replace = False,
    accept_untrusted: AcceptUntrusted = False,
) -> None:  # fmt: skip
    """Iterative Rejection Sampling: generate candidates, keep the best of each question, fine-tune on them, again.

    Example:  medloop train irs --adapter sft --n-iterations 3 --n-candidates 4 --top-k 3
    """
    flags = {
        "name": name, "model": model, "adapter": adapter, "prompts": prompts, "held_out": held_out, "reward": reward, "dw": dw,
        "n_iterations": n_iterations, "n_questions": n_questions, "n_candidates": n_candidates, "top_k": top_k,
        "threshold": threshold, "learning_rate": learning_rate, "seed": seed, "rollout_url": rollout_url,
        "memory_gb": memory_gb, "accept_untrusted": accept_untrusted or None,
    }  # fmt: skip
    _train("IRS", flags, with_, config, set_, live=live, replace=replace, number=round_)


def _train(
    stage: str, flags: dict[str, Any], with_: list[str] | None, file: Path | None, pairs: list[str] | None, *, live: bool,
    replace: bool, number: int | None,
) -> None:  # fmt: skip
    flags["given"] = split_pairs("--with", with_ or (), bare=True) or None
    if number is not None:
        flags |= _flags_of_round(number, flags)
    trained = train(
        stage, flags, file, pairs, replace=replace, announce=_announce, outcome=result_sentence, live=live, check=_check_ended
    )
    if trained is not None:
        _report(trained)
        _say_next(trained, number)


def _flags_of_round(number: int, flags: dict[str, Any]) -> dict[str, str]:
    """Name and start of a round, said before it begins."""
    if flags["name"] is not None:
        raise ConfigError("Both --round and --name were given", "A round is named by its number; leave --name out")
    settings = ui.settings()
    with open_store(settings) as store:
        start = start_of_round(settings, store, number, flags["adapter"])
    last = "SFT" if start.number == SFT_ROUND else f"round {start.number}, the last accepted one"
    ui.say(f"Round {number} starts from {last}: {start.adapter}.")
    return {"name": round_name(number), "adapter": start.adapter}


def _say_next(trained: Trained, number: int | None) -> None:
    """Compare the result with where it came from; a round then goes through the gate."""
    card = trained.result.card
    base, result = shlex.quote(card.base), shlex.quote(f"{card.base}+{ui.shown(trained.result.run.target)}")
    if number is None:
        ui.next_step(f"eval --model {base} --model {result} --split gold --split red")
        return
    start = shlex.quote(f"{card.base}+{card.config['adapter']}")
    ui.next_step(f"eval --model {base} --model {start} --model {result} --split gold --split red --output {report_path(number)}")
    with open_store(ui.settings()) as store:
        is_first = champion_artifact(store) is None
    ui.next_step(f"gate --model {result}" + (f" --baseline {start}" if is_first else ""), lead="Then:")
    ui.say(f"When the gate has passed it and clinicians have signed, put it into use with 'medloop rounds accept {number}'.")


def _announce(plan: RLPlan, cost: Cost) -> None:
    config = plan.config
    start = f"adapter {config.adapter}" if config.adapter else "a fresh adapter"
    left_out = f" ({plan.too_long:,} too long)" if plan.too_long else ""
    ui.say(f"{config.method.upper()} on {config.model}, {start}: {len(plan.prompts):,} questions{left_out}.")
    for line in plan.contexts.sentences():
        ui.say(line)
    answers = (getattr(config, "prompts_per_step", 0) or config.n_questions) * config.samples
    ui.say(f"{plan.steps:,} steps of {answers:,} answers; {len(plan.held_out):,} held-out questions.")
    if plan.sizing is not None:
        ui.say(plan.sizing.sentence())
    if plan.held_out and plan.audit.note:
        ui.say(f"Note: {plan.audit.note}")
    objective = objective_of(plan.scorer)
    ui.say(f"The reward has the version {plan.scorer.version}." if objective is None else objective.sentence())
    for line in plan.trust:
        ui.say(line)
    for note in () if objective is None else objective.notes:
        ui.say(f"Note: {note}")


def _report(trained: Trained) -> None:
    card, target = trained.result.card, ui.shown(trained.result.run.target)
    metrics, share = card.metrics, card.trainable_parameters / card.total_parameters
    kl = f", KL {metrics['kl_last']:.2f}" if "kl_last" in metrics else ""
    if (alarm := alarm_sentence(card)) is not None:
        ui.say(alarm)
    if card.degraded:
        ui.say(card.degraded)
    ui.say(held_out_sentence(card))
    ui.say(f"Trained in {trained.seconds:.0f} s: reward {metrics['reward_first']:.3f} -> {metrics['reward_last']:.3f}{kl}.")
    rewarded = card.config.get("objective") or {}
    for sentence in (*([f"Rewarded by version {rewarded['version']}."] if rewarded else []), *rewarded.get("notes", ())):
        ui.say(sentence)
    for warning in card.warnings:
        ui.say(warning)
    drift = f", {metrics['drift_last']:.2g} nats per token from the policy" if card.backend == "fast_bfloat16" else ""
    ui.say(f"Answers were sampled by {BACKENDS[card.backend or 'library']}{drift}.")
    if (used := card.memory) and "peak_gb" in used:
        ui.say(f"Memory: {used['peak_gb']} GB at the peak, {used['estimate_gb']} expected.")
    ui.say(f"{target}: {share:.1%} of the weights trained; report.html, rewards.csv, card.json.")
    _check_ended(trained.result)


def _check_ended(result: TrainingResult) -> None:
    """A run that was stopped, by the audit or beyond abort_kl, is not a success for a script: exit code 10."""
    card, target = result.card, ui.shown(result.run.target)
    if card.stopped:
        job = ui.shown(result.run.folder)
        raise ResultError(card.stopped, f"{target} has the result as far as it went, {job} the last checkpoint")
    if card.alarm_action == "stopped":
        raise ResultError(
            f"The audit stopped the run: {card.alarms[0]}",
            f"{target} is the policy before the alarm; read its report.html, and change the reward or the settings",
        )
