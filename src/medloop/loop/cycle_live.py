"""The live end of a cycle: the version goes onto the model servers, is compared with the champion, and becomes it or goes.

Each step asks the store and the servers again whenever the cycle is called, and finishes its own earlier work: a version that
answers already is not deployed again, an experiment that runs is read and not started again. An experiment runs for days without
this process: the server reads its users and stops it (loop/experiment_watch.py), and `medloop loop run` reads it on the way. Harm
stops it, takes the version off the servers and blocks it (loop/experiment.py); the cycle then ends with that reason.
"""

from functools import partial

from medloop.contracts.experiment import ExperimentVerdict, version_name
from medloop.contracts.registry import Alias
from medloop.deploy.protocol import CanaryFailedError, DeployFailedError
from medloop.deploy.server import observe
from medloop.errors import BusyError
from medloop.experiment.plan import make_plan
from medloop.loop import experiment as live
from medloop.loop.cycle_config import CycleConfig, ExperimentStep
from medloop.loop.cycle_data import experiment_name
from medloop.loop.deploy import DeployRefusedError, block_refusal, deploy_alias, open_fleet
from medloop.loop.workflow import Ends, Known, Outputs, Step, Waits, after
from medloop.registry.promote import demote_in, holder, promote_in
from medloop.store.audit_trail import actor
from medloop.store.db import Store
from medloop.store.records import experiments, registry
from medloop.store.records.cycles import cycle_events
from medloop.store.records.experiments import ExperimentStateError, StoredExperiment
from medloop.store.records.registry import PromotionRefusedError
from medloop.store.records.routes import live_route

WORDS = {
    "not_better": "It is not better than the champion",
    "no_evidence": "The experiment found no difference",
    "invalid": "The arms of the experiment did not have the users they should have",
    "guard_stop": "A guard stopped it, and it was withdrawn",
}


def live_steps(store: Store, config: CycleConfig) -> list[Step]:
    """From a registered version to one that answers; no model server and no experiment: it only gets its alias."""
    wanted, urls = config.experiment, store.settings.deploy.urls
    promoted = {"alias": config.alias, "experiment": wanted is not None}
    about = "it becomes the challenger" if wanted else f"it becomes the {config.alias}"
    steps = [Step("promote", after(promoted, "register", "sign-off"), partial(_promote, store, config), about)]
    if is_deployed := config.deploy and bool(urls):
        about = f"load, canary questions and switch on the model servers ({len(urls)})"
        steps.append(Step("deploy", after({}, "promote"), partial(_deploy, store), about))
    if wanted is not None:
        about, own = f"{wanted.share:.0%} of the users, until it has a verdict", wanted.model_dump(mode="json")
        run = partial(_experiment, store, config.name, wanted)
        steps.append(Step("experiment", after(own, "promote", "deploy"), run, about))
        adopt = partial(_adopt, store, is_deployed)
        steps.append(Step("adopt", after({}, "promote", "experiment"), adopt, "it becomes the champion and answers everybody"))
    return steps


def _promote(store: Store, config: CycleConfig, known: Known) -> Outputs | Waits | Ends:
    """The alias of the settings; before an experiment the version is the challenger, if there is a champion."""
    version = int(known.text("register", "version"))
    alias: Alias = config.alias
    if config.experiment is not None:
        champion = holder(store, "champion")
        alias = "champion" if champion is None or champion.record.version == version else "challenger"
    if not _holds(store, version, alias) and _had(store, config.name, version, alias):
        return Ends(f"Version {version} is not the {alias} any more, so it was not promoted again.")
    return _give(store, version, alias) or {"version": version, "alias": alias}


def _holds(store: Store, version: int, alias: Alias) -> bool:
    stored = holder(store, alias)
    return stored is not None and stored.record.version == version


def _had(store: Store, cycle: str, version: int, alias: Alias) -> bool:
    """Whether it has got the alias since this step began: a process that died gave it, and somebody has taken it away."""
    events = [event for event in cycle_events(store, cycle) if event.step == "promote"]
    ends = [at for at, event in enumerate(events) if event.event in ("done", "ended")]
    since = events[ends[-1] + 1 if ends else 0].timestamp
    return any(
        change.version == version and change.alias in (alias, "champion") and change.timestamp >= since
        for change in registry.history(store, store.settings.registry.model)
    )


def _give(store: Store, version: int, alias: Alias, reason: str = "") -> Waits | None:
    """The alias for a version that nobody has rolled back, or why it has to wait; one that it has stays as it is."""
    stored = registry.get_version(store, store.settings.registry.model, version)
    if not _holds(store, version, alias) and (refusal := block_refusal(store, stored)):
        return Waits(f"{stored.record.label} cannot be the {alias}: {refusal}", f"registry show {version}")
    try:
        promote_in(store, version, actor=actor(), alias=alias, reason=reason)
    except PromotionRefusedError as refused:  # an incident was opened since, or an erasure touched the data
        return Waits(str(refused), f"registry show {version}")
    return None


