"""Four eyes: an erasure that removes the text of safety evidence is requested by one person and approved by another."""

from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import SecondPersonNeededError, check_unchanged
from medloop.privacy.erasure.notes import LONGEST_REASON, NoteError, check_note
from medloop.store.db import Store
from medloop.store.records import erasure_requests
from medloop.store.records.erasure_requests import StoredRequest


def refuse(store: Store, request_id: str, *, by: str, note: str) -> None:
    """The erasure does not happen; `note` says why."""
    if not note.strip():
        raise NoteError("A refusal needs a reason", f"Say why in the note, in at most {LONGEST_REASON} characters")
    erasure_requests.refuse(store, request_id, by=by, note=check_note(note))


def request_approval(store: Store, request: ErasureRequest, needed: SecondPersonNeededError, *, by: str) -> str:
    """Store the request of a user until somebody else approves it; returns its id."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    return erasure_requests.add_request(
        store, subject=subject, records=request.records, reason=request.reason.strip(), keep_jobs=request.keep_jobs, by=by,
        evidence=needed.evidence, ids=needed.ids, ids_sha256=needed.ids_sha256,
    )  # fmt: skip


def requested(store: Store, request_id: str, *, by: str) -> ErasureRequest:
    """What `by` is asked to approve; an error if that person may not approve it, or other records would go by now."""
    request = _erasure(erasure_requests.check_approval(store, request_id, by=by))
    check_unchanged(store, request, actor=by)
    return request


def approve(store: Store, request_id: str, *, by: str, note: str = "") -> tuple[ErasureRequest, str]:
    """The request, approved by a second person, and who made it. What cannot be carried out is not approved."""
    checked_note = check_note(note)
    requested(store, request_id, by=by)
    stored = erasure_requests.approve(store, request_id, by=by, note=checked_note)
    return _erasure(stored), stored.requested_by


def _erasure(stored: StoredRequest) -> ErasureRequest:
    return ErasureRequest(
        stored.reason, stored.subject, stored.records, stored.keep_jobs, stored.approved_by, stored.ids_sha256, stored.request_id
    )
