"""The gate's verdicts in the store, bound to the bytes of a model; sign-offs and waivers of people; may a model be promoted?

    gate = save_gate(store, result, actor="user:sam")          # the row and its line in the audit log, or neither
    sign(store, gate, by="usr_1", approved=True)               # a clinician who read the result
    request_waiver(store, artifact, …, author="usr_1")         # lifts nothing until …
    approve_waiver(store, "waiv_…", by="usr_2")                # … a clinician other than its author approves it
    promotion_refusal(store, artifact)                         # None, or why this model may not be promoted

Rows are added and never removed; an expired waiver stays readable. Every row has a MAC and a line in the audit log, and reading
one that was changed, added or removed past medloop is an IntegrityError. Who may do what is checked here, in the transaction of
the change, so it holds for every door.
"""

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, func, insert, select, update

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.contracts.gate import GateCheck, GateResult, SignOff, Waiver
from medloop.contracts.gate_reasons import ReasonPart, reason, said
from medloop.errors import InputError
from medloop.privacy.phi.reason import kept_text
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import changed_rows, genuine_rows
from medloop.store.records import lineage
from medloop.store.records.champion import champion_artifact, emptied, has_been_champion
from medloop.store.records.gate_people import SIGNERS as SIGNERS
from medloop.store.records.gate_people import WAIVER_APPROVERS as WAIVER_APPROVERS
from medloop.store.records.gate_people import WAIVER_AUTHORS as WAIVER_AUTHORS
from medloop.store.records.gate_people import GatePersonError as GatePersonError
from medloop.store.records.gate_people import check_person
from medloop.store.records.gate_policies import signers_asked
from medloop.store.records.incident_rows import count_incidents
from medloop.store.records.model_spec import spec_of
from medloop.store.records.waiver_row import NEVER_WAIVED as NEVER_WAIVED
from medloop.store.records.waiver_row import WORSE, WaiverRow
from medloop.store.tables import audit_log, gate_results, gate_sign_offs, gate_waivers

MAX_TEXT = 4000  # characters of a comment or a reason
TAINTED = "tainted"
LONGEST_WAIVER = timedelta(days=90)
EVER = datetime.min.replace(tzinfo=UTC)
MOST_NAMED = 3  # checks in a sentence; the verdict has them all


class NoSuchGateError(InputError):
    """There is no such verdict of the gate, or no such waiver."""


class GateDecidedError(InputError):
    """Somebody has approved this waiver already, it has expired, or this verdict cannot be signed now."""


def save_gate(store: Store, result: GateResult, *, actor: str) -> str:
    """Store a verdict with its line in the audit log, in one transaction; the same verdict again changes nothing."""
    gate = result.content_id()
    checks = [check.model_dump(mode="json", exclude_none=True) for check in result.checks]
    values = result.model_dump(exclude={"checks"}) | {"gate": gate, "checks": checks}
    detail: dict[str, str | int | float | bool] = {
        "artifact": result.artifact, "outcome": result.outcome, "report": result.report, "config": result.config,
        "failed": sum(check.outcome == "fail" for check in result.checks), "needs_sign_offs": result.needs_sign_offs,
    }  # fmt: skip
    with store.write() as conn:
        if conn.execute(select(gate_results.c.id).where(gate_results.c.gate == gate)).first() is None:
            conn.execute(insert(gate_results).values(**values))
            audit.append(conn, AuditEvent(actor=actor, action="gate.decide", subject=gate, detail=detail))
    return gate


def latest_gate(store: Store, artifact: str) -> GateResult | None:
    """The newest verdict on the model with this hash."""
    query = select(gate_results).where(gate_results.c.artifact == artifact).order_by(gate_results.c.id.desc()).limit(1)
    results = _read_results(store, query)
    return results[0] if results else None


def gates_of(store: Store, artifact: str) -> list[GateResult]:
    """All verdicts on the model with this hash, newest first."""
    return _read_results(
        store, select(gate_results).where(gate_results.c.artifact == artifact).order_by(gate_results.c.id.desc())
    )


