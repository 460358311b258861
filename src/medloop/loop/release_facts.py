"""What the ledger of a release says, gathered from the store: gate, people, lineage, the release before. Nothing is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from medloop.contracts import Difference, EvalReport, Objective, TrainingCard
from medloop.contracts.gate import GateResult
from medloop.contracts.lineage import TaughtRecord
from medloop.contracts.release import Ancestor, LedgerChange, LedgerSignOff, SafetyLedger, TaughtCount
from medloop.contracts.score import ABSENT
from medloop.models.find import ResolvedModel
from medloop.models.safety import fingerprint
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.lineage_graph import Teaching, teaching_of
from medloop.store.records import users
from medloop.store.records.gates import latest_gate, sign_offs_of, waivers_of

RED = "red"


@dataclass(frozen=True)
class ReleaseFacts:
    """`ledger` lacks only what is known when the folder is filled. `report` is the report of the gate, if it is still there."""

    ledger: SafetyLedger
    card: TrainingCard
    cards: dict[str, TrainingCard]
    taught: list[TaughtRecord]
    report: Path | None


def gather_facts(store: Store, name: str, model: ResolvedModel, artifact: str, *, actor: str) -> ReleaseFacts:
    """Of a model that the gate let pass."""
    assert model.adapter is not None, "only adapters are released"
    gate = latest_gate(store, artifact)
    assert gate is not None, "promotion_refusal refuses a model without a verdict"
    card = TrainingCard.from_json((model.adapter / "card.json").read_text(encoding="utf-8"))
    teaching = teaching_of(store, artifact)
    report, path = find_report(store, gate)
    previous = _previous(store, name)
    weights = fingerprint(model.adapter)
    ledger = SafetyLedger(
        release=name, previous=previous.ledger.release if previous else None, base=card.base, base_sha256=card.base_sha256,
        adapter=_shown(model.adapter, store), artifact=artifact, fingerprint=weights, method=card.method,
        ancestors=tuple(_ancestors(teaching)), records=len(teaching.records),
        taught=tuple(TaughtCount(kind=kind, role=role, records=count) for (kind, role), count in sorted(teaching.counts.items())),
        gate_id=gate.content_id(), gate=gate, sign_offs=tuple(_sign_offs(store, gate)),
        waivers=tuple(waivers_of(store, artifact)), red_team=tuple(_red_team(report, gate)),
        critical=tuple(row for row in report.critical if row.label == gate.label) if report else (),
        reward=_reward(card), teacher=teacher_of(card), warnings=tuple(_warnings(card)), rollback=tuple(_rollback(previous)),
        versions=card.versions, made_by=actor,
    )  # fmt: skip
    if previous is not None:
        ledger = ledger.model_copy(update=_since(previous, ledger, teaching))
    return ReleaseFacts(ledger, card, _cards(store, teaching), teaching.records, path)


def find_report(store: Store, gate: GateResult) -> tuple[EvalReport | None, Path | None]:
    """The report that the gate decided by, and its JSON file; nothing if the file is gone or has other content now."""
    entry = catalog.find(store, gate.report)
    if entry is None:
        return None, None
    try:
        report = EvalReport.from_json(entry.path.read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None, None
    return (report, entry.path) if report.content_id() == gate.report else (None, None)


def objective_of(card: TrainingCard) -> Objective | None:
    """What the model was rewarded for; None for a method without a reward."""
    named = card.config.get("objective")
    return None if named is None else Objective.model_validate(named)


def teacher_of(card: TrainingCard) -> str | None:
    """The version of the teacher's part in the reward, if there was one."""
    objective = objective_of(card)
    part = None if objective is None else objective.parts.get("teacher")
    return None if part is None or part.version == ABSENT else part.version


def _reward(card: TrainingCard) -> str | None:
    objective = objective_of(card)
    return None if objective is None else objective.sentence()


def _shown(folder: Path, store: Store) -> str:
    absolute, home = folder.absolute(), store.settings.home.absolute()
    return absolute.relative_to(home).as_posix() if absolute.is_relative_to(home) else str(absolute)


