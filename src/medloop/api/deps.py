"""What a handler takes from its request: the store, its writer, the settings, the logins. Used by the API and the pages."""

from __future__ import annotations

from fastapi import Request

from medloop.api.auth import Access
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records.group_commit import GroupCommitWriter


def store_of(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def writer_of(request: Request) -> GroupCommitWriter:
    """The one writer of the store."""
    writer: GroupCommitWriter = request.app.state.writer
    return writer


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access
