"""Iterative Rejection Sampling (document 003): generate candidates, keep the best, fine-tune on them, again.

    config = IRSRunConfig(adapter="sft", n_iterations=3)
    plan = state.plan(config, settings, state.find_run(config, settings, scorer=scorer), scorer=scorer)
    card = irs.run(plan, settings)

Each iteration: N candidates per question (GENERATING), scored on the CPU (SCORING), the good ones chosen and the scorer's
weights moved (METRICS), fine-tuning on them with old records mixed in (TRAINING). Only the policy is ever on the GPU. An
iteration goes on from the last one's adapter; when the reward on held-out questions falls, it is undone and the run ends.

What makes it work (https://arxiv.org/abs/2504.11343): a candidate must pass a threshold *and* be among the top k of its
question; questions whose candidates all pass teach little and are capped; copies are dropped; every kept answer says where it
came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import TrainingCard, canonical_json, sha256_id
from medloop.contracts.dataset import SPLIT_FILES
from medloop.errors import ResultError
from medloop.models.adapter import save_adapter
from medloop.models.inputs import read_items
from medloop.models.rollout.sampler import Sampled
from medloop.models.template import encode_example
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact
from medloop.train.configs.rl_config import IRSRunConfig as IRSRunConfig
from medloop.train.rl import result, samples, state
from medloop.train.rl.maths import Window, aggregate
from medloop.train.rl.policy import Batch
from medloop.train.rl.rollout import Experience
from medloop.train.rl.state import Bench, RLPlan
from medloop.train.runs.checkpoint import save_checkpoint
from medloop.train.runs.progress import OnProgress, ignore_progress

FILES = ("metrics.jsonl", samples.SAMPLES, samples.HELD_OUT)


@dataclass(frozen=True)
class Chosen:
    """The answers worth learning from, by place, and what became of the others."""

    kept: list[int]
    copies: int
    below: int
    capped: int
    threshold: float


def run(
    plan: RLPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Iterate to the end and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.only_process():
        bench = state.set_up(plan, settings, on_progress=on_progress)
        _go_on(bench)
        old = _old_records(bench, settings)
        state.check_held_out(bench, first=True)
        for iteration in range(bench.state.get("done", 0) + 1, plan.config.n_iterations + 1):
            bench.step = iteration
            if not _iteration(bench, old, should_stop):
                break
        _keep_adapter(bench, "final")
        card = result.finish(bench)
    return card


def _iteration(bench: Bench, old: Sequence[Sampled], should_stop: Callable[[], bool]) -> bool:
    """One round; False when it made the policy worse, which is then as it was before."""
    if "lesson" not in bench.state:
        bench.state["before"] = {name: p.detach().clone() for name, p in bench.policy.trained().items()}
        found = _candidates(bench)
        chosen = select(found, bench.plan.config)
        _report(bench, found, chosen)
        bench.state["lesson"] = [(found.rows[at].prompt, found.rows[at].tokens) for at in chosen.kept]
        bench.state["at"] = 0
        _save(bench)
    rows = [Sampled(tuple(p), tuple(t), (0.0,) * len(t), True, "") for p, t in bench.state["lesson"]]
    if not rows:
        raise ResultError("No candidate was worth learning from", "Lower the threshold, or ask for more candidates")
    _fine_tune(bench, [*rows, *_replayed(bench, rows, old)], should_stop)
    bench.sampler.refresh()
    state.check_held_out(bench, with_kl=True)
    better = _not_worse(bench)
    if not better:
        with torch.no_grad():
            for name, p in bench.policy.trained().items():
                p.copy_(bench.state["before"][name])
        bench.sampler.refresh()
        del bench.state["held_out"][str(bench.step)]
        state.log(bench, "METRICS", extra={"undone": bench.step})
    for name in ("lesson", "at", "before"):
        bench.state.pop(name, None)
    bench.state["done"] = bench.step if better else bench.plan.config.n_iterations
    if better:
        _keep_adapter(bench, f"iter_{bench.step}")  # before the checkpoint that calls the round done, else a kill loses it
    _save(bench)
    return better


def _candidates(bench: Bench) -> Experience:
    config = bench.plan.config
    questions = state.questions_of(bench, bench.step, config.n_questions)
    state.log(bench, "GENERATING", progress=0.0)
    found = state.ask(bench, questions, config.n_candidates, f"{config.seed}:{bench.step}")
    state.log(bench, "GENERATING", progress=100.0)
    state.log(bench, "SCORING", progress=100.0)
    return found


def select(found: Experience, config: IRSRunConfig) -> Chosen:
    """Present, distinct, at or above the threshold, among the top k of the question; easy questions capped."""
    values, present = (tensor.tolist() for tensor in found.values())
    scored = [value for value, there in zip(values, present, strict=True) if there]
    least = config.threshold if config.threshold is not None else sum(scored) / max(len(scored), 1)
    groups: dict[str, list[int]] = {}
    for at, group in enumerate(found.groups):
        groups.setdefault(group, []).append(at)
    hard: list[int] = []
    easy: list[int] = []
    copies = below = 0
    for rows in groups.values():
        there = [at for at in rows if present[at]]
        ranked = sorted(there, key=lambda at: (-values[at], len(found.rows[at].tokens), at))
        distinct = list({found.texts[at].strip(): at for at in reversed(ranked)}.values())[::-1]
        passed = [at for at in distinct if values[at] >= least]
        copies += len(ranked) - len(distinct)
        below += len(distinct) - len(passed)
        all_passed = bool(there) and all(values[at] >= least for at in there) and len(there) > 1
        (easy if all_passed else hard).extend(passed[: config.top_k])
    share = config.all_pass_share
    room = len(easy) if share >= 1 or not hard else min(len(easy), math.floor(len(hard) * share / (1 - share)))
    kept_easy = sorted(easy, key=lambda at: sha256_id(f"{config.seed}:{found.groups[at]}:{at}"))[:room]
    return Chosen(sorted([*hard, *kept_easy]), copies, below, len(easy) - room, round(least, 6))


def _report(bench: Bench, found: Experience, chosen: Chosen) -> None:
    """The line of document 003, with the weights in force; then the scorer may move them. Kept answers with their provenance."""
    said = found.summary()
    scorer: Any = bench.plan.scorer
    weights = dict(scorer.weights) if hasattr(scorer, "end_round") else state.shares(found)
    lengths = [len(row.tokens) for row in found.rows]
    kept = [lengths[at] for at in chosen.kept]
    more = {
        "kept": len(chosen.kept), "copies": chosen.copies, "below": chosen.below, "capped": chosen.capped,
        "threshold": chosen.threshold, "length_ratio": round(sum(kept) * len(lengths) / max(len(kept) * sum(lengths), 1), 6),
    }  # fmt: skip
    if hasattr(scorer, "end_round"):
        scorer.end_round(found.rewards)
        bench.state["dw"] = scorer.state().model_dump(mode="json")
    state.log(bench, "METRICS", avg_reward=said["reward"], weights=weights, extra={**said, **more})
    bench.numbers = {
        "step": bench.step,
        "reward": said["reward"] or 0.0,
        "kept": float(len(chosen.kept)),
        "length": said["length"],
    }
    model = sha256_id(canonical_json([bench.plan.run.identity, bench.step]))
    rows = {at: _provenance(found, at) | {"model": model} for at in chosen.kept}
    samples.write(bench.plan.run.folder / samples.SAMPLES, bench.step, found, rows)


def _provenance(found: Experience, at: int) -> dict[str, Any]:
    reward = found.rewards[at]
    parts = {part.name: getattr(part, "value", None) for part in reward.parts}
    return {"parts": parts, "reward_version": reward.version, "stream": found.rows[at].stream}


def _fine_tune(bench: Bench, rows: list[Sampled], should_stop: Callable[[], bool]) -> None:
    """Cross entropy on the kept answers; goes on at the optimizer step where a checkpoint stopped."""
    config = bench.plan.config
    lesson = Experience([], rows, [], [])
    batches = [
        piece for epoch in range(config.epochs)
        for piece in state.shuffled(range(len(rows)), -(-len(rows) // config.batch_size), f"{config.seed}:{bench.step}:{epoch}")
    ]  # fmt: skip
    for at in range(bench.state["at"], len(batches)):
        for group in bench.optimizer.param_groups:
            group["lr"] = bench.rate * (1 - at / len(batches)) * group["times"]
        window = Window.of(state.answer_mask(Experience([], [rows[n] for n in batches[at]], [], []), bench.policy.device), 1)

        def loss_of(part: list[int], batch: Batch, window: Window = window) -> Tensor:
            return aggregate(-bench.policy.score(batch, temperature=1.0).logprobs, batch.mask, window, "dapo")

        bench.state["at"] = at + 1
        try:
            loss = state.optimise(bench, batches[at], lesson, loss_of)
            state.log(bench, "TRAINING", epoch=round((at + 1) / len(batches) * config.epochs, 6), loss=round(loss, 8))
        except state.NotFinite:  # before any weight has moved
            state.count_broken(bench)
        bench.phase("TRAINING", at + 1, len(batches))
        stop = should_stop()
        if stop or (at + 1) % config.save_every == 0:
            _save(bench)
        if stop:
            raise KeyboardInterrupt


def _not_worse(bench: Bench) -> bool:
    checks = bench.state["held_out"]
    means = [_mean(checks[key]) for key in sorted(checks, key=int)]
    return len(means) < 2 or means[-1] >= means[-2] - bench.plan.config.tolerance


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / max(len(known), 1)


def _old_records(bench: Bench, settings: Settings) -> list[Sampled]:
    """Records the policy was taught before; none where there is no file."""
    config = bench.plan.config
    path = settings.find(config.replay_data) if config.replay_data else settings.workspace.processed / SPLIT_FILES["train"]
    if not config.replay or not path.is_file():
        return []
    found = []
    longest = config.max_prompt + config.max_new_tokens
    for item in read_items(path):
        if item.conversation.answer is None:
            continue
        example = encode_example(bench.policy.loaded.tokenizer, item.conversation.messages, max_length=longest)
        if example is not None:
            start = example.completion_mask.index(1)
            tokens = tuple(example.input_ids[start:])
            found.append(Sampled(tuple(example.input_ids[:start]), tokens, (0.0,) * len(tokens), True, ""))
    return found


def _replayed(bench: Bench, rows: Sequence[Sampled], old: Sequence[Sampled]) -> list[Sampled]:
    """So many old records that they are the wanted share, another draw each round."""
    config = bench.plan.config
    wanted = min(len(old), round(len(rows) * config.replay / (1 - config.replay)))
    return (
        [old[n] for n in state.shuffled(range(len(old)), 1, f"replay:{config.seed}:{bench.step}")[0][:wanted]] if wanted else []
    )


def _keep_adapter(bench: Bench, name: str) -> None:
    """`checkpoints/iter_N` and `checkpoints/final`, as document 003 lays them out."""
    with new_artifact(bench.plan.run.checkpoints / name, replace=True) as temp:
        save_adapter(temp, bench.policy.model, bench.plan.config.model)


def _save(bench: Bench) -> None:
    """By count of saves, because a round has many; the lines of metrics are counted, to be cut to them on the way back."""
    bench.state["saves"] = bench.state.get("saves", 0) + 1
    bench.state["iteration"] = bench.step
    folder = bench.plan.run.folder
    bench.state["lines"] = {n: sum(1 for _ in jsonl.read(folder / n)) for n in FILES if (folder / n).is_file()}
    weights = {name: p.detach() for name, p in bench.policy.trained().items()}
    save_checkpoint(bench.plan.run.checkpoints, bench.state["saves"], weights, bench.optimizer, extra={"state": bench.state})


def _go_on(bench: Bench) -> None:
    """After a restart: the scorer's weights as they were, and what was logged after the checkpoint is cut off."""
    if "lines" not in bench.state:
        return
    for name in FILES:
        _cut(bench.plan.run.folder / name, bench.state["lines"].get(name, 0))
    bench.step = bench.state["iteration"]
    scorer: Any = bench.plan.scorer
    if "dw" in bench.state:
        scorer.restore(type(scorer.state()).model_validate(bench.state["dw"]))


def _cut(path: Path, lines: int) -> None:
    if path.is_file():
        jsonl.write(path, list(jsonl.read(path))[:lines])
