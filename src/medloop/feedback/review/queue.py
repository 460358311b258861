"""The review queue: who is asked what next, and when an item is settled.

    propose(store, config, signals, actor="api")     # tops the queue up with what teaches most
    item = next_item(store, rater="u_1")             # the same item again until it is finished, skipped or lapsed
    finish(store, item.item_id, "u_1", record_id)    # the rating itself goes in by the usual door, first
    verdict(store, item.item_id)                     # what came out, and how

Raters settle an item by agreeing (`agreed`); else a senior rater who has not met it decides alone. A critical flag that only one
of them set is always a dispute, however close the stars are.

Nobody who rates sees a name or a number of a patient: texts are scrubbed before they go in. An item that is older than that, or
that the scrubber of its time let pass, is scrubbed when it is handed out; what cannot be is handed to nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medloop.contracts import Message, utc_now
from medloop.contracts.dataset import Stratum
from medloop.contracts.polarity import Polarity, polarity
from medloop.privacy.phi.scrub import Scrubber
from medloop.store.db import Store
from medloop.store.records import review_queue as rows
from medloop.store.records import review_verdicts
from medloop.store.records.review_queue import LeasedItem, QueueStats
from medloop.store.records.review_verdicts import TurnVerdict

MAJORITY = 2 / 3  # of the choices between two answers
CLOSE = 1  # stars between the highest and the lowest rating of an item that counts as agreed

QUOTAS: dict[Stratum, float] = {
    "emergency": 0.25, "medication": 0.2, "pregnancy": 0.1, "child": 0.15, "elderly": 0.1, "routine": 0.2,
}  # fmt: skip
WEIGHTS = {"disagreement": 0.6, "novelty": 0.2, "risk": 0.4, "thumbs_down": 0.8}


class QueueConfig(BaseModel):
    """How the queue is filled and handed out."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    size: int = Field(200, ge=1, le=100_000, description="Open items there shall be; a fill tops up to this.")
    pool: int = Field(2000, ge=1, le=200_000, description="Newest traces that are looked at in a fill.")
    raters: int = Field(2, ge=1, le=25, description="People who rate or compare each item; a correction needs one.")
    lease_minutes: float = Field(30, gt=0, le=1440, description="How long an item stays with a rater who does not finish it.")
    learn: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of the items that is chosen for what it teaches the reward model; more where safety has less.",
    )
    explore: float = Field(
        0.1, ge=0, le=1, description="Share of the items that is drawn by lot: an honest sample, and what no reason points at."
    )
    doubtful: float = Field(
        0.2,
        gt=0,
        le=1,
        description="Share of the candidates, those the reward model doubts most, that the learning lane looks at.",
    )
    quotas: dict[Stratum, float] = Field(QUOTAS, description="Share of the turns per risk stratum.")
    weights: dict[str, float] = Field(WEIGHTS, description="How much each reason can raise the priority in the safety lane, 0-1.")

    @model_validator(mode="after")
    def _lanes_fit(self) -> QueueConfig:
        if self.learn + self.explore > 1:
            raise ValueError("learn and explore are shares of one queue: together at most 1")
        return self


DEFAULT = QueueConfig()


@dataclass(frozen=True)
class Outcome:
    """What came of an item. `value` is -1 bad, 0 neutral, 1 good, or the preferred answer; None while open or disputed."""

    state: Literal["open", "disputed", "done"]
    by: Literal["agreement", "adjudication"] | None
    value: int | str | None
    critical: bool
    records: tuple[str, ...]


def next_item(
    store: Store,
    rater: str,
    *,
    senior: bool = False,
    kinds: Sequence[str] | None = None,
    config: QueueConfig = DEFAULT,
    now: datetime | None = None,
) -> LeasedItem | None:
    """The item for this rater, theirs until `until`; None when there is nothing for them. Seniors get disputes first."""
    ask = rows.LeaseRequest(
        rater=rater,
        now=now or utc_now(),
        lease=timedelta(minutes=config.lease_minutes),
        quotas={str(name): share for name, share in config.quotas.items()},
        senior=senior,
        kinds=tuple(kinds or ("rate", "compare", "correct")),
    )
    while (found := rows.lease(store, ask)) is not None:
        clean = scrubbed(found.content.prompt, found.content.answers)
        if clean is None:
            review_verdicts.skip(store, found.item_id, rater)
            continue
        if (clean.prompt, clean.answers) == (found.content.prompt, found.content.answers):
            return found
        content = found.content.model_copy(update={"prompt": clean.prompt, "answers": clean.answers})
        rows.rewrite(store, found.item_id, content, actor=rater)
        return replace(found, content=content)
    return None


