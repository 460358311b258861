"""What a handler takes from its request: the store, its writer, the settings, the logins. Used by the API and the pages."""

from __future__ import annotations

from fastapi import Request

from medloop.api.auth import Access
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records.group_commit import Ingest


def store_of(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def ingest_of(request: Request) -> Ingest:
    """The one writer of the store."""
    ingest: Ingest = request.app.state.ingest
    return ingest


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access