def get_gate(store: Store, gate: str) -> GateResult:
    """One verdict by its id, or by the beginning of it."""
    query = select(gate_results).where(gate_results.c.gate.startswith(_with_scheme(gate), autoescape=True)).limit(2)
    results = _read_results(store, query)
    if len(results) != 1:
        problem = "fits several verdicts of the gate" if results else "is not the id of a verdict of the gate"
        raise NoSuchGateError(f"'{gate[:80]}' {problem}", "'medloop gate list' shows all")
    return results[0]


def list_gates(store: Store, *, limit: int = 50) -> list[GateResult]:
    """The verdicts, newest first."""
    return _read_results(store, select(gate_results).order_by(gate_results.c.id.desc()).limit(limit))


def count(store: Store) -> int:
    """How many verdicts there are."""
    with store.read() as conn:
        return int(conn.execute(select(func.count()).select_from(gate_results)).scalar_one())


def _with_scheme(gate: str) -> str:
    return gate if gate.startswith("sha256:") else f"sha256:{gate}"


def _read_results(store: Store, query: Select[Any]) -> list[GateResult]:
    results = []
    for row in genuine_rows(store, gate_results, query):
        values = {name: value for name, value in row._mapping.items() if name not in ("id", "gate", "mac", "checks")}
        result = GateResult(**values, checks=tuple(GateCheck.model_validate(check) for check in row.checks))
        if result.content_id() != row.gate:
            raise changed_rows(gate_results)
        results.append(result)
    return results


def knows_report(store: Store, report: str) -> bool:
    """Whether an evaluation in this workspace wrote the report with this id, as the audit log says."""
    own = audit_log.c.action == "eval.report", audit_log.c.detail.contains(report, autoescape=True)
    with store.read() as conn:
        return conn.execute(select(audit_log.c.seq).where(*own).limit(1)).first() is not None


def sign(store: Store, gate: str, *, by: str, approved: bool, comment: str = "") -> SignOff:
    """A person who read the result stands for it or refuses it. Of two by one person the later counts; both stay.

    Nobody stands for a verdict with a check that neither passed nor is waived: it allows no promotion, whoever signs.
    """
    comment = _checked_text(comment, "comment", required=not approved)
    result = get_gate(store, gate)
    if approved:
        _check_signable(store, result, by)
    sign_off = SignOff(artifact=result.artifact, gate=result.content_id(), person=by, approved=approved, comment=comment)
    sign_off_id = f"sign_{uuid7()}"
    detail: dict[str, str | int | float | bool] = {"gate": sign_off.gate, "artifact": result.artifact, "approved": approved}
    with store.write() as conn:
        check_person(conn, by, SIGNERS, "sign a verdict of the gate")
        conn.execute(insert(gate_sign_offs).values(sign_off_id=sign_off_id, **sign_off.model_dump()))
        audit.append(conn, AuditEvent(actor=by, action="gate.sign", subject=sign_off_id, detail=detail))
    return sign_off


def _check_signable(store: Store, result: GateResult, person: str) -> None:
    if unlifted := [check.name for check in with_waivers(store, result).checks if check.outcome != "pass" and not check.waiver]:
        raise GateDecidedError(
            f"This verdict cannot be signed: checks did not pass ({len(unlifted)}): {', '.join(unlifted)}",
            "Refuse to sign, ask to waive what may be waived, or examine the model again",
        )
    mine = [row for row in _sign_offs(store, gate_sign_offs.c.artifact == result.artifact) if row.person == person]
    waived = [row.approved for row in waiver_rows(store, result.artifact) if row.approved is not None]
    if mine and mine[-1].approved and mine[-1].gate == result.content_id() and mine[-1].timestamp > max(waived, default=EVER):
        raise GateDecidedError("You have signed this verdict already", "A second person has to sign where one more is needed")


def sign_offs_of(store: Store, gate: str) -> list[SignOff]:
    """All sign-offs of a result by its id, oldest first."""
    return _sign_offs(store, gate_sign_offs.c.gate == gate)


def _sign_offs(store: Store, which: ColumnElement[bool]) -> list[SignOff]:
    query = select(gate_sign_offs).where(which).order_by(gate_sign_offs.c.id)
    names = tuple(SignOff.model_fields)
    return [SignOff(**{name: row._mapping[name] for name in names}) for row in genuine_rows(store, gate_sign_offs, query)]