@dataclass(frozen=True)
class Scrubbed:
    """The texts of an item with placeholders, one person's the same in all of them; `doubted`: somebody may still be named."""

    prompt: tuple[Message, ...]
    answers: tuple[str, ...]
    doubted: bool


def scrubbed(prompt: Sequence[Message], answers: Sequence[str]) -> Scrubbed | None:
    """None where they cannot be scrubbed."""
    scrubber, texts, doubted = Scrubber(), [*(message.content for message in prompt), *answers], False
    for _ in range(2):
        found = [scrubber.assess(text) for text in texts]
        if any(text and not one.cleaned for text, one in zip(texts, found, strict=True)):
            return None
        texts, doubted = [one.cleaned for one in found], any(one.quarantined for one in found)
        if not scrubber.persons:  # else whoever is named in full later may stand before by one name
            break
    said = tuple(message.model_copy(update={"content": text}) for message, text in zip(prompt, texts, strict=False))
    return Scrubbed(said, tuple(texts[len(said) :]), doubted)


def finish(store: Store, item_id: str, rater: str, record_id: str, *, now: datetime | None = None) -> str:
    """The record of this id is the rater's verdict on the item; returns the item's state."""
    return review_verdicts.finish(store, item_id, rater, record_id, now=now or utc_now(), agreed=agreed)


def skip(store: Store, item_id: str, rater: str) -> None:
    review_verdicts.skip(store, item_id, rater)


def stats(store: Store) -> QueueStats:
    return rows.stats(store)


def agreed(kind: str, verdicts: Sequence[TurnVerdict]) -> bool:
    """Whether these verdicts settle an item. A rating that contradicts itself never does."""
    if kind == "correct":  # two golden answers are two examples, not a dispute
        return True
    if kind == "compare":
        return max(Counter(verdict.preferred for verdict in verdicts).values()) >= MAJORITY * len(verdicts)
    if len({verdict.critical for verdict in verdicts}) > 1:
        return False
    polarities = {polarity_of(verdict) for verdict in verdicts} - {None}
    if "mixed" in polarities or {"positive", "negative"} <= polarities:
        return False
    stars = [verdict.rating for verdict in verdicts if verdict.rating is not None]
    if len(stars) == len(verdicts):
        return max(stars) - min(stars) <= CLOSE
    return len(polarities) <= 1


def polarity_of(verdict: TurnVerdict) -> Polarity | None:
    return polarity(thumb=verdict.thumb, stars=verdict.rating, feedback_type=verdict.feedback_type, critical=verdict.critical)


def verdict(store: Store, item_id: str) -> Outcome:
    """The final word on an item: the adjudicator's if there was one, else what the raters agreed on."""
    state, kind, said = review_verdicts.verdicts(store, item_id)
    records = tuple(one.record_id for one in said)
    critical = any(one.critical for one in said)
    if state != "done":
        return Outcome("disputed" if state == "disputed" else "open", None, None, critical, records)
    last = [one for one in said if one.adjudicates]
    by: Literal["agreement", "adjudication"] = "adjudication" if last else "agreement"
    value = _value(kind, last or said)
    return Outcome("done", by, value, any(one.critical for one in last or said), records)


def _value(kind: str, said: Sequence[TurnVerdict]) -> int | str | None:
    if kind == "correct" or not said:
        return None
    if kind == "compare":
        return Counter(one.preferred for one in said).most_common(1)[0][0]
    polarities = Counter(value for one in said if (value := polarity_of(one)) is not None)
    balance = polarities["positive"] - polarities["negative"]
    return (balance > 0) - (balance < 0) if polarities else None
