"""A run's knobs from a YAML file, `--set a=b` pairs and flags, in that order; every problem is named at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from medloop.errors import ConfigError, speaking_of

M = TypeVar("M", bound=BaseModel)


def build(kind: type[M], *, file: Path | None, pairs: Sequence[str], flags: Mapping[str, Any], defaults: Mapping[str, Any]) -> M:
    """`kind` from all layers; a later layer wins. A flag that was not given is None and changes nothing."""
    values = {**defaults, **(_read(file) if file else {})}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise ConfigError(f"--set {pair} is not NAME=VALUE", "Example: --set learning_rate=0.001")
        values[name] = yaml.safe_load(text)
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(kind, error)), f"Known: {', '.join(kind.model_fields)}") from None


def _read(path: Path) -> dict[str, Any]:
    with speaking_of(path):
        text = path.read_text(encoding="utf-8")
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(
            f"{path}{f', line {mark.line + 1}' if mark else ''}: not valid YAML", "Write lines like 'epochs: 2'"
        ) from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected settings, found a {type(content).__name__}", "Write lines like 'epochs: 2'")
    return content


def _explain(kind: type[BaseModel], error: ValidationError) -> list[str]:
    """One part per problem, with the name and the value that the user gave."""
    parts = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            parts.append(f"unknown setting '{name}'")
        elif not name:
            parts.append(problem["msg"].removeprefix("Value error, "))
        else:
            parts.append(f"{name} is {problem['input']!r}: {problem['msg'].lower()}")
    return parts
