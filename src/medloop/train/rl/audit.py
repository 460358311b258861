"""The audit inside an RL run: what an alarm does, and which checkpoint was the last good one.

Every held-out check is compared with the first (`check`). Every batch of training answers is screened (`screen`), which costs no
sampling: one that looks worse than the first batch brings a held-out check forward. An alarm ends the run (`on_alarm: stop`, the
last good weights are published), or goes back to these weights and trains on (`undo`, at most MAX_UNDONE times), or is only told
(`warn`).
"""

import math
from typing import Any

from medloop.train.rl.experience import Experience
from medloop.train.rl.samples import checked_answers
from medloop.train.rl.state import TrainState

MAX_UNDONE = 3  # alarms that go back; the next one ends the run
EARLY = 0.5  # share of a bound from which a batch brings the check forward
CLEAR = 2.0  # standard errors that the difference of the batches has to have
AGAIN = 0.25  # share of a bound by which it has to get worse still before it does so once more
TRIAGE = ("overtriage", "undertriage")  # these need not get worse still: as long as they look worse, every step is checked,
EARLY_TRIAGE, CLEAR_TRIAGE = 0.25, 1.0  # and they look worse sooner: a keyword spreads from 3 % to 30 % within five steps


def planned_checks(config: Any) -> int:
    """Held-out checks after the first one; as many again may be brought forward."""
    every = config.eval_every if hasattr(config, "prompts_per_step") else 1
    return int(-(-config.steps // every))


def screen_batch(state: TrainState, experience: Experience) -> None:
    """Compare a batch with the first one, which the policy before training wrote."""
    means = state.plan.audit.screen(checked_answers(experience))
    if not means:
        return
    saved = state.saved.setdefault("screen", {"first": means, "last": {}, "early": 0, "due": False})
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


def keep_watch(state: TrainState, measures: dict[str, float]) -> None:
    """After a check without an alarm: where triage is worse than in the first batch, the next step is checked, too."""
    saved, bounds = state.saved.get("screen"), state.plan.audit.bounds()
    if saved and any(
        measures[name] - saved["first"][name][0] > EARLY * bounds[name]
        for name in TRIAGE
        if name in measures and name in saved["first"] and name in bounds
    ):
        saved["due"] = True


def check_is_due(state: TrainState) -> bool:
    """Whether the last batch asks for a check before the next planned one."""
    saved = state.saved.get("screen")
    if not saved or not saved["due"] or not state.plan.held_out:
        return False
    saved["due"] = False
    saved["early"] += 1
    return bool(saved["early"] <= planned_checks(state.plan.config))


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
