"""From what was filled in to a body for feedback/submit/submit.py, or to an error beside each field; nothing typed is lost.

A form is about an item of the queue, a trace, or a question and answer that somebody pastes (`Source`). Its `once` is the
idempotency key of what will be sent, so that a second press or a reload stores nothing twice.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from medloop.contracts import Correction, Feedback, Message, Preference, Trace
from medloop.feedback.submit.bodies import MOST_TEXT, CorrectionBody, FeedbackBody, PreferenceBody
from medloop.store.records.review_queue import Leased
from medloop.web.words import Words

AXES = ("correctness", "safety", "completeness", "clarity", "empathy")
FIELDS = {"user_query": "question", "agent_response": "answer", "prompt": "question", "original": "answer"}  # ours, by theirs
ONCE = 64  # the longest key that a form may bring back

Errors = dict[str, str]
B = TypeVar("B", FeedbackBody, PreferenceBody, CorrectionBody)


@dataclass(frozen=True)
class Source:
    """What is judged, as it is shown. Of two answers the first is the one that stands first."""

    question: str
    answers: tuple[str, ...]
    earlier: tuple[Message, ...] = ()
    trace_id: str | None = None
    item_id: str | None = None
    models: tuple[str | None, ...] = (None, None)
    shown_first: str | None = None
    session_id: str | None = None
    agent_name: str | None = None
    supersedes: str | None = None
    before: Mapping[str, str] = field(default_factory=dict)  # what the record that it supersedes had in its fields
    about: Mapping[str, str] = field(default_factory=dict)  # hidden fields that lead back here

    @property
    def in_store_order(self) -> tuple[str, ...]:
        """The answers as a and b."""
        return self.answers if self.shown_first != "b" else self.answers[::-1]


@dataclass(frozen=True)
class Form:
    """A form as it is drawn: what was typed, what is wrong with it, and where it leads back to."""

    csrf: str
    once: str
    about: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    errors: Errors = field(default_factory=dict)

    @property
    def has_axes(self) -> bool:
        return any(self.values.get(f"axis_{name}") for name in AXES)


def new_once() -> str:
    return secrets.token_urlsafe(18)


def of_item(item: Leased) -> Source:
    """An item of the queue, its answers in the order drawn for this rater."""
    answers = item.content.answers[::-1] if item.shown_first == "b" else item.content.answers
    question, earlier = _split(item.content.prompt)
    models = (*item.content.models, None, None)
    return Source(
        question, answers, earlier, item.trace_id, item.item_id, models[:2], item.shown_first, about={"item": item.item_id}
    )  # fmt: skip


def of_trace(trace: Trace) -> Source:
    question, earlier = _split(trace.conversation.prompt)
    answer = trace.conversation.answer or ""
    return Source(
        question, (answer,), earlier, trace.trace_id, models=(trace.model_version, None), about={"trace": trace.trace_id}
    )


def of_two(one: Trace, two: Trace, secret: str, first: str | None = None) -> Source:
    """Two traces, `a` and `b`, in an order drawn here; the order comes back signed, so that nobody can choose it."""
    first = first or secrets.choice("ab")
    question, earlier = _split(one.conversation.prompt)
    answers = (one.conversation.answer or "", two.conversation.answer or "")
    signed = sign_order(one.trace_id, two.trace_id, first, secret)
    about = {"a": one.trace_id, "b": two.trace_id, "first": first, "signed": signed}
    shown = answers if first == "a" else answers[::-1]
    return Source(question, shown, earlier, None, None, (one.model_version, two.model_version), first, about=about)


def of_own(record: Feedback | Preference | Correction, record_id: str) -> Source:
    """A record of one's own, to be said anew; what is sent takes its place."""
    shared: dict[str, Any] = {"trace_id": record.trace_id, "supersedes": record_id, "before": _said_before(record)}
    shared["about"] = {"again": record_id}
    if isinstance(record, Feedback):
        shared |= {"session_id": record.session_id, "agent_name": record.agent_name, "models": (record.model_version, None)}
        return Source(record.user_query, (record.agent_response,), **shared)
    if isinstance(record, Correction):
        return Source(record.prompt, (record.original,), session_id="web", agent_name="pasted", **shared)
    answers = (record.response_a, record.response_b)
    shown = answers[::-1] if record.shown_first == "b" else answers
    return Source(record.prompt, shown, models=(record.model_a, record.model_b), shown_first=record.shown_first, **shared)


def _said_before(record: Feedback | Preference | Correction) -> dict[str, str]:
    """What the form of such a record had in its fields."""
    values = {f"consent_{purpose}": "yes" for purpose in record.consent}
    if isinstance(record, Correction):
        return values | {"golden": record.golden, "reason": record.reason or ""}
    values["comments"] = record.comments or ""
    if isinstance(record, Feedback):
        values |= {"thumb": record.thumb or "", "rating": str(record.rating or ""), "critical": "yes" if record.critical else ""}
        return values | {f"axis_{name}": str(stars) for name, stars in record.axes.items()}
    first = record.shown_first or "a"
    place = {first: "first", "b" if first == "a" else "a": "second", "tie": "tie"}
    return values | {"better": place[record.preferred]} | {f"axis_{name}": place[one] for name, one in record.axes.items()}


