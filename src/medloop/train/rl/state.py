"""What PPO, GRPO and IRS share besides the mathematics: settings, the workbench of a run, one optimizer step, held-out checks.

No base trainer: `ppo.py`, `grpo.py` and `irs.py` are read from top to bottom and call these functions. Everything random is a
function of seed, step and question (models/rollout/sampler.py names its streams), so a run resumed from a checkpoint does what
the uninterrupted one would have done, to the byte on a CPU.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import MetricLine, Scorer, utc_now
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import ConfigError, InputError, ResultError
from medloop.models import runtime
from medloop.models.load import load_tokenizer, resolve
from medloop.models.rollout.sampler import Rollouts, stop_ids
from medloop.models.rollout.served import ServedSampler
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, verify_if_sealed
from medloop.train.configs.rl_config import RLConfig as RLConfig
from medloop.train.configs.rl_config import StepConfig as StepConfig
from medloop.train.rl import samples
from medloop.train.rl.maths import is_finite, rollout_drift
from medloop.train.rl.policy import Batch, Policy, Scores, collate, open_policy
from medloop.train.rl.rollout import Experience, Question, gather, read_questions
from medloop.train.runs.checkpoint import Checkpoint, save_checkpoint
from medloop.train.runs.progress import OnProgress, Progress, ignore_progress
from medloop.train.runs.run import SMALL_MODEL, TrainingRun

ROWS_AT_ONCE = {"cpu": 64, "cuda": 16}  # in an update, unless micro_batch_size says otherwise
MAX_DRIFT = 0.25  # nats per token between a server and this policy; bfloat16 against float32 stays below 0.05
MAX_BROKEN = 3  # steps that may end in a number that is not finite


# Answers to the held-out questions before training and now -> what looks like a hacked reward, in plain words.
Audit = Callable[[samples.Answers, samples.Answers], list[str]]


def no_audit(before: samples.Answers, now: samples.Answers) -> list[str]:
    """Nobody looks."""
    return []


@dataclass(frozen=True)
class RLPlan:
    """Everything that is known before the first step."""

    config: Any
    run: TrainingRun
    questions: list[Question]
    held_out: list[Question]
    too_long: int
    scorer: Scorer
    continues_at: int
    afresh: bool
    audit: Audit = no_audit

    @property
    def steps(self) -> int:
        return int(self.config.steps)


def find_run(config: RLConfig, settings: Settings, *, scorer: Scorer, folder: Path | None = None) -> TrainingRun:
    """Where this run lives and what it is made of: model, adapter, questions and reward, by hash or version.

    `folder` is that of a submitted job; without it the run has one by its method and name.
    """
    found = resolve(config.ref, settings)
    inputs = {role: file_sha256(path) for role, path in files_of(config, settings).items()}
    if found.adapter_sha256 is not None:
        inputs["adapter"] = found.adapter_sha256
    # Which server sampled does not decide what is learnt, that one did does: it may move, and its address is nobody's business.
    full = {**config.model_dump(exclude={"rollout_url"}), "method": config.method, "reward_version": scorer.version}
    full["rollouts"] = "vllm" if config.rollout_url else "torch"
    identity = {"config": full, "base_sha256": found.sha256, "inputs": inputs}
    lives = folder or settings.workspace.jobs / f"train_{config.method}-{config.name}"
    return TrainingRun(lives, settings.workspace.models / "rl" / config.name, identity)


def files_of(config: RLConfig, settings: Settings) -> dict[str, Path]:
    """The files of questions; a name is looked up from here, then from the workspace."""
    prompts = settings.find(config.prompts) if config.prompts else settings.workspace.rl / "training_prompts.jsonl"
    if not prompts.is_file():
        raise InputError(
            f"There is no file of questions {prompts}", "Make it with: medloop data prompts, or name one with --prompts"
        )
    found = {"prompts": prompts}
    if config.held_out_n:
        held_out = settings.find(config.held_out) if config.held_out else settings.workspace.processed / SPLIT_FILES["dev"]
        if not held_out.is_file():
            raise InputError(
                f"There is no file of held-out questions {held_out}", "Name one with --held-out, or set held_out_n=0"
            )
        if config.held_out is None:
            verify_if_sealed(settings.workspace.processed)
        found["held_out"] = held_out
    return found


def plan(
    config: RLConfig,
    settings: Settings,
    run: TrainingRun,
    *,
    scorer: Scorer,
    replace: bool = False,
    audit: Audit = no_audit,
) -> RLPlan:
    """Read the questions and see what is left of an earlier start; nothing is written, no weights are loaded."""
    runtime.keep_quiet()
    if not replace:
        run.check_unfinished()
    tokenizer = load_tokenizer(resolve(config.ref, settings).folder)
    files = files_of(config, settings)
    asked = read_questions(files["prompts"], tokenizer, max_tokens=config.max_prompt)
    held = (
        read_questions(files["held_out"], tokenizer, max_tokens=config.max_prompt, limit=config.held_out_n)
        if "held_out" in files
        else None
    )
    seen = {question.ids for question in asked.questions}
    held_out = [question for question in held.questions if question.ids not in seen] if held else []
    found = None if replace else run.resumable()
    at = 0 if found is None else found.step
    return RLPlan(config, run, asked.questions, held_out, asked.too_long, scorer, at, replace, audit)


@dataclass
class Bench:
    """The workbench of a run: the policy with its tools, and what a checkpoint has to remember."""

    plan: RLPlan
    policy: Policy
    sampler: Rollouts
    optimizer: torch.optim.AdamW
    rate: float
    micro: int
    began: datetime
    on_progress: OnProgress
    state: dict[str, Any] = field(default_factory=lambda: {"broken": 0, "held_out": {}})
    step: int = 0
    numbers: dict[str, float] = field(default_factory=dict)

    def remember(self) -> dict[str, Any]:
        """Weights, optimizer and state as they are now, to go back to."""
        weights = {name: p.detach().clone() for name, p in self.policy.trained().items()}
        return {"weights": weights, "optimizer": copy.deepcopy(self.optimizer.state_dict()), "state": copy.deepcopy(self.state)}

    def go_back(self, memory: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, p in self.policy.trained().items():
                p.copy_(memory["weights"][name])
        self.optimizer.load_state_dict(memory["optimizer"])
        self.state = memory["state"]
        self.sampler.refresh()

    def phase(self, name: str, done: int, total: int) -> None:
        self.on_progress(Progress(self.step, self.plan.steps, name, done, total, max(self.step - 1, 0), self.numbers))


def set_up(plan: RLPlan, settings: Settings, *, with_values: bool = False, on_progress: OnProgress = ignore_progress) -> Bench:
    """Load the policy and put it where the newest checkpoint left it."""
    config = plan.config
    began, found = plan.run.begin(afresh=plan.afresh)
    samples.cut(plan.run.folder, -1 if found is None else found.step)
    torch.manual_seed(config.seed)  # a fresh adapter's first weights
    policy = open_policy(
        config.ref, settings, lora_r=config.lora_r, lora_alpha=config.lora_alpha, with_values=with_values,
        load_in_4bit=config.load_in_4bit, gradient_checkpointing=config.gradient_checkpointing,
    )  # fmt: skip
    small = runtime.count_parameters(policy.model)[1] < SMALL_MODEL
    rate = config.learning_rate or (config.small_rate if small else config.large_rate)
    # eps 1e-5 as in the PPO that others reproduced; weight decay would pull the adapter to the base, not to the reference.
    optimizer = torch.optim.AdamW(_groups(policy, config), lr=rate, eps=1e-5, weight_decay=0.0)
    micro = config.micro_batch_size or ROWS_AT_ONCE[policy.device.type]
    bench = Bench(plan, policy, _sampler(policy, plan, settings), optimizer, rate, micro, began, on_progress)
    if found is not None:
        restore(bench, found)
    if config.rollout_url:
        _check_server(bench)
    return bench


def _sampler(policy: Policy, plan: RLPlan, settings: Settings) -> Rollouts:
    config = plan.config
    if not config.rollout_url:
        return policy.sampler()
    return ServedSampler(
        config.rollout_url, policy.model, base=config.model, stop_ids=stop_ids(policy.model, policy.loaded.tokenizer),
        folder=plan.run.folder / "rollout", key=settings.rollout.key.get_secret_value(),
    )  # fmt: skip


def _check_server(bench: Bench) -> None:
    """A server with other weights, another template of positions or raw log-probabilities is found out before it teaches."""
    config, question = bench.plan.config, bench.plan.questions[0]
    rows = bench.sampler(
        [question.ids] * 4, [f"check:{n}" for n in range(4)], max_new_tokens=min(32, config.max_new_tokens),
        temperature=config.temperature,
    )  # fmt: skip
    found = Experience([question] * 4, rows, [""] * 4, [])
    drift = mean_drift(found, score_all(bench, found).logprobs)
    if drift > MAX_DRIFT:
        raise ConfigError(
            f"The rollout server does not sample this policy: log-probabilities differ by {drift:.2f} per token",
            f"Serve the weights of {config.model} with --logprobs-mode processed_logprobs",
        )


def mean_drift(found: Experience, own: Tensor) -> float:
    """How far the sampler's log-probabilities are from the trainer's own, per token."""
    mask = answer_mask(found, own.device)
    return float(rollout_drift(own, found.sampled(own.device), mask) / mask.sum())


def _groups(policy: Policy, config: Any) -> list[dict[str, Any]]:
    """What learns, with `times` the rate: a value head sums hundreds of units, so that Adam's equal steps move it far."""
    named = policy.trained()
    head = [p for name, p in named.items() if name.startswith("value_head")]
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in named.items() if not name.startswith("value_head")], "times": 1.0}
    ]
    return [*groups, {"params": head, "times": config.value_rate}] if head else groups


