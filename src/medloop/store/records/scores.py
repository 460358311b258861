"""Stored rewards, by the answer they belong to."""

import json
from collections.abc import Sequence

from sqlalchemy import select

from medloop.contracts import Reward
from medloop.store.db import Store
from medloop.store.records.chunks import chunks
from medloop.store.records.crud import decrypt_row
from medloop.store.tables import scored_answers


def rewards_of(store: Store, sample_ids: Sequence[str]) -> dict[str, Reward]:
    """The newest reward of each of these answers that has one."""
    rewards: dict[str, Reward] = {}
    with store.read() as conn:
        for chunk in chunks(sample_ids):
            query = select(scored_answers).where(scored_answers.c.sample_id.in_(chunk)).order_by(scored_answers.c.id)
            for row in conn.execute(query).all():
                texts = decrypt_row(scored_answers, row, store.keys.reading(conn, row))
                rewards[row.sample_id] = Reward.model_validate(json.loads(texts["reward"]))
    return rewards


def reward_values(store: Store, sample_ids: Sequence[str]) -> dict[str, float]:
    """The value of the newest reward of each of these answers that has one; no text is read."""
    values: dict[str, float] = {}
    with store.read() as conn:
        for chunk in chunks(sample_ids):
            columns = select(scored_answers.c.sample_id, scored_answers.c.value)
            query = columns.where(scored_answers.c.sample_id.in_(chunk), scored_answers.c.value.is_not(None))
            values |= {row.sample_id: row.value for row in conn.execute(query.order_by(scored_answers.c.id))}
    return values
