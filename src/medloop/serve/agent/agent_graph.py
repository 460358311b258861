"""The same steps in LangGraph, for those who use it: `pip install langgraph`, then

    graph = agent_graph(nodes(find_passages=find, tools=tools, answer=answer))
    graph.invoke({"state": AgentState(messages)})["state"].answer

Each step of agent_loop.py is a node with its name, in the same order. Nothing of medloop needs LangGraph.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from medloop.errors import MissingExtraError
from medloop.serve.agent.agent_loop import Node


def agent_graph(steps: Mapping[str, Node]) -> Any:
    """A compiled graph over `{"state": AgentState}`."""
    try:
        from langgraph.graph import END, START, StateGraph
    except ImportError as error:
        raise MissingExtraError("The agent as a graph needs LangGraph", "Install it with: pip install langgraph") from error

    def node(name: str, step: Node) -> Any:
        def run(values: dict[str, Any]) -> dict[str, Any]:
            state = values["state"]
            return {"state": replace(step(state), steps=(*state.steps, name))}

        return run

    graph = StateGraph(dict)
    for name, step in steps.items():
        graph.add_node(name, node(name, step))
    for first, second in pairwise((START, *steps, END)):
        graph.add_edge(first, second)
    return graph.compile()
