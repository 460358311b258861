"""The routes of experiments, with keys."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient
from traffic import CHALLENGER, CHAMPION

from medloop.api.app import create_app
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import users


def test_an_experiment_over_http(home: Path, store: Store) -> None:
    keys = {
        role: users.new_key(store, users.add_user(store, f"the-{role}", role, actor="t"), actor="t")
        for role in ("engineer", "clinician")
    }
    with TestClient(create_app(Settings(home=home), supervise=False), base_url="http://127.0.0.1") as client:

        def call(role: str, method: str, path: str = "", **body: object) -> tuple[int, dict]:  # type: ignore[type-arg]
            headers = {"Authorization": f"Bearer {keys[role]}"}
            answer = client.request(method, f"/api/v1/experiments{path}", headers=headers, json=body or None)
            return answer.status_code, answer.json()

        plan = {"name": "trial", "champion": CHAMPION, "challenger": CHALLENGER, "config": {"min_effect": 0.1}}
        assert call("clinician", "POST", **plan)[0] == 403
        code, made = call("engineer", "POST", **plan)
        assert code == 201 and made["state"] == "planned"
        name = made["plan"]["experiment_id"]
        assert call("engineer", "POST", f"/{name}/start", share=0.2)[1]["enrolled"] == 0.2
        assert call("engineer", "POST", f"/{name}/start", share=0.2)[0] == 409
        assert call("engineer", "POST", f"/{name}/ramp", share=0.5)[1]["enrolled"] == 0.5
        assert call("clinician", "GET", f"/{name}")[1]["primary"]["metric"] == "satisfaction"
        assert call("engineer", "POST", f"/{name}/stop", reason="done")[1]["state"] == "stopped"
        assert call("engineer", "POST", f"/{name}/verdict", adopt=True, reason="hope")[0] == 409
        assert call("engineer", "POST", f"/{name}/verdict", adopt=False, reason="no verdict")[1]["state"] == "decided"
        assert [row["state"] for row in call("clinician", "GET")[1]["experiments"]] == ["decided"]
        assert call("engineer", "GET", "/exp_0")[0] == 404
        assert call("engineer", "POST", name="x", champion="a", challenger="a")[0] == 422
