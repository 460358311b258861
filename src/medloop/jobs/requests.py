"""From a request to the config of its stage, and what is wrong with it, before anything is written. No torch.

A request over HTTP is held to more: paths stay inside the folders that training is for, and no code is named. Whoever sits at the
keyboard may name what they like, but for the keys, the database and the settings (named_files.py).
"""

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from medloop.contracts import IRSConfig, ModelRef, TrainRequest
from medloop.contracts.gate_config import GateConfig
from medloop.errors import ConfigError
from medloop.jobs import named_files
from medloop.knobs import did_you_mean, problem_text, validated
from medloop.loop.train import STAGES
from medloop.models.find import EMBEDDED, adapters_named
from medloop.reward.dynamic import DwConfig
from medloop.settings import Settings

GIVEN = ("teacher", "model", "rel", "faith", "conc")  # parts of a reward that are ours; any other name would be code
DYNAMIC_REWARDS = {"rel", "faith", "conc"}  # those that dynamic weights are for
IRS_FIELDS = ("n_iterations", "n_questions", "top_k")  # of a request, beside irs_config
MAX_PROBLEMS = 20  # in one answer
YES_OR_NO = TypeAdapter(bool)
PLAIN_NAME = re.compile(r"[a-z_]{1,40}")


class InvalidConfigError(ConfigError):
    """A config that does not fit its stage. `problems` are pairs of a field of the request and what is wrong; no values."""

    def __init__(self, problems: list[tuple[str, str]], hint: str) -> None:
        self.problems = problems[:MAX_PROBLEMS]
        super().__init__("; ".join(f"{field}: {problem}" for field, problem in self.problems), hint)


def config_values(request: TrainRequest, job_id: str, settings: Settings) -> dict[str, Any]:
    """The values for the stage's config. Without a `name` the result is named like the job."""
    values: dict[str, Any] = {"name": job_id, "seed": settings.seed, **request.config}
    values["model"] = request.model_id or settings.model
    if request.stage == "IRS":
        values = {**(request.irs_config or IRSConfig()).model_dump(mode="json"), **values}
        with suppress(ValidationError):  # what is neither yes nor no is left to be refused
            values["load_in_4bit"] = YES_OR_NO.validate_python(values["load_in_4bit"]) and supports_4bit(settings)
        values.update({name: value for name in IRS_FIELDS if (value := getattr(request, name)) is not None})
    return values


def supports_4bit(settings: Settings) -> bool:
    """An IRS request asks for 4 bits by default; they need a GPU and bitsandbytes. The card says what really ran."""
    gpu = settings.device != "cpu" and Path("/dev/nvidia0").exists()
    return gpu and importlib.util.find_spec("bitsandbytes") is not None


def check_fields(request: TrainRequest) -> None:
    """What the contract alone cannot say: which fields belong to which stage."""
    if request.stage != "IRS":
        stray = [name for name in ("irs_config", *IRS_FIELDS) if getattr(request, name) is not None]
        if stray:
            raise ConfigError(f"{', '.join(stray)}: only for stage IRS", f"Settings of {request.stage} go into config")
    if "model" in request.config:
        raise ConfigError("config.model: the model is named by model_id", "Leave it out of config")


def check_config(request: TrainRequest, settings: Settings) -> None:
    """All problems at once (InvalidConfigError), each with its field as the request names it."""
    values = config_values(request, "job", settings)
    model = STAGES[request.stage].config
    problems = [(_field(request, problem["loc"]), _words(problem, model)) for problem in _validate(model, values)]
    if isinstance(values.get("dw_config"), dict):
        problems += _check_dynamic_weights(_field(request, ("dw_config",)), values["dw_config"])
    if problems:
        names = ", ".join(name for name in model.model_fields if name != "model")
        raise InvalidConfigError(problems, f"Settings of {request.stage}: {names}")


def _validate(model: type[BaseModel], values: dict[str, Any]) -> list[ErrorDetails]:
    try:
        validated(model, values)
    except ValidationError as error:
        return error.errors(include_input=False, include_url=False)
    return []


