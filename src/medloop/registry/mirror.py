"""MLflow as the registry's mirror: its SQLite store in the workspace (`registry/`), or a server by URL. One seam for both.

    with open_mirror(settings) as mirror:
        number, run = mirror.add(record, folder, card)      # again after a kill: finds what is there and goes on
        mirror.set_alias("champion", number)
        mirror.download(number, target)                     # the bytes that MLflow gives to whoever asks for this version

MLflow is imported here and nowhere else, when a mirror is opened: it takes seconds. Its telemetry is off, and with the SQLite
store nothing leaves the machine. What goes wrong with MLflow is a MirrorError: medloop's own store holds the truth, and the next
command tries again. Not here: what may be promoted (store/records/registry.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import ModelVersion
from medloop.contracts.registry import Alias
from medloop.errors import MedloopError, StoreError, explain_os_error
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write, make_folder
from medloop.store.files.lock import locked_file

DATABASE, ARTIFACTS, PLACE, LOCK = "mlflow.db", "artifacts", "place", ".lock"
BYTES, CARD = "adapter", "README.md"  # in a run: the sealed folder, and the card for people
ARTIFACT_TAG, VERSION_TAG = "medloop.artifact", "medloop.version"
WAIT_S = 60.0  # for another process that talks to the same mirror
MAX_DESCRIPTION = 5000  # characters that every backend of MLflow can hold
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "GIT_PYTHON_REFRESH": "quiet",
}  # fmt: skip


class MirrorError(StoreError):
    """MLflow cannot be used now; what medloop's store says holds, and MLflow lags behind."""


@dataclass(frozen=True)
class MirroredVersion:
    """What MLflow says about a version; `artifact` is the hash in its tags."""

    number: int
    artifact: str | None
    run: str | None


@contextmanager
def open_mirror(settings: Settings) -> Iterator[Mirror]:
    """The mirror, while no other process of this workspace talks to it."""
    folder, url = settings.workspace.registry, settings.registry.url
    make_folder(folder)
    with locked_file(folder / LOCK, wait_s=WAIT_S, what="MLflow's copy of the registry", mode=0o600), _environment(settings):
        try:
            from mlflow.tracking import MlflowClient  # optional, and takes seconds
        except ModuleNotFoundError:
            raise MirrorError("MLflow is not installed", 'Install it with: pip install "medloop[registry]"') from None
        with _explained(url or str(folder)):
            if not url:
                _make_database(folder)
            uri = url or f"sqlite:///{folder / DATABASE}"
            client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            try:
                yield Mirror(client, uri, settings.registry.model, None if url else folder / ARTIFACTS)
            finally:
                if not url:
                    _close(client)


