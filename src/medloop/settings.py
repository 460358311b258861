"""Settings and the workspace: built by a door (CLI, HTTP, a test), never at import.

A value comes from the first of these that names it: a flag, the environment (`MEDLOOP_SEED=7`), the workspace's
`medloop.yaml`, the default. `Resolved.origins` remembers which, and `medloop config show` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from medloop.errors import ConfigError
from medloop.knobs import read_yaml

CONFIG_NAME = "medloop.yaml"
ENV_PREFIX = "MEDLOOP_"
OTHER_NAMES = {"reward_device": "REWARD_DEVICE"}  # names that other programs use for the same setting; ours wins over them


class Settings(BaseModel):
    """One field per setting; the sentence is what `medloop config show` and the docs say about it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path = Field(description="The workspace folder.")
    database_url: SecretStr = Field(
        SecretStr(""), description="SQLAlchemy URL of the store; empty means SQLite in the workspace (medloop.db)."
    )
    encryption_key: SecretStr = Field(
        SecretStr(""), description="Base64 of 32 bytes that encrypt stored text; empty means the key file."
    )
    key_file: Path | None = Field(None, description="Key file; empty means keys/master.key in the workspace.")
    model: str = Field("embedded:tiny", description="Base model: embedded:NAME, a local folder, or a hub id.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where models run; auto takes a GPU if there is one.")
    reward_device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu", description="Where the encoders of the relevance rewards run; REWARD_DEVICE names it too."
    )
    threads: int = Field(0, ge=0, description="Torch threads on the CPU; 0 means one per core.")
    seed: int = Field(42, ge=0, description="Seed of everything random.")
    offline: bool = Field(False, description="Never reach for a model hub, even for a hub id.")
    rollout_key: SecretStr = Field(SecretStr(""), description="Key of the vLLM server that rollout_url names; empty: none.")
    retrain_every: int = Field(
        1000, ge=0, description="New usable feedback records after which training again is proposed; 0 means never."
    )
    jobs_waiting: int = Field(50, ge=1, description="Training jobs that may wait at once; over HTTP the next one is refused.")
    jobs_waiting_each: int = Field(10, ge=1, description="Training jobs of one person that may wait at once, over HTTP.")
    teacher_key: SecretStr = Field(
        SecretStr(""), description="Key of the teacher's service; empty means the environment's DEEPSEEK_API_KEY, else none."
    )

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.home)

    def find(self, name: str) -> Path:
        """A file that a run names: from here if it is there, else from the workspace."""
        given = Path(name).expanduser()
        return given if given.exists() else self.home / given

    @property
    def url(self) -> str:
        """The store's URL, with the embedded default filled in."""
        return self.database_url.get_secret_value() or f"sqlite:///{self.workspace.database}"

    @property
    def master_key_file(self) -> Path:
        return self.key_file or self.workspace.keys / "master.key"


@dataclass(frozen=True)
class Workspace:
    """Where everything lies; all paths of the loop in one place."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / CONFIG_NAME

    @property
    def database(self) -> Path:
        return self.home / "medloop.db"

    @property
    def keys(self) -> Path:
        return self.home / "keys"

    @property
    def raw(self) -> Path:
        return self.home / "data/raw"

    @property
    def processed(self) -> Path:
        return self.home / "data/processed"

    @property
    def preferences(self) -> Path:
        return self.home / "data/preferences"

    @property
    def rl(self) -> Path:
        return self.home / "data/rl"

    @property
    def models(self) -> Path:
        return self.home / "models"

    @property
    def jobs(self) -> Path:
        return self.home / "jobs"

    @property
    def reports(self) -> Path:
        return self.home / "reports"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    def folders(self) -> tuple[Path, ...]:
        """Every folder that `medloop init` makes."""
        models = tuple(self.models / kind for kind in ("lora", "full", "reward", "rl"))
        reports = (self.reports / "rl_stage", self.reports / "inspect")
        data = (self.raw, self.processed, self.preferences, self.rl)
        return (*data, *models, self.jobs, *reports, self.logs / "deepseek_teacher", self.keys)


@dataclass(frozen=True)
class Resolved:
    settings: Settings
    origins: dict[str, str]


def find_home(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a `medloop.yaml`, as git finds its repository."""
    return next((p for p in (start, *start.parents) if (p / CONFIG_NAME).is_file()), None)


def resolve(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    must_exist: bool = True,
) -> Resolved:
    """Settings with the origin of each value; every problem found is named in one error."""
    environ = os.environ if environ is None else environ
    flags = {k: v for k, v in (flags or {}).items() if v is not None}
    home, origin = _find_workspace(flags, environ, cwd or Path.cwd(), must_exist)
    values: dict[str, Any] = {"home": home}
    origins = {"home": origin}
    for layer, found in (
        (f"{home / CONFIG_NAME}", read_yaml(home / CONFIG_NAME) if (home / CONFIG_NAME).is_file() else {}),
        *((f"environment {variable}", {name: environ[variable]}) for name, variable in _variables(environ)),
        ("flag", {k: v for k, v in flags.items() if k != "home"}),
    ):
        for name, value in found.items():
            values[name], origins[name] = value, layer
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, origins), "Run 'medloop config show' for the list of settings") from None
    return Resolved(settings, {name: origins.get(name, "default") for name in Settings.model_fields})


def _find_workspace(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, must_exist: bool) -> tuple[Path, str]:
    if "home" in flags:
        home, origin = Path(flags["home"]), "flag"
    elif environ.get(ENV_PREFIX + "HOME"):
        home, origin = Path(environ[ENV_PREFIX + "HOME"]), f"environment {ENV_PREFIX}HOME"
    elif found := find_home(cwd):
        home, origin = found, "nearest medloop.yaml"
    else:
        home, origin = cwd, "current folder"
    home = home.expanduser().absolute()
    if must_exist and not (home / CONFIG_NAME).is_file():
        raise ConfigError(
            f"{home} is not a medloop workspace", "Make one with: medloop init DIR, then work inside it or set MEDLOOP_HOME"
        )
    return home, origin


def _variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """(setting, variable) of what the environment says; of two names for one setting ours comes last and wins."""
    ours = ((name, ENV_PREFIX + name.upper()) for name in Settings.model_fields if name != "home")
    return [(name, variable) for name, variable in (*OTHER_NAMES.items(), *ours) if environ.get(variable, "") != ""]


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    """All problems in one sentence, each with its setting and origin; secret values are never repeated."""
    parts = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            parts.append(f"unknown setting '{name}' ({origins.get(name, '?')})")
        else:
            parts.append(f"'{name}' ({origins.get(name, '?')}): {problem['msg'].lower()}")
    return "Settings: " + "; ".join(parts)
