"""Check items: comparisons whose better answer is known, among the other items of the queue, to measure raters.

    items = check_items(store, strata_of, config, most=10, actor="user:li")

Where a clinician flagged an answer as critical and a clinician corrected it, the correction is the better one of the two. An item
asks others to compare them, in an order that only a hash decides; `expected` has the right side, which no rater is told. The
author of the correction does not get the item. The verdicts measure their raters (insight/skill.py) and enter no dataset.
What a rater sees of an item, and of their own record afterwards, is the same for a check item as for any other comparison.
"""

import hashlib
from collections.abc import Sequence

from medloop.contracts import Correction, Trace
from medloop.contracts.queue import QueueItem
from medloop.feedback.review.lanes import QueueCandidate, StrataOf, make_item
from medloop.feedback.review.propose import PURPOSE, scrubbed
from medloop.feedback.review.queue import QueueConfig
from medloop.store.db import Store
from medloop.store.records import review_queue
from medloop.store.records.audited_read import read_by_ids
from medloop.store.records.review_verdicts import corrections_of_flagged

PRIORITY = 0.5  # in the middle: neither the first nor the last that somebody gets


def check_items(store: Store, strata_of: StrataOf, config: QueueConfig, *, most: int, actor: str) -> list[QueueItem]:
    """Up to so many new check items, from the newest corrections."""
    ids = corrections_of_flagged(store, 4 * most) if most else []
    corrections = read_by_ids(store, Correction, ids, actor=actor, purpose=PURPOSE) if ids else []
    named = {correction.trace_id for correction in corrections if correction.trace_id is not None}
    traces = {trace.trace_id: trace for trace in read_by_ids(store, Trace, named, actor=actor, purpose=PURPOSE)} if named else {}
    items = []
    for correction in reversed(corrections):
        trace = traces.get(correction.trace_id or "")
        if trace is None or trace.conversation.question.split() != correction.prompt.split():
            continue
        if (item := _item(store, correction, trace, strata_of, config)) is not None:
            items.append(item)
    known = review_queue.known_items(store, [item.item_id for item in items])
    return [item for item in items if item.item_id not in known][:most]


def _item(
    store: Store, correction: Correction, trace: Trace, strata_of: StrataOf, config: QueueConfig
) -> QueueItem | None:  # fmt: skip
    first = hashlib.sha256(correction.correction_id.encode()).digest()[0] % 2 == 0
    answers: Sequence[str] = (correction.golden, correction.original)
    candidate = QueueCandidate(
        prompt=trace.conversation.prompt, answers=tuple(answers if first else answers[::-1]), kind="compare",
        models=(trace.model_version, trace.model_version), traces=(None, trace.trace_id) if first else (trace.trace_id, None),
        contexts=trace.contexts, records=(correction.correction_id,),
    )  # fmt: skip
    clean = next(iter(scrubbed(store, [candidate])), None)
    if clean is None:
        return None
    item = make_item(clean, config, strata_of(clean.question)[0], PRIORITY, {"explore": 1.0})  # it looks like one drawn at random
    return item.model_copy(update={"expected": "a" if first else "b"})
