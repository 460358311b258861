"""Criteria from corrections: the drafts that wait for me, what is accepted; accept, change, drop."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller
from medloop.api.routes.codebook import QUESTION_READERS
from medloop.api.routes.rubrics import RubricReader, RubricReviewer, without_question
from medloop.codebook.criteria import ACTS, MENTIONS, NOT, SAME_LANGUAGE, SAYS
from medloop.contracts import CorrectionCriterion
from medloop.contracts.criterion import MOST_CHECK, MOST_CRITERION
from medloop.errors import InputError, ResultError
from medloop.loop import rubrics as work
from medloop.store.records import criteria
from medloop.web.form_steps import begin_step, refusal_code
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

STEPS = ("accept", "edit", "drop")
STATES = ("draft", "accepted", "dropped")
CHECKS = (*ACTS, SAME_LANGUAGE)
MOST_CASES = 50  # corrections on one page


@dataclass(frozen=True)
class ShownCriterion:
    row: CorrectionCriterion
    may_decide: bool
    check: str  # the detector without its words, `teacher` where it has none
    words: str
    opposite: bool


@router.get("/rubrics")
def rubrics_page(
    request: Request,
    caller: RubricReader,
    state: Annotated[str, Query(max_length=10)] = "",
    done: Annotated[str, Query(max_length=10)] = "",
) -> Response:
    note = translator_of(request)(f"rubrics_done_{done}") if done in STEPS else ""
    return _page(request, caller, state, note=note)


@router.post("/rubrics/{criterion}/{step}")
def decide(request: Request, caller: RubricReviewer, criterion: str, step: str, form: FormFields) -> Response:
    store = begin_step(request, caller, step, STEPS)
    found = criteria.get_criterion(store, criterion)
    try:
        if step == "edit":
            work.edit_criterion(store, found.criterion_id, _changes(form), by=caller.user_id)
        else:
            decided = criteria.accept if step == "accept" else criteria.drop
            decided(store, found.criterion_id, by=caller.user_id)
    except (InputError, ResultError) as error:
        code = refusal_code(error, criteria.CriterionPersonError)
        return _page(request, caller, form.get("state", ""), code, problem=str(error))
    return redirect(f"/web/rubrics?state={form['state'] if form.get('state') in STATES else ''}&done={step}")


def _changes(form: dict[str, str]) -> dict[str, Any]:
    check = form.get("check", "")
    kind, words = check.removeprefix(NOT), form.get("words", "")
    if kind not in (*CHECKS, MENTIONS, SAYS, "teacher"):
        raise InputError("There is no such check", "Choose one of the list")
    detector = "" if kind == "teacher" else check + (words if kind in (MENTIONS, SAYS) else "")
    try:
        points = float(form.get("points", ""))
    except ValueError:
        raise InputError("The points are not a number", "Use 1 to 10, or -1 to -10 for a fault") from None
    return {"criterion": form.get("criterion", ""), "detector": detector, "points": points, "critical": "critical" in form}


def _page(request: Request, caller: Caller, state: str, code: int = 200, **more: Any) -> Response:
    store = store_of(request)
    if caller.role in criteria.DRAFTERS:
        work.draft_new(store, actor=caller.user_id)
    every = criteria.list_criteria(store)
    sizes = {name: sum(row.state == name for row in every) for name in STATES}
    state = state if state in STATES else "draft" if sizes["draft"] else "accepted"
    rows = [row for row in every if row.state == state]
    rows.sort(key=lambda row: row.author != caller.user_id)  # mine first, else as they are
    cases: dict[str, list[ShownCriterion]] = {}
    for row in rows:
        if row.correction_id in cases or len(cases) < MOST_CASES:
            shown = row if caller.role in QUESTION_READERS else without_question(row)
            may = caller.role in criteria.REVIEWERS and criteria.may_decide(store, row, caller.user_id)
            cases.setdefault(row.correction_id, []).append(_shown(shown, may))
    context: dict[str, Any] = {
        "cases": cases, "state": state, "states": STATES, "sizes": sizes, "who": People(store, translator_of(request)),
        "mine": sum(row.author == caller.user_id and row.state == "draft" for row in every), "checks": CHECKS,
        "max_text": MOST_CRITERION, "max_words": MOST_CHECK, "note": "", "problem": "",
        "may_read": caller.role in QUESTION_READERS,
        "not_shown": len({row.correction_id for row in rows}) - len(cases),
    }  # fmt: skip
    return show(request, caller, "rubrics.html", code, **(context | more))


def _shown(row: CorrectionCriterion, may_decide: bool) -> ShownCriterion:
    detector = row.content.detector
    if detector is None:
        return ShownCriterion(row, may_decide, "teacher", "", False)
    kind, colon, words = detector.removeprefix(NOT).partition(":")
    return ShownCriterion(row, may_decide, kind + colon, words, detector.startswith(NOT))
