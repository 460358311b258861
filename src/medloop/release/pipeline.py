"""`rl_pipeline.md`: how a released model came about, step by step, from the cards of its chain; `config.yaml` to repeat it."""

from collections.abc import Mapping
from typing import Any

import yaml

from medloop.contracts import TrainingCard
from medloop.contracts.release import SafetyLedger


def pipeline_page(ledger: SafetyLedger, cards: Mapping[str, TrainingCard]) -> str:
    """`cards` are the training cards of the chain by path, as far as they are still there."""
    lines = [
        f"# How {ledger.release} came about", "",
        f"Base model `{ledger.base}` (`{ledger.base_sha256}`). The chain, oldest first; every input is named by its hash.", "",
    ]  # fmt: skip
    for number, step in enumerate(reversed(ledger.ancestors), 1):
        card = cards.get(step.path)
        lines += [f"## {number}. {step.method.upper()}: `{step.path}`", ""]
        if card is None:
            lines += ["Its folder has been replaced since; the catalog still knows its inputs.", ""]
        lines += [f"- {role}: `{sha256}`" for role, sha256 in step.inputs.items()]
        lines += _of_card(card) if card else []
        lines.append("")
    lines += [
        "## Judged", "",
        f"- gate `{ledger.gate_id}`: {ledger.gate.outcome}, against `{ledger.gate.baseline}`",
        f"- evaluation report `{ledger.gate.report}` (`eval_report.md` here)",
        f"- reward: {ledger.reward or 'none'}; teacher: {ledger.teacher or 'none'}", "",
        "## Made again", "",
        "With the files of these hashes in place, every step is repeated exactly by its settings, for example:", "",
        "```", f"medloop train {ledger.method}" + " --config config.yaml", "```", "",
        "`config.yaml` has the settings of the last step. `safety_ledger.html` says what changed, who taught it, how to go back.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _of_card(card: TrainingCard) -> list[str]:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(card.metrics.items()))
    return [
        f"- seed {card.seed}, {card.trainable_parameters:,} of {card.total_parameters:,} parameters trained",
        f"- from {card.started:%Y-%m-%d %H:%M} to {card.finished:%Y-%m-%d %H:%M} UTC"
        + (f", commit `{card.commit}`" if card.commit else ""),
        *([f"- {metrics}"] if metrics else []),
    ]


def config_yaml(card: TrainingCard, known: set[str]) -> str:
    """The settings of the run, as `--config` reads them; `known` are the names that the method has."""
    settings: dict[str, Any] = {name: value for name, value in card.config.items() if name in known}
    head = f"# medloop train {card.method} --config config.yaml\n"
    return head + yaml.safe_dump(settings, allow_unicode=True, sort_keys=True)
