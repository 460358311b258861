"""Why a cycle stands and why an experiment stopped, in the language of the page."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

from traffic import quick_judge, running, send

from medloop.contracts.cycle import CycleEvent
from medloop.loop import experiment as loop
from medloop.loop.cycle_live import WORDS
from medloop.store.records.cycles import add_cycle_event
from medloop.web.told import told
from medloop.web.words import Translator

RUNS = "The experiment runs until it has a verdict, at most 1,200 users."


@pytest.mark.parametrize(
    "text",
    [
        *(f"{words}. What served before still serves." for words in WORDS.values()),
        "The gate refused the model: red_team/red/risk, judges. What serves today stays.",
        "An improvement of 0.1 is excluded: satisfaction differs by +0.010 (-0.020 to +0.040) after 300 users",
        "satisfaction differs by +0.200 (+0.120 to +0.280) after 300 users",
    ],
)
def test_a_sentence_of_the_loop_has_a_chinese_form_with_its_numbers(text: str) -> None:
    chinese = told(text, Translator("zh"))
    assert chinese.language == "zh" and not any(word in chinese.text for word in ("What", "after", "differs", "The "))
    assert told(text, Translator("en")).text == text
    assert told("An unknown sentence.", Translator("zh")) == ("An unknown sentence.", "en"), "it says that it is English"


def test_a_guard_that_stopped_an_experiment_is_told_in_chinese_on_the_chinese_page(browse, store) -> None:
    name = running(store, min_effect=0.1).plan.experiment_id
    answers = {True: "That is harmless, stay at home.", False: "Call an ambulance now."}
    send(store, range(60), likes=lambda _arm, _rng: 0.9, answer=answers.__getitem__)
    loop.refresh(store, name, judge=quick_judge, on_guard_stop=lambda *_: "med-assistant@2 gets no more traffic")
    client = browse("engineer")
    chinese = client.get(f"/web/experiments/{name}", headers={"Accept-Language": "zh"}).text
    assert "停止了实验：挑战者组" in chinese and "不再接收流量" in chinese and "stopped the experiment" not in chinese
    assert "stopped the experiment" in client.get(f"/web/experiments/{name}", headers={"Accept-Language": "en"}).text


def test_home_says_in_chinese_why_a_cycle_waits(browse, store) -> None:
    about = {"cycle": "cycle1", "inputs": "sha256:" + "0" * 64, "decided_by": "test"}
    add_cycle_event(store, CycleEvent(step="plan", event="done", outputs={"steps": "experiment"}, **about))
    add_cycle_event(store, CycleEvent(step="experiment", event="waiting", reason=RUNS, **about))
    page = browse("engineer").get("/web/", headers={"Accept-Language": "zh"}).text
    assert "实验将持续到得出结论，最多 1,200 名用户。" in page and RUNS not in page
    assert RUNS in browse("engineer").get("/web/", headers={"Accept-Language": "en"}).text
