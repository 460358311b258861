"""A form for judging an answer: how it is drawn, and how its fields become a request body, or an error beside each field.

`once` is the idempotency key of what will be sent, so that a second click or a reload stores nothing twice.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError

from medloop.api.policy import Caller, is_public
from medloop.contracts.feedback import FAULT_AXES
from medloop.feedback.submit.bodies import MAX_TEXT, CorrectionBody, FeedbackBody, PreferenceBody
from medloop.store.records.workspace_settings import FORM_PURPOSES
from medloop.web.review.targets import ReviewTarget
from medloop.web.words import Translator

FIELD_OF = {"user_query": "question", "agent_response": "answer", "prompt": "question", "original": "answer"}  # by body field
CONSENT_COOKIE = "medloop_consent"
KEY_LENGTH = 64  # the longest key that a form may bring back

Errors = dict[str, str]
ReviewBody = FeedbackBody | PreferenceBody | CorrectionBody
B = TypeVar("B", FeedbackBody, PreferenceBody, CorrectionBody)


@dataclass(frozen=True)
class ReviewForm:
    """A form as it is drawn: what was typed, what is wrong with it, and the hidden fields that name its target."""

    csrf: str
    once: str
    hidden: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    errors: Errors = field(default_factory=dict)
    remembered: bool = False  # the uses are those chosen last, and the workspace presets others

    @property
    def has_axes(self) -> bool:
        return any(value for name, value in axis_fields(self.values) if name not in FAULT_AXES)

    @property
    def has_faults(self) -> bool:
        return any(self.values.get(f"axis_{name}") for name in FAULT_AXES)


def axis_fields(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """The axes of a form with what was chosen; which there are is up to the workspace."""
    return [(name.removeprefix("axis_"), value) for name, value in values.items() if name.startswith("axis_")]


def new_key() -> str:
    return secrets.token_urlsafe(18)


def exchange_fields(values: Mapping[str, str], target: ReviewTarget | None) -> dict[str, Any]:
    """Which exchange it is about: a trace by its id, else the texts themselves."""
    if target is None:
        texts = {"user_query": text_field(values, "question"), "agent_response": text_field(values, "answer")}
        return {"session_id": "web", "agent_name": "pasted", **texts}
    if target.trace_id is not None:
        return {"trace_id": target.trace_id, "supersedes": target.supersedes}
    return {
        "session_id": target.session_id or target.item_id, "agent_name": target.agent_name or "review-queue",
        "user_query": target.question or None, "agent_response": target.answers[0] or None, "model_version": target.models[0],
        "supersedes": target.supersedes,
    }  # fmt: skip


def missing_texts(values: Mapping[str, str], target: ReviewTarget | None, t: Translator) -> Errors:
    if target is not None:
        return {}
    return {name: t(f"{name}_needed") for name in ("question", "answer") if text_field(values, name) is None}


def validated(body_type: type[B], fields: Mapping[str, Any], t: Translator) -> B | Errors:
    try:
        return body_type.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        return {_field(problem["loc"]): _message(problem["type"], t) for problem in error.errors()}


def _field(loc: tuple[int | str, ...]) -> str:
    name = str(loc[0]) if loc else ""
    return FIELD_OF.get(name, name)


def _message(problem: str, t: Translator) -> str:
    return t("too_long", most=f"{MAX_TEXT:,}") if problem == "string_too_long" else t("invalid_value")


def text_field(values: Mapping[str, str], name: str) -> str | None:
    """Browsers send line ends as CRLF; a blank text is none."""
    return values.get(name, "").replace("\r\n", "\n").strip() or None


def stars_field(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    return int(text) if text in ("1", "2", "3", "4", "5") else None


def remembered_consent(request: Request, caller: Caller) -> list[str] | None:
    """The uses that this person allowed last in this session; None before they have sent anything."""
    purposes, _, session = request.cookies.get(CONSENT_COOKIE, "").partition(".")
    if not hmac.compare_digest(session.encode(), _session_mark(caller).encode()):
        return None
    return [purpose for purpose in FORM_PURPOSES if purpose in purposes.split("+")]


def remember_consent(request: Request, caller: Caller, response: Response, consent: Iterable[str]) -> None:
    response.set_cookie(
        CONSENT_COOKIE, f"{'+'.join(consent)}.{_session_mark(caller)}", path="/web", httponly=True, samesite="strict",
        secure=is_public(request),
    )  # fmt: skip


def _session_mark(caller: Caller) -> str:
    """Ties the cookie to the session, so that the next person at this browser does not inherit it."""
    return hashlib.sha256(f"consent {caller.csrf}".encode()).hexdigest()[:32]


def consent_field(values: Mapping[str, str]) -> list[str]:
    return [purpose for purpose in FORM_PURPOSES if values.get(f"consent_{purpose}") == "yes"]
