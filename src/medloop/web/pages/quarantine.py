"""The privacy review: clinicians read records that may still identify a person, one at a time, and release or refuse them.

It uses the functions of `/api/v1/rlhf/quarantine`: nobody sees their own submissions, every reading is audited, and of two
decisions on one record the first counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.quarantine import KIND, STATE, for_review, opened_for_review
from medloop.feedback.review import quarantine_marks
from medloop.feedback.review.quarantine_marks import UNSURE, QuarantineMark
from medloop.privacy.phi import disguised
from medloop.store.db import Store
from medloop.store.records import quarantine
from medloop.store.records.quarantine import REASONS, HeldTexts, State
from medloop.web.markdown import reasoning_spans
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Reviewer = Annotated[Caller, Depends(allow("clinician", scope="privacy"))]
ShortText = Annotated[str, Query(max_length=200)]
# The reasons of the scan, in English, and the keys of their translations. An unknown reason is shown as it is.
DOUBTS = {
    "a word that may be a name, a place or an organisation": "doubt_word",
    "characters that may be a Chinese name": "doubt_hanzi",
    "words in a script that the scrubber does not know": "doubt_script",
    "a number or an address that could not be removed": "doubt_number",
    "characters that are not Unicode text": "doubt_unicode",
    "a text that keeps changing while it is scrubbed": "doubt_changing",
    "an identifier that is announced and was not found": "doubt_announced",
    "an ordinary word where a name is expected": "doubt_slot",
    "a text that is too long to scan": "doubt_long",
    "a text that takes too long to scan": "doubt_slow",
    disguised.REASON: "doubt_hidden",
    UNSURE: "doubt_unsure",
}


@dataclass(frozen=True)
class TextPiece:
    """A stretch of text. `label` says what was removed or why it is doubted; `number` refers to the list below the text."""

    text: str
    what: str = ""
    label: str = ""
    number: int = 0


@dataclass(frozen=True)
class MarkedText:
    """One text of the record in pieces; `doubts` are the numbered reasons."""

    name: str
    pieces: tuple[TextPiece, ...]
    doubts: tuple[str, ...]
    reasoning: tuple[TextPiece, ...] = ()  # what the model wrote for itself


@router.get("/quarantine")
def quarantine_page(
    request: Request, caller: Reviewer, record: ShortText = "", after: ShortText = "", done: ShortText = "", last: ShortText = ""
) -> Response:
    """The record that the address names, else the oldest one that waits; `after` continues behind one that was left open."""
    t = translator_of(request)
    note = t(f"quarantine_done_{done}") if done in REASONS else ""
    if record:
        return _show(request, caller, opened_for_review(store_of(request), caller, record))
    return _show_next(request, caller, after, note=note, last=last if note else "")


@router.post("/quarantine")
def decide(request: Request, caller: Reviewer, form: FormFields) -> Response:
    store, t = store_of(request), translator_of(request)
    record_id, decision, reason = (form.get(name, "")[:200] for name in ("record", "decision", "reason"))
    for_review(store, caller, record_id)
    if decision not in STATE or reason not in REASONS[STATE[decision]]:
        opened = opened_for_review(store, caller, record_id)
        return _show(request, caller, opened, 422, problem=t("quarantine_why_needed"), about=decision)
    states: tuple[State, ...] = get_args(State)
    was: State = next((state for state in states if state == form.get("was")), "waiting")
    try:
        held = quarantine.decide(store, record_id, STATE[decision], actor=caller.user_id, reason=reason, was=was)
    except quarantine.AlreadyDecidedError:
        held = quarantine.get(store, record_id)
        problem = t("quarantine_too_late", state=t(f"state_{held.state}"))
        return _show_next(request, caller, "", 409, problem=problem, last=record_id)
    except quarantine.TraceFirstError:
        return _show(request, caller, opened_for_review(store, caller, record_id), 409, problem=t("quarantine_first"))
    request.app.state.dashboard_cache.clear()  # the dashboard counts what is held
    return redirect(f"/web/quarantine?done={held.state}&last={held.record_id}")


def _show_next(request: Request, caller: Caller, after: str, code: int = 200, **messages: str) -> Response:
    store, t = store_of(request), translator_of(request)
    after_id = after if after and _is_held(store, after) else None
    page = quarantine.page(store, after=after_id, limit=1, not_by=caller.user_id)
    if page:
        return _show(request, caller, opened_for_review(store, caller, page[0].record_id), code, **messages)
    left = quarantine.count(store, not_by=caller.user_id)
    text = t("quarantine_left", n=left) if left else t("quarantine_empty")
    return show(request, caller, "quarantine.html", code, held=None, text=text, left=left, **_messages(messages))


def _is_held(store: Store, record_id: str) -> bool:
    try:
        quarantine.get(store, record_id)
    except quarantine.NotHeldError:
        return False
    return True


def _show(request: Request, caller: Caller, opened: HeldTexts, code: int = 200, **messages: str) -> Response:
    store, t, held = store_of(request), translator_of(request), opened.held
    marks = quarantine_marks.marks([text for _, text in opened.texts])
    context: dict[str, Any] = {"held": held, "kind": KIND[held.kind], "reasons": REASONS, "states": STATE}
    context["texts"] = marked_texts(opened.texts, marks, t)
    context["doubts"] = [translated_doubt(reason, t) for reason in held.reasons]
    context["trace"] = quarantine.trace_to_decide_first(store, held)
    context["left"] = quarantine.count(store, not_by=caller.user_id)
    context["who"] = People(store, t)(held.decided_by)
    return show(request, caller, "quarantine.html", code, **context, **_messages(messages))


def _messages(messages: dict[str, str]) -> dict[str, str]:
    """All messages that the template may show; `about` is the decision that a problem is about."""
    return {"note": "", "problem": "", "last": "", "about": "", **messages}


def translated_doubt(reason: str, t: Translator) -> str:
    return t(DOUBTS[reason]) if reason in DOUBTS else reason


def marked_texts(texts: Sequence[tuple[str, str]], marks: Sequence[Sequence[QuarantineMark]], t: Translator) -> list[MarkedText]:
    return [_marked_text(name, text, of_text, t) for (name, text), of_text in zip(texts, marks, strict=True)]


def _marked_text(name: str, text: str, marks: Sequence[QuarantineMark], t: Translator) -> MarkedText:
    pieces: list[TextPiece] = []
    doubts: list[str] = []
    end = 0
    for mark in marks:
        pieces.append(TextPiece(text[end : mark.start]))
        inner, end = text[mark.start : mark.end], mark.end
        if mark.what == "doubt":
            doubt = translated_doubt(mark.why, t)
            doubts += [doubt] if doubt not in doubts else []
            pieces.append(TextPiece(inner, "doubt", doubt, doubts.index(doubt) + 1))
        else:
            pieces.append(TextPiece(inner, "out", t.or_plain(f"phi_{mark.why.lower()}", mark.why)))
    pieces.append(TextPiece(text[end:]))
    label = t.or_plain(f"part_{name}", name)
    spans = reasoning_spans(text)
    said, thought = (
        tuple(piece for start, end, is_reasoning in spans if is_reasoning == wanted for piece in _within(pieces, start, end))
        for wanted in (False, True)
    )
    return MarkedText(label, said, tuple(doubts), thought)


def _within(pieces: Sequence[TextPiece], start: int, end: int) -> Iterator[TextPiece]:
    """The pieces of a stretch of the text."""
    place = 0
    for piece in pieces:
        if inside := piece.text[max(0, start - place) : max(0, end - place)]:
            yield replace(piece, text=inside)
        place += len(piece.text)