def _check_dynamic_weights(field: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    """The dynamic weights of IRS, by the model that will hold them."""
    problems = [(_path(field, problem["loc"]), _words(problem, DwConfig)) for problem in _validate(DwConfig, values)]
    weights = values.get("initial_weights")
    if not problems and isinstance(weights, dict) and set(weights) != DYNAMIC_REWARDS:
        problems = [(f"{field}.initial_weights", f"name the weights of {', '.join(sorted(DYNAMIC_REWARDS))}")]
    return problems


def _field(request: TrainRequest, loc: tuple[int | str, ...]) -> str:
    """Where the caller wrote it: a value can come from several places, and the last one counts (`config_values`)."""
    if not loc:
        return "config"
    head = str(loc[0])
    if head == "model":
        return "model_id"
    if head in IRS_FIELDS and getattr(request, head) is not None:
        return _path(head, loc[1:])
    return _path("config" if head in request.config or request.stage != "IRS" else "irs_config", loc)


def _path(field: str, loc: tuple[int | str, ...]) -> str:
    """A name that the caller made up is cut, and nothing else of theirs is repeated."""
    parts = [str(part)[:64] for part in loc]
    return ".".join([field, *(part if part.isprintable() else "?" for part in parts)])


def _words(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """What is wrong, without the value."""
    guess = did_you_mean(str(problem["loc"][-1]), model.model_fields) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        return "there is no such setting" + (f" (did you mean {guess}?)" if guess else "")
    return problem_text(problem)[:200]


def check_remote(request: TrainRequest, settings: Settings) -> None:
    """A request that came over HTTP: every path in it is relative, lies where a job may read, and it names no code."""
    for field, text in _named(request, settings):
        _check_inside(field, text)
        if field != "config.name":  # of the result: it is written under models/
            named_files.refuse_outside(field, text, settings)
    given = request.config.get("given", {})
    if not isinstance(given, dict) or set(given) - set(GIVEN):
        raise ConfigError("config.given: only known parts of a reward are allowed", f"Known: {', '.join(GIVEN)}")


def gate_models(model: str, baseline: str | None, settings: Settings) -> list[ModelRef | None]:
    """The models of a gate over HTTP, `BASE` or `BASE+ADAPTER`: names of what lies in the workspace, or comes with medloop."""
    refs: list[ModelRef | None] = []
    for field, spec in (("model", model), ("baseline", baseline)):
        if spec is None:
            refs.append(None)
            continue
        base, plus, adapter = spec.rpartition("+") if "+" in spec else (spec, "", "")
        if not base or (plus and not adapter):
            raise ConfigError(f"{field}: not BASE or BASE+ADAPTER", "Example: embedded:tiny+sft")
        for part in (base.removeprefix("embedded:"), *([adapter] if plus else [])):
            _check_inside(field, part)
            named_files.refuse_outside(field, part, settings)
        if base not in EMBEDDED and not workspace_path(base, settings).is_dir():
            raise ConfigError(f"{field}: this workspace has no such base model", f"Known by name: {', '.join(EMBEDDED)}")
        places = (workspace_path(adapter, settings), settings.workspace.models / adapter, *adapters_named(adapter, settings))
        if plus and not any(place.is_dir() for place in places):
            raise ConfigError(f"{field}: this workspace has no such adapter", "'medloop registry list' shows the models")
        refs.append(ModelRef(base=base, adapter=adapter or None))
    return refs


def check_gate(config: GateConfig) -> None:
    """Settings of a gate over HTTP: suites and rules by the names that medloop gives them. No files, no code."""
    for field in ("suites", "required_suites", "rules", "splits"):
        if any(not PLAIN_NAME.fullmatch(name) for name in getattr(config, field)):
            raise ConfigError(f"settings.{field}: only names of medloop's own are allowed here", "Others: medloop gate --set")


def check_closed(request: TrainRequest, settings: Settings) -> None:
    """Any request: no file in it is a secret of the workspace."""
    for field, text in _named(request, settings):
        named_files.refuse_closed(field, text, settings)


def _named(request: TrainRequest, settings: Settings) -> Iterator[tuple[str, str]]:
    """Every text of a request that is or may become a path, with its field; the workspace's own model is not a request."""
    if request.model_id is not None and request.model_id != settings.model:
        yield "model_id", request.model_id.removeprefix("embedded:")
    yield from _texts(request.config, "config")


def _check_inside(field: str, text: str) -> None:
    """The value is not repeated: it may be anything."""
    path = PurePosixPath(text)
    odd = any(sign in text for sign in "\0\\#?%\n\r") or "://" in text or text.startswith(("~", "file:"))
    if odd or not text.isprintable() or path.is_absolute() or {"..", "\uff0e\uff0e", "\u2025"} & set(path.parts):
        raise ConfigError(f"{field}: not a name inside the workspace", "Name it relative to the workspace, without ..")


def input_paths(request: TrainRequest, settings: Settings) -> list[Path]:
    """Files and folders of the workspace that a job reads: those of its stage, and everything that its config names."""
    home = settings.home
    names = [request.model_id or settings.model, *(text for _, text in _texts(request.config))]
    # An adapter may be called by its name alone. An empty text, or one that is the whole workspace, names nothing in it.
    places = [p for name in names if Path(name).parts for p in (workspace_path(name, settings), *adapters_named(name, settings))]
    named = [path.resolve() for path in places if os.path.exists(path) and not home.is_relative_to(path)]
    return [(home / STAGES[request.stage].data.reads).resolve(), *named]


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a config with its field, however deep: whether it is a path today or will be one with the next setting."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{field}.{name}" if str(name).isidentifier() else f"{field}.*")
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, field)


def workspace_path(name: str, settings: Settings) -> Path:
    """A file or folder that a request names, from the workspace: workers run there, wherever the request came from."""
    return settings.home / Path(name).expanduser()
