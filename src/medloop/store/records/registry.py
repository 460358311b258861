"""The versions of the registry and their aliases: what medloop says about them is the truth, MLflow has a copy of it.

    stored = add_version(store, draft, path, actor="user:sam")                            # the same bytes again change nothing
    change_alias(store, model, "champion", 3, action="promote", actor="usr_1")            # or PromotionRefusedError
    current(store, model)                                                                 # {"champion": AliasChange(...)}
    pending(store, model)                                                                 # what MLflow does not have yet
    mark_version(store, stored, mlflow_version=3, mlflow_run="…")                         # now it has

A row is the intention and the fact at once: it is committed with its line in the audit log before MLflow hears of it, and
`mirrored` is set when MLflow has it. Whether a model may be promoted is decided inside the transaction of the change, while no
other writer can add an incident, an erasure or a verdict. Rows are added and never removed; one that was changed, added or
removed past medloop is an IntegrityError.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from medloop.contracts import AliasChange, AuditEvent, ModelVersion, utc_now
from medloop.contracts.gate import GateResult
from medloop.contracts.gate_reasons import ReasonPart, said
from medloop.contracts.gate_reasons import reason as reason_part
from medloop.contracts.registry import Alias, AliasAction
from medloop.errors import InputError, ResultError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records import lineage
from medloop.store.records.champion import promotion_gates
from medloop.store.records.gates import gates_of, latest_gate, reason_parts, refusal_parts, with_waivers
from medloop.store.records.model_spec import spec_of
from medloop.store.tables import gate_sign_offs, registry_aliases, registry_versions

TAINTED = "tainted"
INCIDENTS = "incidents"  # the check of the gate that does not stop a rollback
RELATIVE = (
    "critical_failures", "non_inferiority", "red_team", "under_triage", "over_triage", "language", "template_words",
    "text_shape", "reward_panel",
)  # fmt: skip
"""Checks that compare with a baseline; the others are about the model alone."""
LIST = "'medloop registry list' shows all versions"


class NoSuchVersionError(InputError):
    """The registry has no such version, or no version has this alias."""


class PromotionRefusedError(ResultError):
    """The gate, an incident or an erasure forbids this promotion; `parts` say why, for readers of any language."""

    def __init__(self, what: str, to_do: str = "", parts: Sequence[ReasonPart] = ()) -> None:
        super().__init__(what, to_do)
        self.parts = tuple(parts)


@dataclass(frozen=True)
class StoredVersion:
    """A version, where its folder was when it was registered, and what MLflow calls it."""

    record: ModelVersion
    path: str
    mlflow_version: int | None
    mlflow_run: str | None
    mirrored: datetime | None


@dataclass(frozen=True)
class Pending:
    """What MLflow does not have yet: versions in their order, and aliases."""

    versions: tuple[StoredVersion, ...]
    aliases: tuple[Alias, ...]

    def __bool__(self) -> bool:
        return bool(self.versions or self.aliases)


def add_version(store: Store, draft: ModelVersion, path: str, *, actor: str) -> StoredVersion:
    """The version under the next free number of its model; bytes that are registered already keep the number they have."""
    mine = registry_versions.c.model == draft.model
    with store.write() as conn:
        row = conn.execute(select(registry_versions).where(mine, registry_versions.c.artifact == draft.artifact)).first()
        if row is None:
            last = conn.execute(select(func.max(registry_versions.c.version)).where(mine)).scalar() or 0
            record = draft.model_copy(update={"version": last + 1})
            values = {"version_id": record.label, "model": record.model, "version": record.version, "artifact": record.artifact}
            content = record.model_dump(mode="json", exclude_none=True)
            conn.execute(insert(registry_versions).values(**values, path=path, record=content, timestamp=record.timestamp))
            detail: dict[str, str | int | float | bool] = {"artifact": record.artifact, "name": record.name}
            audit.append(conn, AuditEvent(actor=actor, action="registry.register", subject=record.label, detail=detail))
    return next(stored for stored in versions(store, draft.model) if stored.record.artifact == draft.artifact)


def versions(store: Store, model: str) -> list[StoredVersion]:
    """All versions of a model, oldest first."""
    query = select(registry_versions).where(registry_versions.c.model == model).order_by(registry_versions.c.version)
    return [_stored(row) for row in genuine_rows(store, registry_versions, query)]


def get_version(store: Store, model: str, version: int) -> StoredVersion:
    mine = (registry_versions.c.model == model, registry_versions.c.version == version)
    rows = genuine_rows(store, registry_versions, select(registry_versions).where(*mine))
    if not rows:
        raise NoSuchVersionError(f"The registry has no version {version} of {model}", LIST)
    return _stored(rows[0])


def history(store: Store, model: str) -> list[AliasChange]:
    """Every change of an alias of a model, oldest first."""
    query = select(registry_aliases).where(registry_aliases.c.model == model).order_by(registry_aliases.c.id)
    return [_change(row) for row in genuine_rows(store, registry_aliases, query)]


def current(store: Store, model: str) -> dict[Alias, AliasChange]:
    """The aliases that a version holds now, each with the change that gave it."""
    newest = {change.alias: change for change in history(store, model)}
    return {alias: change for alias, change in newest.items() if change.version is not None}


def taint_of(store: Store, artifact: str) -> str | None:
    """Why a model is tainted by an erasure, here or wherever its weights are; None if it is not."""
    gate = latest_gate(store, artifact)
    known_as = [artifact] if gate is None else [artifact, gate.weights]
    return next((reason for sha256 in known_as for flag, reason in lineage.flags_of(store, sha256) if flag == TAINTED), None)


def change_alias(
    store: Store, model: str, alias: Alias, version: int | None, *, action: AliasAction, actor: str, reason: str = ""
) -> AliasChange:
    """Give an alias to a version, or take it away; an alias that the version has already stays as it is.

    A version that becomes champion is no longer the challenger: nobody compares a model with itself.
    """
    stored = None if version is None else get_version(store, model, version)
    parts = None
    with store.write() as conn:
        held = current(store, model)
        if alias in held and held[alias].version == version:
            return held[alias]
        if version is None and alias not in held:
            raise NoSuchVersionError(f"No version of {model} is the {alias}", LIST)
        if stored is not None:
            parts = alias_refusal(store, stored.record, alias, action)
        if parts is None:
            return insert_change(store, conn, model, alias, stored, action=action, actor=actor, reason=reason)
        assert stored is not None
        refusal = said(parts)
        detail: dict[str, str | int | float | bool] = {"alias": alias, "artifact": stored.record.artifact, "reason": refusal}
        audit.append(conn, AuditEvent(actor=actor, action="registry.refuse", subject=stored.record.label, detail=detail))
    raise PromotionRefusedError(f"{stored.record.label} cannot be the {alias}: {refusal}", "", parts)


def insert_change(
    store: Store, conn: Connection, model: str, alias: Alias, stored: StoredVersion | None, *, action: AliasAction, actor: str,
    reason: str = "",
) -> AliasChange:  # fmt: skip
    """A change that `alias_refusal` has nothing against, in the transaction of the caller."""
    version = None if stored is None else stored.record.version
    gate = None if stored is None else latest_gate(store, stored.record.artifact)
    change = _insert(conn, model, alias, version, action, actor, reason, None if gate is None else gate.content_id())
    rival = current(store, model).get("challenger")
    if alias == "champion" and version is not None and rival is not None and rival.version == version:
        _insert(conn, model, "challenger", None, "demote", actor, "it is the champion now", None)
    return change


def alias_refusal(store: Store, record: ModelVersion, alias: Alias, action: AliasAction) -> list[ReasonPart] | None:
    """A rollback goes to bytes that the gate has let pass before; an open incident is a reason for it, not against it.

    A version that somebody demoted comes back only as one that may be promoted.
    """
    changes = [change for change in history(store, record.model) if change.alias == alias]
    if action != "rollback" or _is_demoted(changes, record.version):
        return refusal_parts(store, record.artifact)
    if taint := taint_of(store, record.artifact):
        return _tainted(taint)
    if not any(change.version == record.version for change in changes):
        return [reason_part("refused_never_alias", alias=alias)]
    return _verdict_refusal(store, record.artifact)


def reuse_refusal(store: Store, artifact: str) -> str | None:
    """Why bytes that have served before may not serve again; open incidents are a reason for a rollback, not against it."""
    taint = taint_of(store, artifact)
    parts = _tainted(taint) if taint else _verdict_refusal(store, artifact)
    return None if parts is None else said(parts)


def _tainted(reason: str) -> list[ReasonPart]:
    return [reason_part("refused_tainted", reason=reason)]


def _is_demoted(changes: list[AliasChange], version: int) -> bool:
    """Whether the alias was taken away from this version, and it has not had it since."""
    holders = [change.version for change in changes]
    last = max((index for index, holder in enumerate(holders) if holder == version), default=None)
    return last is not None and holders[last + 1 : last + 2] == [None]


def _verdict_refusal(store: Store, artifact: str) -> list[ReasonPart] | None:
    """Why a verdict on these bytes, or a clinician, speaks against using them again; open incidents do not."""
    result = latest_gate(store, artifact)
    if result is None:
        return [reason_part("refused_unexamined", artifact=artifact[:19], model=spec_of(store, artifact))]
    for verdict, relative in _verdicts_on(store, result):
        for check in with_waivers(store, verdict).checks:
            counts = check.name != INCIDENTS and (relative or check.name.split("/")[0] not in RELATIVE)
            if check.outcome == "fail" and check.waiver is None and counts:
                return [reason_part("refused_check_since", check=check.name), *reason_parts(check)]
    signed = select(gate_sign_offs).where(gate_sign_offs.c.artifact == artifact).order_by(gate_sign_offs.c.id)
    last = {row.person: row for row in genuine_rows(store, gate_sign_offs, signed)}
    refused = next((row for row in last.values() if not row.approved), None)
    return None if refused is None else [reason_part("refused_person_day", day=f"{refused.timestamp:%Y-%m-%d}")]


def _verdicts_on(store: Store, newest: GateResult) -> list[tuple[GateResult, bool]]:
    """The newest verdict, and the newest one against a model that these bytes have replaced: only there a loss counts.

    Those who compare a former champion with the one of now find it worse; that says nothing against going back to it.
    """
    gates = gates_of(store, newest.artifact)
    promoted = promotion_gates(store, newest.artifact)
    baselines = {result.baseline_artifact for result in gates if result.content_id() in promoted}
    if not baselines or newest.baseline_artifact in baselines:
        return [(newest, True)]
    return [(newest, False), *((result, True) for result in gates if result.baseline_artifact in baselines)][:2]


def _insert(
    conn: Connection,
    model: str,
    alias: Alias,
    version: int | None,
    action: AliasAction,
    actor: str,
    reason: str,
    gate: str | None,
) -> AliasChange:
    mine = (registry_aliases.c.model == model, registry_aliases.c.alias == alias)
    number = conn.execute(select(func.count()).select_from(registry_aliases).where(*mine)).scalar() or 0
    change = AliasChange(
        change_id=f"{model}@{alias}/{number + 1}", model=model, alias=alias, action=action, version=version, gate=gate,
        changed_by=actor, reason=reason,
    )  # fmt: skip
    conn.execute(insert(registry_aliases).values(**change.model_dump()))
    detail: dict[str, str | int | float | bool] = {"alias": alias, "version": version or 0, "gate": gate or ""}
    if reason:
        detail["reason"] = reason
    audit.append(conn, AuditEvent(actor=actor, action=f"registry.{action}", subject=change.change_id, detail=detail))
    return change


def pending(store: Store, model: str) -> Pending:
    """What MLflow does not have yet."""
    query = select(registry_aliases.c.alias).where(registry_aliases.c.model == model, registry_aliases.c.mirrored.is_(None))
    with store.read() as conn:
        waiting = sorted(set(conn.execute(query).scalars()))
    return Pending(tuple(stored for stored in versions(store, model) if stored.mirrored is None), tuple(waiting))


def mark_version(store: Store, stored: StoredVersion, *, mlflow_version: int, mlflow_run: str) -> None:
    """MLflow has this version, under this number and with this run."""
    row = registry_versions.c.version_id == stored.record.label
    with store.write() as conn:
        values = {"mlflow_version": mlflow_version, "mlflow_run": mlflow_run, "mirrored": utc_now()}
        conn.execute(update(registry_versions).where(row).values(**values))


def mark_aliases(store: Store, change_ids: list[str]) -> None:
    """MLflow has what these changes ask for."""
    with store.write() as conn:
        rows = registry_aliases.c.change_id.in_(change_ids)
        conn.execute(update(registry_aliases).where(rows).values(mirrored=utc_now()))


def mirror_again(store: Store, model: str, *, only: Callable[[StoredVersion], bool] = lambda stored: True) -> None:
    """MLflow has lost these versions, or never had them: send them and all aliases again."""
    lost = [stored.record.label for stored in versions(store, model) if only(stored)]
    with store.write() as conn:
        conn.execute(update(registry_versions).where(registry_versions.c.version_id.in_(lost)).values(mirrored=None))
        conn.execute(update(registry_aliases).where(registry_aliases.c.model == model).values(mirrored=None))


def _stored(row: Row[Any]) -> StoredVersion:
    return StoredVersion(ModelVersion.model_validate(row.record), row.path, row.mlflow_version, row.mlflow_run, row.mirrored)


def _change(row: Row[Any]) -> AliasChange:
    return AliasChange(**{name: row._mapping[name] for name in AliasChange.model_fields})
