"""The set of records that two people agree on, and what the server does by itself between the two."""

import hashlib
from dataclasses import replace

import pytest

from medloop.contracts import Conversation, Message, Trace, canonical_json
from medloop.data.text.risk import strata_of
from medloop.feedback.review.complaints import queue_complaints
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.erasure.erase import ChangedSinceRequestError, check_unchanged, erase, preview
from medloop.privacy.erasure.plan import make_plan
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.testing.canary import told
from medloop.testing.feedback import make_thumb

ASKED = ErasureRequest(reason="asked", subject="patient 4711")


def complain(store: Store) -> None:
    who = subject_of(store, "patient 4711")
    talk = Conversation(messages=(Message(role="user", content=told("back")), Message(role="assistant", content="Rest a while.")))
    trace = Trace(session_id="s", agent_name="a", conversation=talk, model_version="m", user_hash=who)
    flag = make_thumb(1, "Rest a while.", up=False, query=told("back"), trace_id=trace.trace_id, subject=who, critical=True)
    crud.add(store, [trace, flag], actor="test")


def test_an_item_that_the_server_queues_meanwhile_does_not_change_what_was_agreed_on(store: Store) -> None:
    """The server puts a complaint into the review queue a moment after it was stored, also while an erasure waits."""
    complain(store)
    before = preview(store, ASKED, actor="test")
    assert queue_complaints(store, strata_of).items
    after = preview(store, ASKED, actor="test")
    assert "queue_items" not in before.rows and after.rows["queue_items"] == 1
    assert after.ids_sha256 == before.ids_sha256
    proof = erase(store, replace(ASKED, approved_by="usr_2", approved_ids=before.ids_sha256), actor="test")
    assert proof.complete and proof.rows["queue_items"] == 1


def test_a_request_from_before_queue_items_were_left_out_is_for_the_same_records(store: Store) -> None:
    complain(store)
    assert queue_complaints(store, strata_of).items
    planned = make_plan(store, ASKED, "test")
    assert planned is not None and planned.plan.record_ids["queue_items"]
    before = hashlib.sha256(canonical_json([planned.plan.record_ids, planned.plan.evidence]).encode()).hexdigest()
    asked = replace(ASKED, approved_by="usr_2", approved_ids=before)
    check_unchanged(store, asked, actor="usr_2")
    with pytest.raises(ChangedSinceRequestError):
        erase(store, replace(asked, approved_ids=hashlib.sha256(b"others").hexdigest()), actor="test")
    assert erase(store, asked, actor="test").complete
