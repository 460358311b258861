"""What people say about the live version: critical flags and ratings of its answers in a window of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from medloop.store.db import Store
from medloop.store.records.polarity_sql import polarity_column
from medloop.store.tables import rlhf_feedback, rlhf_preferences, withdrawals


@dataclass(frozen=True)
class LiveSignals:
    """`flaggers`: different people whose critical flags stand. `judged` answers are liked or disliked, `liked` ones liked."""

    flaggers: int = 0
    judged: int = 0
    liked: int = 0


def live_signals(store: Store, names: Sequence[str], since: datetime) -> LiveSignals:
    """Of the answers that carry one of these names as their model version, without what was taken back.

    Where no clinician is named, the person is that of the exchange, else its session: what sent the flag is often a page's key,
    which all its visitors share.
    """
    feedback, preference = rlhf_feedback.c, rlhf_preferences.c
    taken_back = select(withdrawals.c.record_id)
    received = func.coalesce(feedback.received, feedback.timestamp)
    ours = (feedback.model_version.in_(names), received >= since, feedback.feedback_id.not_in(taken_back))
    rater = func.coalesce(feedback.clinician_id, feedback.subject, feedback.session_id)
    chooser = func.coalesce(preference.clinician_id, preference.subject, preference.session_id, preference.preference_id)
    pairs = select(
        preference.critical, preference.model_a, preference.model_b, chooser.label("rater"),
    ).where(
        func.coalesce(preference.received, preference.timestamp) >= since, func.json_array_length(preference.critical) > 0,
        preference.preference_id.not_in(taken_back),
    )  # fmt: skip
    with store.read() as conn:
        flaggers = set(conn.execute(select(rater).where(*ours, feedback.critical)).scalars())
        for row in conn.execute(pairs):
            flagged = {"a": row.model_a, "b": row.model_b}
            if any(flagged.get(side) in names for side in row.critical):
                flaggers.add(row.rater)
        polarity = polarity_column().label("polarity")
        counts: dict[str | None, int] = {
            row.polarity: int(row.n)
            for row in conn.execute(select(polarity, func.count().label("n")).where(*ours).group_by(polarity))
        }
    liked = counts.get("positive", 0)
    return LiveSignals(len(flaggers), liked + counts.get("negative", 0), liked)
