"""How a page for judging answers opens its form and sends it: through the same functions as the API.

After sending comes the next item at once, with a line about what was stored (`saved` in the address, which only chooses among our
own sentences).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.limits import RateLimitError
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts import utc_now
from medloop.contracts.feedback import FAULT_AXES
from medloop.errors import BusyError, InputError, NoSpaceError
from medloop.feedback.review import queue
from medloop.feedback.review.queue import ANY_QUESTION, QuestionSearch
from medloop.feedback.submit import submit
from medloop.feedback.submit.bodies import CorrectionBody
from medloop.feedback.submit.sender import Sender
from medloop.store.records.review_queue import LapsedError, LeasedItem
from medloop.store.records.workspace_settings import axes, consent_default
from medloop.store.records.write_request import KeyReusedError, WriteResult
from medloop.web.guidelines import read_guidelines
from medloop.web.render import redirect, show, translator_of
from medloop.web.review.form import (
    KEY_LENGTH,
    Errors,
    ReviewBody,
    ReviewForm,
    new_key,
    remember_consent,
    remembered_consent,
)
from medloop.web.review.targets import RECORD_OF, ReviewKind, ReviewTarget, find_target, target_of_item, values_of_record
from medloop.web.words import Translator

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="queue", sites=True))]
ParseForm = Callable[[Mapping[str, str], ReviewTarget | None, Translator], ReviewBody | Errors]
BACK = ("queue", *RECORD_OF, "history")  # pages that a form leads back to
FATES = ("waiting", "evaluation", "no_consent", "quarantined")
REASONS = (
    "uncertainty", "disagreement", "novelty", "risk", "critical", "raters_disagree", "thumbs_down", "teaches", "explore",
    "dispute",
)  # fmt: skip
MIN_REASON_WEIGHT = 0.2  # reasons of the queue with less weight are not shown
MAX_WORDS = 10  # of a search


@dataclass(frozen=True)
class QueueView:
    """What somebody looks for in the queue; `find` are words of the question as they were typed."""

    language: str = ""
    find: str = ""

    @property
    def search(self) -> QuestionSearch:
        return QuestionSearch(self.language or None, tuple(self.find.split()[:MAX_WORDS]))

    @property
    def fields(self) -> dict[str, str]:
        return {name: value for name, value in (("language", self.language), ("find", self.find)) if value}


def queue_view(fields: Mapping[str, str]) -> QueueView:
    language = fields.get("language", "")
    return QueueView(language if language in ("zh", "en") else "", " ".join(fields.get("find", "").split())[:100])


@dataclass(frozen=True)
class SavedNotice:
    """What became of the form before: a fate of FATES, `undone`, or `late` for an undo after its ten seconds."""

    fate: str
    critical: bool = False
    change: str = ""  # the address where the record can be changed
    why: tuple[str, ...] = ()  # the reasons for which the queue had chosen it
    undo: Mapping[str, str] = field(default_factory=dict)  # the hidden fields of the button that takes it back
    lapsed: bool = False  # it is stored, but is not the verdict on the item


def saved_notice(request: Request, caller: Caller) -> SavedNotice | None:
    """What the page before has stored; the address only chooses among our own sentences."""
    fields = request.query_params
    fate, kind, record_id = fields.get("saved", ""), fields.get("kind", ""), fields.get("record", "")[:200]
    critical = fields.get("critical") == "yes"
    if fate in ("undone", "late"):
        return SavedNotice(fate, critical)
    if fate not in FATES or kind not in RECORD_OF:
        return None
    why = tuple(name for name in fields.get("why", "").split() if name in REASONS)
    back = request.url.path.removeprefix("/web/")
    undo = {"csrf": caller.csrf, "kind": kind, "record": record_id, "back": back, **queue_view(fields).fields}
    undo |= {"critical": "yes"} if critical else {}
    change = f"/web/{kind}?{urlencode({'again': record_id})}" + ("#f-consent" if fate == "no_consent" else "")
    return SavedNotice(fate, critical, change, why, undo, lapsed=fields.get("settled") == "no")


def is_senior(caller: Caller) -> bool:
    """Clinicians settle what annotators disagree about, and may paste answers of their own."""
    return caller.role == "clinician"


def open_form(request: Request, caller: Caller, kind: ReviewKind, names: Sequence[str], own: bool = False) -> Response:
    """The form for what the address names, else for the next item of this kind, else an empty one to paste into."""
    fields = {name: request.query_params.get(name, "") for name in (*names, "undone")}
    store, t = store_of(request), translator_of(request)
    target = find_target(store, caller, kind, fields)
    if target is None and not own:
        item = queue.next_item(store, caller.user_id, senior=is_senior(caller), kinds=(kind,), site=caller.site)
        target = target_of_item(item) if item else None
    if target is None and not _may_paste(caller, kind):
        text = t("nothing_to_compare") if kind == "compare" else empty_queue_text(caller, t)
        return show_empty(request, caller, t(f"{kind}_title"), text, None)
    view = queue_view(request.query_params) if target and target.item and fields.get("item") else None
    back = "queue" if view else "history" if target and target.supersedes else kind
    form = new_form(request, caller, target, {"back": back, **(view.fields if view else {})})
    if target and (undone := fields.get("undone")):
        form = replace(form, values=values_of_record(store, caller, kind, undone), remembered=False)
    return draw_form(request, caller, kind, form, target, own=own, view=view)


def show_empty(request: Request, caller: Caller, title: str, text: str, view: QueueView | None) -> Response:
    """There is nothing to judge right now; what was sent before this is still said, and can be undone."""
    return show(request, caller, "empty.html", title=title, text=text, saved=saved_notice(request, caller), queue=view)


def new_form(request: Request, caller: Caller, target: ReviewTarget | None, hidden: Mapping[str, str]) -> ReviewForm:
    """An empty form; for a record that is changed, with what it says. Consent is as this person gave it last in
    this session, else as the workspace presets it."""
    hidden = {**(target.hidden if target else {}), **hidden}
    if target is not None and target.supersedes is not None:
        return ReviewForm(caller.csrf, new_key(), hidden, target.previous)
    chosen, preset = remembered_consent(request, caller), consent_default(store_of(request))
    allowed = preset if chosen is None else chosen
    values = {f"consent_{purpose}": "yes" for purpose in allowed}
    return ReviewForm(caller.csrf, new_key(), hidden, values, remembered=set(allowed) != set(preset))


def _may_paste(caller: Caller, kind: ReviewKind) -> bool:
    return is_senior(caller) and kind != "compare"


def empty_queue_text(caller: Caller, t: Translator) -> str:
    return t("queue_empty") if is_senior(caller) else t("queue_empty_annotator")


async def submit_form(request: Request, caller: Caller, kind: ReviewKind, parse: ParseForm, values: dict[str, str]) -> Response:
    """Store what was judged and go on; draw the form again if something is wrong or has to be confirmed."""
    t = translator_of(request)
    target = await run_in_threadpool(find_target, store_of(request), caller, kind, values)
    if target is None and not _may_paste(caller, kind):
        raise NotFoundError("There is nothing to judge")
    view = queue_view(values)
    hidden = {**(target.hidden if target else {}), "back": values.get("back", "queue"), **view.fields}
    confirmed = values.pop("sure", "")
    if confirmed == "no":
        values = {name: value for name, value in values.items() if not name.startswith("critical")}
    form = ReviewForm(caller.csrf, values.get("once", "")[:KEY_LENGTH] or new_key(), hidden, values)
    if confirmed == "no":
        return draw_form(request, caller, kind, form, target, view=view)
    body = parse(values, target, t)
    if isinstance(body, dict):
        return draw_form(request, caller, kind, replace(form, errors=body), target, code=422, view=view)
    if not isinstance(body, CorrectionBody) and confirmed != "yes" and _newly_flagged(values, target):
        return draw_form(request, caller, kind, form, target, ask_critical=True, view=view)
    try:
        stored = await _store(request, caller, body, form.once)
    except (BusyError, NoSpaceError, InputError, RateLimitError) as error:
        code, message = _refusal(error, t)
        return draw_form(request, caller, kind, replace(form, errors={"": message}), target, code=code, view=view)
    record_id = stored.answer[f"{RECORD_OF[kind]}_id"]
    settles = target is None or target.item_id is None or await _finish_item(request, caller, target.item_id, record_id)
    why = _reasons(target.item) if target and target.item else ()
    response = redirect(_next_address(kind, hidden, record_id, stored, body, why, settles=settles))
    remember_consent(request, caller, response, body.consent)
    return response


def _newly_flagged(values: Mapping[str, str], target: ReviewTarget | None) -> bool:
    """Whether the form flags an answer that the record which it changes does not flag: only then an incident opens."""
    reported = target.previous if target else {}
    return any(name.startswith("critical") and flag == "yes" != reported.get(name) for name, flag in values.items())


async def _store(request: Request, caller: Caller, body: ReviewBody, once: str) -> WriteResult:
    check_rate(request, caller)
    sender = Sender(caller.user_id, by_queue=caller.role == "annotator", site=caller.site)
    return await writer_of(request).submit(submit.prepare_submission(store_of(request), body, sender, key=f"web:{once}"))


async def _finish_item(request: Request, caller: Caller, item_id: str, record_id: str) -> bool:
    """Whether it is the verdict on the item. It is stored in any case; if the reservation has run out, as ordinary feedback."""
    try:
        await run_in_threadpool(queue.finish, store_of(request), item_id, caller.user_id, record_id, site=caller.site)
    except (LapsedError, InputError):
        return False
    return True


def _next_address(
    kind: ReviewKind, hidden: Mapping[str, str], record_id: str, stored: WriteResult, body: ReviewBody, why: Sequence[str],
    *, settles: bool,
) -> str:  # fmt: skip
    use = "waiting" if "training" in body.consent else "evaluation" if body.consent else "no_consent"
    saved = {"saved": "quarantined" if stored.answer["quarantined"] else use, "kind": kind, "record": record_id}
    saved |= {"why": " ".join(why)} if why else {}
    saved |= {} if settles else {"settled": "no"}
    saved |= {"critical": "yes"} if "incident_id" in stored.answer else {}
    return back_address(hidden, saved)


def back_address(fields: Mapping[str, str], more: Mapping[str, str]) -> str:
    """The page that a form came from, with what was searched for there."""
    page = fields.get("back", "")
    page = page if page in BACK else "queue"
    view = queue_view(fields).fields if page == "queue" else {}
    query = urlencode({**view, **more})
    return f"/web/{page}{f'?{query}' if query else ''}"


def _refusal(error: Exception, t: Translator) -> tuple[int, str]:
    if isinstance(error, KeyReusedError):
        return 422, t("sent_already")
    if isinstance(error, InputError):
        return 422, t("invalid_value")
    return (429 if isinstance(error, RateLimitError) else 503), t("busy")


def draw_form(
    request: Request, caller: Caller, kind: ReviewKind, form: ReviewForm, target: ReviewTarget | None, *, code: int = 200,
    ask_critical: bool = False, note: str = "", own: bool = True, view: QueueView | None = None,
) -> Response:  # fmt: skip
    t, from_queue = translator_of(request), form.hidden.get("back") == "queue"
    item = target.item if target else None
    note = note or (t("changing_own") if target and target.supersedes else "")
    context: dict[str, Any] = {
        "kind": kind,
        "form": form,
        "target": target,
        "axes": axes(store_of(request)),
        "faults": FAULT_AXES,
        "own": own,
        "note": note,
    }
    context |= {"lease": _lease(item, t) if item else "", "queue": (view or QueueView()) if from_queue else None}
    context["progress"] = _progress(request, caller, None if from_queue else (kind,), view, t) if item else ""
    names = ("item", "trace", "again", "a", "b")  # what a draft belongs to
    context["draft"] = " ".join((kind, *(form.hidden[name] for name in names if name in form.hidden)))
    context |= {"guidelines": read_guidelines(store_of(request), t.language), "saved": saved_notice(request, caller)}
    praised = form.values.get("rating") in ("4", "5") or form.values.get("thumb") == "up"
    return show(request, caller, f"{kind}.html", code, ask_critical=ask_critical, praised=praised, **context)


def _progress(request: Request, caller: Caller, kinds: Sequence[str] | None, view: QueueView | None, t: Translator) -> str:
    search = view.search if view else ANY_QUESTION
    store, senior = store_of(request), is_senior(caller)
    left = queue.count_left(store, caller.user_id, senior=senior, kinds=kinds, search=search, site=caller.site)
    return t("queue_left_one") if left == 1 else t("queue_left", n=left)


def _lease(item: LeasedItem, t: Translator) -> str:
    """How long this item is reserved. Why it was chosen comes later: it would tell what others or a machine think."""
    return t("queue_until", minutes=max(1, round((item.until - utc_now()).total_seconds() / 60)))


def _reasons(item: LeasedItem) -> list[str]:
    """The strongest reasons for which the queue chose this item; shown once it is judged."""
    ranked = sorted(item.reasons.items(), key=lambda reason: -reason[1])
    reasons = [name for name, weight in ranked if weight >= MIN_REASON_WEIGHT and name in REASONS][:2]
    return (["dispute"] if item.adjudicates else []) + reasons