def request_waiver(store: Store, artifact: str, *, check: str, reason: str, author: str, expires: datetime) -> str:
    """Ask to lift one check that the model's newest verdict did not pass. A clinician other than the author has to approve."""
    reason = _checked_text(reason, "reason", required=True)
    result = latest_gate(store, artifact)
    if result is None:
        raise NoSuchGateError("The gate has not examined this model", f"Run: medloop gate --model {spec_of(store, artifact)}")
    failed = sorted({row.name for row in result.checks if row.outcome != "pass"})
    if check in NEVER_WAIVED:
        raise InputError(
            f"The check '{check}' cannot be waived", "Close the incident, train again without the erased data, or mend the model"
        )
    if check not in failed:
        waivable = [name for name in failed if name not in NEVER_WAIVED]
        hint = f"Checks to waive: {', '.join(waivable)}" if waivable else "It has no check to waive"
        raise InputError(f"The newest verdict on this model did not fail the check '{check[:80]}'", hint)
    if expires <= utc_now():
        raise InputError("The waiver would already have expired", "Choose a day in the future")
    if expires > utc_now() + LONGEST_WAIVER:
        raise InputError(f"A waiver lasts at most {LONGEST_WAIVER.days} days", "Choose an earlier day")
    waiver_id = f"waiv_{uuid7()}"
    values: dict[str, Any] = {"waiver_id": waiver_id, "artifact": artifact, "check_name": check, "reason": reason}
    values["outcome"] = max((row.outcome for row in result.checks if row.name == check), key=WORSE.__getitem__)
    values |= {"author": author, "expires": expires, "timestamp": utc_now()}
    with store.write() as conn:
        check_person(conn, author, WAIVER_AUTHORS, "ask for a waiver")
        conn.execute(insert(gate_waivers).values(**values))
        detail: dict[str, str | int | float | bool] = {"artifact": artifact, "check": check, "expires": expires.isoformat()}
        audit.append(conn, AuditEvent(actor=author, action="gate.waive", subject=waiver_id, detail=detail))
    return waiver_id


def approve_waiver(store: Store, waiver_id: str, *, by: str) -> Waiver:
    """The waiver, which lifts its check from now until it expires."""
    now = utc_now()
    mine = gate_waivers.c.waiver_id == waiver_id
    with store.write() as conn:
        check_person(conn, by, WAIVER_APPROVERS, "approve a waiver")
        row = conn.execute(select(gate_waivers).where(mine)).first()
        if row is None:
            raise NoSuchGateError(
                f"'{waiver_id[:80]}' is not the id of a waiver", "'medloop gate show' lists the waivers of a model"
            )
        if row.author == by:
            raise GatePersonError("You asked for this waiver, so somebody else has to approve it", "Ask another clinician")
        if row.approver is not None or row.expires <= now:
            state = "has expired" if row.expires <= now else "was approved already"
            raise GateDecidedError(f"This waiver {state}", "'medloop gate show' lists the waivers of a model")
        conn.execute(update(gate_waivers).where(mine).values(approver=by, approved=now))
        detail: dict[str, str | int | float | bool] = {"artifact": row.artifact, "check": row.check_name}
        audit.append(conn, AuditEvent(actor=by, action="gate.approve_waiver", subject=waiver_id, detail=detail))
    return next(waiver for waiver in waivers_of(store, row.artifact) if waiver.waiver_id == waiver_id)


def waiver_rows(store: Store, artifact: str) -> list[WaiverRow]:
    """Every waiver that anybody asked for, oldest first: also those that wait and those that have expired."""
    query = select(gate_waivers).where(gate_waivers.c.artifact == artifact).order_by(gate_waivers.c.id)
    return [
        WaiverRow(
            row.waiver_id, row.artifact, row.check_name, row.outcome, row.reason, row.author, row.approver, row.approved,
            row.expires, row.timestamp,
        )
        for row in genuine_rows(store, gate_waivers, query)
    ]  # fmt: skip


def waivers_of(store: Store, artifact: str) -> list[Waiver]:
    """The approved waivers of a model, oldest first; also those that have expired."""
    return [
        Waiver(
            waiver_id=row.waiver_id, artifact=row.artifact, check=row.check, reason=row.reason, author=row.author,
            approver=row.approver, expires=row.expires, timestamp=row.timestamp,
        )
        for row in waiver_rows(store, artifact) if row.approver is not None
    ]  # fmt: skip


