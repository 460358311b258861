"""The set of records that two people agree on, and what the server does by itself between the two."""

from dataclasses import replace

from medloop.contracts import Conversation, Message, Trace
from medloop.data.text.risk import strata_of
from medloop.feedback.review.complaints import queue_complaints
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import erase, preview
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.testing.canary import told
from medloop.testing.feedback import make_thumb

ASKED = ErasureRequest(reason="asked", subject="patient 4711")


def test_an_item_that_the_server_queues_meanwhile_does_not_change_what_was_agreed_on(store: Store) -> None:
    """The server puts a complaint into the review queue a moment after it was stored, also while an erasure waits."""
    who = subject_of(store, "patient 4711")
    talk = Conversation(messages=(Message(role="user", content=told("back")), Message(role="assistant", content="Rest a while.")))
    trace = Trace(session_id="s", agent_name="a", conversation=talk, model_version="m", user_hash=who)
    flag = make_thumb(1, "Rest a while.", up=False, query=told("back"), trace_id=trace.trace_id, subject=who, critical=True)
    crud.add(store, [trace, flag], actor="test")
    before = preview(store, ASKED, actor="test")
    assert queue_complaints(store, strata_of).items
    after = preview(store, ASKED, actor="test")
    assert "queue_items" not in before.rows and after.rows["queue_items"] == 1
    assert after.ids_sha256 == before.ids_sha256
    proof = erase(store, replace(ASKED, approved_by="usr_2", approved_ids=before.ids_sha256), actor="test")
    assert proof.complete and proof.rows["queue_items"] == 1
