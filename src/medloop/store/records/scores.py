"""Rewards that were kept, by the answer they belong to."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import select

from medloop.contracts import Reward
from medloop.store.db import Store
from medloop.store.records.crud import open_row
from medloop.store.tables import scored_answers


def rewards_of(store: Store, sample_ids: Sequence[str]) -> dict[str, Reward]:
    """The newest reward of each of these answers that has one."""
    found: dict[str, Reward] = {}
    with store.read() as conn:
        for start in range(0, len(sample_ids), 400):
            some = scored_answers.c.sample_id.in_(sample_ids[start : start + 400])
            for row in conn.execute(select(scored_answers).where(some).order_by(scored_answers.c.id)).all():
                opened = open_row(scored_answers, row, store.keys.reading(conn, row.key_id))
                found[row.sample_id] = Reward.model_validate(json.loads(opened["reward"]))
    return found
