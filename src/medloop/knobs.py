"""The config of a command from a YAML file, `--set a.b=c` pairs and flags; one error names every problem in plain words."""

import difflib
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from medloop.errors import ConfigError, explain_os_errors

M = TypeVar("M", bound=BaseModel)

RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # of a run, a dataset and their folders


def load_config(
    kind: type[M],
    *,
    file: Path | None = None,
    pairs: Sequence[str] = (),
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> M:
    """`kind` from defaults, file, pairs and flags; a later one wins. A flag that was not given is None and changes nothing."""
    values = {**(defaults or {}), **(read_yaml(file) if file else {})}
    set_pairs(values, kind, pairs)
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        return validated(kind, values)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(error, kind))) from None


def set_pairs(values: dict[str, Any], kind: type[BaseModel], pairs: Sequence[str]) -> None:
    """Put `--set NAME=VALUE` texts into the values of `kind`; a value is YAML, and a dotted name reaches inside one."""
    for name, text in split_pairs("--set", pairs).items():
        _put(values, kind, name, _value(name, text))


def validated(kind: type[M], values: Mapping[str, Any]) -> M:
    """`kind` of these values; where one of a few words is allowed, it may be written in upper or lower case."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        if (spelled := respelled(values, error)) is None:
            raise
        return kind.model_validate(spelled)


def respelled(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """A copy of `values` with its words in the case that the model knows; None if no such word was the problem."""
    copy: dict[str, Any] = TypeAdapter(Any).dump_python(dict(values))
    changed = False
    for problem in error.errors(include_url=False):
        if problem["type"] in ("literal_error", "enum") and isinstance(problem["input"], str):
            allowed = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
            same = [word for word in allowed if word.casefold() == problem["input"].casefold()]
            changed = bool(same and _replace(copy, problem["loc"], same[0])) or changed
    return copy if changed else None


def _replace(values: Any, path: Sequence[int | str], value: str) -> bool:
    """Whether the value at `path` could be set; a path through a union or an object is left alone."""
    for step in path[:-1]:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return False
    if isinstance(values, dict | list):
        values[path[-1]] = value  # type: ignore[index]
    return isinstance(values, dict | list)


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a file; an empty file has none."""
    hint = "Settings are lines like 'seed: 42'"
    try:
        with explain_os_errors(path):
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8", "Save it as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{where}: not valid YAML", hint) from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected settings, not a {type(content).__name__}", hint)
    return content


def split_pairs(flag: str, texts: Sequence[str], *, bare: bool = False) -> dict[str, str]:
    """`NAME=VALUE` texts of one flag; with `bare` a NAME alone has an empty value."""
    pairs = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name.strip() or not (value.strip() or bare):
            raise ConfigError(f"{flag} {text} is not NAME=VALUE", f"Example: {flag} seed=7" if flag == "--set" else "")
        pairs[name.strip()] = value.strip()
    return pairs


def _put(values: dict[str, Any], kind: type[BaseModel], name: str, value: Any) -> None:
    """Set `a.b.c` inside the value of `a` so far, from the file or the default. A path that leads nowhere is refused later."""
    head, *path = name.split(".")
    if not path or head not in kind.model_fields:
        values[name] = value
        return
    if head not in values:
        values[head] = kind.model_fields[head].get_default(call_default_factory=True)
    inner = values[head] = TypeAdapter(Any).dump_python(values[head])  # a copy of plain dicts
    for step in path[:-1]:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner[path[-1]] = value
    else:
        values[name] = value


def _value(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"--set {name}={text}: the value is not valid YAML", "Example: --set seed=7") from None


def _explain(error: ValidationError, kind: type[BaseModel]) -> list[str]:
    """One part per problem, with the name and the value that the user gave."""
    parts = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _names_beside(kind, problem["loc"])
            guess = did_you_mean(str(problem["loc"][-1]), known)
            hint = f"did you mean {guess}?" if guess else f"known: {', '.join(known)}"
            parts.append(f"unknown setting '{name}' ({hint})")
        elif problem["type"] == "missing" or not name:
            parts.append(f"{name} {problem_text(problem)}".strip())
        else:
            parts.append(f"{name} is {repr(problem['input'])[:80]}: {problem_text(problem)}")
    return parts


def _names_beside(kind: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The settings that could stand where `path` ends: `parts.chain.wieght` stands in the model of one part."""
    for step in path[:-1]:
        if field := kind.model_fields.get(str(step)):
            inner = (field.annotation, *get_args(field.annotation))
            kind = next((part for part in inner if isinstance(part, type) and issubclass(part, BaseModel)), kind)
    return list(kind.model_fields)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or nothing."""
    names = list(known)
    same_end = [other for other in names if other.endswith(f".{name}")]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.7) or same_end), "")


_RULES = {
    "missing": "is missing", "extra_forbidden": "unknown name", "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}", "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}", "finite_number": "must be a finite number",
    "literal_error": "must be {expected}", "enum": "must be {expected}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters", "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}  # fmt: skip
_TYPES = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "text", "path": "a path", "date": "a date",
    "datetime": "a date and time", "list": "a list", "tuple": "a list", "set": "a list",
    "dict": "a mapping of names to values", "model": "a mapping of names to values",
}  # fmt: skip


def problem_list(error: ValidationError, whole: str) -> str:
    """Fields and what is wrong with them, without their content, which may be patient text; `whole` names the value itself."""
    problems = error.errors(include_input=False, include_url=False)
    return "; ".join(f"{'.'.join(map(str, problem['loc'])) or whole}: {problem_text(problem)}" for problem in problems)


def problem_text(problem: ErrorDetails) -> str:
    """What one problem of a pydantic model is, in plain words and without the value."""
    kind, context = problem.get("type", ""), problem.get("ctx", {})
    if kind in _RULES:
        return _RULES[kind].format_map(
            {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
        )
    if kind == "string_pattern_mismatch":
        return _pattern_text(context["pattern"])
    if (expected := _TYPES.get(kind.split("_")[0])) and kind.endswith(("_type", "_parsing", "_from_float", "_attributes_type")):
        return f"must be {expected}"
    text = problem["msg"].removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _pattern_text(pattern: str) -> str:
    if pattern == RUN_NAME:
        return "use up to 64 letters, digits, '.', '-' and '_', beginning with a letter or a digit"
    return "must begin with http:// or https://" if pattern.startswith("^https?://") else "has characters that are not allowed"


def import_object(kind: str, name: str, method: str) -> Any:
    """A person's own part as `module:object`: something with `method`, or a class or function that returns it."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"There is no {kind} '{name}'", "Use a name from the docs, or your own as module:object")
    try:
        target = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise ConfigError(f"The {kind} '{name}' cannot be imported", "Check the module and the name after the colon") from None
    try:
        return target() if isinstance(target, type) or not hasattr(target, method) else target
    except TypeError:
        hint = f"Name a {kind}, or a class or function that returns one"
        raise ConfigError(f"'{name}' cannot be called without arguments", hint) from None
