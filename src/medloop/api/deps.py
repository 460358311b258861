"""What a handler takes from its request: the store, its writer, the settings, the logins. Used by the API and the pages."""

from fastapi import Request

from medloop.api.auth import Authenticator
from medloop.api.limits import RateLimiter
from medloop.api.policy import Caller
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


def authenticator_of(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


def check_rate(request: Request, caller: Caller, tokens: float = 1.0, *, already_taken: float = 0.0) -> None:
    """RateLimitError when this caller has sent too much."""
    limiter: RateLimiter = request.app.state.rate_limiter
    limiter.take(caller.credential, tokens, already_taken=already_taken)
