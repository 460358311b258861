"""Records in and out of both databases."""

from __future__ import annotations

from contextlib import suppress

import pytest
from sqlalchemy import select, text, update

from medloop.contracts import Conversation, Correction, Feedback, Message, Preference, Trace
from medloop.errors import InputError, IntegrityError, StoreError
from medloop.store import audit, tables
from medloop.store.db import Store
from medloop.store.records import crud

CANARY = "canary-胸痛-7f3a"


def feedback(n: int = 0, **changes) -> Feedback:
    given = {
        "feedback_id": f"fb_{n}",
        "session_id": "s",
        "agent_name": "a",
        "user_query": CANARY,
        "agent_response": f"{CANARY} {n}",
        "rating": 4,
    }
    return Feedback(**given | changes)


def one_of_each() -> list:
    talk = Conversation(messages=(Message(role="user", content=CANARY), Message(role="assistant", content="rest\0 now")))
    return [
        feedback(
            comments=CANARY, axes={"safety": 5}, consent=("training",), thumb="up", feedback_type="positive", clinician_id="7"
        ),
        Preference(prompt=CANARY, response_a="a", response_b="b", preferred="b", shown_first="a", comments=CANARY),
        Correction(prompt="p", original="o", golden=CANARY, reason=CANARY, feedback_id="fb_0"),
        Trace(
            session_id="s",
            agent_name="a",
            conversation=talk,
            model_version="v1",
            contexts=(CANARY,),
            sampling_share=0.1,
            meta={"n": [1, None]},
        ),
    ]


def id_of(record) -> str:
    return getattr(record, tables.natural_id(crud.TABLES[type(record)]))


def test_every_kind_comes_back_as_it_went_in(store: Store) -> None:
    given = one_of_each()
    assert crud.add(store, given, actor="test") == 4
    for record in given:
        assert crud.get(store, type(record), id_of(record)) == record
        assert list(crud.iterate(store, type(record))) == [record]


def test_unknown_id_is_none(store: Store) -> None:
    assert crud.get(store, Feedback, "fb_unknown") is None


def test_same_record_again_is_a_no_op(store: Store) -> None:
    given = one_of_each()
    crud.add(store, given, actor="test")
    assert crud.add(store, [*given, given[0]], actor="test") == 0
    assert crud.count(store, Feedback) == 1
    assert audit.verify(store).rows == 4


def test_other_content_under_a_known_id_is_refused_and_nothing_of_the_batch_stays(store: Store) -> None:
    crud.add(store, [feedback(1)], actor="test")
    with pytest.raises(StoreError, match=r"fb_1 is taken.*nothing was added") as caught:
        crud.add(store, [feedback(2), feedback(1, rating=1)], actor="test")
    assert CANARY not in str(caught.value)
    assert [record.feedback_id for record in crud.iterate(store, Feedback)] == ["fb_1"]


def test_two_versions_of_one_id_in_a_batch_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="is taken"):
        crud.add(store, [feedback(1), feedback(1, rating=1)], actor="test")
    assert crud.count(store, Feedback) == 0


