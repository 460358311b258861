"""Ids that clients choose, for each site its own: `fb_1` of ward-7 is stored as `ward-7~fb_1`, that of main as `fb_1`.

    body = with_site_ids(store, body, sender)         # the same body for a sender of main
    stored_id(store, "fb_1", "ward-7", Feedback)      # "ward-7~fb_1" if there is such a record, else "fb_1"

The answer names the id as it is stored. What a request refers to (`supersedes`, the `feedback_id` of a correction, a record to
read) may be given by either: the client's own id, if a record of the site has it, else as it is. `~` cannot be part of an id
that a client chooses.
A record that the sender stored before ids had a site keeps its id, so that the same body sent again is not stored twice.
"""

from medloop.contracts import Contract, Correction, Feedback, Preference
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody, SubmissionBody, TraceBody
from medloop.feedback.submit.sender import Sender
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.sites import record_site

MARK = "~"
OWN_ID: dict[type[SubmissionBody], tuple[str, type[Contract]]] = {
    FeedbackBody: ("feedback_id", Feedback),
    PreferenceBody: ("preference_id", Preference),
    CorrectionBody: ("correction_id", Correction),
}


def with_site_ids(store: Store, body: SubmissionBody, sender: Sender) -> SubmissionBody:
    site = sender.site
    if site == DEFAULT_SITE or isinstance(body, TraceBody):
        return body
    name, kind = OWN_ID[type(body)]
    changes: dict[str, str] = {}
    if (given := getattr(body, name)) is not None and not _stored_before(store, kind, given, sender):
        changes[name] = f"{site}{MARK}{given}"
    named: dict[str, type[Contract]] = {"supersedes": kind}
    named |= {"feedback_id": Feedback} if isinstance(body, CorrectionBody) else {}
    for field, kind_named in named.items():
        if (reference := getattr(body, field)) is not None:
            changes[field] = stored_id(store, reference, site, kind_named)
    return body.model_copy(update=changes) if changes else body


def stored_id(store: Store, given: str, site: str, *kinds: type[Contract]) -> str:
    own = f"{site}{MARK}{given}"
    return own if site != DEFAULT_SITE and any(crud.exists(store, kind, own) for kind in kinds) else given


def _stored_before(store: Store, kind: type[Contract], given: str, sender: Sender) -> bool:
    """Whether this sender stored a record of this site under the id itself."""
    if not crud.exists(store, kind, given):
        return False
    stored = crud.get(store, kind, given)
    return getattr(stored, "recorded_by", None) == sender.user_id and record_site(store, given) == sender.site
