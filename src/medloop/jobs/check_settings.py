"""Whether the settings in a request fit their stage, before anything is written. No torch: it runs where a request comes in."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from medloop.contracts import TrainRequest
from medloop.errors import ConfigError
from medloop.jobs import requests
from medloop.loop.train import STAGES
from medloop.reward.dynamic import DwConfig
from medloop.settings import Settings

TOLD = 20  # problems in one answer
REWARDS = {"rel", "faith", "conc"}  # that dynamic weights are for


class MisfitError(ConfigError):
    """Settings that do not fit. `problems` are pairs of a field's place in the request and what is wrong; no values."""

    def __init__(self, problems: list[tuple[str, str]], known: str) -> None:
        self.problems = problems[:TOLD]
        super().__init__("; ".join(f"{field}: {problem}" for field, problem in self.problems), known)


def check(request: TrainRequest, settings: Settings) -> None:
    """All problems at once (MisfitError), each with its field as the request names it."""
    values = requests.wanted(request, "job", settings)
    kind = STAGES[request.stage].config
    found = [(_place(request, problem["loc"]), _words(problem)) for problem in _problems(kind, values)]
    if isinstance(values.get("dw_config"), dict):
        found += _weights(_place(request, ("dw_config",)), values["dw_config"])
    if found:
        raise MisfitError(
            found, f"Settings of {request.stage}: {', '.join(name for name in kind.model_fields if name != 'model')}"
        )


def _problems(kind: type[BaseModel], values: dict[str, Any]) -> list[ErrorDetails]:
    try:
        kind.model_validate(values)
    except ValidationError as error:
        return error.errors(include_input=False, include_url=False)
    return []


def _weights(place: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    """The dynamic weights of IRS, by the model that will hold them."""
    found = [(_path(place, problem["loc"]), _words(problem)) for problem in _problems(DwConfig, values)]
    named = values.get("initial_weights")
    if not found and isinstance(named, dict) and set(named) != REWARDS:
        found = [(f"{place}.initial_weights", f"weights are for {', '.join(sorted(REWARDS))}")]
    return found


def _place(request: TrainRequest, loc: tuple[int | str, ...]) -> str:
    """Where the caller wrote it: a value can come from several places, and the last one counts (requests.wanted)."""
    if not loc:
        return "config"
    head = str(loc[0])
    if head == "model":
        return "model_id"
    if getattr(request, head, None) is not None and head in ("n_iterations", "n_questions", "top_k"):
        return _path(head, loc[1:])
    return _path("config" if head in request.config or request.stage != "IRS" else "irs_config", loc)


def _path(place: str, loc: tuple[int | str, ...]) -> str:
    """A name that the caller made up is cut, and nothing else of theirs is repeated."""
    parts = [str(part)[:64] for part in loc]
    return ".".join([place, *(part if part.isprintable() else "?" for part in parts)])


def _words(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such setting"
    said = problem["msg"].removeprefix("Value error, ")
    return said[:1].lower() + said[1:200]