def test_iteration_crosses_pages_in_order(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(crud, "PAGE_SIZE", 7)
    given = [feedback(n) for n in range(30)]
    crud.add(store, given, actor="test")
    crud.mark_processed(store, Feedback, ["fb_3", "fb_20"], actor="test")  # PostgreSQL moves a changed row to the end
    assert list(crud.iterate(store, Feedback)) == given
    assert [seq for seq, _ in crud.page(store, Feedback, after=3, limit=2)] == [4, 5]


def test_processed_records_leave_the_unprocessed_view(store: Store) -> None:
    crud.add(store, [feedback(n) for n in range(5)], actor="test")
    assert crud.mark_processed(store, Feedback, ["fb_1", "fb_3", "fb_unknown"], actor="test") == 2
    assert crud.mark_processed(store, Feedback, ["fb_1"], actor="test") == 0
    assert [record.feedback_id for record in crud.iterate(store, Feedback, unprocessed=True)] == ["fb_0", "fb_2", "fb_4"]
    assert crud.count(store, Feedback, unprocessed=True) == 3


def test_new_records_leave_an_audit_line_each(store: Store) -> None:
    crud.add(store, [feedback(1), feedback(2)], actor="dr.who")
    lines = audit.show(store, 10)
    assert [(line["actor"], line["action"], line["subject"]) for line in lines] == [
        ("dr.who", "rlhf_feedback.add", "fb_1"),
        ("dr.who", "rlhf_feedback.add", "fb_2"),
    ]


def test_nul_in_a_readable_column_is_refused_on_both_databases(store: Store) -> None:
    with pytest.raises(InputError, match="session_id contains a NUL"):
        crud.add(store, [feedback(session_id="a\0b")], actor="test")


@pytest.mark.parametrize("bad", [{"rating": 6}, {"thumb": "sideways"}, {"feedback_type": "angry"}, {"key_id": "no such key"}])
def test_database_itself_refuses_values_outside_the_contract(store: Store, bad: dict) -> None:
    crud.add(store, [feedback()], actor="test")
    with pytest.raises(StoreError, match="refused"), store.write() as conn:
        conn.execute(update(tables.rlhf_feedback).values(**bad))
    assert crud.get(store, Feedback, "fb_0") == feedback(timestamp=crud.get(store, Feedback, "fb_0").timestamp)


def test_ciphertext_moved_to_another_row_or_column_is_refused(store: Store) -> None:
    crud.add(store, [feedback(1), feedback(2)], actor="test")
    table = tables.rlhf_feedback
    fb_1 = table.c.feedback_id == "fb_1"
    with store.read() as conn:
        good = conn.execute(select(table.c.user_query, table.c.agent_response).where(fb_1)).one()
        other_row = conn.execute(select(table.c.user_query).where(table.c.feedback_id == "fb_2")).scalar_one()
    for moved in ({"user_query": other_row}, {"user_query": good.agent_response}, {"agent_response": good.user_query}):
        with store.write() as conn:
            conn.execute(update(table).where(fb_1).values(**dict(good._mapping) | moved))
        with pytest.raises(IntegrityError, match=f"{next(iter(moved))} of fb_1 was changed"):
            crud.get(store, Feedback, "fb_1")


def test_every_flipped_byte_of_a_ciphertext_is_found(store: Store) -> None:
    crud.add(store, [feedback(1)], actor="test")
    table = tables.rlhf_feedback
    with store.read() as conn:
        good = conn.execute(select(table.c.user_query)).scalar_one()
    for index in range(len(good)):
        with store.write() as conn:
            conn.execute(update(table).values(user_query=good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :]))
        with pytest.raises(IntegrityError):
            crud.get(store, Feedback, "fb_1")


def test_no_plain_text_reaches_the_disk(store: Store) -> None:
    crud.add(store, one_of_each(), actor="test")
    if not store.is_sqlite:
        with store.read() as conn:
            assert conn.execute(text("SELECT count(*) FROM rlhf_feedback")).scalar() == 1
        folders = [store.settings.home, store.engine.url.query["host"]]
    else:
        folders = [store.settings.home]
    assert files_with(CANARY.encode(), folders) == []
    assert files_with(b"rlhf_feedback", folders)  # the search itself works: names of tables are found


def files_with(needle: bytes, folders: list) -> list[str]:
    from pathlib import Path

    found = []
    for path in (path for folder in folders for path in Path(str(folder)).rglob("*")):
        with suppress(FileNotFoundError):  # PostgreSQL removes files of its own while we look
            if path.is_file() and needle in path.read_bytes():
                found.append(str(path))
    return found


def test_an_id_with_a_nul_is_the_askers_mistake_on_either_database(store: Store) -> None:
    with suppress(InputError):
        assert crud.get(store, Feedback, "a\0b") is None
