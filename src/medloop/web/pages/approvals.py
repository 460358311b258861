"""Erasures that wait for a second person: what they remove, in counts and ids without any text, and the decision about them.

Accounts that wait for a second admin are decided on the users page; admins find the way there.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.errors import InputError
from medloop.jobs.erasures import StartedError, list_erasures, submit_approved
from medloop.privacy.erasure.approval import refuse
from medloop.privacy.erasure.erase import ChangedSinceRequestError
from medloop.privacy.erasure.notes import LONGEST_REASON, NoteError
from medloop.store.records import erasure_requests, users
from medloop.store.records.erasure_requests import DECIDERS
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

Decider = Annotated[Caller, Depends(allow("clinician", "admin", scope="privacy"))]
DECISIONS = ("approve", "refuse")
MOST_IDS = 50  # of one table on the page


@router.get("/approvals")
def approvals_page(request: Request, caller: Decider, done: Annotated[str, Query(max_length=10)] = "") -> Response:
    return _show(request, caller, note=translator_of(request)(f"approvals_done_{done}") if done in DECISIONS else "")


@router.post("/approvals/{request_id}/{decision}")
def decide(request: Request, caller: Decider, request_id: str, decision: str, form: FormFields) -> Response:
    if decision not in DECISIONS:
        raise NotFoundError("There is no such decision")
    store, note = store_of(request), form.get("note", "")
    try:
        if decision == "approve":
            submit_approved(store, request_id, by=caller.user_id, note=note)
        else:
            refuse(store, request_id, by=caller.user_id, note=note)
    except InputError as error:
        code, key = _refusal(error)
        problem = translator_of(request)(key, most=LONGEST_REASON, what=str(error))
        return _show(request, caller, code, problem=problem, typed=note, about=f"{decision}-{request_id}")
    return redirect(f"/web/approvals?done={decision}")


def _refusal(error: InputError) -> tuple[int, str]:
    reasons: tuple[tuple[type[InputError], int, str], ...] = (
        (NoteError, 422, "approvals_bad_note"),
        (ChangedSinceRequestError, 409, "approvals_changed"),
        (StartedError, 409, "approvals_started"),
        (erasure_requests.CarriedOutError, 409, "approvals_carried_out"),
        (erasure_requests.ApprovalOverError, 409, "approvals_over"),
        (erasure_requests.DecidedError, 409, "approvals_decided"),
        (erasure_requests.NoSuchRequestError, 404, "approvals_decided"),
        (erasure_requests.OwnRequestError, 403, "approvals_second"),
        (erasure_requests.NotAllowedError, 403, "approvals_not_done"),
    )
    return next(((code, key) for kind, code, key in reasons if isinstance(error, kind)), (422, "approvals_not_done"))


def _show(
    request: Request, caller: Caller, code: int = 200, *, note: str = "", problem: str = "", typed: str = "", about: str = ""
) -> Response:
    store = store_of(request)
    context: dict[str, Any] = {"listed": list_erasures(store), "who": People(store, translator_of(request))}
    context |= {"note": note, "problem": problem, "typed": typed, "about": about, "viewer_id": caller.user_id}
    context["others"] = [
        user.name
        for user in users.list_users(store)
        if user.role in DECIDERS and not (user.disabled or user.waits) and user.user_id != caller.user_id
    ]
    context["accounts"] = users.count_waiting(store, not_by=caller.user_id) if caller.role == "admin" else 0
    return show(request, caller, "approvals.html", code, most_ids=MOST_IDS, max_note=LONGEST_REASON, **context)
