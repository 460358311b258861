"""`/api/v1/queue`: the review queue for front ends other than the web pages; metrics of the feedback and the retrain trigger.

Take an item, send the rating to `/api/v1/rlhf/...` as usual, then name the id of that record as the verdict on the item.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import check_rate, store_of
from medloop.api.limits import heavy_read
from medloop.api.policy import Caller, allow
from medloop.contracts import Correction, Feedback, Message, Preference, utc_now
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig, measure
from medloop.feedback.insight.skill import measure_skill
from medloop.feedback.review import queue
from medloop.feedback.submit.site_ids import stored_id
from medloop.feedback.trigger import check_trigger, trigger_config
from medloop.jobs.retrain import pending_jobs
from medloop.store.records.triggers import newest_trigger
from medloop.store.records.users import list_users

router = APIRouter(prefix="/api/v1", tags=["queue"])

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="queue", sites=True))]
QueueViewer = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="queue"))]
RaterReader = Annotated[Caller, Depends(allow("engineer", "admin", scope="metrics"))]  # it names people
MetricsReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="metrics"))]


class ItemContentOut(BaseModel):
    """What is judged. Where it came from stays in the store: a rater could tell check items from others by it."""

    prompt: tuple[Message, ...]
    answers: tuple[str, ...] = Field(description="Of two answers the first is `a`.")
    contexts: tuple[str, ...] = Field(description="The passages that the assistant was given.")


class LeasedItemOut(BaseModel):
    """An item reserved for the caller until `until`. Of two answers, show the one named in `shown_first` first."""

    item_id: str = Field(examples=["qi_5f0c1d2e3b4a59687786950413223140"])
    kind: Literal["rate", "compare", "correct"]
    content: ItemContentOut
    reasons: dict[str, float] = Field(
        description="Why the item was chosen; empty for a comparison.", examples=[{"risk": 1.0, "novelty": 0.62}]
    )
    stratum: str = Field(examples=["emergency"])
    trace_id: str | None = None
    shown_first: Literal["a", "b"] | None = None
    adjudicates: bool = Field(description="True: other raters disagreed, and this verdict is final.")
    until: datetime


class VerdictBody(BaseModel):
    """The record that is the verdict: the id of a rating, choice or correction that the caller sent."""

    model_config = ConfigDict(extra="forbid")

    record_id: str = Field(min_length=1, max_length=200, examples=["fb_0199c0de-0000-7000-8000-000000000000"])


class ItemStateOut(BaseModel):
    item_id: str
    state: Literal["open", "disputed", "done"]


class QueueStatsOut(BaseModel):
    """How full the queue is, without content."""

    states: dict[str, int] = Field(examples=[{"open": 180, "done": 20}])
    open_by_stratum: dict[str, int]
    open_by_kind: dict[str, int]
    turns: dict[str, int]
    given_lately: dict[str, int]
    oldest_open: datetime | None


class RaterOut(BaseModel):
    """What a rater's vote weighs. `because`: their role (no evidence yet), evidence, drift, or chance, which counts nothing;
    of users who are not raters only dislikes count."""

    rater: str
    name: str | None = None
    role: str | None = None
    weight: float = Field(examples=[1.39])
    accuracy: float = Field(examples=[0.8])
    because: Literal["role", "evidence", "drift", "chance", "not_rater"]
    shared: int = Field(description="Judgements that could be compared with those of others or with the truth.")
    known: int = Field(description="Of these, judgements of answers whose truth is known.")
    right: int = Field(description="Of the known ones, those that were right.")
    drifted: bool


class TriggerOut(BaseModel):
    """Whether there is a reason to retrain now. `usable` records count; nothing may be trained on the others yet."""

    reason: Literal["volume", "critical", "schedule"] | None
    words: str = Field(examples=["412 of 1,000 new usable records, 0 of 3 critical flags"])
    usable: int
    waiting_for_consent: int
    quarantined: int
    by_one_rater: int = Field(description="Of the usable ones, those of the busiest rater; they count for a share, at most.")
    critical: int
    critical_raters: int = Field(description="Different raters who set these flags; one alone starts no training.")
    waits: Literal["pending", "cooldown"] | None = Field(
        None, description="Why training waits: jobs of the last trigger still run, or the pause after it is not over."
    )
    waits_until: datetime | None = None
    last_trigger: str | None = Field(examples=["retrain-2"])
    last_time: datetime | None
    last_jobs: tuple[str, ...] = ()


@router.get("/queue/next", response_model=LeasedItemOut, responses={204: {"description": "No item for you right now."}})
def next_item(
    request: Request, caller: Rater, kind: Annotated[Literal["rate", "compare", "correct"] | None, Query()] = None
) -> LeasedItemOut | Response:
    """Your current item, else the next one, reserved for 30 minutes; asked for again within five, it stays reserved as long as
    it was. Clinicians get disputed items first."""
    check_rate(request, caller)
    senior = caller.role == "clinician"
    kinds = (kind,) if kind else None
    item = queue.next_item(store_of(request), caller.user_id, senior=senior, kinds=kinds, site=caller.site)
    if item is None:
        return Response(status_code=204)
    return LeasedItemOut.model_validate(item, from_attributes=True)


@router.post("/queue/{item_id}/done")
def done(item_id: str, body: VerdictBody, request: Request, caller: Rater) -> ItemStateOut:
    """Name the record that is your verdict. 404: not your item; 409: it has gone to another rater."""
    store = store_of(request)
    record_id = stored_id(store, body.record_id, caller.site, Feedback, Preference, Correction)
    state = queue.finish(store, item_id, caller.user_id, record_id, site=caller.site)
    return ItemStateOut.model_validate({"item_id": item_id, "state": state})


@router.post("/queue/{item_id}/skip", status_code=204)
def skip(item_id: str, request: Request, caller: Rater) -> Response:
    """Return the item. It comes back to you after 12 hours, when nothing new is left for you."""
    queue.skip(store_of(request), item_id, caller.user_id, site=caller.site)
    return Response(status_code=204)


@router.get("/queue/stats")
def stats(request: Request, caller: QueueViewer) -> QueueStatsOut:
    """How many items are waiting, by kind and stratum."""
    return QueueStatsOut.model_validate(queue.stats(store_of(request)), from_attributes=True)


@router.get("/rlhf/metrics")
def metrics(request: Request, caller: MetricsReader, days: Annotated[int, Query(ge=1, le=3650)] = 90) -> FeedbackMetrics:
    """Volume, ratings, agreement, raters and alerts of the last days. No text is decrypted. 429 while others read them."""
    with heavy_read():
        return measure(store_of(request), MetricsConfig(since=utc_now() - timedelta(days=days), traces=0))


@router.get("/rlhf/raters")
def raters(request: Request, caller: RaterReader) -> list[RaterOut]:
    """What each rater's vote weighs when a dataset is built, and why, the greatest weight first."""
    store = store_of(request)
    people = {user.user_id: {"name": user.name, "role": user.role} for user in list_users(store)}
    with heavy_read():
        skills = sorted(measure_skill(store).items(), key=lambda entry: (-entry[1].weight, entry[0]))
    return [
        RaterOut.model_validate({"rater": rater, **people.get(rater, {}), **asdict(skill), "because": skill.because})
        for rater, skill in skills
    ]


@router.get("/rlhf/trigger")
def trigger(request: Request, caller: MetricsReader) -> TriggerOut:
    """How many new records count for the next training, how many wait for consent, and the last trigger. Starts nothing."""
    store = store_of(request)
    pending = bool(pending_jobs(store.settings))
    check = check_trigger(store, trigger_config(store.settings), pending=pending, write=False)
    last = newest_trigger(store)
    return TriggerOut.model_validate(
        {
            "reason": check.reason, "words": check.words, **asdict(check.records), "critical": check.critical,
            "critical_raters": check.critical_raters, "waits": check.waits and check.waits.because,
            "waits_until": check.waits and check.waits.until,
            "last_trigger": last and last.trigger_id, "last_time": last and last.timestamp,
            "last_jobs": last.jobs if last else (),
        }
    )  # fmt: skip
