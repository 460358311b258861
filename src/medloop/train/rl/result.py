"""The result of an RL run: adapter, value head and card, and beside them the files that people and spreadsheets read.

`rewards.csv` and `kl_metrics.json` have a line per step, `samples.jsonl` some answers of each step, `report.html`
shows how it went. Held-out rewards before and after are compared question by question, by a paired bootstrap.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import save as to_safetensors

from medloop.bootstrap import interval
from medloop.contracts import Interval, Objective, TrainingCard
from medloop.contracts.model import AlarmAction, HeldOutVerdict
from medloop.store.files import jsonl
from medloop.train.rl import samples
from medloop.train.rl.audit import has_ended, published_step
from medloop.train.rl.degraded import degraded_sentence, judge_metrics
from medloop.train.rl.memory import SLOWER
from medloop.train.rl.report import RunReport
from medloop.train.rl.state import TrainState
from medloop.train.runs.publish import publish, training_card

WEIGHTS = "weights.json"  # the history of dynamic weights
ACTIONS: tuple[AlarmAction, ...] = ("stopped", "undone", "warned")


def publish_result(state: TrainState) -> TrainingCard:
    """Publish the policy as it is now, and delete the checkpoints; a run that was stopped keeps its last one."""
    plan = state.plan
    state.phase("METRICS", 1, 1)
    rows = list(jsonl.read(plan.run.metrics))
    gain = held_out_gain(state)
    card = _card(state, rows, gain)
    table = step_table(rows)
    files = {
        "rewards.csv": _csv(table).encode(),
        "teacher_usage.csv": _usage(state.saved.get("usage", {})).encode(),
        "kl_metrics.json": _kl(table, plan.config).encode(),
        **samples.content(plan.run.folder),
    }
    if history := state.saved.get("dw"):
        files[WEIGHTS] = json.dumps(history, indent=1).encode() + b"\n"
        files["weights.png"] = plan.plot_weights(history)
    checks = samples.read_checks(plan.run.folder)
    checks = {step: answers for step, answers in checks.items() if step <= published_step(state)}
    report = RunReport(card, table, None if last_alarms(state) is None else card.alarms, checks, _notes(state), history)
    files["report.html"] = report.page().encode()
    if state.policy.value_head is not None:
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.policy.value_head.state_dict().items()}
        files["value_head.safetensors"] = to_safetensors(weights)
    publish(
        plan.run.target,
        state.policy.model,
        state.policy.loaded.tokenizer,
        card,
        plan.run.metrics,
        files=files,
        about=_about(state),
    )
    state.sampler.close()
    if card.stopped is None:
        plan.run.end()
    return card


def _notes(state: TrainState) -> list[str]:
    """What was rewarded, what was used instead of something better, and what the audit could not see."""
    named = state.plan.run.identity["config"].get("objective")  # as it began: the scorer's own weights have moved
    objective = None if named is None else Objective.model_validate(named)
    audit_note = [state.plan.audit.note] if state.plan.held_out and state.plan.audit.note else []
    return [
        *(
            []
            if objective is None
            else [
                objective.sentence(),
                *(line for line in state.plan.trust if line not in _accepted(state.plan.trust)),
                *objective.notes,
            ]
        ),
        *state.plan.contexts.sentences(),
        *audit_note,
    ]


def _about(state: TrainState) -> list[str]:
    """The same for README.md."""
    notes = _notes(state)
    return [*(f"- {note}" for note in notes), ""] if notes else []


def held_out_gain(state: TrainState) -> Interval | None:
    """Reward after minus before on the same held-out questions; None without them."""
    checks = state.saved["held_out"]
    if not checks:
        return None
    first, last = checks[min(checks, key=int)], checks[max(checks, key=int)]
    gains = [b - a for a, b in zip(first, last, strict=True) if a is not None and b is not None]
    return interval(gains, seed=state.plan.config.seed, name="held-out gain", missing=len(first) - len(gains))


def last_alarms(state: TrainState) -> list[str] | None:
    """The audit's alarms about the policy as it is now; None when it has not looked."""
    checks: dict[str, list[str]] = state.saved.get("alarms", {})
    if not checks or not state.saved["held_out"]:
        return None
    return checks.get(max(state.saved["held_out"], key=int), [])


