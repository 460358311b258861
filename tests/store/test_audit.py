"""The audit log: whatever is done to past rows is found and named."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import delete, select, update

from medloop.contracts import AuditEvent
from medloop.errors import InputError
from medloop.settings import DatabaseSettings, Settings
from medloop.store import audit
from medloop.store.db import Store, open_store, upgrade
from medloop.store.tables import audit_log, data_keys


def fill(store: Store, rows: int) -> None:
    with store.write() as conn:
        audit.append(
            conn, [AuditEvent(actor="a", action="b", subject=f"row {n}", detail={"n": n, "x": 0.1}) for n in range(rows)]
        )


def snapshot(store: Store) -> list[dict]:
    with store.read() as conn:
        return [dict(row._mapping) for row in conn.execute(select(audit_log).order_by(audit_log.c.seq))]


def put(store: Store, rows: list[dict]) -> None:
    """What an intruder with full rights in the database can do: any rows at all."""
    with store.write() as conn:
        conn.execute(delete(audit_log))
        if rows:
            conn.execute(audit_log.insert(), rows)


def test_untouched_log_is_fine(store: Store) -> None:
    assert audit.verify(store).ok
    fill(store, 3)
    fill(store, 2)
    report = audit.verify(store)
    assert (report.ok, report.rows, report.head_seq, report.problem) == (True, 5, 5, None)


def test_hash_is_the_documented_one(store: Store) -> None:
    import hashlib

    fill(store, 1)
    row = snapshot(store)[0]
    text = json.dumps({k: v for k, v in row.items() if k != "hash"}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert row["hash"] == hashlib.sha256(bytes(32) + text.encode()).hexdigest()


def test_edit_of_any_column_of_any_row_is_named(store: Store) -> None:
    fill(store, 5)
    good = snapshot(store)
    for column in ("timestamp", "actor", "action", "subject", "detail", "hash"):
        for seq in range(1, 6):
            where = update(audit_log).where(audit_log.c.seq == seq)
            with store.write() as conn:
                conn.execute(where.values({column: "0" * 64 if column == "hash" else good[seq - 1][column] + " "}))
            report = audit.verify(store)
            assert (report.ok, report.bad_row, report.rows) == (False, seq, seq - 1), column
            with store.write() as conn:
                conn.execute(where.values({column: good[seq - 1][column]}))
    assert audit.verify(store).ok


def test_removal_of_any_row_is_named(store: Store) -> None:
    fill(store, 8)
    good = snapshot(store)
    for index in range(8):
        rest = [row for n, row in enumerate(good) if n != index]
        for rows in (rest, [{**row, "seq": n} for n, row in enumerate(rest, 1)]):  # with a gap, and numbered anew
            put(store, rows)
            report = audit.verify(store)
            assert not report.ok and report.bad_row == index + 1
    put(store, good)
    assert audit.verify(store).ok


def test_reordered_rows_are_named(store: Store) -> None:
    fill(store, 8)
    good = snapshot(store)
    for first, second in ((0, 1), (2, 6), (6, 7)):
        rows = [dict(row) for row in good]
        rows[first]["seq"], rows[second]["seq"] = rows[second]["seq"], rows[first]["seq"]
        put(store, rows)
        assert audit.verify(store).bad_row == first + 1


def test_every_tail_cut_is_found_through_the_head(store: Store) -> None:
    fill(store, 8)
    good = snapshot(store)
    for keep in range(8):
        put(store, good[:keep])
        report = audit.verify(store)
        assert (report.bad_row, report.chain_ok) == (keep + 1, True)
        assert f"rows {keep + 1} to 8 were cut off" in str(report.problem)


def rechained(rows: list[dict]) -> list[dict]:
    """An intruder who also knows how the hashes are made."""
    last, result = audit.GENESIS, []
    for seq, row in enumerate(rows, 1):
        row = {**row, "seq": seq}
        row["hash"] = last = audit._hash(last, {name: value for name, value in row.items() if name != "hash"})
        result.append(row)
    return result


def test_chain_made_anew_does_not_fit_the_head(store: Store) -> None:
    fill(store, 8)
    good = snapshot(store)
    put(store, rechained([{**row, "actor": "somebody else"} if row["seq"] == 3 else row for row in good]))
    assert "rewritten" in str(audit.verify(store).problem)


def test_new_rows_after_a_cut_do_not_hide_it(store: Store, caplog) -> None:
    fill(store, 8)
    put(store, snapshot(store)[:4])
    fill(store, 9)
    fill(store, 1)
    assert caplog.text.count("medloop audit verify") == 1
    report = audit.verify(store)
    assert not report.ok and report.head_seq == 8 and report.rows == 14


@pytest.mark.parametrize("damage", ["missing", "edited", "forged", "empty"])
def test_missing_or_changed_head_is_an_alarm(store: Store, damage: str) -> None:
    fill(store, 8)
    path = audit.head_file(store.settings)
    good = json.loads(path.read_text())
    put(store, snapshot(store)[:4])
    forged = {**good, "seq": 4, "hash": snapshot(store)[-1]["hash"]}
    text = {"edited": json.dumps({**good, "seq": 4}), "forged": audit.Head(**forged).render(), "empty": "", "missing": None}[
        damage
    ]
    path.unlink() if text is None else path.write_text(text)
    assert not audit.verify(store).ok
    fill(store, 6)  # appending must not mend it quietly
    report = audit.verify(store)
    assert not report.ok and path.name in str(report.problem)


def test_head_without_its_key_is_an_alarm(settings: Settings) -> None:
    with open_store(settings) as store:
        fill(store, 3)
        with store.write() as conn:
            conn.execute(delete(data_keys))
    with open_store(settings) as store:
        assert "key that signs" in str(audit.verify(store).problem)


def test_crash_between_commit_and_head_is_no_alarm(store: Store, monkeypatch) -> None:
    for before in (0, 5):  # also for the very first rows
        with monkeypatch.context() as patch:
            patch.setattr(audit, "keep_head", lambda *args: None)
            fill(store, 3)
        report = audit.verify(store)
        assert (report.ok, report.head_seq, report.rows) == (True, before, before + 3)
        fill(store, 2)
        assert audit.verify(store).head_seq == before + 5


def test_head_never_goes_back_when_two_writers_come_in_the_wrong_order(store: Store) -> None:
    fill(store, 2)
    older = audit._read_head(store.settings)
    fill(store, 2)
    audit.keep_head(store.settings, older)
    assert audit.verify(store).head_seq == 4


def test_head_never_leads_a_rolled_back_transaction(store: Store) -> None:
    fill(store, 2)
    with pytest.raises(ZeroDivisionError), store.write() as conn:
        audit.append(conn, AuditEvent(actor="a", action="b", subject="c"))
        raise ZeroDivisionError
    with store.write():
        pass  # the next transaction on the same connection has nothing to sign
    assert audit.verify(store).head_seq == 2


def test_head_that_cannot_be_written_does_not_fail_the_write(store: Store, monkeypatch, caplog) -> None:
    fill(store, 2)
    with monkeypatch.context() as patch:
        patch.setattr(audit, "_put_head", lambda *args: (_ for _ in ()).throw(OSError(28, "full")))
        fill(store, 2)
    assert "audit head lags" in caplog.text
    report = audit.verify(store)
    assert report.ok and report.rows == 4 and report.head_seq == 2


def test_new_head_accepts_a_restored_log_and_says_so(store: Store) -> None:
    fill(store, 8)
    put(store, snapshot(store)[:4])
    audit.start_new_head(store, "admin")
    report = audit.verify(store)
    assert report.ok and report.head_seq == report.rows == 5
    assert audit.show(store, 1)[0]["action"] == "audit.new_head" and audit.show(store, 1)[0]["detail"] == {"old_head": 8}


def test_workspace_that_moves_to_another_database_has_a_head_for_each(sqlite_settings: Settings, postgres) -> None:
    moved = sqlite_settings.model_copy(update={"database": DatabaseSettings(url=SecretStr(postgres.new_database()))})
    upgrade(moved)
    for settings, rows in ((sqlite_settings, 3), (moved, 2), (sqlite_settings, 3)):
        with open_store(settings) as store:
            fill(store, rows)
            assert audit.verify(store).ok
    assert len(list(sqlite_settings.workspace.logs.glob("audit*.head"))) == 2


def test_password_is_no_part_of_the_name_of_a_head() -> None:
    urls = [f"postgresql+psycopg://u:{word}@h/db?password={word}" for word in ("one", "two")]
    names = {audit.head_file(Settings(home=Path("x"), database={"url": url})) for url in urls}
    assert len(names) == 1


def test_appends_in_one_transaction_chain_on(store: Store) -> None:
    with store.write() as conn:
        for n in range(3):
            assert audit.append(conn, AuditEvent(actor="a", action="b", subject=str(n))) == n + 1
    assert audit.verify(store).rows == 3


def test_nul_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="NUL"), store.write() as conn:
        audit.append(conn, AuditEvent(actor="a", action="b", subject="c\0"))


@pytest.mark.slow
def test_thousand_rows_every_one_edited_removed_and_moved(sqlite_settings: Settings) -> None:
    with open_store(sqlite_settings) as store:
        fill(store, 1000)
        good = snapshot(store)
        for row in good:
            other = good[random.Random(row["seq"]).randrange(1000)]
            first = min(row["seq"], other["seq"])
            assert bad_row_after(store, [row], [{**row, "actor": "x"}]) == row["seq"]
            assert bad_row_after(store, [row], []) == row["seq"]
            if other is not row:
                swapped = [{**row, "seq": other["seq"]}, {**other, "seq": row["seq"]}]
                assert bad_row_after(store, [row, other], swapped) == first
        assert audit.verify(store).ok


def bad_row_after(store: Store, good: list[dict], bad: list[dict]) -> int | None:
    """What `verify` says while `bad` rows stand in the place of `good` ones."""
    numbers = [row["seq"] for row in good]
    bad_row = None
    for rows in (bad, good):
        with store.write() as conn:
            conn.execute(delete(audit_log).where(audit_log.c.seq.in_(numbers)))
            if rows:
                conn.execute(audit_log.insert(), rows)
        bad_row = audit.verify(store).bad_row if rows is bad else bad_row
    return bad_row
