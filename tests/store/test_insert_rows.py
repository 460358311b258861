"""Many rows in one INSERT: the same rows as one by one, signed, and not in hundreds of steps."""

import secrets
from datetime import datetime, timedelta, timezone

import pytest
from sqlalchemy import DateTime, event, insert, select
from sqlalchemy.dialects import sqlite

from medloop.contracts import AuditEvent, utc_now
from medloop.store import audit, row_macs
from medloop.store.db import Store
from medloop.store.insert_rows import MOST_ROWS, insert_rows, insert_unsigned
from medloop.store.tables import audit_log, idempotency_keys, rlhf_feedback, withdrawals
from medloop.store.tables.columns import UtcDateTime


def rows_of(store: Store, count: int) -> list[dict]:
    """Times in other zones, JSON, flags, bytes and empty columns; the columns of two rows in another order."""
    with store.write() as conn:
        key = store.keys.writing(conn).for_row(None, "fb")
    zone = timezone(timedelta(hours=8))
    rows = [
        {
            "feedback_id": f"fb_{n}", "session_id": "it's %s ? é 发烧", "agent_name": "a", "user_query": secrets.token_bytes(40),
            "agent_response": b"", "rating": None if n % 3 else 4, "thumb": "up" if n % 2 else None, "axes": {"safety": n, "é": None},
            "critical": n % 2 == 0, "consent": ["training"] * (n % 2), "comments": None if n % 2 else b"\x00\xff",
            "timestamp": datetime(2026, 1, 1, 7, 30, tzinfo=zone) + timedelta(microseconds=n), "received": None, **key.columns,
        }
        for n in range(count)
    ]  # fmt: skip
    return [dict(reversed(list(row.items()))) if n % 2 else row for n, row in enumerate(rows)]


@pytest.mark.parametrize("microsecond", [0, 7, 999_999])
@pytest.mark.parametrize("year", [1, 999, 2026, 9999])
def test_a_time_is_written_to_sqlite_in_utc_as_sqlalchemy_writes_it(year: int, microsecond: int) -> None:
    dialect, zone = sqlite.dialect(), timezone(timedelta(hours=8))
    written = UtcDateTime().dialect_impl(dialect).bind_processor(dialect)(datetime(year, 3, 5, 7, 30, 1, microsecond, zone))
    expected = DateTime().dialect_impl(dialect).bind_processor(dialect)(datetime(year, 3, 4, 23, 30, 1, microsecond))
    assert written == expected and UtcDateTime().dialect_impl(dialect).bind_processor(dialect)(None) is None


def test_rows_are_as_sqlalchemy_writes_them_and_their_macs_fit(store: Store) -> None:
    rows = rows_of(store, 2 * MOST_ROWS + 7)
    statements: list[str] = []
    with store.write() as conn:
        conn.execute(insert(rlhf_feedback), [{**row, "feedback_id": f"x{row['feedback_id']}"} for row in rows])
        event.listen(conn, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
        insert_rows(store, conn, rlhf_feedback, rows)
    with store.read() as conn:
        stored = [dict(row._mapping) for row in conn.execute(select(rlhf_feedback).order_by(rlhf_feedback.c.id))]
        assert not row_macs.check_page(store, conn, rlhf_feedback, 0).changed
    for row in stored:
        row.update(id=0, mac=b"", feedback_id=row["feedback_id"].removeprefix("x"))
    assert len(statements) == 3 and stored[: len(rows)] == stored[len(rows) :]
    assert (stored[1]["critical"], stored[0]["critical"], stored[0]["timestamp"].hour) == (False, True, 23)


def test_an_edited_row_is_found(store: Store) -> None:
    rows = rows_of(store, 1)
    with store.write() as conn:
        insert_rows(store, conn, rlhf_feedback, rows)
    with store.engine.begin() as conn:
        if store.is_sqlite:
            conn.exec_driver_sql("PRAGMA query_only=OFF")
        conn.exec_driver_sql("UPDATE rlhf_feedback SET rating = 1")
    with store.read() as conn:
        assert len(row_macs.check_page(store, conn, rlhf_feedback, 0).changed) == 1


def test_rows_of_guarded_tables_are_not_left_unsigned_and_columns_are_the_same(store: Store) -> None:
    with store.write() as conn:
        with pytest.raises(AssertionError, match="signed"):
            insert_unsigned(conn, withdrawals, [{"record_id": "a", "kind": "b", "withdrawn_by": "c"}])
        key = {"caller": "a", "key": "b", "fingerprint": "c", "status": 201, "answer": {}, "created": utc_now()}
        with pytest.raises(AssertionError, match="same columns"):
            insert_rows(store, conn, idempotency_keys, [key, {"caller": "a", "key": "c"}])
        insert_rows(store, conn, idempotency_keys, [])


def test_a_row_of_the_audit_log_is_the_event_as_it_was_always_written(store: Store) -> None:
    """Old rows are checked by the same function, so its form may not change."""
    times = (utc_now(), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3))))
    events = [
        AuditEvent(
            actor="é", action="b", subject="发烧", detail={"x": 0.1, "b": True, "n": 7, "s": "ü\0"} if n else {}, timestamp=time
        )
        for n, time in enumerate(times)
    ]
    with store.write() as conn:
        audit.append(conn, events)
    with store.read() as conn:
        rows = conn.execute(select(audit_log).order_by(audit_log.c.seq)).all()
    for row, given in zip(rows, events, strict=True):
        fields = given.model_dump(mode="json")
        assert (row.timestamp, row.actor, row.subject) == (fields["timestamp"], fields["actor"], fields["subject"])
    assert rows[0].detail == "{}" and rows[1].detail == '{"b":true,"n":7,"s":"ü\\u0000","x":0.1}' and audit.verify(store).ok


def test_statements_stay_prepared_from_one_transaction_to_the_next(sqlite_settings) -> None:
    """SQLite forgets all of a connection when that changes between reading and writing."""
    from medloop.store.db import open_store

    with open_store(sqlite_settings) as store:
        said: list[str] = []

        def trace(raw, _record) -> None:
            raw.set_trace_callback(said.append)

        for engine in (store.engine, store._reading):
            event.listen(engine, "connect", trace)
            engine.dispose()
        for n in range(3):
            with store.write() as conn:
                audit.append(conn, AuditEvent(actor="a", action="b", subject=str(n)))
            with store.read() as conn:
                conn.execute(select(audit_log)).all()
        assert sum("query_only" in text for text in said) == 2 and sum(text.startswith("BEGIN") for text in said) >= 6