def restore(bench: Bench, found: Checkpoint) -> None:
    with torch.no_grad():
        for name, p in bench.policy.trained().items():
            p.copy_(found.weights[name])
    bench.optimizer.load_state_dict(found.optimizer)  # type: ignore[arg-type]
    bench.state, bench.step = found.extra["state"], found.step
    bench.sampler.refresh()


def save(bench: Bench) -> None:
    weights = {name: p.detach() for name, p in bench.policy.trained().items()}
    save_checkpoint(bench.plan.run.checkpoints, bench.step, weights, bench.optimizer, extra={"state": bench.state})


def ask(bench: Bench, questions: Sequence[Question], samples: int, stream: str) -> Experience:
    config, before = bench.plan.config, _spent(bench.plan.scorer)
    found = gather(
        bench.policy, bench.sampler, questions, bench.plan.scorer, samples=samples, max_new_tokens=config.max_new_tokens,
        temperature=config.temperature, stream=stream, batch_size=config.rollout_batch_size, max_missing=config.max_missing,
        phase=bench.phase,
    )  # fmt: skip
    for name, value in _spent(bench.plan.scorer).items():
        usage = bench.state.setdefault("usage", {}).setdefault(str(bench.step), {})
        usage[name] = usage.get(name, 0) + value - before[name]
    return found