def approvals(store: Store, result: GateResult) -> list[SignOff]:
    """The last word of each person who stands for a result."""
    last = {sign_off.person: sign_off for sign_off in sign_offs_of(store, result.content_id())}
    return [sign_off for sign_off in last.values() if sign_off.approved]


def sign_offs_needed(store: Store, result: GateResult) -> int:
    """Those that the verdict was stored with, or more where the policy of now asks for more."""
    return max(result.needs_sign_offs, signers_asked(store, result).signers)


def with_waivers(store: Store, result: GateResult) -> GateResult:
    """The result with the waiver of each check that one lifts now; its content is no longer what was signed."""
    rows, now = waiver_rows(store, result.artifact), utc_now()

    def lifted(check: GateCheck) -> GateCheck:
        waiver = next((row.waiver_id for row in rows if row.lifts(check, now)), None)
        return check if check.outcome == "pass" or waiver is None else check.model_copy(update={"waiver": waiver})

    return result.model_copy(update={"checks": tuple(map(lifted, result.checks))})


def waived_checks(store: Store, result: GateResult) -> int:
    """How many checks two clinicians have lifted, where that leaves none that forbids a promotion; else 0."""
    forbidding = [check for check in with_waivers(store, result).checks if check.outcome != "pass"]
    return len(forbidding) if all(check.waiver for check in forbidding) else 0


def promotion_refusal(store: Store, artifact: str, *, against_champion: bool = True) -> str | None:
    """Why the model with these bytes may not be promoted now; None if it may.

    It needs a verdict on exactly these bytes, measured against the champion of now, whose every check passes or is waived, its
    sign-offs, no open incident, and no training data that was erased since. Without `against_champion` the verdict may be older
    than the champion: for bytes that are to be kept or looked at, and replace nothing.
    """
    parts = refusal_parts(store, artifact, against_champion=against_champion)
    return None if parts is None else said(parts)


def refusal_below_checks(store: Store, shown: GateResult) -> str | None:
    """The same below the checks of a verdict, if it is the newest: they are counted and not told again."""
    newest = latest_gate(store, shown.artifact)
    parts = refusal_parts(store, shown.artifact, checks_shown=newest is not None and newest.content_id() == shown.content_id())
    return None if parts is None else said(parts)


def refusal_parts(
    store: Store, artifact: str, *, against_champion: bool = True, checks_shown: bool = False
) -> list[ReasonPart] | None:
    """The same, for readers of any language."""
    result = latest_gate(store, artifact)
    known_as = {artifact} if result is None else {artifact, result.weights}
    if reasons := [why for sha256 in sorted(known_as) for flag, why in lineage.flags_of(store, sha256) if flag == TAINTED]:
        return [reason("refused_tainted", reason=reasons[0])]
    open_incidents = count_incidents(store).open
    incidents = [reason("refused_incidents", n=open_incidents)] if open_incidents else []
    if result is None:
        return incidents or [reason("refused_unexamined", artifact=artifact[:19], model=spec_of(store, artifact))]
    waivers, now = waiver_rows(store, artifact), utc_now()
    lifting, unlifted = list[WaiverRow](), list[GateCheck]()
    for check in (check for check in result.checks if check.outcome != "pass"):
        waiver = next((row for row in waivers if row.lifts(check, now)), None)
        if waiver is None:
            unlifted.append(check)
        else:
            lifting.append(waiver)
    if unlifted:
        shown = reason("refused_checks_shown", n=len(unlifted))
        return [*([shown] if checks_shown else _check_refusal(result, unlifted, waivers, now)), *incidents]
    if incidents:
        return incidents
    if against_champion and (stale := stale_baseline(store, result)):
        return stale
    return _sign_off_refusal(store, result, lifting)


