"""The review queue: the next item for this person, in the form of its kind, and skipping it."""

from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.feedback.review import queue
from medloop.store.records.review_queue import LapsedError, turns_of
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.review.flow import Rater, draw_form, empty_queue_text, is_senior
from medloop.web.review.form import ReviewForm, new_key
from medloop.web.review.targets import ReviewKind, target_of_item

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/queue")
def queue_page(request: Request, caller: Rater, lapsed: bool = False) -> Response:
    store, t = store_of(request), translator_of(request)
    item = queue.next_item(store, caller.user_id, senior=is_senior(caller))
    turns = turns_of(store, caller.user_id)
    done, skipped = turns.get("done", 0), turns.get("skipped", 0)
    waiting = sum(queue.stats(store).open_by_kind.values())
    progress = t("queue_progress" if done or skipped else "queue_open", done=done, skipped=skipped, open=waiting)
    if item is None:
        text = t.sentences(empty_queue_text(caller, t), progress)
        return show(request, caller, "empty.html", title=t("queue_title"), text=text)
    target = target_of_item(item)
    form = ReviewForm(caller.csrf, new_key(), {**target.hidden, "back": "queue"})
    kind: ReviewKind = next(kind for kind in get_args(ReviewKind) if kind == item.kind)
    note = t("queue_lapsed") if lapsed else ""
    return draw_form(request, caller, kind, form, target, item, progress=t.sentences(note, progress))


@router.post("/queue/skip")
def skip(request: Request, caller: Rater, form: FormFields) -> Response:
    try:
        queue.skip(store_of(request), form.get("item", ""), caller.user_id)
    except LapsedError:
        return redirect("/web/queue?lapsed=true")
    return redirect("/web/queue")