def _ancestors(teaching: Teaching) -> Iterator[Ancestor]:
    for row in teaching.chain:
        card = row.card
        yield Ancestor(
            path=row.path, method=str(card.get("method", row.kind)), artifact=row.sha256,
            finished=card.get("finished", row.created), inputs=card.get("inputs", {}),
        )  # fmt: skip


def _cards(store: Store, teaching: Teaching) -> dict[str, TrainingCard]:
    """The training cards of the chain, from the catalog."""
    cards = {}
    for row in teaching.chain:
        try:
            cards[row.path] = TrainingCard.model_validate(dict(row.card))
        except ValidationError:
            continue  # an entry of an older medloop; the page says so
    return cards


def _sign_offs(store: Store, gate: GateResult) -> Iterator[LedgerSignOff]:
    people = {user.user_id: user for user in users.list_users(store)}
    for row in sign_offs_of(store, gate.content_id()):
        user = people.get(row.person)
        yield LedgerSignOff(
            name=user.name if user else row.person, role=user.role if user else "", approved=row.approved, comment=row.comment,
            timestamp=row.timestamp,
        )  # fmt: skip


def _red_team(report: EvalReport | None, gate: GateResult) -> Iterator[Difference]:
    if report is not None:
        rows = (*report.differences, *(row for row in report.stratum_differences if row.verdict != "no clear difference"))
        yield from (row for row in rows if row.split == RED and row.second == gate.label)


def _warnings(card: TrainingCard) -> Iterator[str]:
    yield from card.alarms
    yield from (sentence for sentence in (card.stopped, card.degraded, *card.warnings) if sentence)


@dataclass(frozen=True)
class PreviousRelease:
    ledger: SafetyLedger
    ids: frozenset[str] | None  # of the records behind it; None when the file is gone


def _previous(store: Store, name: str) -> PreviousRelease | None:
    """The newest other release whose ledger can be read."""
    for entry in catalog.newest_first(store, ["release"]):
        if entry.path.name == name:
            continue
        try:
            ledger = SafetyLedger.from_json((entry.path / "safety_ledger.json").read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            continue
        file = entry.path / "taught_by.jsonl"
        ids = frozenset(row["record_id"] for row in jsonl.read(file)) if file.is_file() else None
        return PreviousRelease(ledger, ids)
    return None


def _since(previous: PreviousRelease, ledger: SafetyLedger, teaching: Teaching) -> dict[str, object]:
    """What differs from the release before, and how many records are new or gone."""
    old = previous.ledger
    pairs = (
        ("base model", old.base, ledger.base), ("method", old.method, ledger.method), ("start", _start(old), _start(ledger)),
        ("reward", old.reward, ledger.reward), ("teacher", old.teacher, ledger.teacher),
        ("settings of the gate", old.gate.config, ledger.gate.config), ("compared with", old.gate.baseline, ledger.gate.baseline),
        *((f"version of {name}", old.versions.get(name), ledger.versions.get(name))
          for name in sorted({*old.versions, *ledger.versions})),
        *((f"data: {role}", old.ancestors[0].inputs.get(role), ledger.ancestors[0].inputs.get(role))
          for role in sorted({*old.ancestors[0].inputs, *ledger.ancestors[0].inputs})),
    )  # fmt: skip
    changes = tuple(LedgerChange(what=what, before=a or "", after=b or "") for what, a, b in pairs if a != b)
    ids = {row.record_id for row in teaching.records}
    counts = {} if previous.ids is None else {"new_records": len(ids - previous.ids), "left_records": len(previous.ids - ids)}
    return {"changes": changes, **counts}


def _start(ledger: SafetyLedger) -> str:
    return ledger.ancestors[1].path if len(ledger.ancestors) > 1 else "the base model"


def _rollback(previous: PreviousRelease | None) -> Iterator[str]:
    yield "medloop rounds rollback                 # rounds: SFT is in use again, at once"
    yield "medloop rounds rollback --to N          # an earlier accepted round, with N from 'medloop rounds list'"
    yield "medloop registry rollback               # registry: the version before is the champion again"
    if previous is not None:
        folder = f"models/rl/{previous.ledger.release}"
        yield f"medloop release verify {previous.ledger.release:<16} # the release before, whole and loadable: {folder}"
