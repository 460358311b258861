"""The live route: the newest row says which version answers, and a row changed past medloop says nothing any more."""

import pytest
from sqlalchemy import text

from medloop.contracts.assistant import Route
from medloop.errors import IntegrityError
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.records.routes import add_route, live_route, route_number, routes


@pytest.fixture
def store(sqlite_settings):
    with open_store(sqlite_settings) as opened:
        yield opened


def test_the_newest_route_is_live(store) -> None:
    assert live_route(store) is None and route_number(store) == 0
    first = add_route(store, Route(served_name="m-v1", model="m", version=1, artifact="sha256:" + "1" * 64))
    second = add_route(
        store, Route(served_name="m-v2", model="m", version=2, previous="m-v1", reason="passed", changed_by="usr_1")
    )
    assert live_route(store) == second and routes(store) == [second, first] and route_number(store) == 2
    line = audit.show(store, 1)[0]
    assert line["action"] == "routes.change" and line["actor"] == "usr_1" and line["detail"]["served_name"] == "m-v2"


@pytest.mark.parametrize("change", ["UPDATE serving_routes SET served_name = 'evil'", "DELETE FROM serving_routes"])
def test_a_route_changed_past_medloop_is_refused(store, change: str) -> None:
    add_route(store, Route(served_name="m-v1", model="m", version=1))
    with store.transaction() as conn:
        conn.execute(text(change))
    with pytest.raises(IntegrityError, match="serving_routes was changed"):
        live_route(store)
