"""The fast loop from end to end with the built-in model: a wrong answer, a correction on the page, the very next answer, its trace."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from web_world import item

from medloop.contracts import Correction, Trace
from medloop.settings import Settings
from medloop.store.lineage_graph import lineage_graph
from medloop.store.records import codebook, crud, users
from medloop.testing.model_server import model_server

QUESTION = "你好，我女儿4岁，吞咽疼痛，从昨天开始。药该吃多少？"
PARAPHRASE = "医生您好，我儿子6岁，吞咽疼痛，两天了。药该吃多少？"
VETTED = "孩子的剂量要按体重，请先问医生或药师。"


@pytest.fixture
def settings(workspace: Path, template: Path) -> Iterator[Settings]:
    shutil.copytree(template, workspace, dirs_exist_ok=True)
    with model_server() as server:
        values = {"home": workspace, "device": "cpu", "threads": 1, "offline": True, "gateway": {"backends": server.url}}
        yield Settings.model_validate(values)


@pytest.mark.slow
def test_a_correction_on_the_page_changes_the_very_next_answer_and_is_traced_from_it(store, browse, fill, running) -> None:
    key = users.new_key(store, users.add_user(store, "chat", "clinician", actor="test"), actor="test")

    def ask(question: str) -> dict:
        body = {"model": "medloop", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 120}
        answered = running.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answered.status_code == 200, answered.text
        return answered.json()

    before = ask(QUESTION)
    wrong = before["choices"][0]["message"]["content"]
    assert VETTED not in wrong
    trace_id = before["medloop"]["inference_id"]
    fill(item("correct", QUESTION, wrong, trace_id=trace_id))
    sent = browse("clinician").fill_in("/web/correct", golden=f"{VETTED}可以用温盐水漱口。", consent_training="yes")
    assert sent.status_code == 200, sent.text
    [correction] = crud.iterate(store, Correction)
    browse("clinician").get("/web/codebook")
    [entry] = codebook.entries(store, state="proposed")
    assert VETTED not in ask(QUESTION)["choices"][0]["message"]["content"], "nothing changes before the approval"
    done = browse("other").post(f"/web/codebook/{entry.entry_id}/approve", reason="Checked.")
    assert done.status_code == 200 and "The next answer uses it" in done.text
    for question in (QUESTION, PARAPHRASE):
        after = ask(question)
        assert after["choices"][0]["message"]["content"].startswith(VETTED)
        trace = _trace(store, after["medloop"]["inference_id"])
        edges = {(edge.source, edge.target, edge.role) for edge in lineage_graph(store, trace.trace_id).edges}
        assert (entry.entry_id, trace.trace_id, "used") in edges
        assert (correction.correction_id, entry.entry_id, "taught") in edges
    assert correction.trace_id == trace_id, "and from the correction back to the answer that was wrong"


def _trace(store, inference_id: str) -> Trace:
    """The stored answer; traces are written behind the answer, in groups."""
    deadline = time.monotonic() + 60
    while True:
        for record in crud.iterate(store, Trace):
            if inference_id in (record.trace_id, record.meta.get("inference_id")):
                return record
        assert time.monotonic() < deadline, "the answer was not traced"
        time.sleep(0.05)