def _spent(scorer: Scorer) -> dict[str, float]:
    """What the teacher among a scorer's parts has cost so far; nothing without one."""
    teacher = getattr(scorer, "given", {}).get("teacher")
    return {} if teacher is None else {"calls": teacher.calls, "tokens": teacher.tokens, "usd": teacher.spent}


def questions_of(bench: Bench, step: int, count: int) -> list[Question]:
    """The `count` questions of one step: all of them in a new order for each pass, so many at a time."""
    config, every = bench.plan.config, bench.plan.questions
    wanted = range((step - 1) * count, step * count)
    orders: dict[int, list[int]] = {}
    for at in wanted:
        turn = at // len(every)
        if turn not in orders:
            orders[turn] = random.Random(f"{config.seed}:{turn}").sample(range(len(every)), len(every))
    # A small file may come round within one step: a question stands in it once.
    return list({(question := every[orders[at // len(every)][at % len(every)]]).id: question for at in wanted}.values())


def optimise(bench: Bench, rows: Sequence[int], found: Experience, loss_of: Callable[[list[int], Batch], Tensor]) -> float:
    """One optimizer step over some answers. `loss_of` gives a micro-batch's share of the loss, so shares add up.

    Out of memory halves the micro-batches and starts the step again: the same step, in smaller pieces. A loss or gradient that is
    not finite raises NotFinite before any weight has moved.
    """
    by_length = sorted(rows, key=lambda at: (len(found.rows[at].prompt) + len(found.rows[at].tokens), at))
    while True:
        bench.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=bench.policy.device)
        try:
            for part, batch in micro_batches(bench, by_length, found):
                loss = loss_of(part, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
            break
        except torch.OutOfMemoryError:
            smaller(bench)
    trained = list(bench.policy.trained().values())
    if not is_finite(total, trained):
        bench.optimizer.zero_grad(set_to_none=True)
        raise NotFinite
    torch.nn.utils.clip_grad_norm_(trained, bench.plan.config.max_grad_norm)
    bench.optimizer.step()
    return float(total)


def micro_batches(bench: Bench, rows: Sequence[int], found: Experience) -> Iterator[tuple[list[int], Batch]]:
    for start in range(0, len(rows), bench.micro):
        part = list(rows[start : start + bench.micro])
        yield part, collate([found.rows[at] for at in part], bench.policy.pad_id, bench.policy.device)


@torch.no_grad()
def score_all(bench: Bench, found: Experience, *, values: bool = False) -> Scores:
    """Every answer under the active adapter, without gradients: (N, C), in the order of the answers."""
    columns = max(len(row.tokens) for row in found.rows)
    order = sorted(range(len(found.rows)), key=lambda at: len(found.rows[at].prompt) + len(found.rows[at].tokens))
    while True:
        logprobs = torch.zeros(len(order), columns, device=bench.policy.device)
        worth = torch.zeros_like(logprobs) if values else None
        try:
            for part, batch in micro_batches(bench, order, found):
                scored = bench.policy.score(batch, temperature=bench.plan.config.temperature, values=values)
                logprobs[part, : batch.mask.shape[1]] = scored.logprobs
                if worth is not None and scored.values is not None:
                    worth[part, : batch.mask.shape[1]] = scored.values
            break
        except torch.OutOfMemoryError:
            smaller(bench)
    if not bool(torch.isfinite(logprobs).all()):
        raise NotFinite
    return Scores(logprobs, None, worth)


def answer_mask(found: Experience, device: torch.device) -> Tensor:
    """(N, C): the tokens the policy wrote, its end token included."""
    lengths = torch.tensor([len(row.tokens) for row in found.rows], device=device)
    return torch.arange(int(lengths.max()), device=device) < lengths[:, None]


def smaller(bench: Bench) -> None:
    torch.cuda.empty_cache()
    if bench.micro == 1:
        raise ResultError(
            "There is not enough memory for a single answer", "Lower max_new_tokens, or use load_in_4bit or a smaller model"
        )
    bench.micro //= 2


class NotFinite(Exception):
    """A loss, a gradient or a log-probability was NaN or infinite; the step must not count."""


def guarded(bench: Bench, step: Callable[[], None]) -> bool:
    """Do a step; one that breaks is undone, counted, and after three of them the run ends. False when it broke."""
    memory = bench.remember()
    try:
        step()
        return True
    except NotFinite:
        bench.go_back(memory)
        count_broken(bench)
    return False


def count_broken(bench: Bench) -> None:
    """One more step that did not count; the third ends the run."""
    bench.state["broken"] += 1
    log(bench, "TRAINING", extra={"broken": bench.state["broken"]})
    if bench.state["broken"] >= MAX_BROKEN:
        raise ResultError(
            f"{MAX_BROKEN} steps ended in numbers that are not finite, the last one at step {bench.step}",
            "Lower the learning rate or the reward's bounds; the last good checkpoint is kept",
        )


def set_rate(bench: Bench) -> float:
    """The learning rate of this step: along a line from the first to 0."""
    rate: float = bench.rate * (1 - (bench.step - 1) / bench.plan.config.steps)
    for group in bench.optimizer.param_groups:
        group["lr"] = rate * group["times"]
    return rate


def check_held_out(bench: Bench, *, first: bool = False, with_kl: bool = False) -> None:
    """The reward on questions that are never trained on, with the same random stream each time, so that checks can be paired.

    The `first` one is of the policy as it came; a run that goes on has had it. Later ones are audited against it. `with_kl`
    also measures how far the policy is from its reference, in nats per answer, for a method that does not see it in its steps.
    """
    if not bench.plan.held_out or (first and bench.state["held_out"]):
        return
    found = ask(bench, bench.plan.held_out, 1, f"held-out:{bench.plan.config.seed}")
    values, present = found.values()
    bench.state["held_out"][str(bench.step)] = [
        float(v) if p else None for v, p in zip(values.tolist(), present.tolist(), strict=True)
    ]
    said: dict[str, Any] = {"held_out": found.summary()}
    if with_kl:
        own = score_all(bench, found).logprobs
        with bench.policy.reference():
            away = own - score_all(bench, found).logprobs
        said["kl"] = round(float(torch.where(answer_mask(found, own.device), away, 0.0).sum()) / len(found.rows), 8)
    samples.keep_check(bench.plan.run.folder, bench.step, found)
    checked = samples.checks(bench.plan.run.folder)
    if bench.step in checked and min(checked) < bench.step:
        said["alarms"] = bench.plan.audit(checked[min(checked)], checked[bench.step])
        bench.state.setdefault("alarms", {})[str(bench.step)] = said["alarms"]
    log(bench, "METRICS", avg_reward=found.summary()["reward"], extra=said)


def after_step(bench: Bench, should_stop: Callable[[], bool]) -> None:
    """Held-out check and checkpoint where they are due; asked to stop, a checkpoint and KeyboardInterrupt."""
    config = bench.plan.config
    last = bench.step == config.steps
    if last or bench.step % config.eval_every == 0:
        check_held_out(bench)
    stop = should_stop() and not last
    if last or stop or bench.step % config.save_every == 0:
        save(bench)
    if stop:
        raise KeyboardInterrupt


def shuffled(rows: Sequence[int], parts: int, name: str) -> list[list[int]]:
    """The rows in an order given by `name`, in `parts` pieces of like size; no empty piece."""
    order = random.Random(name).sample(list(rows), len(rows))
    return [piece for n in range(parts) if (piece := order[n * len(order) // parts : (n + 1) * len(order) // parts])]


def part_weights(scorer: Scorer) -> dict[str, float]:
    """The weights of a mix, by part; only a mix has parts that can be normalised one by one."""
    parts = getattr(getattr(scorer, "config", None), "parts", None)
    if parts is None:
        raise ConfigError("rewards=each needs a mix, whose parts have weights", "Use the default reward, or rewards=sum")
    return {name: float(part.weight) for name, part in parts.items()}


def report_step(bench: Bench, found: Experience, *, rate: float, loss: float, **numbers: Any) -> None:
    """Two lines of metrics: what was earned, and how the update went. Samples for people beside them."""
    said = found.summary()
    log(bench, "METRICS", avg_reward=said["reward"], weights=shares(found), extra=said)
    kept = {name: round(float(value), 8) for name, value in numbers.items() if value is not None}
    log(bench, "TRAINING", epoch=1.0, loss=round(loss, 8), extra={**kept, "rate": rate})
    samples.keep_some(bench.plan.run.folder, bench.step, found)
    bench.numbers = {
        "step": bench.step,
        "reward": said["reward"] or 0.0,
        "length": said["length"],
        "kl": kept.get("kl", 0.0),
        "entropy": kept.get("entropy", 0.0),
    }


def shares(found: Experience) -> dict[str, float]:
    """The mean weight of each part in the rewards of this step: parts that were missing weigh less."""
    names = sorted({name for reward in found.rewards for name in reward.weights})
    return {name: round(sum(r.weights.get(name, 0.0) for r in found.rewards) / len(found.rewards), 6) for name in names}


def log(bench: Bench, phase: str, **values: Any) -> None:
    """A line of metrics.jsonl. It holds nothing that differs between two equal runs but `ts`."""
    jsonl.append(bench.plan.run.metrics, MetricLine(ts=utc_now(), iter=bench.step, phase=phase, **values))
