"""What the sender of a record should know: that nothing will be trained on it, why, and how to change that."""

from collections.abc import Sequence

from medloop.contracts import Contract, Correction, Feedback, Preference
from medloop.contracts.polarity import polarity
from medloop.feedback.submit.sender import Sender
from medloop.store.records import crud
from medloop.store.records.write_request import Json

NOT_USED = (
    "This record has no consent to training, so nothing will be trained on it; it counts only in the numbers. "
    'To change that, send it again with "consent": ["training"] and "supersedes": "{}".'
)
NO_EXCHANGE = (
    "Question and answer of this session are not known, so this rating counts only in the numbers. "
    "To change that, name the trace_id, or send user_query and agent_response."
)
NO_RATER = (
    "No clinician or annotator stands behind this record, so no model learns the answer that it prefers or proposes; "
    "it counts in the numbers. To change that, let a clinician send it, or name them in clinician_id with a key that speaks for "
    "them: medloop api keys new PROGRAM --speaks-for NAME."
)


def _likes_something(record: Contract) -> bool:
    """Whether a model could learn an answer from the record."""
    if isinstance(record, Feedback):
        return polarity(thumb=record.thumb, stars=record.rating, feedback_type=record.feedback_type) == "positive"
    return isinstance(record, Correction) or (isinstance(record, Preference) and record.preferred in ("a", "b"))


def note_about(records: Sequence[Contract], sender: Sender) -> Json:
    """What the sender should know: that the record will not be trained on, and how to change that."""
    notes, record = [], records[0]
    if isinstance(record, Feedback | Preference | Correction) and "training" not in record.consent:
        notes.append(NOT_USED.format(crud.id_of(record)))
    if isinstance(record, Feedback) and not record.user_query:
        notes.append(NO_EXCHANGE)
    judge = getattr(record, "clinician_id", None) or sender.user_id
    if judge == sender.user_id and not sender.is_rater and any(map(_likes_something, records)):
        notes.append(NO_RATER)
    return {"note": " ".join(notes)} if notes else {}
