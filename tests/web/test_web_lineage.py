"""The page of the lineage: a drawing whose boxes are links, tables with the same, roles, both languages, and the route."""

import re

import pytest

from medloop.store.records import crud, lineage, users
from medloop.testing.feedback import make_correction
from medloop.testing.lineage import make_model

ZH = {"Accept-Language": "zh"}
FILE = "sha256:" + "a" * 64


@pytest.fixture
def mine(store) -> str:
    """The id of a correction of the user 'clinician', which SFT and then RL learnt, beside one of somebody else."""
    by_name = {user.name: user.user_id for user in users.list_users(store)}
    own = make_correction(
        1, "Run.", "Rest and see a doctor.", recorded_by=by_name["clinician"], clinician_id=by_name["clinician"]
    )
    other = make_correction(2, "Walk.", "Sit down.", recorded_by=by_name["other"])
    crud.add(store, [own, other], actor="test")
    with store.write() as conn:
        lineage.add_records(conn, FILE, [own.correction_id, other.correction_id])
    sft = make_model(store, "models/lora/sft", inputs={"train": FILE})
    make_model(store, "models/rl/round1", inputs={"adapter": sft.fingerprint}, parent=sft.fingerprint, method="ppo")
    return own.correction_id


def test_a_clinician_sees_which_models_learnt_their_correction_as_a_drawing_with_links(mine, browse):
    page = browse("clinician").get(f"/web/lineage?of={mine}").text
    svg = re.search(r"<svg.*?</svg>", page, re.S)[0]
    assert svg.count("<a href=") == 3 and "models/rl/round1" in svg and 'aria-label="models/lora/sft, model · sft"' in svg
    assert "2 models learnt from them" in page and "style=" not in page and ">1</text>" in svg
    link = re.search(r'<a href="(/web/lineage\?of=sha256[^"]+)" aria-label="models/rl', svg)[1]
    model = browse("clinician").get(link).text
    assert mine in model and "Only the records that you sent are listed." in model and ">2 records<" in model
    zh = browse("clinician").get(f"/web/lineage?of={mine}", headers=ZH).text
    assert "2 个模型从中学习" in zh and "Rest and see" not in zh + page


def test_another_clinicians_record_is_unknown_and_an_auditor_sees_all_ids(mine, browse):
    refused = browse("other").get(f"/web/lineage?of={mine}")
    assert refused.status_code == 404 and "that you may see" in refused.text and "<svg" not in refused.text
    assert browse("auditor").get("/web/lineage?id=unknown").status_code == 404, "pages link with id"
    assert mine in browse("auditor").get("/web/lineage?id=round1").text
    page = browse("auditor").get("/web/lineage?of=round1").text
    assert page.count('<td class="id"><a href="/web/lineage?of=cor_') == 2 and mine in page and "<td>clinician</td>" in page
    assert "models/rl/round1" in browse("engineer").get("/web/lineage").text


def test_the_route_pages_through_the_ids_and_hides_those_of_others(mine, browse):
    auditor, clinician = browse("auditor").client, browse("clinician").client
    graph = auditor.get("/api/v1/lineage", params={"of": mine}).json()
    assert [node["label"] for node in graph["nodes"] if node["kind"] == "model"] == ["models/lora/sft", "models/rl/round1"]
    first = auditor.get("/api/v1/lineage/records", params={"of": "round1", "limit": 1}).json()
    second = auditor.get("/api/v1/lineage/records", params={"of": "round1", "limit": 1, "after": first["next"]}).json()
    assert mine in {first["items"][0]["record_id"], second["items"][0]["record_id"]} and second["next"] is None
    own = clinician.get("/api/v1/lineage/records", params={"of": "round1"}).json()
    assert [row["record_id"] for row in own["items"]] == [mine]
    assert browse("other").client.get("/api/v1/lineage", params={"of": mine}).status_code == 404
