"""What is judged: an item of the queue, a trace, two traces, or an earlier record of the same person.

Pasted text has no target: question and answer come with the form.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from medloop.api.policy import Caller, NotFoundError
from medloop.contracts import Correction, Feedback, Message, Preference, Trace
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.store.db import Store
from medloop.store.records.audited_read import get_audited
from medloop.store.records.history import Kind as RecordKind
from medloop.store.records.history import own_record
from medloop.store.records.review_queue import LeasedItem, leased_item

ReviewKind = Literal["rate", "compare", "correct"]
RECORD_OF: dict[ReviewKind, RecordKind] = {"rate": "feedback", "compare": "preference", "correct": "correction"}
PAGE_OF: dict[RecordKind, ReviewKind] = {record: page for page, record in RECORD_OF.items()}


@dataclass(frozen=True)
class ReviewTarget:
    """The exchange as it is shown; `answers` are in the order shown."""

    question: str
    answers: tuple[str, ...]
    earlier: tuple[Message, ...] = ()
    trace_id: str | None = None
    item: LeasedItem | None = None  # of the queue, while it is this person's
    contexts: tuple[str, ...] = ()
    models: tuple[str | None, ...] = (None, None)
    shown_first: str | None = None
    session_id: str | None = None
    agent_name: str | None = None
    supersedes: str | None = None
    previous: Mapping[str, str] = field(default_factory=dict)  # the form fields of the record that it supersedes
    hidden: Mapping[str, str] = field(default_factory=dict)  # hidden form fields by which `find_target` finds it again

    @property
    def item_id(self) -> str | None:
        return None if self.item is None else self.item.item_id

    @property
    def in_store_order(self) -> tuple[str, ...]:
        """The answers as a and b."""
        return self.answers if self.shown_first != "b" else self.answers[::-1]


def find_target(store: Store, caller: Caller, kind: ReviewKind, fields: Mapping[str, str]) -> ReviewTarget | None:
    """The target that an address or a form names; None if it names none. What is not the caller's does not exist for them."""
    if item_id := fields.get("item"):
        return target_of_item(leased_item(store, item_id, caller.user_id, caller.site))
    if record_id := fields.get("again"):
        record = own_record(store, caller.user_id, RECORD_OF[kind], record_id, site=caller.site)
        if record is None:
            raise NotFoundError("You have no such record")
        return _target_of_record(record, record_id)
    if trace_id := fields.get("trace"):
        return _target_of_trace(_read_trace(store, caller, trace_id, kind))
    if fields.get("a") and fields.get("b"):
        return _target_of_two(store, caller, fields)
    return None


def target_of_item(item: LeasedItem) -> ReviewTarget:
    """An item of the queue, its answers in the order drawn for this rater."""
    answers = item.content.answers[::-1] if item.shown_first == "b" else item.content.answers
    question, earlier = _split(item.content.prompt)
    models = (*item.content.models, None, None)[:2]
    return ReviewTarget(
        question, answers, earlier, item.trace_id, item, item.content.contexts, models, item.shown_first,
        hidden={"item": item.item_id},
    )  # fmt: skip


def _read_trace(store: Store, caller: Caller, trace_id: str, purpose: str) -> Trace:
    """Clinicians open the exchange that their assistant links to, those of a site one of that site; annotators see what the
    queue gives them."""
    trace = None
    if caller.role == "clinician":
        trace = get_audited(store, Trace, trace_id, actor=caller.user_id, purpose=purpose, allowed=partial(_is_for, caller))
    if trace is None or trace.conversation.answer is None:
        raise NotFoundError("There is no such answer")
    return trace


def _is_for(caller: Caller, trace: Trace) -> bool:
    return caller.site in (DEFAULT_SITE, trace.meta.get("site", DEFAULT_SITE))


def _target_of_trace(trace: Trace) -> ReviewTarget:
    question, earlier = _split(trace.conversation.prompt)
    answers, models = (trace.conversation.answer or "",), (trace.model_version, None)
    return ReviewTarget(
        question, answers, earlier, trace.trace_id, contexts=trace.contexts, models=models, hidden={"trace": trace.trace_id}
    )


