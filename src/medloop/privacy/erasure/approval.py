"""Four eyes: an erasure that removes the text of safety evidence is requested by one person and approved by another."""

from dataclasses import replace

from medloop.errors import InputError
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import LONGEST_REASON, SecondPersonNeededError
from medloop.privacy.phi.scrub import Scrubber
from medloop.store.db import Store
from medloop.store.records import erasure_requests


class NoteError(InputError):
    """The note is missing or too long, or it may name somebody."""


def refuse(store: Store, request_id: str, *, by: str, note: str) -> None:
    """The erasure does not happen; `note` says why."""
    if not note.strip():
        raise NoteError("A refusal needs a reason", f"Say why in the note, in at most {LONGEST_REASON} characters")
    erasure_requests.refuse(store, request_id, by=by, note=check_note(note))


def check_note(note: str) -> str:
    """The note in one line. It is stored for good and not encrypted, so it must not name the person."""
    text = " ".join(note.split())
    if len(text) > LONGEST_REASON or not text.isprintable():
        raise NoteError(f"A note may have up to {LONGEST_REASON} printable characters", "Shorten it")
    assessment = Scrubber().assess(text)
    if assessment.quarantined or assessment.cleaned != text:
        raise NoteError("The note may name a person, and it is stored for good", "Leave out names, numbers and dates of people")
    return text


def request_approval(store: Store, request: ErasureRequest, needed: SecondPersonNeededError, *, by: str) -> str:
    """Store the request of a user until somebody else approves it; returns its id."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    return erasure_requests.add_request(
        store, subject=subject, records=request.records, reason=request.reason.strip(), keep_jobs=request.keep_jobs, by=by,
        evidence=needed.evidence, ids=needed.ids, ids_sha256=needed.ids_sha256,
    )  # fmt: skip


def approve(store: Store, request_id: str, *, by: str, note: str = "") -> tuple[ErasureRequest, str]:
    """The request, approved by a second person, and who made it."""
    stored = erasure_requests.approve(store, request_id, by=by, note=check_note(note))
    request = ErasureRequest(stored.reason, stored.subject, stored.records, stored.keep_jobs)
    return replace(request, approved_by=stored.approved_by, approved_ids=stored.ids_sha256), stored.requested_by
