"""The review queue: the next item for this person, in the form of its kind, by language and words, and skipping it."""

from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.feedback.review import queue
from medloop.store.records.review_queue import LapsedError
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.review.flow import (
    Rater,
    back_address,
    draw_form,
    empty_queue_text,
    is_senior,
    new_form,
    queue_view,
    saved_notice,
)
from medloop.web.review.targets import ReviewKind, target_of_item

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/queue")
def queue_page(request: Request, caller: Rater, lapsed: bool = False) -> Response:
    store, t, view = store_of(request), translator_of(request), queue_view(request.query_params)
    item = queue.next_item(store, caller.user_id, senior=is_senior(caller), search=view.search)
    if item is None:
        text = t("queue_none_matches") if view.fields else empty_queue_text(caller, t)
        return show(request, caller, "empty.html", title=t("queue_title"), text=text, saved=saved_notice(request), queue=view)
    target = target_of_item(item)
    form = new_form(request, caller, target, {"back": "queue", **view.fields})
    kind: ReviewKind = next(kind for kind in get_args(ReviewKind) if kind == item.kind)
    return draw_form(request, caller, kind, form, target, note=t("queue_lapsed") if lapsed else "", view=view)


@router.post("/queue/skip")
def skip(request: Request, caller: Rater, form: FormFields) -> Response:
    try:
        queue.skip(store_of(request), form.get("item", ""), caller.user_id)
    except LapsedError:
        return redirect("/web/queue?lapsed=true")
    return redirect(back_address(form, {}))
