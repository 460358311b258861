"""The pages of experiments: the list, the curve with its table, guards as meters, steps by those who may, and what moves."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

from traffic import quick_judge, running, send

from medloop.contracts import Preference
from medloop.loop import experiment as loop
from medloop.loop.experiment_watch import ExperimentWatch, ReportCache
from medloop.store.records import crud

READERS = ("clinician", "engineer", "auditor", "admin")


@pytest.fixture
def experiment(store):
    experiment = running(store, min_effect=0.1)
    send(store, range(90), likes=lambda challenger, _: 0.7 if challenger else 0.65)
    loop.refresh(store, experiment.plan.experiment_id, judge=quick_judge)
    return experiment


def test_the_list_leads_to_the_page_and_says_what_to_do_where_there_is_none(browse, store) -> None:
    assert "medloop experiment plan" in browse("engineer").get("/web/experiments").text
    made = running(store)
    page = browse("engineer").get("/web/experiments").text
    assert f"/web/experiments/{made.plan.experiment_id}" in page and "running" in page
    other = running(store, site="ward-7")
    assert 'name="site"' not in page and other.plan.experiment_id in browse("engineer").get("/web/experiments").text
    chosen = browse("engineer").get("/web/experiments?site=ward-7").text
    assert other.plan.experiment_id in chosen and made.plan.experiment_id not in chosen


def test_the_page_shows_the_curve_its_table_the_guards_and_the_sample_ratio(browse, experiment) -> None:
    address = f"/web/experiments/{experiment.plan.experiment_id}"
    for role in READERS:
        page = browse(role).get(address)
        assert page.status_code == 200, role
    text = page.text
    points = json.loads(re.search(r'data-points="([^"]+)"', text)[1])
    last = points[-1]
    assert last[0] == 90 and f"{last[1]:+.3f}" in text and "<polygon" in text  # the same numbers in the table
    assert text.count("<meter") == 5 and "That is as it should be." in text
    assert "Record the decision" not in text and "data-live" in text
    assert browse("annotator").get(address).status_code == 403
    chinese = browse("engineer").get(address, headers={"Accept-Language": "zh"}).text
    assert "语言：英文" in chinese and "风险分层：常规" in chinese and "routine<" not in chinese


def test_one_blind_vote_is_one_reviewer_and_no_certainty(browse, store) -> None:
    plan = running(store).plan
    vote = Preference(
        prompt="Cough?", response_a="Rest.", response_b="See a doctor.", preferred="b", shown_first="a", model_a=plan.champion,
        model_b=plan.challenger, recorded_by="usr_1",
    )  # fmt: skip
    crud.add(store, [vote], actor="usr_1")
    loop.refresh(store, plan.experiment_id, judge=quick_judge)
    page = browse("engineer").get(f"/web/experiments/{plan.experiment_id}").text
    assert "1 reviewer." in page and "Share of the challenger: 1.00 (0.21 to 1.00)." in page


def test_the_moving_part_is_the_same_part_without_the_rest_of_the_page(app, browse, experiment, store) -> None:
    client = browse("engineer")
    app.state.experiment_reports = ReportCache(store, every_s=0.0)
    address = f"/web/experiments/{experiment.plan.experiment_id}"
    before = client.get(f"{address}/live")
    assert "<html" not in before.text and "<meter" in before.text and "data-ended" not in before.text
    send(store, range(90, 120), likes=lambda _arm, _rng: 0.7)
    watch = ExperimentWatch(store, judge=quick_judge)
    watch.look()
    assert "120 of" in client.get(f"{address}/live").text
    loop.stop(store, experiment.plan.experiment_id, by="usr_1", reason="")
    assert "data-ended" in client.get(f"{address}/live").text


def test_an_engineer_starts_widens_stops_and_decides_and_a_clinician_does_not(browse, store) -> None:
    made = running(store, enrolled=0.1)
    address, client = f"/web/experiments/{made.plan.experiment_id}", browse("engineer")
    assert client.post(f"{address}/ramp", share="50").status_code == 422  # not confirmed
    assert client.post(f"{address}/ramp", share="5", confirm="yes").status_code == 409
    assert client.post(f"{address}/ramp", share="many", confirm="yes").status_code == 422
    assert client.post(f"{address}/ramp", share="50", confirm="yes").status_code in (200, 303)
    assert client.post(f"{address}/stop", confirm="yes", reason="new base").status_code in (200, 303)
    assert client.post(f"{address}/decide", confirm="yes", choice="keep").status_code == 422  # without a reason
    assert client.post(f"{address}/decide", confirm="yes", choice="adopt", reason="hope").status_code == 409
    assert client.post(f"{address}/decide", confirm="yes", choice="keep", reason="stopped").status_code in (200, 303)
    assert "keep the champion" in client.get(address).text
    assert browse("clinician").post(f"{address}/stop", confirm="yes").status_code == 403
    assert client.get("/web/experiments/exp_0").status_code == 404
