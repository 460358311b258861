"""Drift of the judges of this workspace: what has changed since the newest card, as alerts that stand until it is over.

    check = check_drift(settings, store, judge, config=DriftConfig())
    check.raised, check.standing, check.ended         # told once: `raised` are those that did not stand before

The alerts are in reports/trust/alerts.jsonl. `medloop feedback metrics`, the dashboard and the trust page show them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medloop.contracts import Trace
from medloop.contracts.validity import JudgeProfile, ValidityCard
from medloop.feedback.insight.alerts import Alert, make_alert, standing_alerts, write_standing
from medloop.loop.trust import PREVIOUS, cards, read_card
from medloop.reward.detect.urgency import urgency
from medloop.reward.judge_drift import DriftConfig, JudgeShift, card_shifts, traffic_shifts
from medloop.reward.trust import Judge, TrustConfig, profile
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.db import Store
from medloop.store.records import marks
from medloop.store.records.audited_read import read_by_ids

PURPOSE = "reward drift"


@dataclass(frozen=True)
class DriftCheck:
    """`raised` are new, `standing` were told before and still hold, `ended` no longer do; `compared` says what was looked at."""

    raised: list[Alert]
    standing: list[Alert]
    ended: list[Alert]
    compared: list[str]


def traffic_profile(store: Store, judge: Judge, most: int, *, since: ValidityCard | None = None) -> tuple[JudgeProfile, ...]:
    """What the judge says about the newest exchanges, or about those after a card; the audit log has the reading."""
    ids = marks.newest_traces(store, most) if most else []
    traces = read_by_ids(store, Trace, ids, actor=actor(), purpose=PURPOSE) if ids else []
    exchanges = [
        (trace.conversation.user_text, trace.conversation.answer)
        for trace in traces
        if trace.conversation.answer and (since is None or trace.timestamp > since.created)
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
    if card is not None:
        shifts += _against_previous(settings, card, config, compared)
        if traffic and not new_card:
            shifts += _on_traffic(store, judge, card, config, compared)
    return _keep(settings, judge.version, shifts, compared, looked_at_traffic=traffic or new_card)


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
        yield _alert("judge_fell", shift, card.reward_version)


def _on_traffic(
    store: Store, judge: Judge, card: ValidityCard, config: DriftConfig, compared: list[str]
) -> Iterator[Alert]:  # fmt: skip
    has_traffic = _texts(card.traffic) >= config.min_cases
    fresh = traffic_profile(store, judge, config.traces, since=card if has_traffic else None)
    if _texts(fresh) < config.min_cases:
        return
    then = "the traffic of that time" if has_traffic else "the answers of its cases"
    compared.append(f"{_texts(fresh):,} exchanges with {then}")
    for shift in traffic_shifts(card.traffic if has_traffic else card.profiles, fresh, config):
        yield _alert("judge_shift", shift, card.reward_version)


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
    known = standing_alerts(settings.workspace)
    mine = [alert for alert in known if alert.values.get("reward") == version]
    looked_at = [alert for alert in mine if looked_at_traffic or alert.code == "judge_fell"]
    now, before = {_key(alert) for alert in found}, {_key(alert) for alert in looked_at}
    standing = [alert for alert in looked_at if _key(alert) in now]
    raised = [alert for alert in found if _key(alert) not in before]
    kept = [alert for alert in known if alert not in looked_at]
    if raised or len(standing) < len(looked_at):
        write_standing(settings.workspace, [*kept, *standing, *raised])
    return DriftCheck(raised, standing, [alert for alert in looked_at if _key(alert) not in now], compared)


def _key(alert: Alert) -> tuple[object, ...]:
    return alert.code, alert.values["judge"], alert.values["quantity"]
