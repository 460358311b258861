"""A trained model as an artifact folder: weights, tokenizer, card.json, README.md, metrics.jsonl; nothing pickled.

Everything but the times in `card.json` and `metrics.jsonl` is a function of the run, so that the same run made twice
has the same fingerprint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from medloop.contracts import TrainingCard, utc_now
from medloop.contracts.model import Method
from medloop.models import runtime
from medloop.models.adapter import save_adapter
from medloop.models.runtime import obey_umask
from medloop.store.files.artifacts import new_artifact
from medloop.train.runs.run import TrainingRun


def publish(
    target: Path,
    model: Any,
    tokenizer: Any,
    card: TrainingCard,
    metrics: Path,
    *,
    files: Mapping[str, bytes] | None = None,
    about: Sequence[str] | None = None,
) -> None:
    """Put the result in place, in the stead of an older one that medloop made; `files` are more to lay beside the weights."""
    with new_artifact(target, replace=True) as temp:
        if card.config.get("full"):
            model.save_pretrained(temp)
        else:
            save_adapter(temp, model, card.base)
        tokenizer.save_pretrained(temp)
        shutil.copyfile(metrics, temp / "metrics.jsonl")
        (temp / "card.json").write_text(
            json.dumps(card.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        (temp / "README.md").write_text(readme(card, about), encoding="utf-8")
        for name, content in (files or {}).items():
            (temp / name).write_bytes(content)
        obey_umask(temp)


def training_card(
    run: TrainingRun,
    method: Method,
    model: Any,
    *,
    metrics: Mapping[str, float],
    began: datetime,
    parent: str | None = None,
    beside: int = 0,
) -> TrainingCard:
    """What went in, how, and what came out; `beside` are trained parameters that are not the model's (a value head)."""
    config = run.identity["config"]
    trainable, total = runtime.count_parameters(model)
    return TrainingCard(
        name=config["name"],
        method=method,
        base=config["model"],
        base_sha256=run.identity["base_sha256"],
        parent=parent,
        inputs=run.identity["inputs"],
        config=config,
        seed=config["seed"],
        metrics=dict(metrics),
        trainable_parameters=trainable + beside,
        total_parameters=total,
        versions=runtime.versions(),
        commit=runtime.commit(),
        started=began,
        finished=utc_now(),
    )


def readme(card: TrainingCard, about: Sequence[str] | None = None) -> str:
    """The model card for people; `about` are the lines on how to use it, those of a model that answers by default."""
    share = card.trainable_parameters / max(card.total_parameters, 1)
    kind = "All weights" if card.config.get("full") else f"A LoRA adapter of rank {card.config.get('lora_r')}"
    lines = [
        f"# {card.name}",
        "",
        f"{kind} for `{card.base}`, trained by `medloop train {card.method}` on {card.finished:%Y-%m-%d}.",
        "",
        *(about or _how_to_ask(card)),
        "| | |",
        "|---|---|",
        f"| base model | `{card.base}` (`{card.base_sha256[:19]}…`) |",
        *(f"| {role} data | `{digest[:19]}…` |" for role, digest in sorted(card.inputs.items())),
        f"| trained parameters | {card.trainable_parameters:,} of {card.total_parameters:,} ({share:.1%}) |",
        f"| seed | {card.seed} |",
        *(f"| {name.replace('_', ' ')} | {value:,.6g} |" for name, value in card.metrics.items()),
        "",
        "`card.json` has every setting and version, `metrics.jsonl` one line per step, `MANIFEST.json` the hash of each file.",
        "",
        "Not a medical device. Evaluate it before anybody relies on it (`medloop eval`).",
    ]
    return "\n".join(lines) + "\n"


def _how_to_ask(card: TrainingCard) -> list[str]:
    full = card.config.get("full")
    use = f"--model models/full/{card.name}" if full else f"--model {card.base} --adapter models/lora/{card.name}"
    return ["```", f"medloop predict questions.jsonl --output answers.jsonl {use}", "```", ""]
