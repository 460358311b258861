"""What later feedback says about the entries of the codebook, and how far the codebook has looked by itself.

    add_votes(store, [Vote("fb_…", "tr_…", "rule_…", helpful=True)], feedback_row=812)
    counts(store)                          # {"rule_…": Counts(helpful=7, harmful=1)}

A vote is an id of a record and of an entry, no text. Votes of records that were taken back, replaced or erased do not count.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from medloop.contracts import utc_now
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records import lineage
from medloop.store.tables import codebook_cursor, codebook_votes, rlhf_corrections, rlhf_feedback


@dataclass(frozen=True)
class CodebookCursor:
    """The last row of each table that was looked at."""

    feedback_row: int = 0
    correction_row: int = 0
    proposed_row: int = 0
    criteria_row: int = 0


@dataclass(frozen=True)
class RuleVote:
    record_id: str
    trace_id: str
    entry_id: str
    helpful: bool


@dataclass(frozen=True)
class VoteCounts:
    helpful: int = 0
    harmful: int = 0


def cursor(store: Store) -> CodebookCursor:
    with store.read() as conn:
        row = conn.execute(select(codebook_cursor).limit(1)).first()
    if row is None:
        return CodebookCursor()
    return CodebookCursor(row.feedback_row, row.correction_row, row.proposed_row, row.criteria_row)


def move_cursor(store: Store, **rows: int) -> None:
    with store.write() as conn:
        _move(conn, rows)


def add_votes(store: Store, votes: Iterable[RuleVote], **rows: int) -> int:
    """Add votes and move the cursor in one transaction; a record votes once on an entry. Returns how many are new."""
    new = 0
    with store.write() as conn:
        for vote in votes:
            vote_id = f"{vote.record_id}/{vote.entry_id}"
            if conn.execute(select(codebook_votes.c.id).where(codebook_votes.c.vote_id == vote_id)).first() is None:
                conn.execute(insert(codebook_votes).values(vote_id=vote_id, timestamp=utc_now(), **vote.__dict__))
                new += 1
        _move(conn, rows)
    return new


def counts(store: Store) -> dict[str, VoteCounts]:
    """Votes by entry. One person's feedback and their correction of the same answer are one vote."""
    gone = lineage.erased_ids(store) | lineage.superseded(store, rlhf_feedback) | lineage.superseded(store, rlhf_corrections)
    by_answer: dict[tuple[str, str], bool] = {}
    for row in genuine_rows(store, codebook_votes, select(codebook_votes).order_by(codebook_votes.c.id)):
        if row.record_id not in gone:
            key = (row.entry_id, row.trace_id)
            by_answer[key] = by_answer.get(key, True) and row.helpful  # one harm outweighs a thumb
    totals: dict[str, VoteCounts] = {}
    for (entry_id, _), helpful in by_answer.items():
        before = totals.get(entry_id, VoteCounts())
        totals[entry_id] = VoteCounts(before.helpful + helpful, before.harmful + (not helpful))
    return totals


def _move(conn: Connection, rows: dict[str, int]) -> None:
    if not rows:
        return
    if conn.execute(select(codebook_cursor.c.id)).first() is None:
        conn.execute(insert(codebook_cursor).values(feedback_row=0, correction_row=0, proposed_row=0, criteria_row=0))
    conn.execute(update(codebook_cursor).values(**rows))
