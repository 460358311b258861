"""A run's knobs from a YAML file, `--set a=b` or `--set a.b=c` pairs and flags, in that order; every problem is named at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from medloop.errors import ConfigError, speaking_of

M = TypeVar("M", bound=BaseModel)


def build(
    kind: type[M],
    *,
    file: Path | None = None,
    pairs: Sequence[str] = (),
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> M:
    """`kind` from all layers; a later layer wins. A flag that was not given is None and changes nothing."""
    values = {**(defaults or {}), **(read_yaml(file) if file else {})}
    for name, text in split_pairs("--set", pairs).items():
        _put(values, kind, name, _value(name, text))
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(error)), f"Known: {', '.join(kind.model_fields)}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a file; an empty file has none."""
    hint = "Settings are lines like 'seed: 42'"
    try:
        with speaking_of(path):
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8", "Save it as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: not valid YAML", hint) from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected settings, found a {type(content).__name__}", hint)
    return content


def split_pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts of one flag."""
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise ConfigError(f"{flag} {text} is not NAME=VALUE", f"Example: {flag} seed=7" if flag == "--set" else "")
        pairs[name.strip()] = value.strip()
    return pairs


def _put(values: dict[str, Any], kind: type[BaseModel], name: str, value: Any) -> None:
    """Set `a.b.c` inside what `a` is so far: the file's, or the default. A path that leads nowhere is left to be refused."""
    head, *path = name.split(".")
    if not path or head not in kind.model_fields:
        values[name] = value
        return
    if head not in values:
        values[head] = kind.model_fields[head].get_default(call_default_factory=True)
    at = values[head] = TypeAdapter(Any).dump_python(values[head])  # a copy of plain dicts
    for step in path[:-1]:
        at = at.setdefault(step, {}) if isinstance(at, dict) else None
    if isinstance(at, dict):
        at[path[-1]] = value
    else:
        values[name] = value


def _value(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"--set {name}={text} has no readable value", "Example: --set seed=7") from None


def _explain(error: ValidationError) -> list[str]:
    """One part per problem, with the name and the value that the user gave."""
    parts = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            parts.append(f"unknown setting '{name}'")
        elif not name:
            parts.append(problem["msg"].removeprefix("Value error, "))
        else:
            parts.append(f"{name} is {problem['input']!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}")
    return parts
