"""Settings and the workspace: built by the command, the server or a test, never at import.

Each setting has one name, a dotted path: `teacher.key` is `settings.teacher.key` in code, `teacher:` with `key:` below it in the
workspace's `medloop.yaml`, `--set teacher.key=…` on the command line and `MEDLOOP_TEACHER__KEY` in the environment.

A value comes from the first of these that names it: a flag, the environment, `medloop.yaml`, the default.
`ResolvedSettings.origins` remembers which, and `medloop config show` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from medloop.errors import ConfigError
from medloop.knobs import did_you_mean, problem_text, read_yaml, validated
from medloop.sections import (
    DatabaseSettings,
    DeploySettings,
    Device,
    EvaluateSettings,
    GatewaySettings,
    LabelStudioSettings,
    LangfuseSettings,
    Networks,
    RagasSettings,
    RegistrySettings,
    RewardSettings,
    RolloutSettings,
    Section,
    TeacherSettings,
    TelemetrySettings,
)

CONFIG_NAME = "medloop.yaml"
RESTORING = ".restoring"  # in a workspace: a restore that has not ended
ASIDE = "before-restore"  # begins the name of what a restore set aside; no part of the workspace
ENV_PREFIX = "MEDLOOP_"
# Variables that other programs define for the same setting; ours wins over them.
FOREIGN_VARIABLES = {
    "reward.device": "REWARD_DEVICE", "teacher.key": "DEEPSEEK_API_KEY", "registry.token": "MLFLOW_TRACKING_TOKEN",
    "langfuse.url": "LANGFUSE_BASE_URL", "langfuse.public_key": "LANGFUSE_PUBLIC_KEY",
    "langfuse.secret_key": "LANGFUSE_SECRET_KEY", "label_studio.url": "LABEL_STUDIO_URL",
    "label_studio.token": "LABEL_STUDIO_API_KEY",
}  # fmt: skip


class FeedbackSettings(Section):
    retrain_every: int = Field(
        1000, ge=0, description="New usable feedback records after which retraining is proposed; 0: never."
    )
    retrain_days: int = Field(
        7, ge=0, description="Days after which fewer new usable records (at least 50) are a reason to retrain, too; 0: never."
    )
    retrain_raters: int = Field(
        2, ge=1, le=100,
        description="Raters that it takes: of new records, nobody's count for more than this share; 1: one rater is enough.",
    )  # fmt: skip
    retrain_cooldown_hours: float = Field(
        24, ge=0, le=8760, description="Hours after a retrain trigger in which there is no other one, for any reason; 0: none."
    )


class PrivacySettings(Section):
    allow_file: Path | None = Field(
        None,
        description="Terms that the scrubber leaves alone, one a line ('privacy allow'); empty: allow.txt in the workspace.",
    )
    erased_file: Path | None = Field(
        None,
        description="A second copy of the register of erasures (keys/erased.jsonl), outside the workspace and its backups.",
    )


class ApiSettings(Section):
    trusted_proxies: Networks = Field(
        "",
        description="Addresses or networks of the proxies in front of the API, separated by commas, such as "
        "127.0.0.1, 10.0.0.0/8; X-Forwarded-For is believed from them alone.",
    )


class AuditSettings(Section):
    anchor_file: Path | None = Field(
        None, description="File on another disk to which 'medloop audit anchor' adds the newest hash of the log; empty: none."
    )
    syslog: str = Field(
        "",
        pattern=r"^(/.+|udp://[^/@]+)?$",
        description="System's log that gets the newest hash too: /dev/log, or udp://HOST:PORT; empty: none.",
    )
    timestamp_url: str = Field(
        "",
        pattern=r"^(https?://[^@]+)?$",
        description="Time-stamping service (RFC 3161) that signs the newest hash; empty: none.",
    )
    timestamp_certificate: Path | None = Field(
        None, description="PEM file with the certificate of that service, or of its issuer; its tokens are checked with it."
    )


class BackupSettings(Section):
    folder: Path | None = Field(
        None, description="Where 'medloop backup' puts its backups, best on another disk; empty: name it in the command."
    )
    key_file: Path | None = Field(None, description="Key file of the backups; empty: keys/backup.key in the workspace.")
    key: SecretStr = Field(SecretStr(""), description="Base64 of the 32 bytes that encrypt backups; empty: the key file is used.")


class JobSettings(Section):
    max_waiting: int = Field(50, ge=1, description="Most training jobs that may wait at once; over HTTP the next one is refused.")
    max_waiting_per_user: int = Field(10, ge=1, description="Most training jobs of one user that may wait at once, over HTTP.")


class Settings(Section):
    """One field per setting; the sentence is what `medloop config show` and the docs say about it."""

    home: Path = Field(description="The workspace folder.")
    model: str = Field("embedded:tiny", description="Base model: embedded:NAME, a local folder, a GGUF file, or a hub id.")
    device: Device = Field("auto", description="Where models run; auto takes a GPU if there is one.")
    threads: int = Field(0, ge=0, description="Torch threads on the CPU; 0: one per core.")
    seed: int = Field(42, ge=0, description="Seed of everything random.")
    offline: bool = Field(False, description="Never contact a model hub, even for a hub id.")
    database: DatabaseSettings = DatabaseSettings()
    teacher: TeacherSettings = TeacherSettings()
    reward: RewardSettings = RewardSettings()
    rollout: RolloutSettings = RolloutSettings()
    ragas: RagasSettings = RagasSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    privacy: PrivacySettings = PrivacySettings()
    registry: RegistrySettings = RegistrySettings()
    langfuse: LangfuseSettings = LangfuseSettings()
    label_studio: LabelStudioSettings = LabelStudioSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    deploy: DeploySettings = DeploySettings()
    jobs: JobSettings = JobSettings()
    api: ApiSettings = ApiSettings()
    gateway: GatewaySettings = GatewaySettings()
    backup: BackupSettings = BackupSettings()
    audit: AuditSettings = AuditSettings()

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.home)

    def find(self, name: str) -> Path:
        """A file that a run names: from here if it is there, else from the workspace."""
        given = Path(name).expanduser()
        return given if given.exists() else self.home / given

    def get(self, name: str) -> Any:
        """The value of a setting by its dotted name; secrets as plain text."""
        value: Any = self
        for part in name.split("."):
            value = getattr(value, part)
        return value.get_secret_value() if isinstance(value, SecretStr) else value

    @property
    def store_url(self) -> str:
        """The store's URL, with the embedded default filled in."""
        return self.database.url.get_secret_value() or f"sqlite:///{self.workspace.database}"

    @property
    def trusted_proxies(self) -> tuple[str, ...]:
        return tuple(self.api.trusted_proxies.replace(",", " ").split())

    @property
    def allow_file(self) -> Path:
        return self.privacy.allow_file or self.home / "allow.txt"

    @property
    def master_key_file(self) -> Path:
        return self.database.key_file or self.workspace.keys / "master.key"

    @property
    def backup_key_file(self) -> Path:
        return self.backup.key_file or self.workspace.keys / "backup.key"


