"""What people complain about goes into the review queue by itself: thumbs down, critical flags, and raters who disagree.

    queue_complaints(store, strata_of)          # looks at the ratings that came since the last call; cheap when there are none

It does not matter by which door a rating came: the queue remembers how far it has looked (`queue_cursor`), in the transaction
that adds the items, so no rating is missed and none counts twice. A rating is stored first and looked at a moment later:
scrubbing takes longer than storing, and whoever sends feedback does not wait for it. The server does this in a thread
(loop/queue_filler.py), the commands of the queue before they read it.

A complaint asks for a correction, a disagreement for more ratings. An answer that somebody has corrected needs no other
correction, but a critical flag always gets a second opinion. What quarantine holds back is looked at again when it is released.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from medloop.contracts import Feedback, Message, Preference, Trace
from medloop.contracts.polarity import REASONS_TO_REVIEW
from medloop.contracts.queue import QueueItem, QueueKind
from medloop.errors import IntegrityError
from medloop.feedback.review.lanes import RISK, QueueCandidate, StrataOf, make_item, priority
from medloop.feedback.review.propose import scrubbed
from medloop.feedback.review.queue import DEFAULT, QueueConfig, agreed, polarity_of
from medloop.store.db import Store
from medloop.store.records import crud, queue_arrivals, review_queue
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.queue_arrivals import KnownItem, RatingPage
from medloop.store.records.review_verdicts import TurnVerdict

log = logging.getLogger(__name__)
ROWS = 100  # records of one look
PURPOSE = "complaints for the review queue"


@dataclass(frozen=True)
class QueuedComplaints:
    """`more`: there may be ratings that this look did not reach."""

    looked: int
    items: tuple[QueueItem, ...]
    more: bool


@dataclass(frozen=True)
class _Ask:
    """What is asked about an answer, and why."""

    kind: QueueKind
    reasons: dict[str, float]


def queue_complaints(
    store: Store, strata_of: StrataOf, *, config: QueueConfig = DEFAULT, rows: int = ROWS, actor: str = "medloop"
) -> QueuedComplaints:
    """Look at the next new ratings and queue the answers that need a person."""
    page = queue_arrivals.new_ratings(store, most=rows)
    if page.rows == 0:
        return QueuedComplaints(0, (), more=False)
    asked = _asked(store, page)
    known = queue_arrivals.items_on(store, asked)
    new = {name: ask for name, ask in asked.items() if (name, ask.kind) not in known}
    try:
        candidates = [*_from_traces(store, new, actor), *_from_records(store, page, actor)]
    except IntegrityError as error:  # a damaged record must not stop the others
        if rows > 1:
            return queue_complaints(store, strata_of, config=config, rows=1, actor=actor)
        log.error("a complaint was not queued: %s", error)
        candidates = []
    items = [_item(candidate, strata_of, config) for candidate in scrubbed(store, candidates)]
    with store.write() as conn:
        added = review_queue.add_items_in(store, conn, items, actor=actor)
        for name, ask in asked.items():
            if (item := known.get((name, ask.kind))) is not None and (raised := _raised(item, ask)) is not None:
                queue_arrivals.raise_item(conn, item.item_id, priority(raised, config.weights), raised)
        queue_arrivals.close_corrected(conn, {*page.trace_ids, *page.corrected})
        queue_arrivals.looked_at(conn, page)
    return QueuedComplaints(page.rows, tuple(added), more=page.rows >= rows)


def _asked(store: Store, page: RatingPage) -> dict[str, _Ask]:
    """By trace, what to ask about it; nothing where raters are content and agree."""
    verdicts = queue_arrivals.verdicts_on(store, page.trace_ids)
    corrected = queue_arrivals.corrected_traces(store, verdicts)
    asks = ((name, _ask(given, corrected=name in corrected)) for name, given in verdicts.items())
    return {name: ask for name, ask in asks if ask is not None}


def _ask(verdicts: Sequence[TurnVerdict], *, corrected: bool) -> _Ask | None:
    reasons: dict[str, float] = {}
    if any(verdict.critical for verdict in verdicts):
        reasons["critical"] = 1.0
    if any(polarity_of(verdict) in REASONS_TO_REVIEW for verdict in verdicts):
        reasons["thumbs_down"] = 1.0
    if len(verdicts) > 1 and not agreed("rate", verdicts):
        reasons["raters_disagree"] = 1.0
    if not reasons or (corrected and "critical" not in reasons):
        return None
    return _Ask("correct" if "thumbs_down" in reasons and not corrected else "rate", reasons)


def _raised(item: KnownItem, ask: _Ask) -> dict[str, float] | None:
    """The reasons of an open item with those that are new; None when there are none."""
    reasons = {**item.reasons, **ask.reasons}
    return reasons if item.state == "open" and reasons != item.reasons else None


def _from_traces(store: Store, asked: dict[str, _Ask], actor: str) -> list[QueueCandidate]:
    traces = read_by_ids(store, Trace, asked, actor=actor, purpose=PURPOSE) if asked else []
    return [
        QueueCandidate(
            prompt=trace.conversation.prompt, answers=(answer,), kind=asked[trace.trace_id].kind, models=(trace.model_version,),
            traces=(trace.trace_id,), contexts=trace.contexts, reasons=asked[trace.trace_id].reasons,
        )
        for trace in traces
        if (answer := trace.conversation.answer) is not None and answer.strip()
    ]  # fmt: skip


def _from_records(store: Store, page: RatingPage, actor: str) -> list[QueueCandidate]:
    """Complaints about answers that nobody logged, and about one of two answers: the record itself has the texts."""
    ids = queue_arrivals.free_complaints(store, (*page.complaints, *page.choices))
    candidates = []
    if own := set(ids) & set(page.complaints):
        ratings = read_by_ids(store, Feedback, own, actor=actor, purpose=PURPOSE)
        candidates += [
            _from_text(rating, rating.user_query, rating.agent_response, rating.model_version, critical=rating.critical)
            for rating in ratings
            if rating.user_query and rating.agent_response  # a rating of a session alone has nothing to show
        ]
    if own := set(ids) & set(page.choices):
        for choice in read_by_ids(store, Preference, own, actor=actor, purpose=PURPOSE):
            sides = {"a": (choice.response_a, choice.model_a), "b": (choice.response_b, choice.model_b)}
            for side in choice.critical or ("a",):  # of two bad answers one is enough to ask for a better one
                candidates.append(_from_text(choice, choice.prompt, *sides[side], critical=bool(choice.critical)))
    return candidates


def _from_text(record: Feedback | Preference, question: str, answer: str, model: str | None, *, critical: bool) -> QueueCandidate:
    return QueueCandidate(
        prompt=(Message(role="user", content=question),), answers=(answer,), kind="correct", models=(model,),
        records=(crud.id_of(record),), reasons={"thumbs_down": 1.0, **({"critical": 1.0} if critical else {})},
    )  # fmt: skip


def _item(candidate: QueueCandidate, strata_of: StrataOf, config: QueueConfig) -> QueueItem:
    stratum = strata_of(candidate.question)[0]
    reasons = {**candidate.reasons, "risk": RISK[stratum]}
    return make_item(candidate, config, stratum, priority(reasons, config.weights), reasons)
