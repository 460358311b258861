"""The codebook over HTTP: propose, read, approve by another person, retire, roll back."""

import pytest

from medloop.loop import codebook_trial


@pytest.fixture
def quick_model(monkeypatch):
    monkeypatch.setattr(
        codebook_trial, "live_answers", lambda settings, store, site="all": ("test", lambda prompts: ["Rest."] * len(prompts))
    )


@pytest.fixture
def as_user(settings, stranger):
    """Calls with the key of a new user of a role."""
    from medloop.store.db import open_store
    from medloop.store.records import users

    def of(name: str, role: str):
        with open_store(settings) as store:
            user = users.add_user(store, name, role, actor="test")
            if user.waits:
                users.approve_user(store, user, actor="second")
            headers = {"Authorization": f"Bearer {users.new_key(store, user, actor='test')}"}

        def call(method: str, path: str, **body):
            return stranger.request(method, f"/api/v1/codebook{path}", headers=headers, json=body or None)

        return call

    return of


def test_a_rule_goes_live_by_another_clinician_and_back(as_user, quick_model):
    li, wu, sam = as_user("dr.li", "clinician"), as_user("dr.wu", "clinician"), as_user("sam", "engineer")
    rule = {"text": "Ask for the weight before any dose.", "triggers": ["child|儿童"], "scope": "child"}
    made = li("POST", "", **rule).json()
    assert made["state"] == "proposed" and made["content"]["triggers"] == ["child|儿童"]
    entry = made["entry_id"]
    tried = sam("POST", f"/{entry}/try").json()
    assert (
        tried["verdict"] in ("same", "better", "worse") and tried["reached"] >= tried["ordinary"] and not tried["lowers_quality"]
    )
    assert made["also_reaches"] == []
    assert li("POST", f"/{entry}/approve", reason="").status_code == 403
    assert sam("POST", f"/{entry}/approve", reason="").status_code == 403
    approved = wu("POST", f"/{entry}/approve", reason="").json()
    assert approved["state"] == "live" and approved["version"]["version"] == 1
    assert wu("POST", f"/{entry}/approve", reason="").status_code == 409
    listed = sam("GET", "").json()
    assert listed["sha256"] == approved["version"]["sha256"] and listed["items"][0]["helpful"] == 0
    assert sam("POST", f"/{entry}/edit", text="Weigh first.").json()["revision"] == 2
    assert wu("POST", f"/{entry}/refuse", reason="Too short.").json()["state"] == "refused"
    assert wu("POST", f"/{entry}/retire", reason="").status_code == 422
    assert wu("POST", f"/{entry}/retire", reason="Old.").json()["revisions"] == []
    assert wu("POST", "/rollback", version=1, reason="Needed.").json()["sha256"] == listed["sha256"]
    assert [row["action"] for row in sam("GET", "/versions").json()["items"]] == ["rollback", "retire", "approve"]
    shown = sam("GET", f"/{entry}").json()
    assert len(shown["revisions"]) == 2 and shown["trials"] and shown["conflicts"] == []
    assert sam("GET", "/rule_nothing").status_code == 404