def sign_order(a: str, b: str, first: str, secret: str) -> str:
    return hmac.new(secret.encode(), f"order {a} {b} {first}".encode(), hashlib.sha256).hexdigest()


def _split(prompt: tuple[Message, ...]) -> tuple[str, tuple[Message, ...]]:
    """The last question, and what came before it."""
    at = max((n for n, message in enumerate(prompt) if message.role == "user"), default=len(prompt) - 1)
    return prompt[at].content, prompt[:at]


def rating(values: Mapping[str, str], source: Source | None, t: Words) -> FeedbackBody | Errors:
    said: dict[str, Any] = _about(values, source)
    said |= {"thumb": values.get("thumb") or None, "rating": _number(values.get("rating")), "comments": _text(values, "comments")}
    said |= {"critical": values.get("critical") == "yes", "consent": _consent(values)}
    said["axes"] = {name: n for name in AXES if (n := _number(values.get(f"axis_{name}"))) is not None}
    empty = not said["axes"] and not said["critical"] and all(said[name] is None for name in ("thumb", "rating", "comments"))
    errors = _own_texts(values, source, t) | ({"thumb": t("say_something")} if empty else {})
    return errors or _built(FeedbackBody, said, t)


def preference(values: Mapping[str, str], source: Source, t: Words) -> PreferenceBody | Errors:
    a, b = source.in_store_order
    by_place = {"first": source.shown_first or "a", "second": "b" if (source.shown_first or "a") == "a" else "a", "tie": "tie"}
    better = values.get("better")
    if better not in ("first", "second"):
        return {"better": t("choose_one")}
    chosen = {name: by_place.get(values.get(f"axis_{name}", "")) for name in AXES}
    said = {
        "prompt": source.question,
        "response_a": a,
        "response_b": b,
        "preferred": by_place[better],
        "shown_first": source.shown_first,
        "axes": {name: value for name, value in chosen.items() if value},
        "comments": _text(values, "comments"),
        "consent": _consent(values),
        "trace_id": source.trace_id,
        "supersedes": source.supersedes,
        "model_a": source.models[0],
        "model_b": source.models[1],
    }
    return _built(PreferenceBody, said, t)


def correction(values: Mapping[str, str], source: Source | None, t: Words) -> CorrectionBody | Errors:
    about = _about(values, source)
    said = {"prompt": about.get("user_query"), "original": about.get("agent_response"), "trace_id": about.get("trace_id")}
    said["supersedes"] = about.get("supersedes")
    said |= {"golden": _text(values, "golden"), "reason": _text(values, "reason"), "consent": _consent(values)}
    errors = _own_texts(values, source, t)
    if said["golden"] is None:
        errors["golden"] = t("golden_needed")
    elif said["golden"] == (source.answers[0] if source else said["original"]):
        errors["golden"] = t("golden_same")
    return errors or _built(CorrectionBody, said, t)


def _about(values: Mapping[str, str], source: Source | None) -> dict[str, Any]:
    """Which exchange it is about: a trace by its id, else the texts themselves."""
    if source is None:
        texts = {"user_query": _text(values, "question"), "agent_response": _text(values, "answer")}
        return {"session_id": "web", "agent_name": "pasted", **texts}
    again = {"supersedes": source.supersedes}
    if source.trace_id is not None:
        return {"trace_id": source.trace_id, **again}
    texts = {"user_query": source.question, "agent_response": source.answers[0], "model_version": source.models[0]}
    return {
        "session_id": source.session_id or source.item_id,
        "agent_name": source.agent_name or "review queue",
        **texts,
        **again,
    }


def _own_texts(values: Mapping[str, str], source: Source | None, t: Words) -> Errors:
    if source is not None:
        return {}
    return {name: t(f"{name}_needed") for name in ("question", "answer") if _text(values, name) is None}


def _built(kind: type[B], said: Mapping[str, Any], t: Words) -> B | Errors:
    try:
        return kind.model_validate({name: value for name, value in said.items() if value is not None})
    except ValidationError as error:
        return {_field(problem["loc"]): _sentence(problem["type"], t) for problem in error.errors()}


def _field(loc: tuple[int | str, ...]) -> str:
    name = str(loc[0]) if loc else ""
    return FIELDS.get(name, name)


def _sentence(kind: str, t: Words) -> str:
    return t("too_long", most=f"{MOST_TEXT:,}") if kind == "string_too_long" else t("not_fitting")


def _text(values: Mapping[str, str], name: str) -> str | None:
    """Browsers send line ends as CRLF; blank is nothing."""
    return values.get(name, "").replace("\r\n", "\n").strip() or None


def _number(text: str | None) -> int | None:
    return int(text) if text in ("1", "2", "3", "4", "5") else None


def _consent(values: Mapping[str, str]) -> list[str]:
    return [purpose for purpose in ("training", "evaluation") if values.get(f"consent_{purpose}") == "yes"]