def _target_of_two(store: Store, caller: Caller, fields: Mapping[str, str]) -> ReviewTarget:
    """Two traces in a random order. The order comes back with the form, signed, so that nobody can choose it."""
    a, b, first = fields["a"], fields["b"], fields.get("first")
    if first is not None:
        signature = _sign_order(a, b, first, caller.csrf)
        if not hmac.compare_digest(fields.get("signed", "").encode(), signature.encode()):
            raise NotFoundError("There is no such comparison")
    trace_a, trace_b = (_read_trace(store, caller, trace_id, "compare") for trace_id in (a, b))
    if trace_a.conversation.prompt != trace_b.conversation.prompt or a == b:
        raise NotFoundError("These are not two answers to one question")
    first = first or secrets.choice("ab")
    question, earlier = _split(trace_a.conversation.prompt)
    answers = (trace_a.conversation.answer or "", trace_b.conversation.answer or "")
    hidden = {"a": a, "b": b, "first": first, "signed": _sign_order(a, b, first, caller.csrf)}
    models = (trace_a.model_version, trace_b.model_version)
    shown = answers if first == "a" else answers[::-1]
    contexts = trace_a.contexts if trace_a.contexts == trace_b.contexts else ()
    return ReviewTarget(question, shown, earlier, contexts=contexts, models=models, shown_first=first, hidden=hidden)


def _sign_order(a: str, b: str, first: str, secret: str) -> str:
    return hmac.new(secret.encode(), f"order {a} {b} {first}".encode(), hashlib.sha256).hexdigest()


def _target_of_record(record: Feedback | Preference | Correction, record_id: str) -> ReviewTarget:
    """An earlier record of the caller; what is sent supersedes it."""
    shared: dict[str, Any] = {"trace_id": record.trace_id, "supersedes": record_id, "previous": _fields_of(record)}
    shared["hidden"] = {"again": record_id}
    if isinstance(record, Feedback):
        shared |= {"session_id": record.session_id, "agent_name": record.agent_name, "models": (record.model_version, None)}
        return ReviewTarget(record.user_query, (record.agent_response,), **shared)
    if isinstance(record, Correction):
        return ReviewTarget(record.prompt, (record.original,), session_id="web", agent_name="pasted", **shared)
    answers = (record.response_a, record.response_b)
    shown = answers[::-1] if record.shown_first == "b" else answers
    return ReviewTarget(record.prompt, shown, models=(record.model_a, record.model_b), shown_first=record.shown_first, **shared)


def values_of_record(store: Store, caller: Caller, kind: ReviewKind, record_id: str) -> dict[str, str]:
    """What the form of this record of the caller said; nothing if it is not theirs."""
    record = own_record(store, caller.user_id, RECORD_OF[kind], record_id, site=caller.site)
    return {} if record is None else _fields_of(record)


def _fields_of(record: Feedback | Preference | Correction) -> dict[str, str]:
    """The form fields that would make this record."""
    fields = {f"consent_{purpose}": "yes" for purpose in record.consent}
    if isinstance(record, Correction):
        return fields | {"golden": record.golden, "reason": record.reason or ""}
    fields["comments"] = record.comments or ""
    if isinstance(record, Feedback):
        fields |= {"thumb": record.thumb or "", "rating": str(record.rating or ""), "critical": "yes" if record.critical else ""}
        return fields | {f"axis_{name}": str(stars) for name, stars in record.axes.items()}
    first = record.shown_first or "a"
    place = {first: "first", "b" if first == "a" else "a": "second", "tie": "tie", "both_bad": "both_bad"}
    fields |= {"better": place[record.preferred]} | {f"critical_{place[side]}": "yes" for side in record.critical}
    return fields | {f"axis_{name}": place[side] for name, side in record.axes.items()}


def _split(prompt: tuple[Message, ...]) -> tuple[str, tuple[Message, ...]]:
    """The last question, and what came before it."""
    last = max((n for n, message in enumerate(prompt) if message.role == "user"), default=len(prompt) - 1)
    return prompt[last].content, prompt[:last]
