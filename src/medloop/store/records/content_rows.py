"""Rows whose words are encrypted in a column `content`, opened."""

from contextlib import suppress
from typing import Any

from sqlalchemy import Row, Select, Table

from medloop.store.crypto import ErasedKeyError
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records.crud import decrypt_row


def open_rows(store: Store, table: Table, query: Select[Any]) -> list[tuple[Row[Any], bytes]]:
    """Each genuine row with its content, without those that came back from a backup after their key was destroyed."""
    opened, rows = [], genuine_rows(store, table, query)
    with store.read() as conn:
        for row in rows:
            with suppress(ErasedKeyError):
                opened.append((row, decrypt_row(table, row, store.keys.reading(conn, row))["content"]))
    return opened
