"""The pages where people judge: the queue, rate, compare, correct.

A clinician judges an item of the queue (feedback/review/queue.py), a trace opened by its id, an earlier record of their own, or
pasted text. What they send goes the same way as over the API: feedback/submit/submit.py and the writer.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.limits import RateLimitError
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts import Trace, utc_now
from medloop.errors import BusyError, InputError, NoSpaceError
from medloop.feedback.review import queue
from medloop.feedback.submit import submit as record
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody
from medloop.store.db import Store
from medloop.store.records.audited_read import get_audited
from medloop.store.records.history import Kind as OwnKind
from medloop.store.records.history import own_record
from medloop.store.records.review_queue import LapsedError, Leased, UnknownItemError, held, turns_of
from medloop.store.records.write_request import KeyReusedError, WriteResult
from medloop.web import forms
from medloop.web.forms import Form, Source
from medloop.web.pages.session import Fields, go, show, words_of
from medloop.web.words import Words

router = APIRouter(prefix="/web", include_in_schema=False)

Kind = Literal["rate", "compare", "correct"]
Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="queue"))]
MADE: dict[Kind, OwnKind] = {"rate": "feedback", "compare": "preference", "correct": "correction"}
BACK = ("queue", *get_args(Kind))
WORTH_SAYING = 0.2  # weight from which a reason of the queue is told
FATES = ("waiting", "evaluation", "no_consent", "quarantined")  # of what was just sent


@router.get("/queue")
def next_in_queue(request: Request, caller: Rater, lapsed: bool = False) -> Response:
    t = words_of(request)
    item = queue.next_item(store_of(request), caller.user_id, senior=is_senior(caller))
    done = turns_of(store_of(request), caller.user_id)
    n = {
        "done": done.get("done", 0),
        "skipped": done.get("skipped", 0),
        "open": sum(queue.stats(store_of(request)).open_by_kind.values()),
    }
    progress = t("queue_progress" if n["done"] or n["skipped"] else "queue_open", **n)
    if item is None:
        return show(request, caller, "empty.html", title=t("queue_title"), text=f"{_empty(caller, t)} {progress}")
    source = forms.of_item(item)
    form = Form(caller.csrf, forms.new_once(), {**source.about, "back": "queue"})
    note = t("queue_lapsed") if lapsed else ""
    return _draw(request, caller, _kind(item.kind), form, source, item, progress=f"{note} {progress}".strip())


@router.post("/queue/skip")
def skip(request: Request, caller: Rater, form: Fields) -> Response:
    try:
        queue.skip(store_of(request), form.get("item", ""), caller.user_id)
    except UnknownItemError:
        raise NotFoundError("There is no such item of yours") from None
    except LapsedError:
        return go("/web/queue?lapsed=true")
    return go("/web/queue")


@router.get("/rate")
def rate_page(request: Request, caller: Rater, trace: str = "", again: str = "", own: bool = False) -> Response:
    return _open(request, caller, "rate", {"trace": trace, "again": again}, own)


@router.get("/compare")
def compare_page(request: Request, caller: Rater, a: str = "", b: str = "", again: str = "") -> Response:
    return _open(request, caller, "compare", {"a": a, "b": b, "again": again}, False)


@router.get("/correct")
def correct_page(request: Request, caller: Rater, trace: str = "", again: str = "", own: bool = False) -> Response:
    return _open(request, caller, "correct", {"trace": trace, "again": again}, own)


@router.post("/rate")
async def rate(request: Request, caller: Rater, form: Fields) -> Response:
    return await _send(request, caller, "rate", form)


@router.post("/compare")
async def compare(request: Request, caller: Rater, form: Fields) -> Response:
    return await _send(request, caller, "compare", form)


@router.post("/correct")
async def correct(request: Request, caller: Rater, form: Fields) -> Response:
    return await _send(request, caller, "correct", form)


@router.get("/thanks")
def thanks(
    request: Request, caller: Rater, back: str = "queue", critical: bool = False, fate: str = "waiting", kind: str = "",
    record: Annotated[str, Query(max_length=200)] = "",
) -> Response:  # fmt: skip
    """What was stored and what happens to it next; the address says only which of a few sentences fits."""
    again = f"/web/{kind}?again={quote(record, safe='')}" if kind in MADE and record else ""
    after, known = f"/web/{back if back in BACK else 'queue'}", fate if fate in FATES else "waiting"
    return show(request, caller, "thanks.html", critical=critical, after=after, fate=known, again=again)


def is_senior(caller: Caller) -> bool:
    """Clinicians settle what annotators disagree about."""
    return caller.role == "clinician"


def _open(request: Request, caller: Caller, kind: Kind, about: Mapping[str, str], own: bool) -> Response:
    """The form for what the address names, else for the next item of this kind, else an empty one to paste into."""
    store, t = store_of(request), words_of(request)
    item: Leased | None = None
    source = _named(store, caller, kind, about)
    if source is None and not own:
        item = queue.next_item(store, caller.user_id, senior=is_senior(caller), kinds=(kind,))
        source = forms.of_item(item) if item else None
    if source is None and (kind == "compare" or caller.role != "clinician"):
        text = t("nothing_to_compare") if kind == "compare" else _empty(caller, t)
        return show(request, caller, "empty.html", title=t(f"{kind}_title"), text=text)
    about = {**(source.about if source else {}), "back": kind}
    form = Form(caller.csrf, forms.new_once(), about, source.before if source else {})
    return _draw(request, caller, kind, form, source, item, own=own)


def _empty(caller: Caller, t: Words) -> str:
    """Nothing for them now; only clinicians can paste an answer of their own."""
    return t("queue_empty") if is_senior(caller) else t("queue_empty_annotator")


def _named(store: Store, caller: Caller, kind: Kind, about: Mapping[str, str]) -> Source | None:
    """The source that an address or a form names; None if it names none. What is not theirs is not there."""
    if item_id := about.get("item"):
        return forms.of_item(held(store, item_id, caller.user_id))
    if again := about.get("again"):
        before = own_record(store, caller.user_id, MADE[kind], again)
        if before is None:
            raise NotFoundError("There is no such record of yours")
        return forms.of_own(before, again)
    if trace_id := about.get("trace"):
        return forms.of_trace(_trace(store, caller, trace_id, kind))
    if about.get("a") and about.get("b"):
        return _two(store, caller, about)
    return None


def _trace(store: Store, caller: Caller, trace_id: str, purpose: str) -> Trace:
    """Clinicians open the exchange that their assistant links to; annotators see what the queue hands them."""
    found = None
    if caller.role == "clinician":
        found = get_audited(store, Trace, trace_id, actor=caller.user_id, purpose=purpose)
    if found is None or found.conversation.answer is None:
        raise NotFoundError("There is no such answer")
    return found


def _two(store: Store, caller: Caller, about: Mapping[str, str]) -> Source:
    a, b, first = about["a"], about["b"], about.get("first")
    if first is not None:
        wanted = forms.sign_order(a, b, first, caller.csrf)
        if not hmac.compare_digest(about.get("signed", "").encode(), wanted.encode()):
            raise NotFoundError("There is no such comparison")
    one, two = (_trace(store, caller, trace_id, "compare") for trace_id in (a, b))
    if one.conversation.prompt != two.conversation.prompt or a == b:
        raise NotFoundError("These are not two answers to one question")
    return forms.of_two(one, two, caller.csrf, first)


async def _send(request: Request, caller: Caller, kind: Kind, values: dict[str, str]) -> Response:
    t = words_of(request)
    try:
        source = await run_in_threadpool(_named, store_of(request), caller, kind, values)
    except UnknownItemError:
        raise NotFoundError("There is no such item of yours") from None
    about = {**(source.about if source else {}), "back": values.get("back", "queue")}
    once = values.get("once", "")[: forms.ONCE] or forms.new_once()
    sure = values.pop("sure", "")
    if sure == "no":
        values.pop("critical", None)
        return _draw(request, caller, kind, Form(caller.csrf, once, about, values), source, None)
    made = _body(kind, values, source, t, caller)
    if isinstance(made, dict):
        return _draw(request, caller, kind, Form(caller.csrf, once, about, values, made), source, None, code=422)
    if isinstance(made, FeedbackBody) and made.critical and sure != "yes":
        return _draw(request, caller, kind, Form(caller.csrf, once, about, values), source, None, ask_critical=True)
    try:
        stored = await _store(request, caller, made, once)
    except (BusyError, NoSpaceError, InputError, RateLimitError) as error:
        code, said = _refusal(error, t)
        return _draw(request, caller, kind, Form(caller.csrf, once, about, values, {"": said}), source, None, code=code)
    back = about["back"] if about["back"] in BACK else "queue"
    fate = "quarantined" if stored.answer["quarantined"] else _use(made.consent)
    critical = "&critical=true" if "incident_id" in stored.answer else ""
    named = quote(stored.answer[f"{MADE[kind]}_id"], safe="")
    if source is not None and source.item_id is not None and source.supersedes is None:
        await _finish(request, caller, source.item_id, stored.answer[f"{MADE[kind]}_id"])
    return go(f"/web/thanks?back={back}&fate={fate}&kind={kind}&record={named}{critical}")


def _body(
    kind: Kind, values: Mapping[str, str], source: Source | None, t: Words, caller: Caller
) -> FeedbackBody | PreferenceBody | CorrectionBody | dict[str, str]:
    if source is None and (kind == "compare" or caller.role != "clinician"):
        raise NotFoundError("There is nothing to judge")
    if kind == "rate":
        return forms.rating(values, source, t)
    if kind == "correct":
        return forms.correction(values, source, t)
    assert source is not None
    return forms.preference(values, source, t)


async def _store(
    request: Request, caller: Caller, body: FeedbackBody | PreferenceBody | CorrectionBody, once: str
) -> WriteResult:
    check_rate(request, caller)
    return await writer_of(request).submit(
        record.prepare_submission(
            store_of(request), body, record.Sender(caller.user_id, by_queue=caller.role == "annotator"), key=f"web:{once}"
        )
    )


async def _finish(request: Request, caller: Caller, item_id: str, record_id: str) -> None:
    """The rating is stored whatever happens here; a seat that was lost meanwhile only makes it ordinary feedback."""
    try:
        await run_in_threadpool(queue.finish, store_of(request), item_id, caller.user_id, record_id)
    except (LapsedError, InputError):
        return


def _use(consent: Sequence[str]) -> str:
    """What a record with this consent waits for."""
    return "waiting" if "training" in consent else "evaluation" if consent else "no_consent"


def _refusal(error: Exception, t: Words) -> tuple[int, str]:
    if isinstance(error, KeyReusedError):
        return 422, t("sent_already")
    if isinstance(error, InputError):
        return 422, t("not_fitting")
    return (429 if isinstance(error, RateLimitError) else 503), t("busy")


def _draw(
    request: Request, caller: Caller, kind: Kind, form: Form, source: Source | None, item: Leased | None,
    *, code: int = 200, ask_critical: bool = False, progress: str = "", own: bool = True,
) -> Response:  # fmt: skip
    t = words_of(request)
    ranked = sorted((item.reasons if item else {}).items(), key=lambda one: -one[1])
    why = [t.or_plain(f"reason_{name}", name) for name, weight in ranked if weight >= WORTH_SAYING][:2]
    leased = None
    if item is not None:
        minutes = max(1, round((item.until - utc_now()).total_seconds() / 60))
        leased = {"item_id": item.item_id, "why": why, "minutes": minutes, "adjudicates": item.adjudicates}
    filled: dict[str, Any] = {
        "form": form,
        "source": source,
        "leased": leased,
        "axes": forms.AXES,
        "progress": progress,
        "own": own,
    }
    return show(request, caller, f"{kind}.html", code, ask_critical=ask_critical, **filled)


def _kind(name: str) -> Kind:
    return next(kind for kind in get_args(Kind) if kind == name)