def _sections() -> dict[str, type[Section]]:
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}


def _fields() -> dict[str, FieldInfo]:
    fields = {name: field for name, field in Settings.model_fields.items() if name not in SECTIONS}
    return fields | {f"{section}.{name}": f for section, kind in SECTIONS.items() for name, f in kind.model_fields.items()}


SECTIONS = _sections()
FIELDS = _fields()  # every setting by its dotted name


def is_secret(name: str) -> bool:
    return FIELDS[name].annotation is SecretStr


def variable(name: str) -> str:
    """The environment variable of a setting: `teacher.key` is `MEDLOOP_TEACHER__KEY`."""
    return ENV_PREFIX + name.replace(".", "__").upper()


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
    def registry(self) -> Path:
        return self.home / "registry"

    @property
    def serving(self) -> Path:
        return self.home / "serving"

    @property
    def jobs(self) -> Path:
        return self.home / "jobs"

    @property
    def reports(self) -> Path:
        return self.home / "reports"

    @property
    def answer_cache(self) -> Path:
        """What models answered in evaluations, by the hash of the prompt; every erasure empties it."""
        return self.reports / "eval" / "answers"

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
class ResolvedSettings:
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
) -> ResolvedSettings:
    """Settings with the origin of each value; one error names every problem."""
    environ = os.environ if environ is None else environ
    flags = {k: v for k, v in (flags or {}).items() if v is not None}
    home, origin = _find_workspace(flags, environ, cwd or Path.cwd(), must_exist)
    values: dict[str, Any] = {"home": home}
    origins = {"home": origin}
    problems = _misspelt_variables(environ)
    for layer, given in (
        (f"{home / CONFIG_NAME}", _flat(read_yaml(home / CONFIG_NAME)) if (home / CONFIG_NAME).is_file() else {}),
        *((f"environment {key}", {name: environ[key]}) for name, key in _variables(environ)),
        ("flag", {k: v for k, v in flags.items() if k != "home"}),
    ):
        problems += [_unknown(name, layer) for name in given if name not in FIELDS]
        for name in given.keys() & FIELDS.keys():
            values[name], origins[name] = given[name], layer
    try:
        settings = validated(Settings, _nested(values))
    except ValidationError as error:
        problems += [_wrong(problem, origins) for problem in error.errors()]
    if problems:
        raise ConfigError("Settings: " + "; ".join(problems), "'medloop config show' lists all settings")
    return ResolvedSettings(settings, {name: origins.get(name, "default") for name in FIELDS})


