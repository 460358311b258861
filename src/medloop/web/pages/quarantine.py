"""The page where clinicians look at records that may still name somebody, one at a time, and release or refuse them.

The same functions as `/api/v1/rlhf/quarantine` (quarantine.py): nobody sees what they sent themselves, every look at a text is
audited, and of two decisions about one record the first counts.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.quarantine import KIND, STATE, for_review, opened_for_review
from medloop.feedback.review import quarantine_marks as scan
from medloop.store.db import Store
from medloop.store.records import quarantine, users
from medloop.store.records.quarantine import REASONS, Opened, State
from medloop.web import quarantine_text
from medloop.web.pages.session import Fields, go, show, words_of

router = APIRouter(prefix="/web", include_in_schema=False)

Reviewer = Annotated[Caller, Depends(allow("clinician", scope="privacy"))]
Short = Annotated[str, Query(max_length=200)]


@router.get("/quarantine")
def review_page(
    request: Request, caller: Reviewer, record: Short = "", after: Short = "", done: Short = "", last: Short = ""
) -> Response:
    """The record that the address names, else the one that has waited longest; `after` goes on behind one that was left open."""
    t = words_of(request)
    note = t(f"review_done_{done}") if done in REASONS else ""
    if record:
        return _draw(request, caller, opened_for_review(store_of(request), caller, record))
    return _next(request, caller, after, note=note, last=last if note else "")


@router.post("/quarantine")
def decide_here(request: Request, caller: Reviewer, form: Fields) -> Response:
    store, t = store_of(request), words_of(request)
    record_id, decision, reason = (form.get(name, "")[:200] for name in ("record", "decision", "reason"))
    held = for_review(store, caller, record_id)
    if decision not in STATE or reason not in REASONS[STATE[decision]]:
        found = opened_for_review(store, caller, record_id)
        return _draw(request, caller, found, 422, problem=t("review_why_needed"), about=decision)
    states: tuple[State, ...] = get_args(State)
    was: State = next((state for state in states if state == form.get("was")), "waiting")
    try:
        held = quarantine.decide(store, record_id, STATE[decision], actor=caller.user_id, reason=reason, was=was)
    except quarantine.AlreadyDecidedError:
        held = quarantine.get(store, record_id)
        return _next(request, caller, "", 409, problem=t("review_too_late", state=t(f"state_{held.state}")), last=record_id)
    except quarantine.TraceFirstError:
        return _draw(request, caller, opened_for_review(store, caller, record_id), 409, problem=t("review_first"))
    request.app.state.dashboard_cache.clear()  # the dashboard counts what waits
    return go(f"/web/quarantine?done={held.state}&last={held.record_id}")


def _next(request: Request, caller: Caller, after: str, code: int = 200, **more: str) -> Response:
    store, t = store_of(request), words_of(request)
    found = quarantine.page(store, after=after if after and _known(store, after) else None, limit=1, not_by=caller.user_id)
    if not found:
        left = quarantine.count(store, not_by=caller.user_id)
        text = t("review_left", n=left) if left else t("review_empty")
        return show(request, caller, "quarantine.html", code, found=None, text=text, left=left, **_said(more))
    return _draw(request, caller, opened_for_review(store, caller, found[0].record_id), code, **more)


def _known(store: Store, record_id: str) -> bool:
    try:
        quarantine.get(store, record_id)
    except quarantine.NotHeldError:
        return False
    return True


def _draw(request: Request, caller: Caller, found: Opened, code: int = 200, **more: str) -> Response:
    store, t, held = store_of(request), words_of(request), found.held
    filled: dict[str, Any] = {"held": held, "kind": KIND[held.kind], "reasons": REASONS, "states": STATE}
    filled["parts"] = quarantine_text.parts(found.texts, scan.marks([text for _, text in found.texts]), t)
    filled["why"] = quarantine_text.reasons(held.reasons, t)
    filled["first"] = quarantine.first(store, held)
    filled["left"] = quarantine.count(store, not_by=caller.user_id)
    filled["who"] = next((one.name for one in users.list_users(store) if one.user_id == held.decided_by), held.decided_by)
    return show(request, caller, "quarantine.html", code, found=found, **filled, **_said(more))


def _said(more: dict[str, str]) -> dict[str, str]:
    return {"note": "", "problem": "", "last": "", "about": "", **more}
