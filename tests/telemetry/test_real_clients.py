"""The real Langfuse SDK 5, LangChain and LangGraph against our doors, each in a process of the environment `.venv-clients`."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Feedback, Trace
from medloop.loop.langfuse_import import ImportWish, import_langfuse
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud
from medloop.testing.langfuse_server import PUBLIC_KEY, SECRET_KEY, LangfuseServer
from medloop.testing.model_server import model_server

pytestmark = pytest.mark.clients
PYTHON = Path(os.environ.get("CLIENTS_PYTHON", ".venv-clients/bin/python")).absolute()


def run_client(code: str, **environ: str) -> Any:
    """What a script of the other environment prints last, as JSON."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEDLOOP_", "PYTHON"))}
    done = subprocess.run([str(PYTHON), "-P", "-c", code], capture_output=True, text=True, env={**clean, **environ}, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def langfuse_client(code: str, server: LangfuseServer) -> Any:
    keys = {"LANGFUSE_PUBLIC_KEY": PUBLIC_KEY, "LANGFUSE_SECRET_KEY": SECRET_KEY, "LANGFUSE_BASE_URL": server.url}
    return run_client(f"import json\nfrom langfuse import get_client\nlf = get_client()\n{code}\nlf.shutdown()", **keys)


WRITE = """
assert lf.auth_check()
with lf.start_as_current_observation(as_type="generation", name="triage", model="clinic-7b",
                                     input=[{"role": "user", "content": "I have had a cough for two weeks."}]) as span:
    span.update(output="Do you also have a fever?", usage_details={"input": 12, "output": 7})
    trace_id = span.trace_id
lf.flush()
lf.create_score(name="user-feedback", value=0, trace_id=trace_id, data_type="BOOLEAN", comment="It misses the red flag.",
                score_id=f"{trace_id}-user-feedback")
lf.flush()
print(json.dumps(trace_id))
"""


def test_what_the_sdk_logs_is_imported_and_what_people_disliked_is_queued(tmp_path: Path) -> None:
    init_workspace(tmp_path / "clinic")
    with LangfuseServer() as server:
        trace_id = langfuse_client(WRITE, server)
        settings = Settings(home=tmp_path / "clinic", langfuse=server.settings())
        with open_store(settings) as store:
            counts = import_langfuse(settings, store, ImportWish(), actor="test")
            [trace], [feedback] = list(crud.iterate(store, Trace)), list(crud.iterate(store, Feedback))
    assert (counts.traces_new, counts.down, counts.queued) == (1, 1, 1)
    assert trace.conversation.question == "I have had a cough for two weeks." and trace.model_version == "clinic-7b"
    assert trace.meta["langfuse_trace_id"] == trace_id
    assert (feedback.thumb, feedback.comments, feedback.trace_id) == ("down", "It misses the red flag.", trace.trace_id)


READ = """
import sys
rows, cursor = [], None
while True:
    page = lf.api.observations.get_many(fields="core,basic,io,metadata,usage,model,trace_context", is_root_observation=True,
                                        limit=400, cursor=cursor)
    rows += page.data
    cursor = page.meta.cursor
    if not cursor:
        break
scores, cursor = [], None
while True:
    page = lf.api.scores.get_many(name="user-feedback", fields="details,subject,annotation", limit=100, cursor=cursor)
    scores += page.data
    cursor = page.meta.cursor
    if not cursor:
        break
print(json.dumps([len({row.id for row in rows}), len({score.id for score in scores}), rows[0].input, scores[0].subject.kind]))
"""


def test_the_sdk_reads_the_pages_of_the_double_and_retries_as_with_the_real_one() -> None:
    faults = iter(["rate", "error_500"])
    with LangfuseServer(fault=lambda number, target: next(faults, "ok") if "cursor=" in target else "ok") as server:
        start = datetime.now(UTC) - timedelta(hours=5)
        for number in range(1000):
            time = start + timedelta(seconds=number)
            server.project.add_trace(f"{number:032x}", "I cough.", "Since when?", time)
            server.project.add_score(f"s{number}", f"{number:032x}", number % 2 == 0, time)
        assert langfuse_client(READ, server) == [1000, 1000, "I cough.", "trace"]


LANGCHAIN = """
import json, os
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="base", base_url=os.environ["BASE_URL"], api_key="none", temperature=0, max_tokens=8, max_retries=0)
whole = model.invoke("I have had a cough for two weeks.")
pieces = "".join(str(piece.content) for piece in model.stream("I have had a cough for two weeks."))
print(json.dumps([whole.content, pieces, whole.usage_metadata["output_tokens"]]))
"""
LANGGRAPH = """
import json, os
from typing import TypedDict
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
class State(TypedDict):
    question: str
    answer: str
model = ChatOpenAI(model="base", base_url=os.environ["BASE_URL"], api_key="none", temperature=0, max_tokens=8, max_retries=0)
graph = StateGraph(State)
graph.add_node("ask", lambda state: {"answer": model.invoke(state["question"]).content})
graph.add_edge(START, "ask")
graph.add_edge("ask", END)
print(json.dumps(graph.compile().invoke({"question": "I have had a cough for two weeks."})["answer"]))
"""


def test_langchain_and_langgraph_talk_to_the_embedded_server_unchanged() -> None:
    with model_server() as server:
        whole, pieces, tokens = run_client(LANGCHAIN, BASE_URL=f"{server.url}/v1", LANGSMITH_TRACING="false")
        assert whole and whole == pieces and 0 < tokens <= 8
        assert run_client(LANGGRAPH, BASE_URL=f"{server.url}/v1", LANGSMITH_TRACING="false") == whole
