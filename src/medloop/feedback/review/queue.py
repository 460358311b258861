"""The review queue: which item a rater gets next, and when an item is settled.

    item = next_item(store, rater="u_1")             # the same item again until it is finished, skipped or lapsed
    finish(store, item.item_id, "u_1", record_id)    # the rating itself is submitted first, like any other
    outcome_of(store, item.item_id)                  # the result, and how it came about

Raters settle an item by agreeing (`agreed`); otherwise a senior rater who has not seen it decides alone. A critical flag that
only one of them set is always a dispute, however close the stars are.

Raters see no name or number of a patient: texts are scrubbed before they are queued (propose.py), and again when an item is
handed out, because the scrubber may have improved since. An item that cannot be scrubbed is handed to nobody.
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
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.polarity import Polarity, polarity
from medloop.privacy.phi.scrub import Scrubber
from medloop.store.db import Store
from medloop.store.records import review_queue, review_verdicts
from medloop.store.records.review_queue import LeasedItem, QueueStats
from medloop.store.records.review_verdicts import TurnVerdict

MAJORITY = 2 / 3  # of the choices between two answers
MAX_SPREAD = 1  # stars between the highest and the lowest rating of an item on which raters agree

QUOTAS: dict[Stratum, float] = {
    "emergency": 0.25, "medication": 0.2, "pregnancy": 0.1, "child": 0.15, "elderly": 0.1, "routine": 0.2,
}  # fmt: skip
WEIGHTS = {"critical": 0.95, "disagreement": 0.6, "novelty": 0.2, "raters_disagree": 0.6, "risk": 0.4, "thumbs_down": 0.8}


class QueueConfig(BaseModel):
    """How the queue is filled and handed out."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    size: int = Field(200, ge=1, le=100_000, description="Open items in the queue; a fill tops up to this number.")
    pool: int = Field(2000, ge=1, le=200_000, description="Newest traces that a fill considers.")
    raters: int = Field(2, ge=1, le=25, description="People who rate or compare each item; a correction needs one.")
    lease_minutes: float = Field(30, gt=0, le=1440, description="How long an item stays with a rater who does not finish it.")
    learn: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of items chosen because they teach the reward model most; more where safety needs less.",
    )
    explore: float = Field(
        0.1, ge=0, le=1, description="Share of items drawn at random: an unbiased sample, and what no reason points at."
    )
    check: float = Field(
        0.05,
        ge=0,
        le=0.5,
        description="Check items for each other item of a fill: their better answer is known.",
    )
    doubtful: float = Field(
        0.2, gt=0, le=1, description="Share of candidates, the most uncertain ones, that the learning lane considers.",
    )  # fmt: skip
    quotas: dict[Stratum, float] = Field(QUOTAS, description="Share of the turns for each risk stratum.")
    weights: dict[str, float] = Field(
        WEIGHTS, description="How much each reason can raise the priority in the safety lane, 0 to 1."
    )

    @model_validator(mode="after")
    def _lanes_fit(self) -> QueueConfig:
        if self.learn + self.explore > 1:
            raise ValueError("learn and explore are shares of one queue: together at most 1")
        return self


DEFAULT = QueueConfig()


@dataclass(frozen=True)
class QuestionSearch:
    """Which items a rater asks for: with a question in this language, and with all of these words in it."""

    language: str | None = None
    words: tuple[str, ...] = ()


ANY_QUESTION = QuestionSearch()


@dataclass(frozen=True)
class ItemOutcome:
    """The result of an item. `value` is -1 bad, 0 neutral, 1 good, or the choice; None while open or disputed."""

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
    search: QuestionSearch = ANY_QUESTION,
    site: str = DEFAULT_SITE,
    config: QueueConfig = DEFAULT,
    now: datetime | None = None,
) -> LeasedItem | None:
    """The item for this rater, reserved until `until`; None when there is none for them. Seniors get disputes first, raters of a
    site only items about answers given there."""
    request = replace(_request(rater, senior, kinds, search, config, now), site=site)
    while (item := review_queue.lease(store, request)) is not None:
        clean = scrub_content(item.content.prompt, item.content.answers, item.content.contexts)
        if clean is None:
            review_verdicts.skip(store, item.item_id, rater, now=request.now)
            continue
        texts = {"prompt": clean.prompt, "answers": clean.answers, "contexts": clean.contexts}
        content = item.content.model_copy(update=texts)
        if content == item.content:
            return item
        review_queue.rewrite(store, item.item_id, content, actor=rater)
        return replace(item, content=content)
    return None


def count_left(
    store: Store, rater: str, *, senior: bool = False, kinds: Sequence[str] | None = None,
    search: QuestionSearch = ANY_QUESTION, site: str = DEFAULT_SITE,
) -> int:  # fmt: skip
    """How many items this rater can still be given, the one in their hands included."""
    return review_queue.count_left(store, replace(_request(rater, senior, kinds, search, DEFAULT, None), site=site))