def run_alarms(state: TrainState) -> tuple[list[str], AlarmAction | None]:
    """Every alarm that was answered, with its step, the gravest outcome first; then what else is wrong with the policy now."""
    events = sorted(state.saved.get("events", ()), key=lambda event: ACTIONS.index(event["action"]))
    alarms = [f"step {event['step']}: {alarm}" for event in events for alarm in event["alarms"]]
    told = {alarm for event in events for alarm in event["alarms"]}
    alarms += [alarm for alarm in last_alarms(state) or () if alarm not in told]
    return alarms, events[0]["action"] if events else None


def step_table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per step, from the lines of metrics.jsonl."""
    table: dict[int, dict[str, Any]] = {}
    for row in rows:
        step, extra = table.setdefault(row["iter"], {"step": row["iter"]}), row.get("extra") or {}
        if "held_out" in extra:
            step["held_out"] = extra["held_out"]["reward"]
            step.update({name: extra[name] for name in ("kl",) if name in extra})
        elif row["phase"] in ("METRICS", "HELD_OUT"):  # a held-out line without its numbers says what became of the step
            step.update({name: value for name, value in extra.items() if not isinstance(value, dict)})
            step.update({f"part_{name}": value for name, value in extra.get("parts", {}).items()})
            step.update({f"missing_{name}": count for name, count in extra.get("missing_parts", {}).items()})
        elif row["phase"] == "TRAINING":
            step.update({"loss": row.get("loss"), **extra})
    return [table[number] for number in sorted(table)]


def _usage(steps: Mapping[str, Mapping[str, float]]) -> str:
    """What the teacher cost, step by step; only the heading without a teacher."""
    rows = [f"{step},{used['calls']:.0f},{used['tokens']:.0f},{used['usd']:.6f}" for step, used in steps.items()]
    return "\n".join(["step,calls,tokens,usd", *rows]) + "\n"


def _csv(table: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in table for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _kl(table: list[dict[str, Any]], config: Any) -> str:
    names = ("step", "kl", "beta", "approx_kl", "ratio", "first_ratio", "clip_fraction", "entropy", "drift", "early_stop")
    steps = [{name: row[name] for name in names if name in row} for row in table if "kl" in row]
    target = getattr(config, "target_kl", None)
    last = steps[-1]["kl"] if steps else None
    return json.dumps({"target_kl": target, "last_kl": last, "unit": "nats per answer", "steps": steps}, indent=2) + "\n"


def _card(state: TrainState, rows: list[dict[str, Any]], gain: Interval | None) -> TrainingCard:
    plan, config = state.plan, state.plan.config
    published = published_step(state)
    table = [row for row in step_table(rows) if row.get("reward") is not None and row["step"] <= max(published, 1)]
    alarms, action = run_alarms(state)
    audited = {name: value for row in rows if row["iter"] <= published for name, value in _audit_of(row).items()}
    metrics: dict[str, float | None] = {
        "steps": config.steps,
        "questions": len(plan.prompts),
        "reward_first": table[0]["reward"] if table else None,
        "reward_last": table[-1]["reward"] if table else None,
        "kl_last": table[-1].get("kl") if table else None,
        "length_first": table[0]["length"] if table else None,
        "drift_last": table[-1].get("drift") if table else None,
        "length_last": table[-1]["length"] if table else None,
        "skipped_steps": state.saved["skipped_steps"],
        "alarms": None if last_alarms(state) is None and not alarms else len(alarms),
        "published_step": published if has_ended(state) else None,
        **{f"audit_{name}": value for name, value in audited.items()},
        **judge_metrics(state.saved),
        **_gain_numbers(gain),
    }
    known = {name: float(value) for name, value in metrics.items() if value is not None}
    head = state.policy.value_head
    beside = 0 if head is None else sum(p.numel() for p in head.parameters())
    parent = state.policy.loaded.adapter_sha256
    return training_card(
        plan.run, plan.config.method, state.policy.model, metrics=known, started=state.started, parent=parent, beside=beside,
        backend=state.sampler.backend, verdict=_verdict(gain), alarms=alarms, alarm_action=action,
        stopped=state.saved.get("stopped"),
        warnings=[*_accepted(plan.trust), *_warnings(table), *_chosen(state), *_resumed(state)],
        degraded=degraded_sentence(state.saved), memory=memory_used(state), update_backend=state.policy.update_backend,
    )  # fmt: skip


def _audit_of(row: Mapping[str, Any]) -> Mapping[str, float]:
    """The measures of the audit in a line of metrics.jsonl."""
    return (row.get("extra") or {}).get("audit") or {}


def _accepted(trust: Sequence[str]) -> list[str]:
    """An untrusted reward that somebody accepted is among the first things to know about the result."""
    return [line for line in trust if line.startswith("UNTRUSTED")]


def _warnings(table: list[dict[str, Any]]) -> list[str]:
    """A reward that told no answer from another taught nothing, however well the run ended."""
    compared = [row for row in table if row.get("groups")]
    if not compared or any(row["flat_groups"] < row["groups"] for row in compared):
        return []
    steps = f"all {len(compared)} steps" if len(compared) > 1 else "the only step"
    return [
        f"WARNING: in {steps}, all answers to a question had the same reward, so that the run could not tell good answers from "
        "bad ones. Check the parts of the reward, or sample more answers to each question."
    ]


def _resumed(state: TrainState) -> list[str]:
    """A run that went on at a rate or by a forward pass that it may not have begun with."""
    return [note for name in ("unknown_rate", "other_forward") if (note := state.saved.get(name))]


def _chosen(state: TrainState) -> list[str]:
    """What the memory has decided and the user has not: slower updates, or less precise numbers."""
    asked, used = state.plan.run.identity["config"], state.pieces
    sentences = {
        "gradient_checkpointing": f"Memory was short, so activations were computed again: {SLOWER}.",
        "load_in_4bit": "Memory was short, so the base was held in 4 bits, which changes what is learnt.",
        "optimizer": f"Memory was short, so the optimizer was {used['optimizer']}, which changes what is learnt.",
    }
    return [sentence for name, sentence in sentences.items() if used[name] != asked.get(name, used[name])]


def memory_used(state: TrainState) -> dict[str, Any] | None:
    """What was given and expected, what the GPU reached, and the pieces as they were at the end; `asked`: where the settings
    said otherwise. None where nothing was sized."""
    sizing, device = state.plan.sizing, state.policy.device
    if sizing is None:
        return None
    reached: dict[str, Any] = {}
    if device.type == "cuda":
        reached = {
            "peak_gb": round(torch.cuda.max_memory_reserved(device) / 1e9, 2),
            "peak_allocated_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 2),
        }
    given = {} if sizing.budget is None else {"given_gb": round(sizing.budget / 1e9, 2)}
    config = state.plan.run.identity["config"]
    asked = {name: config[name] for name, value in state.pieces.items() if name in config and config[name] != value}
    return {**given, "estimate_gb": round(sizing.estimate / 1e9, 2), **reached, **state.pieces, "asked": asked}


def _verdict(gain: Interval | None) -> HeldOutVerdict | None:
    if gain is None or gain.low is None or gain.high is None:
        return None
    return "gained" if gain.low > 0 else "fell" if gain.high < 0 else "no_gain_shown"


def _gain_numbers(gain: Interval | None) -> Mapping[str, float | None]:
    if gain is None or gain.mean is None:
        return {}
    return {"held_out_gain": gain.mean, "held_out_gain_low": gain.low, "held_out_gain_high": gain.high, "held_out": gain.n}
