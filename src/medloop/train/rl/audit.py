"""The audit inside an RL run: what an alarm does, and which checkpoint was the last good one.

Every held-out check is compared with the first (`check`). Every batch of training answers is screened (`screen`), which costs no
sampling: one that looks worse than the first batch brings a held-out check forward, and as long as triage looks worse the
updates are smaller, so that a fault cannot spread to most answers between two checks. An alarm ends the run (`on_alarm: stop`,
the last good weights are published), or goes back to these weights and trains on (`undo`, at most MAX_UNDONE times), or is only
told (`warn`).
"""

import math
from typing import Any

from medloop.train.rl.checks import AuditResult
from medloop.train.rl.experience import Experience
from medloop.train.rl.samples import checked_answers
from medloop.train.rl.state import PENDING, TrainState

MAX_UNDONE = 3  # alarms that go back; the next one ends the run
EARLY = 0.5  # share of a bound from which a batch brings the check forward
CLEAR = 2.0  # standard errors that the difference of the batches has to have
AGAIN = 0.25  # share of a bound by which it has to get worse still before it does so once more
TRIAGE = ("overtriage", "undertriage")  # these need not get worse still: as long as they look worse, every step is checked,
EARLY_TRIAGE, CLEAR_TRIAGE = 0.25, 1.0  # and they look worse sooner: a keyword spreads from 10 % to 32 % in a single step
CAUTIOUS = 0.25  # share of the learning rate as long as they look worse
MIN_EARLY = 10  # checks that may be brought forward where fewer are planned


def planned_checks(config: Any) -> int:
    """Held-out checks after the first one."""
    every = config.eval_every if hasattr(config, "prompts_per_step") else 1
    return int(-(-config.steps // every))


def early_checks(config: Any) -> int:
    """Held-out checks that batches may bring forward."""
    planned = planned_checks(config)
    return min(config.steps, max(planned, MIN_EARLY)) if hasattr(config, "prompts_per_step") else planned


def screen_batch(state: TrainState, experience: Experience) -> None:
    """Compare a batch with the first one, which the policy before training wrote; done before the batch is learnt from."""
    means = state.plan.audit.screen(checked_answers(experience))
    if not means:
        return
    saved = state.saved.setdefault("screen", {"first": means, "last": {}, "early": 0, "due": False})
    saved["watched"], saved["now"] = [], means
    for name, bound in state.plan.audit.bounds().items():
        if name not in means or name not in saved["first"]:
            continue
        (first, first_error), (now, error) = saved["first"][name], means[name]
        early, clear = (EARLY_TRIAGE, CLEAR_TRIAGE) if name in TRIAGE else (EARLY, CLEAR)
        rise, margin = now - first, clear * math.hypot(first_error, error)  # the two batches have other questions
        if name == "words":
            rise, margin = abs(rise) / max(first, 1.0), margin / max(first, 1.0)
        before = 0.0 if name in TRIAGE or name not in saved["last"] else saved["last"][name] + AGAIN * bound
        if rise > max(early * bound, margin, before):
            saved["last"][name] = rise
            saved["due"] = True
            saved["watched"] += [name] if name in TRIAGE else []


def watched(state: TrainState) -> list[str]:
    """What looks worse in triage in the batch at hand."""
    return list(state.saved.get("screen", {}).get("watched", ()))


def keep_watch(state: TrainState, result: AuditResult) -> None:
    """After a check without an alarm: where it shows worse triage, the next step is checked, too.

    Where a batch looked worse and the check, which asks the same questions each time, shows nothing, the questions of the first
    batch were easier: later batches are compared with this one.
    """
    saved, bounds = state.saved.get("screen"), state.plan.audit.bounds()
    for name in TRIAGE:
        if not saved or name not in bounds or name not in result.measures or name not in result.before:
            continue
        rise = result.measures[name] - result.before[name]
        if rise > EARLY * bounds[name]:
            saved["due"] = True
        elif name in saved["watched"] and rise <= EARLY_TRIAGE * bounds[name]:
            saved["first"][name] = saved["now"][name]


def check_is_due(state: TrainState) -> bool:
    """Whether the last batch asks for a check before the next planned one."""
    saved = state.saved.get("screen")
    if not saved or not saved["due"] or not state.plan.held_out:
        return False
    saved["due"] = False
    saved["early"] += 1
    return bool(saved["early"] <= early_checks(state.plan.config))


def mark_good(state: TrainState) -> None:
    """The policy as it is now has passed the audit."""
    weights = {name: p.detach().cpu().clone() for name, p in state.policy.trained().items()}
    state.saved["good"] = {"step": state.step, "weights": weights}


def answer_alarm(state: TrainState, alarms: tuple[str, ...]) -> bool:
    """Do what `on_alarm` says; True when the run has to end. Going back also forgets the check of what was undone."""
    action = state.plan.config.on_alarm
    undone = sum(event["action"] == "undone" for event in state.saved.get("events", ()))
    if action == "warn":
        _record(state, "warned", alarms, state.step)
        return False
    good = state.saved["good"]
    state.set_weights(good["weights"])
    state.saved.pop(PENDING, None)  # drawn by a policy that is no more
    state.saved["held_out"].pop(str(state.step), None)
    if action == "undo" and undone < MAX_UNDONE:
        state.optimizer.state.clear()
        _record(state, "undone", alarms, good["step"])
        return False
    _record(state, "stopped", alarms, good["step"])
    state.saved["ended"] = True
    return True


def _record(state: TrainState, action: str, alarms: tuple[str, ...], step: int) -> None:
    event = {"step": state.step, "action": action, "alarms": list(alarms), "published": step}
    state.saved.setdefault("events", []).append(event)


def has_ended(state: TrainState) -> bool:
    return bool(state.saved.get("ended"))


def published_step(state: TrainState) -> int:
    """The step whose weights the policy has now."""
    return int(state.saved["good"]["step"]) if has_ended(state) else state.step
