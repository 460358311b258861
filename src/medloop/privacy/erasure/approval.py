"""Four eyes: an erasure that removes the text of safety evidence is requested by one person and approved by another."""

from dataclasses import replace

from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import SecondPersonNeededError
from medloop.store.db import Store
from medloop.store.records import erasure_requests


def request_approval(store: Store, request: ErasureRequest, needed: SecondPersonNeededError, *, by: str) -> str:
    """Store the request of a user until somebody else approves it; returns its id."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    return erasure_requests.add_request(
        store, subject=subject, records=request.records, reason=request.reason.strip(), keep_jobs=request.keep_jobs, by=by,
        evidence=sum(needed.evidence.values()), ids_sha256=needed.ids_sha256,
    )  # fmt: skip


def approve(store: Store, request_id: str, *, by: str) -> tuple[ErasureRequest, str]:
    """The request, approved by a second person, and who made it."""
    stored = erasure_requests.approve(store, request_id, by=by)
    request = ErasureRequest(stored.reason, stored.subject, stored.records, stored.keep_jobs)
    return replace(request, approved_by=stored.approved_by, approved_ids=stored.ids_sha256), stored.requested_by
