"""`/api/v1/queue`: the review queue for people with another front than the web pages, and the numbers about the feedback.

Take an item, send the rating by `/api/v1/rlhf/...` as always, then name its id as the verdict on the item.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import store_of
from medloop.api.policy import Caller, NothingHereError, allow
from medloop.contracts import utc_now
from medloop.contracts.queue import QueueContent
from medloop.feedback.insight.metrics import FeedbackMetrics, MetricsConfig, measure
from medloop.feedback.review import queue
from medloop.jobs.job_row import StateError
from medloop.store.records.review_queue import LapsedError, UnknownItemError

router = APIRouter(prefix="/api/v1", tags=["queue"])

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="queue"))]
Looker = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "admin", scope="queue"))]
Reader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="metrics"))]


class Item(BaseModel):
    """An item in the caller's hands until `until`. Of two answers show the one named in `shown_first` first."""

    item_id: str = Field(examples=["qi_5f0c1d2e3b4a59687786950413223140"])
    kind: Literal["rate", "compare", "correct"]
    content: QueueContent
    reasons: dict[str, float] = Field(examples=[{"risk": 1.0, "novelty": 0.62}])
    stratum: str = Field(examples=["emergency"])
    trace_id: str | None = None
    shown_first: Literal["a", "b"] | None = None
    adjudicates: bool = Field(description="True: others disagreed about this one, and this verdict is final.")
    until: datetime


class Done(BaseModel):
    """The record that is the verdict: a feedback_id, preference_id or correction_id of the caller's own."""

    model_config = ConfigDict(extra="forbid")

    record_id: str = Field(min_length=1, max_length=200, examples=["fb_0199c0de-0000-7000-8000-000000000000"])


class State(BaseModel):
    item_id: str
    state: Literal["open", "disputed", "done"]


class Stats(BaseModel):
    """How full the queue is; no content."""

    states: dict[str, int] = Field(examples=[{"open": 180, "done": 20}])
    open_by_stratum: dict[str, int]
    open_by_kind: dict[str, int]
    turns: dict[str, int]
    given_lately: dict[str, int]
    oldest_open: datetime | None


@router.get("/queue/next", response_model=Item, responses={204: {"description": "Nothing for you now."}})
def next_item(
    request: Request, caller: Rater, kind: Annotated[Literal["rate", "compare", "correct"] | None, Query()] = None
) -> Item | Response:
    """The item you hold, else the next one. It is yours for half an hour; clinicians get what others disagreed about first."""
    senior = caller.role == "clinician"
    found = queue.next_item(store_of(request), caller.user_id, senior=senior, kinds=(kind,) if kind else None)
    if found is None:
        return Response(status_code=204)
    return Item.model_validate(found, from_attributes=True)


@router.post("/queue/{item_id}/done")
def done(item_id: str, body: Done, request: Request, caller: Rater) -> State:
    """Name the record that is your verdict. 404: not your item; 409: it went to somebody else meanwhile."""
    try:
        state = queue.finish(store_of(request), item_id, caller.user_id, body.record_id)
    except UnknownItemError as error:
        raise NothingHereError(error.what, error.to_do) from None
    except LapsedError as error:
        raise StateError(error.what, error.to_do) from None
    return State.model_validate({"item_id": item_id, "state": state})


@router.post("/queue/{item_id}/skip", status_code=204)
def skip(item_id: str, request: Request, caller: Rater) -> Response:
    """Give the item back; you will not be asked about it again."""
    try:
        queue.skip(store_of(request), item_id, caller.user_id)
    except UnknownItemError as error:
        raise NothingHereError(error.what, error.to_do) from None
    except LapsedError as error:
        raise StateError(error.what, error.to_do) from None
    return Response(status_code=204)


@router.get("/queue/stats")
def stats(request: Request, caller: Looker) -> Stats:
    """How many items wait, of which kind and stratum."""
    return Stats.model_validate(queue.stats(store_of(request)), from_attributes=True)


@router.get("/rlhf/metrics")
def metrics(request: Request, caller: Reader, days: Annotated[int, Query(ge=1, le=3650)] = 90) -> FeedbackMetrics:
    """Volume, ratings, agreement, raters and alerts of the last days; no text is opened for it."""
    return measure(store_of(request), MetricsConfig(since=utc_now() - timedelta(days=days), traces=0))
