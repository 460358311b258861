"""Is the registry what medloop says it is? Rows, bytes and aliases here and in MLflow, compared.

    report = verify(store)              # every version is downloaded from MLflow and hashed
    report.problems                     # sentences; empty when all is well
    repair(store, actor=actor())        # sends what MLflow lost, and sets its aliases back

medloop's store decides which version is the champion. An alias that somebody moved in MLflow, a version whose bytes differ or
that medloop never registered is a problem; nothing is changed by looking.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import AliasChange, AuditEvent
from medloop.contracts.registry import Alias
from medloop.errors import MedloopError
from medloop.registry.mirror import Mirror, MirroredVersion, MirrorError, open_mirror
from medloop.registry.reconcile import find_bytes, send_pending
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.files.artifacts import folder_sha256, verify_artifact
from medloop.store.records import registry
from medloop.store.records.gates import promotion_refusal
from medloop.store.records.registry import StoredVersion

ALIASES: tuple[Alias, ...] = ("champion", "challenger")


@dataclass(frozen=True)
class RegistryReport:
    """What was compared and what is wrong; `notes` are no faults of the registry, but somebody should know them."""

    versions: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def verify(store: Store) -> RegistryReport:
    """IntegrityError if a row of the store itself was changed past medloop."""
    model = store.settings.registry.model
    stored, held = registry.versions(store, model), registry.current(store, model)
    try:
        with open_mirror(store.settings) as mirror:
            problems = [*_version_problems(mirror, stored), *_alias_problems(mirror, store, stored, held)]
    except MirrorError as error:
        problems = [str(error)]
    return RegistryReport(len(stored), tuple(problems), tuple(_notes(store, stored, held)))


def _version_problems(mirror: Mirror, stored: list[StoredVersion]) -> Iterator[str]:
    there = {version.number: version for version in mirror.versions()}
    for version in stored:
        name = version.record.label
        copy = there.pop(version.mlflow_version, None) if version.mlflow_version is not None else None
        if version.mirrored is None:
            yield f"{name} is not in MLflow yet"
        elif copy is None:
            yield f"{name} is gone from MLflow (it was version {version.mlflow_version} there)"
        elif problem := _bytes_problem(mirror, copy, version.record.artifact):
            yield f"{name}: {problem}"
    for number in sorted(there):
        yield f"MLflow has a version {number} that medloop did not register"


def _bytes_problem(mirror: Mirror, copy: MirroredVersion, artifact: str) -> str | None:
    if copy.artifact != artifact:
        return "its tag in MLflow names other bytes"
    with tempfile.TemporaryDirectory() as folder:
        try:
            sha256 = folder_sha256(mirror.download(copy.number, Path(folder)))
        except MedloopError:
            raise
        except Exception as error:  # whatever a store of artifacts throws: the bytes cannot be had
            return f"its bytes cannot be read from MLflow ({type(error).__name__})"
    return None if sha256 == artifact else "its bytes in MLflow are not those that were registered"


def _alias_problems(mirror: Mirror, store: Store, stored: list[StoredVersion], held: dict[Alias, AliasChange]) -> Iterator[str]:
    ours = {version.mlflow_version: version.record for version in stored if version.mlflow_version is not None}
    numbers = {version.record.version: version.mlflow_version for version in stored}
    waiting = registry.pending(store, store.settings.registry.model).aliases
    there = mirror.aliases()
    for alias in ALIASES:
        version = held[alias].version if alias in held else None
        expected = None if version is None else numbers[version]
        number = there.get(alias)
        if alias in waiting:
            yield f"MLflow does not know the newest change of the alias {alias} yet"
        elif number != expected:
            says = f"version {version}" if version is not None else "none"
            moved = "no version" if number is None else f"its version {number}"
            record = None if number is None else ours.get(number)
            refusal = promotion_refusal(store, record.artifact) if record is not None else "medloop does not know it"
            why = f", which may not be promoted: {refusal}" if number is not None and refusal else ""
            yield f"In MLflow {moved} is the {alias}, but medloop promoted {says}{why}"


def _notes(store: Store, stored: list[StoredVersion], held: dict[Alias, AliasChange]) -> Iterator[str]:
    records = {version.record.version: version.record for version in stored}
    for alias, change in held.items():
        if change.version is not None and (refusal := promotion_refusal(store, records[change.version].artifact)):
            yield f"The {alias}, version {change.version}, could not be promoted today: {refusal}"
    for version in stored:
        folder = store.settings.home / version.path
        try:
            same = verify_artifact(folder).sha256 == version.record.artifact
        except MedloopError:
            same = False
        if not same:
            yield f"{folder} no longer has the bytes of {version.record.label}; 'medloop registry pull' gets them from MLflow"


def repair(store: Store, *, actor: str) -> None:
    """Send what MLflow has lost or has otherwise, and set its aliases to those of the store; MirrorError if that fails."""
    model = store.settings.registry.model
    with open_mirror(store.settings) as mirror:
        lost = list(_lost(store, mirror))
        with store.write() as conn:
            audit.append(conn, AuditEvent(actor=actor, action="registry.repair", subject=model, detail={"lost": len(lost)}))
        registry.mirror_again(store, model, only=lambda stored: stored.record.label in lost)
        send_pending(store, mirror)


def _lost(store: Store, mirror: Mirror) -> Iterator[str]:
    """Versions to send again; a copy with other bytes is removed first, if the right ones are still here."""
    there = {version.number: version for version in mirror.versions()}
    for stored in registry.versions(store, store.settings.registry.model):
        copy = there.get(stored.mlflow_version or 0)
        if copy is None or copy.artifact != stored.record.artifact:
            yield stored.record.label
        elif _bytes_problem(mirror, copy, stored.record.artifact):
            find_bytes(store, mirror, stored)
            mirror.remove(copy)
            yield stored.record.label
