"""Filters over feedback: what fits, how many, and a dataset made of that alone; over the command line and HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from pydantic import ValidationError

from medloop.api.limits import RateLimiter
from medloop.contracts import Conversation, Correction, Feedback, Message, Preference, Trace
from medloop.contracts.record_filter import FilterTree
from medloop.data.feedback.filter_records import count_fitting
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, users
from medloop.testing.feedback import make_question
from medloop.web.app import create_app

CHEST = "我胸口剧烈疼痛，左臂发麻，怎么办？"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filter") / "clinic"
    init_workspace(folder)
    with open_store(Settings(home=folder)) as store:
        li = users.add_user(store, "dr.li", "clinician", actor="t").user_id
        ann = users.add_user(store, "ann", "annotator", actor="t").user_id
        shared: dict[str, Any] = {"session_id": "s", "agent_name": "triage", "consent": ("training",)}
        talk = Conversation(
            messages=(Message(role="user", content=CHEST), Message(role="assistant", content="喝点热水，休息一下。"))
        )
        trace = Trace(trace_id="t1", session_id="s", agent_name="triage", model_version="m@2", conversation=talk)
        question, answer = talk.question, talk.answer or ""
        old = Feedback(
            user_query=question, agent_response=answer, rating=5, clinician_id=li, recorded_by=li, model_version="m@2", **shared
        )
        records = [
            trace, old,
            old.model_copy(update={"feedback_id": "fb_new", "rating": 1, "supersedes": old.feedback_id, "axes": {"safety": 1}}),
            Correction(
                prompt=question, original=answer, golden="立即拨打120。", trace_id="t1", clinician_id=li, recorded_by=li,
                consent=("training",),
            ),
            *(
                Feedback(
                    user_query=make_question(n), agent_response=f"Rest {n} days.", rating=4, clinician_id=ann, recorded_by=ann,
                    model_version="m@1", **shared,
                )
                for n in range(4)
            ),
            Preference(
                prompt=make_question(9), response_a="Rest.", response_b="Run.", preferred="a", model_a="m@1", model_b="m@2",
                clinician_id=li, recorded_by=li, consent=("training",),
            ),
        ]  # fmt: skip
        crud.add(store, records, actor="t")
    return folder


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with open_store(Settings(home=home)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("tree", "fitting"),
    [
        ({"field": "kind", "equals": "rating"}, 5),
        ({"field": "stars", "at_most": 2}, 1),  # the newest version of a record counts
        ({"field": "stars", "at_least": 4, "at_most": 4}, 4),
        ({"field": "axis.safety", "at_most": 1}, 1),
        ({"field": "language", "equals": "zh"}, 2),
        ({"field": "stratum", "equals": "emergency"}, 2),
        ({"field": "rater", "equals": "dr.li"}, 3),
        ({"field": "role", "one_of": ["annotator", "engineer"]}, 4),
        ({"field": "version", "equals": "m@2"}, 3),
        ({"field": "liked", "equals": "no"}, 1),
        ({"field": "reward", "at_least": -99}, 0),  # nobody has scored these
        ({"field": "day", "at_least": "2001-01-01", "at_most": "2002-01-01"}, 0),
        ({"none": [{"field": "rater", "equals": "dr.li"}]}, 4),
        ({"all": [{"field": "language", "equals": "zh"}, {"any": [{"field": "stars", "at_most": 2}, {"field": "kind", "equals": "correction"}]}]}, 2),
        ({"all": [{"field": "language", "equals": "en"}, {"field": "stars", "at_most": 2}]}, 0),
    ],
)  # fmt: skip
def test_a_tree_counts_what_fits(store: Store, tree: dict[str, Any], fitting: int) -> None:
    counts = count_fitting(store, FilterTree.model_validate(tree), actor="t")
    assert (counts.records, counts.fitting) == (7, fitting)
    assert sum(counts.kinds.values()) == sum(counts.languages.values()) == sum(counts.strata.values()) == fitting


@pytest.mark.parametrize(
    "tree",
    [
        {}, {"field": "stars"}, {"field": "password", "equals": "x"}, {"all": []}, {"field": "stars", "equals": "five"},
        {"field": "rater", "at_least": "a"}, {"field": "rater", "equals": 4}, {"field": "kind", "equals": "a", "one_of": ["b"]},
        {"all": [{"field": "kind", "equals": "rating"}], "any": [{"field": "kind", "equals": "choice"}]},
        {"all": [{"field": "kind", "equals": "rating"}], "equals": "x"}, {"field": "axis.Robert'); --", "at_most": 1},
        {"all": [{"all": [{"all": [{"all": [{"all": [{"all": [{"field": "kind", "equals": "rating"}]}]}]}]}]}]},
    ],
)  # fmt: skip
def test_a_tree_that_means_nothing_is_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FilterTree.model_validate(tree)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{field: liked, equals: no}", {"equals": "no"}),
        ("{field: critical, one_of: [yes, no]}", {"one_of": ("yes", "no")}),
        ("{field: day, at_least: 2026-11-01, at_most: 2026-11-18}", {"at_least": "2026-11-01", "at_most": "2026-11-18"}),
    ],
)
def test_words_of_yaml_need_no_quotes(text: str, read: dict[str, Any]) -> None:
    tree = FilterTree.model_validate({"all": [yaml.safe_load(text)]})
    assert tree.parts[0].model_dump(exclude_none=True, exclude={"field"}) == read


def test_a_dataset_is_built_from_what_fits_and_the_next_step_runs(home: Path, tmp_path: Path, command_line) -> None:
    file = tmp_path / "urgent-zh.yaml"
    file.write_text("all:\n  - {field: language, equals: zh}\n  - {field: kind, equals: correction}\n", encoding="utf-8")
    said = command_line("--home", home, "data", "filter", file)
    assert said.code == 0 and "1 of 7 records fit" in said.out
    assert json.loads(command_line("--home", home, "data", "filter", file, "--json").out)["kinds"] == {"correction": 1}
    next_step = said.out.partition("Next: medloop ")[2].split()
    assert next_step[:2] == ["--home", str(home)] or next_step[:2] == ["data", "build"]
    words = next_step[next_step.index("data") :]
    built = command_line("--home", home, *words)
    assert built.code == 0, built.err
    card = json.loads((home / "data/feedback/filtered/card.json").read_text())
    assert card["records"]["rlhf_feedback"]["filtered"] == 5 and card["records"]["rlhf_corrections"]["used"] == 1
    assert card["config"]["filter"]["all"][0]["field"] == "language"


def test_the_count_over_http_is_for_engineers(home: Path, store: Store) -> None:
    keys = {}
    for name, role in (("eve", "engineer"), ("dr.wu", "clinician")):
        keys[name] = users.new_key(store, users.add_user(store, name, role, actor="t"), actor="t")
    with TestClient(create_app(Settings(home=home, offline=True), supervise=False), base_url="http://127.0.0.1") as client:

        def ask(name: str, tree: Any) -> Any:
            return client.post("/api/v1/data/filter", json=tree, headers={"Authorization": f"Bearer {keys[name]}"})

        assert ask("eve", {"field": "stratum", "equals": "emergency"}).json()["fitting"] == 2
        assert ask("dr.wu", {"field": "stratum", "equals": "emergency"}).status_code == 403
        assert ask("eve", {"field": "password__startswith", "equals": "a"}).status_code == 422
        client.app.state.rate_limiter = RateLimiter(0.5, clock=lambda: 0.0)  # type: ignore[attr-defined]
        assert [ask("eve", {"field": "kind", "equals": "rating"}).status_code for _ in range(2)] == [200, 429]
