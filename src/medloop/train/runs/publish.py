"""A trained model as an artifact folder: weights, tokenizer, card.json, README.md, metrics.jsonl; nothing pickled.

Everything but the times in `card.json` and `metrics.jsonl` is a function of the run, so the same run made twice has the
same fingerprint.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from medloop.contracts import TrainingCard, utc_now
from medloop.contracts.model import AlarmAction, HeldOutVerdict, Method
from medloop.models import runtime
from medloop.models.adapter import save_adapter
from medloop.models.runtime import obey_umask
from medloop.store.files.artifacts import new_artifact
from medloop.train.runs.model_card import readme
from medloop.train.runs.run import TrainingRun


def publish(
    target: Path,
    model: Any,
    tokenizer: Any,
    card: TrainingCard,
    metrics: Path,
    *,
    files: Mapping[str, bytes] | None = None,
    about: Sequence[str] = (),
) -> None:
    """Write the result to `target`, over an older one of medloop; `files` go beside the weights, `about` into README.md.

    Without a model, `files` are all there is.
    """
    with new_artifact(target, replace=True) as temp:
        if model is not None:
            save_model(temp, model, card)
            tokenizer.save_pretrained(temp)
        shutil.copyfile(metrics, temp / "metrics.jsonl")
        (temp / "card.json").write_text(
            json.dumps(card.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        (temp / "README.md").write_text(readme(card, target, about), encoding="utf-8")
        for name, content in (files or {}).items():
            (temp / name).write_bytes(content)
        obey_umask(temp)


def save_model(folder: Path, model: Any, card: TrainingCard) -> None:
    """All weights, or the adapter."""
    if card.config.get("full"):
        model.save_pretrained(folder)
    else:
        save_adapter(folder, model, card.base)


def training_card(
    run: TrainingRun,
    method: Method,
    model: Any,
    *,
    metrics: Mapping[str, float],
    started: datetime,
    parent: str | None = None,
    beside: int = 0,
    backend: str | None = None,
    verdict: HeldOutVerdict | None = None,
    alarms: Sequence[str] = (),
    alarm_action: AlarmAction | None = None,
    stopped: str | None = None,
    warnings: Sequence[str] = (),
    degraded: str | None = None,
    memory: Mapping[str, Any] | None = None,
    update_backend: str | None = None,
    update_note: str | None = None,
) -> TrainingCard:
    """Inputs, settings and metrics of a run; `beside` are trained parameters outside the model (a value head).

    Settings that the memory has chosen are in `config` as they were used, and in `memory` as they were asked for.
    """
    chosen = {} if memory is None else {name: memory[name] for name in memory["asked"]}
    config = {**run.identity["config"], **chosen}
    trainable, total = runtime.count_parameters(model) if model is not None else (0, 0)
    return TrainingCard(
        name=config["name"], method=method, base=config["model"], base_sha256=run.identity["base_sha256"], parent=parent,
        inputs=run.identity["inputs"], config=config, seed=config["seed"], metrics=dict(metrics),
        trainable_parameters=trainable + beside, total_parameters=total + beside, versions=runtime.versions(),
        commit=runtime.commit(), backend=backend, held_out_verdict=verdict, alarms=tuple(alarms), alarm_action=alarm_action,
        update_backend=update_backend, update_note=update_note, stopped=stopped, warnings=tuple(warnings), degraded=degraded,
        memory=None if memory is None else dict(memory),
        started=started, finished=utc_now(),
    )  # fmt: skip
