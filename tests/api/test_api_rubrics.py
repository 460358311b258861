"""Criteria over HTTP: drafted from a correction, decided by its author, read without the question by an auditor."""

from medloop.contracts import Correction
from medloop.store.db import open_store
from medloop.store.records import crud, users

QUESTION = "I have had crushing chest pain for an hour. What should I do?"


def test_draft_accept_edit_and_drop(settings, stranger):
    def person(store, name: str, role: str):
        user = users.add_user(store, name, role, actor="test")
        if user.waits:
            users.approve_user(store, user, actor="second")
        headers = {"Authorization": f"Bearer {users.new_key(store, user, actor='test')}"}
        return user.user_id, lambda method, path, **body: stranger.request(
            method, f"/api/v1/rubrics{path}", headers=headers, json=body if method == "POST" else None
        )

    with open_store(settings) as store:
        author, li = person(store, "dr.li", "clinician")
        (_, wu), (_, ann) = person(store, "dr.wu", "clinician"), person(store, "ann", "auditor")
        record = Correction(prompt=QUESTION, original="Rest.", golden="Call an ambulance now.", consent=("evaluation",),
                            recorded_by=author)  # fmt: skip
        crud.add(store, [record], actor="test")
    made = wu("POST", "", correction_id=record.correction_id).json()["items"]
    assert {row["state"] for row in made} == {"draft"} and made[0]["correction_id"] == record.correction_id
    assert wu("POST", "", correction_id=record.correction_id).status_code == 422
    assert wu("POST", "").json()["known"] == 1
    urgent = next(row["criterion_id"] for row in made if row["content"]["detector"] == "urges_care_now")
    assert wu("POST", f"/{urgent}/accept").status_code == 403
    assert ann("POST", f"/{urgent}/accept").status_code == 403
    assert li("POST", f"/{urgent}/accept").json()["state"] == "accepted"
    assert li("POST", f"/{urgent}/accept").status_code == 409
    edited = li("POST", f"/{urgent}/edit", criterion="Names the ambulance", detector="mentions:ambulance", points=4).json()
    assert edited["maker"] == "person" and edited["supersedes"] == urgent
    assert li("POST", f"/{urgent}/drop").status_code == 409
    assert li("POST", f"/{edited['criterion_id']}/drop").json()["state"] == "dropped"
    assert li("GET", "?state=accepted").json()["items"] == []
    seen = ann("GET", f"/{urgent}")
    assert seen.status_code == 200 and QUESTION not in seen.text
    assert li("GET", "/crit_nothing").status_code == 404
