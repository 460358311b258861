"""Pages with steps that people take on one thing (approve, edit, drop): what a step checks first, and how a refusal shows."""

from collections.abc import Collection

from fastapi import Request

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError
from medloop.errors import InputError, MedloopError
from medloop.store.db import Store


def begin_step(request: Request, caller: Caller, step: str, steps: Collection[str]) -> Store:
    """The store, for a step that the page has and that this caller does not take too often."""
    if step not in steps:
        raise NotFoundError("There is no such step")
    check_rate(request, caller)
    return store_of(request)


def refusal_code(error: MedloopError, not_theirs: type[MedloopError]) -> int:
    """403: another person has to do it. 422: something was typed wrongly. 409: it does not fit the state of things."""
    if isinstance(error, not_theirs):
        return 403
    return 422 if isinstance(error, InputError) else 409
