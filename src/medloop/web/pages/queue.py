"""The review queue: the next item for this person, in the form of its kind, by language and words, and skipping it."""

from typing import get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import NotFoundError
from medloop.contracts import utc_now
from medloop.feedback.review import queue
from medloop.store.records.crud import TABLES
from medloop.store.records.review_queue import LapsedError
from medloop.store.records.review_verdicts import RECORDS
from medloop.store.records.withdrawals import TooLateError, withdraw
from medloop.web.render import FormFields, redirect, translator_of
from medloop.web.review.flow import (
    Rater,
    back_address,
    draw_form,
    empty_queue_text,
    is_senior,
    new_form,
    queue_view,
    show_empty,
)
from medloop.web.review.targets import ReviewKind, target_of_item

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/queue")
def queue_page(request: Request, caller: Rater, lapsed: bool = False) -> Response:
    store, t, view = store_of(request), translator_of(request), queue_view(request.query_params)
    item = queue.next_item(store, caller.user_id, senior=is_senior(caller), search=view.search, site=caller.site)
    if item is None:
        text = t("queue_none_matches") if view.fields else empty_queue_text(caller, t)
        return show_empty(request, caller, t("queue_title"), text, view)
    target = target_of_item(item)
    form = new_form(request, caller, target, {"back": "queue", **view.fields})
    kind: ReviewKind = next(kind for kind in get_args(ReviewKind) if kind == item.kind)
    return draw_form(request, caller, kind, form, target, note=t("queue_lapsed") if lapsed else "", view=view)


@router.post("/queue/skip")
def skip(request: Request, caller: Rater, form: FormFields) -> Response:
    try:
        queue.skip(store_of(request), form.get("item", ""), caller.user_id, site=caller.site)
    except LapsedError:
        return redirect("/web/queue?lapsed=true")
    return redirect(back_address(form, {}))


@router.post("/queue/undo")
def undo(request: Request, caller: Rater, form: FormFields) -> Response:
    """Take back what was sent a moment ago and open its form again, with all that it said."""
    kind, record_id = next((kind for kind in get_args(ReviewKind) if kind == form.get("kind")), None), form.get("record", "")
    if kind is None:
        raise NotFoundError("There is nothing to undo")
    critical = {"critical": "yes"} if form.get("critical") == "yes" else {}
    try:
        now, site = utc_now(), caller.site
        item_id = withdraw(store_of(request), TABLES[RECORDS[kind]], record_id, caller.user_id, now=now, site=site)
    except TooLateError:
        return redirect(back_address(form, {"saved": "late", **critical}))
    target = {"item": item_id, **queue_view(form).fields} if item_id else {"again": record_id}
    return redirect(f"/web/{kind}?{urlencode({**target, 'undone': record_id, 'saved': 'undone', **critical})}")
