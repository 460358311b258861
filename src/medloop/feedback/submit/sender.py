"""Who sends a record, for whom they may speak, and what they may judge.

Raters are users. A person speaks for themselves; so does a key, unless it was made to speak for named clinicians. An annotator
judges only what the review queue showed them, and texts that come with a trace are those of the trace: a verdict about one
answer cannot pass for a verdict about another.
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from medloop.contracts import Contract, Correction, Feedback, Preference, Trace
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.feedback import same_texts
from medloop.errors import InputError
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, SubmissionBody, TraceBody
from medloop.store.db import Store
from medloop.store.records import consents, shown_items, sites, users

RatingBody = FeedbackBody | PreferenceBody | CorrectionBody
NO_TRACE = "There is no trace with this trace_id"
LOG_IT, OWN_SITE = "Log it first with POST /api/v1/traces", "Name an answer of your own site"
FROM_QUEUE = "Rate only what the queue shows you"
NOT_SHOWN = "These are not the question and the answers of an item that the queue showed you"
OTHER_TEXTS = "Question and answer are not those of the trace"
LEAVE_TEXTS_OUT = "Leave them out, because the trace has them; or leave trace_id out"
ADD_USER = "Send the name or the id of a user; add one with: medloop users add NAME --role clinician --no-password"
NEW_KEY = "Use a key that may: medloop api keys new PROGRAM --speaks-for NAME"


@dataclass(frozen=True)
class Sender:
    """Who sends. A program passes on what others say; it may name only those clinicians for whom its key speaks."""

    user_id: str
    is_program: bool = False
    speaks_for: frozenset[str] = frozenset()  # ids of users
    is_rater: bool = True  # a clinician or an annotator; what anybody else likes is not an answer to learn
    site: str = DEFAULT_SITE  # of another one than `main` comes feedback about answers of that site alone
    by_queue: bool = False  # may speak only of traces that the queue has shown; else an id would open any trace's text


def check_sender(store: Store, body: SubmissionBody, sender: Sender) -> str | None:
    """Who judged, as a user's id; None where a program names nobody, and of a trace."""
    if isinstance(body, TraceBody):
        if sender.by_queue:
            raise InputError("Annotators do not log traces", FROM_QUEUE)
        return None
    if sender.by_queue and body.trace_id is not None and not shown_items.was_shown(store, body.trace_id, sender.user_id):
        raise InputError(NO_TRACE, FROM_QUEUE)
    if body.clinician_id is None:
        return None if sender.is_program else sender.user_id
    user_id = sender.user_id if body.clinician_id == sender.user_id else users.find_user_id(store, body.clinician_id)
    if user_id == sender.user_id or (user_id is not None and user_id in sender.speaks_for):
        return user_id
    if not sender.is_program:
        raise InputError("clinician_id names somebody else", "Leave it out: you are stored as the author of what you send")
    if user_id is None:
        raise InputError("clinician_id names nobody: there is no such user", ADD_USER)
    raise InputError("Your key may not speak for this clinician_id", NEW_KEY)


def brings_texts(body: RatingBody) -> bool:
    """Whether the body brings question and answer itself, rather than leave them to the trace."""
    return isinstance(body, PreferenceBody) or (body.user_query if isinstance(body, FeedbackBody) else body.prompt) is not None


def check_exchange(
    store: Store, sender: Sender, record: Contract, trace: Trace | None, own: Callable[[], Iterable[Sequence[str]]]
) -> None:  # fmt: skip
    """Texts that come with a trace are those of the trace, or as the queue showed them; an annotator judges only what the queue
    showed them. `trace` is None where no texts came with it, `own` are the exchanges of the sender's records that it names."""
    assert isinstance(record, Feedback | Preference | Correction)
    if not sender.by_queue and (trace is None or _is_about(record, trace)):
        return
    shown = (content.exchange for content in shown_items.contents_shown_to(store, sender.user_id, trace_id=record.trace_id))
    if not any(same_texts(record.exchange, exchange) for exchange in (*own(), *shown)):
        raise InputError(NOT_SHOWN, FROM_QUEUE) if sender.by_queue else InputError(OTHER_TEXTS, LEAVE_TEXTS_OUT)


def _is_about(record: Feedback | Preference | Correction, trace: Trace) -> bool:
    """Whether the texts of the record are those of the trace; of two answers one is its own."""
    exchange = (trace.conversation.question, trace.conversation.answer or "")
    question, *answers = record.exchange
    return any(same_texts((question, answer), exchange) for answer in answers)


def site_of_sender(store: Store, sender: Sender, clinician: str | None) -> str:
    """Where a judgement comes from: the sender's site, or that of the clinician whom a program of `main` names."""
    if sender.site == DEFAULT_SITE and sender.is_program and clinician is not None:
        return sites.site_of(store, clinician)
    return sender.site


def hash_of_request(store: Store, caller: str, idempotency_key: str) -> str:
    """Under which a request is known that may come again: its sender may have put a person's number into its key."""
    key = _idempotency_hashing(consents.hashing_key(store))
    return hmac.digest(key, f"{caller} {idempotency_key}".encode(), "sha256").hex()


@lru_cache(maxsize=4)  # the one store of a server
def _idempotency_hashing(key: bytes) -> bytes:
    return hmac.digest(key, b"medloop idempotency keys", "sha256")