def _request(
    rater: str, senior: bool, kinds: Sequence[str] | None, search: QuestionSearch, config: QueueConfig, now: datetime | None
) -> review_queue.LeaseRequest:
    return review_queue.LeaseRequest(
        rater=rater, now=now or utc_now(), lease=timedelta(minutes=config.lease_minutes),
        quotas={str(name): share for name, share in config.quotas.items()}, senior=senior,
        kinds=tuple(kinds or ("rate", "compare", "correct")), language=search.language, words=search.words,
    )  # fmt: skip


@dataclass(frozen=True)
class ScrubbedContent:
    """The texts of an item; a person has the same placeholder in all of them. `doubted`: somebody may still be named."""

    prompt: tuple[Message, ...]
    answers: tuple[str, ...]
    contexts: tuple[str, ...]
    doubted: bool


def scrub_content(prompt: Sequence[Message], answers: Sequence[str], contexts: Sequence[str] = ()) -> ScrubbedContent | None:
    """The texts without identifiers; None where they cannot be scrubbed."""
    scrubber, texts, doubted = Scrubber(), [*(message.content for message in prompt), *answers, *contexts], False
    for _ in range(2):
        results = [scrubber.assess(text) for text in texts]
        if any(text and not result.cleaned for text, result in zip(texts, results, strict=True)):
            return None
        texts, doubted = [result.cleaned for result in results], any(result.quarantined for result in results)
        if not scrubber.persons.placeholders:  # a second pass: somebody named in full may appear earlier by one name only
            break
    messages = tuple(message.model_copy(update={"content": text}) for message, text in zip(prompt, texts, strict=False))
    rest = texts[len(messages) :]
    return ScrubbedContent(messages, tuple(rest[: len(answers)]), tuple(rest[len(answers) :]), doubted)


def finish(
    store: Store, item_id: str, rater: str, record_id: str, *, now: datetime | None = None, site: str = DEFAULT_SITE
) -> str:  # fmt: skip
    """The record of this id is the rater's verdict on the item; returns the item's state."""
    return review_verdicts.finish(store, item_id, rater, record_id, now=now or utc_now(), agreed=agreed, site=site)


def skip(store: Store, item_id: str, rater: str, *, now: datetime | None = None, site: str = DEFAULT_SITE) -> None:
    """Give the item back; it comes again after 12 hours, when nothing new is left for this rater."""
    review_verdicts.skip(store, item_id, rater, now=now or utc_now(), site=site)


def stats(store: Store) -> QueueStats:
    return review_queue.stats(store)


def agreed(kind: str, verdicts: Sequence[TurnVerdict]) -> bool:
    """Whether these verdicts settle an item. A rating that contradicts itself never does."""
    if kind == "correct":  # two golden answers are two examples, not a dispute
        return True
    if len({verdict.critical for verdict in verdicts}) > 1:
        return False
    if kind == "compare":
        return max(Counter(verdict.preferred for verdict in verdicts).values()) >= MAJORITY * len(verdicts)
    polarities = {polarity_of(verdict) for verdict in verdicts} - {None}
    if "mixed" in polarities or {"positive", "negative"} <= polarities:
        return False
    stars = [verdict.rating for verdict in verdicts if verdict.rating is not None]
    if len(stars) == len(verdicts):
        return max(stars) - min(stars) <= MAX_SPREAD
    return len(polarities) <= 1


def polarity_of(verdict: TurnVerdict) -> Polarity | None:
    critical = bool(verdict.critical)
    return polarity(thumb=verdict.thumb, stars=verdict.rating, feedback_type=verdict.feedback_type, critical=critical)


def outcome_of(store: Store, item_id: str) -> ItemOutcome:
    """The result of an item: the adjudicator's verdict if there was one, else what the raters agreed on."""
    state, kind, verdicts = review_verdicts.verdicts(store, item_id)
    record_ids = tuple(verdict.record_id for verdict in verdicts)
    if state != "done":
        critical = any(verdict.critical for verdict in verdicts)
        return ItemOutcome("disputed" if state == "disputed" else "open", None, None, critical, record_ids)
    adjudicated = [verdict for verdict in verdicts if verdict.adjudicates]
    by: Literal["agreement", "adjudication"] = "adjudication" if adjudicated else "agreement"
    final = adjudicated or verdicts
    return ItemOutcome("done", by, _value(kind, final), any(verdict.critical for verdict in final), record_ids)


def _value(kind: str, verdicts: Sequence[TurnVerdict]) -> int | str | None:
    if kind == "correct" or not verdicts:
        return None
    if kind == "compare":
        return Counter(verdict.preferred for verdict in verdicts).most_common(1)[0][0]
    polarities = Counter(value for verdict in verdicts if (value := polarity_of(verdict)) is not None)
    balance = polarities["positive"] - polarities["negative"]
    return (balance > 0) - (balance < 0) if polarities else None
