"""The table at the end of `medloop demo`: what the store and the files of the workspace say about it, and where to look."""

import json
from pathlib import Path

from medloop.cli import ui
from medloop.cli.demo.clinicians import MODEL, demo_store
from medloop.cli.demo.release import SFT
from medloop.contracts import Correction, Feedback, Preference
from medloop.contracts.dataset import SPLIT_FILES
from medloop.loop.experiment import verdict_of
from medloop.store.db import Store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import codebook, crud, deploy_events, experiments, gates, registry
from medloop.store.records.incident_rows import count_incidents
from medloop.store.records.routes import live_route

FILES = (
    ("data/processed/DATA_CARD.md", "what the data is, what was dropped and why"),
    ("models/lora/sft/README.md", "the adapter: inputs by hash, settings, losses"),
    ("models/rl/rl/report.html", "what RL did: held-out reward with its interval, KL, curves, alarms"),
    ("reports/eval/demo/eval_report.md", "base, SFT and RL side by side, with intervals and the worst answers"),
    ("models/rl/v1.0-rl/safety_ledger.html", "the release: what the gate found, who signed, who taught it, how to roll back"),
    ("reports/gate/embedded_tiny+reckless/eval_report.md", "why the reckless model was refused, answer by answer"),
    ("reports/experiments/", "the experiment: curve, interval, guards, verdict"),
    ("data/feedback/demo/DATA_CARD.md", "the feedback as training data: what was used, what was left out and why"),
)


def show_table(folder: Path) -> None:
    """What happened, from the records themselves; a part that did not happen has no row."""
    with demo_store(folder) as store:
        rows = [row for row in (*_made(folder), *_decided(store, folder), *_lived(store)) if row is not None]
    ui.say("")
    ui.table(("part", "result", "page of the console"), rows)
    ui.say(f"Files in {ui.shown(folder.absolute())}:")
    for path, what in FILES:
        if (folder / path).exists():
            ui.say(f"  {path:50} {what}")


Row = tuple[str, str, str]


def _made(folder: Path) -> list[Row | None]:
    train = folder / "data/processed" / SPLIT_FILES["train"]
    rows = sum(1 for _ in train.open("rb")) if train.is_file() else 0
    losses, gains = _metrics(folder / SFT), _metrics(folder / MODEL)
    made: list[Row | None] = [("data", f"{rows:,} examples to learn from", "/web/lineage")]
    if "dev_loss_after" in losses:
        made.append(("SFT", f"dev loss {losses['dev_loss_before']:.3f} to {losses['dev_loss_after']:.3f}", ""))
    if "held_out_gain" in gains:
        low, high = gains["held_out_gain_low"], gains["held_out_gain_high"]
        made.append(("RL", f"held-out reward {gains['held_out_gain']:+.3f} ({low:+.3f} to {high:+.3f})", ""))
    return made


def _metrics(folder: Path) -> dict[str, float]:
    path = folder / "card.json"
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["metrics"] if path.is_file() else {}
    return found


def _decided(store: Store, folder: Path) -> list[Row | None]:
    rows: list[Row | None] = []
    for model in (SFT, MODEL, "models/lora/reckless"):
        if (folder / model).is_dir() and (result := gates.latest_gate(store, verify_artifact(folder / model).sha256)):
            waived = [check.name for check in gates.with_waivers(store, result).checks if check.waiver]
            how = f"{result.outcome}, except {', '.join(waived)} (waived)" if waived else result.outcome
            rows.append(("gate", f"{result.label}: {how}, signed by {len(gates.approvals(store, result))}", "/web/gate"))
    held = registry.current(store, store.settings.registry.model)
    aliases = ", ".join(f"{alias} is version {change.version}" for alias, change in held.items() if change.version)
    rows.append(("registry", aliases, "/web/registry") if aliases else None)
    return rows


def _lived(store: Store) -> list[Row | None]:
    live, current = live_route(store), codebook.live(store)
    blocks = deploy_events.events(store, kinds=("block",), limit=20)
    compared = [(experiment.plan, verdict_of(experiment)) for experiment in experiments.every(store)]
    sent = sum(crud.count(store, kind) for kind in (Feedback, Preference, Correction))
    incidents = count_incidents(store).open
    rows: list[Row | None] = []
    if current.entries:
        rows.append(("codebook", f"version {current.version}, rules live: {len(current.entries)}", "/web/codebook"))
    for plan, verdict in compared:
        outcome = verdict.outcome if verdict else "running"
        rows.append(("experiment", f"{plan.challenger} against {plan.champion}: {outcome}", "/web/experiments"))
    rows += [("rollback", f"{event.served_name}: {event.reason}", "/web/deployments") for event in blocks]
    if live:
        rows.append(("live", live.served_name, "/web/deployments"))
    if sent:
        rows.append(("feedback", f"{sent:,} records of invented people", "/web/dashboard"))
    if incidents:
        rows.append(("incidents", f"{incidents} open: nothing is promoted before two people close them", "/web/incidents"))
    return rows