def _find_workspace(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, must_exist: bool) -> tuple[Path, str]:
    if "home" in flags:
        home, origin = Path(flags["home"]), "flag"
    elif environ.get(variable("home")):
        home, origin = Path(environ[variable("home")]), f"environment {variable('home')}"
    elif nearest := find_home(cwd):
        home, origin = nearest, "nearest medloop.yaml"
    else:
        home, origin = cwd, "current folder"
    home = home.expanduser().absolute()
    if must_exist and (home / RESTORING).exists():
        raise ConfigError(f"{home} was not restored completely", "Run the same 'medloop restore' again to finish it")
    if must_exist and not (home / CONFIG_NAME).is_file():
        raise ConfigError(
            f"{home} is not a medloop workspace", "Make one with: medloop init DIR, then work inside it or set MEDLOOP_HOME"
        )
    return home, origin


def _variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """(setting, variable) of what the environment sets; of two variables for one setting ours comes last and wins."""
    ours = ((name, variable(name)) for name in FIELDS if name != "home")
    return [(name, key) for name, key in (*FOREIGN_VARIABLES.items(), *ours) if environ.get(key, "") != ""]


def _misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like a setting's, because a store in the wrong place is worse than an error. Others are left alone."""
    known = [variable(name).removeprefix(ENV_PREFIX) for name in FIELDS]
    names = [key.removeprefix(ENV_PREFIX) for key in environ if key.startswith(ENV_PREFIX)]
    guesses = {name: did_you_mean(name, known) for name in names if name not in known}
    return [
        f"unknown variable {ENV_PREFIX}{name} (did you mean {ENV_PREFIX}{guess}?)" for name, guess in guesses.items() if guess
    ]


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file by their dotted names; an empty section sets nothing."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if name in SECTIONS and isinstance(value, dict | None):
            flat.update({f"{name}.{key}": inner for key, inner in (value or {}).items()})
        else:
            flat[str(name)] = value
    return flat


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[key] = value
    return nested


def _unknown(name: str, origin: str) -> str:
    if name in SECTIONS:
        return f"'{name}' ({origin}) is a section; set {' or '.join(f'{name}.{key}' for key in SECTIONS[name].model_fields)}"
    guess = did_you_mean(name, FIELDS)
    return f"unknown setting '{name}' ({origin}{f'; did you mean {guess}?' if guess else ''})"


def _wrong(problem: ErrorDetails, origins: Mapping[str, str]) -> str:
    """A value that does not fit, with its origin; secrets are never repeated."""
    name = ".".join(map(str, problem["loc"][: 2 if problem["loc"][0] in SECTIONS else 1]))
    value = "" if is_secret(name) else f" is {problem['input']!r}"
    return f"{name}{value} ({origins.get(name, '?')}): {problem_text(problem)}"
