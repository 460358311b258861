"""Drift of the judges of this workspace: what has changed since the newest card, as alerts that stand until it is over.

    check = check_drift(settings, store, judge, config=DriftConfig())
    check.raised, check.standing, check.ended         # told once: `raised` are those that did not stand before
    check_all(settings, store, config=DriftConfig())  # every reward with a card; jobs/drift_watch.py runs it beside the API

The alerts are in reports/trust/alerts.jsonl. `medloop feedback metrics`, the home page, the dashboard and the trust page show
them. What was looked at last is in reports/trust/VERSION/drift.json.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from medloop.contracts import Trace
from medloop.contracts.base import utc_now
from medloop.contracts.validity import DriftRecord, JudgeProfile, ValidityCard
from medloop.errors import MedloopError
from medloop.feedback.insight.alerts import Alert, make_alert, standing_alerts, write_standing
from medloop.loop.scoring import judge_of, teachers_of
from medloop.loop.trust import PREVIOUS, card_folder, cards, read_card, trust_folder
from medloop.reward.detect.urgency import urgency
from medloop.reward.judge_drift import DriftConfig, JudgeShift, card_shifts, traffic_shifts
from medloop.reward.trust import Judge, TrustConfig, profile
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.db import Store
from medloop.store.files.atomic import atomic_write, make_folder
from medloop.store.files.lock import locked_file
from medloop.store.records import marks
from medloop.store.records.audited_read import read_by_ids

PURPOSE = "reward drift"
RECORD = "drift.json"
OF_CARDS = ("judge_fell", "judge_changed")  # alerts that need no exchange
MOST_CARDS = 8  # the newest, in one round of all rewards


@dataclass(frozen=True)
class DriftCheck:
    """`raised` are new, `standing` were told before and still hold, `ended` no longer do; `compared` says what was looked at.

    `problem` is why nothing could be compared.
    """

    reward: str
    raised: list[Alert] = field(default_factory=list)
    standing: list[Alert] = field(default_factory=list)
    ended: list[Alert] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    problem: str = ""


def traffic_profile(store: Store, judge: Judge, most: int, *, since: datetime | None = None) -> tuple[JudgeProfile, ...]:
    """What the judge says about the newest exchanges, or about those after a time; the audit log has the reading."""
    ids = marks.newest_traces(store, most) if most else []
    traces = read_by_ids(store, Trace, ids, actor=actor(), purpose=PURPOSE) if ids else []
    exchanges = [
        (trace.conversation.user_text, trace.conversation.answer)
        for trace in traces
        if trace.conversation.answer and (since is None or trace.timestamp > since)
    ]
    return profile(exchanges, judge, TrustConfig(), urgency)


def check_drift(
    settings: Settings, store: Store, judge: Judge, *, config: DriftConfig, traffic: bool = True, new_card: bool = False
) -> DriftCheck:
    """Compare, and keep the alerts that hold. `traffic=False` compares only cards, so that no text is read.

    A `new_card` compares only cards too: the traffic of this moment is its baseline, so alerts about traffic are over.
    """
    compared: list[str] = []
    card = read_card(settings, judge.version)
    shifts: list[Alert] = []
    record = DriftRecord()
    if card is not None:
        shifts += _against_previous(settings, card, config, compared)
        if not traffic:
            compared.append("no exchanges, because they are not sent to a teacher for this")
        elif not new_card:
            record = _on_traffic(settings, store, judge, card, config, compared, shifts)
        write_record(settings, judge.version, record)
    return _keep(settings, judge.version, shifts, compared, looked_at_traffic=traffic or new_card)


def check_all(settings: Settings, store: Store, *, config: DriftConfig) -> Iterator[DriftCheck]:
    """Every reward that has a card, the newest first.

    A teacher is never asked: of a reward with one, only the cards are compared.
    """
    for card in cards(settings)[:MOST_CARDS]:
        version = card.reward_version
        try:
            _, judge = judge_of(settings, card.judge_source, budget=0.0)
        except MedloopError as error:
            write_record(settings, version, DriftRecord(problem="unreadable"))
            yield DriftCheck(version, problem=f"it cannot be read again: {error}")
            continue
        if judge.version == version:
            yield check_drift(settings, store, judge, config=config, traffic=not teachers_of(judge))
        else:
            write_record(settings, version, DriftRecord(problem="changed"))
            yield DriftCheck(version, problem=f"what it was made of has changed since; it is {judge.version} now")


def read_record(settings: Settings, version: str) -> DriftRecord | None:
    path = card_folder(settings, version) / RECORD
    try:
        return DriftRecord.from_json(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:  # damaged: the next look makes it anew, and its exchanges are the baseline
        return None


def write_record(settings: Settings, version: str, record: DriftRecord) -> None:
    atomic_write(card_folder(settings, version) / RECORD, record.model_dump_json(indent=2) + "\n")


def previous_card(settings: Settings, card: ValidityCard) -> ValidityCard | None:
    """The card before this one: of the same version on other cases, else the newest one of the same kind of judge."""
    earlier = [read_card(settings, card.reward_version, PREVIOUS)]
    earlier += [other for other in cards(settings) if other.kind == card.kind and other.reward_version != card.reward_version]
    known = [other for other in earlier if other and other.bundled == card.bundled and other.created < card.created]
    return max(known, key=lambda other: other.created, default=None)


def _against_previous(settings: Settings, card: ValidityCard, config: DriftConfig, compared: list[str]) -> Iterator[Alert]:
    before = previous_card(settings, card)
    if before is None:
        return
    compared.append(
        f"the card of {card.created:%Y-%m-%d} with that of {before.created:%Y-%m-%d} (version {before.reward_version})"
    )
    for shift in card_shifts(card, before, config):
        yield _alert("judge_changed" if shift.changed else "judge_fell", shift, card.reward_version)


def _on_traffic(
    settings: Settings, store: Store, judge: Judge, card: ValidityCard, config: DriftConfig, compared: list[str],
    shifts: list[Alert],
) -> DriftRecord:  # fmt: skip
    """Fresh exchanges against those at the time of the card; if there were too few, the first check with enough is the baseline.

    The texts of the cases are no baseline: somebody chose them, often for their faults.
    """
    before = read_record(settings, card.reward_version) or DriftRecord()
    baseline, until = before.baseline, before.baseline_until
    if _texts(card.traffic) >= config.min_cases:
        baseline, until = card.traffic, card.created
    started = utc_now()
    fresh = traffic_profile(store, judge, config.traces, since=until)
    record = DriftRecord(checked=started, exchanges=_texts(fresh), baseline=before.baseline, baseline_until=before.baseline_until)
    if _texts(fresh) < config.min_cases:
        return record
    if not baseline:
        compared.append(f"nothing yet: {_texts(fresh):,} exchanges are the baseline from now on")
        return record.model_copy(update={"baseline": fresh, "baseline_until": started})
    compared.append(f"{_texts(fresh):,} exchanges with the {_texts(baseline):,} of the baseline")
    shifts += [_alert("judge_shift", shift, card.reward_version) for shift in traffic_shifts(baseline, fresh, config)]
    return record


def _texts(profiles: Sequence[JudgeProfile]) -> int:
    return max((row.n for row in profiles), default=0)


def _alert(code: str, shift: JudgeShift, version: str) -> Alert:
    return make_alert(
        "judge", code, judge=shift.judge, quantity=shift.quantity, before=shift.before, after=shift.after, n=shift.n,
        reward=version,
    )  # fmt: skip


def _keep(
    settings: Settings, version: str, found: Sequence[Alert], compared: list[str], *, looked_at_traffic: bool
) -> DriftCheck:
    """The alerts of this reward anew; those of others, and those that this check did not look at, stay."""
    make_folder(trust_folder(settings))
    with locked_file(trust_folder(settings) / ".alerts.lock", wait_s=10, what="The list of alerts", mode=0o600):
        return _replace_alerts(settings, version, found, compared, looked_at_traffic=looked_at_traffic)


def _replace_alerts(
    settings: Settings, version: str, found: Sequence[Alert], compared: list[str], *, looked_at_traffic: bool
) -> DriftCheck:
    known = standing_alerts(settings.workspace)
    mine = [alert for alert in known if alert.values.get("reward") == version]
    looked_at = [alert for alert in mine if looked_at_traffic or alert.code in OF_CARDS]
    now, before = {_key(alert) for alert in found}, {_key(alert) for alert in looked_at}
    standing = [alert for alert in looked_at if _key(alert) in now]
    raised = [alert for alert in found if _key(alert) not in before]
    kept = [alert for alert in known if alert not in looked_at]
    if raised or len(standing) < len(looked_at):
        write_standing(settings.workspace, [*kept, *standing, *raised])
    return DriftCheck(version, raised, standing, [alert for alert in looked_at if _key(alert) not in now], compared)


def _key(alert: Alert) -> tuple[object, ...]:
    return alert.code, alert.values["judge"], alert.values["quantity"]
