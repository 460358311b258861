"""Iterative Rejection Sampling: generate candidates, select the best, fine-tune on them, again.

    config = IRSRunConfig(adapter="sft", n_iterations=3)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    card = irs.run(plan, settings)

Each iteration: N candidates per prompt (GENERATING), scored on the CPU (SCORING), the good ones selected and the scorer's
weights moved (METRICS), fine-tuning on them with old records mixed in (TRAINING). Only the policy is ever on the GPU. An
iteration continues from the last one's adapter; when the reward on held-out prompts falls, it is undone and the run ends.

What makes it work (https://arxiv.org/abs/2504.11343): of each prompt the best candidate is selected, its gold answer, if it
passes a threshold and the safety rules; prompts whose candidates all pass teach little and are capped; every selected answer says
where it came from.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from medloop.contracts import Reward, Score, TrainingCard, canonical_json, sha256_id
from medloop.contracts.dataset import SPLIT_FILES
from medloop.contracts.score import SERIOUS
from medloop.errors import ResultError
from medloop.models.adapter import save_adapter
from medloop.models.context_prompt import fit_with_context
from medloop.models.rollout.rollouts import Rollout
from medloop.models.template import encode_example
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import read_conversations
from medloop.store.files.artifacts import new_artifact
from medloop.store.files.atomic import atomic_write
from medloop.train.configs.rl_config import IRSRunConfig as IRSRunConfig
from medloop.train.rl import samples
from medloop.train.rl.advantages import group_advantages
from medloop.train.rl.audit import has_ended
from medloop.train.rl.experience import Experience
from medloop.train.rl.held_out import check_held_out
from medloop.train.rl.losses import Window, aggregate
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.policy import Batch
from medloop.train.rl.result import WEIGHTS, publish_result
from medloop.train.rl.rollout import check_rollout_server, collect_rollouts, prompts_of_step, weights_of
from medloop.train.rl.state import TrainState, capped_memory, create_train_state
from medloop.train.rl.step import (
    NonFiniteError,
    count_skipped_step,
    optimizer_step,
    set_learning_rate,
    shuffled_minibatches,
)
from medloop.train.runs.progress import OnProgress, ignore_progress

FILES = ("metrics.jsonl", samples.SAMPLES, samples.HELD_OUT)


@dataclass(frozen=True)
class Selection:
    """The rows of the answers to fine-tune on, and why others were dropped."""

    rows: list[int]
    duplicates: int
    below: int
    unsafe: int
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
    with plan.run.lock(), capped_memory(plan.config.memory_gb, settings):
        state = create_train_state(plan, settings, on_progress=on_progress)
        check_rollout_server(state)
        _resume(state)
        old_records = _old_records(state, settings)
        check_held_out(state, first=True)
        for iteration in range(state.saved.get("done", 0) + 1, plan.config.n_iterations + 1):
            state.step = iteration
            if not _iteration(state, old_records, should_stop):
                break
        _publish_adapter(state, "final")
        return publish_result(state)


def _iteration(state: TrainState, old_records: Sequence[Rollout], should_stop: Callable[[], bool]) -> bool:
    """One round; False when it made the policy worse, which is then as it was before, and when an alarm ends the run."""
    if "selected" not in state.saved:
        state.saved["weights_before"] = {name: p.detach().clone() for name, p in state.policy.trained().items()}
        experience = _candidates(state)
        selection = select(experience, state.plan.config)
        _log_selection(state, experience, selection)
        rollouts = (experience.rollouts[row] for row in selection.rows)
        state.saved["selected"] = [(rollout.prompt, rollout.tokens) for rollout in rollouts]
        state.saved["next_batch"] = 0
        _save(state)
    selected = [_example(prompt, tokens) for prompt, tokens in state.saved["selected"]]
    if not selected:
        raise ResultError(
            "No candidate was worth learning from: all failed a safety rule, had no reward or were below the threshold",
            "Ask for more candidates or questions, or lower the threshold",
        )
    _fine_tune(state, [*selected, *_replay(state, len(selected), old_records)], should_stop)
    state.sampler.refresh()
    check_held_out(state, with_kl=True)
    undone = bool(state.plan.held_out) and str(state.step) not in state.saved["held_out"]  # by an alarm
    goes_on = not has_ended(state) and (undone or _not_worse(state))
    if not goes_on and not undone:
        state.set_weights(state.saved["weights_before"])
        del state.saved["held_out"][str(state.step)]
    if undone or not goes_on:
        state.log("HELD_OUT", extra={"undone": state.step})
    for name in ("selected", "next_batch", "weights_before"):
        state.saved.pop(name, None)
    state.saved["done"] = state.step if goes_on else state.plan.config.n_iterations
    if goes_on and not undone:
        _publish_adapter(state, f"iter_{state.step}")  # before the checkpoint that calls the round done, else a kill loses it
    _save(state)
    return goes_on


def _example(prompt: Sequence[int], tokens: Sequence[int]) -> Rollout:
    """An answer to fine-tune on: its log-probabilities do not matter."""
    return Rollout(tuple(prompt), tuple(tokens), (0.0,) * len(tokens), True, "")


def _candidates(state: TrainState) -> Experience:
    config = state.plan.config
    prompts = prompts_of_step(state, config.n_questions)
    state.log("GENERATING", progress=0.0)
    experience = collect_rollouts(state, prompts, config.n_candidates, f"{config.seed}:{state.step}")
    state.log("GENERATING", progress=100.0)
    state.log("SCORING", progress=100.0)
    return experience


def select(experience: Experience, config: IRSRunConfig) -> Selection:
    """The gold answer of each prompt: the best one that is safe and at or above the threshold; easy prompts capped."""
    rewards, present = (tensor.tolist() for tensor in experience.reward_tensor())
    scored = [reward for reward, there in zip(rewards, present, strict=True) if there]
    threshold = config.threshold if config.threshold is not None else sum(scored) / max(len(scored), 1)
    groups: dict[str, list[int]] = {}
    for row, group in enumerate(experience.groups):
        groups.setdefault(group, []).append(row)
    hard: list[int] = []
    easy: list[int] = []
    duplicates = below = unsafe = 0
    for rows in groups.values():
        known = [row for row in rows if present[row]]
        ranked = sorted(known, key=lambda row: (-rewards[row], len(experience.rollouts[row].tokens), row))
        distinct = list({experience.texts[row].strip(): row for row in reversed(ranked)}.values())[::-1]
        safe = [row for row in distinct if not _fails(experience.rewards[row], config.must_pass)]
        passed = [row for row in safe if rewards[row] >= threshold]
        duplicates += len(ranked) - len(distinct)
        unsafe += len(distinct) - len(safe)
        below += len(safe) - len(passed)
        all_passed = len(known) > 1 and len(passed) == len(distinct)
        (easy if all_passed else hard).extend(passed[:1])
    share = config.all_pass_share
    cap = len(easy) if share >= 1 or not hard else min(len(easy), math.floor(len(hard) * share / (1 - share)))
    capped_easy = sorted(easy, key=lambda row: sha256_id(f"{config.seed}:{experience.groups[row]}:{row}"))[:cap]
    return Selection(sorted([*hard, *capped_easy]), duplicates, below, unsafe, len(easy) - cap, round(threshold, 6))


def _fails(reward: Reward, rules: Sequence[str]) -> bool:
    """Whether one of these penalties applies and is serious, however good the rest of the answer is."""
    return any(part.name in rules and isinstance(part, Score) and part.applies and part.value >= SERIOUS for part in reward.parts)


def _log_selection(state: TrainState, experience: Experience, selection: Selection) -> None:
    """A METRICS line with the weights in force; then the scorer may move them. Selected answers with their provenance."""
    summary = experience.summary()
    scorer: Any = state.plan.scorer
    weights = weights_of(scorer, experience)
    lengths = [len(rollout.tokens) for rollout in experience.rollouts]
    selected = [lengths[row] for row in selection.rows]
    rewards, present = experience.reward_tensor()
    groups = group_advantages(rewards, experience.groups, present=present)
    length_ratio = sum(selected) * len(lengths) / max(len(selected) * sum(lengths), 1)
    more = {
        "selected": len(selected), "duplicates": selection.duplicates, "below": selection.below, "unsafe": selection.unsafe,
        "capped": selection.capped,
        "threshold": selection.threshold, "length_ratio": round(length_ratio, 6), "flat_groups": groups.flat_groups,
        "groups": groups.groups,
    }  # fmt: skip
    if hasattr(scorer, "end_round"):
        scorer.end_round(experience.rewards)
        state.saved["dw"] = scorer.state().model_dump(mode="json")
        _write_weights(state)
    state.log(
        "METRICS", avg_reward=summary["reward"], weights=weights, extra={**summary, **more, "backend": state.sampler.backend}
    )
    state.numbers = {
        "step": state.step,
        "reward": summary["reward"] or 0.0,
        "selected": float(len(selected)),
        "length": summary["length"],
    }
    model = sha256_id(canonical_json([state.plan.run.identity, state.step]))
    chosen = set(selection.rows)
    rows = {
        row: {
            "reward_version": experience.rewards[row].version, "stream": experience.rollouts[row].stream, "model": model,
            "selected": row in chosen,
        }
        for row in sorted(chosen | _worst_beside(experience, chosen))
    }  # fmt: skip
    samples.append(state.plan.run.folder / samples.SAMPLES, state.step, experience, rows)


def _worst_beside(experience: Experience, chosen: set[int]) -> set[int]:
    """The candidate with the lowest reward beside each gold answer, so that people see what was left out."""
    rewards, present = experience.reward_tensor()
    prompts = {experience.groups[row] for row in chosen}
    worst: dict[str, int] = {}
    for row, prompt in enumerate(experience.groups):
        if present[row] and prompt in prompts and (prompt not in worst or rewards[row] < rewards[worst[prompt]]):
            worst[prompt] = row
    return set(worst.values())


def _write_weights(state: TrainState) -> None:
    """The history of the dynamic weights beside the metrics, for `medloop reward weights`."""
    atomic_write(state.plan.run.folder / WEIGHTS, json.dumps(state.saved["dw"], indent=1) + "\n")


def _fine_tune(state: TrainState, examples: list[Rollout], should_stop: Callable[[], bool]) -> None:
    """Cross entropy on the selected answers; continues at the optimizer step where a checkpoint stopped."""
    config = state.plan.config
    experience = Experience([], examples, [], [])
    count = -(-len(examples) // config.batch_size)
    batches = [
        batch for epoch in range(config.epochs)
        for batch in shuffled_minibatches(range(len(examples)), count, f"{config.seed}:{state.step}:{epoch}")
    ]  # fmt: skip
    for number in range(state.saved["next_batch"], len(batches)):
        set_learning_rate(state, number / len(batches))
        rows = batches[number]
        mask = Experience([], [examples[row] for row in rows], [], []).completion_mask(state.policy.device)
        window = Window.of(mask, 1)

        def compute_loss(part: list[int], batch: Batch, window: Window = window) -> Tensor:
            return aggregate(-state.policy.forward(batch, temperature=1.0).logprobs, batch.mask, window, "dapo")

        state.saved["next_batch"] = number + 1
        try:
            loss = optimizer_step(state, rows, experience, compute_loss)
            state.log("TRAINING", epoch=round((number + 1) / len(batches) * config.epochs, 6), loss=round(loss, 8))
        except NonFiniteError:  # before any weight has moved
            count_skipped_step(state)
        state.phase("TRAINING", number + 1, len(batches))
        stop = should_stop()
        if stop or (number + 1) % config.save_every == 0:
            _save(state)
        if stop:
            raise KeyboardInterrupt


def _not_worse(state: TrainState) -> bool:
    checks = state.saved["held_out"]
    means = [_mean(checks[step]) for step in sorted(checks, key=int)]
    return len(means) < 2 or means[-1] >= means[-2] - state.plan.config.tolerance


def _mean(rewards: Sequence[float | None]) -> float:
    known = [reward for reward in rewards if reward is not None]
    return sum(known) / max(len(known), 1)


def _old_records(state: TrainState, settings: Settings) -> list[Rollout]:
    """Records that the policy was trained on before; none where there is no file."""
    config = state.plan.config
    path = settings.find(config.replay_data) if config.replay_data else settings.workspace.processed / SPLIT_FILES["train"]
    if not config.replay or not path.is_file():
        return []
    records = []
    tokenizer, max_length = state.policy.loaded.tokenizer, config.max_prompt + config.max_new_tokens
    for item in read_conversations(path):
        if item.conversation.answer is None:
            continue
        messages = item.conversation.messages
        if item.passages and (
            prompt := fit_with_context(tokenizer, item.conversation.prompt, item.passages[: config.top_k], config.max_prompt)
        ):
            messages = (*prompt.messages, messages[-1])
        example = encode_example(tokenizer, messages, max_length=max_length)
        if example is not None:
            start = example.completion_mask.index(1)
            records.append(_example(example.input_ids[:start], example.input_ids[start:]))
    return records


def _replay(state: TrainState, selected: int, old_records: Sequence[Rollout]) -> list[Rollout]:
    """So many old records that they are the configured share of the training examples, another draw each round."""
    config = state.plan.config
    count = min(len(old_records), round(selected * config.replay / (1 - config.replay)))
    if not count:
        return []
    [order] = shuffled_minibatches(range(len(old_records)), 1, f"replay:{config.seed}:{state.step}")
    return [old_records[row] for row in order[:count]]


def _publish_adapter(state: TrainState, name: str) -> None:
    """`checkpoints/iter_N` and `checkpoints/final`, the layout of the IRS request."""
    with new_artifact(state.plan.run.checkpoints / name, replace=True) as temp:
        save_adapter(temp, state.policy.model, state.plan.config.model)


def _save(state: TrainState) -> None:
    """A checkpoint by count of saves, because a round has many; it counts the lines of each file, for `_resume`."""
    state.saved.setdefault("done", 0)
    state.saved["saves"] = state.saved.get("saves", 0) + 1
    state.saved["iteration"] = state.step
    folder = state.plan.run.folder
    state.saved["lines"] = {n: sum(1 for _ in jsonl.read(folder / n)) for n in FILES if (folder / n).is_file()}
    state.save(state.saved["saves"])


def _resume(state: TrainState) -> None:
    """After a restart: restore the scorer's weights, and drop what was logged after the checkpoint."""
    if "lines" not in state.saved:
        return
    for name in FILES:
        _truncate(state.plan.run.folder / name, state.saved["lines"].get(name, 0))
    state.step = state.saved["iteration"]
    scorer: Any = state.plan.scorer
    if "dw" in state.saved:
        scorer.restore(type(scorer.state()).model_validate(state.saved["dw"]))
        _write_weights(state)  # a round that is done again must not be in it yet


def _truncate(path: Path, lines: int) -> None:
    if path.is_file():
        jsonl.write(path, list(jsonl.read(path))[:lines])
