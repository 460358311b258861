"""From a request to the settings of a stage. One visible table says which stages can run as jobs; it needs no torch.

What comes over HTTP is held to more: paths stay inside the workspace, and no code is named. Whoever sits at the keyboard may name
what they like.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from medloop.contracts import IRSConfig, TrainRequest
from medloop.errors import ConfigError
from medloop.loop.train import STAGES
from medloop.settings import Settings

GIVEN = ("teacher", "model", "rel", "faith", "conc")  # parts of a reward that are ours; any other name would be code
YES_OR_NO = TypeAdapter(bool)


def wanted(request: TrainRequest, job_id: str, settings: Settings) -> dict[str, Any]:
    """The values for the stage's settings. Without a name of its own the result is named like the job."""
    values: dict[str, Any] = {"name": job_id, "seed": settings.seed, **request.config}
    values["model"] = request.model_id or settings.model
    if request.stage == "IRS":
        asked = request.irs_config or IRSConfig()
        values = {**asked.model_dump(mode="json"), **values}
        with suppress(ValidationError):  # what is neither yes nor no is left to be refused
            values["load_in_4bit"] = YES_OR_NO.validate_python(values["load_in_4bit"]) and has_four_bits(settings)
        extra = {"n_iterations": request.n_iterations, "n_questions": request.n_questions, "top_k": request.top_k}
        values.update({name: value for name, value in extra.items() if value is not None})
    return values


def has_four_bits(settings: Settings) -> bool:
    """Document 003 asks for 4 bits where they are to be had: a GPU, and bitsandbytes. The card says what really ran."""
    gpu = settings.device != "cpu" and Path("/dev/nvidia0").exists()
    return gpu and importlib.util.find_spec("bitsandbytes") is not None


def check_shape(request: TrainRequest) -> None:
    """What the contract alone cannot say: which fields belong to which stage."""
    if request.stage != "IRS":
        stray = [n for n in ("irs_config", "n_iterations", "n_questions", "top_k") if getattr(request, n) is not None]
        if stray:
            raise ConfigError(f"{', '.join(stray)}: only for stage IRS", f"Settings of {request.stage} go into config")
    if "model" in request.config:
        raise ConfigError("config.model: the model is named by model_id", "Leave it out of config")


def check_stranger(request: TrainRequest, settings: Settings) -> None:
    """A request that came over HTTP: every path in it is relative and inside the workspace, and it names no code."""
    model = request.model_id
    if model is not None and model != settings.model:
        _inside("model_id", model.removeprefix("embedded:"))
    _all_inside("config", request.config)
    given = request.config.get("given", {})
    if not isinstance(given, dict) or set(given) - set(GIVEN):
        raise ConfigError("config.given: only known parts of a reward", f"Known: {', '.join(GIVEN)}")


def _all_inside(field: str, value: Any) -> None:
    """Every text in the settings of a run, whether it is a path today or will be one with the next setting."""
    if isinstance(value, str):
        _inside(field, value)
    elif isinstance(value, dict):
        for name, item in value.items():
            _all_inside(f"{field}.{name}" if str(name).isidentifier() else f"{field}.*", item)
    elif isinstance(value, list):
        for item in value:
            _all_inside(field, item)


def _inside(field: str, text: str) -> None:
    """The value is not repeated: it may be anything."""
    path = PurePosixPath(text)
    odd = any(sign in text for sign in "\0\\#?%\n\r") or "://" in text or text.startswith(("~", "file:"))
    if odd or not text.isprintable() or path.is_absolute() or {"..", "\uff0e\uff0e", "\u2025"} & set(path.parts):
        raise ConfigError(f"{field}: not a name inside the workspace", "Name it relative to the workspace, without ..")


def inputs(request: TrainRequest, settings: Settings) -> list[Path]:
    """Files and folders of the workspace that a job reads: those of its stage, and everything that its settings name."""
    workspace = settings.workspace
    named = [request.model_id or settings.model, *_texts(request.config)]
    # An adapter may be called by its name alone. An empty text, or one that is the whole workspace, names nothing in it.
    places = [place for text in named if Path(text).parts for place in (find(text, settings), workspace.models / "lora" / text)]
    found = [path.resolve() for path in places if os.path.exists(path) and not settings.home.is_relative_to(path)]
    return [*((settings.home / path).resolve() for path in STAGES[request.stage].reads), *found]


def _texts(value: Any) -> Iterator[str]:
    """Every text in the settings of a run, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def find(name: str, settings: Settings) -> Path:
    """A file or folder that a request names, from the workspace: workers run there, wherever a request was taken in."""
    return settings.home / Path(name).expanduser()
