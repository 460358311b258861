"""Requests made from the API's own description (schemathesis): whatever comes, no answer is a 5xx, and none quotes the store.

The default run makes a few requests to three routes; `pytest -m slow tests/api/test_api_feedback_fuzz.py` hundreds to each.
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as tuned
from hypothesis.errors import Unsatisfiable

from medloop.api.limits import RequestLimits
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users
from medloop.store.records.users import ROLES
from medloop.web.app import create_app

MODES = schemathesis.GenerationMode
KNOWN = {
    "post /api/v1/traces",
    "post /api/v1/rlhf/feedback",
    "post /api/v1/rlhf/import",
    "get /api/v1/rlhf/export",
    "get /metrics",
}


@schemathesis.serializer("application/x-ndjson")
def _lines(ctx, value) -> bytes:
    """A line of the import: what was made, as it is or as a record of each kind."""
    text = value if isinstance(value, str) else json.dumps(value)
    kinds = ["feedback", "preference", "correction", "trace", "shout"]
    return "\n".join([text, *(json.dumps({"kind": kind, "comments": text}) for kind in kinds)]).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("clinic")
    init_workspace(home)
    return home


@pytest.fixture(scope="module")
def served(home):
    settings = Settings(home=home)
    with open_store(settings) as store:
        keys = {role: users.new_key(store, users.add_user(store, role, role, actor="test"), actor="test") for role in ROLES}
    app = create_app(settings, supervise=False, limits=RequestLimits(rate=1e9))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield app, client, keys


def _fuzz(served, examples: int, only: str = "") -> dict[str, set[int]]:
    app, client, keys = served
    schema = schemathesis.openapi.from_dict(app.openapi())
    seen: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if only not in operation.path or operation.path.startswith("/web"):  # pages are forms, tested in a browser
            continue
        for mode in (MODES.POSITIVE, MODES.NEGATIVE):
            _one(operation, mode, client, keys, examples, seen.setdefault(f"{operation.method} {operation.path}", set()))
    return seen


def _one(operation, mode, client: TestClient, keys: dict[str, str], examples: int, seen: set[int]) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @tuned(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def ask(case) -> None:
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
        sent = {
            name: value
            for name, value in sent.items()
            if name in ("method", "url", "params", "headers", "json", "data", "content")
        }
        headers = {name: value for name, value in (sent.get("headers") or {}).items() if name.lower() != "authorization"}
        try:
            answer = client.request(**sent | {"headers": headers | {"Authorization": f"Bearer {keys[roles[0]]}"}})
        except (UnicodeError, ValueError):
            return  # this client cannot put it on the wire, so it is no request
        if answer.status_code == 403 and len(roles) > 1:
            roles.pop(0)  # not for this role: the next one asks from now on
        seen.add(answer.status_code)
        assert answer.status_code < 500, f"{operation.method} {operation.path}: {answer.status_code}"

    roles = ["clinician", "engineer", "admin", "auditor", "annotator"]
    with suppress(Unsatisfiable):  # a route without a body and without parameters cannot be asked wrongly
        ask()


def test_ratings_made_from_the_description_are_never_answered_with_5xx(served) -> None:
    seen = _fuzz(served, 10, only="/rlhf/correction")
    assert len(seen) == 3 and 422 in seen["post /api/v1/rlhf/correction"]


@pytest.mark.slow
def test_no_request_made_from_the_description_is_answered_with_5xx(served) -> None:
    seen = _fuzz(served, 200)
    assert set(seen) >= KNOWN and all(seen.values())
    stored = {kind.__name__: crud.count(served[0].state.store, kind) for kind in crud.TABLES}
    assert stored["Preference"] > 50 and stored["Trace"] > 20, stored  # its rule on the order of roles is not in the schema
