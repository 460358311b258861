"""What a cycle would cost, before it runs: trainings by their own estimate, other steps by the time they took before.

    step_costs(settings, store, CycleConfig())      # {"train-sft": "Roughly 2 min, …", "gate": "41 s the last time (cycle1)"}

An estimate reads the data as it is now. A step whose inputs are not there yet (pairs that the step `data` will build) says so.
"""

from medloop.errors import MedloopError
from medloop.loop.cycle import train_config, train_names
from medloop.loop.cycle_config import CycleConfig
from medloop.loop.train import STAGES, prepare_stage
from medloop.loop.workflow import Known, Outputs
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records.cycles import cycle_events, cycle_names

UNKNOWN = "unknown before the step data has run"


def step_costs(settings: Settings, store: Store, config: CycleConfig) -> dict[str, str]:
    costs = _last_durations(store)
    for name, step in zip(train_names(config), config.trainings, strict=True):
        try:
            chosen = train_config(settings, config, step, [], Known({"data": _today(settings, store, config)}))
            prepared = prepare_stage(STAGES[step.stage], chosen, settings)
        except MedloopError:
            costs.setdefault(name, UNKNOWN)
            continue
        if prepared.trainer is None:
            costs[name] = "nothing: it is finished"
        else:
            costs[name] = prepared.trainer.cost(prepared.plan, settings).sentence()
    return costs


def _today(settings: Settings, store: Store, config: CycleConfig) -> Outputs:
    """The outputs of the step `data` as far as they are known; without a mix, SFT is estimated on the prepared data."""
    done = [event for event in cycle_events(store, config.name) if event.step == "data" and event.event == "done"]
    return dict(done[-1].outputs) if done else {}


def _last_durations(store: Store) -> dict[str, str]:
    """How long each step took in the newest cycle in which it ended, from its last start."""
    took: dict[str, str] = {}
    for cycle in cycle_names(store):
        started = {}
        for event in cycle_events(store, cycle):
            if event.event == "started":
                started[event.step] = event.timestamp
            elif event.event in ("done", "ended") and event.step in started:
                seconds = (event.timestamp - started[event.step]).total_seconds()
                took[event.step] = f"{seconds:,.0f} s the last time ({cycle})"
    return took