def _deploy(store: Store, known: Known) -> Outputs | Waits | Ends:
    """Load, canaries, switch, on every server; the champion beside it where it is to be compared with one."""
    version, alias = int(known.text("promote", "version")), known.text("promote", "alias")
    return _bring_live(store, version, "champion" if alias == "champion" else "challenger")


def _bring_live(store: Store, version: int, alias: Alias) -> Outputs | Waits | Ends:
    stored = holder(store, alias)
    if stored is None or stored.record.version != version:
        now = "none is" if stored is None else f"version {stored.record.version} is"
        return Ends(f"Version {version} is not the {alias} any more ({now}), so it was not deployed.")
    try:
        with open_fleet(store) as fleet:
            if not any(observe(server).is_up for server in fleet.servers):
                return Waits("No model server answers.", "deploy status")
            if alias == "challenger":
                champion, route = holder(store, "champion"), live_route(store)
                if champion is not None and route is not None and route.version != champion.record.version:
                    return Waits(f"The champion is not the version that answers ({route.served_name}).", "deploy")
                deploy_alias(fleet, "champion", actor=actor())  # nothing changes where it answers already
            outcome = deploy_alias(fleet, alias, actor=actor())
    except CanaryFailedError as failed:
        return Ends(f"{failed.what}. What served before still serves.")
    except (DeployRefusedError, DeployFailedError, BusyError) as error:
        return Waits(f"{error.what}.", "deploy status")
    return {"version": version, "alias": alias, "served": outcome.route.served_name}


def _experiment(store: Store, cycle: str, step: ExperimentStep, known: Known) -> Outputs | Waits | Ends:
    """Plan and start it once, then wait for its verdict and for who decides about it."""
    version = int(known.text("promote", "version"))
    if known.text("promote", "alias") == "champion":
        return {"skipped": True}  # the first version: there was nothing to compare it with
    try:
        experiment = _begun(store, cycle, version, step)
    except ExperimentStateError as error:  # another one runs at this site, or other versions answer
        return Waits(f"{error.what}.", "experiment list")
    if isinstance(experiment, Ends):
        return experiment
    name = experiment.plan.experiment_id
    live.refresh(store, name)
    live.withdraw_again(store)
    experiment = experiments.get(store, name)
    verdict, status = live.verdict_of(experiment), f"experiment status {name}"
    if experiment.state == "running":
        return Waits(f"The experiment runs until it has a verdict, at most {experiment.plan.planned_users:,} users.", status)
    if verdict is None or verdict.outcome != "better":
        return _lost(store, version, name, verdict)
    if experiment.state == "stopped" and step.adopt == "verdict":
        experiment = live.decide(store, name, adopt=True, by=actor(), reason="the verdict of its experiment")
    if experiment.state == "stopped":
        return Waits("The challenger is better. A person adopts it, or keeps the champion.", status)
    if experiment.events[-1].detail.get("decision") != "adopt":
        return _lost(store, version, name, None)
    return {"experiment": name, "outcome": verdict.outcome}


def _begun(store: Store, cycle: str, version: int, step: ExperimentStep) -> StoredExperiment | Ends:
    """The experiment of this version; planned and started where that has not been done."""
    name, model = experiment_name(cycle, version), store.settings.registry.model
    experiment = next((row for row in experiments.every(store) if row.plan.name == name), None)
    if experiment is None:
        rival, champion = holder(store, "challenger"), holder(store, "champion")
        if rival is None or rival.record.version != version or champion is None:
            return Ends(f"Version {version} is not the challenger any more, so it was not compared.")
        plan = make_plan(
            step.plan, name=name, by=actor(), champion=version_name(champion.record.label), challenger=f"{model}@{version}"
        )  # fmt: skip
        experiment = live.plan_experiment(store, plan)
    if experiment.state == "planned":
        experiment = live.start(store, experiment.plan.experiment_id, enrolled=step.share, by=actor())
    return experiment


def _lost(store: Store, version: int, name: str, verdict: ExperimentVerdict | None) -> Ends:
    """The champion stays. A version that lost gives its alias back, so that the next one can be compared."""
    rival = holder(store, "challenger")
    if rival is not None and rival.record.version == version:
        demote_in(store, "challenger", actor=actor(), reason="its experiment is over")
    why = "Somebody stopped the experiment, or kept the champion" if verdict is None else WORDS[verdict.outcome]
    return Ends(
        f"{why}. What served before still serves.", {"experiment": name, "outcome": verdict.outcome if verdict else "kept"}
    )


def _adopt(store: Store, is_deployed: bool, known: Known) -> Outputs | Waits | Ends:
    """The challenger becomes the champion, and answers everybody where model servers are known.

    What people did since is not undone: a version that is neither of the two any more stays as it is.
    """
    version = int(known.text("promote", "version"))
    if not _holds(store, version, "champion"):
        if not _holds(store, version, "challenger"):
            return Ends(f"Version {version} is not the challenger any more, so it did not become the champion.")
        if waits := _give(store, version, "champion", "better in its experiment"):
            return waits
    if not is_deployed:
        return {"version": version, "alias": "champion"}
    return _bring_live(store, version, "champion")
