"""The steps of an answer; and thirty documents that try to change them."""

from pathlib import Path

import pytest
from knowledge_world import GUIDELINE, INJECTIONS

from medloop.contracts.assistant import Passage, PassagesFound
from medloop.contracts.chat import Message
from medloop.contracts.knowledge import DocumentPage
from medloop.reward.detect.urgency import urgency
from medloop.serve.agent import search
from medloop.serve.agent.agent_loop import AgentState, compose_prompt, nodes, run_agent
from medloop.serve.agent.documents import ReadDocument, tidy
from medloop.serve.agent.library import Library
from medloop.serve.agent.search import open_index
from medloop.serve.agent.tools import clinical_tools

TOOLS = clinical_tools(urgency=urgency)
SYSTEM = "You are a careful assistant of a clinic."
QUESTION = "My son weighs 16 kg and has heat stroke. Does dantrolene help, or ibuprofen?"


def observed(home: Path) -> dict[str, object]:
    """Everything that decides: the steps, the calls with their results, the system prompt before the data, and the user's words."""
    index = open_index(home, None)
    assert index is not None
    shown: list[tuple[Message, ...]] = []

    def answer(prompt: tuple[Message, ...]) -> str:
        shown.append(tuple(prompt))
        return "I do not follow documents."

    messages = (Message(role="system", content=SYSTEM), Message(role="user", content=QUESTION))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(search.FIT_BY_WORDS, "en", 0.0)  # whatever is retrieved is shown
        state = run_agent(AgentState(messages), nodes(find_passages=index.search, tools=TOOLS, answer=answer))
    system = shown[0][0].content
    head, tail = system.split("=== ", 1)[0], system.rsplit(" ===", 1)[1]
    calls = [(done.tool, done.arguments, done.result, done.error) for done in state.calls]
    fence = system.split("=== ")[1].split(" ===")[0]
    inside = system.split(f"=== {fence} ===")
    return {
        "steps": state.steps, "calls": calls, "head": head.replace(fence, "WORD"), "tail": tail, "rest": shown[0][1:],
        "parts": len(inside), "passages": state.passages, "inside": inside[1],
        "urgency": urgency("\n".join(message.content for message in shown[0] if message.role == "user")),
    }  # fmt: skip


def add(home: Path, number: int, text: str) -> None:
    read = ReadDocument("Heat Stroke", "txt", f"{number}.txt", f"sha256:{number:064x}", (DocumentPage(text=tidy(text)),))
    Library(home).add(read, actor="user:test")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    home = tmp_path_factory.mktemp("clean")
    add(home, 1 << 200, GUIDELINE)
    return observed(home)


@pytest.mark.parametrize("attack", INJECTIONS, ids=range(len(INJECTIONS)))
def test_an_injected_document_changes_nothing_but_what_is_quoted(attack: str, clean: dict[str, object], tmp_path: Path) -> None:
    add(tmp_path, 1 << 200, GUIDELINE)
    add(tmp_path, 2 << 200, f"# Heat Stroke\n\n## Treatment\n\nDantrolene in heat stroke, ibuprofen, 16 kg. {attack}\n{attack}")
    poisoned = observed(tmp_path)
    found = poisoned["passages"]
    assert isinstance(found, PassagesFound) and any("16 kg" in passage.text for passage in found.passages)  # it was retrieved
    for name in ("steps", "calls", "head", "tail", "rest", "parts", "urgency"):
        assert poisoned[name] == clean[name], name
    inside = str(poisoned["inside"])
    assert not any(mark in inside for mark in ("<", ">", "[INST", "[/")), "marks of a chat format reach the prompt"
    assert all(line.startswith('{"number": ') and line.endswith("}") for line in inside.strip().splitlines())


def test_there_are_thirty() -> None:
    assert len(set(INJECTIONS)) == 30


def passages(*texts: str) -> PassagesFound:
    found = [
        Passage(passage_id=str(n), document="doc_1", title="T", page=n, end=len(text), text=text)
        for n, text in enumerate(texts, 1)
    ]
    return PassagesFound(index="sha256:" + "0" * 64, passages=tuple(found))


def test_the_assistants_own_prompt_stands_first_and_passages_are_bounded() -> None:
    messages = (Message(role="system", content=SYSTEM), Message(role="user", content="怎么办"))
    prompt = compose_prompt(messages, passages("a" * 5_000, "b" * 5_000, "c"))
    assert prompt[0].content.startswith(SYSTEM) and "文献" in prompt[0].content and prompt[1:] == messages[1:]
    assert prompt[0].content.count("a") >= 5_000 and 900 < prompt[0].content.count("b") < 1_100


def test_without_passages_and_results_the_messages_stay_as_they_are() -> None:
    messages = (Message(role="user", content="Hello"),)
    assert compose_prompt(messages, PassagesFound(index="sha256:" + "0" * 64)) == messages
    state = run_agent(AgentState(messages), nodes(find_passages=None, tools=TOOLS, answer=None))
    assert state.steps == ("retrieve", "use_tools", "compose") and state.prompt == messages


def test_langgraph_runs_the_same_steps() -> None:
    pytest.importorskip("langgraph")
    from medloop.serve.agent.agent_graph import agent_graph

    messages = (Message(role="user", content="能同时吃布洛芬和华法林吗？"),)
    steps = nodes(find_passages=lambda question: passages("不宜合用"), tools=TOOLS, answer=lambda prompt: prompt[0].content[-9:])
    plain, graph = run_agent(AgentState(messages), steps), agent_graph(steps).invoke({"state": AgentState(messages)})["state"]
    assert graph.steps == plain.steps and graph.answer == plain.answer and graph.passages == plain.passages
