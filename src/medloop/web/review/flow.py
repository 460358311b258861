"""How a page for judging answers opens its form and sends it: through the same functions as the API."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.limits import RateLimitError
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts import utc_now
from medloop.errors import BusyError, InputError, NoSpaceError
from medloop.feedback.review import queue
from medloop.feedback.submit import submit
from medloop.feedback.submit.bodies import FeedbackBody
from medloop.store.records.review_queue import LapsedError, LeasedItem
from medloop.store.records.write_request import KeyReusedError, WriteResult
from medloop.web.render import redirect, show, translator_of
from medloop.web.review.form import AXES, KEY_LENGTH, Errors, ReviewBody, ReviewForm, new_key
from medloop.web.review.targets import RECORD_OF, ReviewKind, ReviewTarget, find_target, target_of_item
from medloop.web.words import Translator

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="queue"))]
ParseForm = Callable[[Mapping[str, str], ReviewTarget | None, Translator], ReviewBody | Errors]
BACK = ("queue", *RECORD_OF)  # pages that a form leads back to
MIN_REASON_WEIGHT = 0.2  # reasons of the queue with less weight are not shown


def is_senior(caller: Caller) -> bool:
    """Clinicians settle what annotators disagree about, and may paste answers of their own."""
    return caller.role == "clinician"


def open_form(request: Request, caller: Caller, kind: ReviewKind, fields: Mapping[str, str], own: bool = False) -> Response:
    """The form for what the address names, else for the next item of this kind, else an empty one to paste into."""
    store, t = store_of(request), translator_of(request)
    item: LeasedItem | None = None
    target = find_target(store, caller, kind, fields)
    if target is None and not own:
        item = queue.next_item(store, caller.user_id, senior=is_senior(caller), kinds=(kind,))
        target = target_of_item(item) if item else None
    if target is None and not _may_paste(caller, kind):
        text = t("nothing_to_compare") if kind == "compare" else empty_queue_text(caller, t)
        return show(request, caller, "empty.html", title=t(f"{kind}_title"), text=text)
    hidden = {**(target.hidden if target else {}), "back": kind}
    form = ReviewForm(caller.csrf, new_key(), hidden, target.previous if target else {})
    return draw_form(request, caller, kind, form, target, item, own=own)


def _may_paste(caller: Caller, kind: ReviewKind) -> bool:
    return is_senior(caller) and kind != "compare"


def empty_queue_text(caller: Caller, t: Translator) -> str:
    return t("queue_empty") if is_senior(caller) else t("queue_empty_annotator")


async def submit_form(request: Request, caller: Caller, kind: ReviewKind, parse: ParseForm, values: dict[str, str]) -> Response:
    """Store what was judged and say thanks; draw the form again if something is wrong or has to be confirmed."""
    t = translator_of(request)
    target = await run_in_threadpool(find_target, store_of(request), caller, kind, values)
    if target is None and not _may_paste(caller, kind):
        raise NotFoundError("There is nothing to judge")
    back = values.get("back", "queue")
    hidden = {**(target.hidden if target else {}), "back": back}
    confirmed = values.pop("sure", "")
    if confirmed == "no":
        values.pop("critical", None)
    form = ReviewForm(caller.csrf, values.get("once", "")[:KEY_LENGTH] or new_key(), hidden, values)
    if confirmed == "no":
        return draw_form(request, caller, kind, form, target)
    body = parse(values, target, t)
    if isinstance(body, dict):
        return draw_form(request, caller, kind, replace(form, errors=body), target, code=422)
    if isinstance(body, FeedbackBody) and body.critical and confirmed != "yes":
        return draw_form(request, caller, kind, form, target, ask_critical=True)
    try:
        stored = await _store(request, caller, body, form.once)
    except (BusyError, NoSpaceError, InputError, RateLimitError) as error:
        code, message = _refusal(error, t)
        return draw_form(request, caller, kind, replace(form, errors={"": message}), target, code=code)
    record_id = stored.answer[f"{RECORD_OF[kind]}_id"]
    if target is not None and target.item_id is not None and target.supersedes is None:
        await _finish_item(request, caller, target.item_id, record_id)
    return redirect(_thanks_address(kind, back, record_id, stored, body))


async def _store(request: Request, caller: Caller, body: ReviewBody, once: str) -> WriteResult:
    check_rate(request, caller)
    sender = submit.Sender(caller.user_id, by_queue=caller.role == "annotator")
    return await writer_of(request).submit(submit.prepare_submission(store_of(request), body, sender, key=f"web:{once}"))


async def _finish_item(request: Request, caller: Caller, item_id: str, record_id: str) -> None:
    """The rating is stored whatever happens here; if the reservation has run out, it is ordinary feedback."""
    try:
        await run_in_threadpool(queue.finish, store_of(request), item_id, caller.user_id, record_id)
    except (LapsedError, InputError):
        return


def _thanks_address(kind: ReviewKind, back: str, record_id: str, stored: WriteResult, body: ReviewBody) -> str:
    use = "waiting" if "training" in body.consent else "evaluation" if body.consent else "no_consent"
    fate = "quarantined" if stored.answer["quarantined"] else use
    critical = "&critical=true" if "incident_id" in stored.answer else ""
    page = back if back in BACK else "queue"
    return f"/web/thanks?back={page}&fate={fate}&kind={kind}&record={quote(record_id, safe='')}{critical}"


def _refusal(error: Exception, t: Translator) -> tuple[int, str]:
    if isinstance(error, KeyReusedError):
        return 422, t("sent_already")
    if isinstance(error, InputError):
        return 422, t("invalid_value")
    return (429 if isinstance(error, RateLimitError) else 503), t("busy")


def draw_form(
    request: Request, caller: Caller, kind: ReviewKind, form: ReviewForm, target: ReviewTarget | None,
    item: LeasedItem | None = None, *, code: int = 200, ask_critical: bool = False, progress: str = "", own: bool = True,
) -> Response:  # fmt: skip
    lease = None if item is None else _lease(item, translator_of(request))
    context = {"kind": kind, "form": form, "target": target, "lease": lease, "axes": AXES, "progress": progress, "own": own}
    return show(request, caller, f"{kind}.html", code, ask_critical=ask_critical, **context)


def _lease(item: LeasedItem, t: Translator) -> dict[str, object]:
    """Why this item was chosen and how long it is reserved."""
    ranked = sorted(item.reasons.items(), key=lambda reason: -reason[1])
    why = [t.or_plain(f"reason_{name}", name) for name, weight in ranked if weight >= MIN_REASON_WEIGHT][:2]
    minutes = max(1, round((item.until - utc_now()).total_seconds() / 60))
    return {"item_id": item.item_id, "why": why, "minutes": minutes, "adjudicates": item.adjudicates}
