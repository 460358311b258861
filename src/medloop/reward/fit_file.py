"""Fitted weights as a YAML file that says where they come from."""

import json
import re
from typing import Any

from medloop.contracts.evaluation import Interval
from medloop.reward.fit import FitMeasure, FittedWeights

_RESERVED = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
HEAD = "# Weights fitted by `medloop reward fit`"


def fit_yaml(fitted: FittedWeights, *, sources: dict[str, int], command: str) -> str:
    """A complete reward configuration with comments; the same result gives the same text."""
    values = fitted.mix.model_dump(mode="json")
    parts = values.pop("parts")
    version = values.pop("version")
    lines = [
        f"{HEAD}. Use it with: medloop reward score answers.jsonl --config FILE",
        "#",
        f"# command: {command}",
        f"# labels: {fitted.pairs:,} pairs on {fitted.questions:,} questions, {fitted.faults:,} labelled answers; {fitted.cases}",
        *(f"#   {source}: {count:,} cases" for source, count in sorted(sources.items())),
        f"# before: reward version {fitted.base_version}",
        f"# agreement with people on held-out questions, before: {measured(fitted.old)}",
        f"# agreement with people on held-out questions, now:    {measured(fitted.new)}",
        f"# difference: {_interval(fitted.difference, '+.3f')}; pull towards the weights before: {fitted.strength:g}",
        *(f"# {note}" for note in fitted.notes),
        "# This is another reward than before: measure it with `medloop reward validate CASES` before you train on it.",
        "",
        f"version: {_flow(version)}",
        *(f"{name}: {_flow(value)}" for name, value in values.items()),
        "",
        "parts:",
    ]
    for name, part in parts.items():
        text = _flow({key: value for key, value in part.items() if key == "weight" or value})
        why = f", kept: {fitted.unchanged[name]}" if name in fitted.unchanged else ""
        lines.append(f"  {_flow(name)}: {text}  # was {fitted.before[name]:g}{why}")
    return "\n".join(lines) + "\n"


def measured(measure: FitMeasure) -> str:
    return f"{_interval(measure.agreement, '.3f')}, {measure.ties} ties"


def _interval(value: Interval, form: str) -> str:
    if value.mean is None or value.low is None or value.high is None:
        return "not measured"
    return f"{value.mean:{form}} [{value.low:{form}}, {value.high:{form}}]"


def _flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value, ensure_ascii=False)
