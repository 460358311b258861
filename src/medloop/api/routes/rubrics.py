"""`/api/v1/rubrics`: criteria from corrections. The author of a correction decides about its criteria.

Who may decide is checked in store/records/criteria.py, in the transaction of the change.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.codebook import QUESTION_READERS
from medloop.api.routes.feedback import REFUSED
from medloop.contracts import CorrectionCriterion
from medloop.contracts.criterion import MOST_CHECK, MOST_CRITERION, CriterionState
from medloop.loop import rubrics as work
from medloop.store.records import criteria
from medloop.store.records.criteria import DRAFTERS, REVIEWERS

router = APIRouter(prefix="/api/v1/rubrics", tags=["rubrics"])

Json = dict[str, Any]
READERS = ("clinician", "annotator", "engineer", "auditor", "admin")
RubricReader = Annotated[Caller, Depends(allow(*READERS, scope="rubrics"))]
RubricDrafter = Annotated[Caller, Depends(allow(*DRAFTERS, scope="rubrics"))]
RubricReviewer = Annotated[Caller, Depends(allow(*REVIEWERS, scope="rubrics"))]
CriterionId = Annotated[str, InPath(min_length=6, max_length=80)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}


class _RubricBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DraftBody(_RubricBody):
    """One correction; without it, all new ones."""

    correction_id: str | None = Field(None, max_length=80)


class EditCriterionBody(_RubricBody):
    """What changes. `detector` is the check: an act, `same_language` or `mentions:WORDS`; empty: the teacher checks it."""

    criterion: str | None = Field(None, min_length=1, max_length=MOST_CRITERION)
    points: float | None = Field(None, ge=-10, le=10)
    detector: str | None = Field(None, max_length=MOST_CHECK)
    critical: bool | None = None


@router.get("", responses=ERRORS)
def list_criteria(
    request: Request,
    caller: RubricReader,
    state: CriterionState | None = None,
    correction_id: Annotated[str | None, Query(max_length=80)] = None,
) -> Json:
    """The criteria, newest first."""
    names = None if correction_id is None else [correction_id]
    rows = criteria.list_criteria(store_of(request), state=state, correction_ids=names)
    return {"items": [as_json(row, caller) for row in rows]}


@router.get("/{criterion}", responses=ERRORS)
def get_criterion(criterion: CriterionId, request: Request, caller: RubricReader) -> Json:
    return as_json(criteria.get_criterion(store_of(request), criterion), caller)


@router.post("", status_code=201, responses=ERRORS)
def draft(body: DraftBody, request: Request, caller: RubricDrafter) -> Json:
    """Draft criteria from corrections. Nothing uses them before the author of the correction accepts them."""
    check_rate(request, caller)
    store = store_of(request)
    if body.correction_id is not None:
        rows = work.draft_from(store, body.correction_id, actor=caller.user_id)
        return {"items": [as_json(row, caller) for row in rows], "known": 0, "unusable": {}}
    drafts = work.draft_new(store, actor=caller.user_id)
    items = [as_json(row, caller) for row in drafts.criteria]
    return {"items": items, "known": drafts.known, "unusable": drafts.unusable}


@router.post("/{criterion}/accept", responses=ERRORS)
def accept(criterion: CriterionId, request: Request, caller: RubricReviewer) -> Json:
    """Accept a draft, as the author of its correction: evaluation, gate and reward may use it."""
    check_rate(request, caller)
    store = store_of(request)
    found = criteria.get_criterion(store, criterion)
    return as_json(criteria.accept(store, found.criterion_id, by=caller.user_id), caller)


@router.post("/{criterion}/edit", status_code=201, responses=ERRORS)
def edit(criterion: CriterionId, body: EditCriterionBody, request: Request, caller: RubricReviewer) -> Json:
    """A criterion in the author's words in place of this one; it is accepted."""
    check_rate(request, caller)
    changes = body.model_dump(exclude_none=True)
    return as_json(work.edit_criterion(store_of(request), criterion, changes, by=caller.user_id), caller)


@router.post("/{criterion}/drop", responses=ERRORS)
def drop(criterion: CriterionId, request: Request, caller: RubricReviewer) -> Json:
    """Drop a criterion, as the author of its correction: nothing uses it."""
    check_rate(request, caller)
    store = store_of(request)
    found = criteria.get_criterion(store, criterion)
    return as_json(criteria.drop(store, found.criterion_id, by=caller.user_id), caller)


def as_json(criterion: CorrectionCriterion, caller: Caller) -> Json:
    shown = criterion if caller.role in QUESTION_READERS else without_question(criterion)
    return shown.model_dump(mode="json", exclude_none=True)


def without_question(criterion: CorrectionCriterion) -> CorrectionCriterion:
    """For readers who may see no patient's words, not even scrubbed ones."""
    content = criterion.content.model_copy(update={"question": "–"})
    if not content.standard:
        content = content.model_copy(update={"criterion": "–", "detector": None})
    return criterion.model_copy(update={"content": content})