class Mirror:
    """One registered model in MLflow; made by `open_mirror`. `artifacts` is where the SQLite store keeps the bytes."""

    def __init__(self, client: Any, uri: str, model: str, artifacts: Path | None) -> None:
        self._client, self._uri, self._model, self.artifacts = client, uri, model, artifacts

    @property
    def is_empty(self) -> bool:
        """Nothing of this model was ever sent here."""
        return self._client.get_experiment_by_name(self._experiment_name) is None

    @property
    def _experiment_name(self) -> str:
        return f"medloop/{self._model}"

    def add(self, record: ModelVersion, folder: Path, card: str) -> tuple[int, str]:
        """MLflow's number and run of a version; what an interrupted call left is found by the hash and finished."""
        if known := self.find(record.artifact):
            return known.number, known.run or ""
        run = self._run(record)
        self._log_values(run, record)
        self._client.log_artifacts(run, str(folder), BYTES)
        self._client.log_text(run, card, CARD)
        self._client.set_terminated(run)
        self._make_model()
        made = self._client.create_model_version(
            self._model, source=f"runs:/{run}/{BYTES}", run_id=run, tags=_tags(record), description=card[:MAX_DESCRIPTION]
        )
        return int(made.version), run

    def remove(self, version: MirroredVersion) -> None:
        """Take a version and its run away, because their bytes are not what they should be."""
        self._client.delete_model_version(self._model, str(version.number))
        if version.run:
            self._client.delete_run(version.run)

    def find(self, artifact: str) -> MirroredVersion | None:
        """The version with this hash; the oldest, should somebody have copied its tags."""
        matches = [version for version in self.versions() if version.artifact == artifact]
        return min(matches, key=lambda version: version.number, default=None)

    def versions(self) -> list[MirroredVersion]:
        versions: list[MirroredVersion] = []
        token = None
        while True:
            page = self._client.search_model_versions(f"name='{self._model}'", max_results=200, page_token=token)
            versions += [MirroredVersion(int(v.version), v.tags.get(ARTIFACT_TAG), v.run_id) for v in page]
            if not (token := page.token):
                return sorted(versions, key=lambda version: version.number)

    def aliases(self) -> dict[str, int]:
        from mlflow.exceptions import MlflowException  # optional

        try:
            model = self._client.get_registered_model(self._model)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return {}
            raise
        return {name: int(number) for name, number in model.aliases.items()}

    def set_alias(self, alias: Alias, number: int | None) -> None:
        """Give an alias to MLflow's version `number`, or take it away."""
        if self.aliases().get(alias) == number:
            return
        if number is None:
            self._client.delete_registered_model_alias(self._model, alias)
        else:
            self._client.set_registered_model_alias(self._model, alias, str(number))

    def download(self, number: int, target: Path) -> Path:
        """What MLflow gives to whoever asks for this version, copied below `target`; the caller checks the bytes."""
        from mlflow.artifacts import download_artifacts  # optional

        source = self._client.get_model_version_download_uri(self._model, str(number))
        return Path(download_artifacts(artifact_uri=source, dst_path=str(target), tracking_uri=self._uri, registry_uri=self._uri))

    def _run(self, record: ModelVersion) -> str:
        """The run of these bytes; a new one only if no interrupted call has made it."""
        experiment = self._experiment()
        runs = self._client.search_runs([experiment], f"tags.`{ARTIFACT_TAG}` = '{record.artifact}'", max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        tags = {ARTIFACT_TAG: record.artifact, VERSION_TAG: record.label}
        return str(self._client.create_run(experiment, tags=tags, run_name=record.name).info.run_id)

    def _experiment(self) -> str:
        known = self._client.get_experiment_by_name(self._experiment_name)
        if known is not None:
            return str(known.experiment_id)
        place = None if self.artifacts is None else self.artifacts.absolute().as_uri()
        return str(self._client.create_experiment(self._experiment_name, artifact_location=place))

    def _log_values(self, run: str, record: ModelVersion) -> None:
        from mlflow.entities import Metric, Param  # optional

        moment = int(record.timestamp.timestamp() * 1000)
        numbers = {**record.losses, **{f"eval.{name}": score.mean for name, score in record.scores.items()}}
        metrics = [Metric(_key(name), value, moment, 0) for name, value in numbers.items() if value is not None]
        params = [Param(_key(name), value) for name, value in _facts(record).items()]
        for start in range(0, max(len(metrics), len(params)), 100):  # at most 100 parameters in one request
            self._client.log_batch(run, metrics=metrics[start : start + 100], params=params[start : start + 100])

    def _make_model(self) -> None:
        from mlflow.exceptions import MlflowException  # optional

        try:
            self._client.create_registered_model(self._model, description="Kept by medloop; change its aliases with medloop.")
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise


def _facts(record: ModelVersion) -> dict[str, str]:
    """What led to a version, by name; hashes and versions, never a text."""
    plain = {"method": record.method, "base": record.base, "base_sha256": record.base_sha256, "parent": record.parent}
    plain |= {"report": record.report, "gate": record.gate, "reward": record.reward, "template": record.template}
    named = {f"data.{name}": sha256 for name, sha256 in record.inputs.items()}
    return {name: value for name, value in {**plain, **named}.items() if value is not None}


def _tags(record: ModelVersion) -> dict[str, str]:
    scores = {f"eval.{name}": f"{score.mean:.6g}" for name, score in record.scores.items() if score.mean is not None}
    tags = {ARTIFACT_TAG: record.artifact, VERSION_TAG: record.label, **_facts(record), **scores}
    return {_key(name): value for name, value in tags.items()}


def _key(name: str) -> str:
    """MLflow allows letters, digits, `_ - . / :` and spaces in a name."""
    return "".join(char if (char.isalnum() and char.isascii()) or char in "_-./ " else "_" for char in name)[:250]


def _make_database(folder: Path) -> None:
    """MLflow's SQLite database, made whole or not at all: a kill inside its 60 migrations would leave one that nothing opens.

    MLflow notes whole paths. In a workspace that was moved or copied they lead to the old one, so the database is made anew.
    """
    path, place = folder / DATABASE, folder / PLACE
    if path.exists() and place.is_file() and place.read_text(encoding="utf-8") == str(folder.absolute()):
        return
    path.unlink(missing_ok=True)
    for leftover in folder.glob(".new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # optional

    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as temp:
        new = Path(temp) / DATABASE
        SqlAlchemyStore(f"sqlite:///{new}", (folder / ARTIFACTS).absolute().as_uri()).engine.dispose()
        new.chmod(0o600)
        atomic_write(place, str(folder.absolute()))
        os.replace(new, path)


def _close(client: Any) -> None:
    """MLflow keeps the connections of a database for the life of the process; the file may be another one by the next time."""
    for store in (client._tracking_client.store, client._get_registry_client().store):
        store.engine.dispose()


@contextmanager
def _environment(settings: Settings) -> Iterator[None]:
    """MLflow takes its options from the environment; they are gone again afterwards, so no other process inherits a token."""
    token = settings.registry.token.get_secret_value() if settings.registry.url else ""
    values: Mapping[str, str] = {**QUIET, **({"MLFLOW_TRACKING_TOKEN": token} if token else {})}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn the errors of MLflow and of what is below it into sentences."""
    from mlflow.exceptions import MlflowException  # optional

    try:
        yield
    except MedloopError:
        raise
    except MlflowException as error:
        reason = str(error.message).split("\n", 1)[0][:300]
        raise MirrorError(f"MLflow ({where}) refused: {reason}", "Check registry.url and registry.token") from error
    except OSError as error:  # that of requests is one, too
        if error.errno is None:
            raise MirrorError(f"MLflow ({where}) cannot be reached", "Check that it runs, and registry.url") from error
        raise MirrorError(explain_os_error(error, where, writing=True).what, "Check the disk") from error