def _check_refusal(result: GateResult, unlifted: list[GateCheck], waivers: list[WaiverRow], now: datetime) -> list[ReasonPart]:
    """How many checks forbid the promotion, the first ones by name, what failed before others; and why the first one does."""
    unlifted = sorted(unlifted, key=lambda check: -WORSE[check.outcome])
    first, outcome = unlifted[0], "fail" if unlifted[0].outcome == "fail" else "evidence"
    over = [row.expires for row in waivers if row.check == first.name and row.approver and row.expires <= now]
    expired = [reason("refused_waiver_over", day=f"{max(over):%Y-%m-%d}")] if over else []
    names = ", ".join(check.name for check in unlifted[:MOST_NAMED]) + (", …" if len(unlifted) > MOST_NAMED else "")
    every = [reason("refused_checks", n=len(unlifted), checks=names)] if len(unlifted) > 1 else []
    every += [reason("refused_checks_all", gate=result.content_id()[7:19])] if len(unlifted) > MOST_NAMED else []
    return [*every, reason(f"refused_check_{outcome}", check=first.name), *reason_parts(first), *expired]


def stale_baseline(store: Store, result: GateResult) -> list[ReasonPart] | None:
    """Why a verdict says nothing about the model that would be replaced: another one is the champion, or was the last one.

    While no version is the champion the base model answers, so a verdict against it counts, too, if it is from that time.
    """
    champion = champion_artifact(store)
    if champion is None or champion in (result.artifact, result.baseline_artifact):
        return None
    known = {"baseline": result.baseline, "champion": champion[7:19]}
    since = emptied(store)
    if since is not None:
        is_base = result.baseline_artifact == result.base or (
            "+" not in result.baseline and result.label.startswith(f"{result.baseline}+")  # a base that is itself an artifact
        )
        if is_base and result.timestamp > since:
            return None
        return [reason("refused_baseline_last", **known, model=shlex.quote(result.model or result.label))]
    if has_been_champion(store, result.artifact):
        return [reason("refused_baseline_was", **known)]
    return [reason("refused_baseline", **known, model=shlex.quote(result.model or result.label))]


def reason_parts(check: GateCheck) -> tuple[ReasonPart, ...]:
    """Verdicts from before reasons had keys have their text alone."""
    return check.parts or (reason("text", text=check.reason),)


def _sign_off_refusal(store: Store, result: GateResult, lifting: list[WaiverRow]) -> list[ReasonPart] | None:
    """A refusal holds for the model until the same person signs a verdict on it; a signature, for the verdict that was read.

    Nobody signs for what they asked to waive, and a signature from before a waiver does not know of it.
    """
    last = {sign_off.person: sign_off for sign_off in _sign_offs(store, gate_sign_offs.c.artifact == result.artifact)}
    if refused := [sign_off for sign_off in last.values() if not sign_off.approved]:
        return [reason("refused_by_person", gate=refused[0].gate[7:19], day=f"{refused[0].timestamp:%Y-%m-%d}")]
    since = max((row.approved for row in lifting if row.approved is not None), default=None)
    authors = {row.author for row in lifting}
    counted = [
        sign_off
        for sign_off in approvals(store, result)
        if sign_off.person not in authors and (since is None or sign_off.timestamp > since)
    ]
    needed = max(result.needs_sign_offs, (asked := signers_asked(store, result)).signers)
    if len(counted) < needed:
        have = reason("refused_sign_offs_waived" if lifting else "refused_sign_offs", n=len(counted), needed=needed)
        less = reason("refused_policy", named=asked.named) if asked.named else reason("refused_policy_unknown")
        why = [less] if asked.signers > result.needs_sign_offs else []
        return [have, *why, reason("refused_sign_how", gate=result.content_id()[7:19])]
    return None


def lacks_sign_offs(store: Store, result: GateResult) -> bool:
    """Whether people still have to sign: signatures from before a waiver do not count for it."""
    now, failed = utc_now(), [check for check in result.checks if check.outcome != "pass"]
    lifting = [row for row in waiver_rows(store, result.artifact) if any(row.lifts(check, now) for check in failed)]
    return any(part.key.startswith("refused_sign_offs") for part in _sign_off_refusal(store, result, lifting) or ())


def _checked_text(text: str, name: str, *, required: bool) -> str:
    text = text.strip()
    if required and not text:
        raise InputError(f"The {name} is missing", "Write it, without names of patients")
    if len(text) > MAX_TEXT:
        raise InputError(f"The {name} has more than {MAX_TEXT} characters", "Write it shorter")
    return kept_text(text)  # a release carries it out of the house
